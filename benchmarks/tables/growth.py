"""The same rate of publishes on 1 to 1,000 partitions: latency, and how many files a second are written."""

import time
from collections.abc import Iterator

from benchmarks.bench import Bench, Server
from benchmarks.figures.figure import Figure, Kind, Point
from benchmarks.loads.load import Load
from benchmarks.loads.records import json_record
from benchmarks.servers.child import bare_server, valkey_server
from benchmarks.tables.delta_log import entries
from siltlog.infra import names
from siltlog.ingest.flush.due import FILES_PER_SECOND_BUDGET

PARTITIONS = (1, 10, 100, 1_000)
PER_SECOND = 1_000.0
CONNECTIONS = 64
KEYS = 10_000
RECORD_BYTES = 100
SECONDS = 25.0
"""With 1,000 active partitions each is flushed after 10 s, so that every run has flushes: their topic's budget of files
would let them wait for minutes."""
QUICK_SECONDS = 12.0
RATIO_MAX = 1.5


def growth(bench: Bench) -> Iterator[Figure]:
    value = json_record(RECORD_BYTES)
    bodies = [b'{"records":[{"key":"key-%05d","value":%s}]}' % (key, value) for key in range(KEYS)]
    seconds = QUICK_SECONDS if bench.quick else SECONDS
    loads = {}
    for partitions in PARTITIONS:
        with bench.server(partitions=partitions, flush_files_per_hour=-1) as server:
            started = time.time()
            loads[partitions] = load = bench.load(
                server.port,
                server.publish_path,
                bodies,
                names.MEDIA_JSON,
                CONNECTIONS,
                seconds=seconds,
                per_second=PER_SECOND,
            )
            files = _files_per_second(server, started, time.time())
        yield from _figures("Siltlog", "siltlog", partitions, load)
        if partitions == PARTITIONS[-1]:
            yield Figure(
                f"{partitions:,} active partitions: files written",
                files,
                "files/s",
                at_most=float(FILES_PER_SECOND_BUDGET),
            )
    first, last = loads[PARTITIONS[0]], loads[PARTITIONS[-1]]
    what = f"{PARTITIONS[-1]:,} partitions against 1"
    yield Figure(f"{what}: p50", last.p50_ms / first.p50_ms, "×", at_most=RATIO_MAX)
    yield Figure(f"{what}: p99", last.p99_ms / first.p99_ms, "×", at_most=RATIO_MAX)
    with bare_server(b"{}", names.MEDIA_JSON, bench.scratch) as bare:
        load = bench.load(bare.port, "/", bodies, names.MEDIA_JSON, CONNECTIONS, per_second=PER_SECOND)
    yield from _figures("an HTTP server that only writes and syncs", "limit", 1, load)
    for streams in (PARTITIONS[0], PARTITIONS[-1]):
        with valkey_server(bench.scratch / f"valkey-{streams}") as valkey:
            load = bench.load_stream(valkey.port, value, CONNECTIONS, streams=streams, per_second=PER_SECOND)
        yield from _figures("Valkey streams, always synced", "peer", streams, load)


def _figures(what: str, kind: Kind, partitions: int, load: Load) -> Iterator[Figure]:
    label = f"{what}, {partitions:,} partition{'s' if partitions > 1 else ''}"
    for percent, value in (("p50", load.p50_ms), ("p99", load.p99_ms)):
        # One point is no curve.
        points = () if kind == "limit" else (Point("partitions", f"{what}, {percent}", partitions),)
        shown: Kind = kind if percent == "p50" else "sample"
        yield Figure(f"{label}: {percent}", value, "ms", shown, p50_ms=load.p50_ms, p99_ms=load.p99_ms, points=points)


def _files_per_second(server: Server, started: float, ended: float) -> float:
    added = sum(len(entry.added) for entry in entries(server, 0) if started <= entry.modified <= ended)
    return added / (ended - started)
