"""Consumers of Kafka's client for Java that are members of groups, all of one process (KafkaMembers.java)."""

import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

from kafka_oracle import JARS
from kafka_rig import WAIT_SECONDS

from siltlog.pipelines.spark.jars import resolve
from siltlog.pipelines.spark.java import find_java

SOURCE = Path(__file__).with_name("KafkaMembers.java")


class Read(NamedTuple):
    member: str
    topic: str
    partition: int
    offset: int
    value: str


class JavaMembers:
    """Raises ConfigError at its start where there is no Java, or the client's jars cannot be downloaded."""

    def __init__(self, bootstrap: str) -> None:
        java = find_java()
        path = ":".join(map(str, resolve(JARS, java)))
        command = [java.executable, "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx256m", "-cp", path, SOURCE]
        self._bootstrap = bootstrap
        self.records: list[Read] = []
        self.held: dict[str, set[tuple[str, int]]] = {}
        """What each member has, as its client knows it."""
        self.stopped: set[str] = set()
        self.failed: dict[str, str] = {}
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()

    def kill(self) -> None:
        """All members end without a word."""
        self._process.kill()
        self._process.wait()
        self._reader.join()

    def start(self, member: str, group: str, topics: str, **settings: str) -> None:
        """`topics` by commas, or `~` and a regular expression."""
        own = {"bootstrap.servers": self._bootstrap, "group.id": group, **settings}
        pairs = [f"{name.replace('_', '.')}={value}" for name, value in own.items()]
        self._say("start", member, topics, *pairs)

    def stop(self, member: str) -> None:
        """It leaves its group; returns once it has."""
        self._say("stop", member)
        self.until(lambda: member in self.stopped)

    def until(self, holds: Callable[[], bool]) -> None:
        end = time.monotonic() + WAIT_SECONDS
        while not holds():
            assert not self.failed, self.failed
            assert time.monotonic() < end, (self.held, len(self.records))
            time.sleep(0.02)

    def _say(self, *parts: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write("\t".join(parts) + "\n")
        self._process.stdin.flush()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            what, member, *rest = line.rstrip("\n").split("\t")
            match what:
                case "record":
                    topic, partition, offset, value = rest
                    self.records.append(Read(member, topic, int(partition), int(offset), value))
                case "assigned":
                    self.held.setdefault(member, set()).add((rest[0], int(rest[1])))
                case "revoked" | "lost":
                    self.held.setdefault(member, set()).discard((rest[0], int(rest[1])))
                case "stopped":
                    self.stopped.add(member)
                case "failed":
                    self.failed[member] = rest[0]
