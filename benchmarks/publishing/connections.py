"""How the cost of a publish grows with the number of connections, most of which are idle."""

import resource
from collections.abc import Iterator

from benchmarks.bench import Bench
from benchmarks.figures.figure import Figure, Kind, Point
from benchmarks.loads.load import Load, counted
from benchmarks.loads.records import json_body, json_record
from benchmarks.servers.child import bare_server, valkey_server
from siltlog.infra import names

COUNTS = (1, 16, 64, 256, 1_000, 4_000, 10_000)
BUSY_MAX = 64
RECORD_BYTES = 100
CONNECTIONS_MAX = 10_100
"""The connections of a benchmark's own calls come on top."""
MIB = 1024 * 1024
LIMIT = "an HTTP server that only writes and syncs"


def connections(bench: Bench) -> Iterator[Figure]:
    body = json_body(json_record(RECORD_BYTES), 1)
    # The servers are children, and as many files as connections are open in each of them.
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    for count in COUNTS:
        busy = min(count, BUSY_MAX)
        with bench.server(connections_max=CONNECTIONS_MAX) as server:
            before = server.cpu_seconds()
            load = bench.load(server.port, server.publish_path, [body], names.MEDIA_JSON, busy, idle=count - busy)
            cpu_us = (server.cpu_seconds() - before) / (load.replies_in_all + count - busy) * 1e6
            memory = server.memory_bytes() / MIB
        yield from _figures("Siltlog", "siltlog", count, load, cpu_us)
        if count in (1, COUNTS[-1]):
            yield Figure(f"Siltlog, {counted(count)}: memory", memory, "MiB")
    for count in COUNTS:
        busy = min(count, BUSY_MAX)
        with bare_server(b"{}", names.MEDIA_JSON, bench.scratch) as bare:
            load = bench.load(bare.port, "/", [body], names.MEDIA_JSON, busy, idle=count - busy)
        yield from _figures(LIMIT, "limit", count, load)
    for count in COUNTS:
        busy = min(count, BUSY_MAX)
        with valkey_server(bench.scratch / f"valkey-{count}") as valkey:
            load = bench.load_stream(valkey.port, json_record(RECORD_BYTES), busy, idle=count - busy)
        yield from _figures("Valkey stream, always synced", "peer", count, load)


def _figures(what: str, kind: Kind, count: int, load: Load, cpu_us: float | None = None) -> Iterator[Figure]:
    label = f"{what}, {counted(count)}"
    yield Figure(
        label,
        load.per_second,
        "records/s",
        kind,
        f"{LIMIT}, {counted(count)}" if kind == "siltlog" else "",
        p50_ms=load.p50_ms,
        p99_ms=load.p99_ms,
        cpu_us=cpu_us,
        points=(Point("connections-rate", what, count),),
    )
    yield Figure(f"{label}: p99", load.p99_ms, "ms", "sample", points=(Point("connections-p99", what, count),))
