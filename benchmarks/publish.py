"""Durable single publishes: one record of 100 B of JSON a request, each connection waiting for its acknowledgement."""

from collections.abc import Iterator

from benchmarks.bench import Bench, Server
from benchmarks.child import BareServer, bare_server, cpu_seconds, valkey_server
from benchmarks.disk import WrittenFile
from benchmarks.figure import Figure, Kind
from benchmarks.load import Load, resp_request, run_load
from benchmarks.records import json_body, json_record
from siltlog.infra import names

CONNECTIONS = (1, 64, 256)
RECORD_BYTES = 100
TARGET = {64: 12_000.0}
SYNCS = "100 B written and synced, one after the other"


def publish(bench: Bench) -> Iterator[Figure]:
    body = json_body(json_record(RECORD_BYTES), 1)
    with bench.server() as server:
        reply = server.sample_reply(body, names.MEDIA_JSON)
        for connections in CONNECTIONS:
            yield _silt(bench, server, body, connections)
    with bare_server(reply, names.MEDIA_JSON) as bare:
        echoes = {connections: _echo(bench, bare, body, connections) for connections in CONNECTIONS}
    yield from echoes.values()
    written = WrittenFile(bench.scratch)
    syncs = written.syncs(json_record(RECORD_BYTES), bench.seconds)
    written.close()
    yield Figure(SYNCS, syncs.per_second, "syncs/s", "limit", p50_ms=syncs.p50_ms, p99_ms=syncs.p99_ms)
    yield Figure(_limit(1), 1 / (1 / echoes[1].value + 1 / syncs.per_second), "records/s", "limit")
    yield from _valkey(bench)


def _silt(bench: Bench, server: Server, body: bytes, connections: int) -> Figure:
    before = server.cpu_seconds()
    load = bench.load(server.port, server.publish_path, [body], names.MEDIA_JSON, connections)
    return _figure(
        f"Siltlog, {_connections(connections)}",
        "siltlog",
        load,
        server.cpu_seconds() - before,
        limit=_limit(connections),
        at_least=TARGET.get(connections),
    )


def _echo(bench: Bench, bare: BareServer, body: bytes, connections: int) -> Figure:
    before = cpu_seconds(bare.pid)
    load = bench.load(bare.port, "/", [body], names.MEDIA_JSON, connections)
    return _figure(_echo_label(connections), "limit", load, cpu_seconds(bare.pid) - before)


def _valkey(bench: Bench) -> Iterator[Figure]:
    request = resp_request(b"XADD", b"stream", b"*", b"v", json_record(RECORD_BYTES))
    with valkey_server(bench.scratch / "valkey") as port:
        for connections in CONNECTIONS:
            load = run_load(
                "resp",
                port,
                [request],
                connections=connections,
                seconds=bench.seconds,
                warmup_seconds=bench.warmup_seconds,
            )
            yield _figure(f"Valkey stream, always synced, {_connections(connections)}", "peer", load)


def _figure(
    label: str,
    kind: Kind,
    load: Load,
    cpu: float | None = None,
    *,
    limit: str = "",
    at_least: float | None = None,
) -> Figure:
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
    )


def _limit(connections: int) -> str:
    if connections == 1:
        return "such a reply, then such a sync, 1 connection"
    return _echo_label(connections)


def _echo_label(connections: int) -> str:
    return f"an HTTP server that answers at once, {_connections(connections)}"


def _connections(count: int) -> str:
    return "1 connection" if count == 1 else f"{count} connections"
