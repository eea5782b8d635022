"""Clients of Kafka in many languages: each is a process (tests/clients/kafka) that does what it is told by lines."""

import hashlib
import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

import pytest

PROGRAMS = Path(__file__).parents[1] / "clients" / "kafka"
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "siltlog" / "deploy"
TOOLS = "tests/deploy/tools clients"
"""Installs what they are made of; where it has not, the tests are skipped."""
Command = list[str | Path]


class Said(NamedTuple):
    """What a player answers: records that it read, the partitions that a member holds, or the name of an error."""

    records: list[dict[str, Any]]
    held: set[int]
    error: str


class Player:
    """One process of a client."""

    def __init__(self, command: Command, bootstrap: str, log: Path, environment: dict[str, str]) -> None:
        self._log = log
        with log.open("ab") as stderr:
            self._process = subprocess.Popen(
                [*command, bootstrap],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                text=True,
                env=os.environ | environment,
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.communicate()

    def ask(self, do: str, **fields: Any) -> Said:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"do": do, **fields}) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, f"the player has ended: {self._log.read_text()[-4_000:]}"
        told = json.loads(line)
        return Said(told.get("records") or [], set(told.get("held") or ()), told.get("error", ""))

    def do(self, do: str, **fields: Any) -> Said:
        """Asks for what must not fail."""
        said = self.ask(do, **fields)
        assert not said.error, f"{do}: {said.error}\n{self._log.read_text()[-4_000:]}"
        return said


class Client(NamedTuple):
    """A client, and what is peculiar to it."""

    command: Callable[[Path], Command]
    """Takes a folder for what it builds; skips where what it needs is not there."""
    codecs: tuple[str, ...]
    unknown_topic: str = "UNKNOWN_TOPIC_OR_PARTITION"
    too_large: str = "MESSAGE_TOO_LARGE"
    environment: Callable[[], dict[str, str]] = dict


def installed(kind: str, pins: str) -> Path:
    """The folder of the cache into which TOOLS has installed what the file of `pins` names."""
    digest = hashlib.sha256((PROGRAMS / pins).read_bytes()).hexdigest()[:12]
    folder = CACHE / f"{kind}-{digest}"
    if not folder.is_dir():
        pytest.skip(f"{kind} is not installed: {TOOLS}")
    return folder


def _go(name: str) -> Callable[[Path], Command]:
    def build(folder: Path) -> Command:
        program = folder / name
        command = ["go", "build", "-o", program, f"./{name}"]
        # What TOOLS has fetched and built before is only linked.
        environment = os.environ | {
            "GOTOOLCHAIN": "local",
            "GOPROXY": "off",
            "GOFLAGS": "-mod=readonly -buildvcs=false",
        }
        try:
            done = subprocess.run(command, cwd=PROGRAMS / "go", env=environment, capture_output=True, text=True)
        except FileNotFoundError:
            pytest.skip("there is no Go: https://go.dev/dl")
        if "GOPROXY=off" in done.stderr or "go.mod requires go" in done.stderr:
            pytest.skip(f"{name} cannot be built: {TOOLS}")
        assert done.returncode == 0, done.stderr
        return [program]

    return build


def _aiokafka(_: Path) -> Command:
    python = installed("aiokafka", "aiokafka/requirements.txt") / "bin" / "python"
    return [python, PROGRAMS / "aiokafka" / "player.py"]


CLIENTS = {
    "franz-go": Client(_go("franz"), ("zstd", "snappy")),
    "sarama": Client(_go("sarama"), ("zstd", "lz4")),
    "aiokafka": Client(_aiokafka, ("lz4", "gzip"), too_large="MESSAGE_SIZE_TOO_LARGE"),
}
