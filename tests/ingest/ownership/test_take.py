"""A topic is taken, let go and taken again, with what the write-ahead log has of it, at any time of a process."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from log_rig import CLOCK, LOGGER, body, stopped_log

from siltlog.infra import names
from siltlog.infra.errors import SiltlogError, Unavailable
from siltlog.infra.metrics.metrics import Metrics
from siltlog.infra.table.table import TopicTable
from siltlog.ingest.flush.flusher import Flusher
from siltlog.ingest.flush.retries import Retries
from siltlog.ingest.log.log import Log
from siltlog.ingest.log.topic import TopicLog
from siltlog.ingest.ownership.former import Former
from siltlog.ingest.ownership.found import read_wal
from siltlog.ingest.ownership.plan import Leave
from siltlog.ingest.ownership.stranded import Stranded
from siltlog.ingest.ownership.take import Taking
from siltlog.ingest.producers.check import Producer
from siltlog.ingest.topics.topics import Topics
from siltlog.ingest.wal.disk import Disk

NOTHING = Leave()


class Place:
    """A data dir whose WAL runs and whose topics are taken one by one."""

    def __init__(self, log: Log, taking: Taking) -> None:
        self.log = log
        self.taking = taking
        self.flusher = Flusher(log, Retries(log.clock), LOGGER, Metrics())

    async def table(self, name: str) -> TopicTable:
        return await asyncio.to_thread(TopicTable.open, self.log.store, name, CLOCK)

    async def take(self, name: str, leave: Leave = NOTHING) -> TopicLog:
        return await self.taking.take(await self.table(name), leave)

    async def publish(self, topic: TopicLog, value: str, first_sequence: int | None = None) -> int:
        """The offset."""
        producer = None if first_sequence is None else Producer("p", 0)
        sent = self.log.append(topic, body(value, first_sequence=first_sequence), producer)
        await sent.durable
        assert sent.acks[0].first_offset is not None
        return sent.acks[0].first_offset

    async def release(self, topic: TopicLog) -> None:
        await self.flusher.drain()
        await self.flusher.release(topic)
        assert topic.state == "released"
        self.taking.former.let_go(topic)


@asynccontextmanager
async def place(folder: Path, lake: Path) -> AsyncIterator[Place]:
    """Takes nothing by itself."""
    folder.mkdir(exist_ok=True)
    log = stopped_log(folder, Disk(), lake=lake)
    recovery = await asyncio.to_thread(log.wal.recover)
    former = Former(log.topic_logs, log.wal, read_wal(recovery, CLOCK.now_us()))
    await asyncio.to_thread(log.wal.start)
    former.started()
    running = Place(log, Taking(log, former, Stranded.beside(folder), LOGGER))
    try:
        yield running
    finally:
        await running.flusher.stop(10)
        await asyncio.to_thread(log.wal.close)


async def made(here: Place) -> TopicLog:
    return await Topics(here.log, LOGGER).create("t", 1, {"flush.ms": 3_600_000})


def test_a_topic_that_was_let_go_is_taken_again_with_its_producers(tmp_path: Path) -> None:
    async def run() -> None:
        async with place(tmp_path / "a", tmp_path / "lake") as here, place(tmp_path / "b", tmp_path / "lake") as there:
            topic = await made(here)
            assert await here.publish(topic, "0", 0) == 0
            await here.release(topic)
            with pytest.raises(SiltlogError, match="there is no topic"):
                here.log.topic("t")
            again = await here.take("t")
            assert again is not topic
            assert await here.publish(again, "0 again", 0) == 0, "a duplicate"
            assert await here.publish(again, "1", 1) == 1
            await here.release(again)
            elsewhere = await there.take("t")
            assert await there.publish(elsewhere, "1 again", 1) == 1, "a duplicate"
            assert await there.publish(elsewhere, "2", 2) == 2
            await there.release(elsewhere)
            back = await here.take("t")
            assert await here.publish(back, "2 again", 2) == 2, "a duplicate"
            assert await here.publish(back, "3", 3) == 3
            assert not (tmp_path / "a" / names.STRANDED_FOLDER).exists()

    asyncio.run(run())


@pytest.mark.rule("CO11")
def test_what_a_former_start_had_is_kept_until_the_topic_is_taken(tmp_path: Path) -> None:
    async def run() -> None:
        lake = tmp_path / "lake"
        async with place(tmp_path / "a", lake) as here:
            topic = await made(here)
            other = await Topics(here.log, LOGGER).create("other", 1, {"flush.ms": 3_600_000})
            assert await here.publish(topic, "a", 0) == 0
        for _ in range(2):
            # Started, and stopped, with the topic not taken; segments are recycled meanwhile.
            async with place(tmp_path / "a", lake) as here:
                other = await here.take("other")
                for _ in range(40):
                    await here.publish(other, "x" * 60_000)
                await here.flusher.drain()
                assert other.partitions[0].offsets.table == other.partitions[0].offsets.synced
        async with place(tmp_path / "a", lake) as here:
            topic = await here.take("t")
            assert await here.publish(topic, "a again", 0) == 0, "a duplicate"
            assert await here.publish(topic, "b", 1) == 1
            await here.release(topic)
            assert topic.snapshot.offsets == {0: 2}

    asyncio.run(run())


@pytest.mark.rule("CO11")
def test_a_take_that_failed_is_repeated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def run() -> None:
        lake = tmp_path / "lake"
        async with place(tmp_path / "a", lake) as here:
            topic = await made(here)
            await here.publish(topic, "a", 0)
        real = TopicTable.claim

        def unanswered(*arguments: object, **named: object) -> None:
            real(*arguments, **named)  # type: ignore[arg-type]
            raise Unavailable("the answer was lost")

        async with place(tmp_path / "a", lake) as here:
            monkeypatch.setattr(TopicTable, "claim", unanswered)
            for _ in range(3):
                with pytest.raises(Unavailable):
                    await here.take("t")
                assert here.log.topics() == ()
            monkeypatch.undo()
            topic = await here.take("t")
            assert await here.publish(topic, "a again", 0) == 0, "a duplicate"
            assert await here.publish(topic, "b", 1) == 1

    asyncio.run(run())


@pytest.mark.rule("CO11")
@pytest.mark.parametrize("recycled", [False, True])
def test_what_was_given_up_stays_so_after_a_start(tmp_path: Path, recycled: bool) -> None:
    """Its frames may still be there, and may be gone any time: nobody keeps them."""

    def set_aside() -> list[Path]:
        return sorted((tmp_path / "a").rglob("*.arrow"))

    async def run() -> None:
        lake = tmp_path / "lake"
        async with place(tmp_path / "a", lake) as here:
            topic = await made(here)
            other = await Topics(here.log, LOGGER).create("other", 1, {"flush.ms": 3_600_000})
            await here.publish(topic, "a", 0)
        async with place(tmp_path / "b", lake) as there:
            elsewhere = await there.take("t", Leave(take_over=True))
            await there.publish(elsewhere, "b")
            await there.release(elsewhere)
        async with place(tmp_path / "a", lake) as here:
            await here.taking.give_up(topic.topic_id, await here.table("t"))
            assert here.taking.former.state(topic.topic_id) is None
        before = set_aside()
        assert len(before) == 1
        for path in before:
            path.unlink()
        async with place(tmp_path / "a", lake) as here:
            if recycled:
                other = await here.take("other")
                for _ in range(40):
                    await here.publish(other, "x" * 60_000)
                await here.flusher.drain()
            back = await here.take("t")
            await here.publish(back, "c")
            await here.release(back)
            assert set_aside() == [], "the same is set aside again"
        # What it had of the topic in an earlier life is not what it has now.
        async with place(tmp_path / "a", lake) as here:
            await here.publish(await here.take("t"), "d")
        async with place(tmp_path / "a", lake) as here:
            await here.release(await here.take("t"))
            assert set_aside() == []

    asyncio.run(run())
