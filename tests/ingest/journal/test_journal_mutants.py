"""Each rule of what a journal's writer does next is needed: a mutant of each is noticed."""

import asyncio
import random
from pathlib import Path
from typing import Any

import pytest
from chaos import seeds
from journal_rig import Told, held_store, running_journal, shipped
from mutants import Mutant, Patch, Play, hold, instead, nothing, noticed, plays

from siltlog.infra.errors import Unavailable
from siltlog.ingest.journal import journal as runtime
from siltlog.ingest.journal import pins, writer
from siltlog.ingest.journal.journal import Journal
from siltlog.ingest.journal.pins import Pins
from siltlog.ingest.journal.writer import IN_FLIGHT_MAX, OBJECT_BYTES_MAX, Shipment, Writer
from siltlog.ingest.wal import Frame, FrameKind

INTERVAL_SECONDS = 0.2
MIB = 1024 * 1024


def groups_go_whole_and_no_more_often_than_they_may(seed: int, _: Path) -> None:
    """CJ1"""
    chance = random.Random(seed)
    one: Writer[int] = Writer(INTERVAL_SECONDS, IN_FLIGHT_MAX)
    sizes: list[int] = []
    gone: list[int] = []
    now, last = 10.0, float("-inf")
    for _n in range(300):
        if chance.random() < 0.5:
            sizes.append(chance.choice((1, 100, 3 * MIB, 9 * MIB)))
            one.add(len(sizes) - 1, sizes[-1])
        else:
            now += chance.choice((0.01, 0.05, 0.5))
        waiting = sum(sizes[len(gone) :])
        shipment = one.take(now)
        rested = now - last >= INTERVAL_SECONDS
        if shipment is None:
            assert not waiting or not (rested or waiting >= OBJECT_BYTES_MAX), "what is due does not go"
            continue
        nbytes = sum(sizes[group] for group in shipment.groups)
        assert shipment.groups, "an object is paid for that has nothing"
        assert rested or waiting >= OBJECT_BYTES_MAX, "one goes before its time"
        assert nbytes <= OBJECT_BYTES_MAX or len(shipment.groups) == 1, f"an object has {nbytes} bytes"
        gone += shipment.groups
        assert gone == [*range(len(gone))], "groups go in another order, twice or not at all"
        last = now
        one.landed_one(shipment.number)


def what_a_successor_must_read_is_bounded(seed: int, _: Path) -> None:
    """CJ10"""
    chance = random.Random(seed)
    found = Pins()
    ends = dict.fromkeys(range(4), 0)
    flushed = dict.fromkeys(range(4), 0)

    def offset(topic_id: bytes, _: int) -> int:
        return flushed[topic_id[0]]

    for number in range(1, 1_500):
        partition = chance.choice((0, 1, 2, 2, 2)) if chance.random() < 0.98 else 3
        topic = bytes([partition]) * 16
        found.add(number, [Frame(FrameKind.RECORDS, topic, 0, 1, ends[partition], 1, b"")])
        ends[partition] += 1
        # The first two are flushed in their own time, the others where somebody asks for it.
        if chance.random() < 0.05:
            flushed.update({at: ends[at] for at in (0, 1)})
        for at, _partition in found.pressing(offset):
            flushed[at[0]] = ends[at[0]]
        found.flushed_below(number + 1, offset, lambda _: True)
        assert len(found) <= 301, f"a successor reads {len(found)} objects"


def what_has_not_landed_is_bounded(seed: int, folder: Path) -> None:
    """CJ10"""
    chance = random.Random(seed)
    bound = chance.randrange(50, 400)
    largest = 40

    async def play() -> None:
        store, release = held_store(folder)
        told = Told()
        async with running_journal(store, told) as journal:
            try:
                for offset in range(100):
                    try:
                        journal.check_room()
                    except Unavailable as refusal:
                        assert refusal.error_code == "overloaded"
                        assert journal.backlog_bytes > bound, "there is room"
                        break
                    journal.ship(shipped(offset, told, chance.randrange(1, largest)))
                    assert journal.backlog_bytes <= bound + largest, f"{journal.backlog_bytes} bytes have not landed"
                taken = offset
            finally:
                release.set()
            async with asyncio.timeout(20):
                while len(told.landed) < taken:
                    await asyncio.sleep(0.002)
            journal.check_room()

    with Patch.context() as patch:
        patch.setattr(runtime, "BACKLOG_BYTES_MAX", bound)
        asyncio.run(play())


def _each_by_itself(patch: Patch) -> None:
    patch.setattr(writer, "OBJECT_BYTES_MAX", 0)


def _rests_before_it_goes(patch: Patch) -> None:
    add = Writer.add

    def mutant(self: Writer[Any], group: Any, nbytes: int) -> None:
        if not self._waiting:
            self._taken_seconds += 2 * INTERVAL_SECONDS if self._taken_seconds > 0 else 1e9
        add(self, group, nbytes)

    patch.setattr(Writer, "add", mutant)


def _goes_when_nothing_comes(patch: Patch) -> None:
    take = Writer.take

    def mutant(self: Writer[Any], now_seconds: float) -> Shipment[Any] | None:
        found = take(self, now_seconds)
        if found is None and not self._waiting and now_seconds >= self._taken_seconds + self._interval_seconds:
            self._taken_seconds = now_seconds
            found = Shipment(self._next, self.first, ())
        return found

    patch.setattr(Writer, "take", mutant)


def _all_that_waits(patch: Patch) -> None:
    take = Writer.take

    def mutant(self: Writer[Any], now_seconds: float) -> Shipment[Any] | None:
        found = take(self, now_seconds)
        if found is None:
            return None
        rest = tuple(group for group, _ in self._waiting)
        self._waiting.clear()
        self._waiting_bytes = 0
        return found._replace(groups=(*found.groups, *rest))

    patch.setattr(Writer, "take", mutant)


MUTANTS: dict[str, Mutant] = {
    "CJ1 each group is an object": Mutant(groups_go_whole_and_no_more_often_than_they_may, _each_by_itself),
    "CJ1 the first after a rest waits": Mutant(groups_go_whole_and_no_more_often_than_they_may, _rests_before_it_goes),
    "CJ1 a log that rests is written": Mutant(
        groups_go_whole_and_no_more_often_than_they_may, _goes_when_nothing_comes
    ),
    "CJ1 all that waits goes at once": Mutant(groups_go_whole_and_no_more_often_than_they_may, _all_that_waits),
    "CJ10 nothing presses": Mutant(what_a_successor_must_read_is_bounded, instead(pins, "OBJECTS_MAX", 1 << 30)),
    "CJ10 there is always room": Mutant(what_has_not_landed_is_bounded, instead(Journal, "check_room", nothing)),
}


@pytest.mark.rule("CJ1", "CJ10")
@pytest.mark.chaos
@pytest.mark.parametrize("play", plays(MUTANTS), ids=lambda play: play.__name__)
def test_a_journal_keeps_its_rules(play: Play, tmp_path: Path) -> None:
    hold(play, seeds(3), tmp_path)


@pytest.mark.parametrize("name", MUTANTS)
def test_a_mutant_is_noticed(name: str, tmp_path: Path) -> None:
    noticed(MUTANTS[name], tmp_path)
