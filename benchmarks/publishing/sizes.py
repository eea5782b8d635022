"""How the cost of a publish grows with the size of its record."""

from collections.abc import Iterator

from benchmarks.bench import Bench
from benchmarks.figures.figure import Figure, Kind, Point
from benchmarks.loads.load import Load
from benchmarks.loads.records import json_body, json_record
from benchmarks.servers.child import bare_server, valkey_server
from siltlog.infra import names

SIZES = {"100 B": 100, "1 KiB": 1024, "16 KiB": 16 * 1024, "128 KiB": 128 * 1024, "1 MiB": 1024 * 1024}
CONNECTIONS = 16
JSON = "Siltlog, JSON"
BYTES = "Siltlog, octet-stream"
LIMIT = "an HTTP server that only writes and syncs"
VALKEY = "Valkey stream, always synced"


def sizes(bench: Bench) -> Iterator[Figure]:
    for name, size in SIZES.items():
        value = json_record(size)
        with bench.server() as server:
            reply = server.sample_reply(value, names.MEDIA_BYTES)
            for what, body, media in (
                (JSON, json_body(value, 1), names.MEDIA_JSON),
                (BYTES, value, names.MEDIA_BYTES),
            ):
                before = server.cpu_seconds()
                load = bench.load(server.port, server.publish_path, [body], media, CONNECTIONS)
                cpu_us = (server.cpu_seconds() - before) / load.replies_in_all * 1e6
                yield from _figures(what, "siltlog", name, load, cpu_us)
        with bare_server(reply, names.MEDIA_JSON, bench.scratch) as bare:
            yield from _figures(
                LIMIT, "limit", name, bench.load(bare.port, "/", [value], names.MEDIA_BYTES, CONNECTIONS)
            )
        with valkey_server(bench.scratch / f"valkey-{size}") as valkey:
            yield from _figures(VALKEY, "peer", name, bench.load_stream(valkey.port, value, CONNECTIONS))


def _figures(what: str, kind: Kind, name: str, load: Load, cpu_us: float | None = None) -> Iterator[Figure]:
    size = SIZES[name]
    megabytes = load.per_second * size / 1e6
    yield Figure(
        f"{name}: {what}",
        load.per_second,
        "records/s",
        kind,
        f"{name}: {LIMIT}" if kind == "siltlog" else "",
        p50_ms=load.p50_ms,
        p99_ms=load.p99_ms,
        cpu_us=cpu_us,
        megabytes_per_second=megabytes,
        points=(Point("sizes-records", what, size),),
    )
    yield Figure(f"{name}: {what}: MB/s", megabytes, "MB/s", "sample", points=(Point("sizes-bytes", what, size),))
