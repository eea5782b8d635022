"""Topics by a client's administration: made, shown and deleted."""

import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic
from http_rig import Http
from kafka_rig import WAIT_SECONDS, Tape, producer, served

from siltlog.infra.arrow.partitioner import MURMUR2, XXHASH64
from siltlog.infra.kafka.errors import KafkaError

MIB = 1024 * 1024


@pytest.fixture
def admin(both: tuple[Http, str, Any]) -> Iterator[AdminClient]:
    yield AdminClient({"bootstrap.servers": both[1], "log_level": 0})


def test_a_topic_is_made_shown_and_deleted(both: tuple[Http, str, Any], admin: AdminClient) -> None:
    http, _, _ = both
    config = {"retention.ms": "60000", "silt.acks": "table"}
    [made] = admin.create_topics([NewTopic("shown", 3, 1, config=config)], request_timeout=WAIT_SECONDS).values()
    assert made.result() is None
    assert http.get("/v1/topics/shown").json["partitions"] == 3
    [described] = admin.describe_configs([ConfigResource("topic", "shown")]).values()
    found = described.result()
    assert (found["retention.ms"].value, found["silt.acks"].value) == ("60000", "table")
    assert found["max.message.bytes"].is_default
    assert not found["retention.ms"].is_default
    assert len(admin.list_topics("shown", timeout=WAIT_SECONDS).topics["shown"].partitions) == 3
    assert [broker.id for broker in admin.describe_cluster().result().nodes] == [1]
    [deleted] = admin.delete_topics(["shown"]).values()
    assert deleted.result() is None
    assert http.get("/v1/topics/shown").status == 404


@pytest.mark.rule("KF23")
def test_what_a_client_of_kafka_makes_places_keys_as_its_producers_do(
    both: tuple[Http, str, Any], admin: AdminClient
) -> None:
    http, bootstrap, _ = both
    http.create("placed-by-http", 4)
    for name, config in (("placed", {}), ("placed-otherwise", {"silt.partitioner": "xxhash64"})):
        [made] = admin.create_topics([NewTopic(name, 4, 1, config=config)], request_timeout=WAIT_SECONDS).values()
        assert made.result() is None
    keys = [b"k%d" % number for number in range(20)]
    for name, by in (("placed", MURMUR2), ("placed-otherwise", XXHASH64), ("placed-by-http", XXHASH64)):
        assert http.get(f"/v1/topics/{name}").json["config"]["partitioner"]["value"] == by.name
        reply = http.publish(name, *({"key": key.decode(), "value": 1} for key in keys))
        assert [place[0] for place in reply.json["records"]] == [by.partition_of(key, 4) for key in keys]
    with producer(bootstrap, partitioner="murmur2_random") as sends:
        for key in keys:
            sends.produce("placed", b"2", key=key)
            sends.produce("placed-by-http", b"2", key=key)
    for partition in range(4):
        for name in ("placed", "placed-by-http"):
            for record in http.read(name, partition, "values=text"):
                by = XXHASH64 if name == "placed-by-http" and str(record["value"]) == "1" else MURMUR2
                assert by.partition_of(record["key"].encode(), 4) == partition
    counted = {name: total for name, total in http.metrics().items() if "misplaced" in name}
    assert list(counted) == ['silt_kafka_misplaced_batches_total{topic="placed-by-http"}']
    [described] = admin.describe_configs([ConfigResource("topic", "placed")]).values()
    assert described.result()["silt.partitioner"].value == "murmur2"


@pytest.mark.rule("KF23")
def test_a_topic_that_a_client_of_kafka_asks_for_places_keys_as_its_producers_do(
    both: tuple[Http, str, Any],
) -> None:
    http, bootstrap, _ = both
    with producer(bootstrap) as sends:
        sends.produce("asked-for", b"x", key=b"k")
    http.publish("published-to", {"value": 1})
    for name, by in (("asked-for", "murmur2"), ("published-to", "xxhash64")):
        assert http.get(f"/v1/topics/{name}").json["config"]["partitioner"]["value"] == by


@pytest.mark.rule("KF27")
def test_a_topic_is_made_with_an_assignment_of_replicas(both: tuple[Http, str, Any], admin: AdminClient) -> None:
    http, bootstrap, _ = both
    wanted = NewTopic("assigned", 3, replica_assignment=[[1]] * 3)
    [tried] = admin.create_topics([wanted], validate_only=True).values()
    assert (tried.result(), http.get("/v1/topics/assigned").status) == (None, 404)
    [made] = admin.create_topics([wanted]).values()
    assert (made.result(), http.get("/v1/topics/assigned").json["partitions"]) == (None, 3)
    with Tape(bootstrap) as tape:
        assigned = [{"partition_index": number, "broker_ids": [1]} for number in range(2)]
        for counts in ((2, -1), (-1, 1)):
            topic = {"name": "counted", "num_partitions": counts[0], "replication_factor": counts[1]}
            [answer] = tape.ask(19, 5, topics=[{**topic, "assignments": assigned, "configs": []}])["topics"]
            assert answer["error_code"] == KafkaError.INVALID_REQUEST
            assert "leave both counts" in answer["error_message"]


@pytest.mark.parametrize(
    ("topic", "code"),
    [
        (NewTopic("there", 1, 1), KafkaError.TOPIC_ALREADY_EXISTS),
        (NewTopic("with space", 1, 1), KafkaError.INVALID_TOPIC_EXCEPTION),
        (NewTopic("_own", 1, 1), KafkaError.INVALID_TOPIC_EXCEPTION),
        (NewTopic("many", 100_000, 1), KafkaError.INVALID_PARTITIONS),
        (NewTopic("set", 1, 1, config={"segment.ms": "1"}), KafkaError.INVALID_CONFIG),
        (NewTopic("assigned", 1, replica_assignment=[[7]]), KafkaError.INVALID_REPLICA_ASSIGNMENT),
    ],
)
def test_what_cannot_be_made_says_why(
    both: tuple[Http, str, Any], admin: AdminClient, topic: NewTopic, code: KafkaError
) -> None:
    http, _, _ = both
    if topic.topic == "there":
        http.create("there")
    [made] = admin.create_topics([topic]).values()
    with pytest.raises(KafkaException) as failed:
        made.result()
    assert failed.value.args[0].code() == code
    assert failed.value.args[0].str()


def test_what_is_only_looked_at_is_not_made(both: tuple[Http, str, Any], admin: AdminClient) -> None:
    http, _, _ = both
    [made] = admin.create_topics([NewTopic("tried", 2, 1)], validate_only=True).values()
    assert made.result() is None
    assert http.get("/v1/topics/tried").status == 404


def test_what_could_not_be_made_is_not_said_to_be_possible(both: tuple[Http, str, Any], admin: AdminClient) -> None:
    both[0].create("looked-at")
    for name, sentence in (("looked-at", "already"), ("Looked-At", "only by case")):
        [made] = admin.create_topics([NewTopic(name, 2, 1)], validate_only=True).values()
        with pytest.raises(KafkaException, match=sentence) as failed:
            made.result()
        assert failed.value.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS


@pytest.mark.rule("C7")
def test_what_the_log_has_no_room_for_is_not_said_to_be_possible() -> None:
    with served(wal_segment_bytes=MIB, wal_bytes_max=8 * MIB) as (_, bootstrap, _):
        admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
        for validate_only in (True, False):
            [made] = admin.create_topics([NewTopic("wide", 10_000, 1)], validate_only=validate_only).values()
            with pytest.raises(KafkaException, match="the write-ahead log keeps account") as failed:
                made.result()
            assert failed.value.args[0].code() == KafkaError.POLICY_VIOLATION


def test_a_request_that_names_a_topic_twice_neither_makes_nor_deletes_it(both: tuple[Http, str, Any]) -> None:
    http, bootstrap, _ = both
    http.create("kept-by-two")
    fields = {"num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": []}
    wanted = [{"name": name, **fields} for name in ("made-by-two", "made-by-one", "made-by-two")]
    with Tape(bootstrap) as tape:
        made = tape.ask(19, 5, topics=wanted)["topics"]
        deleted = tape.ask(20, 5, topic_names=["kept-by-two", "kept-by-two"], timeout_ms=10_000)["responses"]
    told = {each["name"]: each["error_code"] for each in made}
    assert told == {"made-by-two": KafkaError.INVALID_REQUEST, "made-by-one": KafkaError.NONE}
    assert [each["error_code"] for each in deleted] == [KafkaError.INVALID_REQUEST]
    there = [http.get(f"/v1/topics/{name}").status for name in ("made-by-two", "made-by-one", "kept-by-two")]
    assert there == [404, 200, 200]


def test_a_topic_is_deleted_by_its_name_or_its_id_and_not_by_both(both: tuple[Http, str, Any]) -> None:
    """Who names the id means that topic, and none that was made again under its name."""
    http, bootstrap, _ = both
    http.create("by-both")
    topic_id = uuid.UUID(http.get("/v1/topics/by-both").json["topic_id"]).bytes
    with Tape(bootstrap) as tape:
        for name, by in (("by-both", bytes(range(16))), ("by-both", topic_id), (None, bytes(16))):
            [answer] = tape.ask(20, 6, topics=[{"name": name, "topic_id": by}])["responses"]
            assert answer["error_code"] == KafkaError.INVALID_REQUEST
            assert http.get("/v1/topics/by-both").status == 200
        [answer] = tape.ask(20, 6, topics=[{"name": None, "topic_id": topic_id}])["responses"]
    assert (answer["error_code"], answer["name"]) == (KafkaError.NONE, "by-both")
    assert http.get("/v1/topics/by-both").status == 404


@pytest.mark.parametrize(("version", "topics"), [(0, []), (1, None), (12, None)])
def test_all_topics_are_asked_for_as_each_version_does(
    both: tuple[Http, str, Any], version: int, topics: list[Any] | None
) -> None:
    http, bootstrap, _ = both
    name = f"one-of-all-{version}"
    http.create(name)
    with Tape(bootstrap) as tape:
        found = tape.ask(3, version, topics=topics)["topics"]
        none = tape.ask(3, 1, topics=[])["topics"]
    assert name in [each["name"] for each in found]
    assert none == []


def test_the_broker_has_no_settings_here_and_what_is_no_topic_has_none(both: tuple[Http, str, Any]) -> None:
    _, bootstrap, _ = both
    resources = [
        {"resource_type": 4, "resource_name": "1"},
        {"resource_type": 2, "resource_name": "absent"},
        {"resource_type": 7, "resource_name": "x"},
    ]
    with Tape(bootstrap) as tape:
        found = tape.ask(32, 4, resources=resources)["results"]
        assert [each["error_code"] for each in found] == [
            KafkaError.NONE,
            KafkaError.UNKNOWN_TOPIC_OR_PARTITION,
            KafkaError.INVALID_REQUEST,
        ]
        by_id = tape.ask(20, 6, topics=[{"name": None, "topic_id": b"\x01" * 16}, {"name": "absent"}])["responses"]
        assert [each["error_code"] for each in by_id] == [
            KafkaError.UNKNOWN_TOPIC_ID,
            KafkaError.UNKNOWN_TOPIC_OR_PARTITION,
        ]


@pytest.mark.parametrize(
    ("asked", "code"), [(2, KafkaError.MISMATCHED_ENDPOINT_TYPE), (9, KafkaError.UNSUPPORTED_ENDPOINT_TYPE)]
)
def test_who_asks_for_controllers_is_told_that_there_are_none(
    both: tuple[Http, str, Any], asked: int, code: KafkaError
) -> None:
    with Tape(both[1]) as tape:
        told = tape.ask(60, 1, endpoint_type=asked)
        assert (told["error_code"], told["brokers"]) == (code, [])
        assert "--bootstrap-server" in told["error_message"]
        found = tape.ask(60, 1, endpoint_type=1)
    assert (found["error_code"], len(found["brokers"]), found["endpoint_type"]) == (KafkaError.NONE, 1, 1)


@pytest.mark.parametrize("name", [None, ""])
def test_a_topic_is_found_by_its_id_whatever_the_name(both: tuple[Http, str, Any], name: str | None) -> None:
    http, bootstrap, _ = both
    http.create("named" + str(name))
    topic_id = uuid.UUID(http.get(f"/v1/topics/named{name}").json["topic_id"]).bytes
    with Tape(bootstrap) as tape:
        asked = [{"topic_id": each, "name": name} for each in (topic_id, bytes(range(16)))]
        found, unknown = tape.ask(3, 13, topics=asked)["topics"]
    assert (found["error_code"], found["name"], len(found["partitions"])) == (0, f"named{name}", 1)
    assert unknown["error_code"] == KafkaError.UNKNOWN_TOPIC_ID
