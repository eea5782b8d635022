"""Readers that follow a topic while its head is evicted, flushed and its files are rewritten: each offset once."""

import random
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
from evidence import check, read_api, read_once, read_table
from failure_rig import MIB, StartServer
from publishers import Ledger, Wire, start_publishers
from rewriter import Rewriter

PARTITIONS = 2
SECONDS = 4.0
REST_SECONDS = 0.05
SECONDS_MAX = 60.0
"""Until enough has changed, on a busy machine."""


@pytest.mark.slow
def test_followers_see_every_offset_once(make_server: StartServer, rng: random.Random) -> None:
    server = make_server(head_bytes_max=MIB, flush_ms=25)
    server.start()
    wire = Wire(server.url)
    wire.create("logs", PARTITIONS)
    ledger = Ledger()
    rewriter = Rewriter(server.root, "logs", PARTITIONS, rng)
    stopping = threading.Event()
    ends: list[int] = []

    def follow(partition: int, query: str) -> int:
        own, offset, seen = Wire(server.url), 0, 0
        while not (ends and offset >= ends[partition]):
            rows, next_offset, _ = read_once(own, "logs", partition, offset, query)
            assert [row.offset for row in rows] == list(range(offset, next_offset))
            seen += len(rows)
            offset = next_offset
        return seen

    def repeat(action: Callable[[], None]) -> None:
        while not stopping.wait(REST_SECONDS):
            action()

    publishers = start_publishers(server.url, "logs", PARTITIONS, ledger, rng, plain=2, idempotent=1)
    queries = (
        "&wait_ms=50&max_records=37",
        "&wait_ms=200&max_bytes=20000",
        "&wait_ms=100",
        "&wait_ms=50&isolation=table",
    )
    with ThreadPoolExecutor(2 * len(queries) + 1) as threads:
        rewriting = threads.submit(repeat, rewriter.once)
        following = [threads.submit(follow, partition, query) for query in queries for partition in range(PARTITIONS)]
        stopping.wait(SECONDS)
        late = time.monotonic() + SECONDS_MAX
        while rewriter.landed <= 3 and time.monotonic() < late:
            stopping.wait(0.05)
        for publisher in publishers:
            publisher.finish()
        ends[:] = [entry["high_watermark"] for entry in wire.offsets("logs")]
        counts = [future.result() for future in following]
        stopping.set()
        rewriting.result()
    assert counts == [ends[partition] for _ in queries for partition in range(PARTITIONS)]
    assert rewriter.landed > 3, rewriter.refused
    found = read_api(wire, "logs", PARTITIONS)
    check(found, ledger)
    server.kill()
    server.start()
    assert read_api(wire, "logs", PARTITIONS) == found
    assert server.stop() == 0
    assert read_table(server.root, "logs") == sorted(found)
