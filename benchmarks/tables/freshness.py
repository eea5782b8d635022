"""How long after it was sent a record is in a new snapshot of the Delta table, while records come at a steady rate."""

import threading
import time
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from deltalake import write_deltalake

from benchmarks.bench import Bench, Server
from benchmarks.figures.figure import Figure, Point
from benchmarks.loads.records import json_body, json_record, table
from benchmarks.tables.delta_log import entries
from siltlog.infra import names

RECORDS_PER_SECOND = 1_000
POST_RECORDS = 10
PARTITIONS = (1, 4, 20)
LOOK_SECONDS = 0.01
SECONDS = 12.0
QUICK_SECONDS = 4.0
P50_TARGET_SECONDS = 1.5
P95_TARGET_SECONDS = 3.0
APPENDS = 10
APPEND = "write_deltalake of one second's records"


class Sent(NamedTuple):
    partition: int
    last_offset: int
    seconds: float
    """When it was sent, on the monotonic clock."""


def freshness(bench: Bench) -> Iterator[Figure]:
    seconds = QUICK_SECONDS if bench.quick else SECONDS
    for partitions in PARTITIONS:
        with bench.server(partitions=partitions) as server:
            found = ages(server, seconds, partitions, RECORDS_PER_SECOND)
        label = f"{RECORDS_PER_SECOND:,} records/s on {partitions} partition{'s' if partitions > 1 else ''}"
        for percent, target in ((50, P50_TARGET_SECONDS), (95, P95_TARGET_SECONDS)):
            yield Figure(
                f"{label}: p{percent}",
                float(np.percentile([age for _, age in found], percent)),
                "s",
                at_most=target,
                points=(Point("freshness", f"p{percent}", partitions),),
            )
    body = json_body(json_record(100), 1)
    with bench.server() as server:
        load = bench.load(server.port, f"{server.publish_path}?acks=table", [body], names.MEDIA_JSON, 1)
        yield Figure(
            "acks=table, 1 connection: median",
            load.p50_ms / 1000,
            "s",
            p50_ms=load.p50_ms,
            p99_ms=load.p99_ms,
        )
    yield _append(bench)


def ages(server: Server, seconds: float, partitions: int, records_per_second: int) -> list[tuple[float, float]]:
    """Gives for every post when it was sent, in seconds from the first one on, and how many seconds passed until a
    look at the table's log found its last record there."""
    sent: list[Sent] = []
    done = threading.Event()
    poster = threading.Thread(
        target=_post, args=(server, seconds, partitions, records_per_second, sent, done), daemon=True
    )
    poster.start()
    found: list[tuple[float, float]] = []
    seen = version = 0
    reached = dict.fromkeys(range(partitions), -1)
    waiting: list[Sent] = []
    while not done.is_set() or seen < len(sent) or waiting:
        time.sleep(LOOK_SECONDS)
        for entry in entries(server, version):
            version = entry.version + 1
            reached.update({added.partition: added.last_offset for added in entry.added})
        now = time.perf_counter()
        fresh = sent[seen:]
        seen += len(fresh)
        waiting += fresh
        landed = [each for each in waiting if reached[each.partition] >= each.last_offset]
        found += [(each.seconds - sent[0].seconds, now - each.seconds) for each in landed]
        waiting = [each for each in waiting if reached[each.partition] < each.last_offset]
        if waiting and now - waiting[0].seconds > 60:
            raise RuntimeError("a record was not in the table 60 s after it was sent")
    poster.join()
    return found


def _post(
    server: Server,
    seconds: float,
    partitions: int,
    records_per_second: int,
    sent: list[Sent],
    done: threading.Event,
) -> None:
    body = json_body(json_record(100), POST_RECORDS)
    interval = POST_RECORDS / records_per_second
    headers = {"Content-Type": names.MEDIA_JSON}
    started = time.perf_counter()
    try:
        for turn in range(int(seconds / interval)):
            time.sleep(max(0.0, started + turn * interval - time.perf_counter()))
            before = time.perf_counter()
            path = f"{server.publish_path}?partition={turn % partitions}"
            reply = server.pool.urlopen("POST", path, body=body, headers=headers)
            assert reply.status == 200, reply.data
            part = reply.json()["partitions"][0]
            sent.append(Sent(part["partition"], part["last_offset"], before))
    finally:
        done.set()


def _append(bench: Bench) -> Figure:
    """Measures what a program without a log pays to have as many records in a table of its own."""
    records = table(RECORDS_PER_SECOND, 100, keyed=False)
    records = records.append_column("offset", pa.array(range(RECORDS_PER_SECOND), pa.int64()))
    took = []
    for _ in range(APPENDS):
        started = time.perf_counter()
        write_deltalake(bench.scratch / "table", records, mode="append")
        took.append(time.perf_counter() - started)
    p50, p99 = np.percentile(took, (50, 99))
    return Figure(APPEND, float(p50), "s", "limit", p50_ms=float(p50) * 1000, p99_ms=float(p99) * 1000)
