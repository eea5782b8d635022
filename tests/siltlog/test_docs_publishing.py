"""Every command of docs/publishing.md, against a real server: what it prints is what the page says."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from siltlog.testing import running_server

PAGE = Path(__file__).parents[2] / "docs" / "publishing.md"
_FENCED = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
CURL = 'curl() { command curl --fail-with-body "$@"; }\n'


class Step(NamedTuple):
    language: str
    commands: str
    printed: str | None


def steps(page: str) -> Iterator[Step]:
    """Each block of commands with the block of output that directly follows it."""
    blocks = list(_FENCED.finditer(page))
    for block, after in zip(blocks, [*blocks[1:], None], strict=True):
        if block[1] == "text":
            continue
        follows = after is not None and after[1] == "text" and not page[block.end() : after.start()].strip()
        yield Step(block[1], block[2], after[2] if after is not None and follows else None)


def test_the_page_is_read_as_it_is_meant() -> None:
    page = "```sh\na\n```\n```text\nb\n```\n\nx\n\n```python\nc\n```\nd\n```text\ne\n```\n"
    assert list(steps(page)) == [Step("sh", "a\n", "b\n"), Step("python", "c\n", None)]


@pytest.mark.slow
def test_the_page_does_what_it_says(tmp_path: Path) -> None:
    found = list(steps(PAGE.read_text("utf-8")))
    assert len(found) > 12
    folder = Path(sys.executable).parent
    with running_server(flush_ms=100) as server:
        environment = {**os.environ, "PATH": f"{folder}{os.pathsep}{os.environ['PATH']}", "SILT_URL": server.url}
        for step in found:
            commands = step.commands.replace("http://localhost:7070", server.url)
            commands = commands.replace("localhost:7070", server.url)
            program = [sys.executable, "-c", commands]
            if step.language == "sh":
                program = ["bash", "-euo", "pipefail", "-c", CURL + commands]
            ran = subprocess.run(program, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
            assert ran.returncode == 0, (step.commands, ran.stdout, ran.stderr)
            if step.printed is not None:
                # curl ends what it prints with no line end.
                assert ran.stdout.replace("\n", "") == step.printed.replace("\n", ""), (step.commands, ran.stderr)
