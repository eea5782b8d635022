"""End to end: from sending a record until a program that reads all the time has it."""

from collections.abc import Iterator, Sequence

import numpy as np

from benchmarks.bench import Bench
from benchmarks.figures.figure import Figure, Kind
from benchmarks.groups.receiver import receiving, stamped_value
from benchmarks.loads.load import Load
from benchmarks.loads.records import json_body
from benchmarks.servers.child import valkey_server
from siltlog.infra import names

PER_SECOND = 1_000
CONNECTIONS = 16
TARGET_MS = {50: 1.5, 99: 5.0}
ACKNOWLEDGED = "the same records until their acknowledgement"
PEER = "Valkey stream, always synced, XREADGROUP and XACK"


def latency(bench: Bench) -> Iterator[Figure]:
    body = json_body(stamped_value(), 1)
    path, media = "/v1/topics/bench/records", names.MEDIA_JSON
    with bench.server() as server, receiving("records", server.url) as receiver:
        receiver.await_ready()
        load = bench.load(server.port, path, [body], media, CONNECTIONS, per_second=PER_SECOND)
        yield from _ages("one Consumer of a group, acks=wal", "siltlog", receiver.stop(), bench.seconds)
    yield from _acknowledged(ACKNOWLEDGED, "limit", load)
    with valkey_server(bench.scratch / "valkey") as valkey, receiving("streams", str(valkey.port)) as receiver:
        receiver.await_ready()
        bench.load_stream(valkey.port, stamped_value(), CONNECTIONS, per_second=PER_SECOND)
        yield from _ages(PEER, "peer", receiver.stop(), bench.seconds)


def _ages(what: str, kind: Kind, had: Sequence[Sequence[int]], seconds: float) -> Iterator[Figure]:
    """How old the records of the last `seconds` were when they were had: [partition, sent, had] in nanoseconds."""
    found = np.array(had, np.int64).reshape(-1, 3)
    if not len(found):
        raise RuntimeError(f"{what}: no record came")
    found = found[found[:, 1] > found[-1, 1] - seconds * 1e9]
    for percent, target in TARGET_MS.items():
        value = float(np.percentile(found[:, 2] - found[:, 1], percent)) / 1e6
        limit = f"{ACKNOWLEDGED}: p{percent}" if kind == "siltlog" else ""
        yield Figure(f"{what}: p{percent}", value, "ms", kind, limit, at_most=target if kind == "siltlog" else None)


def _acknowledged(what: str, kind: Kind, load: Load) -> Iterator[Figure]:
    for percent, value in ((50, load.p50_ms), (99, load.p99_ms)):
        yield Figure(f"{what}: p{percent}", value, "ms", kind)
