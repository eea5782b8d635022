"""Durable publishes of JSON bodies with 500 records of 100 B."""

from collections.abc import Iterator

from benchmarks.bench import Bench
from benchmarks.figures.figure import Figure, Kind
from benchmarks.loads.load import Load, counted
from benchmarks.loads.records import json_body, json_record
from benchmarks.servers.child import bare_server, valkey_server
from benchmarks.servers.disk import syncs
from siltlog.infra import names

BODY_RECORDS = 500
RECORD_BYTES = 100
CONNECTIONS = (1, 4, 16)
TARGET = 500_000.0
SYNCED = "the same bytes written and synced, body by body"


def json_bodies(bench: Bench) -> Iterator[Figure]:
    value = json_record(RECORD_BYTES)
    body = json_body(value, BODY_RECORDS)
    with bench.server() as server:
        reply = server.sample_reply(body, names.MEDIA_JSON)
        for connections in CONNECTIONS:
            before = server.cpu_seconds()
            load = bench.load(server.port, server.publish_path, [body], names.MEDIA_JSON, connections)
            cpu_us = (server.cpu_seconds() - before) / (load.replies_in_all * BODY_RECORDS) * 1e6
            yield _figure(f"Siltlog, {counted(connections)}", "siltlog", load, cpu_us, _limit(connections))
    with bare_server(reply, names.MEDIA_JSON, bench.scratch) as bare:
        for connections in CONNECTIONS:
            load = bench.load(bare.port, "/", [body], names.MEDIA_JSON, connections)
            yield _figure(_limit(connections), "limit", load)
    kept = syncs(bench.scratch, body, bench.seconds)
    yield Figure(
        SYNCED,
        kept.per_second * BODY_RECORDS,
        "records/s",
        "limit",
        p50_ms=kept.p50_ms,
        p99_ms=kept.p99_ms,
        megabytes_per_second=kept.per_second * BODY_RECORDS * RECORD_BYTES / 1e6,
    )
    with valkey_server(bench.scratch / "valkey") as valkey:
        for connections in CONNECTIONS:
            load = bench.load_stream(valkey.port, value, connections, pipeline=BODY_RECORDS)
            yield _figure(f"Valkey stream, pipelines of 500, {counted(connections)}", "peer", load)


def _figure(label: str, kind: Kind, load: Load, cpu_us: float | None = None, limit: str = "") -> Figure:
    per_second = load.per_second * BODY_RECORDS
    return Figure(
        label,
        per_second,
        "records/s",
        kind,
        limit,
        TARGET if kind == "siltlog" else None,
        p50_ms=load.p50_ms,
        p99_ms=load.p99_ms,
        cpu_us=cpu_us,
        megabytes_per_second=per_second * RECORD_BYTES / 1e6,
    )


def _limit(connections: int) -> str:
    return f"an HTTP server that only writes and syncs, {counted(connections)}"
