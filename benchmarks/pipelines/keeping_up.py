"""A table that gets small files at a server's full rate, while `silt compact` runs again and again."""

import json
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa

from benchmarks.bench import Bench
from benchmarks.figures.figure import Figure, Point
from benchmarks.loads.records import table as random_records
from benchmarks.loads.tables import new_table
from benchmarks.servers.child import ending
from siltlog.infra.clock import SystemClock
from siltlog.infra.columns import FILE_SCHEMA, TIMESTAMP, nulls
from siltlog.infra.store.store import open_store
from siltlog.infra.table.data_file import write_data_file

TOPIC = "busy"
PARTITIONS = 50
FILES_PER_SECOND = 100
"""The budget of a server allows it (`ingest/flush/due.py`)."""
FILE_RECORDS = 20
RECORD_BYTES = 100
SECONDS = 90.0
QUICK_SECONDS = 12.0
FILES_MAX = 5_000
_clock = SystemClock()


class _Writer:
    """Appends as a server does: a commit a second, with a file for each partition that has records."""

    def __init__(self, root: str) -> None:
        self._store = open_store(root)
        self._table = new_table(self._store, TOPIC, _clock, partitions=PARTITIONS, config={"retention.ms": -1})
        self._table.claim(dict.fromkeys(range(PARTITIONS), 1), str(uuid.uuid4()))
        self._values = random_records(FILE_RECORDS, RECORD_BYTES, keyed=False).column("value")
        self.files = 0
        self.live_files: list[tuple[float, int]] = []
        """(seconds since the start, live files)"""

    def write(self, seconds: float) -> None:
        started = time.monotonic()
        commits = 0
        while (passed := time.monotonic() - started) < seconds:
            first = commits * FILE_RECORDS
            self._commit(first)
            commits += 1
            self.files += PARTITIONS
            self._table.maintain()
            self.live_files.append((passed, len(self._table.refresh().files)))
            due = started + self.files / FILES_PER_SECOND
            time.sleep(max(0.0, due - time.monotonic()))

    def _commit(self, first: int) -> None:
        offsets = np.arange(first, first + FILE_RECORDS, dtype=np.int64)
        columns = {
            "offset": pa.array(offsets),
            "timestamp": pa.array(_clock.now_us() + offsets, TIMESTAMP),
            "value": self._values,
        }
        rest = {field.name: nulls(FILE_RECORDS, field.type) for field in FILE_SCHEMA if field.name not in columns}
        records = pa.table(columns | rest, schema=FILE_SCHEMA)
        now_ms = _clock.now_us() // 1000
        files = [
            write_data_file(self._store, TOPIC, partition, records, compression="zstd", now_ms=now_ms)
            for partition in range(PARTITIONS)
        ]
        bounds = dict.fromkeys(range(PARTITIONS), (first, first + FILE_RECORDS))
        self._table.append(files, bounds, dict.fromkeys(bounds, 1), str(uuid.uuid4()))


def keeping_up(bench: Bench) -> Iterator[Figure]:
    seconds = QUICK_SECONDS if bench.quick else SECONDS
    root = (bench.scratch / "busy").as_uri()
    writer = _Writer(root)
    thread = threading.Thread(target=writer.write, args=(seconds,))
    thread.start()
    runs, merged = 0, 0
    try:
        while thread.is_alive():
            merged += _compact(root, bench.scratch)
            runs += 1
    finally:
        thread.join()
    at = [passed for passed, _ in writer.live_files]
    yield Figure("small files that came", writer.files / max(at), "files/s")
    yield Figure("small files that were merged", merged / max(at), "files/s", limit="small files that came")
    yield Figure("runs of silt compact", runs, "runs")
    most = max(count for _, count in writer.live_files)
    yield Figure("live files at most", most, "files", at_most=FILES_MAX)
    series = f"{FILES_PER_SECOND} files/s come"
    for passed, count in writer.live_files:
        points = (Point("live-files", series, passed),)
        yield Figure(f"live files after {passed:.1f} s", count, "files", "sample", points=points)


def _compact(root: str, folder: Path) -> int:
    """A run of the command; how many files it merged."""
    command = [sys.executable, "-m", "siltlog.cli", "compact", "--root", root, "--topic", TOPIC, "--output", "json"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, cwd=folder)
    with ending(process):
        said, _ = process.communicate()
    assert process.returncode == 0, said
    (report,) = json.loads(said)["compacted"]
    return int(report["merged_files"])
