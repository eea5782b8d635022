"""In which order files are written: who waits for a table waits for no file that nobody awaits; pure, and on a log."""

import asyncio
import math
import threading
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from failing_store import VirtualClock
from log_rig import CLOCK, LOGGER, body, running_log

from siltlog.infra.metrics.metrics import Metrics
from siltlog.infra.table.data_file import write_data_file
from siltlog.infra.table.table import TopicTable
from siltlog.ingest.flush import flush as flushing
from siltlog.ingest.flush import threads
from siltlog.ingest.flush.flusher import FLUSHES_AT_ONCE, Flusher
from siltlog.ingest.flush.retries import Retries
from siltlog.ingest.flush.threads import AWAITED_BYTES_PER_SECOND, Place, Threads
from siltlog.ingest.log.log import Log
from siltlog.ingest.log.topic import TopicLog
from siltlog.ingest.topics.topics import Topics
from siltlog.ingest.wal.disk import Disk

WAIT_SECONDS = 60.0
PARTITIONS = 3
TIGHT_BYTES = 300_000
"""Two partitions or more that have so much take half of the head's memory, and no file stands back."""


class Held:
    """Holds up the files of topics whose names begin with `large` while they are written."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.gate = threading.Event()
        self.begun = threading.Event()

        def held(store: Any, topic: str, *args: Any, **kwargs: Any) -> Any:
            if topic.startswith("large"):
                self.begun.set()
                assert self.gate.wait(WAIT_SECONDS)
            return write_data_file(store, topic, *args, **kwargs)

        monkeypatch.setattr(flushing, "write_data_file", held)

    @asynccontextmanager
    async def flushing(self, folder: Path) -> AsyncIterator[tuple[Log, Topics]]:
        async with running_log(folder, Disk()) as (log, topics):
            flusher = Flusher(log, Retries(log.clock), LOGGER, Metrics())
            try:
                yield log, topics
            finally:
                self.gate.set()
                await flusher.stop(WAIT_SECONDS)


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> Held:
    return Held(monkeypatch)


async def large(log: Log, topics: Topics, held: Held, count: int, nbytes: int) -> list[TopicLog]:
    """Topics whose flushes have begun, each with a file that is held up or waits for that."""
    found = [await topics.create(f"large{number}", PARTITIONS, {"flush.ms": 1}) for number in range(count)]
    for topic in found:
        sent = [log.append(topic, body("x" * nbytes, partition=number), None) for number in range(PARTITIONS)]
        await asyncio.gather(*(each.durable for each in sent))
    log.flush_due.set()
    while not held.begun.is_set() or not all(topic.table_lock.locked() and topic.open_commit for topic in found):
        await asyncio.sleep(0.005)
    return found


async def in_table(log: Log, topic: TopicLog) -> None:
    wait = topic.partitions[0].when_in_table(topic.partitions[0].offsets.synced)
    log.flush_due.set()
    if wait is not None:
        await wait


@pytest.mark.rule("F10")
@pytest.mark.parametrize("nbytes", [1, TIGHT_BYTES])
@pytest.mark.parametrize("count", [1, 3])
def test_who_waits_for_the_table_waits_for_no_file_that_nobody_does(
    tmp_path: Path, held: Held, count: int, nbytes: int
) -> None:
    async def test() -> None:
        async with held.flushing(tmp_path) as (log, topics):
            quiet = await topics.create("quiet", 1, {"flush.ms": 3_600_000})
            others = await large(log, topics, held, count, nbytes)
            await log.append(quiet, body("a"), None).durable
            await in_table(log, quiet)
            assert not any(partition.offsets.table for topic in others for partition in topic.partitions)
            held.gate.set()
            await asyncio.gather(*(in_table(log, topic) for topic in others))

    asyncio.run(asyncio.wait_for(test(), WAIT_SECONDS))


@pytest.mark.rule("F10")
def test_a_flush_that_waits_goes_first_once_somebody_waits_for_it(tmp_path: Path, held: Held) -> None:
    async def test() -> None:
        async with held.flushing(tmp_path) as (log, topics):
            quiet = await topics.create("quiet", 1, {"flush.ms": 1})
            await large(log, topics, held, 1, 1)
            await log.append(quiet, body("a"), None).durable
            log.flush_due.set()
            while not quiet.open_commit:
                await asyncio.sleep(0.005)
            assert quiet.partitions[0].offsets.table == 0
            await in_table(log, quiet)
            assert not held.gate.is_set()

    asyncio.run(asyncio.wait_for(test(), WAIT_SECONDS))


@pytest.mark.rule("F10")
@pytest.mark.parametrize("waits", ["again", "late"])
def test_who_waits_for_the_table_waits_for_no_other_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, waits: str
) -> None:
    """Also who comes again, and who comes once a commit that nobody waited for has its turn to wait for."""
    gate = threading.Event()
    held: list[str] = []
    append = TopicTable.append

    def held_up(table: TopicTable, *args: Any, **kwargs: Any) -> Any:
        if table.topic.startswith("busy"):
            held.append(table.topic)
            assert gate.wait(WAIT_SECONDS)
        return append(table, *args, **kwargs)

    monkeypatch.setattr(TopicTable, "append", held_up)

    async def test() -> None:
        async with Held(monkeypatch).flushing(tmp_path) as (log, topics):
            try:
                await look_on(log, topics)
            finally:
                gate.set()

    async def look_on(log: Log, topics: Topics) -> None:
        quiet = await topics.create("quiet", 1, {"flush.ms": 3_600_000 if waits == "again" else 1})
        for number in range(2 * FLUSHES_AT_ONCE):
            topic = await topics.create(f"busy{number}", 1, {"flush.ms": 1})
            await log.append(topic, body("x"), None).durable
        log.flush_due.set()
        while len(held) < FLUSHES_AT_ONCE:
            await asyncio.sleep(0.005)
        await log.append(quiet, body("a"), None).durable
        while waits == "late" and not quiet.open_commit:
            await asyncio.sleep(0.005)
        await in_table(log, quiet)
        await log.append(quiet, body("a"), None).durable
        await in_table(log, quiet)
        assert not gate.is_set()

    asyncio.run(asyncio.wait_for(test(), WAIT_SECONDS))


class Writing:
    """Files that are names, of which none is written before the gate opens."""

    def __init__(self) -> None:
        self.writers = Threads(CLOCK, "test", 1)
        self.gate = threading.Event()
        self.began: list[str] = []
        self.places: dict[str, Place] = {}

    def flush(self, name: str, place: Place, files: int = 1, nbytes: int = 1) -> "asyncio.Task[Sequence[str]]":
        self.places[name] = place
        items = [f"{name}{number}" for number in range(files)]
        return asyncio.create_task(self.writers.run(self._write, items, nbytes, lambda: self.places[name]))

    def _write(self, item: str) -> str:
        assert self.gate.wait(WAIT_SECONDS)
        self.began.append(item)
        if item.startswith("bad"):
            raise OSError(item)
        return item.upper()

    async def of(self, *flushes: "asyncio.Task[Sequence[str]]") -> list[str]:
        """Opens the gate; in which order files were written."""
        self.gate.set()
        await asyncio.wait(flushes)
        self.writers.close()
        return self.began


@pytest.fixture
def always_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "LOOK_SECONDS", 0.0)
    monkeypatch.setattr(threads, "LOOK_PART", math.inf)


@pytest.mark.parametrize("place", [Place.BEHIND, Place.BESIDE])
def test_files_that_nobody_waits_for_are_written_as_their_flushes_came(place: Place) -> None:
    async def test() -> None:
        writing = Writing()
        flushes = [writing.flush("a", place, files=3, nbytes=1_000_000_000), writing.flush("b", place)]
        await asyncio.sleep(0)
        assert await writing.of(*flushes) == ["a0", "a1", "a2", "b0"]
        assert [flush.result() for flush in flushes] == [["A0", "A1", "A2"], ["B0"]]

    asyncio.run(test())


@pytest.mark.rule("F10")
def test_of_flushes_that_are_awaited_the_short_go_first_and_the_long_in_their_time() -> None:
    async def test() -> None:
        writing = Writing()
        place = Place.AWAITED
        flushes = [
            writing.flush("long", place, files=3, nbytes=100 * AWAITED_BYTES_PER_SECOND),
            writing.flush("longer", place, nbytes=200 * AWAITED_BYTES_PER_SECOND),
            writing.flush("short", place),
        ]
        await asyncio.sleep(0)
        assert await writing.of(*flushes) == ["long0", "short0", "long1", "long2", "longer0"]

    asyncio.run(test())


@pytest.mark.rule("F10")
@pytest.mark.usefixtures("always_looks")
def test_the_rest_of_a_flush_goes_where_it_belongs_by_then() -> None:
    async def test() -> None:
        writing = Writing()
        flushes = [writing.flush("a", Place.BEHIND, files=2), writing.flush("b", Place.BEHIND, files=2)]
        await asyncio.sleep(0)
        writing.places["b"] = Place.AWAITED
        writing.writers.look()
        writing.places["b"] = Place.BEHIND
        writing.writers.look()
        assert sorted(await writing.of(*flushes)) == ["a0", "a1", "b0", "b1"]
        assert [flush.result() for flush in flushes] == [["A0", "A1"], ["B0", "B1"]]

    asyncio.run(test())


def test_looking_takes_a_tenth_of_the_time_at_most() -> None:
    async def test() -> None:
        clock, gate = VirtualClock(), threading.Event()
        looks = -1
        """The flush looks once itself, which does not count."""

        def place() -> Place:
            nonlocal looks
            looks += 1
            clock.advance(1.0)
            return Place.BEHIND

        found = Threads(clock, "test", 1)
        running = asyncio.create_task(found.run(lambda _: gate.wait(WAIT_SECONDS), [1, 2], 1, place))
        await asyncio.sleep(0)
        for _ in range(100):
            clock.advance(1.0)
            found.look()
        assert looks == 10
        gate.set()
        await running
        found.close()

    asyncio.run(test())


def test_a_file_that_fails_ends_its_flush_alone() -> None:
    async def test() -> None:
        writing = Writing()
        flushes = [writing.flush("bad", Place.BEHIND, files=3), writing.flush("b", Place.BEHIND)]
        await asyncio.sleep(0)
        assert await writing.of(*flushes) == ["bad0", "b0"]
        assert isinstance(flushes[0].exception(), OSError)
        assert flushes[1].result() == ["B0"]

    asyncio.run(test())


def test_a_close_ends_what_waits() -> None:
    async def test() -> None:
        writing = Writing()
        flush = writing.flush("a", Place.BEHIND, files=2)
        await asyncio.sleep(0)
        writing.writers.close()
        await asyncio.wait([flush])
        assert flush.cancelled()
        assert len(await writing.of(flush)) <= 1

    asyncio.run(test())
