"""Durable bulk publishes: bodies of 10,000 records in Arrow from one Python process."""

import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
from urllib3 import HTTPConnectionPool

from benchmarks.bench import TOPIC, Bench, connection_pool
from benchmarks.figures.figure import Figure
from benchmarks.loads.load import counted
from benchmarks.loads.posting import Posted, post
from benchmarks.loads.records import ARROW_RECORDS, arrow_body, json_record, table
from benchmarks.servers.child import bare_server, valkey_server
from benchmarks.servers.disk import syncs
from siltlog import Producer
from siltlog.infra import names

THREADS = (1, 2, 4)
KEYLESS_TARGET = 4_000_000.0
KEYED_TARGET = 2_500_000.0
LARGE_TARGET = 400_000.0
VALKEY_PIPELINE = 500
IN_FLIGHT_BATCHES = 16


def arrow(bench: Bench) -> Iterator[Figure]:
    yield from _size(bench, 100, keyed=False, target=KEYLESS_TARGET)
    yield from _size(bench, 100, keyed=True, target=KEYED_TARGET)
    yield from _size(bench, 1024, keyed=False, target=LARGE_TARGET)


def _size(bench: Bench, size_bytes: int, *, keyed: bool, target: float | None) -> Iterator[Figure]:
    records = table(ARROW_RECORDS, size_bytes, keyed=keyed)
    body = arrow_body(records)
    what = f"{size_bytes} B, {'1,000 keys' if keyed else 'no keys'}"
    limit = f"{what}: an HTTP server that only writes and syncs, {counted(THREADS[-1])}"
    for threads in THREADS:
        with bench.server() as server:
            before = server.cpu_seconds()
            posted = _post(bench, server.pool, server.publish_path, body, threads)
            cpu_us = (server.cpu_seconds() - before) / (posted.posts_in_all * ARROW_RECORDS) * 1e6
        label = f"{what}: bodies made before, {counted(threads)}"
        yield _posted(label, posted, size_bytes, limit=limit, at_least=target, cpu_us=cpu_us)
    yield _producer(bench, records, what, limit, target, size_bytes)
    with bare_server(b"{}", names.MEDIA_JSON, bench.scratch) as bare:
        posted = _post(bench, connection_pool(bare.port), "/", body, THREADS[-1])
    yield _posted(limit, posted, size_bytes)
    yield _disk(
        bench.scratch, body, f"{what}: bodies written and synced, one after the other", size_bytes, bench.seconds
    )
    if not keyed:
        yield _valkey(bench, size_bytes)


def _post(bench: Bench, pool: HTTPConnectionPool, path: str, body: bytes, threads: int) -> Posted:
    return post(
        pool,
        path,
        [body],
        names.MEDIA_ARROW,
        threads=threads,
        seconds=bench.seconds,
        warmup_seconds=bench.warmup_seconds,
    )


def _posted(
    label: str,
    posted: Posted,
    size_bytes: int,
    *,
    limit: str = "",
    at_least: float | None = None,
    cpu_us: float | None = None,
) -> Figure:
    per_second = posted.per_second * ARROW_RECORDS
    return Figure(
        label,
        per_second,
        "records/s",
        "siltlog" if limit else "limit",
        limit,
        at_least,
        p50_ms=posted.percentile_ms(50),
        p99_ms=posted.percentile_ms(99),
        cpu_us=cpu_us,
        megabytes_per_second=per_second * size_bytes / 1e6,
    )


def _producer(bench: Bench, records: pa.Table, what: str, limit: str, target: float | None, size_bytes: int) -> Figure:
    with bench.server() as server, Producer(server.url) as producer:
        producer.send_batch(TOPIC, records).result(30)
        cpu_before = server.cpu_seconds()
        started = time.perf_counter()
        batches = 0
        waiting = []
        while time.perf_counter() - started < bench.seconds:
            waiting.append(producer.send_batch(TOPIC, records))
            batches += 1
            if len(waiting) >= IN_FLIGHT_BATCHES:
                waiting.pop(0).result(30)
        producer.flush(30_000)
        seconds = time.perf_counter() - started
        cpu_us = (server.cpu_seconds() - cpu_before) / (batches * ARROW_RECORDS) * 1e6
    per_second = batches * ARROW_RECORDS / seconds
    return Figure(
        f"{what}: Producer.send_batch, exactly once",
        per_second,
        "records/s",
        limit=limit,
        at_least=target,
        cpu_us=cpu_us,
        megabytes_per_second=per_second * size_bytes / 1e6,
    )


def _disk(folder: Path, body: bytes, label: str, size_bytes: int, seconds: float) -> Figure:
    kept = syncs(folder, body, seconds)
    per_second = kept.per_second * ARROW_RECORDS
    return Figure(
        label,
        per_second,
        "records/s",
        "limit",
        p50_ms=kept.p50_ms,
        p99_ms=kept.p99_ms,
        megabytes_per_second=per_second * size_bytes / 1e6,
    )


def _valkey(bench: Bench, size_bytes: int) -> Figure:
    connections = THREADS[-1]
    with valkey_server(bench.scratch / f"valkey-{size_bytes}") as valkey:
        load = bench.load_stream(valkey.port, json_record(size_bytes), connections, pipeline=VALKEY_PIPELINE)
    per_second = load.per_second * VALKEY_PIPELINE
    return Figure(
        f"{size_bytes} B: Valkey stream, pipelines of {VALKEY_PIPELINE}, {counted(connections)}",
        per_second,
        "records/s",
        "peer",
        p50_ms=load.p50_ms,
        p99_ms=load.p99_ms,
        megabytes_per_second=per_second * size_bytes / 1e6,
    )
