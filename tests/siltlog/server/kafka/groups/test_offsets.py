"""Offsets of groups: Kafka's clients commit and ask for the same that HTTP does."""

import asyncio
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from access_rig import secured_server
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import AdminClient
from http_rig import Http
from kafka import KafkaAdminClient
from kafka import TopicPartition as Position
from kafka_rig import WAIT_SECONDS, Tape, bootstrap_of, free_port, served

from siltlog.consumers.kafka.epoch import epoch_of
from siltlog.infra.kafka.errors import KafkaError
from siltlog.infra.redis.access import RedisAccess
from siltlog.infra.redis.connection import RedisConnection

COMMIT, FETCH, FIND, DELETE = 8, 9, 10, 47
RECORDS = 20
Both = tuple[Http, str, Any]


@pytest.fixture(scope="module")
def both(valkey_url: str) -> Iterator[Both]:
    with served(redis_url=valkey_url) as (http, bootstrap, server):
        for topic in ("t", "u"):
            http.create(topic, 2)
            for partition in range(2):
                records = [{"value": str(number), "partition": partition} for number in range(RECORDS)]
                http.publish(topic, *records)
        yield http, bootstrap, server


@pytest.fixture
def group() -> str:
    return f"g{uuid.uuid4()}"


@pytest.fixture
def tape(both: Both) -> Iterator[Tape]:
    with Tape(both[1]) as made:
        yield made


def id_of(http: Http, topic: str) -> bytes:
    return uuid.UUID(http.get(f"/v1/topics/{topic}").json["topic_id"]).bytes


def commit(tape: Tape, group: str, *offsets: tuple[str | bytes, int, int], version: int = 9, **more: Any) -> list[int]:
    """Each (topic or its id, partition, offset); the errors, in that order."""
    metadata = more.pop("metadata", "")
    topics = [
        {
            ("name" if isinstance(topic, str) else "topic_id"): topic,
            "partitions": [{"partition_index": partition, "committed_offset": offset, "committed_metadata": metadata}],
        }
        for topic, partition, offset in offsets
    ]
    answer = tape.ask(COMMIT, version, group_id=group, topics=topics, **more)
    return [part["error_code"] for topic in answer["topics"] for part in topic["partitions"]]


def committed(tape: Tape, group: str, topic: str | bytes = "t", version: int = 9) -> dict[int, int]:
    """The offset of each partition that has one."""
    named = {"name" if isinstance(topic, str) else "topic_id": topic, "partition_indexes": [0, 1, 7]}
    if version >= 8:
        [answer] = tape.ask(FETCH, version, groups=[{"group_id": group, "topics": [named]}])["groups"]
    else:
        answer = tape.ask(FETCH, version, group_id=group, topics=[named])
    assert answer.get("error_code", 0) == 0
    [topic_answer] = answer["topics"]
    assert all(part["error_code"] == 0 for part in topic_answer["partitions"])
    return {
        part["partition_index"]: part["committed_offset"]
        for part in topic_answer["partitions"]
        if part["committed_offset"] >= 0
    }


def offsets_of(http: Http, group: str) -> dict[tuple[str, int], int]:
    found = http.get(f"/v1/groups/{group}/offsets").json["offsets"]
    return {(each["topic"], each["partition"]): each["offset"] for each in found}


def join(http: Http, group: str, member: str = "m", *topics: str) -> dict[str, Any]:
    reply = http.json("PUT", f"/v1/groups/{group}/members/{member}", {"topics": list(topics or ("t",))})
    assert reply.status == 200, reply
    found: dict[str, Any] = reply.json
    return found


@pytest.mark.parametrize("version", range(6))
def test_this_node_coordinates_any_group(both: Both, tape: Tape, version: int) -> None:
    host, _, port = both[1].rpartition(":")
    if version < 4:
        found = tape.ask(FIND, version, key="any / group", key_type=0)
    else:
        [found] = tape.ask(FIND, version, key_type=0, coordinator_keys=["any / group", "any / group"])["coordinators"]
        assert found["key"] == "any / group"
    assert (found["error_code"], found["node_id"], found["host"], found["port"]) == (0, 1, host, int(port))


@pytest.mark.rule("KF8")
def test_a_coordinator_of_transactions_is_refused_for_good(tape: Tape) -> None:
    [found] = tape.ask(FIND, 4, key_type=1, coordinator_keys=["tx"])["coordinators"]
    assert found["error_code"] == KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert "idempotent producer" in found["error_message"]
    [found] = tape.ask(FIND, 4, key_type=2, coordinator_keys=["share"])["coordinators"]
    assert found["error_code"] == KafkaError.INVALID_REQUEST


@pytest.mark.rule("KF17")
@pytest.mark.parametrize("version", range(2, 11))
def test_what_kafka_commits_http_tells(both: Both, tape: Tape, group: str, version: int) -> None:
    http, _, _ = both
    topic: str | bytes = id_of(http, "t") if version >= 10 else "t"
    assert commit(tape, group, (topic, 0, 7), (topic, 1, RECORDS), version=version, metadata="mine") == [0, 0]
    assert offsets_of(http, group) == {("t", 0): 7, ("t", 1): RECORDS}
    [found] = [each for each in http.get(f"/v1/groups/{group}/offsets").json["offsets"] if each["partition"] == 0]
    assert found["metadata"] == "mine"


@pytest.mark.rule("KF17")
@pytest.mark.parametrize("version", range(1, 11))
def test_what_http_commits_kafka_tells(both: Both, tape: Tape, group: str, version: int) -> None:
    http, _, _ = both
    offsets = [{"topic": "t", "partition": 1, "offset": 11, "metadata": "theirs"}]
    assert http.json("PUT", f"/v1/groups/{group}/offsets", {"offsets": offsets}).status == 204
    assert committed(tape, group, id_of(http, "t") if version >= 10 else "t", version) == {1: 11}
    if version >= 2:
        named = (
            {"groups": [{"group_id": group, "topics": None}]} if version >= 8 else {"group_id": group, "topics": None}
        )
        answer = tape.ask(FETCH, version, **named)
        [topic] = (answer["groups"][0] if version >= 8 else answer)["topics"]
        assert (topic["topic_id"] == id_of(http, "t")) if version >= 10 else (topic["name"] == "t")
        [part] = topic["partitions"]
        assert (part["partition_index"], part["committed_offset"], part["metadata"]) == (1, 11, "theirs")


@pytest.mark.rule("KF17")
def test_a_leader_epoch_is_told_as_it_was_committed(both: Both, tape: Tape, valkey_url: str, group: str) -> None:
    def told(version: int) -> list[int]:
        named = {"name": "t", "partition_indexes": [0, 1]}
        if version >= 8:
            [answer] = tape.ask(FETCH, version, groups=[{"group_id": group, "topics": [named]}])["groups"]
        else:
            answer = tape.ask(FETCH, version, group_id=group, topics=[named])
        return [part.get("committed_leader_epoch", -1) for part in answer["topics"][0]["partitions"]]

    def commit_epoch(number: int, epoch: int) -> None:
        part = {
            "partition_index": number,
            "committed_offset": 5,
            "committed_metadata": "",
            "committed_leader_epoch": epoch,
        }
        answer = tape.ask(COMMIT, 9, group_id=group, topics=[{"name": "t", "partitions": [part]}])
        assert answer["topics"][0]["partitions"][0]["error_code"] == 0

    commit_epoch(0, 7)
    commit_epoch(1, -1)
    assert told(9) == told(5) == [7, -1] and told(4) == [-1, -1]
    emptied(valkey_url)
    assert told(9) == [7, -1]
    # Whoever commits without one says nothing of it.
    offset = {"topic": "t", "partition": 0, "offset": 6}
    assert both[0].json("PUT", f"/v1/groups/{group}/offsets", {"offsets": [offset]}).status == 204
    assert told(9) == [-1, -1]


@pytest.mark.rule("KF17")
def test_minus_one_and_minus_two_stand_for_the_ends_of_a_partition(tape: Tape, both: Both, group: str) -> None:
    http = both[0]
    http.create("trimmed", 2)
    http.publish("trimmed", *({"value": str(number), "partition": 0} for number in range(RECORDS)))
    ends = [{"name": "trimmed", "partitions": [{"partition_index": 0, "offset": 4}]}]
    assert tape.ask(21, 2, topics=ends, timeout_ms=10_000)["topics"][0]["partitions"][0]["error_code"] == 0
    assert commit(tape, group, ("trimmed", 0, -2), ("t", 1, -1)) == [0, 0]
    assert (committed(tape, group, "trimmed"), committed(tape, group)) == ({0: 4}, {1: RECORDS})
    assert commit(tape, group, ("trimmed", 0, -1), ("t", 1, -2)) == [0, 0]
    assert (committed(tape, group, "trimmed"), committed(tape, group)) == ({0: RECORDS}, {1: 0})
    unknown = [KafkaError.UNKNOWN_TOPIC_OR_PARTITION] * 2
    assert commit(tape, group, ("none", 0, -1), ("t", 9, -2)) == unknown


def test_several_groups_in_one_request_and_one_that_is_not(both: Both, tape: Tape, group: str) -> None:
    commit(tape, group, ("t", 0, 3))
    asked = [{"group_id": name, "topics": None} for name in (group, "nobody", "", group)]
    first, second, third = tape.ask(FETCH, 9, groups=asked)["groups"]
    assert (first["group_id"], len(first["topics"])) == (group, 1)
    assert (second["error_code"], second["topics"]) == (0, [])
    assert third["error_code"] == KafkaError.INVALID_GROUP_ID
    named = [{"topic_id": b"\1" * 16, "partition_indexes": [0, 0]}]
    [found] = tape.ask(FETCH, 10, groups=[{"group_id": group, "topics": named}])["groups"]
    [part] = found["topics"][0]["partitions"]
    assert (part["error_code"], part["committed_offset"]) == (KafkaError.UNKNOWN_TOPIC_ID, -1)


@pytest.mark.rule("KF17")
def test_what_the_log_does_not_have_is_refused_by_itself(both: Both, tape: Tape, group: str) -> None:
    errors = commit(tape, group, ("t", 0, 2**53), ("t", 1, 5), ("t", 9, 0), ("none", 0, 0), ("u", 0, -3))
    assert errors == [
        KafkaError.INVALID_COMMIT_OFFSET_SIZE,
        KafkaError.NONE,
        KafkaError.UNKNOWN_TOPIC_OR_PARTITION,
        KafkaError.UNKNOWN_TOPIC_OR_PARTITION,
        KafkaError.INVALID_COMMIT_OFFSET_SIZE,
    ]
    assert commit(tape, group, ("t", 0, 1), metadata="x" * 4_097) == [KafkaError.OFFSET_METADATA_TOO_LARGE]
    assert commit(tape, group, (b"\1" * 16, 0, 1), version=10) == [KafkaError.UNKNOWN_TOPIC_ID]
    assert commit(tape, "", ("t", 0, 1)) == [KafkaError.INVALID_GROUP_ID]
    assert committed(tape, group) == {1: 5}
    # Of two for a partition the last one holds.
    assert commit(tape, group, ("t", 0, 3), ("t", 0, 4)) == [0, 0]
    assert committed(tape, group) == {0: 4, 1: 5}


@pytest.mark.rule("KF17")
def test_who_is_no_member_commits_only_while_there_is_none(both: Both, tape: Tape, group: str) -> None:
    http, _, _ = both
    assert commit(tape, group, ("t", 0, 1)) == [0]
    told = join(http, group)
    assert commit(tape, group, ("t", 0, 2)) == [KafkaError.UNKNOWN_MEMBER_ID]
    epoch = epoch_of(told["generation"])
    as_member = {"member_id": "m", "generation_id_or_member_epoch": epoch}
    assert commit(tape, group, ("t", 0, 2), **as_member) == [0]
    stranger = as_member | {"member_id": "stranger"}
    assert commit(tape, group, ("t", 0, 3), **stranger) == [KafkaError.UNKNOWN_MEMBER_ID]
    # What is another's is refused, and takes nothing else with it.
    assert commit(tape, group, ("t", 0, 4), ("u", 0, 4), **as_member) == [0, KafkaError.STALE_MEMBER_EPOCH]
    earlier = as_member | {"generation_id_or_member_epoch": 0}
    assert commit(tape, group, ("t", 0, 5), **earlier) == [KafkaError.STALE_MEMBER_EPOCH]
    assert offsets_of(http, group) == {("t", 0): 4, ("t", 1): 0}
    asked = {"group_id": group, "member_id": "m", "member_epoch": epoch, "topics": None}
    errors = [
        tape.ask(FETCH, 9, groups=[asked | other])["groups"][0]["error_code"]
        for other in ({}, {"member_id": "stranger"}, {"member_epoch": epoch + 7})
    ]
    assert errors == [0, KafkaError.UNKNOWN_MEMBER_ID, KafkaError.STALE_MEMBER_EPOCH]


def emptied(redis_url: str) -> None:
    async def flush() -> None:
        redis = RedisConnection(RedisAccess(redis_url))
        await redis.command("FLUSHALL")
        await redis.close()

    asyncio.run(flush())


@pytest.mark.rule("KF17")
@pytest.mark.parametrize("name", ["with / slashes", "ünï~%", ".", "..", "a" * 900, "{tag}:1"])
def test_a_group_has_any_id_and_outlives_redis(both: Both, tape: Tape, valkey_url: str, name: str) -> None:
    assert commit(tape, name, ("t", 0, 9)) == [0]
    emptied(valkey_url)
    assert committed(tape, name) == {0: 9}


@pytest.mark.rule("KF17")
def test_offsets_are_forgotten_where_nobody_reads(both: Both, tape: Tape, valkey_url: str, group: str) -> None:
    http, _, _ = both
    assert commit(tape, group, ("t", 0, 3), ("u", 0, 4), ("u", 1, 5)) == [0, 0, 0]
    told = join(http, group, "m", "t")
    named = [
        {"name": "t", "partitions": [{"partition_index": 0}]},
        {"name": "u", "partitions": [{"partition_index": 0}, {"partition_index": 6}]},
    ]
    answer = tape.ask(DELETE, 0, group_id=group, topics=named)
    assert answer["error_code"] == 0
    codes = [part["error_code"] for topic in answer["topics"] for part in topic["partitions"]]
    assert codes == [KafkaError.GROUP_SUBSCRIBED_TO_TOPIC, 0, KafkaError.UNKNOWN_TOPIC_OR_PARTITION]
    assert offsets_of(http, group) == {("t", 0): 3, ("t", 1): 0, ("u", 1): 5}
    emptied(valkey_url)
    assert committed(tape, group, "u") == {1: 5}, "what was forgotten does not come back"
    assert told["generation"]
    assert tape.ask(DELETE, 0, group_id="nobody", topics=named)["error_code"] == KafkaError.GROUP_ID_NOT_FOUND


def test_clients_that_assign_themselves_keep_their_offsets(both: Both, group: str) -> None:
    http, bootstrap, _ = both
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "enable.auto.commit": False})
    try:
        consumer.assign([TopicPartition("t", 0, 0)])
        records = consumer.consume(5, WAIT_SECONDS)
        assert [record.offset() for record in records] == [0, 1, 2, 3, 4]
        consumer.commit(offsets=[TopicPartition("t", 0, 5, metadata="five")], asynchronous=False)
        [found] = consumer.committed([TopicPartition("t", 0)], timeout=WAIT_SECONDS)
        assert (found.offset, found.metadata) == (5, "five")
    finally:
        consumer.close()
    assert offsets_of(http, group) == {("t", 0): 5}


def test_tools_show_and_move_where_a_group_goes_on(both: Both, group: str) -> None:
    http, bootstrap, _ = both
    admin = AdminClient({"bootstrap.servers": bootstrap})
    wanted = ConsumerGroupTopicPartitions(group, [TopicPartition("t", 0, 12), TopicPartition("t", 1, 13)])
    [altered] = admin.alter_consumer_group_offsets([wanted]).values()
    assert altered.result(WAIT_SECONDS)
    [listed] = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)]).values()
    found = listed.result(WAIT_SECONDS).topic_partitions
    assert sorted((at.partition, at.offset) for at in found) == [(0, 12), (1, 13)]
    python = KafkaAdminClient(bootstrap_servers=bootstrap)
    try:
        offsets = python.list_group_offsets({group: None})[group]
        assert {at.partition: entry.offset for at, entry in offsets.items()} == {0: 12, 1: 13}
        assert all(isinstance(at, Position) for at in offsets)
    finally:
        python.close()
    assert offsets_of(http, group) == {("t", 0): 12, ("t", 1): 13}


@pytest.mark.rule("KF12")
def test_rights_are_those_of_http(valkey_url: str) -> None:
    with secured_server(
        kafka_listen=f"127.0.0.1:{free_port()}", redis_url=valkey_url, auto_create_partitions=1
    ) as secured:
        assert secured.admin.create("mine-t")
        assert secured.admin.create("other-t")
        key_id, mine = secured.key("mine", ("consumer", "mine"))
        token = mine.token
        assert token is not None
        with Tape(bootstrap_of(secured.server)) as tape:
            tape.ask(17, 1, mechanism="PLAIN")
            assert tape.ask(36, 2, auth_bytes=f"\0{key_id}\0{token}".encode())["error_code"] == 0
            denied = KafkaError.GROUP_AUTHORIZATION_FAILED
            assert commit(tape, "other-g", ("mine-t", 0, 0)) == [denied]
            assert commit(tape, "mine-g", ("mine-t", 0, 0), ("other-t", 0, 0)) == [
                KafkaError.NONE,
                KafkaError.TOPIC_AUTHORIZATION_FAILED,
            ]
            asked = [{"group_id": "mine-g", "topics": None}, {"group_id": "other-g", "topics": None}]
            first, second = tape.ask(FETCH, 9, groups=asked)["groups"]
            assert [topic["name"] for topic in first["topics"]] == ["mine-t"]
            assert second["error_code"] == denied
            found = tape.ask(FIND, 4, key_type=0, coordinator_keys=["mine-g", "other-g"])["coordinators"]
            assert [each["error_code"] for each in found] == [0, denied]
            named = [{"name": "mine-t", "partitions": [{"partition_index": 0}]}]
            assert tape.ask(DELETE, 0, group_id="mine-g", topics=named)["error_code"] == denied
