"""Readers that follow a topic while its head is evicted, flushed and its files are rewritten: each offset once."""

import random
import threading
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pytest
from evidence import check, read_api, read_once, read_table
from failure_rig import MIB, StartServer
from publishers import Ledger, Wire, start_publishers

from siltlog.infra.clock import SystemClock
from siltlog.infra.data_file import DataFile, read_data_file, write_data_file
from siltlog.infra.errors import Fenced
from siltlog.infra.schema import FILE_SCHEMA
from siltlog.infra.store import ObjectStore, open_store
from siltlog.infra.table import TopicTable

PARTITIONS = 2
SECONDS = 8.0


class Rewriter:
    """Merges runs of neighbouring files as file compaction does, without Spark; old files stay for open readers."""

    def __init__(self, root: str, topic: str, rng: random.Random) -> None:
        self._store: ObjectStore = open_store(root)
        self._topic = topic
        self._rng = rng
        self.landed = 0
        self.refused = 0

    def once(self) -> None:
        clock = SystemClock()
        table = TopicTable.open(self._store, self._topic, clock)
        partition = self._rng.randrange(PARTITIONS)
        files = table.snapshot.files_of(partition)
        if len(files) < 4:
            return
        at = self._rng.randrange(len(files) - 3)
        removes = files[at : at + self._rng.randint(2, 12)]
        try:
            table.rewrite(table.snapshot.version, removes, [self._merged(removes)], str(uuid.uuid4()))
            self.landed += 1
        except Fenced:
            self.refused += 1

    def _merged(self, files: tuple[DataFile, ...] | list[DataFile]) -> DataFile:
        columns = FILE_SCHEMA.names
        tables = [read_data_file(self._store, self._topic, file, columns=columns, first_offset=0) for file in files]
        merged = pa.concat_tables(tables).select(columns).cast(FILE_SCHEMA)
        now_ms = SystemClock().now_us() // 1000
        return write_data_file(self._store, self._topic, files[0].partition, merged, compression="zstd", now_ms=now_ms)


@pytest.mark.slow
def test_followers_see_every_offset_once(make_server: StartServer, rng: random.Random) -> None:
    server = make_server(head_bytes_max=MIB, flush_ms=25)
    server.start()
    wire = Wire(server.url)
    wire.create("logs", PARTITIONS)
    ledger = Ledger()
    rewriter = Rewriter(server.root, "logs", rng)
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
        while not stopping.is_set():
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
