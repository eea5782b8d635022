"""Offsets beyond the end of a partition, which clients of Kafka commit: mirrors do so before the records come."""

import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer as KafkaConsumer
from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import AdminClient
from http_rig import Http
from kafka_rig import WAIT_SECONDS, served

from siltlog.consumers.library.consumer import Consumer
from siltlog.consumers.library.options import Reset
from siltlog.infra.client.admin import Admin
from siltlog.infra.client.record import TopicPartition as Position
from siltlog.infra.errors import OffsetOutOfRange, Refused
from siltlog.infra.limits import MEMBER_TIMEOUT_MS_MIN

RECORDS, BEYOND = 5, 50
LARGEST = 2**53 - 1
Both = tuple[Http, str, Any]


@pytest.fixture(scope="module")
def both(valkey_url: str) -> Iterator[Both]:
    with served(redis_url=valkey_url) as there:
        yield there


@pytest.fixture
def group(both: Both) -> str:
    """A group, and a topic of its name, whose end its offset is beyond."""
    http, bootstrap, _ = both
    name = f"g{uuid.uuid4()}"
    http.create(name)
    http.publish(name, *({"value": str(number)} for number in range(RECORDS)))
    put(bootstrap, name, BEYOND)
    return name


def put(bootstrap: str, group: str, offset: int) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    wanted = [ConsumerGroupTopicPartitions(group, [TopicPartition(group, 0, offset)])]
    [altered] = admin.alter_consumer_group_offsets(wanted).values()
    assert [at.error for at in altered.result(WAIT_SECONDS).topic_partitions] == [None]


def offset_of(http: Http, group: str) -> int:
    [found] = http.get(f"/v1/groups/{group}/offsets").json["offsets"]
    offset: int = found["offset"]
    return offset


@pytest.mark.rule("KF17")
@pytest.mark.parametrize("offset", [RECORDS + 1, LARGEST])
def test_it_is_kept_and_no_lag(both: Both, group: str, offset: int) -> None:
    http, bootstrap, _ = both
    put(bootstrap, group, offset)
    [partition] = http.get(f"/v1/groups/{group}").json["partitions"]
    assert (partition["offset"], partition["high_watermark"]) == (offset, RECORDS)
    assert (partition["lag"], partition["lag_seconds"]) == (0, 0)
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    [listed] = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)]).values()
    assert [at.offset for at in listed.result(WAIT_SECONDS).topic_partitions] == [offset]
    with Admin(http.url) as own, pytest.raises(Refused, match=f"which has 0 to {RECORDS}"):
        own.set_group_offsets(group, {Position(group, 0): offset})


def test_a_group_goes_on_there_once_the_records_have_come(both: Both, group: str) -> None:
    http, bootstrap, _ = both
    put(bootstrap, group, RECORDS + 1)
    http.publish(group, *({"value": str(number)} for number in range(RECORDS, RECORDS + 3)))
    with Consumer(http.url, group=group, topics=[group], stop_at="latest") as consumer:
        assert [record.offset for record in consumer] == [RECORDS + 1, RECORDS + 2]


@pytest.mark.rule("KF7")
@pytest.mark.parametrize(
    ("protocol", "reset"), [("classic", "earliest"), ("consumer", "earliest"), ("classic", "latest")]
)
def test_a_client_of_kafka_goes_by_its_policy(both: Both, group: str, protocol: str, reset: str) -> None:
    http, bootstrap, _ = both
    settings = {"bootstrap.servers": bootstrap, "group.id": group, "auto.offset.reset": reset}
    consumer = KafkaConsumer({**settings, "group.protocol": protocol, "enable.auto.commit": False, "log_level": 0})
    try:
        consumer.subscribe([group])
        found: list[int] = []
        while not found:
            if reset == "latest":
                # Nobody knows when it has looked the end up.
                http.publish(group, {"value": "new"})
            found = [record.offset() or 0 for record in consumer.consume(RECORDS, 0.5)]
        assert found[0] == 0 if reset == "earliest" else found[0] >= RECORDS
        # librdkafka does not commit what it has read where that is before what was committed.
        consumer.commit(offsets=[TopicPartition(group, 0, found[0] + 1)], asynchronous=False)
    finally:
        consumer.close()
    assert offset_of(http, group) == found[0] + 1


def polled(http: Http, group: str, reset: str, member: str, **more: Any) -> dict[str, Any]:
    body = {"generation": 0, "topics": [group], "auto_offset_reset": reset, "wait_ms": 0, **more}
    reply = http.json("POST", f"/v1/groups/{group}/members/{member}/poll", body)
    assert reply.status == 200, reply
    document: dict[str, Any] = reply.json
    return document


@pytest.mark.rule("KF17")
@pytest.mark.parametrize("reset", ["earliest", "latest"])
def test_a_member_over_http_goes_on_by_its_policy_and_so_does_its_group(both: Both, group: str, reset: str) -> None:
    http, _, _ = both
    member = str(uuid.uuid4())
    first = polled(http, group, reset, member)
    assert offset_of(http, group) == (0 if reset == "earliest" else RECORDS)
    # Whatever comes between two polls is not passed over.
    http.publish(group, {"value": "new"})
    again = polled(http, group, reset, member, generation=first["generation"])
    found = [record["offset"] for record in again["records"]]
    assert found == list(range(RECORDS + 1)) if reset == "earliest" else found == [RECORDS]


def test_with_the_policy_error_it_is_an_error(both: Both, group: str) -> None:
    http, _, _ = both
    member = str(uuid.uuid4())
    told = polled(http, group, "error", member, session_timeout_ms=MEMBER_TIMEOUT_MS_MIN)
    [partition] = told["partitions"]
    assert partition["error"]["error_code"] == "offset_out_of_range"
    assert offset_of(http, group) == BEYOND
    with (
        Consumer(http.url, group=group, topics=[group], auto_offset_reset="error") as consumer,
        pytest.raises(OffsetOutOfRange),
    ):
        while True:
            consumer.poll(timeout_ms=2_000)


@pytest.mark.parametrize("reset", ["earliest", "latest"])
def test_a_consumer_goes_by_its_policy(both: Both, group: str, reset: Reset) -> None:
    http, _, _ = both
    with Consumer(http.url, group=group, topics=[group], auto_offset_reset=reset, stop_at="latest") as consumer:
        found = [record.offset for record in consumer]
    assert found == (list(range(RECORDS)) if reset == "earliest" else [])
    assert offset_of(http, group) == RECORDS


@pytest.mark.rule("KF17")
def test_attempts_at_records_are_counted_from_where_it_goes_on(both: Both, group: str) -> None:
    http, _, _ = both
    tried: list[int] = []

    def handle(record: Any) -> None:
        tried.append(record.offset)
        if record.offset == 1:
            raise ValueError("it cannot be handled")

    with Consumer(http.url, group=group, topics=[group], stop_at="latest") as consumer:
        consumer.run(handle, max_attempts=2, backoff_ms=1)
    assert tried == [0, 1, 1, 2, 3, 4]
    assert [record["offset"] for record in http.read(f"{group}.dlq")] == [0]


@pytest.mark.rule("KF17")
def test_what_was_handed_out_before_is_forgotten(both: Both, group: str) -> None:
    """A former member was given records, of which none is there: who goes back begins as if for the first time."""
    http, bootstrap, _ = both
    put(bootstrap, group, 0)
    member = str(uuid.uuid4())
    told = polled(http, group, "earliest", member, session_timeout_ms=MEMBER_TIMEOUT_MS_MIN)
    offset = {"topic": group, "partition": 0, "offset": 1, "delivered": BEYOND * 2}
    body = {"member_id": member, "generation": told["generation"], "offsets": [offset]}
    assert http.json("PUT", f"/v1/groups/{group}/offsets", body).status == 204
    assert http.call("DELETE", f"/v1/groups/{group}/members/{member}").status == 204
    put(bootstrap, group, BEYOND)
    beat = {"generation": 0, "topics": [group], "auto_offset_reset": "earliest"}
    reply = http.json("PUT", f"/v1/groups/{group}/members/{uuid.uuid4()}", beat)
    [assigned] = reply.json["assignment"]
    assert assigned["offset"] == 0 and not assigned.get("delivered")
