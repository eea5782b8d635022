"""How long after its acknowledgement a record is in the table, while records come at a steady rate."""

import threading
import time
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
from deltalake import write_deltalake

from benchmarks.bench import TOPIC, Bench, Server
from benchmarks.figure import Figure
from benchmarks.records import json_body, json_record, table
from siltlog.infra import names

RECORDS_PER_SECOND = 1_000
POST_RECORDS = 10
PARTITIONS = 4
LOOK_SECONDS = 0.01
TARGET_SECONDS = 2.0
APPENDS = 10
APPEND = "write_deltalake of one second's records"


def freshness(bench: Bench) -> Iterator[Figure]:
    seconds = max(4.0, bench.seconds * 2)
    with bench.server(partitions=PARTITIONS) as server:
        ages = _ages(server, seconds)
        p50, p99 = np.percentile(ages, (50, 99))
        yield Figure(
            f"from acknowledgement to table, {RECORDS_PER_SECOND:,} records/s: median",
            float(p50),
            "s",
            at_most=TARGET_SECONDS,
            p50_ms=float(p50) * 1000,
            p99_ms=float(p99) * 1000,
        )
    body = json_body(json_record(100), 1)
    with bench.server(partitions=PARTITIONS) as server:
        load = bench.load(server.port, f"{server.publish_path}?acks=table", [body], names.MEDIA_JSON, 1)
        yield Figure(
            "acks=table, 1 connection: median",
            load.p50_ms / 1000,
            "s",
            p50_ms=load.p50_ms,
            p99_ms=load.p99_ms,
        )
    yield _append(bench)


def _ages(server: Server, seconds: float) -> list[float]:
    """Of every post: seconds from its acknowledgement until a look at the offsets showed its last record."""
    acknowledged: list[tuple[int, int, float]] = []
    done = threading.Event()
    poster = threading.Thread(target=_post, args=(server, seconds, acknowledged, done), daemon=True)
    poster.start()
    ages: list[float] = []
    seen = 0
    waiting: list[tuple[int, int, float]] = []
    while not done.is_set() or seen < len(acknowledged) or waiting:
        time.sleep(LOOK_SECONDS)
        fresh = acknowledged[seen:]
        seen += len(fresh)
        waiting += fresh
        offsets = {entry["partition"]: entry["table_offset"] for entry in server.admin.offsets(TOPIC)}
        now = time.perf_counter()
        ages += [now - acked for partition, last, acked in waiting if offsets[partition] > last]
        waiting = [entry for entry in waiting if offsets[entry[0]] <= entry[1]]
        if waiting and now - waiting[0][2] > 60:
            raise RuntimeError("a record was not in the table 60 s after its acknowledgement")
    poster.join()
    return ages


def _post(server: Server, seconds: float, acknowledged: list[tuple[int, int, float]], done: threading.Event) -> None:
    body = json_body(json_record(100), POST_RECORDS)
    interval = POST_RECORDS / RECORDS_PER_SECOND
    headers = {"Content-Type": names.MEDIA_JSON}
    started = time.perf_counter()
    try:
        for turn in range(int(seconds / interval)):
            time.sleep(max(0.0, started + turn * interval - time.perf_counter()))
            path = f"{server.publish_path}?partition={turn % PARTITIONS}"
            reply = server.pool.urlopen("POST", path, body=body, headers=headers)
            assert reply.status == 200, reply.data
            part = reply.json()["partitions"][0]
            acknowledged.append((part["partition"], part["last_offset"], time.perf_counter()))
    finally:
        done.set()


def _append(bench: Bench) -> Figure:
    """What a program without a log pays to have as many records in a table of its own."""
    records = table(RECORDS_PER_SECOND, 100, keyed=False)
    records = records.append_column("offset", pa.array(range(RECORDS_PER_SECOND), pa.int64()))
    took = []
    for _ in range(APPENDS):
        started = time.perf_counter()
        write_deltalake(bench.scratch / "table", records, mode="append")
        took.append(time.perf_counter() - started)
    p50, p99 = np.percentile(took, (50, 99))
    return Figure(APPEND, float(p50), "s", "limit", p50_ms=float(p50) * 1000, p99_ms=float(p99) * 1000)
