"""Real records: 336,776 flights as JSON, over and over, published and settled in the table."""

import time
from collections.abc import Iterator

from benchmarks.bench import TOPIC, Bench, Server
from benchmarks.figures.figure import Figure
from benchmarks.loads.flights import ENCODED, JSON_RECORDS, arrow_flights, encoded, json_flights
from benchmarks.loads.posting import Posted, post
from benchmarks.loads.records import ARROW_RECORDS
from siltlog import Producer
from siltlog.demo.data import Flights, flights
from siltlog.infra import names

CONNECTIONS = 4


def flights_as_json(bench: Bench) -> Iterator[Figure]:
    known = flights(40_000) if bench.quick else flights()
    each = known.value_bytes / len(known)
    seconds = bench.seconds * 3
    with bench.server() as server:
        yield from _posted(server, "JSON bodies of 500", json_flights(known), names.MEDIA_JSON, seconds, each)
    with bench.server() as server:
        yield from _posted(server, "Arrow bodies of 10,000", arrow_flights(known), names.MEDIA_ARROW, seconds, each)
    with bench.server() as server:
        yield _sent(server, known, each)
    yield encoded(known, each)


def _posted(
    server: Server, what: str, bodies: list[bytes], media: str, seconds: float, each: float
) -> Iterator[Figure]:
    records = ARROW_RECORDS if media == names.MEDIA_ARROW else JSON_RECORDS
    started = time.perf_counter()
    posted: Posted = post(server.pool, server.publish_path, bodies, media, threads=CONNECTIONS, seconds=seconds)
    server.await_table(120)
    settled = posted.posts * records / (time.perf_counter() - started)
    published = posted.per_second * records
    yield Figure(
        f"{what}: acknowledged",
        published,
        "records/s",
        p50_ms=posted.percentile_ms(50),
        p99_ms=posted.percentile_ms(99),
        megabytes_per_second=published * each / 1e6,
    )
    yield Figure(f"{what}: settled", settled, "records/s", limit=ENCODED, megabytes_per_second=settled * each / 1e6)


def _sent(server: Server, known: Flights, each: float) -> Figure:
    with Producer(server.url) as producer:
        started = time.perf_counter()
        for key, value in zip(known.keys, known.values, strict=True):
            producer.send(TOPIC, value, key=key)
        producer.flush(120_000)
        seconds = time.perf_counter() - started
    per_second = len(known) / seconds
    return Figure("Producer.send, keyed", per_second, "records/s", megabytes_per_second=per_second * each / 1e6)
