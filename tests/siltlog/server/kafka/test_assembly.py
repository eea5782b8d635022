"""Unmodified clients of Kafka: what they produce is read by any other, and is rows of a Delta table."""

import base64
import time
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka import Producer as Librdkafka
from deltalake import DeltaTable
from http_rig import NO_REDIS, Http
from kafka import KafkaConsumer, KafkaProducer
from kafka import TopicPartition as Position
from kafka_rig import FETCH, WAIT_SECONDS, Tape, fetch, free_port, producer, read, served, the_part

from siltlog.infra.kafka.batch import HEAD
from siltlog.infra.records import OFFSET_JUMP
from siltlog.server_process import ServerProcess

SOON = {"linger_ms": 1, "retry_backoff_ms": 20, "reconnect_backoff_ms": 20, "reconnect_backoff_max_ms": 100}
"""Has a client look soon whether a server is there again."""
Both = tuple[Http, str, Any]
NAMES = ("none", "gzip", "snappy", "lz4", "zstd")


@pytest.mark.parametrize("codec", NAMES)
@pytest.mark.rule("KF3")
def test_each_codec(both: Both, codec: str) -> None:
    http, bootstrap, _ = both
    values = [b"a value like others %d" % number for number in range(300)]
    with producer(bootstrap, compression_type=codec) as sends:
        for value in values:
            sends.produce(f"by-{codec}", value)
    assert [each.value() for each in read(bootstrap, f"by-{codec}", 300)] == values
    stored = http.read(f"by-{codec}")
    assert [base64.b64decode(each["value_base64"]) for each in stored] == values


@pytest.mark.parametrize("codec", NAMES)
@pytest.mark.rule("KF22")
def test_records_are_sent_as_their_topic_says(both: Both, codec: str) -> None:
    http, bootstrap, _ = both
    topic = f"sent-by-{codec}"
    http.create(topic, fetch_compression=codec)
    values = [f"a value like others {number}" for number in range(3_000)]
    http.publish(topic, *({"value": value} for value in values))
    assert [each.value().decode() for each in read(bootstrap, topic, 3_000)] == values
    with Tape(bootstrap) as tape:
        for version in (4, 9, 10, 12):
            records = the_part(tape.ask(FETCH, version, **fetch(topic, 0)))["records"]
            by = NAMES[HEAD.unpack_from(records)[5]]
            assert by == ("none" if codec == "zstd" and version < 10 else codec)


def test_keys_headers_nulls_and_times_come_back_as_they_were(both: Both) -> None:
    http, bootstrap, _ = both
    records: list[dict[str, Any]] = [
        {"key": b"k", "value": b"v", "headers": [("a", b"1"), ("a", None), ("b", b"")], "timestamp": 1_700_000_000_123},
        {"key": b"k", "value": None, "headers": [], "timestamp": 1_700_000_000_124},
        {"key": None, "value": b"", "headers": [], "timestamp": 1_700_000_000_125},
        {"key": None, "value": None, "headers": [], "timestamp": 1_700_000_000_126},
        {"key": b"\xff\x00", "value": b"x" * 500_000, "headers": [("h", b"\xfe")], "timestamp": 1_700_000_000_127},
    ]
    with producer(bootstrap) as sends:
        for record in records:
            sends.produce("kinds", **record)
    found = [
        {
            "key": each.key(),
            "value": each.value(),
            "headers": each.headers() or [],
            "timestamp": each.timestamp()[1],
        }
        for each in read(bootstrap, "kinds", len(records))
    ]
    assert found == records
    stored = http.read("kinds")
    assert [each["offset"] for each in stored if each.get("value_base64", each.get("value")) is None] == [1, 3]


def test_many_records_in_large_batches(both: Both) -> None:
    """More than is read, or encoded, on the event loop; with headers in some."""
    _, bootstrap, _ = both
    with producer(bootstrap, linger_ms=50, batch_size=1_000_000) as sends:
        for number in range(20_000):
            sends.produce("many", b"%d" % number, key=b"k%d" % (number % 7), headers=[("n", b"1")] * (number % 3 == 0))
            if number % 1000 == 0:
                sends.poll(0)
    found = read(bootstrap, "many", 20_000)
    assert [each.offset() for each in found] == list(range(20_000))
    assert [each.value() for each in found] == [b"%d" % number for number in range(20_000)]
    assert [bool(each.headers()) for each in found[:6]] == [True, False, False, True, False, False]
    assert [each.offset() for each in read(bootstrap, "many", 100, offset=12_345)][:100] == list(range(12_345, 12_445))


def test_each_partition_has_its_own_and_a_python_client_agrees(both: Both) -> None:
    http, bootstrap, _ = both
    http.create("placed", 3)
    sends = KafkaProducer(bootstrap_servers=bootstrap, acks="all", enable_idempotence=True)
    futures = [sends.send("placed", b"%d" % number, partition=number % 3) for number in range(30)]
    assert [each.get(WAIT_SECONDS).offset for each in futures] == [number // 3 for number in range(30)]
    sends.close()
    at = [Position("placed", partition) for partition in range(3)]
    reads = KafkaConsumer(bootstrap_servers=bootstrap, group_id=None, auto_offset_reset="earliest")
    reads.assign(at)
    found: dict[int, list[bytes]] = {0: [], 1: [], 2: []}
    end = time.monotonic() + WAIT_SECONDS
    while sum(map(len, found.values())) < 30:
        assert time.monotonic() < end
        for position, records in reads.poll(1000).items():
            found[position.partition] += [record.value for record in records]
    assert found == {partition: [b"%d" % number for number in range(partition, 30, 3)] for partition in range(3)}
    assert reads.beginning_offsets(at) == dict.fromkeys(at, 0)
    assert reads.end_offsets(at) == dict.fromkeys(at, 10)
    reads.close()


def test_offsets_of_times(both: Both) -> None:
    http, bootstrap, _ = both
    http.create("timed")
    with producer(bootstrap) as sends:
        for number in range(10):
            sends.produce("timed", b"x", timestamp=1_700_000_000_000 + number * 1000)
    at = Position("timed", 0)
    reads = KafkaConsumer(bootstrap_servers=bootstrap, group_id=None)
    [found] = reads.offsets_for_times({at: 1_700_000_003_500}).values()
    assert (found.offset, found.timestamp) == (4, 1_700_000_004_000)
    assert reads.offsets_for_times({at: 1_800_000_000_000}) == {at: None}
    reads.close()


@pytest.mark.rule("KF1")
def test_what_http_published_is_read_and_the_other_way_round(both: Both) -> None:
    http, bootstrap, _ = both
    http.create("shared")
    assert http.publish("shared", {"key": "k", "value": "by http", "headers": {"h": "x"}}).status == 200
    with producer(bootstrap) as sends:
        sends.produce("shared", b"by kafka", key=b"k")
    first, second = read(bootstrap, "shared", 2)
    assert (first.key(), first.value(), first.headers()) == (b"k", b"by http", [("h", b"x")])
    assert second.value() == b"by kafka"
    assert [each["value"] for each in http.read("shared", query="values=text")] == ["by http", "by kafka"]


def test_a_client_waits_for_what_comes(both: Both) -> None:
    http, bootstrap, _ = both
    http.create("waited")
    reads = KafkaConsumer(bootstrap_servers=bootstrap, group_id=None, fetch_max_wait_ms=20_000)
    reads.assign([Position("waited", 0)])
    reads.seek(Position("waited", 0), 0)
    assert reads.poll(100) == {}
    began = time.monotonic()
    http.publish("waited", {"value": "x"})
    while not (found := reads.poll(1000)):
        assert time.monotonic() - began < WAIT_SECONDS
    [[record]] = found.values()
    assert record.value == b"x"
    reads.close()


@pytest.mark.rule("KF8")
def test_transactions_are_refused_at_once(both: Both) -> None:
    _, bootstrap, _ = both
    sends = Librdkafka({"bootstrap.servers": bootstrap, "transactional.id": "t", "log_level": 0})
    with pytest.raises(KafkaException, match=r"TransactionalId|transactional"):
        sends.init_transactions(WAIT_SECONDS)


@pytest.mark.slow
@pytest.mark.rule("KF1")
def test_records_are_rows_and_go_on_after_a_restart_from_the_table(tmp_path: Path) -> None:
    """A producer that lives through the restart goes on where it was."""
    with served(auto_create_partitions=1, data_dir=tmp_path, flush_ms=100) as (_, bootstrap, server):
        with producer(bootstrap, enable_idempotence=True, **SOON) as sends:
            for number in range(50):
                sends.produce("rows", b"%d" % number, key=b"k", headers=[("h", b"x")])
            assert sends.flush(WAIT_SECONDS) == 0
            assert server.stop() == 0
            server.start()
            for number in range(50, 60):
                sends.produce("rows", b"%d" % number, key=b"k")
        found = read(bootstrap, "rows", 60)
        assert [each.value() for each in found] == [b"%d" % number for number in range(60)]
        assert server.stop() == 0
        table = DeltaTable(f"{server.root}/topics/rows").to_pyarrow_table().sort_by("offset")
        assert table["value"].to_pylist() == [b"%d" % number for number in range(60)]
        assert set(table["key"].to_pylist()) == {b"k"}
        assert table["headers"].to_pylist()[0] == [{"key": "h", "value": b"x"}]
        [who] = set(table["producer_id"].to_pylist())
        assert who.startswith("kafka:")
        assert table["sequence"].to_pylist() == list(range(60))


@pytest.mark.rule("KF4")
def test_sigkill_amid_an_idempotent_producer_loses_and_doubles_nothing(tmp_path: Path) -> None:
    acked: list[bytes] = []

    def told(error: Any, message: Any) -> None:
        if error is None:
            acked.append(message.value())

    with served(auto_create_partitions=1, data_dir=tmp_path) as (http, bootstrap, server):
        with producer(bootstrap, enable_idempotence=True, **SOON) as sends:
            for number in range(3_000):
                sends.produce("killed", b"%d" % number, on_delivery=told)
                sends.poll(0)
                if number in (700, 1_900):
                    while len(acked) < number // 2:
                        sends.poll(0.01)
                    server.kill()
                    server.start()
        http.url = server.url
        values = [each.value() for each in read(bootstrap, "killed", len(acked))]
        assert len(acked) == 3_000
        assert values == [b"%d" % number for number in range(3_000)]


@pytest.mark.slow
@pytest.mark.rule("KF7")
def test_readers_go_on_past_the_offsets_that_a_take_over_left_out(tmp_path: Path) -> None:
    root = (tmp_path / "root").as_uri()
    with served(data_dir=tmp_path / "lost", root=root, flush_ms=50) as (http, _, server):
        http.create("jumped")
        http.publish("jumped", {"value": "before"})
        end = time.monotonic() + WAIT_SECONDS
        while http.get("/v1/topics/jumped/offsets").json["partitions"][0]["table_offset"] < 1:
            assert time.monotonic() < end
        server.kill()
        bootstrap = f"127.0.0.1:{free_port()}"
        settings = {"redis_url": NO_REDIS, "root": root, "kafka_listen": bootstrap}
        successor = ServerProcess(tmp_path / "own", settings)
        successor.start("--take-over")
        try:
            at = Position("jumped", 0)
            reads = KafkaConsumer(bootstrap_servers=bootstrap, group_id=None)
            reads.assign([at])
            reads.seek(at, 0)
            end = time.monotonic() + WAIT_SECONDS
            [[first]] = reads.poll(WAIT_SECONDS * 1000).values()
            assert (first.offset, first.value) == (0, b"before")
            while reads.position(at) < OFFSET_JUMP:
                assert reads.poll(100) == {}
                assert time.monotonic() < end
            reads.close()
            assert Http(successor.url).publish("jumped", {"value": "behind"}).status == 200
            found = read(bootstrap, "jumped", 2)
            assert [(each.offset(), each.value()) for each in found] == [(0, b"before"), (OFFSET_JUMP, b"behind")]
        finally:
            successor.stop()


def test_watermarks_of_a_partition(both: Both) -> None:
    from confluent_kafka import Consumer

    http, bootstrap, _ = both
    http.create("marks")
    http.publish("marks", {"value": "x"}, {"value": "y"})
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "none", "log_level": 0})
    assert consumer.get_watermark_offsets(TopicPartition("marks", 0), WAIT_SECONDS) == (0, 2)
    consumer.close()
