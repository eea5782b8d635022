"""A time is looked up as an offset, where timestamps do not rise, offsets have gaps, and files come and go."""

import asyncio
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import pytest
from fake_log import CREATED_US, FakeLog

from siltlog.consumers.reading.lookup import Lookup, Timed
from siltlog.consumers.reading.row_groups import RowGroups
from siltlog.infra.errors import CorruptData
from siltlog.infra.store.local import LocalStore

T = TypeVar("T")
SPAN_US = 40_000
"""Statistics know milliseconds: times lie some apart, and some within one."""


class MovingRowGroups(RowGroups):
    """Something may happen between the choice of a file and its reading."""

    before: Callable[[], None] | None = None

    async def run(self, read: Callable[[], T]) -> T:
        happens, self.before = self.before, None
        if happens is not None:
            happens()
        return await super().run(read)


class Rig:
    def __init__(self, folder: Path) -> None:
        self.log = FakeLog(LocalStore(str(folder)))
        self.topic = self.log.create("flights")
        self.view = self.topic.partitions[0]
        self.row_groups = MovingRowGroups(self.log.store)
        self.lookup = Lookup(self.log.store, self.row_groups)

    def latest(self) -> Timed | None:
        return asyncio.run(self.lookup.latest(self.topic, self.view))

    def offset_at(self, timestamp_us: int) -> int:
        return asyncio.run(self.lookup.offset_at(self.topic, self.view, timestamp_us))


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    rig = Rig(tmp_path)
    yield rig
    rig.row_groups.close()


@pytest.mark.parametrize("seed", range(6))
def test_the_lowest_of_those_that_are_left(rig: Rig, seed: int) -> None:
    dice = random.Random(seed)
    view = rig.view
    there: dict[int, int] = {}
    for _ in range(12):
        first = view.high_watermark
        times = [CREATED_US + dice.randrange(SPAN_US) for _ in range(dice.randint(1, 6))]
        there |= {first + at: time for at, time in enumerate(times)}
        view.append([b"v"] * len(times), timestamps=times)
        if dice.random() < 0.8:
            view.flush()
    view.flush(view.high_watermark - 2)
    for files in (rig.topic.snapshot.files_of(0)[1:4], rig.topic.snapshot.files_of(0)[-2:]):
        among = range(files[0].first_offset, files[-1].last_offset)
        gone = [offset for offset in among if dice.random() < 0.4]
        view.rewrite(files, without=gone)
        for offset in gone:
            there.pop(offset)
    view.retain(dice.randrange(6))
    view.evict()
    start = view.bounds().log_start_offset
    left = {offset: time for offset, time in there.items() if offset >= start}
    for ask in [*range(-500, SPAN_US + 500, 711), *(time - CREATED_US for time in left.values())]:
        at = CREATED_US + ask
        expected = min((offset for offset, time in left.items() if time >= at), default=view.high_watermark)
        assert rig.offset_at(at) == expected, ask
    latest = rig.latest()
    assert latest is not None
    assert latest.timestamp_us == max(left.values())
    assert latest.offset == min(offset for offset, time in left.items() if time == latest.timestamp_us)


@pytest.mark.parametrize("flushed", [0, 2, 4])
def test_the_first_of_the_latest(rig: Rig, flushed: int) -> None:
    assert rig.latest() is None
    view = rig.view
    view.append([b"v"] * 4, timestamps=[CREATED_US + at for at in (7, 9, 9, 8)])
    if flushed:
        view.flush(flushed)
        view.evict()
    assert rig.latest() == (1, CREATED_US + 9)
    view.append([b"v"], timestamps=[CREATED_US + 9])
    assert rig.latest() == (1, CREATED_US + 9), "it is no later"
    view.append([b"v"], timestamps=[CREATED_US + 10])
    assert rig.latest() == (5, CREATED_US + 10)


def test_the_latest_is_in_another_file_by_the_time_it_is_read(rig: Rig) -> None:
    view = rig.view
    for time in (5, 9, 7):
        view.append([b"v"] * 2, timestamps=[CREATED_US + time] * 2)
        view.flush()
    view.evict()
    rig.row_groups.before = lambda: view.rewrite(rig.topic.snapshot.files_of(0), vacuum=True)
    assert rig.latest() == (2, CREATED_US + 9)


def test_a_gap_to_the_end_is_passed_over(rig: Rig) -> None:
    rig.view.append([b"v"] * 3)
    rig.view.flush()
    rig.view.jump(1_000)
    assert rig.offset_at(CREATED_US + 10**9) == 1_000
    assert rig.latest() == (2, CREATED_US + 2)
    rig.view.append([b"v"], timestamps=[CREATED_US + 10**9])
    assert rig.offset_at(CREATED_US + 10**9) == 1_000
    assert rig.offset_at(CREATED_US + 2) == 2


def test_a_file_that_is_replaced_and_vacuumed_meanwhile(rig: Rig) -> None:
    for _ in range(4):
        rig.view.append([b"v"] * 5)
        rig.view.flush()
    rig.view.evict()

    def compact() -> None:
        rig.view.rewrite(rig.topic.snapshot.files_of(0), without=[12], vacuum=True)

    rig.row_groups.before = compact
    assert rig.offset_at(CREATED_US + 12) == 13


def test_damage_is_named(rig: Rig) -> None:
    rig.view.append([b"v"] * 5)
    file = rig.view.flush()
    rig.view.evict()
    assert file is not None
    rig.topic.delete_objects([file])
    with pytest.raises(CorruptData) as raised:
        rig.offset_at(CREATED_US + 3)
    expected = {"topic": "flights", "partition": 0, "first_offset": 0, "last_offset": 4}
    assert raised.value.members == {**expected, "path": f"topics/flights/{file.path}"}
