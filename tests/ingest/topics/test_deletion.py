"""Deleting records: what is waited for, what overtakes it, and what is answered when it cannot be done."""

import asyncio
import uuid
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from log_rig import LOGGER, body, running_log

from siltlog.infra.errors import Fenced, OffsetOutOfRange, OutcomeUnknown, Refused, SiltlogError, Unavailable
from siltlog.infra.metrics.metrics import Metrics
from siltlog.infra.settings.topic_config import TopicConfig
from siltlog.infra.table.table import TopicTable
from siltlog.ingest.flush.flusher import Flusher
from siltlog.ingest.flush.retries import Retries
from siltlog.ingest.log.log import Log
from siltlog.ingest.log.topic import TopicLog
from siltlog.ingest.producers.check import Producer
from siltlog.ingest.topics import deletion as log_start
from siltlog.ingest.topics.deletion import LogStarts
from siltlog.ingest.wal.disk import Disk


class Node:
    def __init__(self, log: Log, topic: TopicLog, flusher: Flusher, starts: LogStarts) -> None:
        self.log = log
        self.topic = topic
        self.flusher = flusher
        self.starts = starts

    async def publish(self, *values: str, producer: Producer | None = None, first_sequence: int | None = None) -> None:
        await self.log.append(self.topic, body(*values, first_sequence=first_sequence), producer).durable

    async def delete(self, before: int | None) -> int:
        return (await self.starts.delete_records(self.topic, 0, before)).log_start_offset

    def stored_start(self) -> int:
        return TopicTable.open(self.log.store, self.topic.name, self.log.clock).snapshot.starts[0]


@asynccontextmanager
async def node(folder: Path, *, wakes: bool = True) -> AsyncIterator[Node]:
    """One topic with one partition; unless it `wakes`, nobody hears that somebody waits for a flush."""
    async with running_log(folder, Disk()) as (log, topics):
        config = {} if wakes else {"flush.ms": 3_600_000}
        topic = await topics.create("t", 1, config)
        flusher = Flusher(log, Retries(log.clock), LOGGER, Metrics())
        if not wakes:
            topic.table_lock = _Held()
        try:
            yield Node(log, topic, flusher, LogStarts(log, flusher.states, log.flush_due.set, LOGGER))
        finally:
            await flusher.stop(5)


class _Held(asyncio.Lock):
    """Nobody gets it: as while the object store hangs."""

    async def acquire(self) -> Any:
        await asyncio.sleep(3_600)


def run(test: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(asyncio.wait_for(test(), 60))


@pytest.mark.rule("L1")
def test_records_are_flushed_first_and_offsets_go_on(tmp_path: Path) -> None:
    async def test() -> None:
        async with node(tmp_path) as one:
            await one.publish("a", "b", "c")
            assert await one.delete(2) == one.stored_start() == 2
            assert one.topic.partitions[0].offsets.table == 3
            assert await one.delete(1) == 2
            assert await one.delete(None) == one.stored_start() == 3
            await one.publish("d")
            assert one.topic.partitions[0].bounds().high_watermark == 4

    run(test)


def test_refusals(tmp_path: Path) -> None:
    async def test() -> None:
        async with node(tmp_path) as one:
            await one.publish("a")
            with pytest.raises(OffsetOutOfRange, match=r"above the high watermark .* 1;"):
                await one.delete(2)
            with pytest.raises(Refused, match="partitions 0 to 0"):
                await one.starts.delete_records(one.topic, 1, 0)
            one.topic.name = "_offsets"
            with pytest.raises(Refused, match="system's"):
                await one.delete(1)
            one.topic.name = "t"
            assert one.stored_start() == 0

    run(test)


def test_nothing_is_deleted_while_nothing_can_be_flushed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        monkeypatch.setattr(log_start, "FLUSH_SECONDS_MAX", 0.1)
        async with node(tmp_path, wakes=False) as one:
            await one.publish("a")
            with pytest.raises(Unavailable, match="nothing was deleted") as refused:
                await one.delete(1)
            assert refused.value.retryable == "yes"
            assert one.topic.partitions[0].offsets.log_start == 0 and not one.topic.partitions[0].awaited

    run(test)


def test_a_change_that_comes_first_is_taken_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        real, left = log_start.move_starts, 2

        def overtaken(table: TopicTable, *args: Any, **kwargs: Any) -> Any:
            nonlocal left
            left -= 1
            if left >= 0:
                other = TopicTable.open(one.log.store, "t", one.log.clock)
                other.set_config(TopicConfig({"retention.ms": left}), str(uuid.uuid4()))
            return real(table, *args, **kwargs)

        monkeypatch.setattr(log_start, "move_starts", overtaken)
        async with node(tmp_path) as one:
            await one.publish("a", "b")
            assert await one.delete(1) == one.stored_start() == 1
            assert left == -1 and one.topic.config["retention.ms"] == 0

    run(test)


@pytest.mark.parametrize(
    ("raised", "answered", "words"),
    [
        (Fenced("overtaken"), Unavailable, "all the time"),
        (OutcomeUnknown("no answer"), OutcomeUnknown, "delete the records again"),
    ],
    ids=["overtaken again and again", "no answer"],
)
def test_what_cannot_be_done_is_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, raised: Exception, answered: type[SiltlogError], words: str
) -> None:
    async def test() -> None:
        def failing(*args: Any, **kwargs: Any) -> Any:
            raise raised

        async with node(tmp_path) as one:
            await one.publish("a")
            with monkeypatch.context() as patched:
                patched.setattr(log_start, "move_starts", failing)
                with pytest.raises(answered, match=words):
                    await one.delete(1)
            assert one.topic.state == "open" and await one.delete(1) == 1

    run(test)


@pytest.mark.rule("L5")
def test_what_is_known_of_producers_is_beside_the_table_first(tmp_path: Path) -> None:
    async def test() -> None:
        async with node(tmp_path) as one:
            log = one.topic.partitions[0]
            ended = asyncio.Event()

            async def publishing() -> None:
                for number in range(200):
                    await one.publish("x", producer=Producer("p", 0), first_sequence=number)
                    if ended.is_set():
                        return

            task = asyncio.create_task(publishing())
            for before in (1, 5, 9):
                while log.bounds().high_watermark < before:
                    await asyncio.sleep(0.005)
                assert await one.delete(before) == before <= log.state_offset
            ended.set()
            await task

    run(test)
