import asyncio
import os
import pickle
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from fake_server import FakeServer, Fault, fake_server

from siltlog.infra import errors
from siltlog.infra.arrow.partitioner import partition_of
from siltlog.infra.client.record import PartitionMetadata
from siltlog.ingest.library.async_producer import AsyncProducer

ROOT = Path(__file__).parents[3]
FAULTS: list[Fault] = ["drop_before", "drop_after", "408", "429", "500_before", "503", "504_before", "504_after"]


@pytest.fixture
def server() -> Iterator[FakeServer]:
    with fake_server() as server:
        yield server


def in_loop(test: Callable[[], Awaitable[None]], seconds: float = 60) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(seconds):
            await test()

    asyncio.run(bounded())


def test_an_awaited_send_is_the_acknowledgement(server: FakeServer) -> None:
    topic = server.topic("t", 4)

    async def test() -> None:
        async with AsyncProducer(server.url) as producer:
            metadata = await producer.send("t", {"a": 1}, key="UA", headers={"h": "x"})
            assert (metadata.topic, metadata.partition, metadata.offset) == ("t", partition_of(b"UA", 4), 0)
            delivery = producer.send_nowait("t", b"b", key="UA")
            assert not delivery.done()
            with pytest.raises(asyncio.InvalidStateError):
                delivery.result()
            assert (await delivery).offset == 1 and delivery.done()
            assert (await delivery).offset == 1 and delivery.exception() is None
            seen: list[Any] = []
            producer.send_nowait("t", b"c", key="UA", on_delivery=seen.append)
            await producer.flush()
            assert seen[0].result().offset == 2
            assert producer.metrics().records_acknowledged == 3

    in_loop(test)
    assert topic.values(partition_of(b"UA", 4)) == [b'{"a":1}', b"b", b"c"]


@pytest.mark.parametrize("seed", range(3))
def test_every_record_lands_once_and_in_order_whatever_breaks(server: FakeServer, seed: int) -> None:
    topic = server.topic("t", 3)
    chosen = random.Random(seed)
    server.faults = lambda: chosen.choice(FAULTS) if chosen.random() < 0.4 else None
    acked: dict[bytes, Any] = {}

    async def one(producer: AsyncProducer, number: int) -> None:
        for turn in range(8):
            value = b"%d:%d" % (number, turn)
            key = f"k{number}" if number % 2 else None
            acked[value] = await producer.send("t", value, key=key)

    async def test() -> None:
        async with AsyncProducer(server.url) as producer:
            await asyncio.gather(*(one(producer, number) for number in range(64)))

    in_loop(test)
    assert not server.overlapped
    assert Counter(topic.all_values()) == Counter(list(acked))
    assert len(acked) == 512
    for value, metadata in acked.items():
        assert topic.partitions[metadata.partition][metadata.offset].value == value
    for partition in topic.partitions:
        last: dict[bytes, int] = {}
        for stored in partition:
            who, _, turn = stored.value.partition(b":")  # type: ignore[union-attr]
            assert stored.key is None or last.get(who, -1) < int(turn)
            last[who] = int(turn)


@pytest.mark.rule("X5")
def test_what_gathers_while_requests_are_under_way_travels_together(server: FakeServer) -> None:
    topic = server.topic("t", 4)

    async def test() -> None:
        async with AsyncProducer(server.url) as producer:
            await producer.send("t", b"first")
            before = len(server.publishes)
            await asyncio.gather(*(producer.send("t", b"%d" % number) for number in range(500)))
            assert len(server.publishes) - before <= 4

    in_loop(test)
    assert len(topic.all_values()) == 501


def test_who_is_cancelled_disturbs_nobody_and_has_sent(server: FakeServer) -> None:
    topic = server.topic("t")
    server.faults = lambda: "503"

    async def test() -> None:
        async with AsyncProducer(server.url) as producer:
            tasks = [asyncio.create_task(producer.send("t", b"%d" % number)) for number in range(10)]
            await asyncio.sleep(0.05)
            tasks[3].cancel()
            server.faults = lambda: None
            results = await asyncio.gather(*tasks, return_exceptions=True)
            assert isinstance(results[3], asyncio.CancelledError)
            assert sorted(result.offset for index, result in enumerate(results) if index != 3) == [
                0, 1, 2, 4, 5, 6, 7, 8, 9,
            ]  # fmt: skip

    in_loop(test)
    assert len(topic.values(0)) == 10


def test_errors_reach_who_waits_else_the_flush(server: FakeServer) -> None:
    async def test() -> None:
        with pytest.raises(errors.DeliveryFailed, match="1 record did not arrive") as failed:
            async with AsyncProducer(server.url) as producer:
                with pytest.raises(errors.UnknownTopic):
                    await producer.send("absent", b"a")
                await producer.flush()
                producer.send_nowait("absent", b"b")
                raise KeyError("own")
        assert isinstance(failed.value.__cause__, KeyError)
        assert failed.value.records["absent"]["value"].to_pylist() == [b"b"]
        with pytest.raises(errors.Refused, match="closed"):
            await producer.send("absent", b"c")
        await producer.close()

    in_loop(test)


def test_a_full_buffer_waits_and_then_refuses(server: FakeServer) -> None:
    server.topic("t")
    server.faults = lambda: "503"

    async def test() -> None:
        producer = AsyncProducer(server.url, buffer_bytes=10_000, max_block_ms=50)
        with pytest.raises(errors.BufferFull):
            for _ in range(100):
                producer.send_nowait("t", b"x" * 1_000)
        with pytest.raises(errors.BufferFull):
            await producer.send("t", b"x" * 1_000)
        server.faults = lambda: None
        await producer.close()
        async with AsyncProducer(server.url, buffer_bytes=10_000) as producer:
            await asyncio.gather(*(producer.send("t", b"y" * 1_000) for _ in range(100)))

    in_loop(test)
    assert server.topics["t"].values(0).count(b"y" * 1_000) == 100


def test_closing_with_less_time_fails_what_is_left(server: FakeServer) -> None:
    server.topic("t")
    server.faults = lambda: "503"

    async def test() -> None:
        producer = AsyncProducer(server.url)
        delivery = producer.send_nowait("t", b"a")
        with pytest.raises(TimeoutError):
            await producer.flush(20)
        with pytest.raises(errors.DeliveryFailed, match="until the producer was closed"):
            await producer.close(20)
        assert delivery.done()

    in_loop(test)


def test_a_cancelled_close_leaves_nothing_open(server: FakeServer) -> None:
    server.topic("t")
    server.faults = lambda: "503"

    async def test() -> None:
        producer = AsyncProducer(server.url)
        delivery = producer.send_nowait("t", b"a")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):
                await producer.close()
        assert delivery.exception() is not None
        assert len(asyncio.all_tasks()) == 1

    in_loop(test)


def test_tables_and_frames_are_published(server: FakeServer) -> None:
    topic = server.topic("t", 3)
    server.limits["request_bytes"] = 3_000_000

    async def test() -> None:
        async with AsyncProducer(server.url, compression="zstd") as producer:
            big = pa.table({"value": [os.urandom(1_000) for _ in range(6_000)]})
            parts = await producer.send_batch("t", big)
            assert sum(part.count for part in parts) == 6_000 and isinstance(parts[0], PartitionMetadata)
            delivery = producer.send_batch_nowait("t", pa.table({"value": ["a"], "key": ["k"]}))
            assert (await delivery)[0].count == 1
            with pytest.raises(errors.DeliveryFailed):
                await producer.send_batch("absent", pa.table({"value": ["a"]}))

    in_loop(test)
    assert len(topic.all_values()) == 6_001


def test_it_fails_over_and_outlives_a_restart(server: FakeServer) -> None:
    topic = server.topic("t")
    with fake_server() as second:
        second.topics = server.topics

        async def test() -> None:
            async with AsyncProducer([server.url, second.url]) as producer:
                await producer.send("t", b"a")
                await asyncio.to_thread(server.stop)
                await producer.send("t", b"b")
                await asyncio.to_thread(second.stop)
                waiting = producer.send_nowait("t", b"c")
                await asyncio.to_thread(server.start)
                await waiting
            second.start()

        in_loop(test)
    assert topic.values(0) == [b"a", b"b", b"c"]


def test_another_event_loop_is_refused(server: FakeServer) -> None:
    server.topic("t")
    made: list[AsyncProducer] = []

    async def first() -> None:
        made.append(AsyncProducer(server.url))
        await made[0].send("t", b"a")
        await made[0].flush()

    async def second() -> None:
        with pytest.raises(errors.Refused, match="another event loop"):
            await made[0].send("t", b"b")

    in_loop(first)
    in_loop(second)
    made[0]._close_at_exit()
    asyncio.run(made[0]._transport.close())


def test_it_cannot_be_pickled_nor_used_after_a_fork(server: FakeServer) -> None:
    server.topic("t")

    async def test() -> None:
        async with AsyncProducer(server.url) as producer:
            with pytest.raises(TypeError, match="pickled"):
                pickle.dumps(producer)
            delivery = producer.send_nowait("t", b"a")
            with pytest.raises(TypeError, match="pickled"):
                pickle.dumps(delivery)
            await delivery
            child = os.fork()
            if child == 0:
                try:
                    producer.send_nowait("t", b"b")
                except errors.Refused as error:
                    os._exit(0 if "forked" in str(error) else 1)
                finally:
                    os._exit(2)
            assert os.waitpid(child, 0)[1] == 0

    in_loop(test)
    assert server.topics["t"].values(0) == [b"a"]


def test_one_that_was_not_closed_is_flushed_at_exit(server: FakeServer) -> None:
    topic = server.topic("t")
    code = f"""
import asyncio
from siltlog import AsyncProducer
async def main():
    AsyncProducer({server.url!r}).send_nowait("t", b"late")
asyncio.run(main())
"""
    done = subprocess.run(
        [sys.executable, "-W", "always", "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60, check=True
    )
    assert topic.values(0) == [b"late"]
    assert "ResourceWarning" in done.stderr
