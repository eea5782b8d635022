"""The consumer of asyncio, against a server in this process and a real one."""

import asyncio
import random
import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from fake_server import FakeServer, Stored, fake_server

from siltlog.consumers.library.async_consumer import AsyncConsumer
from siltlog.consumers.library.consumer import Consumer
from siltlog.infra import errors
from siltlog.infra.client.admin import Admin
from siltlog.infra.client.record import TopicPartition
from siltlog.ingest.library.producer import Producer
from siltlog.testing import running_server

MOMENT = datetime(2026, 11, 21, 7, 36, tzinfo=UTC)
ALL = [TopicPartition("t", 0), TopicPartition("t", 1)]


@pytest.fixture
def server() -> Iterator[FakeServer]:
    with fake_server() as server:
        server.topic("t", 2)
        for partition in (0, 1):
            append(server, partition, 0, 1_200)
        yield server


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with running_server(flush_ms=100) as server:
        yield server.url


@pytest.fixture
def topic(url: str, request: pytest.FixtureRequest) -> str:
    name: str = request.node.name[:150]
    with Admin(url) as admin, Producer(url) as producer:
        admin.create_topic(name, partitions=4)
        for i in range(200):
            producer.send(name, b"%d" % i, partition=i % 4)
    return name


def append(server: FakeServer, partition: int, first: int, stop: int) -> None:
    with server.changed:
        server.topics["t"].partitions[partition] += [
            Stored(b"%d:%d" % (partition, i), None, None, MOMENT + timedelta(seconds=i)) for i in range(first, stop)
        ]
        server.changed.notify_all()


def in_loop(test: Callable[[], Awaitable[None]], seconds: float = 60) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(seconds):
            await test()

    asyncio.run(bounded())


def values_of(records: list[Any], partition: int) -> list[bytes]:
    return [record.value for record in records if record.partition == partition]


def expected(partition: int, stop: int = 1_200) -> list[bytes]:
    return [b"%d:%d" % (partition, i) for i in range(stop)]


def test_every_record_comes_once_in_order_however_it_is_asked_for(server: FakeServer) -> None:
    async def test() -> None:
        async with AsyncConsumer(server.url, assign=ALL, stop_at="latest") as consumer:
            seen = list(await consumer.poll(max_records=333, timeout_ms=60_000))
            table = await consumer.poll_arrow(max_records=100, timeout_ms=60_000)
            rows = zip(table["partition"].to_pylist(), table["value"].to_pylist(), strict=True)
            by_arrow = [type("Row", (), {"partition": p, "value": v}) for p, v in rows]
            seen += by_arrow
            seen += [record async for record in consumer]
            assert values_of(seen, 0) == expected(0) and values_of(seen, 1) == expected(1)
            append(server, 0, 1_200, 1_203)
            assert [record.offset for record in await consumer.poll(timeout_ms=60_000)] == [1_200, 1_201, 1_202]
            assert {lag.records for lag in (await consumer.lag()).values()} == {0}
            await consumer.seek("t", 0, offset=1_190)
            await consumer.pause(ALL[1])
            assert (await consumer.poll(max_records=1, timeout_ms=60_000))[0].offset == 1_190
            await consumer.seek_to_timestamp("t", MOMENT + timedelta(seconds=1_195))
            assert await consumer.position("t", 1) == 1_195
            await consumer.seek_to_end("t")
            await consumer.seek_to_beginning("t")
            await consumer.resume(ALL[1])
            assert (await consumer.poll(max_records=1, timeout_ms=60_000))[0].offset == 0
            assert consumer.assignment() == ALL

    in_loop(test)


@pytest.mark.rule("M11")
def test_who_is_cancelled_while_it_waits_has_taken_nothing(server: FakeServer) -> None:
    chosen = random.Random(7)

    async def test() -> None:
        seen: list[Any] = []
        async with AsyncConsumer(server.url, assign=ALL) as consumer:
            while len(seen) < 2_400:
                waiting = asyncio.ensure_future(consumer.poll(max_records=50, timeout_ms=60_000))
                await asyncio.sleep(chosen.choice((0, 0, 0.001, 0.01)))
                waiting.cancel()
                try:
                    seen += await waiting
                except asyncio.CancelledError:
                    if chosen.random() < 0.3:
                        seen += await consumer.poll(max_records=50, timeout_ms=60_000)
        assert values_of(seen, 0) == expected(0) and values_of(seen, 1) == expected(1)

    in_loop(test)


def test_a_consumer_outlives_a_restart(server: FakeServer) -> None:
    async def test() -> None:
        async with AsyncConsumer(server.url, assign=ALL, retry_timeout_ms=30_000) as consumer:
            seen = await consumer.poll(max_records=700, timeout_ms=60_000)
            await asyncio.to_thread(server.stop)
            seen += await consumer.poll(max_records=10_000, timeout_ms=300)
            append(server, 0, 1_200, 1_250)
            await asyncio.to_thread(server.start)
            while len(seen) < 2_450:
                seen += await consumer.poll(timeout_ms=500)
        assert values_of(seen, 0) == expected(0, 1_250) and values_of(seen, 1) == expected(1)

    in_loop(test)


def test_waking_closing_and_other_tasks(server: FakeServer) -> None:
    async def test() -> None:
        consumer = AsyncConsumer(server.url, assign=ALL, auto_offset_reset="latest")
        waiting = asyncio.ensure_future(consumer.poll(timeout_ms=60_000))
        await asyncio.sleep(0.05)
        with pytest.raises(errors.Refused, match="another task"):
            await consumer.poll()
        threading.Timer(0.05, consumer.wakeup).start()
        assert await waiting == []

        async def iterate() -> list[Any]:
            return [record async for record in consumer]

        iterating = asyncio.ensure_future(iterate())
        await asyncio.sleep(0.1)
        consumer.wakeup()
        assert await iterating == []
        iterating = asyncio.ensure_future(iterate())
        await asyncio.sleep(0.1)
        await consumer.close()
        assert await iterating == []
        await consumer.close()
        with pytest.raises(errors.Refused, match="closed"):
            await consumer.poll()

    in_loop(test)


def test_it_belongs_to_one_loop(server: FakeServer) -> None:
    async def test() -> None:
        async with AsyncConsumer(server.url, assign=ALL) as consumer:
            assert await consumer.poll(max_records=1, timeout_ms=60_000)
            with pytest.raises(errors.Refused, match="another event loop"):
                await asyncio.to_thread(asyncio.run, consumer.poll())

    in_loop(test)


def test_a_server_that_stays_away_is_an_error(server: FakeServer) -> None:
    async def test() -> None:
        async with AsyncConsumer(server.url, assign=ALL, retry_timeout_ms=200) as consumer:
            await consumer.poll(max_records=10_000, timeout_ms=60_000)
            await asyncio.to_thread(server.stop)
            with pytest.raises(errors.SiltlogError) as failed:
                for _ in range(100):
                    await consumer.poll(timeout_ms=500)
            assert failed.value.error_code in ("unreachable", "connection_lost")
            await asyncio.to_thread(server.start)

    in_loop(test)


def test_what_is_done_is_committed_and_the_rest_comes_again(url: str, topic: str) -> None:
    async def test() -> None:
        seen: list[Any] = []
        with pytest.raises(KeyError):
            async with AsyncConsumer(url, group=topic, topics=[topic]) as consumer:
                async for record in consumer:
                    seen.append(record)
                    if len(seen) == 60:
                        raise KeyError
        async with AsyncConsumer(url, group=topic, topics=topic, stop_at="latest") as consumer:
            again = [record async for record in consumer]
            assert await consumer.committed(topic, again[-1].partition) is not None
        assert len(again) == 141 and seen[-1] in again

    in_loop(test)
    with Admin(url) as admin:
        assert sum(admin.group_offsets(topic).values()) == 200


@pytest.mark.rule("M11")
def test_members_share_while_polls_are_cancelled(url: str, topic: str) -> None:
    """Two asynchronous members and one of threads come and go; callbacks that wait may be cut off from their poll."""
    told: list[str] = []
    seen: Counter[bytes] = Counter()

    def is_told(what: str) -> bool:
        return any(event.startswith(what) for event in told)

    async def member(number: int, polls: int) -> None:
        """Polls so often, and on until both have a part: how long that takes is the machine's."""

        async def on_revoked(partitions: list[TopicPartition]) -> None:
            await asyncio.sleep(0.02)
            await consumer.commit()
            told.append(f"revoked {number} {len(partitions)}")

        async def on_assigned(partitions: list[TopicPartition]) -> None:
            await consumer.position(partitions[0].topic, partitions[0].partition)
            told.append(f"assigned {number} {len(partitions)}")

        consumer = AsyncConsumer(
            url, group=topic, topics=[topic], on_revoked=on_revoked, on_assigned=on_assigned,
            on_lost=lambda partitions: told.append("lost"),
        )  # fmt: skip
        async with consumer:
            while polls > 0 or not (is_told("revoked 0") and is_told("assigned 1")):
                polls -= 1
                waiting = asyncio.ensure_future(consumer.poll(max_records=10, timeout_ms=200))
                await asyncio.wait([waiting], timeout=0.01 if number else 0.5)
                waiting.cancel()
                with suppress(asyncio.CancelledError):
                    seen.update(record.value for record in await waiting)

    async def test() -> None:
        first = asyncio.ensure_future(member(0, 40))
        while not is_told("assigned 0 4"):
            await asyncio.sleep(0.01)
        second = asyncio.ensure_future(member(1, 60))
        await asyncio.gather(first, second)

    in_loop(test)
    with Consumer(url, group=topic, topics=[topic], stop_at="latest") as rest:
        seen.update(record.value for record in rest)
    assert seen == Counter(b"%d" % i for i in range(200))
    assert "lost" not in told
