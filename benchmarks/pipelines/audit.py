"""`silt audit` of a topic beside a plain read of the same files; the memory that it takes."""

import json
import os
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.bench import Bench
from benchmarks.figures.figure import Figure
from benchmarks.loads.records import table as random_records
from benchmarks.loads.tables import new_table
from siltlog.infra import names
from siltlog.infra.arrow.partitioner import XXHASH64
from siltlog.infra.clock import SystemClock
from siltlog.infra.columns import FILE_SCHEMA, TIMESTAMP, nulls
from siltlog.infra.store.store import ObjectStore, open_store
from siltlog.infra.table.data_file import write_data_file

RECORDS = 3_000_000
QUICK_RECORDS = 50_000
RECORD_BYTES = 100
PARTITIONS = 4
FILE_RECORDS = 250_000
CASES = {"1,000 keys": 1_000, "a key of its own each": None}
"""How many different keys there are."""
_clock = SystemClock()


def audit(bench: Bench) -> Iterator[Figure]:
    count = QUICK_RECORDS if bench.quick else RECORDS
    root = bench.scratch / "lake"
    store = open_store(root.as_uri())
    for number, (label, keys) in enumerate(CASES.items()):
        topic = f"case-{number}"
        size_bytes = _fill(store, topic, count, keys)
        limit = f"a plain read of the same files, {label}"
        _plainly(store, topic)  # the first one also fetches the files, and Arrow's threads
        yield _figure(limit, count, size_bytes, _plainly(store, topic), "limit")
        # As the command: by a process of its own, whose memory can be told.
        report, memory_bytes = _audited(root.as_uri(), topic)
        assert report["verdict"] == "clean" and report["rows"] == count, report
        yield _figure(f"silt audit, {label}", count, size_bytes, report["seconds"], limit=limit)
        yield Figure(f"memory of silt audit, {label}", memory_bytes / 1e6, "MB")


def _figure(label: str, count: int, size_bytes: int, seconds: float, kind: str = "siltlog", limit: str = "") -> Figure:
    return Figure(
        label,
        count / seconds,
        "records/s",
        "limit" if kind == "limit" else "siltlog",
        limit,
        megabytes_per_second=size_bytes / seconds / 1e6,
    )


def _fill(store: ObjectStore, topic: str, count: int, keys: int | None) -> int:
    """Records in files as compaction leaves them; their bytes."""
    table = new_table(store, topic, _clock, partitions=PARTITIONS, config={"retention.ms": -1})
    table.claim(dict.fromkeys(range(PARTITIONS), 1), str(uuid.uuid4()))
    numbers = np.arange(count) if keys is None else np.random.default_rng(1).integers(0, keys, count)
    own = pa.array([b"key-%010d" % number for number in numbers.tolist()], pa.binary())
    place = XXHASH64.partitions_of(own, PARTITIONS, 0)
    files = []
    ends = {}
    for partition in range(PARTITIONS):
        chosen = own.filter(pa.array(place == partition))
        ends[partition] = (0, len(chosen))
        for first in range(0, len(chosen), FILE_RECORDS):
            records = _records(first, chosen.slice(first, FILE_RECORDS))
            now_ms = _clock.now_us() // 1000
            files.append(write_data_file(store, topic, partition, records, compression="zstd", now_ms=now_ms))
    table.append(files, ends, dict.fromkeys(ends, 1), str(uuid.uuid4()))
    return sum(file.size_bytes for file in files)


def _records(first: int, keys: pa.Array) -> pa.Table:
    count = len(keys)
    offsets = np.arange(first, first + count, dtype=np.int64)
    columns = {
        "offset": pa.array(offsets),
        "timestamp": pa.array(_clock.now_us() + offsets, TIMESTAMP),
        "key": keys,
        "value": random_records(count, RECORD_BYTES, keyed=False).column("value"),
    }
    rest = {field.name: nulls(count, field.type) for field in FILE_SCHEMA if field.name not in columns}
    return pa.table(columns | rest, schema=FILE_SCHEMA)


def _plainly(store: ObjectStore, topic: str) -> float:
    """Every page decoded and its checksum verified, files side by side; seconds."""
    paths = [info.path for info in store.list(names.topic_path(topic)) if info.path.endswith(".parquet")]

    def read(path: str) -> None:
        with store.open(path) as source:
            file = pq.ParquetFile(source, page_checksum_verification=True, pre_buffer=True)
            for index in range(file.metadata.num_row_groups):
                file.read_row_group(index, use_threads=False)

    started = time.perf_counter()
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(read, paths))
    return time.perf_counter() - started


def _audited(root: str, topic: str) -> tuple[dict[str, object], int]:
    """Gives what the command said of the topic, and the most memory that it had."""
    command = [sys.executable, "-m", "siltlog.cli", "audit", "--root", root, "--topic", topic, "--output", "json"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert process.stdout is not None
    said = process.stdout.read()
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0, said
    [report] = json.loads(said)["audited"]
    return report, used.ru_maxrss * 1024
