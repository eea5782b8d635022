"""Data dirs that are copies of one another, started on one root in any order, also killed at any step.

What a data dir has acknowledged is in the table where it was said to be, or set aside in that data dir; never both.
"""

import asyncio
import random
import shutil
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from log_rig import LOGGER, body, running_log

from siltlog.cli.records.stranded import StrandedFolder, stranded_files
from siltlog.infra import names
from siltlog.infra.clock import SystemClock
from siltlog.infra.errors import ConfigError, SiltlogError, problem
from siltlog.infra.metrics.metrics import Metrics
from siltlog.infra.store.local import LocalStore
from siltlog.infra.store.store import open_store
from siltlog.infra.table.data_file import read_data_file
from siltlog.infra.table.log_start import move_starts, start_move
from siltlog.infra.table.table import TopicTable
from siltlog.ingest.flush import refresh
from siltlog.ingest.flush.flusher import Flusher
from siltlog.ingest.flush.retries import Retries
from siltlog.ingest.log import state as wal_state
from siltlog.ingest.log.group_commit import GroupCommit
from siltlog.ingest.log.log import Log
from siltlog.ingest.ownership import landed, take
from siltlog.ingest.ownership.stranded import Stranded
from siltlog.ingest.wal import Wal
from siltlog.ingest.wal.disk import Disk

PARTITIONS = 2
DIRS_MAX = 4
LARGE = "x" * 60_000
"""Some values are so large that segments fill up and are recycled."""
Row = tuple[int, int, str]


class Killed(BaseException):
    """The process ends here."""


@contextmanager
def killed_at(owner: Any, name: str, *, after: bool, calls: int = 1) -> Iterator[None]:
    """The process ends before or after call number `calls` of a function; nothing of it runs from there on."""
    real = getattr(owner, name)
    left = calls

    def counted(run: Callable[[], Any]) -> Any:
        nonlocal left
        left -= 1
        if left < 0 or (left == 0 and not after):
            raise Killed
        result = run()
        if left == 0:
            raise Killed
        return result

    async def asynchronous(*args: Any, **kwargs: Any) -> Any:
        nonlocal left
        left -= 1
        if left < 0 or (left == 0 and not after):
            raise Killed
        result = await real(*args, **kwargs)
        if left == 0:
            raise Killed
        return result

    def synchronous(*args: Any, **kwargs: Any) -> Any:
        return counted(lambda: real(*args, **kwargs))

    with mock.patch.object(owner, name, asynchronous if asyncio.iscoroutinefunction(real) else synchronous):
        yield


START_STEPS: list[tuple[Any, str]] = [
    (Stranded, "write"),
    (Wal, "start"),
    (TopicTable, "claim"),
    (take, "claim"),
    (GroupCommit, "commit"),
]


@dataclass
class Life:
    """A data dir that runs."""

    log: Log
    flusher: Flusher
    stack: AsyncExitStack


@dataclass
class Place:
    """A data dir: what was acknowledged from it, and what it was copied with."""

    folder: Path
    acknowledged: set[Row] = field(default_factory=set)
    life: Life | None = None

    async def start(self, lake: Path, *, take_over: bool = False) -> None:
        self.folder.mkdir(exist_ok=True)
        stack = AsyncExitStack()
        try:
            running = running_log(self.folder, Disk(), lake=lake, take_over=take_over)
            log, topics = await stack.enter_async_context(running)
            flusher = Flusher(log, Retries(log.clock), LOGGER, Metrics())
            stack.push_async_callback(flusher.stop, 30)
            if not log.topics():
                await topics.create("t", PARTITIONS, {"flush.ms": 3_600_000})
        except BaseException:
            await stack.aclose()
            raise
        self.life = Life(log, flusher, stack)

    async def publish(self, values: list[str], partition: int) -> None:
        assert self.life is not None
        topic = self.life.log.topic("t")
        try:
            sent = self.life.log.append(topic, body(*values, partition=partition), None)
        except SiltlogError:
            return
        await sent.durable
        first = sent.acks[0].first_offset
        assert first is not None
        self.acknowledged |= {(partition, first + at, value) for at, value in enumerate(values)}

    async def flush(self) -> None:
        assert self.life is not None
        await self.life.flusher.drain()

    async def kill(self) -> None:
        assert self.life is not None
        life, self.life = self.life, None
        await life.stack.aclose()

    async def stop(self) -> None:
        assert self.life is not None
        await self.flush()
        for topic in self.life.log.topics():
            await self.life.flusher.release(topic)
        await self.kill()

    def set_aside(self) -> set[Row]:
        rows: set[Row] = set()
        for file in stranded_files(StrandedFolder(open_store(self.folder.as_uri()), names.STRANDED_FOLDER)):
            table = file.read()
            columns = [table.column(name).to_pylist() for name in ("partition", "offset", "value")]
            rows |= {(p, o, v.decode()) for p, o, v in zip(*columns, strict=True)}
        return rows

    def copy(self, folder: Path) -> "Place":
        # Threads of one that was killed here may still make room for the segment after next.
        shutil.copytree(self.folder, folder, ignore=shutil.ignore_patterns("*.spare"))
        return Place(folder, set(self.acknowledged))


def in_table(lake: Path) -> list[Row]:
    store = open_store(lake.as_uri())
    snapshot = TopicTable.open(store, "t", SystemClock()).snapshot
    rows: list[Row] = []
    for partition in range(PARTITIONS):
        for file in snapshot.files_of(partition):
            table = read_data_file(store, "t", file, columns=["offset", "value"])
            offsets, values = (table.column(name).to_pylist() for name in ("offset", "value"))
            rows += [(partition, o, v.decode()) for o, v in zip(offsets, values, strict=True)]
    return rows


class World:
    def __init__(self, folder: Path, seed: int) -> None:
        self.rng = random.Random(seed)
        self.lake = folder / "lake"
        self.folder = folder
        self.places = [Place(folder / "0")]
        self.values = 0
        self.history: list[str] = []

    async def run(self, steps: int) -> None:
        await self.places[0].start(self.lake)
        for _ in range(steps):
            place = self.rng.choice(self.places)
            options = ["publish"] * 4 + ["flush", "look", "copy", "kill", "stop", "half_flush"]
            done = self.rng.choice(options) if place.life is not None else self.rng.choice(["start"] * 7 + ["copy"])
            self.history.append(f"{done} {place.folder.name}")
            await getattr(self, done)(place)
        for place in self.places:
            if place.life is not None:
                await place.kill()
        for place in self.places:
            await place.start(self.lake, take_over=True)
            await place.stop()

    async def publish(self, place: Place) -> None:
        count = self.rng.randint(1, 3)
        values = [f"{self.values + at}" + (LARGE if self.rng.random() < 0.1 else "") for at in range(count)]
        self.values += count
        await place.publish(values, self.rng.randrange(PARTITIONS))

    async def flush(self, place: Place) -> None:
        await place.flush()

    async def look(self, place: Place) -> None:
        """Sees what others have committed, as a server does from time to time."""
        assert place.life is not None
        topic = place.life.log.topic("t")
        try:
            async with topic.table_lock:
                place.life.log.see_table(topic, await asyncio.to_thread(topic.table.refresh))
        except SiltlogError as error:
            topic.close("fenced", str(error))

    async def half_flush(self, place: Place) -> None:
        """Killed around the commit; perhaps copied there."""
        try:
            with killed_at(TopicTable, "append", after=self.rng.random() < 0.5):
                await place.flush()
        except Killed:
            pass
        if place.life is not None:
            if self.rng.random() < 0.5:
                await self.copy(place)
            await place.kill()

    async def copy(self, place: Place) -> None:
        if len(self.places) < DIRS_MAX:
            self.places.append(place.copy(self.folder / f"{len(self.places)}"))

    async def kill(self, place: Place) -> None:
        await place.kill()

    async def stop(self, place: Place) -> None:
        await place.stop()

    async def start(self, place: Place) -> None:
        take_over = self.rng.random() < 0.5
        try:
            if self.rng.random() < 0.3:
                owner, name = self.rng.choice(START_STEPS)
                with killed_at(owner, name, after=self.rng.random() < 0.5):
                    await place.start(self.lake, take_over=take_over)
            else:
                await place.start(self.lake, take_over=take_over)
        except (ConfigError, SiltlogError) as error:
            self.history.append(f"  {str(error)[:60]}")
        except Killed:
            self.history.append("  killed")

    def check(self) -> None:
        rows = in_table(self.lake)
        there = set(rows)
        assert len(rows) == len({(partition, offset) for partition, offset, _ in rows}), "an offset is there twice"
        for place in self.places:
            aside = place.set_aside()
            assert not aside & there, f"{place.folder.name}: set aside, and in the table"
            lost = place.acknowledged - there - aside
            assert not lost, f"{place.folder.name} lost {sorted((p, o, v[:9]) for p, o, v in lost)}"


@pytest.mark.rule("S1", "S4", "S5")
@pytest.mark.parametrize("seed", range(8))
def test_what_was_acknowledged_is_in_the_table_or_set_aside(tmp_path: Path, seed: int) -> None:
    world = World(tmp_path, seed)
    try:
        asyncio.run(world.run(30))
        world.check()
    except BaseException:
        print("\n".join(world.history))
        raise


def test_who_is_taken_over_from_hears_of_it_before_it_looks_at_its_tables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(refresh, "LOOK_SECONDS", 0.01)
    monkeypatch.setattr(refresh, "LOOKS_PER_REFRESH", 1_000_000)

    async def run() -> None:
        old, new = (Place(tmp_path / name) for name in ("old", "new"))
        await old.start(tmp_path / "lake")
        await new.start(tmp_path / "lake", take_over=True)
        assert old.life is not None
        topic = old.life.log.topic("t")
        async with asyncio.timeout(60):
            while topic.state != "fenced":
                await asyncio.sleep(0.01)
        await old.kill()
        await new.kill()

    asyncio.run(run())


@pytest.mark.rule("S7", "T19")
def test_a_claim_right_behind_a_flush_is_not_taken_for_its_own(tmp_path: Path) -> None:
    async def run() -> None:
        place = Place(tmp_path / "0")
        await place.start(tmp_path / "lake")
        assert place.life is not None
        topic = place.life.log.topic("t")
        partition = topic.partitions[0]
        await place.publish(["flushed"], 0)
        append = TopicTable.append

        def claimed_behind(table: TopicTable, *args: Any, **kwargs: Any) -> Any:
            append(table, *args, **kwargs)
            other = TopicTable.open(place.life.log.store, "t", SystemClock())
            other.claim({0: topic.epochs[-1] + 1}, "another's", offsets={0: 1 << 32})
            return table.refresh()

        with mock.patch.object(TopicTable, "append", claimed_behind):
            flush = asyncio.ensure_future(place.flush())
            await place.publish(["acknowledged meanwhile"], 0)
            await flush
        assert (topic.state, partition.offsets.table) == ("fenced", 0)
        await place.kill()
        await place.start(tmp_path / "lake", take_over=True)
        assert place.set_aside() == {(0, 1, "acknowledged meanwhile")}
        await place.stop()
        assert in_table(tmp_path / "lake") == [(0, 0, "flushed")]

    asyncio.run(run())


@pytest.mark.rule("S4")
def test_a_flush_that_landed_unheard_is_known_by_its_records_once_the_log_of_the_table_was_cleaned(
    tmp_path: Path,
) -> None:
    async def run() -> None:
        place = Place(tmp_path / "0")
        await place.start(tmp_path / "lake")
        await place.publish(["a", "b"], 0)
        with killed_at(TopicTable, "append", after=True):
            await place.flush()
        await place.kill()
        with mock.patch.object(landed, "read_entry", side_effect=FileNotFoundError):
            await place.start(tmp_path / "lake")
        await place.publish(["c"], 0)
        await place.stop()
        assert in_table(tmp_path / "lake") == [(0, 0, "a"), (0, 1, "b"), (0, 2, "c")]
        assert place.set_aside() == set()

    asyncio.run(run())


@pytest.mark.rule("S9")
def test_a_commit_that_lands_while_its_data_dir_starts_again_is_no_copys(tmp_path: Path) -> None:
    async def run() -> None:
        place = Place(tmp_path / "0")
        await place.start(tmp_path / "lake")
        await place.publish(["under way"], 0)
        requests: list[Callable[[], Any]] = []

        def sent(*args: Any, **kwargs: Any) -> None:
            requests.append(lambda: append(*args, **kwargs))
            raise Killed

        append, claim = TopicTable.append, TopicTable.claim

        def claimed(*args: Any, **kwargs: Any) -> Any:
            requests.pop()()
            return claim(*args, **kwargs)

        with mock.patch.object(TopicTable, "append", sent):
            await place.flush()
        await place.kill()
        with mock.patch.object(TopicTable, "claim", claimed):
            await place.start(tmp_path / "lake")
        await place.publish(["of the other partition"], 1)
        with killed_at(TopicTable, "append", after=True):
            await place.flush()
        await place.kill()
        await place.start(tmp_path / "lake")
        await place.stop()
        assert in_table(tmp_path / "lake") == [(0, 0, "under way"), (1, 0, "of the other partition")]

    asyncio.run(run())


@pytest.mark.rule("S10")
def test_however_often_a_claim_fails_the_data_dir_stays_the_one_that_owns_the_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wal_state, "EPOCHS_REMEMBERED", 2)

    async def run() -> None:
        place = Place(tmp_path / "0")
        await place.start(tmp_path / "lake")
        await place.publish(["a"], 0)
        await place.kill()
        for _ in range(4):
            with killed_at(TopicTable, "claim", after=False), pytest.raises(Killed):
                await place.start(tmp_path / "lake")
        await place.start(tmp_path / "lake")
        await place.stop()
        assert in_table(tmp_path / "lake") == [(0, 0, "a")]

    asyncio.run(run())


def test_a_store_that_does_not_take_the_mark_of_a_claim_keeps_no_server_from_its_start(tmp_path: Path) -> None:
    refused = problem("topic_unavailable", "the store takes no mark")

    async def run() -> None:
        place = Place(tmp_path / "0")
        with mock.patch.object(LocalStore, "put", side_effect=refused):
            await place.start(tmp_path / "lake")
        await place.publish(["a"], 0)
        await place.stop()
        assert in_table(tmp_path / "lake") == [(0, 0, "a")]

    asyncio.run(run())


def test_what_was_flushed_before_a_clean_stop_is_not_set_aside_however_long_others_went_on(tmp_path: Path) -> None:
    async def run() -> None:
        old, new = (Place(tmp_path / name) for name in ("old", "new"))
        await old.start(tmp_path / "lake")
        await old.publish(["expired since"], 0)
        await old.stop()
        await new.start(tmp_path / "lake")
        assert new.life is not None
        table = TopicTable.open(new.life.log.store, "t", SystemClock())
        moves = {0: start_move(table.snapshot, 0, 1)}
        move_starts(table, table.snapshot.version, moves, "retention", now_ms=SystemClock().now_us() // 1000)
        await new.stop()
        with mock.patch.object(landed, "read_entry", side_effect=FileNotFoundError):
            await old.start(tmp_path / "lake")
        await old.stop()
        assert (in_table(tmp_path / "lake"), old.set_aside()) == ([], set())

    asyncio.run(run())
