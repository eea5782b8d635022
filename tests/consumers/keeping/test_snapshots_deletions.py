"""What was deleted stays so when Redis comes back with files of before, and nothing else goes."""

import asyncio
import random
import shutil
from pathlib import Path

import pytest
from chaos import seeds
from fake_log import FakeLog
from groups_rig import offsets, refusal, run
from offsets_rig import Server, log_with, server
from older_redis import Files, come_back, files_of

from siltlog.consumers.groups.messages import PartitionName
from siltlog.consumers.keeping.saved_offsets import FORGOTTEN_MS
from siltlog.infra.errors import SiltlogError, Unavailable
from siltlog.infra.redis.embedded import EmbeddedValkey
from siltlog.infra.redis.keys import group_key

PARTITIONS = 3
RECORDS = 1_000
STEPS = 80
SERVERS = 4


@pytest.mark.rule("O8")
def test_a_valkey_that_comes_back_with_older_files_has_nothing_that_was_deleted_since(
    own: EmbeddedValkey, tmp_path: Path
) -> None:
    async def scenario() -> None:
        folder, older = tmp_path / "valkey", tmp_path / "older"
        async with server(own.start(), log_with(tmp_path, t=2)) as r:
            await r.commit({0: 10, 1: 20})
            await r.commit({0: 30}, group="h")
            await r.tick()
            await asyncio.to_thread(own.stop)
            shutil.copytree(folder, older)
            await asyncio.to_thread(own.start)
            await _patiently(r)
            await r.groups.offsets.forget("g", [PartitionName("t", 0)])
            await r.groups.delete("h")
            await asyncio.to_thread(own.stop)
            shutil.rmtree(folder)
            shutil.copytree(older, folder)
            await asyncio.to_thread(own.start)
            await _patiently(r)
            assert await r.committed() == {1: 20}
            assert [row[0] for row in (await r.groups.list_groups("", "", 10))[0]] == ["g"]
            assert (await refusal(r.groups.describe("h"))).error_code == "unknown_group"
            assert offsets(await r.join("m", "t", group="h")) == {0: 0, 1: 0}

    run(scenario())


async def _patiently(r: Server) -> None:
    for _ in range(3_000):
        try:
            await r.redis.command("PING")
        except Unavailable:
            await asyncio.sleep(0.02)
        else:
            return
    raise AssertionError("Valkey does not come back")


@pytest.mark.rule("O8")
def test_a_group_that_was_deleted_is_not_listed_before_anybody_calls_it(url: str, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with server(url, log_with(tmp_path, t=1, empty=0)) as r:
            await r.commit({0: 10}, group="kept")
            await r.tick()
            await r.commit({0: 10}, group="gone")
            # One that never committed anything, too.
            await r.join("m", "empty", group="idle")
            await r.groups.members.leave("idle", "m")
            await r.tick()
            files = await files_of(r.redis)
            await r.groups.delete("gone")
            await r.groups.delete("idle")
            await come_back(r.redis, files, ("kept", "gone", "idle"))
            assert [row[0] for row in (await r.groups.list_groups("", "", 10))[0]] == ["kept"]
            assert await r.redis.command("KEYS", "silt:{gone}:offsets") == []

    run(scenario())


@pytest.mark.rule("O8")
def test_the_keeper_does_not_save_again_what_was_deleted(url: str, tmp_path: Path) -> None:
    async def scenario() -> None:
        log = log_with(tmp_path, t=1)
        async with server(url, log) as r:
            told = await r.join("m", "t")
            await r.commit({0: 50}, told)
            await r.groups.members.leave("g", "m")
            # Not saved yet: so the files say.
            files = await files_of(r.redis)
            await r.tick()
            await r.groups.offsets.forget("g", [PartitionName("t", 0)])
            await come_back(r.redis, files)
            await r.tick()
            assert r.saved() == {} and await r.committed() == {}
        async with server(url, log) as r:
            await come_back(r.redis, files)
            await r.tick()
            assert r.saved() == {} and await r.committed() == {}

    run(scenario())


@pytest.mark.rule("O8")
def test_what_is_committed_after_a_deletion_is_above_it_whatever_the_time(url: str, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with server(url, log_with(tmp_path, t=2)) as r:
            await r.commit({0: 50, 1: 60})
            await r.groups.offsets.forget("g", [PartitionName("t", 0)])
            # The clock of whoever took over.
            await r.redis.pass_ms(-60_000)
            told = await r.join("m", "t")
            await r.tick()
            await r.commit({0: 7}, told)
            await come_back(r.redis, await files_of(r.redis))
            assert await r.committed() == {0: 7, 1: 60}
            await r.redis.pass_ms(60_000)

    run(scenario())


def test_a_refusal_forgets_nothing(url: str, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with server(url, log_with(tmp_path, t=1)) as r:
            await r.commit({0: 50})
            # As members of a classic group that are no consumers: nobody knows what they read.
            state = group_key("g", "state")
            await r.redis.command("HSET", state, "type", "classic", "phase", "stable", "protocol_type", "connect")
            await r.redis.command("ZADD", group_key("g", "sessions"), 10**15, "m")
            refused = await refusal(r.groups.offsets.forget("g", [PartitionName("t", 0)]))
            assert refused.error_code == "group_not_empty" and r.saved() == {0: 50}

    run(scenario())


@pytest.mark.rule("O8")
def test_deletions_are_remembered_for_a_week(url: str, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with server(url, log_with(tmp_path, t=1)) as r:
            await r.commit({0: 50})
            await r.commit({0: 50}, group="h")
            await r.groups.offsets.forget("g", [PartitionName("t", 0)])
            await r.groups.delete("h")
            r.clock.later_ms = FORGOTTEN_MS - 60_000
            await r.tick()
            table = r.offsets.table
            assert table.deleted_groups() == ["h"] and len(table.forgotten("g")) == 1
            r.clock.later_ms = FORGOTTEN_MS + 60_000
            await r.tick()
            assert table.deleted_groups() == [] and table.forgotten("g") == []

    run(scenario())


class Life:
    """One group whose Redis comes back with files of any time before.

    Of each partition the offsets that were answered in their order, None where it was forgotten, are known, and which
    of them `_offsets` has. After a return the later of what the files had and of what was saved counts.
    """

    def __init__(self, r: Server, chance: random.Random) -> None:
        self.r = r
        self.chance = chance
        self.answered: dict[int, list[int | None]] = {number: [None] for number in range(PARTITIONS)}
        self.saved = dict.fromkeys(range(PARTITIONS), 0)
        self.files: list[tuple[Files, dict[int, int]]] = []
        self.members = self.returns = 0

    def answer(self, number: int, offset: int | None, *, saved: bool) -> None:
        self.answered[number].append(offset)
        if saved:
            self.saved[number] = len(self.answered[number]) - 1

    def now(self) -> dict[int, int]:
        return {number: last for number, told in self.answered.items() if (last := told[-1]) is not None}

    async def step(self) -> None:
        acts = [self.read] * 3 + [self.move, self.forget, self.delete] + [self.tick, self.keep_files, self.lose] * 2
        await self.chance.choice(acts)()
        try:
            assert await self.r.committed() == self.now()
        except SiltlogError as error:
            assert error.error_code == "unknown_group" and not self.now()

    async def read(self) -> None:
        """A member comes, reads on and goes: what it commits is saved by the next tick."""
        self.members += 1
        member = f"m{self.members}"
        told = await self.r.join(member, "t", auto_offset_reset="earliest")
        first = offsets(told).keys() - self.now().keys()
        for number, offset in offsets(told).items():
            assert offset == self.now().get(number, 0)
            if number in first:
                self.answer(number, offset, saved=False)
        if first:
            # Whatever waits is saved with them.
            self.all_saved()
        for _ in range(self.chance.randrange(3)):
            number = self.chance.randrange(PARTITIONS)
            offset = min(self.now()[number] + self.chance.randrange(20), RECORDS)
            await self.r.commit({number: offset}, told, member=member)
            self.answer(number, offset, saved=False)
        await self.r.groups.members.leave("g", member)

    async def move(self) -> None:
        number, offset = self.chance.randrange(PARTITIONS), self.chance.randint(0, RECORDS)
        await self.r.commit({number: offset})
        self.answer(number, offset, saved=False)
        self.all_saved()

    async def forget(self) -> None:
        number = self.chance.randrange(PARTITIONS)
        try:
            await self.r.groups.offsets.forget("g", [PartitionName("t", number)])
        except SiltlogError as error:
            assert error.error_code == "unknown_group" and not self.now()
            return
        self.answer(number, None, saved=True)

    async def delete(self) -> None:
        try:
            await self.r.groups.delete("g")
        except SiltlogError as error:
            assert error.error_code == "unknown_group" and not self.now()
            return
        for number in range(PARTITIONS):
            self.answer(number, None, saved=True)
        assert (await self.r.groups.list_groups("", "", 10))[0] == []

    async def tick(self) -> None:
        await self.r.tick()
        self.all_saved()

    def all_saved(self) -> None:
        self.saved = {number: len(told) - 1 for number, told in self.answered.items()}

    async def keep_files(self) -> None:
        at = {number: len(told) - 1 for number, told in self.answered.items()}
        self.files.append((await files_of(self.r.redis), at))

    async def lose(self) -> None:
        """Redis comes back with older files, at times under the clock of another machine."""
        files, at = self.chance.choice([*self.files, ({}, dict.fromkeys(range(PARTITIONS), 0))])
        self.returns += 1
        await come_back(self.r.redis, files)
        await self.r.redis.pass_ms(self.chance.choice((0, 0, 5, 3_000, -3_000)))
        for number, told in self.answered.items():
            there = max(at[number], self.saved[number])
            del told[there + 1 :]
        # Files of a time that is lost by now are of another history.
        self.files = [
            (files, at)
            for files, at in self.files
            if all(at[number] < len(told) for number, told in self.answered.items())
        ]


@pytest.mark.rule("O4", "O8")
@pytest.mark.chaos
@pytest.mark.parametrize("seed", seeds(12))
def test_whatever_files_redis_comes_back_with_what_was_answered_last_counts(
    url: str, tmp_path: Path, seed: int
) -> None:
    async def play(log: FakeLog) -> None:
        chance = random.Random(seed)
        life: Life | None = None
        for _ in range(SERVERS):
            # Each time another server, that knows only what is stored.
            async with server(url, log) as r:
                if life is None:
                    life = Life(r, chance)
                life.r = r
                await r.redis.pass_ms(0)
                for _ in range(STEPS // SERVERS):
                    await life.step()
        assert life is not None and life.returns

    run(play(log_with(tmp_path, RECORDS, t=PARTITIONS)))
