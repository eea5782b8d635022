"""The same flights with and without compression: of bodies on their way to the server, and of the table's files."""

import gzip
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pyarrow as pa

from benchmarks.bench import TOPIC, Bench, Server
from benchmarks.figures.figure import Figure
from benchmarks.loads.flights import JSON_RECORDS, arrow_flights, flights_table, json_flights
from benchmarks.loads.posting import Posted, post
from benchmarks.loads.records import ARROW_RECORDS
from siltlog.demo.data import Flights, flights
from siltlog.infra import names

FLIGHTS = 40_000
THREADS = 4
GZIP_LEVEL = 6
ENCODINGS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": lambda body: gzip.compress(body, GZIP_LEVEL),
    "zstd": lambda body: bytes(pa.compress(body, codec="zstd", asbytes=True)),
    "deflate": lambda body: zlib.compress(body, GZIP_LEVEL),
}
BUFFERS = ("lz4", "zstd")
FILES = ("zstd", "lz4", "snappy", "gzip", "none")
LARGE_BYTES = 16 * 1024
MB = 1e6


def compression(bench: Bench) -> Iterator[Figure]:
    known = flights(FLIGHTS)
    plain = json_flights(known)
    yield from _bodies(bench, known, "JSON bodies of 500: plain", plain, names.MEDIA_JSON)
    for encoding, compress in ENCODINGS.items():
        bodies = [compress(body) for body in plain]
        yield from _bodies(bench, known, f"JSON bodies of 500: {encoding}", bodies, names.MEDIA_JSON, encoding)
    yield from _large(bench, known)
    yield from _bodies(bench, known, "Arrow bodies of 10,000: plain", arrow_flights(known), names.MEDIA_ARROW)
    for codec in BUFFERS:
        bodies = _arrow(known, codec)
        yield from _bodies(bench, known, f"Arrow bodies of 10,000: {codec} buffers", bodies, names.MEDIA_ARROW)
    for codec in FILES:
        yield from _files(bench, known, codec)


def _large(bench: Bench, known: Flights) -> Iterator[Figure]:
    """Bodies that are one record of 16 KiB each, of flights one behind the other."""
    text = b",".join(json_flights(known))
    pieces = [text[at : at + LARGE_BYTES] for at in range(0, len(text) - LARGE_BYTES, LARGE_BYTES)]
    label = "records of 16 KiB, one a body"
    for encoding, compress in {"plain": bytes, **ENCODINGS}.items():
        bodies = [compress(piece) for piece in pieces]
        with bench.server() as server:
            before = server.cpu_seconds()
            posted = _post(bench, server, bodies, names.MEDIA_BYTES, None if encoding == "plain" else encoding)
            cpu_us = (server.cpu_seconds() - before) / posted.posts_in_all * 1e6
        yield Figure(
            f"{label}: {encoding}",
            posted.per_second,
            "records/s",
            limit="" if encoding == "plain" else f"{label}: plain",
            p50_ms=posted.percentile_ms(50),
            p99_ms=posted.percentile_ms(99),
            cpu_us=cpu_us,
            megabytes_per_second=posted.per_second * LARGE_BYTES / MB,
        )


def _arrow(known: Flights, codec: str) -> list[bytes]:
    records = flights_table(known)
    bodies = []
    for at in range(0, len(known) - ARROW_RECORDS + 1, ARROW_RECORDS):
        sink = pa.BufferOutputStream()
        options = pa.ipc.IpcWriteOptions(compression=codec)
        with pa.ipc.new_stream(sink, records.schema, options=options) as writer:
            writer.write_table(records.slice(at, ARROW_RECORDS).combine_chunks())
        bodies.append(bytes(sink.getvalue()))
    return bodies


def _bodies(
    bench: Bench, known: Flights, label: str, bodies: list[bytes], media: str, encoding: str | None = None
) -> Iterator[Figure]:
    count = ARROW_RECORDS if media == names.MEDIA_ARROW else JSON_RECORDS
    with bench.server() as server:
        before = server.cpu_seconds()
        posted = _post(bench, server, bodies, media, encoding)
        cpu_us = (server.cpu_seconds() - before) / (posted.posts_in_all * count) * 1e6
    plain = f"{label.partition(':')[0]}: plain"
    yield _figure(label, posted, count, known, limit="" if label == plain else plain, cpu_us=cpu_us)
    yield Figure(f"{label}: bytes a record on the way", sum(map(len, bodies)) / (len(bodies) * count), "B")


def _files(bench: Bench, known: Flights, codec: str) -> Iterator[Figure]:
    label = f"files: {codec}"
    with bench.server(config={"compression": codec}) as server:
        before = server.cpu_seconds()
        posted = _post(bench, server, arrow_flights(known), names.MEDIA_ARROW, None)
        server.await_table(seconds_max=300)
        records = posted.posts_in_all * ARROW_RECORDS
        cpu_us = (server.cpu_seconds() - before) / records * 1e6
        folder = Path(unquote(urlsplit(server.process.root).path)) / names.topic_path(TOPIC)
        stored = sum(path.stat().st_size for path in folder.rglob("*.parquet"))
    yield _figure(
        label, posted, ARROW_RECORDS, known, limit="" if codec == FILES[0] else f"files: {FILES[0]}", cpu_us=cpu_us
    )
    yield Figure(f"{label}: bytes a record in the table", stored / records, "B")


def _post(bench: Bench, server: Server, bodies: list[bytes], media: str, encoding: str | None) -> Posted:
    return post(
        server.pool,
        server.publish_path,
        bodies,
        media,
        threads=THREADS,
        seconds=bench.seconds,
        warmup_seconds=bench.warmup_seconds,
        encoding=encoding,
    )


def _figure(label: str, posted: Posted, count: int, known: Flights, *, limit: str, cpu_us: float) -> Figure:
    per_second = posted.per_second * count
    return Figure(
        label,
        per_second,
        "records/s",
        limit=limit,
        p50_ms=posted.percentile_ms(50),
        p99_ms=posted.percentile_ms(99),
        cpu_us=cpu_us,
        megabytes_per_second=per_second * known.value_bytes / len(known) / MB,
    )
