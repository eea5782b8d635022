"""What is compared: how a system is started, what a request of it is, and how its records are read."""

import socket
import subprocess
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from benchmarks.loads.load import WIRES
from benchmarks.servers.child import ending
from benchmarks.wires.wire import Wire

BULK_RECORDS = 500
PARTITIONS = 4
START_SECONDS_MAX = 90.0
LOG_BYTES_SHOWN = 600


class Missing(Exception):
    """A system that cannot be had here; its sentence says why."""


class Running(NamedTuple):
    port: int
    pid: int
    version: str


class Reader(ABC):
    """One connection that reads what is published to partition 0 from when it was made."""

    @abstractmethod
    def receive(self) -> int:
        """Waits for records, for half a second at most or so; how many came."""


class System(ABC):
    """What a system is asked for is the same in each: 100 B a record, and a sync before it acknowledges."""

    name: str
    protocol: str
    synced_by: str
    """What it is told so that it syncs first."""
    bulk: str = f"bodies of {BULK_RECORDS}"
    """In what so many records travel together."""
    bulk_replies: int = 1

    @abstractmethod
    def running(self, folder: Path, cache: Path) -> AbstractContextManager[Running]:
        """Starts it with its data in `folder`, which is not there yet. Raises Missing."""

    @abstractmethod
    def single(self, port: int, value: bytes) -> Sequence[bytes]:
        """Makes requests of one record each; where there are several, for a partition each."""

    @abstractmethod
    def many(self, port: int, value: bytes) -> Sequence[bytes]:
        """The same of BULK_RECORDS each."""

    @abstractmethod
    def reader(self, port: int) -> Reader: ...

    @property
    def wire(self) -> Wire:
        return WIRES[self.protocol]


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


@contextmanager
def child(
    arguments: Sequence[str], port: int, folder: Path, ready: Callable[[], object], env: Mapping[str, str] | None = None
) -> Iterator[int]:
    """A process that ends with the block; begins once `ready` raises neither OSError nor ValueError. Gives its pid.

    Raises RuntimeError with the end of what it said where it does not start.
    """
    log = folder / "said.log"
    with log.open("wb") as said:
        process = subprocess.Popen(arguments, stdout=said, stderr=said, stdin=subprocess.DEVNULL, cwd=folder, env=env)
    with ending(process):
        deadline = time.monotonic() + START_SECONDS_MAX
        while True:
            with suppress(OSError, ValueError):
                socket.create_connection(("127.0.0.1", port), 1).close()
                ready()
                break
            if process.poll() is not None or time.monotonic() > deadline:
                end = log.read_text(errors="replace")[-LOG_BYTES_SHOWN:]
                raise RuntimeError(f"{arguments[0]} did not start: {end}")
            time.sleep(0.05)
        yield process.pid
