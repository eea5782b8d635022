"""Partitions whose topic's files keep them back, on a real log: what goes first all the same."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import pytest
from kept_log import KeptLog
from log_rig import LOGGER, MIB, body, running_log

from siltlog.infra.metrics.metrics import Metrics
from siltlog.ingest.flush import file_budget
from siltlog.ingest.flush.flusher import Flusher
from siltlog.ingest.flush.retries import Retries
from siltlog.ingest.log.log import Log
from siltlog.ingest.log.topic import TopicLog
from siltlog.ingest.topics.topics import Topics
from siltlog.ingest.wal.disk import Disk

KEPT_BACK = {"flush.ms": 1, "flush.files.per.hour": 0}
PART = "x" * 100_000
LARGE = "x" * 500_000


@asynccontextmanager
async def flushing(folder: Path, said: KeptLog | None = None) -> AsyncIterator[tuple[Log, Topics, Flusher]]:
    async with running_log(folder, Disk()) as (log, topics):
        flusher = Flusher(log, Retries(log.clock), cast(Any, said) if said else LOGGER, Metrics())
        try:
            yield log, topics, flusher
        finally:
            await flusher.stop(5)


def run(test: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(asyncio.wait_for(test(), 60))


async def publish(log: Log, topic: TopicLog, value: str, partition: int = 0) -> None:
    await log.append(topic, body(value, partition=partition), None).durable


async def in_table(log: Log, topic: TopicLog, flusher: Flusher) -> None:
    """Waits like who publishes with `acks=table`."""
    landed = topic.partitions[0].when_in_table(topic.partitions[0].offsets.synced)
    log.flush_due.set()
    if landed is not None:
        await landed


@pytest.mark.rule("F1")
def test_who_waits_for_the_table_is_answered_and_the_rest_stays(tmp_path: Path) -> None:
    async def test() -> None:
        async with flushing(tmp_path) as (log, topics, flusher):
            topic = await topics.create("t", 2, KEPT_BACK)
            await publish(log, topic, "kept back", partition=1)
            for _ in range(3):
                await publish(log, topic, "awaited")
                await in_table(log, topic, flusher)
            assert [each.offsets.table for each in topic.partitions] == [3, 0]
            assert topic.partitions[1].offsets.shown == 1, "consumers see it"
            await flusher.drain()
            assert topic.partitions[1].offsets.table == 1

    run(test)


@pytest.mark.rule("F2")
def test_room_in_the_log_comes_before_the_budget_of_files(tmp_path: Path) -> None:
    async def test() -> None:
        async with flushing(tmp_path) as (log, topics, flusher):
            quiet, busy = await topics.create("quiet", 1, KEPT_BACK), await topics.create("busy", 1, {})
            await publish(log, quiet, "pins the oldest segment")
            while not quiet.partitions[0].offsets.table:
                await publish(log, busy, LARGE)
                await in_table(log, busy, flusher)
                assert not log.admission.wal_is_tight()

    run(test)


@pytest.mark.rule("F2")
def test_memory_comes_before_the_budget_of_files(tmp_path: Path) -> None:
    async def test() -> None:
        async with flushing(tmp_path) as (log, topics, _):
            topic = await topics.create("t", 8, KEPT_BACK)
            for partition in range(8):
                await publish(log, topic, PART, partition)
            assert not log.admission.wal_holds_much() and topic.config.integer("flush.bytes") > MIB
            while log.topic_logs.unflushed_bytes() > MIB / 2:
                await asyncio.sleep(0.01)
            assert any(each.offsets.table for each in topic.partitions)

    run(test)


def test_a_crowded_table_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_budget, "CROWDED_FILES", 2)
    monkeypatch.setattr(file_budget, "CROWDED_FILES_PER_PARTITION", 2)

    said = KeptLog()

    async def test() -> None:
        async with flushing(tmp_path, said) as (log, topics, flusher):
            topic = await topics.create("t", 1, {"flush.ms": 3_600_000})
            for _ in range(3):
                await publish(log, topic, "a")
                await in_table(log, topic, flusher)
            await publish(log, topic, "b")
            while topic.table_lock.locked():
                await asyncio.sleep(0)
            [load] = flusher._loads.of([topic])
            assert load.pace.awaited_seconds > 0.25
            flusher._loads.see(topic, 8.0)
            flusher._loads.see(topic, 1.0)
            told = [event for event in said.events() if "crowded" in event]
            assert len(told) == 2, "once when it begins, once when it is over"

    run(test)
