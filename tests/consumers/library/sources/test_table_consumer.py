"""`read=` of a consumer, against a real server: who reads what, and that nobody could tell."""

import asyncio
import logging
import threading
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import msgspec
import pyarrow as pa
import pytest
from s3_server import S3Server

from siltlog import Admin, AsyncConsumer, ConfigError, Consumer, Producer, TopicPartition
from siltlog.consumers.library.sources import choice as far_behind
from siltlog.consumers.library.sources.choice import READS, Read
from siltlog.infra import names
from siltlog.infra.client.core import Request, Response
from siltlog.infra.client.transport import HttpTransport
from siltlog.infra.errors import CorruptData, OffsetOutOfRange
from siltlog.server_process import ServerProcess
from siltlog.testing import running_server

FILES = "/v1/files"
FETCH = "/v1/fetch"
WAIT_MS = 20_000


class Wiretap(HttpTransport):
    """Counts what is asked for; may change what is said of the files."""

    def __init__(self, **changes: Any) -> None:
        super().__init__()
        self.asked: list[str] = []
        self._changes = changes

    def send(self, url: str, request: Request) -> Response:
        self.asked.append(request.path)
        response = super().send(url, request)
        if request.path != FILES or not self._changes:
            return response
        document = msgspec.json.decode(response.body) | self._changes
        return Response(response.status, response.headers, msgspec.json.encode(document))


@pytest.fixture(scope="module")
def server() -> Iterator[ServerProcess]:
    with running_server(redis_url="redis://127.0.0.1:1/0", flush_ms=50) as server:
        yield server


@pytest.fixture
def topic(server: ServerProcess) -> str:
    name = f"t-{uuid.uuid4().hex[:8]}"
    with Admin(server.url) as admin:
        admin.create_topic(name, 2)
    return name


def publish(server: ServerProcess, topic: str, values: range, *, partition: int = 0, acks: str = "table") -> None:
    with Producer(server.url, acks="table" if acks == "table" else "wal") as producer:
        rows = pa.table({"value": [b"%d" % number for number in values]})
        producer.send_batch(topic, rows.append_column("partition", pa.array([partition] * len(values), pa.int32())))


def read_all(consumer: Consumer, until: int) -> list[int]:
    """Values of partition 0 up to the one before `until`."""
    seen: list[int] = []
    while not seen or seen[-1] < until - 1:
        rows = consumer.poll_arrow(timeout_ms=WAIT_MS)
        assert rows.num_rows, f"nothing came behind {seen[-1:]}"
        seen += [int(value) for value in rows.column("value").to_pylist()]
    return seen


def opened(server: ServerProcess, topic: str, transport: HttpTransport, **options: Any) -> Consumer:
    return Consumer(server.url, assign=[TopicPartition(topic, 0)], transport=transport, **options)


def files_of(server: ServerProcess, topic: str) -> list[Path]:
    folder = Path(unquote(urlsplit(server.root).path)) / names.topic_path(topic)
    return sorted(folder.rglob("*.parquet"), key=lambda path: path.stat().st_mtime_ns)


@pytest.mark.parametrize("read", READS)
def test_every_way_gives_the_same(
    server: ServerProcess, topic: str, read: Read, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(far_behind, "PROBE_RECORDS", 100)
    monkeypatch.setattr(far_behind, "FAR_BYTES", 1)
    monkeypatch.setattr(far_behind, "NEAR_BYTES", 1)
    publish(server, topic, range(3_000))
    publish(server, topic, range(3_000, 5_000))
    wire = Wiretap()
    with opened(server, topic, wire, read=read) as consumer:
        assert read_all(consumer, 5_000) == [*range(5_000)]
        assert next(path for path in wire.asked if path in (FILES, FETCH)) == (FETCH if read == "server" else FILES)
        assert (FILES in wire.asked) == (read != "server")
        publish(server, topic, range(5_000, 5_010))
        assert read_all(consumer, 5_010) == [*range(5_000, 5_010)]
        assert (FETCH in wire.asked) == (read != "table")
        assert consumer.position(topic, 0) == 5_010
        consumer.seek(topic, 0, 4_990)
        assert read_all(consumer, 5_010) == [*range(4_990, 5_010)]


def test_who_is_near_asks_the_server(server: ServerProcess, topic: str) -> None:
    publish(server, topic, range(3_000))
    wire = Wiretap()
    with opened(server, topic, wire) as consumer:
        assert read_all(consumer, 3_000) == [*range(3_000)]
    assert FILES not in wire.asked


def test_the_table_alone_shows_what_is_in_it(server: ServerProcess, topic: str) -> None:
    with Admin(server.url) as admin:
        admin.alter_topic(topic, config={"flush.ms": 3_600_000})
        publish(server, topic, range(10))
        with opened(server, topic, HttpTransport(), read="table", stop_at="latest") as consumer:
            publish(server, topic, range(10, 20), acks="wal")
            assert [int(record.value or b"") for record in consumer] == [*range(10)]
            assert consumer.poll(timeout_ms=700) == []
            late = threading.Thread(target=publish, args=(server, topic, range(20, 30)))
            late.start()
            try:
                assert read_all(consumer, 30) == [*range(10, 30)]
            finally:
                late.join()


class TestWhereTheFilesAreOutOfReach:
    @pytest.mark.parametrize(
        ("changes", "reason"),
        [
            ({"root_uri": "file:///nowhere"}, "cannot be read from here"),
            ({"cluster_id": "another"}, "is another place here than for the server"),
            ({"root_uri": "abfs://container"}, "neither on a disk nor on S3"),
        ],
        ids=["no-such-folder", "another-cluster", "unknown-kind"],
    )
    def test_only_who_insists_is_told(
        self,
        server: ServerProcess,
        topic: str,
        changes: dict[str, str],
        reason: str,
        monkeypatch: pytest.MonkeyPatch,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        monkeypatch.setattr(far_behind, "PROBE_RECORDS", 100)
        publish(server, topic, range(3_000))
        with (
            opened(server, topic, Wiretap(**changes), read="table") as consumer,
            pytest.raises(ConfigError, match=reason),
        ):
            read_all(consumer, 3_000)
        wire = Wiretap(**changes)
        with caplog.at_level(logging.INFO), opened(server, topic, wire, read="auto") as consumer:
            assert read_all(consumer, 3_000) == [*range(3_000)]
            assert wire.asked.count(FILES) == 1
        assert caplog.records == []


def test_damage_is_named_and_nothing_is_skipped(
    server: ServerProcess, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(far_behind, "PROBE_RECORDS", 100)
    monkeypatch.setattr(far_behind, "FAR_BYTES", 1)
    for first in range(0, 3_000, 1_000):
        publish(server, topic, range(first, first + 1_000))
    damaged = files_of(server, topic)[1]
    content = bytearray(damaged.read_bytes())
    content[len(content) // 3] ^= 1
    damaged.write_bytes(content)
    # What is still in the server's memory is whole; a restarted one has the files alone.
    server.restart()
    for read in READS:
        with opened(server, topic, HttpTransport(), read=read) as consumer:
            assert read_all(consumer, 1_000) == [*range(1_000)]
            for _ in range(2 if read == "table" else 1):
                with pytest.raises(CorruptData) as raised:
                    read_all(consumer, 3_000)
                members = raised.value.members
                assert (members["topic"], members["partition"], members["first_offset"]) == (topic, 0, 1_000)
                assert members["path"].endswith(damaged.name)
                assert consumer.position(topic, 0) == 1_000


@pytest.mark.parametrize("reset", ["earliest", "latest", "error"])
def test_offsets_that_are_gone_follow_the_policy(server: ServerProcess, topic: str, reset: Any) -> None:
    for first in range(0, 3_000, 1_000):
        publish(server, topic, range(first, first + 1_000))
    with Admin(server.url) as admin:
        admin.delete_records(topic, 0, 1_500)
    with opened(server, topic, HttpTransport(), read="table", auto_offset_reset=reset) as consumer:
        if reset == "error":
            consumer.seek(topic, 0, 10)
            with pytest.raises(OffsetOutOfRange) as raised:
                consumer.poll(timeout_ms=WAIT_MS)
            assert raised.value.members["log_start_offset"] == 1_500
            return
        consumer.seek(topic, 0, 10)
        if reset == "latest":
            assert consumer.poll(timeout_ms=1_000) == []
        publish(server, topic, range(3_000, 3_005))
        assert read_all(consumer, 3_005) == [*range(1_500 if reset == "earliest" else 3_000, 3_005)]


@pytest.mark.s3
def test_a_table_on_s3(s3_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """The consumer finds it by the settings that the server has."""
    monkeypatch.setenv(names.ENV_S3_ENDPOINT, s3_server.endpoint)
    monkeypatch.setenv(names.ENV_S3_REGION, s3_server.region)
    place = {"s3_endpoint": s3_server.endpoint, "s3_region": s3_server.region}
    root = s3_server.root_uri(f"lake-{uuid.uuid4().hex[:8]}")
    with running_server(root=root, redis_url="redis://127.0.0.1:1/0", flush_ms=50, **place) as server:
        with Admin(server.url) as admin:
            admin.create_topic("t", 2)
        publish(server, "t", range(2_000))
        publish(server, "t", range(2_000, 3_000))
        wire = Wiretap()
        with opened(server, "t", wire, read="table") as consumer:
            assert read_all(consumer, 3_000) == [*range(3_000)]
        assert FETCH not in wire.asked
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "another")
        with opened(server, "t", HttpTransport(), read="table") as consumer, pytest.raises(ConfigError):
            read_all(consumer, 3_000)


def test_the_asynchronous_consumer_reads_files_too(server: ServerProcess, topic: str) -> None:
    publish(server, topic, range(1_000))

    async def values() -> list[int]:
        at = [TopicPartition(topic, 0)]
        async with AsyncConsumer(server.url, assign=at, read="table", stop_at="latest") as consumer:
            return [int(record.value or b"") async for record in consumer]

    assert asyncio.run(values()) == [*range(1_000)]
