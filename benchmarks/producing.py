"""Producer.send record by record: exactly once, batched by the library."""

import time
from collections.abc import Iterator, Sequence
from itertools import cycle

from benchmarks.arrow import BODY_RECORDS
from benchmarks.bench import TOPIC, Bench, Server
from benchmarks.figure import Figure
from benchmarks.records import json_record, table
from siltlog import Producer

RECORD_BYTES = 100
RECORDS_PER_SECOND = 100_000
"""About what to expect, so that a run lasts about as long as it should."""
BATCHED = "the same many by send_batch, 10,000 at once"


def producer(bench: Bench) -> Iterator[Figure]:
    count = int(RECORDS_PER_SECOND * bench.seconds)
    value = json_record(RECORD_BYTES)
    with bench.server() as server:
        yield _sends(server, "bytes, no key", [value] * count, [None])
        yield _sends(server, "bytes, 1,000 keys", [value] * count, [f"key-{number}" for number in range(1_000)])
        document = {"carrier": "UA", "flight": 1545, "origin": "EWR", "dep_delay": 2.0, "note": "x" * 24}
        yield _sends(server, "dict of 5 members, no key", [document] * count, [None])
        yield _batches(server, count)


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
        cpu_us=(server.cpu_seconds() - cpu_before) / len(values) * 1e6,
    )


def _batches(server: Server, count: int) -> Figure:
    records = table(BODY_RECORDS, RECORD_BYTES, keyed=False)
    with Producer(server.url) as sender:
        sender.send_batch(TOPIC, records).result(30)
        started = time.perf_counter()
        for _ in range(count // BODY_RECORDS):
            sender.send_batch(TOPIC, records)
        sender.flush(60_000)
        seconds = time.perf_counter() - started
    return Figure(BATCHED, count // BODY_RECORDS * BODY_RECORDS / seconds, "records/s", "limit")
