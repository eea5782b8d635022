"""Latency of single publishes at 64 connections: with and without flushes, alone and beside bulk publishes."""

import threading
from collections.abc import Iterator
from typing import Any

from benchmarks.bench import Bench, Server
from benchmarks.figures.figure import Figure, Kind
from benchmarks.loads.load import Load
from benchmarks.loads.posting import post
from benchmarks.loads.records import ARROW_RECORDS, arrow_body, json_body, json_record, table
from benchmarks.servers.child import bare_server, valkey_server
from siltlog.infra import names

CONNECTIONS = 64
RECORD_BYTES = 100
BULK_TOPIC = "bulk"
BULK_BYTES_PER_SECOND = 40_000_000
LONG_MS = 3_600_000
RATIO_MAX = 2.0
LONG_BYTES = 2**40
SETTINGS: dict[str, dict[str, Any]] = {
    "no flushes": {"flush_ms": LONG_MS, "flush_bytes": LONG_BYTES},
    "flushed each second": {},
}


def flushing(bench: Bench) -> Iterator[Figure]:
    for bulk in (False, True):
        beside = f", {BULK_BYTES_PER_SECOND // 10**6} MB/s of bulk beside" if bulk else ""
        found = []
        for what, settings in SETTINGS.items():
            # What is bulk here would else be a burst, whose files are not written meanwhile.
            with bench.server(burst_ms=0, **settings) as server:
                server.admin.create_topic(BULK_TOPIC, 1)
                figure = _latency(bench, server, f"{what}{beside}: p99", bulk)
            found.append(figure.value)
            yield figure
        without, with_flushes = found
        yield Figure(f"flushed against not{beside}: p99", with_flushes / without, "×", at_most=RATIO_MAX)
    body = json_body(json_record(RECORD_BYTES), 1)
    with bare_server(b"{}", names.MEDIA_JSON, bench.scratch) as bare:
        load = bench.load(bare.port, "/", [body], names.MEDIA_JSON, CONNECTIONS)
    yield _p99("an HTTP server that only writes and syncs: p99", load, "limit")
    with valkey_server(bench.scratch / "valkey") as valkey:
        load = bench.load_stream(valkey.port, json_record(RECORD_BYTES), CONNECTIONS)
    yield _p99("Valkey stream, always synced: p99", load, "peer")


def _latency(bench: Bench, server: Server, label: str, bulk: bool) -> Figure:
    body = json_body(json_record(RECORD_BYTES), 1)
    thread = threading.Thread(target=_publish_bulk, args=(bench, server), daemon=True)
    if bulk:
        thread.start()
    load = bench.load(server.port, server.publish_path, [body], names.MEDIA_JSON, CONNECTIONS)
    if bulk:
        thread.join()
    return _p99(label, load)


def _p99(label: str, load: Load, kind: Kind = "siltlog") -> Figure:
    return Figure(label, load.p99_ms, "ms", kind, p50_ms=load.p50_ms, p99_ms=load.p99_ms)


def _publish_bulk(bench: Bench, server: Server) -> None:
    body = arrow_body(table(ARROW_RECORDS, RECORD_BYTES, keyed=False))
    post(
        server.pool,
        f"/v1/topics/{BULK_TOPIC}/records",
        [body],
        names.MEDIA_ARROW,
        threads=1,
        seconds=bench.seconds + bench.warmup_seconds,
        per_second=BULK_BYTES_PER_SECOND / len(body),
    )
