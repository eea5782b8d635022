"""Durable single publishes: one record of 100 B of JSON a request, each connection waiting for its acknowledgement."""

from collections.abc import Iterator

from benchmarks.bench import Bench, Server
from benchmarks.figures.figure import Figure, Kind, Point
from benchmarks.loads.load import Load, counted
from benchmarks.loads.records import json_body, json_record
from benchmarks.servers.child import BareServer, bare_server, cpu_seconds, valkey_server
from benchmarks.servers.disk import syncs
from siltlog.infra import names

CONNECTIONS = (1, 64, 256)
RECORD_BYTES = 100
TARGET = {1: 2_500.0, 64: 18_000.0, 256: 20_000.0}
P99_TARGET_MS = {64: 10.0}
SYNCS = "100 B written and synced, one after the other"


def publish(bench: Bench) -> Iterator[Figure]:
    body = json_body(json_record(RECORD_BYTES), 1)
    with bench.server() as server:
        reply = server.sample_reply(body, names.MEDIA_JSON)
        for connections in CONNECTIONS:
            figure = _silt(bench, server, body, connections)
            yield figure
            if connections in P99_TARGET_MS:
                assert figure.p99_ms is not None
                label = f"{figure.label}: p99"
                yield Figure(label, figure.p99_ms, "ms", at_most=P99_TARGET_MS[connections])
        for connections in CONNECTIONS:
            yield _silt(bench, server, body, connections, "written")
    with bare_server(reply, names.MEDIA_JSON, bench.scratch) as bare:
        for connections in CONNECTIONS:
            yield _bare(bench, bare, body, connections, _limit(connections))
    with bare_server(reply, names.MEDIA_JSON) as bare:
        for connections in CONNECTIONS:
            label = f"an HTTP server that answers at once, {counted(connections)}"
            yield _bare(bench, bare, body, connections, label)
    kept = syncs(bench.scratch, json_record(RECORD_BYTES), bench.seconds)
    yield Figure(SYNCS, kept.per_second, "syncs/s", "limit", p50_ms=kept.p50_ms, p99_ms=kept.p99_ms)
    yield from _valkey(bench)


def _silt(bench: Bench, server: Server, body: bytes, connections: int, acks: str = "") -> Figure:
    """With `acks` it is one more way to publish, which has no target of its own."""
    before = server.cpu_seconds()
    path = f"{server.publish_path}?acks={acks}" if acks else server.publish_path
    load = bench.load(server.port, path, [body], names.MEDIA_JSON, connections)
    return _figure(
        f"Siltlog, acks={acks}, {counted(connections)}" if acks else f"Siltlog, {counted(connections)}",
        "siltlog",
        load,
        server.cpu_seconds() - before,
        limit="" if acks else _limit(connections),
        at_least=None if acks else TARGET.get(connections),
    )


def _bare(bench: Bench, bare: BareServer, body: bytes, connections: int, label: str) -> Figure:
    before = cpu_seconds(bare.pid)
    load = bench.load(bare.port, "/", [body], names.MEDIA_JSON, connections)
    return _figure(label, "limit", load, cpu_seconds(bare.pid) - before)


def _valkey(bench: Bench) -> Iterator[Figure]:
    with valkey_server(bench.scratch / "valkey") as valkey:
        for connections in CONNECTIONS:
            load = bench.load_stream(valkey.port, json_record(RECORD_BYTES), connections)
            yield _figure(f"Valkey stream, always synced, {counted(connections)}", "peer", load)


def _figure(
    label: str,
    kind: Kind,
    load: Load,
    cpu: float | None = None,
    *,
    limit: str = "",
    at_least: float | None = None,
) -> Figure:
    series, _, connections = label.rpartition(", ")
    return Figure(
        label,
        load.per_second,
        "records/s",
        kind,
        limit,
        at_least,
        p50_ms=load.p50_ms,
        p99_ms=load.p99_ms,
        cpu_us=None if cpu is None else cpu / load.replies_in_all * 1e6,
        points=(Point("publish", series, float(connections.split()[0])),),
    )


def _limit(connections: int) -> str:
    return f"an HTTP server that only writes and syncs, {counted(connections)}"
