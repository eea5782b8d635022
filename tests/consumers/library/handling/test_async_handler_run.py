"""AsyncConsumer.run against a real server."""

import asyncio
from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Any

import pytest

from siltlog.consumers.library.async_consumer import AsyncConsumer
from siltlog.consumers.library.record import ConsumerRecord
from siltlog.infra import errors
from siltlog.infra.client.admin import Admin
from siltlog.ingest.library.producer import Producer
from siltlog.testing import running_server

PARTITIONS = 4


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with running_server(flush_ms=100) as server:
        yield server.url


@pytest.fixture
def topic(url: str, request: pytest.FixtureRequest) -> str:
    name = request.node.name[:150].replace("[", ".").replace("]", "")
    with Admin(url) as admin:
        admin.create_topic(name, partitions=PARTITIONS)
    with Producer(url) as producer:
        for i in range(400):
            producer.send(name, b"%d" % i, partition=i % PARTITIONS)
    return name


def number(record: ConsumerRecord) -> int:
    return int(record.value or b"")


def consumer_of(url: str, topic: str, **options: Any) -> AsyncConsumer:
    return AsyncConsumer(url, group=topic, topics=[topic], **{"stop_at": "latest", **options})


def committed(url: str, group: str) -> dict[int, int]:
    with Admin(url) as admin:
        return {at.partition: offset for at, offset in admin.group_offsets(group).items()}


@pytest.mark.parametrize("workers", [1, 4])
def test_in_order_with_retries_and_a_dead_letter(url: str, topic: str, workers: int) -> None:
    seen: Counter[int] = Counter()
    order: dict[int, list[int]] = defaultdict(list)
    most = 0
    at_once: set[int] = set()

    async def handle(record: ConsumerRecord) -> None:
        nonlocal most
        assert record.partition not in at_once, "one record of a partition at a time"
        at_once.add(record.partition)
        most = max(most, len(at_once))
        try:
            await asyncio.sleep(0)
            seen[number(record)] += 1
            if number(record) == 101 or (number(record) == 202 and seen[202] < 3):
                raise ValueError(f"no {number(record)}")
            order[record.partition].append(number(record))
        finally:
            at_once.remove(record.partition)

    async def scenario() -> None:
        async with consumer_of(url, topic) as consumer:
            await consumer.run(handle, max_attempts=4, backoff_ms=1, backoff_ms_max=20, workers=workers)

    asyncio.run(scenario())
    assert {i: times for i, times in seen.items() if times > 1} == {101: 4, 202: 3}
    assert order == {p: [i for i in range(p, 400, PARTITIONS) if i != 101] for p in range(PARTITIONS)}
    assert 1 <= most <= workers
    assert committed(url, topic) == dict.fromkeys(range(PARTITIONS), 100)
    with Admin(url) as admin:
        assert admin.topic(f"{topic}.dlq")["records"] == 1


def test_cancelled_in_the_middle(url: str, topic: str) -> None:
    seen: list[int] = []

    async def scenario() -> None:
        stuck = asyncio.Event()

        async def handle(record: ConsumerRecord) -> None:
            if len(seen) == 150:
                stuck.set()
                await asyncio.sleep(3_600)
            seen.append(number(record))

        async with consumer_of(url, topic, stop_at=None) as consumer:
            running = asyncio.create_task(consumer.run(handle, workers=2))
            await asyncio.wait_for(stuck.wait(), 30)
            running.cancel()
            with pytest.raises(asyncio.CancelledError):
                await running
            assert sum((await asyncio.to_thread(committed, url, topic)).values()) == len(seen)
            # What was given up comes again.
            again: list[int] = []
            await asyncio.wait_for(
                consumer.run(lambda record: again.append(number(record)) or _ended(consumer, seen, again)), 30
            )
            assert sorted(seen + again) == list(range(400))

    asyncio.run(scenario())


def _ended(consumer: AsyncConsumer, seen: list[int], again: list[int]) -> None:
    if len(seen) + len(again) == 400:
        consumer.wakeup()


class Stop(BaseException):
    pass


@pytest.mark.parametrize("workers", [1, 2])
def test_what_is_no_exception_ends_the_run_and_leaves_the_record(url: str, topic: str, workers: int) -> None:
    seen: Counter[int] = Counter()

    async def handle(record: ConsumerRecord) -> None:
        await asyncio.sleep(0)
        if seen[record.partition] == 7:
            raise Stop
        seen[record.partition] += 1

    async def scenario() -> None:
        async with consumer_of(url, topic) as consumer:
            with pytest.raises(Stop):
                await asyncio.wait_for(consumer.run(handle, workers=workers), 30)

    asyncio.run(scenario())
    assert seen
    assert {partition: offset for partition, offset in committed(url, topic).items() if offset} == seen


def test_a_handler_may_only_wake_and_close(url: str, topic: str) -> None:
    said: set[str] = set()

    async def scenario() -> None:
        async with consumer_of(url, topic) as consumer:

            async def handle(record: ConsumerRecord) -> None:
                with pytest.raises(errors.Refused) as refused:
                    await consumer.commit()
                said.add(str(refused.value))

            await consumer.run(handle)

    asyncio.run(scenario())
    [text] = said
    assert "task of its own may only call wakeup() and close()" in text
    assert committed(url, topic) == dict.fromkeys(range(PARTITIONS), 100)


@pytest.mark.parametrize("workers", [1, 2])
def test_a_handler_that_closes_ends_the_run_after_its_record(url: str, topic: str, workers: int) -> None:
    seen: Counter[int] = Counter()

    async def scenario() -> None:
        consumer = consumer_of(url, topic, stop_at=None)

        async def handle(record: ConsumerRecord) -> None:
            seen[record.partition] += 1
            if seen[record.partition] == 5:
                # In a task of its own.
                await asyncio.wait_for(consumer.close(), 30)

        await asyncio.wait_for(consumer.run(handle, workers=workers), 30)
        with pytest.raises(errors.Refused, match="closed"):
            await consumer.poll()

    asyncio.run(scenario())
    assert max(seen.values()) == 5
    assert {partition: offset for partition, offset in committed(url, topic).items() if offset} == seen
    with Admin(url) as admin:
        assert not admin.group(topic)["members"]
