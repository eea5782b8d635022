"""Reading 1,000,000 records of 100 B by one client: from the head, and from the table after a restart."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import unquote, urlsplit

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import urllib3

from benchmarks.bench import TOPIC, Bench, Server
from benchmarks.child import bare_server
from benchmarks.figure import Figure
from benchmarks.posting import post
from benchmarks.records import arrow_body, table
from siltlog import Consumer, TopicPartition
from siltlog.infra import names

RECORDS = 1_000_000
RECORD_BYTES = 100
BODY_RECORDS = 10_000
JSON_RECORDS = 10_000
TARGET = 2_000_000.0
HEAD_BYTES = 512 * 1024 * 1024
COPY = "an HTTP server that sends the same bytes at once"
FILES = "the table's files read by pyarrow in this process"


class _JsonReply(msgspec.Struct):
    next_offset: int


_decode_json = msgspec.json.Decoder(_JsonReply).decode


def read(bench: Bench) -> Iterator[Figure]:
    records = RECORDS // 4 if bench.quick else RECORDS
    with bench.server(partitions=1, head_bytes_max=HEAD_BYTES) as server:
        body = arrow_body(table(BODY_RECORDS, RECORD_BYTES, keyed=False))
        post(
            server.pool,
            server.publish_path,
            [body],
            names.MEDIA_ARROW,
            threads=2,
            seconds=60,
            posts_max=records // BODY_RECORDS,
        )
        server.await_table()
        path = f"/v1/topics/{TOPIC}/partitions/0/records"
        large = "&max_records=1000000&max_bytes=67108864"
        yield _timed("head, Arrow, replies of 16 MiB", records, lambda: _arrow(server, path, records), COPY, TARGET)
        yield _timed("head, Arrow, replies of 64 MiB", records, lambda: _arrow(server, path, records, large), COPY)
        yield _timed("head, JSON, replies of 10,000", records, lambda: _json(server, path, records))
        yield _timed("head, Consumer.poll_arrow", records, lambda: _poll_arrow(server.url, records), COPY, TARGET)
        yield _timed("head, Consumer.poll(10,000)", records, lambda: _poll(server.url, records))
        reply = server.pool.urlopen("GET", path, headers={"Accept": names.MEDIA_ARROW}).data
        yield _copy(reply, records)
        server.process.restart()
        yield _timed("table, Arrow, first read", records, lambda: _arrow(server, path, records), FILES, TARGET)
        yield _timed("table, Arrow, read again", records, lambda: _arrow(server, path, records), FILES)
        server.process.restart()
        yield _timed("table, Consumer.poll_arrow, first read", records, lambda: _poll_arrow(server.url, records), FILES)
        server.process.restart()
        yield _timed("table, JSON, first read", records, lambda: _json(server, path, records))
        yield _files(server)


def _timed(label: str, records: int, run: Callable[[], int], limit: str = "", target: float | None = None) -> Figure:
    started = time.perf_counter()
    count = run()
    seconds = time.perf_counter() - started
    assert count == records, f"{label}: {count} records were read, not {records}"
    megabytes = records / seconds * RECORD_BYTES / 1e6
    return Figure(label, records / seconds, "records/s", limit=limit, at_least=target, megabytes_per_second=megabytes)


def _arrow(server: Server, path: str, records: int, query: str = "") -> int:
    offset = count = 0
    while offset < records:
        reply = server.pool.urlopen("GET", f"{path}?offset={offset}{query}", headers={"Accept": names.MEDIA_ARROW})
        assert reply.status == 200, reply.data[:300]
        count += pa.ipc.open_stream(reply.data).read_all().num_rows
        offset = int(reply.headers[names.HEADER_NEXT_OFFSET])
    return count


def _json(server: Server, path: str, records: int) -> int:
    offset = 0
    query = f"max_records={JSON_RECORDS}&max_bytes=67108864"
    while offset < records:
        reply = server.pool.urlopen("GET", f"{path}?offset={offset}&{query}")
        assert reply.status == 200, reply.data[:300]
        offset = _decode_json(reply.data).next_offset
    return offset


def _poll_arrow(url: str, records: int) -> int:
    count = 0
    with Consumer(url, assign=[TopicPartition(TOPIC, 0)]) as consumer:
        while count < records:
            rows = consumer.poll_arrow(timeout_ms=10_000).num_rows
            assert rows, "no record came in 10 s"
            count += rows
    return count


def _poll(url: str, records: int) -> int:
    count = 0
    with Consumer(url, assign=[TopicPartition(TOPIC, 0)]) as consumer:
        while count < records:
            rows = len(consumer.poll(10_000, timeout_ms=10_000))
            assert rows, "no record came in 10 s"
            count += rows
    return count


def _copy(reply: bytes, records: int) -> Figure:
    with bare_server(reply, names.MEDIA_ARROW) as bare:
        pool = urllib3.HTTPConnectionPool("127.0.0.1", bare.port)
        started = time.perf_counter()
        count = 0
        while count < records:
            count += pa.ipc.open_stream(pool.urlopen("GET", "/").data).read_all().num_rows
        seconds = time.perf_counter() - started
        pool.close()
    return Figure(
        COPY, count / seconds, "records/s", "limit", megabytes_per_second=count / seconds * RECORD_BYTES / 1e6
    )


def _files(server: Server) -> Figure:
    root = unquote(urlsplit(server.process.root).path)
    started = time.perf_counter()
    count = 0
    for path in sorted(_parquet_files(f"{root}/{names.topic_path(TOPIC)}")):
        count += pq.read_table(path, page_checksum_verification=True, partitioning=None).num_rows
    seconds = time.perf_counter() - started
    return Figure(
        FILES, count / seconds, "records/s", "limit", megabytes_per_second=count / seconds * RECORD_BYTES / 1e6
    )


def _parquet_files(folder: str) -> list[str]:
    return [str(path) for path in Path(folder).rglob("*.parquet")]
