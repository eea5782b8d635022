"""Compaction by Spark beside a plain read and write of the same files, and planning for very many of them."""

import time
import uuid
from collections.abc import Iterator, Sequence
from statistics import mean
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from benchmarks.bench import Bench
from benchmarks.figures.figure import Figure
from benchmarks.loads.records import table as random_records
from benchmarks.loads.tables import new_table
from siltlog.infra import delta_names, names
from siltlog.infra.clock import SystemClock
from siltlog.infra.columns import FILE_SCHEMA, TIMESTAMP, nulls
from siltlog.infra.store.store import ObjectStore, open_store
from siltlog.infra.table.data_file import DataFile, write_data_file
from siltlog.infra.table.snapshot import TableSnapshot
from siltlog.infra.table.table import TopicTable
from siltlog.pipelines.compaction import keys_plan as key_compaction_plan
from siltlog.pipelines.compaction.compact import compact
from siltlog.pipelines.compaction.plan import plan
from siltlog.pipelines.compaction.rewriting import WRITE_OPTIONS, records_of
from siltlog.pipelines.spark.session import spark_session
from siltlog.pipelines.topics import spark_uri

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RECORDS = 10_000_000
QUICK_RECORDS = 200_000
RECORD_BYTES = 100
PARTITIONS = 2
FILE_RECORDS = 50_000
WARM_FILE_RECORDS = 10_000
SMALL_FILES = 2_000
QUICK_SMALL_FILES = 100
SMALL_FILE_RECORDS = 20
RATIO_MAX = 1.5
FILES = 100_000
PLANNED_PARTITIONS = 16
PLAN_SECONDS_MAX = 10.0
_clock = SystemClock()


class _Case(NamedTuple):
    label: str
    topic: str
    policy: str
    repeats: float
    """Records of a key, on average."""


CASES = (
    _Case("file compaction", "files", "delete", 10),
    _Case("key compaction, a fifth stays", "keys", "compact", 10),
    _Case("key compaction, nearly all stay", "distinct", "compact", 0.2),
)


def compaction(bench: Bench) -> Iterator[Figure]:
    yield from _planning()
    count = QUICK_RECORDS if bench.quick else RECORDS
    small = QUICK_SMALL_FILES if bench.quick else SMALL_FILES
    store = open_store((bench.scratch / "lake").as_uri())
    tables = {case: _filled(store, case, count, min(FILE_RECORDS, count // 20)) for case in CASES}
    smalls = _filled(store, _Case("", "small", "delete", 1), small * SMALL_FILE_RECORDS, SMALL_FILE_RECORDS)
    with spark_session(store, short_job=False) as spark:
        # The first seconds of a JVM are its compiler's.
        for case in CASES:
            warm = _filled(store, case._replace(topic=f"warm-{case.topic}"), QUICK_RECORDS, WARM_FILE_RECORDS)
            _plainly(spark, store, warm.topic, _files(warm))
            _compacted(spark, store, warm)
        started = time.perf_counter()
        _compacted(spark, store, smalls)
        yield Figure("small files merged", small / (time.perf_counter() - started), "files/s")
        for case, table in tables.items():
            yield from _beside_plain(spark, store, table, case.label, count)


def _beside_plain(
    spark: "SparkSession", store: ObjectStore, table: TopicTable, label: str, count: int
) -> Iterator[Figure]:
    """The job, and a plain read and write of the same files before it and after it."""
    files = _files(table)
    plain_seconds = [_plainly(spark, store, table.topic, files)]
    started = time.perf_counter()
    _compacted(spark, store, table)
    seconds = time.perf_counter() - started
    plain_seconds.append(_plainly(spark, store, table.topic, files))
    limit = f"plain read and write beside {label}"
    yield Figure(limit, count / mean(plain_seconds), "records/s", "limit")
    yield Figure(label, count / seconds, "records/s", limit=limit)
    yield Figure(f"{label}: time of a plain read and write", seconds / mean(plain_seconds), "x", at_most=RATIO_MAX)
    before, after = (sum(file.size_bytes for file in each) for each in (files, _files(table)))
    yield Figure(f"{label}: bytes of those before", after / before, "x")


def _planning() -> Iterator[Figure]:
    """Plans for a table that nobody wrote: a plan looks at names, offsets, sizes and times."""
    per_partition = FILES // PLANNED_PARTITIONS
    properties = {
        delta_names.PROPERTY_PARTITIONS: str(PLANNED_PARTITIONS),
        delta_names.PROPERTY_CONFIG_PREFIX + "cleanup.policy": "compact,delete",
    }
    offsets = {delta_names.txn_offset(p): per_partition * FILE_RECORDS for p in range(PLANNED_PARTITIONS)}
    now_ms = _clock.now_us() // 1000
    made = [_planned_file(p, number, now_ms) for p in range(PLANNED_PARTITIONS) for number in range(per_partition)]
    snapshot = TableSnapshot.build(1, properties, offsets, made)
    started = time.perf_counter()
    merges = plan(snapshot, snapshot.config, now_ms)
    merged = time.perf_counter()
    passes = key_compaction_plan.plan(snapshot, snapshot.config, now_ms, {})
    seconds = time.perf_counter()
    assert merges.files and passes
    yield Figure(f"{FILES:,} files: what to merge", merged - started, "s", at_most=PLAN_SECONDS_MAX)
    yield Figure(f"{FILES:,} files: which keys to look through", seconds - merged, "s", at_most=PLAN_SECONDS_MAX)


def _planned_file(partition: int, number: int, now_ms: int) -> DataFile:
    first = number * FILE_RECORDS
    last = first + FILE_RECORDS - 1
    path = f"{names.partition_folder(partition)}/{number}.parquet"
    return DataFile(path, partition, FILE_RECORDS, 30_000, first, last, now_ms * 1000, now_ms * 1000, now_ms)


def _filled(store: ObjectStore, case: _Case, count: int, file_records: int) -> TopicTable:
    """A topic of `count` records in files as a server writes them."""
    config = {"retention.ms": -1, "cleanup.policy": case.policy}
    topic = case.topic
    table = new_table(store, topic, _clock, partitions=PARTITIONS, config=config)
    table.claim(dict.fromkeys(range(PARTITIONS), 1), str(uuid.uuid4()))
    random = np.random.default_rng(1)
    files = []
    end = count // PARTITIONS // file_records * file_records
    for partition in range(PARTITIONS):
        for first in range(0, end, file_records):
            numbers = random.integers(0, max(1, int(count / case.repeats)), file_records)
            records = _records(first, numbers)
            now_ms = _clock.now_us() // 1000
            files.append(write_data_file(store, topic, partition, records, compression="zstd", now_ms=now_ms))
    bounds = dict.fromkeys(range(PARTITIONS), (0, end))
    table.append(files, bounds, dict.fromkeys(bounds, 1), str(uuid.uuid4()))
    return table


def _records(first: int, numbers: npt.NDArray[np.int64]) -> pa.Table:
    count = len(numbers)
    offsets = np.arange(first, first + count, dtype=np.int64)
    columns = {
        "offset": pa.array(offsets),
        "timestamp": pa.array(_clock.now_us() + offsets, TIMESTAMP),
        "key": pa.array([b"key-%010d" % number for number in numbers.tolist()], pa.binary()),
        "value": random_records(count, RECORD_BYTES, keyed=False).column("value"),
    }
    rest = {field.name: nulls(count, field.type) for field in FILE_SCHEMA if field.name not in columns}
    return pa.table(columns | rest, schema=FILE_SCHEMA)


def _files(table: TopicTable) -> list[DataFile]:
    return list(table.refresh().files.values())


def _plainly(spark: "SparkSession", store: ObjectStore, topic: str, files: Sequence[DataFile]) -> float:
    """Measures what Spark needs for the same bytes, with the same options and no more than its own order; seconds."""
    folder = f"plain-{uuid.uuid4()}"
    started = time.perf_counter()
    (
        records_of(spark, store, topic, files)
        .write.options(**WRITE_OPTIONS, compression="zstd")
        .parquet(spark_uri(store, folder))
    )
    return time.perf_counter() - started


def _compacted(spark: "SparkSession", store: ObjectStore, table: TopicTable) -> None:
    report = compact(spark, store, table, _clock)
    assert report.error is None, report.error
    assert not report.raced_chunks and report.chunks
