"""Kafka's own client as an oracle: a process of Java that answers questions about bytes, by KafkaOracle.java."""

import json
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from siltlog.pipelines.spark.jars import JarSet, resolve
from siltlog.pipelines.spark.java import find_java

VERSION = "4.3.0"
JARS = JarSet("kafka-clients", VERSION, (("org.apache.kafka", "kafka-clients", VERSION),), ())
SOURCE = Path(__file__).with_name("KafkaOracle.java")
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
Record = tuple[int, bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]
"""Milliseconds, key, value, headers."""


class KafkaOracle:
    """Raises ConfigError at its start where there is no Java, or the client's jars cannot be downloaded."""

    def __init__(self) -> None:
        java = find_java()
        path = ":".join(map(str, resolve(JARS, java)))
        command = [java.executable, "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx256m", "-cp", path, SOURCE]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.communicate()

    def schema(self, key: int, side: str, version: int) -> Any:
        """Fields as [name, tag, type] in a dict of a struct; None where there is no such version."""
        return json.loads(self._ask("schema", key, side, version))

    def defaults(self, key: int, side: str) -> Any:
        """Fields by name: [default, fields of a struct or None]."""
        return json.loads(self._ask("defaults", key, side))

    def message(self, key: int, side: str, version: int, data: bytes) -> str:
        """A message without its header, read and written again: in hex, or what was wrong with it."""
        return self._ask("message", key, side, version, data.hex())

    def hash(self, key: bytes) -> int:
        return int(self._ask("hash", key.hex()))

    def partition(self, key: bytes, partitions: int) -> int:
        """Where its producer sends a record with this key, if nobody else says where."""
        return int(self._ask("partition", key.hex(), partitions))

    def error_name(self, code: int) -> str:
        return self._ask("error", code)

    def write(self, codec: str, records: list[Record]) -> bytes:
        """A batch of `records`."""
        return bytes.fromhex(self._ask("write", codec, " ".join(map(_record_text, records))))

    def read(self, data: bytes) -> list[tuple[tuple[bool, int, int, int], list[tuple[int, Record]]]]:
        """Gives of each batch whether it is control, leader epoch, last offset, latest time; and records by offsets."""
        answer = self._ask("read", data.hex())
        if answer.startswith("error"):
            raise AssertionError(answer)
        return [_batch(text) for text in answer.split(";") if text]

    def _ask(self, *parts: object) -> str:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("\t".join(map(str, parts)) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        assert answer, "the process of Java has ended"
        return answer.rstrip("\n")


def _hex(data: bytes | None) -> str:
    return "-" if data is None else data.hex()


def _bytes(text: str) -> bytes | None:
    return None if text == "-" else bytes.fromhex(text)


def _record_text(record: Record) -> str:
    millis, key, value, headers = record
    return ",".join(
        (str(millis), _hex(key), _hex(value), *(_hex(x) for name, of in headers for x in (name.encode(), of)))
    )


def _batch(text: str) -> tuple[tuple[bool, int, int, int], list[tuple[int, Record]]]:
    head, *records = text.split(" ")
    control, epoch, last, latest = head.split(",")
    return (control == "true", int(epoch), int(last), int(latest)), [_record(each) for each in records]


def _record(text: str) -> tuple[int, Record]:
    offset, millis, key, value, *headers = text.split(",")
    pairs = zip(headers[::2], headers[1::2], strict=True)
    named = tuple((bytes.fromhex(name).decode(), _bytes(value)) for name, value in pairs)
    return int(offset), (int(millis), _bytes(key), _bytes(value), named)
