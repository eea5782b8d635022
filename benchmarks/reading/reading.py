"""Reading 1,000,000 records of 100 B by one client: from the head, from the table after a restart, from the files."""

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Literal
from urllib.parse import unquote, urlsplit

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import urllib3

from benchmarks.bench import TOPIC, Bench, Server
from benchmarks.figures.figure import Figure
from benchmarks.loads.posting import post
from benchmarks.loads.records import ARROW_RECORDS, arrow_body, json_record, table
from benchmarks.loads.stream_reader import StreamReader
from benchmarks.servers.child import bare_server, valkey_server
from siltlog import Consumer, TopicPartition
from siltlog.infra import names

RECORDS = 1_000_000
RECORD_BYTES = 100
JSON_RECORDS = 10_000
POLL_RECORDS = 10_000
TARGET = 2_000_000.0
ARROW_TARGET = 3_500_000.0
OBJECTS_TARGET = 600_000.0
FILES_TARGET = 4_000_000.0
STREAM_PIPELINE = 500
STREAM_CONNECTIONS = 4
HEAD_BYTES = 512 * 1024 * 1024
COPY = "an HTTP server that sends the same bytes at once"
FILES = "the table's files read by pyarrow in this process"


class _JsonReply(msgspec.Struct):
    next_offset: int


_decode_json = msgspec.json.Decoder(_JsonReply).decode


def read(bench: Bench) -> Iterator[Figure]:
    records = RECORDS // 4 if bench.quick else RECORDS
    with bench.server(partitions=1, head_bytes_max=HEAD_BYTES) as server:
        body = arrow_body(table(ARROW_RECORDS, RECORD_BYTES, keyed=False))
        post(
            server.pool,
            server.publish_path,
            [body],
            names.MEDIA_ARROW,
            threads=2,
            seconds=60,
            posts_max=records // ARROW_RECORDS,
        )
        server.await_table()
        path = f"/v1/topics/{TOPIC}/partitions/0/records"
        large = "&max_records=1000000&max_bytes=67108864"
        yield _timed("head, Arrow, replies of 16 MiB", records, lambda: _arrow(server, path, records), COPY, TARGET)
        yield _timed("head, Arrow, replies of 64 MiB", records, lambda: _arrow(server, path, records, large), COPY)
        yield _timed("head, JSON, replies of 10,000", records, lambda: _json(server, path, records))
        yield _timed("head, Consumer.poll_arrow", records, lambda: _poll_arrow(server.url, records), COPY, ARROW_TARGET)
        yield _timed("head, Consumer.poll(10,000)", records, lambda: _poll(server.url, records), "", OBJECTS_TARGET)
        yield _timed("head, for record in consumer", records, lambda: _iterate(server.url, records), "", OBJECTS_TARGET)
        reply = server.pool.urlopen("GET", path, headers={"Accept": names.MEDIA_ARROW}).data
        yield _copy(reply, records)
        server.process.restart()
        yield _timed("table, Arrow, first read", records, lambda: _arrow(server, path, records), FILES, TARGET)
        yield _timed("table, Arrow, read again", records, lambda: _arrow(server, path, records), FILES)
        server.process.restart()
        yield _timed("table, Consumer.poll_arrow, first read", records, lambda: _poll_arrow(server.url, records), FILES)
        server.process.restart()
        yield _timed("table, JSON, first read", records, lambda: _json(server, path, records))
        yield _timed(
            'the files themselves, Consumer.poll_arrow with read="table"',
            records,
            lambda: _poll_arrow(server.url, records, read="table"),
            FILES,
            FILES_TARGET,
        )
        yield _files(server)
    yield from _stream(bench, records)


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


def _poll_arrow(url: str, records: int, read: Literal["server", "table"] = "server") -> int:
    count = 0
    with Consumer(url, assign=[TopicPartition(TOPIC, 0)], read=read) as consumer:
        while count < records:
            rows = consumer.poll_arrow(timeout_ms=10_000).num_rows
            assert rows, "no record came in 10 s"
            count += rows
    return count


def _poll(url: str, records: int) -> int:
    count = 0
    with Consumer(url, assign=[TopicPartition(TOPIC, 0)], read="server") as consumer:
        while count < records:
            rows = len(consumer.poll(POLL_RECORDS, timeout_ms=10_000))
            assert rows, "no record came in 10 s"
            count += rows
    return count


def _iterate(url: str, records: int) -> int:
    with Consumer(url, assign=[TopicPartition(TOPIC, 0)], read="server", stop_at="latest") as consumer:
        return sum(record.offset >= 0 for record in consumer)


def _stream(bench: Bench, records: int) -> Iterator[Figure]:
    """A Valkey stream of the same many records, read by a group; the reader makes no more of them than their bytes."""
    with valkey_server(bench.scratch / "valkey") as valkey:
        added = 0
        while added < records:
            seconds = 0.5 if bench.quick else 2.0
            pipelines = bench.load_stream(
                valkey.port,
                json_record(RECORD_BYTES),
                STREAM_CONNECTIONS,
                pipeline=STREAM_PIPELINE,
                seconds=seconds,
                warmup_seconds=0.0,
            )
            added += pipelines.replies_in_all * STREAM_PIPELINE
        for acknowledging, label in ((True, "XREADGROUP and XACK"), (False, "XREADGROUP with NOACK")):
            group = f"reader-{acknowledging}"
            reader = StreamReader(valkey.port, group, RECORD_BYTES, acknowledging=acknowledging)
            figure = _timed(f"Valkey stream, {label}, 10,000 at once", records, partial(_read_stream, reader, records))
            reader.close()
            yield replace(figure, kind="peer")


def _read_stream(reader: StreamReader, records: int) -> int:
    count = 0
    while count < records:
        count += len(reader.read(min(POLL_RECORDS, records - count), 1_000))
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
    paths = sorted(_parquet_files(f"{root}/{names.topic_path(TOPIC)}"))
    # What the first one imports takes longer than reading it.
    _rows(paths[0])
    started = time.perf_counter()
    count = sum(_rows(path) for path in paths)
    seconds = time.perf_counter() - started
    return Figure(
        FILES, count / seconds, "records/s", "limit", megabytes_per_second=count / seconds * RECORD_BYTES / 1e6
    )


def _rows(path: str) -> int:
    rows: int = pq.read_table(path, page_checksum_verification=True, partitioning=None).num_rows
    return rows


def _parquet_files(folder: str) -> list[str]:
    return [str(path) for path in Path(folder).rglob("*.parquet")]
