"""Frames of strangers, the order of answers, what is counted, and the end of connections."""

import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from http_rig import NO_REDIS, Http
from kafka_rig import (
    API_VERSIONS,
    FETCH,
    FOR_LEADER_EPOCH,
    LIST_OFFSETS,
    METADATA,
    PRODUCE,
    Tape,
    batch,
    fetch,
    free_port,
    numbered,
    producer,
    publish,
    read,
    served,
    the_part,
)
from tls_rig import Made

from siltlog.infra.errors import ConfigError
from siltlog.infra.kafka.errors import KafkaError
from siltlog.infra.kafka.frames import decode_response, encode_request
from siltlog.infra.settings.settings import ServerSettings
from siltlog.server.listener import check_reach
from siltlog.testing import running_server

DESCRIBE_CONFIGS = 32

Both = tuple[Http, str, Any]


# --- off ----------------------------------------------------------------------------------------------------
@pytest.mark.rule("KF10")
def test_off_costs_nothing() -> None:
    """Nothing of it is imported by what a server imports."""
    code = "import sys; import siltlog.server.wiring; print([name for name in sys.modules if '.kafka' in name])"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


def test_settings_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ValueError, match="SILT_KAFKA_LISTEN is not"):
        ServerSettings(kafka_advertise="silt.example:9092")
    with pytest.raises(ValueError, match="name the port"):
        ServerSettings(kafka_listen="127.0.0.1:9092", kafka_advertise="silt.example:0")
    with pytest.raises(ConfigError, match=r"10\.0\.0\.1 can be reached from other machines, without TLS"):
        check_reach(ServerSettings(kafka_listen="10.0.0.1:9092", trusted_proxies="10.0.0.2", auth="on"))


# --- frames of strangers ------------------------------------------------------------------------------------
@pytest.mark.rule("KF2")
@pytest.mark.parametrize(
    "said",
    [
        b"POST / HTTP/1.1\r\nHost: x\r\n\r\n",
        b"\x7f\xff\xff\xff",
        b"\xff\xff\xff\xff",
        b"\x00\x00\x00\x00",
        b"\x00\x00\x00\x02\x00\x12",
        b"\x00\x00\x00\x0c" + b"\xff" * 12,
        b"\x00\x00\x00\x0a" + struct.pack(">hhih", 3, 5, 1, -7),
        b"\x00\x00\x00\x0e" + struct.pack(">hhihi", 3, 5, 1, -1, 2_000_000_000),
        b"\x00\x00\x00\x0a" + struct.pack(">hhih", 11, 1, 1, -1),
        b"\x00\x00\x00\x0a" + struct.pack(">hhih", 0, 2, 1, -1),
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    ],
)
def test_what_is_no_request_ends_its_connection_and_nothing_else(both: Both, said: bytes) -> None:
    http, bootstrap, server = both
    with Tape(bootstrap) as stranger:
        stranger.socket.sendall(said)
        assert stranger.is_closed()
    assert server.running
    with Tape(bootstrap) as tape:
        assert tape.ask(API_VERSIONS, 0)["error_code"] == 0
    assert any(name.startswith("silt_kafka_errors_total") and 'api="none"' in name for name in http.metrics())


@pytest.mark.rule("KF2")
def test_a_frame_that_is_too_large_is_not_waited_for(both: Both) -> None:
    http, bootstrap, _ = both
    series = 'silt_kafka_errors_total{api="none",error="too_large"}'
    before = http.metrics().get(series, 0)
    with Tape(bootstrap) as stranger:
        stranger.socket.sendall((500_000_000).to_bytes(4) + b"\0")
        assert stranger.is_closed()
    assert http.metrics()[series] == before + 1


@pytest.mark.rule("KF2")
def test_half_a_frame_is_given_up_and_its_memory_given_back() -> None:
    with served(request_timeout_ms=1_000) as (http, bootstrap, _):
        with Tape(bootstrap) as tape:
            tape.socket.sendall((4_000_000).to_bytes(4) + bytes(1_000_000))
            assert tape.is_closed()
        with Tape(bootstrap) as tape:
            assert tape.ask(API_VERSIONS, 3, client_software_name="x", client_software_version="1")["api_keys"]
        assert http.metrics()["silt_in_flight_bytes"] == 0


def test_a_frame_in_many_pieces_and_many_frames_in_one(both: Both) -> None:
    _, bootstrap, _ = both
    frame = encode_request(API_VERSIONS, 0, 5, None, {})
    whole = len(frame).to_bytes(4) + frame
    with Tape(bootstrap) as tape:
        for at in range(len(whole)):
            tape.socket.sendall(whole[at : at + 1])
        assert decode_response(API_VERSIONS, 0, tape.received()).correlation_id == 5
        tape.socket.sendall(whole * 300)
        assert [decode_response(API_VERSIONS, 0, tape.received()).correlation_id for _ in range(300)] == [5] * 300


def test_whoever_asks_for_newer_versions_is_told_which_there_are(both: Both) -> None:
    _, bootstrap, _ = both
    with Tape(bootstrap) as tape:
        tape.frame(struct.pack(">hhih", API_VERSIONS, 99, 7, -1))
        answer = decode_response(API_VERSIONS, 0, tape.received())
        assert answer.correlation_id == 7
        assert answer.body["error_code"] == KafkaError.UNSUPPORTED_VERSION
        found = {each["api_key"]: (each["min_version"], each["max_version"]) for each in answer.body["api_keys"]}
    # What librdkafka goes by before it compresses, and is idempotent.
    assert found[PRODUCE][0] == 0
    assert found[10][0] == found[22][0] == 0
    assert found[FETCH] == (4, 18)
    assert found[LIST_OFFSETS][0] == 1
    assert not {17, 36, 24} & set(found)


# --- publishing ---------------------------------------------------------------------------------------------
@pytest.mark.rule("KF5")
def test_each_partition_succeeds_or_fails_alone(both: Both) -> None:
    http, bootstrap, _ = both
    http.create("alone", 2)
    good, bad = batch(b"a", b"b"), bytearray(batch(b"c"))
    bad[-1] ^= 1
    wanted = [(0, good), (1, bytes(bad)), (9, good), (1, None), (1, good)]
    topics = [
        {"name": "alone", "partition_data": [{"index": index, "records": records} for index, records in wanted]},
        {"name": "absent", "partition_data": [{"index": 0, "records": good}]},
        {"name": "_offsets", "partition_data": [{"index": 0, "records": good}]},
    ]
    with Tape(bootstrap) as tape:
        answer = tape.ask(PRODUCE, 9, acks=-1, timeout_ms=5_000, topic_data=topics)
    first, absent, system = answer["responses"]
    codes = [each["error_code"] for each in first["partition_responses"]]
    assert codes == [0, KafkaError.CORRUPT_MESSAGE, KafkaError.UNKNOWN_TOPIC_OR_PARTITION, KafkaError.INVALID_RECORD, 0]
    assert [each["base_offset"] for each in first["partition_responses"]] == [0, -1, -1, -1, 0]
    assert the_part({"responses": [absent]})["error_code"] == KafkaError.UNKNOWN_TOPIC_OR_PARTITION
    assert the_part({"responses": [system]})["error_code"] == KafkaError.TOPIC_AUTHORIZATION_FAILED
    assert len(http.read("alone", 0)) == len(http.read("alone", 1)) == 2


@pytest.mark.rule("KF6")
def test_answers_come_in_order_and_without_acks_there_is_none(both: Both) -> None:
    http, bootstrap, _ = both
    http.create("ordered")
    with Tape(bootstrap) as tape:
        for number in range(20):
            tape.send(PRODUCE, 9, **publish("ordered", batch(b"%d" % number), acks=0 if number % 2 else -1))
        tape.send(API_VERSIONS, 0)
        offsets = [the_part(tape.answer(PRODUCE, 9))["base_offset"] for _ in range(10)]
        assert offsets == list(range(0, 20, 2))
        assert tape.answer(API_VERSIONS, 0)["error_code"] == 0
        # Who waits for no answer learns of a refusal by the end of the connection.
        tape.send(PRODUCE, 9, **publish("absent", batch(b"x"), acks=0))
        assert tape.is_closed()
    assert [each["value"] for each in http.read("ordered", query="values=text")] == [str(n) for n in range(20)]


@pytest.mark.parametrize("values", [[b"q" * 400_000], [b"%d" % number for number in range(500)]])
def test_who_waits_for_no_answers_may_go_at_once(both: Both, values: list[bytes]) -> None:
    http, bootstrap, _ = both
    topic = f"gone-{len(values)}"
    http.create(topic)
    with Tape(bootstrap) as tape:
        for value in values:
            tape.send(PRODUCE, 9, **publish(topic, batch(value), acks=0))
    http.until_end(topic, len(values))


@pytest.mark.rule("KF4")
def test_sequences_past_the_last_and_under_each_epoch(both: Both) -> None:
    http, bootstrap, _ = both
    http.create("numbered", 2)
    records = batch(b"a", b"b")
    last = 2**31 - 1
    with Tape(bootstrap) as tape:

        def told(epoch: int, sequence: int, partition: int = 0) -> tuple[int, int]:
            sent = numbered(records, 77, epoch, sequence)
            part = the_part(tape.ask(PRODUCE, 9, **publish("numbered", sent, partition=partition)))
            return part["error_code"], part["base_offset"]

        assert told(0, last - 1) == (0, 0)
        assert told(0, 0) == (0, 2)
        assert told(0, 2) == (0, 4)
        assert told(0, last - 1) == (0, 0)
        assert told(0, 0) == (0, 2)
        assert told(0, 5) == (KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)
        assert told(1, 5) == (KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)
        assert told(1, 0) == (0, 6)
        assert told(1, 0) == (0, 6)
        assert told(1, 2) == (0, 8)
        assert told(0, 4) == (KafkaError.INVALID_PRODUCER_EPOCH, -1)
        # A higher epoch fences where it was used: batches under the one before may be on their way to others.
        assert told(0, 0, partition=1) == (0, 0)
        assert told(1, 0, partition=1) == (0, 2)
        for number in range(101):
            assert told(1, 4 + 2 * number) == (0, 10 + 2 * number)
        assert told(1, 0) == (KafkaError.DUPLICATE_SEQUENCE_NUMBER, -1)


@pytest.mark.rule("KF4")
def test_what_comes_behind_a_producers_first_batch_waits_for_it(both: Both) -> None:
    http, bootstrap, _ = both
    http.create("begun")
    first, second = (numbered(batch(value), 78, 0, sequence) for sequence, value in enumerate((b"a", b"b")))
    with Tape(bootstrap) as tape:

        def told(records: bytes) -> tuple[int, int]:
            part = the_part(tape.ask(PRODUCE, 9, **publish("begun", records)))
            return part["error_code"], part["base_offset"]

        torn = first[:-1] + bytes([first[-1] ^ 1])
        assert told(torn) == (KafkaError.CORRUPT_MESSAGE, -1)
        assert told(second) == (KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)
        assert told(first) == (0, 0)
        assert told(second) == (0, 1)
        assert told(first) == (0, 0)
    assert [each["value"] for each in http.read("begun", query="values=text")] == ["a", "b"]


def test_acks_are_those_of_the_topic(both: Both) -> None:
    http, bootstrap, _ = both
    http.create("settled", acks="table")
    with Tape(bootstrap) as tape:
        assert the_part(tape.ask(PRODUCE, 9, **publish("settled", batch(b"x"))))["base_offset"] == 0
        [bounds] = http.get("/v1/topics/settled/offsets").json["partitions"]
        assert bounds["table_offset"] == 1
        assert the_part(tape.ask(PRODUCE, 9, **publish("settled", batch(b"x"), acks=1)))["base_offset"] == 1


def test_acks_that_are_none_of_kafkas_and_transactions_are_refused(both: Both) -> None:
    http, bootstrap, _ = both
    http.create("refusing")
    with Tape(bootstrap) as tape:
        asked = publish("refusing", batch(b"x"))
        part = the_part(tape.ask(PRODUCE, 9, **{**asked, "acks": 7}))
        assert part["error_code"] == KafkaError.INVALID_REQUIRED_ACKS
        part = the_part(tape.ask(PRODUCE, 9, **{**asked, "transactional_id": "t"}))
        assert part["error_code"] == KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert http.read("refusing") == []


def test_where_keys_are_compacted_a_tombstone_needs_one(both: Both) -> None:
    http, bootstrap, _ = both
    http.create("compacted", cleanup_policy="compact")
    with Tape(bootstrap) as tape:
        for values in ([b"x", None], [b"x"] * 40 + [None]):
            part = the_part(tape.ask(PRODUCE, 9, **publish("compacted", batch(*values))))  # type: ignore[arg-type]
            assert part["error_code"] == KafkaError.INVALID_RECORD
            assert [each["batch_index"] for each in part["record_errors"]] == [len(values) - 1]
    assert http.read("compacted") == []


# --- reading ------------------------------------------------------------------------------------------------
@pytest.mark.rule("KF7")
def test_a_record_comes_however_small_the_limits_are(both: Both) -> None:
    http, bootstrap, _ = both
    http.create("large")
    with producer(bootstrap) as sends:
        sends.produce("large", b"x" * 400_000)
        sends.produce("large", b"y" * 400_000)
    with Tape(bootstrap) as tape:
        asked = fetch("large", 0, partition_max_bytes=1) | {"max_bytes": 1}
        part = the_part(tape.ask(FETCH, 4, **asked))
        assert 400_000 < len(part["records"]) < 500_000
    found = read(bootstrap, "large", 2, fetch_message_max_bytes=1_000, fetch_max_bytes=1_000_000)
    assert [each.value()[:1] for each in found] == [b"x", b"y"]


def test_what_cannot_be_read_says_why(both: Both) -> None:
    http, bootstrap, _ = both
    http.create("errors")
    http.publish("errors", {"value": "x"})
    with Tape(bootstrap) as tape:
        assert the_part(tape.ask(FETCH, 11, **fetch("errors", 5)))["error_code"] == KafkaError.OFFSET_OUT_OF_RANGE
        assert the_part(tape.ask(FETCH, 11, **fetch("no", 0)))["error_code"] == KafkaError.UNKNOWN_TOPIC_OR_PARTITION
        of_session = tape.ask(FETCH, 11, **fetch("errors", 0, session_id=9, session_epoch=3))
        assert of_session["error_code"] == KafkaError.FETCH_SESSION_ID_NOT_FOUND
        topics = [{"topic_id": b"\x01" * 16, "partitions": [{"partition": 0, "fetch_offset": 0}]}]
        by_id = tape.ask(FETCH, 17, max_wait_ms=0, min_bytes=0, topics=topics)
        assert the_part(by_id)["error_code"] == KafkaError.UNKNOWN_TOPIC_ID


@pytest.mark.rule("KF9")
def test_leader_epochs_that_are_not_the_owners_are_told_apart(both: Both) -> None:
    http, bootstrap, _ = both
    http.create("epochs")
    http.publish("epochs", {"value": "x"})
    with Tape(bootstrap) as tape:
        [topic] = tape.ask(METADATA, 12, topics=[{"name": "epochs"}])["topics"]
        epoch = topic["partitions"][0]["leader_epoch"]
        assert epoch >= 1
        for asked, code in ((epoch, 0), (epoch - 1, KafkaError.FENCED_LEADER_EPOCH), (-1, 0),
                            (epoch + 1, KafkaError.UNKNOWN_LEADER_EPOCH)):  # fmt: skip
            part = the_part(tape.ask(FETCH, 11, **fetch("epochs", 0, current_leader_epoch=asked)))
            assert part["error_code"] == code
            where = [{"partition_index": 0, "current_leader_epoch": asked, "timestamp": -1}]
            listed = tape.ask(LIST_OFFSETS, 4, topics=[{"name": "epochs", "partitions": where}])
            assert the_part(listed)["error_code"] == code
        # Of no owner is anything ever taken away: all that a reader has of a former one is what there is.
        where = [{"partition": 0, "current_leader_epoch": epoch, "leader_epoch": 0}]
        answer = the_part(tape.ask(FOR_LEADER_EPOCH, 4, topics=[{"topic": "epochs", "partitions": where}]))
        assert (answer["error_code"], answer["leader_epoch"], answer["end_offset"]) == (0, 0, 1)


@pytest.mark.parametrize(("asked", "offset"), [(-1, 2), (-2, 0), (-4, 0), (-3, 0), (-6, -1)])
def test_ends_of_a_partition_by_number(both: Both, asked: int, offset: int) -> None:
    http, bootstrap, _ = both
    if asked == -1:
        http.create("ends")
        http.publish("ends", {"value": "x"}, {"value": "y"})
    with Tape(bootstrap) as tape:
        where = [{"partition_index": 0, "timestamp": asked}]
        part = the_part(tape.ask(LIST_OFFSETS, 9, topics=[{"name": "ends", "partitions": where}]))
        assert (part["error_code"], part["offset"]) == (0 if offset >= 0 else 35, offset)


# --- what is there ------------------------------------------------------------------------------------------
def test_the_address_is_the_one_that_was_reached_or_the_one_that_is_advertised(both: Both) -> None:
    _, bootstrap, _ = both
    with Tape(bootstrap) as tape:
        [broker] = tape.ask(METADATA, 9, topics=[])["brokers"]
        assert f"{broker['host']}:{broker['port']}" == bootstrap
    with served(kafka_advertise="kafka.silt.example:19092") as (_, other, __), Tape(other) as tape:
        [broker] = tape.ask(METADATA, 9, topics=[])["brokers"]
        assert (broker["host"], broker["port"]) == ("kafka.silt.example", 19092)


def test_a_topic_that_is_asked_for_often_is_told_once(both: Both) -> None:
    http, bootstrap, _ = both
    http.create("often", 3)
    with Tape(bootstrap) as tape:
        [told] = tape.ask(METADATA, 12, topics=[{"name": "often"}] * 1_000)["topics"]
        assert told["error_code"] == 0 and len(told["partitions"]) == 3
        by_id = {"name": None, "topic_id": told["topic_id"]}
        assert tape.ask(METADATA, 12, topics=[by_id, by_id])["topics"] == [told]
        resource = {"resource_type": 2, "resource_name": "often", "configuration_keys": ["retention.ms"]}
        [result] = tape.ask(DESCRIBE_CONFIGS, 4, resources=[resource] * 1_000)["results"]
        assert [each["name"] for each in result["configs"]] == ["retention.ms"]


def test_topics_are_made_by_the_servers_own_rule(both: Both) -> None:
    http, bootstrap, _ = both
    with Tape(bootstrap) as tape:
        asked = [{"name": name} for name in ("made", "with space", "_own", "x.dlq")]
        answers = tape.ask(METADATA, 9, topics=asked, allow_auto_topic_creation=True)["topics"]
        assert [each["error_code"] for each in answers] == [0, KafkaError.INVALID_TOPIC_EXCEPTION, 3, 3]
        [none] = tape.ask(METADATA, 9, topics=[{"name": "unmade"}], allow_auto_topic_creation=False)["topics"]
        assert none["error_code"] == KafkaError.UNKNOWN_TOPIC_OR_PARTITION
        [by_id] = tape.ask(METADATA, 12, topics=[{"topic_id": _id_of(http, "made"), "name": None}])["topics"]
        assert by_id["name"] == "made"
        assert "made" in {each["name"] for each in tape.ask(METADATA, 9, topics=None)["topics"]}
        for version in (10, 11):
            # Neither has an answer without a name.
            [wrong] = tape.ask(METADATA, version, topics=[{"topic_id": _id_of(http, "made"), "name": None}])["topics"]
            assert wrong["error_code"] == KafkaError.INVALID_REQUEST


def _id_of(http: Http, topic: str) -> bytes:
    from uuid import UUID

    return UUID(http.get(f"/v1/topics/{topic}").json["topic_id"]).bytes


# --- connections --------------------------------------------------------------------------------------------
def test_connections_count_with_those_of_http() -> None:
    with served(connections_max=3) as (_, bootstrap, __):
        tapes = [Tape(bootstrap) for _ in range(3)]
        alive = [tape for tape in tapes[:2] if tape.ask(API_VERSIONS, 0)]
        assert len(alive) == 2
        extra = Tape(bootstrap)
        assert extra.is_closed()
        for tape in (*tapes, extra):
            tape.socket.close()


@pytest.mark.rule("KF6")
def test_a_drain_answers_what_waits_and_ends_connections(tmp_path: Path) -> None:
    with served(data_dir=tmp_path) as (http, bootstrap, server):
        http.create("drained")
        with Tape(bootstrap) as waiting, Tape(bootstrap) as idle:
            assert idle.ask(API_VERSIONS, 0)["error_code"] == 0
            assert the_part(waiting.ask(PRODUCE, 9, **publish("drained", batch(b"x"))))["base_offset"] == 0
            waiting.send(FETCH, 11, **(fetch("drained", 1) | {"max_wait_ms": 30_000}))
            assert server.stop() == 0
            assert the_part(waiting.answer(FETCH, 11))["error_code"] == 0
            assert waiting.is_closed()
            assert idle.is_closed()
        assert DeltaTable(f"{server.root}/topics/drained").to_pyarrow_table().num_rows == 1


def test_tls_is_that_of_http(tmp_path: Path) -> None:
    made = Made(tmp_path)
    authority = tmp_path / "authority.pem"
    authority.write_bytes(made.authority.cert_pem.bytes())
    tls = {"tls_cert": made.files.certificate, "tls_key": made.files.key}
    settings = {"redis_url": NO_REDIS, "auto_create_partitions": 1, **tls}
    bootstrap = f"localhost:{free_port()}"
    with running_server(kafka_listen=bootstrap.replace("localhost", "127.0.0.1"),
                        kafka_advertise=bootstrap, **settings) as server:  # fmt: skip
        assert server.running
        client = {"security_protocol": "SSL", "ssl_ca_location": str(authority)}
        with producer(bootstrap, **client) as sends:
            sends.produce("t", b"x" * 300_000)
        [found] = read(bootstrap, "t", 1, **client)
        assert found.value() == b"x" * 300_000
        with Tape(bootstrap) as clear:
            clear.send(API_VERSIONS, 0)
            assert clear.is_closed()
