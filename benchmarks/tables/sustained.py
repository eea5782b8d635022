"""A minute of publishing and moving into Delta tables at once, as fast as both go together.

What is published is held back while more than a little is not in the table: so the rate is one that goes on for ever,
and the backlog at the end shows it.
"""

import threading
import time
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow.compute as pc
from deltalake import write_deltalake

from benchmarks.bench import Bench, Server
from benchmarks.figures.figure import Figure, Point
from benchmarks.loads.flights import JSON_RECORDS, arrow_flights, encoded, flights_table, json_flights
from benchmarks.loads.posting import post
from benchmarks.loads.records import ARROW_RECORDS
from benchmarks.servers.s3 import s3_server
from siltlog.demo.data import Flights, flights
from siltlog.infra import names
from siltlog.infra.store.store import open_store

SECONDS = 60.0
QUICK_SECONDS = 6.0
WARMUP_PART = 0.1
THREADS = 4
LOCAL_TARGET = 150.0
S3_TARGET = 60.0
BACKLOG_BYTES_MAX = 192 * 1024 * 1024
"""Values that are acknowledged and not in the table: twelve flushes' worth, far below what log and head may take."""
LOOK_SECONDS = 0.1
PARTS = 6
MIB = 1024 * 1024
APPEND_RECORDS = 100_000
Bodies = tuple[str, str, int, list[bytes]]


def sustained(bench: Bench) -> Iterator[Figure]:
    known = flights(40_000) if bench.quick else flights()
    arrow: Bodies = ("Arrow bodies of 10,000", names.MEDIA_ARROW, ARROW_RECORDS, arrow_flights(known))
    json: Bodies = ("JSON bodies of 500", names.MEDIA_JSON, JSON_RECORDS, json_flights(known))
    each = known.value_bytes / len(known)
    yield from _run(bench, "local Delta", {}, arrow, each, LOCAL_TARGET)
    yield from _run(bench, "local Delta", {}, json, each, LOCAL_TARGET)
    yield _appended(bench, "local Delta", known, bench.scratch.as_uri(), {})
    with s3_server(bench.scratch / "s3") as server:
        reached = {"s3_endpoint": server.endpoint, "s3_region": server.region}
        root = server.root_uri("lake")
        yield from _run(bench, "S3", {"root": root, **reached}, arrow, each, S3_TARGET)
        store = open_store(root, **reached)
        yield _appended(bench, "S3", known, store.uri("peer"), store.storage_options())
    limit = encoded(known, each)
    assert limit.megabytes_per_second is not None
    yield Figure(limit.label, limit.megabytes_per_second * 1e6 / MIB, "MiB/s", "limit")


def _run(
    bench: Bench, where: str, settings: Mapping[str, Any], bodies: Bodies, each: float, target: float
) -> Iterator[Figure]:
    what, media, count, sent = bodies
    label = f"{where}, {what}"
    seconds = QUICK_SECONDS if bench.quick else SECONDS
    warmup = seconds * WARMUP_PART
    # A burst is no rate that goes on for ever.
    with bench.server(burst_ms=0, **settings) as server:
        cpu_before = server.cpu_seconds()
        watch = _Backlog(server, each)
        started = time.perf_counter()
        posted = post(
            server.pool,
            server.publish_path,
            sent,
            media,
            threads=THREADS,
            seconds=seconds,
            warmup_seconds=warmup,
            may_post=watch.is_small,
        )
        samples = [(at - started - warmup, bytes_, settled) for at, bytes_, settled in watch.stop()]
        cpu_us = (server.cpu_seconds() - cpu_before) / (posted.posts_in_all * count) * 1e6
    measured = [sample for sample in samples if 0 <= sample[0] <= seconds] or samples[-1:]
    published = posted.per_second * count * each / MIB
    settled = (measured[-1][2] - measured[0][2]) * each / max(measured[-1][0] - measured[0][0], LOOK_SECONDS) / MIB
    yield Figure(
        f"{label}: published",
        published,
        "MiB/s",
        at_least=target,
        p50_ms=posted.percentile_ms(50),
        p99_ms=posted.percentile_ms(99),
        cpu_us=cpu_us,
    )
    yield Figure(f"{label}: settled in the table", settled, "MiB/s", at_least=target)
    # It rises until a flush lands and falls then: means say whether it grows.
    part = max(1, len(measured) // PARTS)
    for when, some in (("first", measured[:part]), ("last", measured[-part:])):
        yield Figure(
            f"{label}: backlog, mean of the {when} {seconds / PARTS:g} s",
            sum(sample[1] for sample in some) / len(some) / MIB,
            "MiB",
        )
    for second in range(int(seconds) + 1):
        backlog = min(measured, key=lambda sample: abs(sample[0] - second))[1]
        yield Figure(
            f"{label}: backlog at {second} s", backlog / MIB, "MiB", "sample", points=(Point("backlog", label, second),)
        )


class _Backlog:
    """Looks all the time at how many bytes of values are acknowledged and not in the table."""

    def __init__(self, server: Server, each: float) -> None:
        self._server = server
        self._each = each
        self._samples: list[tuple[float, float, int]] = []
        self._bytes = 0.0
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def is_small(self) -> bool:
        return self._bytes < BACKLOG_BYTES_MAX

    def _run(self) -> None:
        while not self._ending.wait(LOOK_SECONDS):
            acknowledged, settled = self._server.positions()
            self._bytes = (acknowledged - settled) * self._each
            self._samples.append((time.perf_counter(), self._bytes, settled))

    def stop(self) -> list[tuple[float, float, int]]:
        """When, how many bytes, and how many records were in the table."""
        self._ending.set()
        self._thread.join()
        return self._samples


def _appended(bench: Bench, where: str, known: Flights, uri: str, options: Mapping[str, str]) -> Figure:
    """Measures what a program without a log gets: no acknowledgement of single records, no order, no exactly-once."""
    records = flights_table(known).slice(0, APPEND_RECORDS).combine_chunks()
    place = f"{uri.rstrip('/')}/appended"
    size = pc.sum(pc.binary_length(records.column("value"))).as_py()
    appends = 0
    started = time.perf_counter()
    while (seconds := time.perf_counter() - started) < bench.seconds:
        write_deltalake(place, records, mode="append", storage_options=dict(options))
        appends += 1
    return Figure(
        f"{where}: write_deltalake, {records.num_rows:,} at once", appends * size / seconds / MIB, "MiB/s", "peer"
    )
