"""Both producers against a real server that is killed and started again while they publish."""

import asyncio
import threading
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from siltlog import Admin, AsyncProducer, Consumer, Producer, TopicPartition
from siltlog.infra.client.record import RecordMetadata
from siltlog.server_process import ServerProcess
from siltlog.testing import running_server

KILLS = 2
PARTITIONS = 3
RECORDS_MAX = 200_000


pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def server() -> Iterator[ServerProcess]:
    with running_server(log_level="warning", flush_ms=200) as server:
        yield server


@pytest.fixture
def topic(server: ServerProcess, request: pytest.FixtureRequest) -> str:
    name = request.node.name.replace("[", ".").replace("]", "")
    with Admin(server.url) as admin:
        admin.create_topic(name, PARTITIONS)
    return name


def stored(server: ServerProcess, topic: str) -> pa.Table:
    partitions = [TopicPartition(topic, number) for number in range(PARTITIONS)]
    tables = []
    with Consumer(server.url, assign=partitions, stop_at="latest") as consumer:
        while any(lag.records for lag in consumer.lag().values()):
            tables.append(consumer.poll_arrow(timeout_ms=2_000))
    return pa.concat_tables(tables).sort_by([("partition", "ascending"), ("offset", "ascending")])


def check(server: ServerProcess, topic: str, acked: dict[bytes, RecordMetadata]) -> None:
    """Each acknowledged record is there once, where its acknowledgement says; those of one key in their order."""
    rows = stored(server, topic).to_pylist()
    assert Counter(row["value"] for row in rows) == Counter(list(acked))
    last: dict[Any, int] = {}
    for row in rows:
        metadata = acked[row["value"]]
        assert (metadata.partition, metadata.offset) == (row["partition"], row["offset"])
        who, _, number = row["value"].partition(b":")
        if row["key"] is not None:
            assert last.get(who, -1) < int(number)
            last[who] = int(number)


def kill_while(server: ServerProcess, reached: threading.Event) -> None:
    """Kills the server and starts it again a few times, each time after more was acknowledged."""
    for _ in range(KILLS):
        assert reached.wait(60)
        reached.clear()
        server.kill()
        server.restart()


def test_threads_share_a_producer_while_the_server_is_killed(server: ServerProcess, topic: str) -> None:
    acked: dict[bytes, RecordMetadata] = {}
    reached, done = threading.Event(), threading.Event()

    def publish(producer: Producer, who: int) -> None:
        deliveries = []
        for number in range(RECORDS_MAX):
            if done.is_set():
                break
            value = b"%d:%d" % (who, number)
            deliveries.append((value, producer.send(topic, value, key=str(who) if who % 2 else None)))
            if number % 50 == 49:
                deliveries[-1][1].result(60)
                reached.set()
        acked.update((value, delivery.result(60)) for value, delivery in deliveries)

    with Producer(server.url, linger_ms=1) as producer:
        threads = [threading.Thread(target=publish, args=(producer, who)) for who in range(4)]
        for thread in threads:
            thread.start()
        try:
            kill_while(server, reached)
        finally:
            done.set()
            for thread in threads:
                thread.join(120)
    assert len(acked) > 4 * 50 and producer.metrics().records_failed == 0
    check(server, topic, acked)


def test_tasks_share_a_producer_while_the_server_is_killed(server: ServerProcess, topic: str) -> None:
    acked: dict[bytes, RecordMetadata] = {}

    async def publish(producer: AsyncProducer, who: int, reached: threading.Event, done: threading.Event) -> None:
        for number in range(RECORDS_MAX):
            if done.is_set():
                return
            value = b"%d:%d" % (who, number)
            acked[value] = await producer.send(topic, value, key=str(who) if who % 2 else None)
            reached.set()

    async def run() -> None:
        reached, done = threading.Event(), threading.Event()
        async with asyncio.timeout(180), AsyncProducer(server.url) as producer:
            tasks = [asyncio.create_task(publish(producer, who, reached, done)) for who in range(32)]
            try:
                await asyncio.to_thread(kill_while, server, reached)
            finally:
                done.set()
                await asyncio.gather(*tasks)

    asyncio.run(run())
    check(server, topic, acked)


def test_batches_are_cut_and_land_once_while_the_server_is_killed(server: ServerProcess, topic: str) -> None:
    sent: dict[bytes, int] = {}
    with Producer(server.url, compression="zstd") as producer:
        deliveries = []
        for turn in range(3):
            values = [b"%d:%d" % (turn, number) for number in range(20_000)]
            sent |= dict.fromkeys(values, 1)
            deliveries.append(producer.send_batch(topic, pa.table({"value": values, "key": [v[-1:] for v in values]})))
        server.kill()
        server.restart()
        assert sum(part.count for delivery in deliveries for part in delivery.result(60)) == len(sent)
    rows = stored(server, topic)
    assert Counter(rows["value"].to_pylist()) == Counter(sent)


@pytest.mark.parametrize("kind", ["pandas", "polars", "arrow"])
def test_frames_arrive_as_they_are(server: ServerProcess, topic: str, kind: str) -> None:
    columns = {
        "value": [f"{kind}-a", f"{kind}-b", None],
        "key": ["k1", None, "k3"],
        "timestamp": pd.to_datetime(["2026-11-21T07:36:00.123456Z"] * 3),
        "partition": [0, 1, 2],
    }
    frame = {
        "pandas": lambda: pd.DataFrame(columns),
        "polars": lambda: pl.DataFrame(columns | {"timestamp": pl.Series(columns["timestamp"].to_list())}),  # type: ignore[attr-defined]
        "arrow": lambda: pa.RecordBatch.from_pandas(pd.DataFrame(columns), preserve_index=False),
    }[kind]()
    with Producer(server.url) as producer:
        if kind == "polars":
            assert isinstance(frame, pl.DataFrame)
            assert len(producer.send_batch(topic, frame.lazy().collect()).result(30)) == 3
        else:
            assert len(producer.send_batch(topic, frame).result(30)) == 3
    rows = stored(server, topic).to_pylist()
    assert [row["value"] for row in rows] == [f"{kind}-a".encode(), f"{kind}-b".encode(), None]
    assert [row["key"] for row in rows] == [b"k1", None, b"k3"]
    assert {row["timestamp"].isoformat() for row in rows} == {"2026-11-21T07:36:00.123456+00:00"}
