"""What a flusher does after its commits: producers beside the table, and segments given back, each in its time."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from log_rig import LOGGER, GatedDisk, body, running_log

from siltlog.infra import names
from siltlog.infra.metrics.metrics import Metrics
from siltlog.infra.table.table import TopicTable
from siltlog.ingest.flush import flusher as flushing
from siltlog.ingest.flush import refresh
from siltlog.ingest.flush.flusher import Flusher
from siltlog.ingest.flush.retries import Retries
from siltlog.ingest.log import producer_objects
from siltlog.ingest.producers.check import Producer

MIB = 1024 * 1024


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.005)


@pytest.mark.rule("E9")
def test_producers_of_a_partition_that_rests_come_beside_the_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(refresh, "LOOK_SECONDS", 0.01)

    async def run() -> None:
        async with running_log(tmp_path, GatedDisk()) as (log, topics):
            topic = await topics.create("t", 1, {"flush.ms": 1})
            flusher = Flusher(log, Retries(log.clock), LOGGER, Metrics())
            (partition,) = topic.partitions
            for sequence in (0, 1):
                sent = log.append(topic, body("a", first_sequence=sequence), Producer("p", 0))
                await sent.durable
                await until(
                    lambda: partition.offsets.table == partition.offsets.synced and not topic.table_lock.locked()
                )
            assert (partition.offsets.table, partition.state_offset) == (2, 1), "one was written a moment ago"
            monkeypatch.setattr(producer_objects, "STATE_OBJECT_SECONDS", 0.0)
            await until(lambda: partition.state_offset == 2)
            assert log.store.size(f"topics/t/{names.state_object(topic.topic_id, 0, 2)}") is not None
            await flusher.stop(10)

    asyncio.run(run())


@pytest.mark.rule("S8", "T6")
def test_no_segment_is_given_up_before_it_is_durable_how_far_the_table_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class CountingDisk(GatedDisk):
        syncs = 0

        def sync(self, fd: int) -> None:
            super().sync(fd)
            self.syncs += 1

    async def run() -> None:
        disk = CountingDisk()
        async with running_log(tmp_path, disk) as (log, topics):
            topic = await topics.create("t", 1, {"flush.ms": 3_600_000})
            flusher = Flusher(log, Retries(log.clock), LOGGER, Metrics())
            for _ in range(6):
                await log.append(topic, body("x" * (MIB // 2)), None).durable
            append, trim = TopicTable.append, log.wal.trim
            committed: list[int] = []
            given_up: list[int] = []

            def appended(table: TopicTable, *args: Any, **kwargs: Any) -> Any:
                snapshot = append(table, *args, **kwargs)
                committed.append(disk.syncs)
                return snapshot

            def trimmed(table_offsets: Any) -> int:
                freed = trim(table_offsets)
                given_up.extend([disk.syncs] * bool(freed))
                return freed

            monkeypatch.setattr(TopicTable, "append", appended)
            monkeypatch.setattr(log.wal, "trim", trimmed)
            await flusher.drain()
            await until(lambda: bool(given_up))
            assert given_up[0] > committed[0]
            await flusher.stop(10)

    asyncio.run(run())


@pytest.mark.rule("P8")
def test_segments_that_hold_claims_alone_are_given_up_without_a_flush(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once they filled the log, nothing could be appended that a flush would follow."""
    monkeypatch.setattr(flushing, "RECYCLE_SECONDS", 0.01)
    name = "x" * 190

    async def run() -> None:
        async with running_log(tmp_path, GatedDisk()) as (log, topics):
            topic = await topics.create("t", 1, {})
            flusher = Flusher(log, Retries(log.clock), LOGGER, Metrics())
            first = log.wal.roll()
            for number in range(0, 4_000, 100):
                await asyncio.gather(*(log.claim_producer(topic, f"{number + n}-{name}") for n in range(100)))
            await until(lambda: not log.wal.has_below(first + 1))
            await flusher.stop(10)

    asyncio.run(run())
