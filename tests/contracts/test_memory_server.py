"""The server in memory is held to the real one: the same clients, the same calls, the same assertions."""

import asyncio
import itertools
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest

from siltlog import (
    Admin,
    AsyncConsumer,
    AsyncProducer,
    Consumer,
    ConsumerRecord,
    DeliveryFailed,
    Fenced,
    Producer,
    Refused,
    TopicExists,
    TopicPartition,
    UnknownTopic,
)
from siltlog.infra.arrow.partitioner import MURMUR2, partition_of
from siltlog.infra.client.calls import GroupRecord, bury, count_attempt
from siltlog.infra.client.core import json_request
from siltlog.infra.client.endpoints import Endpoints
from siltlog.infra.client.transport import Caller, HttpTransport
from siltlog.infra.clock import SystemClock, parse_us
from siltlog.infra.errors import SiltlogError
from siltlog.server_process import ServerProcess
from siltlog.testing import MemoryServer, running_server

_numbers = itertools.count()


class RealServer:
    """A `silt serve` process, with the methods by which `MemoryServer` gives clients."""

    def __init__(self, url: str) -> None:
        self.url = url

    def producer(self, **options: Any) -> Producer:
        return Producer(self.url, **options)

    def consumer(self, **options: Any) -> Consumer:
        return Consumer(self.url, **options)

    def admin(self, **options: Any) -> Admin:
        return Admin(self.url, **options)

    def async_producer(self, **options: Any) -> AsyncProducer:
        return AsyncProducer(self.url, **options)

    def async_consumer(self, **options: Any) -> AsyncConsumer:
        return AsyncConsumer(self.url, **options)

    def transport(self) -> HttpTransport:
        return HttpTransport()


@pytest.fixture(scope="module")
def process() -> Iterator[ServerProcess]:
    with running_server(flush_ms=50) as process:
        yield process


@pytest.fixture(params=["memory", "process"])
def server(request: pytest.FixtureRequest) -> Any:
    if request.param == "memory":
        return MemoryServer()
    return RealServer(request.getfixturevalue("process").url)


@pytest.fixture
def name() -> str:
    """A name for the topic and the group of one test."""
    return f"contract-{next(_numbers)}"


@pytest.fixture
def admin(server: Any) -> Iterator[Admin]:
    with server.admin() as admin:
        yield admin


def published(server: Any, topic: str, count: int, partition: int | None = 0) -> None:
    with server.producer() as producer:
        for number in range(count):
            producer.send(topic, {"n": number}, key=str(number), partition=partition)


def read(server: Any, **options: Any) -> list[ConsumerRecord]:
    with server.consumer(stop_at="latest", **options) as consumer:
        return list(consumer)


def error_of(call: Callable[[], Any]) -> tuple[str, int | None]:
    with pytest.raises(SiltlogError) as caught:
        call()
    return caught.value.error_code, caught.value.status


def test_a_record_is_read_as_it_was_published(server: Any, admin: Admin, name: str) -> None:
    admin.create_topic(name, 4)
    moment = datetime.now(UTC) - timedelta(hours=1)
    with server.producer() as producer:
        told = producer.send(name, {"a": 1}, key="UA", headers={"h": "text", "n": None}, timestamp=moment).result(60)
        gone = producer.send(name, None, key="UA").result(60)
    partition = partition_of(b"UA", 4)
    assert (told.partition, told.offset, gone.offset) == (partition, 0, 1)
    first, tombstone = read(server, assign=[TopicPartition(name, at) for at in range(4)])
    assert (first.topic, first.partition, first.offset, first.timestamp) == (name, partition, 0, moment)
    assert (first.key, first.json(), first.headers) == (b"UA", {"a": 1}, (("h", b"text"), ("n", None)))
    assert (tombstone.value, tombstone.headers) == (None, ())


@pytest.mark.parametrize("acks", ["wal", "table", None])
def test_every_acks_level_that_a_producer_has_is_met(server: Any, admin: Admin, name: str, acks: Any) -> None:
    admin.create_topic(name)
    with server.producer(acks=acks) as producer:
        assert producer.send(name, b"1").result(60).offset == 0
    assert [record.value for record in read(server, assign=[TopicPartition(name, 0)])] == [b"1"]


@pytest.mark.parametrize("acks", ["wal", "object", "table", None])
def test_a_topic_that_outlives_the_disk_takes_every_level(server: Any, admin: Admin, name: str, acks: Any) -> None:
    admin.create_topic(name, config={"acks": "object"})
    with server.producer(acks=acks) as producer:
        assert producer.send(name, b"1").result(60).offset == 0
    assert [record.value for record in read(server, assign=[TopicPartition(name, 0)])] == [b"1"]


def test_another_topic_does_not_take_acks_object(server: Any, admin: Admin, name: str) -> None:
    admin.create_topic(name)
    with pytest.raises(DeliveryFailed) as failed, server.producer(acks="object") as producer:
        producer.send(name, b"1")
    assert [error.error_code for error in failed.value.failures] == ["unsupported_acks"]


def test_what_is_refused_is_not_there(server: Any, admin: Admin, name: str) -> None:
    admin.create_topic(name, config={"max.record.bytes": 100})
    with pytest.raises(DeliveryFailed) as failed, server.producer() as producer:
        producer.send(name, b"x" * 101)
        producer.send(name, b"fits")
    assert [error.error_code for error in failed.value.failures] == ["record_too_large"]
    assert [record.value for record in read(server, assign=[TopicPartition(name, 0)])] == [b"fits"]
    with server.producer(delivery_timeout_ms=30_000) as producer:
        assert error_of(lambda: producer.send("not-there", b"1").result(60)) == ("unknown_topic", 404)
        assert error_of(lambda: producer.send(name, b"1", partition=7).result(60)) == ("unknown_partition", 404)
        too_old = producer.send(name, b"1", timestamp=1_000)
        assert error_of(lambda: too_old.result(60)) == ("invalid_record", 422)


def test_a_topic_that_grows_moves_keys_and_loses_nothing(server: Any, admin: Admin, name: str) -> None:
    admin.create_topic(name, 1)
    with server.producer() as producer:
        producer.send(name, b"before", key="b").result(60)
        assert admin.alter_topic(name, partitions=3)["partitions"] == 3
        producer.send(name, b"after", key="b").result(60)
    found = read(server, assign=[TopicPartition(name, at) for at in range(3)])
    assert {(record.value, record.partition) for record in found} == {(b"before", 0), (b"after", partition_of(b"b", 3))}


@pytest.mark.rule("KF23")
def test_keys_go_by_the_partitioner_of_the_topic(server: Any, admin: Admin, name: str) -> None:
    admin.create_topic(name, 5, {"partitioner": "murmur2"})
    keys = [b"k%d" % number for number in range(20)]
    with server.producer() as producer:
        sent = [producer.send(name, b"v", key=key) for key in keys]
        table = producer.send_batch(name, pa.table({"key": keys, "value": keys}))
        assert [each.result(60).partition for each in sent] == [MURMUR2.partition_of(key, 5) for key in keys]
        table.result(60)
    found = read(server, assign=[TopicPartition(name, at) for at in range(5)])
    assert len(found) == 40
    assert all(record.partition == MURMUR2.partition_of(record.key or b"", 5) for record in found)
    assert error_of(lambda: admin.alter_topic(name, config={"partitioner": None})) == ("invalid_config", 422)


@pytest.mark.rule("KF23")
def test_a_topic_made_again_with_another_partitioner_is_noticed(server: Any, admin: Admin, name: str) -> None:
    admin.create_topic(name, 5)
    with server.producer() as producer:
        assert producer.send(name, b"v", key=b"a").result(60).partition == partition_of(b"a", 5)
        admin.delete_topic(name)
        admin.create_topic(name, 5, {"partitioner": "murmur2"})
        assert partition_of(b"a", 5) != MURMUR2.partition_of(b"a", 5)
        assert producer.send(name, b"v", key=b"a").result(60).partition == MURMUR2.partition_of(b"a", 5)


def test_lists_are_ranked(server: Any, admin: Admin, name: str) -> None:
    for number in (1, 2, 3):
        admin.create_topic(f"{name}-{number}")
        with server.producer() as producer:
            for _ in range(number % 3):
                producer.send(f"{name}-{number}", b"v").result(60)
    ranked = admin.topics(name, sort="records")
    assert [(one["name"], one["sort_value"]) for one in ranked] == [
        (f"{name}-2", 2),
        (f"{name}-1", 1),
        (f"{name}-3", 0),
    ]
    assert [one["name"] for one in admin.topics(name, order="desc")] == [f"{name}-{number}" for number in (3, 2, 1)]
    assert [one["sort_value"] for one in admin.topics(name, sort="records", order="asc")] == [0, 1, 2]
    assert error_of(lambda: admin.topics(sort="size")) == ("invalid_parameter", 400)  # type: ignore[arg-type]
    admin.set_group_offsets(name, {TopicPartition(f"{name}-2", 0): 1})
    end = time.monotonic() + 30
    while [one["lag"] for one in admin.groups(topic=f"{name}-2", sort="lag")] != [1]:
        assert time.monotonic() < end, "what is committed is saved now and then"
        time.sleep(0.05)
    [group] = admin.groups(name, sort="members")
    assert (group["group"], group["members"], group["topics"]) == (name, 0, [f"{name}-2"])


def test_topics_are_created_listed_changed_and_deleted(admin: Admin, name: str) -> None:
    made = admin.create_topic(name, 2, {"retention.ms": 1_000})
    assert made.keys() == admin.topic(name).keys() == admin.topics(name)[0].keys()
    assert {"bytes", "files"} <= made["offsets"][0].keys() == admin.topic(name)["offsets"][0].keys()
    assert "bytes" not in admin.topics(name)[0]["offsets"][0]
    assert (made["name"], made["partitions"]) == (name, 2)
    assert made["config"]["retention.ms"] == {"value": 1_000, "source": "topic"}
    assert [bounds["high_watermark"] for bounds in made["offsets"]] == [0, 0]
    assert error_of(lambda: admin.create_topic(name, 2)) == ("topic_exists", 409)
    assert error_of(lambda: admin.create_topic(name.upper())) == ("topic_exists", 409)
    assert admin.create_topic(name, 2, exist_ok=True)["topic_id"] == made["topic_id"]
    with pytest.raises(TopicExists):
        admin.create_topic(name, 3, exist_ok=True)
    assert admin.alter_topic(name, config={"retention.ms": None})["config"]["retention.ms"]["source"] == "default"
    assert error_of(lambda: admin.alter_topic(name, partitions=1)) == ("invalid_request", 422)
    assert error_of(lambda: admin.alter_topic(name, config={"retention": 1})) == ("invalid_config", 422)
    assert error_of(lambda: admin.create_topic("_mine")) == ("invalid_request", 422)
    assert error_of(lambda: admin.create_topic(name + "x", 0)) == ("invalid_request", 422)
    admin.delete_topic(name)
    with pytest.raises(UnknownTopic):
        admin.topic(name)
    assert admin.create_topic(name)["topic_id"] != made["topic_id"]


def test_offsets_are_found_by_time_and_records_deleted(server: Any, admin: Admin, name: str) -> None:
    admin.create_topic(name)
    start = datetime.now(UTC) - timedelta(hours=1)
    with server.producer() as producer:
        for minutes in range(5):
            producer.send(name, b"%d" % minutes, timestamp=start + timedelta(minutes=minutes))
    [found] = admin.offsets(name, start + timedelta(minutes=3))
    assert (found["offset"], found["log_start_offset"], found["high_watermark"]) == (3, 0, 5)
    assert admin.offsets(name, datetime.now(UTC))[0]["offset"] == 5
    assert admin.delete_records(name, 0, 2)["log_start_offset"] == 2
    assert admin.delete_records(name, 0, 1)["log_start_offset"] == 2
    assert error_of(lambda: admin.delete_records(name, 0, 6)) == ("offset_out_of_range", 416)
    assert [record.offset for record in read(server, assign=[TopicPartition(name, 0)])] == [2, 3, 4]
    assert admin.delete_records(name, 0, "latest")["log_start_offset"] == 5


def test_a_group_goes_on_where_it_committed(server: Any, admin: Admin, name: str) -> None:
    admin.create_topic(name, 2)
    published(server, name, 6)
    with server.consumer(group=name, topics=name) as consumer:
        taken: list[ConsumerRecord] = []
        while len(taken) < 4:
            taken += consumer.poll(4 - len(taken))
        consumer.commit()
        assert (consumer.committed(name, 0), consumer.position(name, 0)) == (4, 4)
        assert consumer.lag()[TopicPartition(name, 0)].records == 2
        there = admin.group(name)
        [member] = there["members"]
        assert there["state"] == "stable"
        assert parse_us(member["joined_at"]) <= parse_us(there["last_rebalance_at"])
    assert admin.group_offsets(name) == {TopicPartition(name, 0): 4, TopicPartition(name, 1): 0}
    assert [record.offset for record in read(server, group=name, topics=name)] == [4, 5]
    state = admin.group(name)
    assert (state["state"], state["members"]) == ("empty", [])
    assert parse_us(state["last_rebalance_at"]) >= parse_us(there["last_rebalance_at"])
    assert [(row["partition"], row["offset"], row["lag"]) for row in state["partitions"]] == [(0, 6, 0), (1, 0, 0)]
    assert [group["group"] for group in admin.groups(name)] == [name]


@pytest.mark.parametrize(("reset", "values"), [("earliest", [b"old", b"new"]), ("latest", [b"new"])])
def test_a_new_group_begins_where_its_policy_says(
    server: Any, admin: Admin, name: str, reset: Any, values: list[bytes]
) -> None:
    admin.create_topic(name)
    with server.producer() as producer:
        producer.send(name, b"old").result(60)
        with server.consumer(group=name, topics=name, auto_offset_reset=reset) as consumer:
            found = []
            # Its policy is asked once it has the partition: what comes before that is old.
            while not consumer.assignment():
                found += [record.value for record in consumer.poll(timeout_ms=100)]
            found += [record.value for record in consumer.poll(timeout_ms=300)]
            producer.send(name, b"new").result(60)
            while len(found) < len(values):
                found += [record.value for record in consumer.poll()]
    assert found == values


def test_a_poll_waits_for_what_comes(server: Any, admin: Admin, name: str) -> None:
    admin.create_topic(name)
    with server.consumer(group=name, topics=name) as consumer, server.producer() as producer:
        assert consumer.poll(timeout_ms=200) == []
        later = threading.Timer(0.2, lambda: producer.send(name, b"late"))
        later.start()
        assert [record.value for record in consumer.poll(timeout_ms=60_000)] == [b"late"]
        later.join()


def test_members_share_partitions_and_take_over(server: Any, admin: Admin, name: str) -> None:
    admin.create_topic(name, 4)
    with server.consumer(group=name, topics=name) as stays:
        stays.poll(timeout_ms=100)
        with server.consumer(group=name, topics=name) as leaves:
            deadline = time.monotonic() + 30
            while sorted(map(len, (stays.assignment(), leaves.assignment()))) != [2, 2]:
                assert time.monotonic() < deadline
                stays.poll(timeout_ms=50)
                leaves.poll(timeout_ms=50)
            assert len(admin.group(name)["members"]) == 2
        deadline = time.monotonic() + 60
        while len(stays.assignment()) < 4:
            assert time.monotonic() < deadline
            stays.poll(timeout_ms=50)
    assert admin.group(name)["state"] == "empty"


def test_a_pattern_follows_new_topics(server: Any, admin: Admin, name: str) -> None:
    with server.consumer(group=name, topic_pattern=f"{name}-.*") as consumer:
        consumer.poll(timeout_ms=100)
        admin.create_topic(f"{name}-a")
        published(server, f"{name}-a", 1)
        deadline = time.monotonic() + 30
        while not (found := consumer.poll(timeout_ms=50)):
            assert time.monotonic() < deadline
        assert found[0].topic == f"{name}-a"


def test_an_instance_takes_the_place_of_its_predecessor(server: Any, admin: Admin, name: str) -> None:
    admin.create_topic(name)
    published(server, name, 1)
    with server.consumer(group=name, topics=name, instance_id="one") as former:
        assert len(former.poll()) == 1
        with server.consumer(group=name, topics=name, instance_id="one") as latter:
            assert len(latter.poll()) == 1
            with pytest.raises(Fenced) as fenced:
                former.commit()
                for _ in range(100):
                    former.poll(timeout_ms=50)
            assert fenced.value.error_code == "fenced_member"


def test_a_handler_is_tried_again_and_gives_up(server: Any, admin: Admin, name: str) -> None:
    admin.create_topic(name, 2)
    published(server, name, 5, None)
    tried: list[int] = []

    def handle(record: ConsumerRecord) -> None:
        number = record.json()["n"]
        tried.append(number)
        if number == 2 or (number == 3 and tried.count(3) == 1):
            raise ValueError("not this one")

    with server.consumer(group=name, topics=name, stop_at="latest") as consumer:
        consumer.run(handle, max_attempts=3, backoff_ms=1)
    assert {number: tried.count(number) for number in range(5)} == {0: 1, 1: 1, 2: 3, 3: 2, 4: 1}
    [dead] = read(server, assign=[TopicPartition(f"{name}.dlq", at) for at in range(2)])
    said = dict(dead.headers)
    assert (dead.key, dead.json(), dead.partition) == (b"2", {"n": 2}, partition_of(b"2", 2))
    assert (said["silt.group"], said["silt.attempts"], said["silt.error"]) == (
        name.encode(), b"3", b"ValueError: not this one",
    )  # fmt: skip
    assert all(row["lag"] == 0 for row in admin.group(name)["partitions"])
    replayed = {"topic": name, "replay_id": "again", "replayed": 1, "duplicates": 0}
    assert admin.replay_dead_letters(name, "again") == replayed
    assert admin.replay_dead_letters(name, "again") == {**replayed, "replayed": 0, "duplicates": 1}
    assert [record.json()["n"] for record in read(server, group=name, topics=name)] == [2]
    page = admin.dead_letters(name, group=name)
    [letter] = page["dead_letters"]
    assert (page["count"], page["next"], letter["key"], letter["value"]) == (1, None, "2", '{"n":2}')
    assert (letter["dead_letter"]["group"], letter["dead_letter"]["attempts"]) == (name, 3)
    at = (dead.partition, dead.offset)
    assert error_of(lambda: admin.discard_dead_letters(name, [(at[0], at[1] + 1)])) == ("offset_out_of_range", 416)
    gone = {"topic": name, "discarded": 1, "duplicates": 0}
    starts = {"partitions": [{"partition": at[0], "log_start_offset": 2}]}
    assert admin.discard_dead_letters(name, [at], reason="tests") == {**gone, **starts}
    again = admin.discard_dead_letters(name, ranges=[(at[0], 0, at[1])])
    assert again == {**gone, "discarded": 0, **starts}
    assert admin.dead_letters(name)["dead_letters"] == []


def test_offsets_are_set_and_reset_while_nobody_reads(server: Any, admin: Admin, name: str) -> None:
    admin.create_topic(name)
    published(server, name, 5)
    at = TopicPartition(name, 0)
    assert error_of(lambda: admin.group_offsets(name)) == ("unknown_group", 404)
    admin.set_group_offsets(name, {at: 3})
    assert [record.offset for record in read(server, group=name, topics=name)] == [3, 4]
    moved = admin.reset_group(name, "shift", topics=name, shift=-2)
    assert moved == [{"topic": name, "partition": 0, "before": 5, "after": 3}]
    assert admin.reset_group(name, "earliest", topics=name, dry_run=True)[0]["after"] == 0
    assert admin.group_offsets(name) == {at: 3}
    assert error_of(lambda: admin.set_group_offsets(name, {at: 6})) == ("invalid_request", 422)
    with server.consumer(group=name, topics=name) as consumer:
        consumer.poll()
        assert error_of(lambda: admin.set_group_offsets(name, {at: 0})) == ("group_not_empty", 409)
        assert error_of(lambda: admin.delete_group(name)) == ("group_not_empty", 409)
    admin.delete_group(name)
    with pytest.raises(Refused):
        admin.group(name)


def test_commits_attempts_and_dead_letters_are_the_holders_alone(server: Any, admin: Admin, name: str) -> None:
    admin.create_topic(name)
    published(server, name, 3)
    caller = Caller(Endpoints(server.url), server.transport(), SystemClock(), retry_timeout_ms=0)

    def put(path: str, document: Any) -> Any:
        return caller.call(json_request("PUT", f"/v1/groups/{name}/{path}", document)).json()

    told = put("members/a", {"generation": 0, "topics": [name], "wait_ms": 0})
    generation = told["generation"]
    assert told.keys() == {"generation", "assignment", "heartbeat_interval_ms"}
    [held] = told["assignment"]
    assert held.items() >= {"topic": name, "partition": 0, "offset": 0}.items()
    assert put("members/a", {"generation": generation, "wait_ms": 0})["assignment"] is None
    assert error_of(lambda: put("members/b", {"generation": generation})) == ("unknown_member", 404)
    assert error_of(lambda: put("members/b", {"generation": 0})) == ("invalid_request", 422)
    assert error_of(lambda: put("members/b", {"generations": 0})) == ("invalid_request", 422)
    offsets = {"offsets": [{"topic": name, "partition": 0, "offset": 1, "delivered": 3}]}
    assert error_of(lambda: put("offsets", {**offsets, "member_id": "b", "generation": generation}))[0] == (
        "fenced_member"
    )
    record = GroupRecord(name, "a", generation, TopicPartition(name, 0), 0)
    assert [caller.run(count_attempt(record))["attempts"] for _ in range(2)] == [1, 2]
    assert error_of(lambda: caller.run(bury(record._replace(offset=1), "why"))) == ("records_open", 409)
    assert error_of(lambda: caller.run(count_attempt(record._replace(offset=9)))) == ("offset_out_of_range", 416)
    buried = caller.run(bury(record, "why"))
    assert buried == {"topic": f"{name}.dlq", "partition": 0, "offset": 0, "attempts": 2, "duplicate": False}
    assert caller.run(bury(record, "why"))["duplicate"]
    caller.call(
        json_request("PUT", f"/v1/groups/{name}/offsets", {**offsets, "member_id": "a", "generation": generation})
    )
    assert error_of(lambda: caller.run(count_attempt(record)))[0] == "invalid_request"
    spent = [caller.run(count_attempt(record._replace(offset=2), 2)) for _ in range(3)]
    assert spent == [{"attempts": 1, "spent": False}, {"attempts": 2, "spent": False}, {"attempts": 2, "spent": True}]
    caller.call(json_request("DELETE", f"/v1/groups/{name}/members/a"))
    assert error_of(lambda: put("members/a", {"generation": 0, "topics": [name]})) == ("fenced_member", 409)
    suspect = put("members/c", {"generation": 0, "topics": [name]})["assignment"]
    assert suspect[0].items() >= {"offset": 1, "delivered": 3}.items()


def test_a_producer_that_was_claimed_anew_is_fenced(server: Any, admin: Admin, name: str) -> None:
    admin.create_topic(name)
    caller = Caller(Endpoints(server.url), server.transport(), SystemClock(), retry_timeout_ms=0)

    def claim() -> Any:
        return caller.call(json_request("POST", f"/v1/topics/{name}/producers/p")).json()

    assert claim() == {"producer_id": "p", "producer_epoch": 1, "partitions": []}
    assert claim()["producer_epoch"] == 2


async def _polled(consumer: AsyncConsumer, count: int) -> AsyncIterator[ConsumerRecord]:
    end = time.monotonic() + 60
    while count > 0:
        assert time.monotonic() < end
        for record in await consumer.poll(timeout_ms=1_000):
            count -= 1
            yield record


def test_asyncio_does_the_same(server: Any, admin: Admin, name: str) -> None:
    admin.create_topic(name)
    tried: list[int] = []

    async def handle(record: ConsumerRecord) -> None:
        tried.append(record.offset)
        if record.offset == 1:
            raise ValueError("not this one")

    async def live() -> list[ConsumerRecord]:
        async with server.async_producer() as producer:
            for number in range(3):
                await producer.send(name, {"n": number})
        async with server.async_consumer(group=name, topics=name, stop_at="latest") as consumer:
            await consumer.run(handle, max_attempts=2, backoff_ms=1)
        async with server.async_consumer(group=f"{name}-2", topics=name) as consumer, server.async_producer() as late:
            # What is in the table and what is in the log may come apart.
            found = [record async for record in _polled(consumer, 3)]
            await late.send(name, b"late")
            return [*found, *[record async for record in _polled(consumer, 1)]]

    assert len(asyncio.run(live())) == 4
    assert tried == [0, 1, 1, 2]
    assert admin.group_offsets(name) == {TopicPartition(name, 0): 3}
    assert len(read(server, assign=[TopicPartition(f"{name}.dlq", 0)])) == 1
