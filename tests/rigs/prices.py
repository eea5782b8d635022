"""A topic of prices that key compaction is tried on, and a model of what stays of it."""

from collections.abc import Iterable
from typing import Any

import pyarrow as pa
from record_tables import CLOCK, START_US
from topic_writer import TopicWriter

from siltlog.infra import delta_names
from siltlog.infra.clock import Clock
from siltlog.infra.columns import FILE_SCHEMA, HEADERS, TIMESTAMP
from siltlog.infra.store.store import ObjectStore
from siltlog.infra.table.data_file import read_data_file
from siltlog.infra.table.table import TopicTable
from siltlog.pipelines.compaction.compact import CompactionReport, compact
from siltlog.pipelines.compaction.plan import Limits

TOPIC = "prices"
DAY_MS = 86_400_000
Record = tuple[bytes | None, bytes | None]
"""Key and value."""


class FakeClock:
    """Wall time as it is set."""

    def __init__(self) -> None:
        self.ms: int = CLOCK.now_us() // 1000

    def now_us(self) -> int:
        return self.ms * 1000

    def monotonic(self) -> float:
        return CLOCK.monotonic()

    def sleep(self, seconds: float) -> None:
        raise AssertionError("nothing here waits")


def table_of(first: int, records: Iterable[Record], *, timestamp_us: int = START_US) -> pa.Table:
    keys, values = zip(*records, strict=True)
    count = len(keys)
    columns = {
        "offset": pa.array(range(first, first + count), pa.int64()),
        "timestamp": pa.array([timestamp_us] * count, TIMESTAMP),
        "key": pa.array(keys, pa.binary()),
        "value": pa.array(values, pa.binary()),
        "headers": pa.array([[{"key": "n", "value": b"%d" % n}] for n in range(count)], HEADERS),
    }
    rest = {field.name: pa.nulls(count, field.type) for field in FILE_SCHEMA if field.name not in columns}
    return pa.table(columns | rest, schema=FILE_SCHEMA)


class Prices(TopicWriter):
    def __init__(self, store: ObjectStore, partitions: int = 1, **config: Any) -> None:
        super().__init__(store, TOPIC, partitions, **({"cleanup_policy": "compact"} | config))

    def put(self, *records: Record, partition: int = 0, timestamp_us: int = START_US) -> None:
        """One file."""
        first = self.table.refresh().offsets[partition]
        self.append_tables({partition: table_of(first, records, timestamp_us=timestamp_us)})

    def rows(self, partition: int = 0) -> list[dict[str, Any]]:
        return [
            row
            for file in self.table.refresh().files_of(partition)
            for row in read_data_file(self.store, TOPIC, file, columns=FILE_SCHEMA.names).to_pylist()
        ]

    def kept(self, partition: int = 0) -> list[int]:
        return [row["offset"] for row in self.rows(partition)]

    def opened(self, clock: Clock = CLOCK) -> TopicTable:
        return TopicTable.open(self.store, TOPIC, clock)

    def marks(self, partition: int = 0) -> tuple[int, int]:
        snapshot = self.table.refresh()
        return snapshot.compacted(partition), snapshot.transactions.get(delta_names.txn_tombstones(partition), 0)


def run(spark: Any, topic: Prices, clock: Clock = CLOCK, limits: Limits | None = None) -> CompactionReport:
    report = compact(spark, topic.store, topic.opened(clock), clock, limits=limits)
    if report.error is not None:
        raise report.error
    return report


def model(rows: list[dict[str, Any]], end: int) -> list[dict[str, Any]]:
    """What stays of `rows` when those below `end` are compacted and no tombstone is old enough to go."""
    last = {row["key"]: row["offset"] for row in rows if row["offset"] < end}
    return [row for row in rows if row["key"] is None or row["offset"] >= end or last[row["key"]] == row["offset"]]
