"""One append of a small file to a table that has many files and commits, by the door that every commit takes."""

import os
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa

from benchmarks.bench import Bench
from benchmarks.figures.figure import Figure, Point
from benchmarks.loads.tables import new_table
from benchmarks.tables.log_only import LogOnly
from siltlog.infra import names
from siltlog.infra.clock import SystemClock
from siltlog.infra.columns import FILE_SCHEMA, TIMESTAMP
from siltlog.infra.store.store import ObjectStore, open_store
from siltlog.infra.table.data_file import DataFile, write_data_file
from siltlog.infra.table.table import TopicTable

COMMITS = (100, 1_000, 10_000)
QUICK_COMMITS = (100, 300)
LIVE_FILES = 2_000
REMOVED = (0, 86_400, 600_000)
"""None; by the budget of files; by flushing four partitions twice a second without one."""
QUICK_REMOVED = (0, 20_000)
FLUSHED_FILES = 4
APPENDS = 40
"""Measured at each number of commits."""
FILE_RECORDS = 50
TARGET_MS = 15.0
ENTRY_BYTES = 1_500
MAINTAINED_SECONDS_MIN = 0.001
"""A call that has nothing to do takes less."""
LIMIT = "a new file of 1,500 B written and synced, with its folder"
_clock = SystemClock()


def commits(bench: Bench) -> Iterator[Figure]:
    at = QUICK_COMMITS if bench.quick else COMMITS
    store = open_store((bench.scratch / "lake").as_uri())
    maintained: list[float] = []
    for version in at:
        table = _Table(store, f"after-{version}")
        table.commit_until(version)
        table.fill(LIVE_FILES - APPENDS)
        took = [table.append_one() for _ in range(APPENDS)]
        maintained += table.maintained
        files = len(table.door.snapshot.files)
        p50, p99 = np.percentile(took, (50, 99)) * 1000
        yield Figure(
            f"commit {version:,}, {files:,} files: commit and refresh",
            float(p50),
            "ms",
            at_most=TARGET_MS,
            p50_ms=float(p50),
            p99_ms=float(p99),
            points=(Point("commits", "commit and refresh, p50", version),),
        )
    p50 = float(np.median(maintained)) * 1000
    yield Figure("a checkpoint and the clean-up after it, off that path", p50, "ms")
    for removed in QUICK_REMOVED if bench.quick else REMOVED:
        yield from _after_removals(store, removed)
    yield _synced(bench.scratch)


def _after_removals(store: ObjectStore, removed: int) -> Iterator[Figure]:
    """Measures what checkpoints cost a table that has removed so many files in the period for which they are kept."""
    column = f"{removed:,} files removed in a day"
    topic = LogOnly(store, f"removed-{removed}")
    topic.add_and_remove(removed)
    started = time.perf_counter()
    topic.door.checkpoint()
    yield Figure("a checkpoint, ms", (time.perf_counter() - started) * 1000, "ms", column=column)
    yield Figure("its length, MB", topic.checkpoint_bytes() / 1e6, "MB", column=column)
    started = time.perf_counter()
    TopicTable.open(store, topic.topic, _clock)
    yield Figure("open the table, ms", (time.perf_counter() - started) * 1000, "ms", column=column)
    committed = maintained = 0.0
    commits, newest = 0, topic.checkpoint_bytes()
    while topic.checkpoint_bytes() == newest:
        started = time.perf_counter()
        topic.commit(topic.files(FLUSHED_FILES))
        between = time.perf_counter()
        topic.door.maintain()
        maintained += time.perf_counter() - between
        committed += between - started
        commits += 1
    yield Figure("commits until the next", commits, "", column=column)
    yield Figure("of a core, at two commits a second: commits, %", 200 * committed / commits, "%", column=column)
    yield Figure("and checkpoints, %", 200 * maintained / commits, "%", column=column)
    each = topic.checkpoint_bytes() / 1e3 / commits
    yield Figure("written for checkpoints then, kB a second", 2 * each, "kB/s", column=column)


class _Table:
    """A table with one partition."""

    def __init__(self, store: ObjectStore, topic: str) -> None:
        self._store = store
        self._topic = topic
        self.maintained: list[float] = []
        """Seconds of each checkpoint and what follows it, since the table has its files."""
        self.door = new_table(store, topic, _clock)
        self._epoch = 0

    def commit_until(self, version: int) -> None:
        """Makes the table older while it is empty: by commits that carry no more than transactions."""
        while self.door.snapshot.version < version:
            self._epoch += 1
            self.door.claim({0: self._epoch}, str(uuid.uuid4()))
            self.door.maintain()

    def fill(self, files: int) -> None:
        self._append([self._written(number * FILE_RECORDS) for number in range(files)])

    def append_one(self) -> float:
        """Seconds; the file was written and synced before."""
        file = self._written(self.door.snapshot.offsets[0])
        self._store.sync([f"{names.topic_path(self._topic)}/{file.path}"])
        started = time.perf_counter()
        self._append([file])
        seconds = time.perf_counter() - started
        self._maintain()
        return seconds

    def _append(self, files: list[DataFile]) -> None:
        first = self.door.snapshot.offsets[0]
        bounds = {0: (first, first + sum(file.rows for file in files))}
        self.door.append(files, bounds, {0: self._epoch}, str(uuid.uuid4()))

    def _maintain(self) -> None:
        started = time.perf_counter()
        self.door.maintain()
        seconds = time.perf_counter() - started
        if seconds > MAINTAINED_SECONDS_MIN:
            self.maintained.append(seconds)

    def _written(self, first: int) -> DataFile:
        columns = {
            "offset": pa.array(range(first, first + FILE_RECORDS), pa.int64()),
            "timestamp": pa.array([_clock.now_us()] * FILE_RECORDS, TIMESTAMP),
            "value": pa.array([os.urandom(100) for _ in range(FILE_RECORDS)], pa.binary()),
        }
        arrays = [
            columns[field.name] if field.name in columns else pa.nulls(FILE_RECORDS, field.type)
            for field in FILE_SCHEMA
        ]
        records = pa.table(arrays, schema=FILE_SCHEMA)
        now_ms = _clock.now_us() // 1000
        return write_data_file(self._store, self._topic, 0, records, compression="zstd", now_ms=now_ms)


def _synced(folder: Path) -> Figure:
    folder = folder / "entries"
    folder.mkdir()
    folder_fd = os.open(folder, os.O_RDONLY)
    content = os.urandom(ENTRY_BYTES)
    took = []
    for number in range(APPENDS):
        started = time.perf_counter()
        fd = os.open(folder / str(number), os.O_WRONLY | os.O_CREAT, 0o600)
        os.write(fd, content)
        os.fsync(fd)
        os.close(fd)
        os.fsync(folder_fd)
        took.append(time.perf_counter() - started)
    os.close(folder_fd)
    p50, p99 = np.percentile(took, (50, 99)) * 1000
    return Figure(LIMIT, float(p50), "ms", "limit", p50_ms=float(p50), p99_ms=float(p99))
