"""Giving up and replaying over a log whose appends fail, before or after they have landed."""

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest
from chaos import seeds
from fake_log import FakeLog, FakeTopic
from groups_rig import Rig, rig, run

from siltlog.consumers.dead_letters import marks as dead_letter_marks
from siltlog.consumers.dead_letters.discard import DeadLetterRange, Discard, DiscardRequest
from siltlog.consumers.dead_letters.letters import DeadLetters
from siltlog.consumers.dead_letters.listing import DeadLetterList
from siltlog.consumers.dead_letters.marks import MarkIndex
from siltlog.consumers.dead_letters.record import said_of, stored_records
from siltlog.consumers.dead_letters.replay import DeadLetterName, Replay, ReplayRequest
from siltlog.consumers.groups.messages import CommitRequest, CommittedOffset, DeadLetterRequest
from siltlog.consumers.reading.fetch import Fetcher
from siltlog.consumers.reading.row_groups import RowGroups
from siltlog.infra.clock import SystemClock
from siltlog.infra.errors import OutcomeUnknown, Refused, Unavailable
from siltlog.infra.records import NewRecord
from siltlog.infra.store.store import open_store

RECORDS = 30


class FlakySystem:
    """A SystemLog over the log in memory; some appends are refused, and of some the answer is lost."""

    def __init__(self, log: FakeLog, rng: random.Random) -> None:
        self.log, self.rng = log, rng
        self.flaky = 0.3
        self.paused = False
        """Whether others run before something is appended."""
        self.last: dict[tuple[str, int, str], tuple[int, int]] = {}

    async def ensure(self, name: str, partitions: int, config: Mapping[str, Any]) -> FakeTopic:
        if name not in {one.name for one in self.log.topics()}:
            self.log.create(name, partitions)
        return self.log.topic(name)

    async def dead_letters(self, topic: str) -> FakeTopic:
        return await self.ensure(f"{topic}.dlq", len(self.log.topic(topic).partitions), {})

    async def append(
        self,
        topic: str,
        partition: int,
        records: Sequence[NewRecord],
        *,
        producer_id: str = "",
        sequences: Sequence[int] = (),
        epoch: int = 0,
    ) -> list[int | None]:
        if self.paused:
            await asyncio.sleep(0)
        if self.rng.random() < self.flaky:
            raise Unavailable("not now")
        view = self.log.topic(topic).partitions[partition]
        offsets: list[int | None] = []
        for record, sequence in zip(records, sequences or [None] * len(records), strict=True):
            last = self.last.get((topic, partition, producer_id))
            if last is not None and sequence is not None and sequence <= last[0]:
                offsets.append(None)
                continue
            offsets.append(view.high_watermark)
            if sequence is not None:
                self.last[topic, partition, producer_id] = sequence, view.high_watermark
            headers = list(record.headers) or None
            times = [record.timestamp_us or 0]
            view.append([record.value], keys=[record.key], headers=[headers], timestamps=times)
        if self.rng.random() < self.flaky:
            raise OutcomeUnknown("lost")
        return offsets

    async def delete_records(self, topic: str, partition: int, before_offset: int) -> int:
        if self.rng.random() < self.flaky:
            raise Unavailable("not now")
        view = self.log.topic(topic).partitions[partition]
        if before_offset > view.bounds().log_start_offset:
            view.flush()
            view.retain(before_offset)
        return view.bounds().log_start_offset

    def epoch_of(self, topic: str) -> int:
        return 1

    async def last_of(self, topic: str, partition: int, producer_id: str) -> tuple[int, int] | None:
        return self.last.get((topic, partition, producer_id))

    async def producers_of(self, topic: str, prefix: str) -> set[str]:
        return {known for name, _, known in self.last if name == topic and known.startswith(prefix)}


def letters_of(r: Rig, log: FakeLog, row_groups: RowGroups, system: FlakySystem) -> DeadLetters:
    fetcher = Fetcher(log, row_groups)
    return DeadLetters(r.groups.offsets, fetcher, system, SystemClock(), MarkIndex(fetcher))


def replay_of(log: FakeLog, row_groups: RowGroups, system: FlakySystem) -> Replay:
    fetcher = Fetcher(log, row_groups)
    return Replay(log, fetcher, system, SystemClock(), MarkIndex(fetcher))


def filled(folder: Path, partitions: int = 1) -> FakeLog:
    log = FakeLog(open_store(f"file://{folder}"))
    for view in log.create("t", partitions).partitions:
        view.append([b"%d" % number for number in range(RECORDS)], headers=[[("own", b"x")]] * RECORDS)
    return log


def dead(log: FakeLog) -> Counter[int]:
    """How often each source offset is among the dead letters that are there."""
    found: Counter[int] = Counter()
    if "t.dlq" in {one.name for one in log.topics()}:
        [view] = log.topic("t.dlq").partitions
        start = view.bounds().log_start_offset
        for batch in view.head:
            for record in stored_records(batch):
                said = said_of(record.headers)
                assert said is not None and record.value == b"%d" % int(said["offset"])
                found[int(said["offset"])] += record.offset >= start
    return found


class Giver:
    """A member that gives up records until it is answered."""

    def __init__(self, r: Rig, dead_letters: DeadLetters) -> None:
        self.r, self.dead_letters = r, dead_letters
        self.members = 0
        self.generation = 0

    async def join(self) -> None:
        self.members += 1
        self.generation = (await self.r.join("g", f"m{self.members}", "t")).generation

    async def go_back(self, offset: int) -> None:
        await self.r.groups.members.leave("g", f"m{self.members}")
        request = CommitRequest(offsets=[CommittedOffset("t", 0, offset)])
        await self.r.groups.offsets.commit("g", request)
        await self.join()

    async def bury(self, offset: int) -> None:
        request = DeadLetterRequest(
            topic="t", partition=0, offset=offset, member_id=f"m{self.members}", generation=self.generation, error="no"
        )
        for _ in range(100):
            try:
                await self.dead_letters.bury("g", request)
                return
            except (Unavailable, OutcomeUnknown):
                continue
        raise AssertionError("it is never answered")


@asynccontextmanager
async def giving(
    valkey_url: str, folder: Path, rng: random.Random
) -> AsyncIterator[tuple[Giver, FakeLog, FlakySystem, RowGroups]]:
    """A member that has joined, on a log whose appends fail."""
    log = filled(folder)
    system = FlakySystem(log, rng)
    row_groups = RowGroups(log.store)
    try:
        async with rig(valkey_url, log) as r:  # type: ignore[arg-type]
            giver = Giver(r, letters_of(r, log, row_groups, system))
            await giver.join()
            yield giver, log, system, row_groups
    finally:
        row_groups.close()


@pytest.mark.rule("D4", "D5")
@pytest.mark.chaos
@pytest.mark.parametrize("seed", seeds(4))
def test_what_was_given_up_is_there_once_each_time_the_group_comes_by(
    valkey_url: str, tmp_path: Path, seed: int
) -> None:
    rng = random.Random(seed)

    async def scenario() -> None:
        async with giving(valkey_url, tmp_path, rng) as (giver, log, *_):
            at = passes = 0
            for _ in range(40):
                if rng.random() < 0.15 or at == RECORDS:
                    at, passes = rng.randrange(RECORDS), passes + 1
                    await giver.go_back(at)
                if rng.random() < 0.1 and "t.dlq" in {one.name for one in log.topics()}:
                    [view] = log.topic("t.dlq").partitions
                    view.retain(view.high_watermark)
                offset = rng.randrange(at, RECORDS)
                before = dead(log)
                await giver.bury(offset)
                assert dead(log)[offset] >= 1, "given up and nowhere"
                assert dead(log) - before in ({}, {offset: 1}), "each answer stands for one copy at most"
                assert max(dead(log).values()) <= passes + 1
                at = offset + 1

    run(scenario())


@pytest.mark.chaos
@pytest.mark.parametrize("seed", seeds(4))
def test_each_dead_letter_goes_back_once_however_often_it_is_repeated(
    valkey_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    monkeypatch.setattr(dead_letter_marks, "CHUNK_RECORDS", 3)
    rng = random.Random(seed)

    async def scenario() -> None:
        async with giving(valkey_url, tmp_path, rng) as (giver, log, system, row_groups):
            given = sorted(rng.sample(range(RECORDS), 20))
            for offset in given:
                await giver.bury(offset)
            replay = replay_of(log, row_groups, system)
            some = sorted(rng.sample(range(20), 9))
            for replay_id, offsets in (("all", None), ("some", some)):
                chosen = None if offsets is None else [DeadLetterName(0, offset) for offset in offsets]
                request = ReplayRequest(replay_id, chosen)
                answered = 0
                while answered < 2:
                    try:
                        await replay.replay("t", request)
                        answered += 1
                    except (Unavailable, OutcomeUnknown):
                        continue
            with pytest.raises(Refused, match="take a new one"):
                await replay.replay("t", ReplayRequest("some", None))
            [view] = log.topic("t").partitions
            came = [record for batch in view.head for record in stored_records(batch)][RECORDS:]
            assert [int(record.value or b"") for record in came] == given + [given[offset] for offset in some]
            assert {record.headers for record in came} == {(("own", b"x"),)}

    run(scenario())


@pytest.mark.rule("D10")
@pytest.mark.chaos
@pytest.mark.parametrize("seed", seeds(4))
def test_what_was_discarded_stays_so_whatever_fails_in_between(
    valkey_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    monkeypatch.setattr(dead_letter_marks, "CHUNK_RECORDS", 3)
    rng = random.Random(seed)

    async def scenario() -> None:
        async with giving(valkey_url, tmp_path, rng) as (giver, log, system, row_groups):
            for offset in range(RECORDS):
                await giver.bury(offset)
            [view] = log.topic("t.dlq").partitions
            left = set(range(RECORDS))
            while left:
                chosen = rng.sample(sorted(left), min(len(left), rng.randrange(1, 6)))
                left -= set(chosen)
                request = DiscardRequest([DeadLetterName(0, offset) for offset in chosen])
                answered = False
                while not answered:
                    # As after a kill: what is known is read anew.
                    fetcher = Fetcher(log, row_groups)
                    marks = MarkIndex(fetcher)
                    with suppress(Unavailable, OutcomeUnknown):
                        await Discard(log, system, marks, None).discard("t", request)
                        answered = True
                page = await DeadLetterList(log, fetcher, marks).page("t", None, None, 100, "text")
                shown = [msgspec.json.decode(letter)["offset"] for letter in page.letters]
                assert shown == sorted(left, reverse=True) and page.letters_all == len(left)
                assert view.bounds().log_start_offset <= min(left, default=view.high_watermark)
            system.flaky = 0
            last = DiscardRequest(ranges=[DeadLetterRange(0, 0, RECORDS - 1)])
            done = await Discard(log, system, MarkIndex(Fetcher(log, row_groups)), None).discard("t", last)
            assert done.discarded == 0
            assert view.bounds().log_start_offset == view.high_watermark

    run(scenario())


def test_of_two_that_discard_at_once_one_does(valkey_url: str, tmp_path: Path) -> None:

    async def scenario() -> None:
        async with giving(valkey_url, tmp_path, random.Random(0)) as (giver, log, system, row_groups):
            system.flaky = 0
            for offset in range(5):
                await giver.bury(offset)
            log.pause = lambda: asyncio.sleep(0)
            discard = Discard(log, system, MarkIndex(Fetcher(log, row_groups)), None)
            system.paused = True
            request = DiscardRequest(ranges=[DeadLetterRange(0, 1, 4)])
            done = await asyncio.gather(*(discard.discard("t", request) for _ in range(2)))
            assert sorted((one.discarded, one.duplicates) for one in done) == [(0, 4), (4, 0)]

    run(scenario())


def test_a_nack_counts_and_gives_up_at_the_last_attempt(valkey_url: str, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with giving(valkey_url, tmp_path, random.Random(0)) as (giver, log, system, _):
            system.flaky = 0
            dead_letters = giver.dead_letters
            request = DeadLetterRequest(
                topic="t", partition=0, offset=4, member_id="m1", generation=giver.generation, error="no"
            )
            told = [await dead_letters.nack("g", request, 3) for _ in range(3)]
            assert [one.attempts for one in told] == [1, 2, 3]
            assert [one.buried is None for one in told] == [True, True, False]
            assert told[2].buried is not None and told[2].buried.topic == "t.dlq" and not told[2].buried.duplicate
            assert dead(log) == {4: 1}
            # It is done: there is nothing to try any more.
            with pytest.raises(Refused, match="has committed 5"):
                await dead_letters.nack("g", request, 3)
            assert (dead_letters.attempts["t"], dead_letters.buried["t"]) == (3, 1)

    run(scenario())
