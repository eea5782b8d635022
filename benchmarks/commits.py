"""One append of a small file to a table that has many files and commits, by the door that every commit takes."""

import os
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa

from benchmarks.bench import Bench
from benchmarks.figure import Figure, Point
from siltlog.infra.clock import SystemClock
from siltlog.infra.data_file import DataFile, write_data_file
from siltlog.infra.schema import FILE_SCHEMA, TIMESTAMP
from siltlog.infra.store import ObjectStore, open_store
from siltlog.infra.table import TopicTable
from siltlog.infra.topic_config import TopicConfig

COMMITS = (100, 1_000, 4_000, 10_000)
QUICK_COMMITS = (100, 300)
LIVE_FILES = 2_000
APPENDS = 40
"""Measured at each number of commits."""
FILE_RECORDS = 50
TARGET_MS = 15.0
TOPIC = "bench"
ENTRY_BYTES = 1_500
LIMIT = "a new file of 1,500 B written and synced, with its folder"
_clock = SystemClock()


def commits(bench: Bench) -> Iterator[Figure]:
    at = QUICK_COMMITS if bench.quick else COMMITS
    store = open_store((bench.scratch / "lake").as_uri())
    table = _Table(store, LIVE_FILES - len(at) * APPENDS)
    for version in at:
        table.commit_until(version)
        took = [table.append_one() for _ in range(APPENDS)]
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
    yield Figure("a checkpoint and the clean-up after it, off that path", table.maintained_ms, "ms")
    yield _synced(bench.scratch)


class _Table:
    """A table with one partition. `files` of its files come with its first commits."""

    def __init__(self, store: ObjectStore, files: int) -> None:
        self._store = store
        self.door = TopicTable.create(
            store,
            TOPIC,
            topic_id=str(uuid.uuid4()),
            partitions=1,
            config=TopicConfig({}),
            created_us=_clock.now_us(),
            clock=_clock,
        )
        self._epoch = 0
        self._maintenance: list[float] = []
        self._claim()
        self._append([self._written(number * FILE_RECORDS) for number in range(files)])

    @property
    def maintained_ms(self) -> float:
        return float(np.median(self._maintenance)) * 1000

    def commit_until(self, version: int) -> None:
        """Makes the table older without more files: by commits that carry no more than transactions."""
        while self.door.snapshot.version < version:
            self._claim()
            self._maintain()

    def append_one(self) -> float:
        """Seconds; the file was written and synced before."""
        file = self._written(self.door.snapshot.offsets[0])
        self._store.sync([f"topics/{TOPIC}/{file.path}"])
        started = time.perf_counter()
        self._append([file])
        seconds = time.perf_counter() - started
        self._maintain()
        return seconds

    def _append(self, files: list[DataFile]) -> None:
        first = self.door.snapshot.offsets[0]
        bounds = {0: (first, first + sum(file.rows for file in files))}
        self.door.append(files, bounds, {0: self._epoch}, str(uuid.uuid4()))

    def _claim(self) -> None:
        self._epoch += 1
        self.door.claim({0: self._epoch}, str(uuid.uuid4()))

    def _maintain(self) -> None:
        started = time.perf_counter()
        self.door.maintain()
        seconds = time.perf_counter() - started
        if seconds > 0.001:
            self._maintenance.append(seconds)

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
        return write_data_file(self._store, TOPIC, 0, records, compression="zstd", now_ms=now_ms)


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
