"""Members of a group as the library makes them: static ones, patterns, several addresses, lag, what ends them."""

import os
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
import waiting

from siltlog.consumers.library.consumer import Consumer
from siltlog.infra import errors
from siltlog.infra.client.admin import Admin
from siltlog.infra.client.record import TopicPartition
from siltlog.ingest.library.producer import Producer
from siltlog.testing import running_server

until = partial(waiting.until, seconds=30.0)


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with running_server(flush_ms=100) as server:
        yield server.url


@pytest.fixture
def topic(url: str, request: pytest.FixtureRequest) -> str:
    name: str = request.node.name[:150]
    with Admin(url) as admin:
        admin.create_topic(name, partitions=4)
    return name


def publish(url: str, topic: str, first: int, stop: int) -> None:
    with Producer(url) as producer:
        for i in range(first, stop):
            producer.send(topic, b"%d" % i, partition=i % 4)


def send(url: str, topic: str, value: bytes, partition: int) -> None:
    with Producer(url) as producer:
        producer.send(topic, value, partition=partition)


def poll_all(consumer: Consumer, count: int) -> list[int]:
    seen: list[int] = []
    until(lambda: len(seen.__iadd__(int(r.value or b"") for r in consumer.poll(timeout_ms=100))) >= count)
    return sorted(seen)


@pytest.mark.slow
def test_a_static_member_comes_back_and_nothing_moves(url: str, topic: str) -> None:
    publish(url, topic, 0, 40)
    events: list[str] = []

    def static() -> Consumer:
        return Consumer(url, group=topic, topics=[topic], instance_id="a")

    def told(what: str) -> Callable[[list[TopicPartition]], None]:
        return lambda partitions: events.append(what)

    callbacks = {f"on_{what}": told(what) for what in ("assigned", "revoked", "lost")}
    with Consumer(url, group=topic, topics=[topic], instance_id="b", **callbacks) as other:  # type: ignore[arg-type]
        first = static()
        both = (first, other)
        until(lambda: [len(one.assignment()) for one in both if one.poll(timeout_ms=20) or True] == [2, 2])
        held, before = first.assignment(), list(events)
        first.close()
        second = static()
        until(lambda: bool(second.poll(timeout_ms=20)) or len(second.assignment()) == 2)
        assert second.assignment() == held
        publish(url, topic, 40, 44)
        moved = _parts(held[0])
        until(lambda: (other.poll(timeout_ms=20), second.poll(timeout_ms=20)) and second.position(*moved) == 11)
        second.close()
        assert events == before
    with Admin(url) as admin:
        assert len(admin.group(topic)["members"]) == 2


def _parts(at: TopicPartition) -> tuple[str, int]:
    return at.topic, at.partition


def test_another_process_under_the_same_instance_ends_this_one(url: str, topic: str) -> None:
    publish(url, topic, 0, 8)
    lost: list[Any] = []
    with Consumer(url, group=topic, topics=[topic], instance_id="a", on_lost=lost.append, auto_commit=False) as first:
        assert len(poll_all(first, 8)) == 8
        with Consumer(url, group=topic, topics=[topic], instance_id="a") as second:
            assert len(poll_all(second, 8)) == 8
            for _ in range(2):
                with pytest.raises(errors.Fenced, match="instance_id"):
                    until(lambda: first.poll(timeout_ms=100) != [])
            assert [len(partitions) for partitions in lost] == [4]
            assert first.assignment() == []
            publish(url, topic, 8, 12)
            assert poll_all(second, 4) == [8, 9, 10, 11]


def test_a_pattern_takes_in_new_topics_and_partitions(url: str, topic: str) -> None:
    with Admin(url) as admin:
        publish(url, topic, 0, 8)
        with Consumer(url, group=topic, topic_pattern=f"{topic}.*", client_id="p") as consumer:
            assert poll_all(consumer, 8) == list(range(8))
            admin.create_topic(f"{topic}.more", partitions=1)
            send(url, f"{topic}.more", b"100", 0)
            assert poll_all(consumer, 1) == [100]
            admin.alter_topic(f"{topic}.more", partitions=2)
            send(url, f"{topic}.more", b"101", 1)
            assert poll_all(consumer, 1) == [101]
        with Consumer(url, group=f"{topic}.again", topic_pattern=f"{topic}.*", stop_at="latest") as consumer:
            assert sorted(int(record.value or b"") for record in consumer) == [*range(8), 100, 101]
        with Consumer(url, group=f"{topic}.none", topic_pattern="none-of-them", stop_at="latest") as consumer:
            assert list(consumer) == []
        with (
            Consumer(url, group=f"{topic}.bad", topic_pattern="(") as consumer,
            pytest.raises(errors.Refused, match="topic_pattern"),
        ):
            consumer.poll(timeout_ms=60_000)


def test_of_several_addresses_the_next_one_is_tried(url: str, topic: str) -> None:
    publish(url, topic, 0, 8)
    with Consumer(["http://127.0.0.1:9", url], group=topic, topics=[topic]) as consumer:
        assert poll_all(consumer, 8) == list(range(8))
    with Consumer(f"http://127.0.0.1:9,{url}", assign=[TopicPartition(topic, 1)], stop_at="latest") as consumer:
        assert len(list(consumer)) == 2


def test_lag_counts_offsets_and_the_age_of_the_next_record(url: str, topic: str) -> None:
    with Producer(url) as producer:
        for partition in (0, 1):
            for age_s in (1_000, 500, 0):
                when = int((time.time() - age_s) * 1000)
                producer.send(topic, b"v", partition=partition, timestamp=when)
    at = [TopicPartition(topic, partition) for partition in range(3)]
    with Consumer(url, assign=at) as consumer:
        lag = consumer.lag()
        assert [lag[one].records for one in at] == [3, 3, 0]
        assert 1_000 <= lag[at[0]].seconds < 1_400 and 1_000 <= lag[at[1]].seconds < 1_400
        assert lag[at[2]].seconds == 0.0
        consumer.seek(topic, 0, offset=1)
        assert 500 <= consumer.lag()[at[0]].seconds < 900
        consumer.pause(at[1])
        assert len(consumer.poll(timeout_ms=60_000)) == 2
        lag = consumer.lag()
        assert lag[at[0]].records == 0 and lag[at[1]].records == 3 and lag[at[1]].seconds >= 1_000


def test_positions_are_known_before_any_poll_unless_it_is_woken(url: str, topic: str) -> None:
    with Consumer(url, group=topic, topics=[topic]) as consumer:
        assert consumer.position(topic, 3) == 0
        assert len(consumer.assignment()) == 4
    with Consumer("http://127.0.0.1:9", group=topic, topics=[topic], retry_timeout_ms=60_000) as consumer:
        consumer.wakeup()
        with pytest.raises(errors.Unavailable, match="assigned nothing"):
            consumer.position(topic, 3)


def test_who_left_for_not_polling_comes_back_with_any_call(url: str, topic: str) -> None:
    lost: list[Any] = []
    with Consumer(url, group=topic, topics=[topic], max_poll_interval_ms=200, on_lost=lost.append) as consumer:
        assert consumer.position(topic, 3) == 0
        until(lambda: consumer._inbox.member is not None and consumer._inbox.member.has_news)
        assert consumer.poll(max_records=1, timeout_ms=0) == [] and lost
        with pytest.raises(errors.Fenced):
            consumer.commit({TopicPartition(topic, 3): 0})
        assert consumer.position(topic, 3) == 0


def test_without_a_policy_a_group_needs_an_offset(url: str, topic: str) -> None:
    publish(url, topic, 0, 8)
    with (
        Consumer(url, group=topic, topics=[topic], auto_offset_reset="error") as consumer,
        pytest.raises(errors.OffsetOutOfRange, match="has no offset"),
    ):
        until(lambda: bool(consumer.poll(timeout_ms=1_000)))
    with Admin(url) as admin:
        admin.set_group_offsets(topic, {TopicPartition(topic, partition): 1 for partition in range(4)})
    with Consumer(url, group=topic, topics=[topic], auto_offset_reset="error") as consumer:
        assert poll_all(consumer, 4) == [4, 5, 6, 7]


def test_what_a_callback_raises_reaches_the_poll_and_nothing_is_lost(url: str, topic: str) -> None:
    publish(url, topic, 0, 8)
    failing = [True]

    def on_assigned(partitions: list[TopicPartition]) -> None:
        if failing.pop() if failing else False:
            raise ZeroDivisionError

    with Consumer(url, group=topic, topics=[topic], on_assigned=on_assigned) as consumer:
        with pytest.raises(ZeroDivisionError):
            until(lambda: bool(consumer.poll(timeout_ms=1_000)))
        assert poll_all(consumer, 8) == list(range(8))


def test_callbacks_may_use_the_consumer(url: str, topic: str) -> None:
    publish(url, topic, 0, 40)

    def on_assigned(partitions: list[TopicPartition]) -> None:
        for at in partitions:
            assert consumer.position(at.topic, at.partition) == 0
            consumer.seek(at.topic, at.partition, offset=9)

    def on_revoked(partitions: list[TopicPartition]) -> None:
        consumer.commit()

    consumer = Consumer(
        url, group=topic, topics=[topic], on_assigned=on_assigned, on_revoked=on_revoked, auto_commit=False
    )
    with consumer:
        assert poll_all(consumer, 4) == [36, 37, 38, 39]
        with Consumer(url, group=topic, topics=[topic]) as other:
            until(lambda: (consumer.poll(timeout_ms=20), other.poll(timeout_ms=20)) and len(other.assignment()) == 2)
            assert {other.committed(*_parts(at)) for at in other.assignment()} == {10}


def test_a_forked_child_is_refused_and_does_no_harm(url: str, topic: str) -> None:
    publish(url, topic, 0, 8)
    with Consumer(url, group=topic, topics=[topic]) as consumer:
        assert len(poll_all(consumer, 8)) == 8
        child = os.fork()
        if child == 0:
            code = 1
            try:
                consumer.poll()
            except errors.Refused as error:
                consumer.close()
                code = 0 if "fork" in str(error) else 2
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        publish(url, topic, 8, 12)
        assert poll_all(consumer, 4) == [8, 9, 10, 11]
