"""Producer.send record by record: exactly once, batched by the library."""

import socket
import time
from collections.abc import Iterator, Sequence
from itertools import cycle

from benchmarks.bench import TOPIC, Bench, Server
from benchmarks.figures.figure import Figure
from benchmarks.loads.records import ARROW_RECORDS, json_record, table
from benchmarks.servers.child import valkey_server
from siltlog import Producer

RECORD_BYTES = 100
RECORDS_PER_SECOND = 100_000
"""About what to expect, so that a run lasts about as long as it should."""
TARGET = 300_000.0
PIPELINE = 500
PIPELINES_IN_FLIGHT = 8
PLAIN = "bytes, no key"
BATCHED = "the same many by send_batch, 10,000 at once"


def producer(bench: Bench) -> Iterator[Figure]:
    count = int(RECORDS_PER_SECOND * bench.seconds)
    value = json_record(RECORD_BYTES)
    with bench.server() as server:
        yield _sends(server, PLAIN, [value] * count, [None])
        yield _sends(server, "bytes, 1,000 keys", [value] * count, [f"key-{number}" for number in range(1_000)])
        document = {"carrier": "UA", "flight": 1545, "origin": "EWR", "dep_delay": 2.0, "note": "x" * 24}
        yield _sends(server, "dict of 5 members, no key", [document] * count, [None])
        yield _batches(server, count)
    with valkey_server(bench.scratch / "valkey") as valkey:
        yield _pipelines(valkey.port, value, count)


def _sends(server: Server, what: str, values: Sequence[object], keys: Sequence[str | None]) -> Figure:
    cpu_before = server.cpu_seconds()
    with Producer(server.url) as sender:
        sender.send(TOPIC, b"{}").result(30)
        started = time.perf_counter()
        for value, key in zip(values, cycle(keys), strict=False):
            sender.send(TOPIC, value, key=key)
        sender.flush(60_000)
        seconds = time.perf_counter() - started
    return Figure(
        f"send: {what}",
        len(values) / seconds,
        "records/s",
        limit=BATCHED,
        at_least=TARGET if what == PLAIN else None,
        cpu_us=(server.cpu_seconds() - cpu_before) / len(values) * 1e6,
    )


def _batches(server: Server, count: int) -> Figure:
    records = table(ARROW_RECORDS, RECORD_BYTES, keyed=False)
    with Producer(server.url) as sender:
        sender.send_batch(TOPIC, records).result(30)
        started = time.perf_counter()
        for _ in range(count // ARROW_RECORDS):
            sender.send_batch(TOPIC, records)
        sender.flush(60_000)
        seconds = time.perf_counter() - started
    return Figure(BATCHED, count // ARROW_RECORDS * ARROW_RECORDS / seconds, "records/s", "limit")


def _pipelines(port: int, value: bytes, count: int) -> Figure:
    """Record by record too: each is packed when it is sent, and every 500 go out as one write."""
    head = b"*5\r\n$4\r\nXADD\r\n$6\r\nstream\r\n$1\r\n*\r\n$1\r\nv\r\n"
    with socket.create_connection(("127.0.0.1", port)) as connection:
        answers = _Answers(connection)
        started = time.perf_counter()
        packed: list[bytes] = []
        for number in range(1, count + 1):
            packed.append(b"%s$%d\r\n%s\r\n" % (head, len(value), value))
            if len(packed) == PIPELINE:
                connection.sendall(b"".join(packed))
                packed.clear()
                answers.wait_for(number - PIPELINE * PIPELINES_IN_FLIGHT)
        connection.sendall(b"".join(packed))
        answers.wait_for(count)
        seconds = time.perf_counter() - started
    return Figure(
        f"Valkey stream, packed one by one into pipelines of {PIPELINE}", count / seconds, "records/s", "peer"
    )


class _Answers:
    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._lines = 0

    def wait_for(self, commands: int) -> None:
        """Reads until so many commands are answered, each by two lines."""
        while self._lines < 2 * commands:
            data = self._connection.recv(1 << 16)
            if not data or b"\n-" in data:
                raise RuntimeError(f"Valkey answered {data[:200]!r}")
            self._lines += data.count(b"\n")
