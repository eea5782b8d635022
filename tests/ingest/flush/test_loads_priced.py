"""Partitions that a budget of requests keeps back, on a real log: what goes all the same."""

import asyncio
from pathlib import Path

import pytest
from log_rig import LOGGER, body, running_log

from siltlog.infra.metrics.metrics import Metrics
from siltlog.ingest.flush.due import active_partitions, due
from siltlog.ingest.flush.flusher import Flusher
from siltlog.ingest.flush.loads import Loads
from siltlog.ingest.flush.request_budget import RequestBudget
from siltlog.ingest.flush.retries import Retries
from siltlog.ingest.log.log import Log
from siltlog.ingest.log.topic import TopicLog
from siltlog.ingest.wal.disk import Disk


@pytest.mark.rule("F8")
def test_what_does_not_wait_for_the_budget(tmp_path: Path) -> None:
    async def test() -> None:
        async with running_log(tmp_path, Disk()) as (log, topics):
            spent = RequestBudget(1)
            spent.spend(10_000_000, log.clock.monotonic())
            flusher = Flusher(log, Retries(log.clock), LOGGER, Metrics(), requests=spent)
            try:
                config = {"flush.ms": 1, "flush.bytes": 40_000}
                topic = await topics.create("t", 4, config)
                shown = await topics.create("hidden", 1, {**config, "acks": "table"})
                await publish(log, topic, 0, "kept back")
                await publish(log, topic, 1, "x" * 45_000)
                await publish(log, topic, 2, "awaited")
                await publish(log, topic, 3, "x" * 20_000)
                waited = topic.partitions[2].when_in_table(topic.partitions[2].offsets.synced)
                assert waited is not None
                await waited
                log.append(shown, body("y", partition=0), None)
                await log.group_commit.commit()
                landed = shown.partitions[0].when_in_table(1)
                if landed is not None:
                    await landed
                assert [each.offsets.table for each in topic.partitions] == [0, 1, 1, 0]
                await flusher.drain()
                assert [each.offsets.table for each in topic.partitions] == [1, 1, 1, 1]
            finally:
                await flusher.stop(5)

    asyncio.run(asyncio.wait_for(test(), 60))


@pytest.mark.rule("F8")
def test_it_waits_for_five_minutes_at_most_and_goes_with_the_budget(tmp_path: Path) -> None:
    async def test() -> None:
        async with running_log(tmp_path, Disk()) as (log, topics):
            spent = RequestBudget(1)
            topic = await topics.create("t", 1, {"flush.ms": 1})
            await publish(log, topic, 0, "x")
            loads = Loads(log, LOGGER, spent)
            now = log.clock.monotonic()
            assert loads.of(log.topics())[0].held_seconds == 0.0
            spent.spend(10_000_000, now)
            [held] = loads.of(log.topics())
            assert held.held_seconds == held.oldest_seconds + 300
            assert not due([held], now + 299) and due([held], now + 300)
            assert active_partitions([held], now) == 0
            spent.reconfigure(0)
            assert loads.of(log.topics())[0].held_seconds == 0.0

    asyncio.run(asyncio.wait_for(test(), 60))


async def publish(log: Log, topic: TopicLog, partition: int, value: str) -> None:
    await log.append(topic, body(value, partition=partition), None).durable
