"""Consumers of a group, against a real server with its embedded Valkey."""

import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
import waiting

from siltlog.consumers.library.consumer import Consumer
from siltlog.infra import errors
from siltlog.infra.client.admin import Admin
from siltlog.infra.client.core import json_request
from siltlog.infra.client.record import TopicPartition
from siltlog.infra.records import Lag
from siltlog.ingest.library.producer import Producer
from siltlog.testing import running_server

PARTITIONS = 4

until = partial(waiting.until, seconds=30.0)


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with running_server(flush_ms=100) as server:
        yield server.url


@pytest.fixture
def topic(url: str, request: pytest.FixtureRequest) -> str:
    name = request.node.name[:150].replace("[", ".").replace("]", "")
    with Admin(url) as admin:
        admin.create_topic(name, partitions=PARTITIONS)
    return name


def publish(url: str, topic: str, first: int, stop: int) -> None:
    with Producer(url) as producer:
        for i in range(first, stop):
            producer.send(topic, b"%d" % i, partition=i % PARTITIONS)


def committed(url: str, group: str) -> int:
    with Admin(url) as admin:
        return sum(admin.group_offsets(group).values())


def test_what_is_done_is_committed_on_leaving(url: str, topic: str) -> None:
    publish(url, topic, 0, 1_000)
    with Consumer(url, group=topic, topics=[topic], stop_at="latest") as consumer:
        assert sorted(int(record.value or b"") for record in consumer) == list(range(1_000))
    assert committed(url, topic) == 1_000
    with Consumer(url, group=topic, topics=[topic], stop_at="latest") as consumer:
        assert list(consumer) == []


def test_the_record_whose_handling_raised_comes_again(url: str, topic: str) -> None:
    publish(url, topic, 0, 100)
    seen: list[Any] = []
    with pytest.raises(KeyError), Consumer(url, group=topic, topics=[topic]) as consumer:
        for record in consumer:
            seen.append(record)
            if len(seen) == 60:
                raise KeyError
    assert committed(url, topic) == 59
    with Consumer(url, group=topic, topics=[topic], stop_at="latest") as consumer:
        again = list(consumer)
    assert len(again) == 41
    assert seen[-1] in again


def test_commits_by_hand(url: str, topic: str) -> None:
    publish(url, topic, 0, 40)
    with Consumer(url, group=topic, topics=[topic], auto_commit=False) as consumer:
        records: list[Any] = []
        while len(records) < 40:
            records += consumer.poll(max_records=7, timeout_ms=60_000)
        assert committed(url, topic) == 0
        consumer.commit(next(record for record in records if record.partition == 1 and record.offset == 3))
        assert consumer.committed(topic, 1) == 4
        consumer.commit({TopicPartition(topic, 2): 5})
        assert committed(url, topic) == 9
        consumer.commit()
        assert committed(url, topic) == 40
        assert consumer.lag() == {TopicPartition(topic, p): Lag(0, 0.0) for p in range(PARTITIONS)}
        with pytest.raises(errors.Fenced, match="not assigned"):
            consumer.commit({TopicPartition(topic, 99): 1})


def test_what_is_done_is_committed_from_time_to_time(url: str, topic: str) -> None:
    publish(url, topic, 0, 40)
    with Consumer(url, group=topic, topics=[topic], auto_commit_interval_ms=50) as consumer:
        assert next(consumer)
        until(lambda: consumer.poll(max_records=1, timeout_ms=10) is not None and committed(url, topic) > 0)


def test_members_share_and_take_over_without_loss_or_doubles(url: str, topic: str) -> None:
    seen: list[list[bytes]] = [[], [], []]
    stops = [threading.Event() for _ in seen]
    events: list[str] = []
    failures: list[BaseException] = []

    def member(number: int) -> None:
        def told(what: str) -> Callable[[list[TopicPartition]], None]:
            return lambda partitions: events.append(f"{what} {number} {len(partitions)}")

        try:
            with Consumer(
                url, group=topic, topics=[topic], on_assigned=told("assigned"), on_revoked=told("revoked"),
                on_lost=told("lost"), client_id=f"m{number}",
            ) as consumer:  # fmt: skip
                while not stops[number].is_set():
                    seen[number] += [record.value or b"" for record in consumer.poll(max_records=20, timeout_ms=50)]
                seen[number] += [record.value or b"" for record in consumer.poll(timeout_ms=1)]
        except BaseException as error:
            failures.append(error)

    def read_all(count: int) -> None:
        until(lambda: sum(map(len, seen)) >= count or bool(failures))

    threads = [threading.Thread(target=member, args=(number,)) for number in range(3)]
    published = 0
    for thread in threads:
        thread.start()
        publish(url, topic, published, published + 400)
        published += 400
        read_all(published)
    until(lambda: all(any(event.startswith(f"assigned {n}") for event in events) for n in range(3)))
    stops[0].set()
    threads[0].join(30)
    publish(url, topic, published, published + 400)
    published += 400
    read_all(published)
    for stop in stops:
        stop.set()
    for thread in threads:
        thread.join(30)
    assert not failures
    assert Counter(value for part in seen for value in part) == Counter(b"%d" % i for i in range(published))
    assert any(event.startswith("revoked") for event in events)
    assert not any(event.startswith("lost") for event in events)


def test_a_member_that_was_dropped_joins_anew(url: str, topic: str) -> None:
    lost: list[list[TopicPartition]] = []
    publish(url, topic, 0, 40)
    with Consumer(
        url, group=topic, topics=[topic], on_lost=lost.append, auto_commit=False, session_timeout_ms=60_000
    ) as consumer:
        first: list[Any] = []
        while len(first) < 40:
            first += consumer.poll(timeout_ms=60_000)
        member = consumer._inbox.member
        assert member is not None
        former = member.member_id
        with Admin(url) as admin:
            admin._caller.call(json_request("DELETE", f"/v1/groups/{topic}/members/{former}"))
        with pytest.raises(errors.Fenced):
            consumer.commit()
        again: list[Any] = []
        while len(again) < 40:
            again += consumer.poll(timeout_ms=60_000)
        assert Counter(again) == Counter(first)
        assert member.member_id != former
        consumer.commit()
    assert len(lost) == 1 and len(lost[0]) == PARTITIONS
    assert committed(url, topic) == 40


def test_a_consumer_that_does_not_poll_lets_others_go_on(url: str, topic: str) -> None:
    publish(url, topic, 0, 40)
    lost: list[Any] = []
    with Consumer(
        url, group=topic, topics=[topic], max_poll_interval_ms=300, on_lost=lost.append, auto_commit=False
    ) as stuck:
        assert stuck.poll(max_records=1, timeout_ms=60_000)
        with Consumer(url, group=topic, topics=[topic]) as other:
            seen: list[Any] = []
            until(lambda: len(seen.__iadd__(other.poll(timeout_ms=100))) == 40)
            other.poll(timeout_ms=1)
        assert stuck.poll(timeout_ms=2_000) == []
        assert lost
        publish(url, topic, 40, 41)
        found: list[Any] = []
        until(lambda: bool(found.__iadd__(stuck.poll(timeout_ms=100))))
        assert [record.value for record in found] == [b"40"]


def test_a_topic_created_again_starts_anew(url: str, topic: str) -> None:
    publish(url, topic, 0, 40)
    with Admin(url) as admin, Consumer(url, group=topic, topics=[topic]) as consumer:
        seen: list[Any] = []
        until(lambda: len(seen.__iadd__(consumer.poll(timeout_ms=100))) == 40)
        admin.delete_topic(topic)
        admin.create_topic(topic, partitions=PARTITIONS)
        publish(url, topic, 100, 180)
        fresh: list[Any] = []
        until(lambda: len(fresh.__iadd__(consumer.poll(timeout_ms=100))) >= 80)
        assert sorted(int(record.value) for record in fresh) == list(range(100, 180))


def test_what_comes_behind_the_ends_keeps_nobody_from_reaching_them(url: str, topic: str) -> None:
    def publish_large() -> None:
        with Producer(url) as producer:
            for i in range(20 * PARTITIONS):
                producer.send(topic, random.randbytes(4_000), partition=i % PARTITIONS)

    publish_large()
    seen = 0
    with Consumer(
        url, group=topic, topics=[topic], stop_at="latest", idle_timeout_ms=5_000, buffer_bytes=64 * 1024
    ) as consumer:
        for _ in consumer:
            seen += 1
            if seen == 1:
                publish_large()
    assert seen == 20 * PARTITIONS


@pytest.mark.slow
def test_a_group_goes_on_after_the_server_was_killed() -> None:
    with running_server(flush_ms=50) as server:
        with Admin(server.url) as admin:
            admin.create_topic("t", partitions=PARTITIONS)
        seen: list[bytes] = []
        done = threading.Event()
        failures: list[BaseException] = []

        def consume() -> None:
            try:
                with Consumer(server.url, group="g", topics=["t"], auto_commit_interval_ms=100) as consumer:
                    while not done.is_set():
                        seen.extend(record.value or b"" for record in consumer.poll(timeout_ms=100))
            except BaseException as error:
                failures.append(error)

        thread = threading.Thread(target=consume)
        thread.start()
        with Producer(server.url) as producer:
            for i in range(3_000):
                producer.send("t", b"%d" % i, key=str(i % 50))
                if i in (1_000, 2_000):
                    server.kill()
                    server.restart()
                if i % 100 == 0:
                    time.sleep(0.02)
        until(lambda: len(set(seen)) == 3_000 or bool(failures))
        done.set()
        thread.join(60)
        assert not failures
        assert set(seen) == {b"%d" % i for i in range(3_000)}
        with Consumer(server.url, group="audit", topics=["t"], stop_at="latest") as consumer:
            assert Counter(record.value for record in consumer) == Counter(b"%d" % i for i in range(3_000))
