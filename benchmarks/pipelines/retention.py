"""Retention on a table of very many files: what it takes to see what has expired, and to remove it."""

import time
import uuid
from collections.abc import Iterator

from benchmarks.bench import Bench
from benchmarks.figures.figure import Figure
from benchmarks.loads.tables import new_table
from siltlog.infra import delta_names, names
from siltlog.infra.clock import SystemClock
from siltlog.infra.settings.settings import ServerSettings
from siltlog.infra.store.store import ObjectStore, open_store
from siltlog.infra.table.data_file import DataFile
from siltlog.infra.table.delta import add_action, commit_actions, open_handle
from siltlog.infra.table.table import TopicTable
from siltlog.pipelines.retention.plan import plan
from siltlog.pipelines.retention.retain import retain_topics

FILES = 100_000
QUICK_FILES = 5_000
PARTITIONS = 16
FILE_RECORDS = 50
FILE_BYTES = 3_000
COMMITS = 20
EXPIRED_PART = 0.9
TARGET_SECONDS = 10.0
TOPIC = "many"
_clock = SystemClock()


def retention(bench: Bench) -> Iterator[Figure]:
    files = QUICK_FILES if bench.quick else FILES
    root = (bench.scratch / "lake").as_uri()
    store = open_store(root)
    _fill(store, files)
    settings = ServerSettings(data_dir=bench.scratch, root=root)

    started = time.perf_counter()
    table = TopicTable.open(store, TOPIC, _clock)
    opened = time.perf_counter()
    plan(table.snapshot, table.snapshot.config, _clock.now_us() // 1000)
    planned = time.perf_counter()
    yield Figure(f"{files:,} files: the table opened", opened - started, "s")
    yield Figure(f"{files:,} files: what has expired", planned - opened, "s")

    for label, dry_run in (("silt retain --dry-run", True), ("silt retain", False)):
        started = time.perf_counter()
        (report,) = retain_topics(settings, [TOPIC], dry_run=dry_run)
        seconds = time.perf_counter() - started
        assert report.error is None
        yield Figure(f"{label}, {report.files:,} files go", seconds, "s", at_most=TARGET_SECONDS)


def _fill(store: ObjectStore, files: int) -> None:
    """A table whose log names files that nobody wrote: nothing here opens one. Most of them are old."""
    per_partition = files // PARTITIONS
    retention_ms = 3_600_000
    now_us = _clock.now_us()
    new_table(store, TOPIC, _clock, partitions=PARTITIONS, config={"retention.ms": retention_ms})
    step = per_partition // COMMITS
    for first in range(0, step * COMMITS, step):
        expired = first < step * COMMITS * EXPIRED_PART
        written_us = now_us - (100_000 * retention_ms if expired else 0)
        added = [
            _file(partition, number, written_us)
            for partition in range(PARTITIONS)
            for number in range(first, first + step)
        ]
        end = (first + step) * FILE_RECORDS
        commit_actions(
            open_handle(store, TOPIC),
            [add_action(file, data_change=True) for file in added],
            {delta_names.txn_offset(partition): end for partition in range(PARTITIONS)},
            str(uuid.uuid4()),
        )
    # A table is checked, file by file, for what was added since its last checkpoint.
    open_handle(store, TOPIC).create_checkpoint()


def _file(partition: int, number: int, written_us: int) -> DataFile:
    first = number * FILE_RECORDS
    return DataFile(
        path=f"{names.partition_folder(partition)}/{uuid.uuid4()}.parquet",
        partition=partition,
        rows=FILE_RECORDS,
        size_bytes=FILE_BYTES,
        first_offset=first,
        last_offset=first + FILE_RECORDS - 1,
        min_timestamp_us=written_us // 1000 * 1000,
        max_timestamp_us=written_us // 1000 * 1000,
        modified_ms=written_us // 1000,
    )
