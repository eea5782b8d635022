import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from siltlog import ConfigError, ConsumerRecord, DeliveryFailed, Refused, SiltlogError, TopicPartition, UnknownTopic
from siltlog.testing import MemoryServer
from siltlog.testing.server import NO_REPLY

AT = TopicPartition("t", 0)


@pytest.fixture
def server() -> MemoryServer:
    server = MemoryServer()
    server.create_topic("t")
    return server


def sent(server: MemoryServer, *values: bytes, **options: Any) -> None:
    with server.producer(**options) as producer:
        for value in values:
            producer.send("t", value)


def read(server: MemoryServer, group: str = "g") -> list[bytes | None]:
    with server.consumer(group=group, topics="t", stop_at="latest") as consumer:
        return [record.value for record in consumer]


def test_what_is_put_there_is_read_and_what_is_published_is_seen(server: MemoryServer) -> None:
    assert server.publish("t", {"a": 1}, key="k", headers={"h": "x"}).offset == 0
    sent(server, b"sent")
    seeded, published = server.records("t")
    assert (seeded.json(), seeded.key, seeded.headers, published.value) == ({"a": 1}, b"k", (("h", b"x"),), b"sent")
    assert read(server) == [b'{"a":1}', b"sent"]
    with pytest.raises(UnknownTopic):
        server.publish("u", b"1")
    with pytest.raises(UnknownTopic):
        server.records("u")


def test_a_group_that_is_not_there_has_committed_nothing(server: MemoryServer) -> None:
    assert (server.committed("g"), server.lag("g"), server.dead_letters("t")) == ({}, {}, [])
    assert server.attempts("g", "t", 0, 0) == 0
    server.publish("t", b"1")
    assert read(server) == [b"1"]
    server.publish("t", b"2")
    assert (server.committed("g"), server.lag("g")) == ({AT: 1}, {AT: 1})


def test_attempts_are_told_until_the_record_is_passed(server: MemoryServer) -> None:
    server.publish("t", b"1")
    told: list[int] = []

    def handle(record: ConsumerRecord) -> None:
        told.append(server.attempts("g", "t", 0, 0))
        if len(told) < 3:
            raise ValueError("again")

    with server.consumer(group="g", topics="t", stop_at="latest") as consumer:
        consumer.run(handle, backoff_ms=1)
    # A second try is counted before it is made, so that a record that ends its consumer is counted too.
    assert told == [0, 2, 3]
    assert server.attempts("g", "t", 0, 0) == 0


@pytest.mark.parametrize("done", [False, True])
@pytest.mark.parametrize("error_code", ["overloaded", "internal", *NO_REPLY])
def test_what_passes_is_tried_again_and_lands_once(server: MemoryServer, error_code: str, done: bool) -> None:
    server.fail("publish", error_code, times=2, done=done)
    sent(server, b"1", b"2")
    assert [record.value for record in server.records("t")] == [b"1", b"2"]


def test_what_does_not_pass_fails_the_delivery(server: MemoryServer) -> None:
    server.fail("publish", "invalid_record")
    with pytest.raises(DeliveryFailed) as failed:
        sent(server, b"1")
    assert [error.error_code for error in failed.value.failures] == ["invalid_record"]
    assert server.records("t") == []
    sent(server, b"2")
    assert len(server.records("t")) == 1


@pytest.mark.parametrize("operation", ["fetch", "heartbeat", "commit", "offsets"])
def test_a_consumer_goes_on_after_what_passes(server: MemoryServer, operation: Any) -> None:
    server.publish("t", b"1")
    server.fail(operation, "overloaded")
    assert read(server) == [b"1"]
    assert server.committed("g") == {AT: 1}


@pytest.mark.parametrize("operation", ["attempt", "dead_letter"])
def test_a_handler_goes_on_after_what_passes(server: MemoryServer, operation: Any) -> None:
    server.publish("t", b"1")
    server.fail(operation, "overloaded")

    def handle(record: ConsumerRecord) -> None:
        raise ValueError("never")

    with server.consumer(group="g", topics="t", stop_at="latest") as consumer:
        consumer.run(handle, max_attempts=2, backoff_ms=1)
    assert [dead.record.value for dead in server.dead_letters("t")] == [b"1"]


def test_a_member_that_is_fenced_hears_it_at_its_commit(server: MemoryServer) -> None:
    server.publish("t", b"1")
    with server.consumer(group="g", topics="t", auto_commit=False) as consumer:
        consumer.poll()
        server.fail("commit", "fenced_member")
        with pytest.raises(SiltlogError) as fenced:
            consumer.commit()
    assert fenced.value.error_code == "fenced_member"
    assert server.committed("g") == {AT: 0}


@pytest.mark.parametrize(("operation", "error_code"), [("publish", "broken"), ("sell", "overloaded")])
def test_a_failure_that_is_none_is_refused(server: MemoryServer, operation: Any, error_code: str) -> None:
    with pytest.raises(ConfigError, match="there are: "):
        server.fail(operation, error_code)


def test_publishing_makes_topics_where_it_is_asked_to() -> None:
    server = MemoryServer(auto_create_partitions=2)
    with pytest.raises(DeliveryFailed):
        sent(server, b"x" * (9 * 1024 * 1024))
    with pytest.raises(UnknownTopic):
        server.records("t")
    sent(server, b"1")
    with server.admin() as admin:
        assert admin.topic("t")["partitions"] == 2


def test_what_only_a_real_server_has_is_refused(server: MemoryServer) -> None:
    with server.admin() as admin, pytest.raises(Refused, match="running_server"):
        admin.schedule()


def test_a_closed_client_leaves_no_thread_behind(server: MemoryServer) -> None:
    before = set(threading.enumerate())
    with server.consumer(group="g", topics="t") as consumer:
        assert consumer.poll(timeout_ms=50) == []
        began = set(threading.enumerate()) - before
    assert began
    for thread in began:
        thread.join(30)
        assert not thread.is_alive()


def test_an_event_loop_that_ended_in_the_middle_is_forgotten(server: MemoryServer) -> None:
    async def waits() -> None:
        consumer = server.async_consumer(group="g", topics="t")
        await consumer.poll(timeout_ms=50)

    loop = asyncio.new_event_loop()
    loop.run_until_complete(waits())
    loop.close()
    server.publish("t", b"1")
    assert read(server, "other") == [b"1"]


def test_many_clients_at_once_lose_nothing(server: MemoryServer) -> None:
    server.create_topic("many", 4)

    def publish(who: int) -> None:
        with server.producer() as producer:
            for number in range(200):
                producer.send("many", b"%d/%d" % (who, number), key=str(number))

    def consume(_: int) -> list[bytes | None]:
        found: list[bytes | None] = []
        with server.consumer(group="g", topics="many", idle_timeout_ms=1_000) as consumer:
            found += [record.value for record in consumer]
        return found

    with ThreadPoolExecutor(7) as pool:
        found = pool.map(consume, range(3))
        list(pool.map(publish, range(4)))
        handed_out = [value for values in found for value in values]
    # They have ended before the last came, where who publishes stood still for a second.
    with server.consumer(group="g", topics="many", stop_at="latest") as last:
        handed_out += [record.value for record in last]
    assert set(handed_out) == {b"%d/%d" % (who, number) for who in range(4) for number in range(200)}
    assert set(server.lag("g").values()) == {0}


def test_credentials_of_another_server_are_passed_over() -> None:
    server = MemoryServer()
    server.create_topic("t")
    with server.producer("https://silt.example", token="t", ca="no-such-file", cert="no-such-file") as producer:
        producer.send("t", "v")
    with server.admin("http://silt.example", token=lambda: "t") as admin:
        assert [topic["name"] for topic in admin.topics()] == ["t"]
    assert [record.value for record in server.records("t")] == [b"v"]
