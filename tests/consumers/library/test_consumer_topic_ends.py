"""Topics that are deleted, and created again, under a member that has read of them."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any

import pytest
import waiting

from siltlog.consumers.library.consumer import Consumer
from siltlog.consumers.library.record import ConsumerRecord
from siltlog.infra.client.admin import Admin
from siltlog.infra.client.record import TopicPartition
from siltlog.infra.errors import Fenced
from siltlog.ingest.library.producer import Producer
from siltlog.testing import running_server

until = partial(waiting.until, seconds=30.0)


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with running_server(flush_ms=100) as server:
        yield server.url


@pytest.fixture
def topic(url: str, request: pytest.FixtureRequest) -> str:
    return "".join(letter if letter.isalnum() else "-" for letter in request.node.name)[:150]


def create(url: str, topic: str, value: str, count: int) -> None:
    with Admin(url) as admin:
        admin.create_topic(topic, partitions=1)
    with Producer(url) as producer:
        for _ in range(count):
            producer.send(topic, value)


def replace(url: str, topic: str, value: str, count: int) -> None:
    with Admin(url) as admin:
        admin.delete_topic(topic)
    create(url, topic, value, count)


def poll(consumer: Consumer, count: int) -> list[str | None]:
    seen: list[str | None] = []
    until(lambda: len(seen.__iadd__(record.text() for record in consumer.poll(timeout_ms=100))) >= count)
    return seen


def told(consumer: Consumer) -> bool:
    """Whether the group has said something that the consumer has not looked at."""
    assert consumer._inbox.member is not None
    return consumer._inbox.member.has_news


def offsets(url: str, group: str) -> dict[TopicPartition, int]:
    with Admin(url) as admin:
        return admin.group_offsets(group)


@pytest.mark.rule("M4")
@pytest.mark.parametrize("hears", [True, False])
def test_what_was_read_of_a_deleted_topic_is_not_committed_to_its_successor(url: str, topic: str, hears: bool) -> None:
    create(url, topic, "former", 5)
    with Consumer(url, group=topic, topics=topic, auto_commit=False) as consumer:
        poll(consumer, 5)
        replace(url, topic, "new", 12)
        if hears:
            until(lambda: told(consumer))
        with pytest.raises(Fenced):
            consumer.commit()
        assert consumer.assignment() == []
        assert offsets(url, topic).get(TopicPartition(topic, 0), 0) == 0
        assert poll(consumer, 12) == ["new"] * 12
        consumer.commit()
        assert offsets(url, topic) == {TopicPartition(topic, 0): 12}


def test_the_successor_of_a_topic_is_read_from_its_beginning_and_the_former_is_lost(url: str, topic: str) -> None:
    create(url, topic, "former", 5)
    events: list[tuple[str, int]] = []
    with Consumer(
        url,
        group=topic,
        topics=topic,
        auto_commit_interval_ms=1,
        on_assigned=lambda partitions: events.append(("assigned", len(partitions))),
        on_revoked=lambda partitions: events.append(("revoked", len(partitions))),
        on_lost=lambda partitions: events.append(("lost", len(partitions))),
    ) as consumer:
        poll(consumer, 5)
        replace(url, topic, "new", 12)
        until(lambda: told(consumer))
        assert poll(consumer, 12) == ["new"] * 12
    assert events[:3] == [("assigned", 1), ("lost", 1), ("assigned", 1)]
    assert offsets(url, topic)[TopicPartition(topic, 0)] in (0, 12), "12 where the last poll asked for more"


@pytest.mark.rule("M6")
def test_a_commit_refused_for_one_partition_costs_the_member_that_one_alone(url: str, topic: str) -> None:
    other = topic + "-other"
    create(url, topic, "former", 5)
    create(url, other, "kept", 5)
    lost: list[TopicPartition] = []
    with Consumer(
        url, group=topic, topics=[topic, other], auto_commit=False, on_lost=lost.extend, session_timeout_ms=600_000
    ) as consumer:
        poll(consumer, 10)
        assert consumer._inbox.member is not None
        member = consumer._inbox.member.member_id
        replace(url, topic, "new", 12)
        with pytest.raises(Fenced):
            consumer.commit()
        assert lost == [TopicPartition(topic, 0)]
        assert consumer.assignment() == [TopicPartition(other, 0)]
        assert poll(consumer, 12) == ["new"] * 12, "and what was read of the other one does not come again"
        consumer.commit()
        assert consumer._inbox.member.member_id == member
    assert offsets(url, topic) == {TopicPartition(topic, 0): 12, TopicPartition(other, 0): 5}


@pytest.mark.rule("M5")
@pytest.mark.parametrize("fails", [True, False])
@pytest.mark.parametrize("comes_back", [True, False])
def test_a_handler_outlives_a_topic_that_is_deleted_while_it_is_at_work(
    url: str, topic: str, fails: bool, comes_back: bool
) -> None:
    ending = topic + "-ending"
    create(url, topic, "kept", 5)
    create(url, ending, "former", 5)
    handled: list[str | None] = []
    lost: list[TopicPartition] = []
    consumer = Consumer(url, group=topic, topics=[topic, ending], on_lost=lost.extend)

    def handle(record: ConsumerRecord) -> None:
        handled.append(record.text())
        ends = record.text() == "former" and record.offset == 1 and None not in handled
        if ends:
            handled.append(None)
            with Admin(url) as admin:
                admin.delete_topic(ending)
            if comes_back:
                create(url, ending, "new", 7)
        if handled.count("kept") == 5 and handled.count("new") == (7 if comes_back else 0) and None in handled:
            consumer.wakeup()
        if ends and fails:
            raise ValueError("in the middle of it")

    with consumer:
        consumer.run(handle, backoff_ms=1)
    assert handled.count("kept") == 5, "of the other one nothing comes again"
    assert set(lost) <= {TopicPartition(ending, 0)}
    expected = {TopicPartition(topic, 0): 5} | ({TopicPartition(ending, 0): 7} if comes_back else {})
    assert offsets(url, topic) == expected


@pytest.mark.rule("M5")
@pytest.mark.parametrize("ends", ["commit", "close"])
@pytest.mark.parametrize("comes_back", [None, 2, 12])
def test_a_topic_that_is_gone_does_not_keep_what_is_done_in_others_from_being_committed(
    url: str, topic: str, ends: str, comes_back: int | None
) -> None:
    gone = topic + "-gone"
    create(url, topic, "kept", 5)
    create(url, gone, "gone", 5)
    told: AbstractContextManager[Any] = pytest.raises(Fenced) if comes_back == 12 else nullcontext()
    consumer = Consumer(url, group=topic, topics=[topic, gone], auto_commit_interval_ms=600_000)
    poll(consumer, 10)
    consumer._inbox.ask()
    with Admin(url) as admin:
        admin.delete_topic(gone)
    if comes_back is not None:
        create(url, gone, "new", comes_back)
    if ends == "commit":
        with told:
            consumer.commit()
        assert offsets(url, topic)[TopicPartition(topic, 0)] == 5
        consumer.close()
    else:
        with told:
            consumer.close()
    assert {at: offset for at, offset in offsets(url, topic).items() if offset} == {TopicPartition(topic, 0): 5}
