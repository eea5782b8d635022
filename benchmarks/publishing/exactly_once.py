"""The cost of exactly-once: the same publishes plain, numbered by a producer, and with an idempotency key."""

from collections.abc import Iterator

from benchmarks.bench import Bench
from benchmarks.figures.figure import Figure
from benchmarks.loads.load import CONNECTION, NUMBER
from benchmarks.loads.records import arrow_body, json_body, json_record, table
from siltlog.infra import names

RECORD_BYTES = 100
WORKS = {
    "1 record as JSON, 64 connections": (1, 64),
    "500 records as JSON, 4 connections": (500, 4),
    "10,000 records as Arrow, 4 connections": (10_000, 4),
}
NUMBERED = "by producer id"
"""Every record then names its partition."""
HEADERS: dict[str, dict[str, str]] = {
    "plain": {},
    NUMBERED: {
        names.HEADER_PRODUCER_ID.replace("-", "_"): f"bench-{CONNECTION.decode()}",
        names.HEADER_SEQUENCE.replace("-", "_"): NUMBER.decode(),
    },
    "by idempotency key": {"Idempotency_Key": f"bench-{CONNECTION.decode()}-{NUMBER.decode()}"},
}


def exactly_once(bench: Bench) -> Iterator[Figure]:
    for work, (count, connections) in WORKS.items():
        if count == 10_000:
            media, body = names.MEDIA_ARROW, arrow_body(table(count, RECORD_BYTES, keyed=False))
        else:
            media, body = names.MEDIA_JSON, json_body(json_record(RECORD_BYTES), count)
        for way, headers in HEADERS.items():
            with bench.server(partitions=1) as server:
                before = server.cpu_seconds()
                load = bench.load(
                    server.port,
                    server.publish_path + ("?partition=0" if way == NUMBERED else ""),
                    [body],
                    media,
                    connections,
                    headers=headers,
                    records=count,
                )
                cpu_us = (server.cpu_seconds() - before) / (load.replies_in_all * count) * 1e6
            yield Figure(
                f"{work}: {way}",
                load.per_second * count,
                "records/s",
                limit="" if way == "plain" else f"{work}: plain",
                p50_ms=load.p50_ms,
                p99_ms=load.p99_ms,
                cpu_us=cpu_us,
                megabytes_per_second=load.per_second * count * RECORD_BYTES / 1e6,
            )
