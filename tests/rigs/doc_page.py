"""Pages of commands with what they print: a test runs them against a real server and compares."""

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from forked_command import folder_of_silt

_FENCED = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_CURL = 'curl() { command curl --fail-with-body "$@"; }\n'
STEP_SECONDS_MAX = 240
BINARIES = Path(sys.executable).parent


class Step(NamedTuple):
    language: str
    commands: str
    printed: str | None


def steps(page: str) -> Iterator[Step]:
    """Each block of commands with the block of output that directly follows it; other blocks are for reading."""
    blocks = list(_FENCED.finditer(page))
    for block, after in zip(blocks, [*blocks[1:], None], strict=True):
        if block[1] not in ("sh", "python"):
            continue
        follows = after is not None and after[1] == "text" and not page[block.end() : after.start()].strip()
        yield Step(block[1], block[2], after[2] if after is not None and follows else None)


def environment_of(url: str) -> dict[str, str]:
    """The environment in which `silt` asks the server at `url`."""
    forked = folder_of_silt(BINARIES / "silt")
    places = [str(place) for place in (forked, BINARIES, os.environ["PATH"]) if place]
    return {**os.environ, "PATH": os.pathsep.join(places), "SILT_URL": url}


def run(
    page: str, url: str, folder: Path, *, change: Callable[[str], str] = str, seconds_max: int = STEP_SECONDS_MAX
) -> int:
    """How many blocks ran, in `folder`, each to its end and with its output; `change` is made to commands before."""
    count = 0
    environment = environment_of(url)
    for step in steps(page):
        commands = change(step.commands.replace("http://localhost:7070", url).replace("localhost:7070", url))
        program = [sys.executable, "-c", commands]
        if step.language == "sh":
            program = ["bash", "-euo", "pipefail", "-c", _CURL + commands]
        ran = subprocess.run(
            program,
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=seconds_max,
        )
        assert ran.returncode == 0, (step.commands, ran.stdout, ran.stderr)
        if step.printed is not None:
            # curl ends what it prints with no line end.
            assert ran.stdout.replace("\n", "") == step.printed.replace("\n", ""), (
                step.commands,
                ran.stdout,
                ran.stderr,
            )
        count += 1
    return count
