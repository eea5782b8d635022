"""Histories of commits, snapshots, resets and losses: what a group goes on with is never past what it committed."""

import random
from pathlib import Path

import pytest
from chaos import seeds
from fake_log import FakeLog
from groups_rig import refusal, run
from offsets_rig import Server, log_with, server

from siltlog.consumers.groups.messages import Membership
from siltlog.infra import names
from siltlog.infra.errors import SiltlogError
from siltlog.infra.redis.keys import group_key

PARTITIONS = 3
RECORDS = 1_000
STEPS = 60


class History:
    """One group. Per partition what was answered last, and what is sure to be kept."""

    def __init__(self, r: Server, chance: random.Random) -> None:
        self.r = r
        self.chance = chance
        self.committed = dict.fromkeys(range(PARTITIONS), 0)
        self.kept = dict(self.committed)
        self.told: Membership | None = None
        self.members = 0

    async def step(self) -> None:
        choices = [self.commit] * 6 + [self.tick] * 2 + [self.flush_table, self.leave, self.move, self.lose, self.age]
        await self.chance.choice(choices)()

    async def join(self) -> Membership:
        if self.told is None:
            self.members += 1
            try:
                self.told = await self.r.join(f"m{self.members}", "t", auto_offset_reset="latest")
            except SiltlogError:
                # Something of the group cannot be kept for now: nobody is told anything.
                assert self.r.system.refusing
                self.r.system.refusing = False
                self.told = await self.r.join(f"m{self.members}", "t", auto_offset_reset="latest")
            assert self.told.assignment is not None
            self.see({at.key.partition: at.offset for at in self.told.assignment})
        return self.told

    def see(self, offsets: dict[int, int]) -> None:
        for number, offset in offsets.items():
            assert self.kept[number] <= offset <= self.committed[number], (number, offset, self.kept, self.committed)
            self.committed[number] = offset

    async def commit(self) -> None:
        told = await self.join()
        number = self.chance.randrange(PARTITIONS)
        back = self.chance.random() < 0.15
        offset = self.chance.randint(0, self.committed[number]) if back else self._on(self.committed[number])
        try:
            await self.r.commit({number: offset}, told, member=f"m{self.members}")
        except SiltlogError:
            # It cannot be kept for now: nobody was told, and either is right.
            assert self.r.system.refusing
            self.kept[number] = min(self.kept[number], offset)
            self.committed[number] = max(self.committed[number], offset)
            return
        if offset < self.committed[number]:
            self.kept[number] = offset
        self.committed[number] = offset

    def _on(self, offset: int) -> int:
        return min(offset + self.chance.randint(0, 20), RECORDS)

    async def tick(self) -> None:
        self.r.system.refusing = False
        await self.r.tick()
        offsets = await self.r.committed()
        self.see(offsets)
        self.kept |= offsets

    async def flush_table(self) -> None:
        view = self.r.log.topic(names.OFFSETS_TOPIC).partitions[0]
        view.flush()
        if self.chance.random() < 0.5:
            view.evict()

    async def leave(self) -> None:
        if self.told is not None:
            self.r.system.refusing = False
            await self.r.groups.members.leave("g", f"m{self.members}")
            self.told = None

    async def move(self) -> None:
        """Does what a reset does."""
        await self.leave()
        number = self.chance.randrange(PARTITIONS)
        offset = self.chance.randint(0, RECORDS)
        self.r.system.refusing = False
        await self.r.commit({number: offset})
        self.committed[number] = self.kept[number] = offset

    async def lose(self) -> None:
        await self.r.redis.command("FLUSHALL")
        if self.told is not None:
            assert (await refusal(self.r.commit({0: 0}, self.told, member=f"m{self.members}"))).status == 409
        self.told = None
        self.see(await self.r.committed())

    async def age(self) -> None:
        """Redis comes back without what was committed last, which `_offsets` may have."""
        key = group_key("g", "offsets")
        before = await self.r.redis.command("HGETALL", key)
        await self.commit()
        if self.chance.random() < 0.5:
            await self.tick()
        await self.leave()
        pairs = before.items() if isinstance(before, dict) else zip(before[::2], before[1::2], strict=True)
        await self.r.redis.command("HSET", key, *[part for pair in pairs for part in pair])
        await self.r.redis.command("HDEL", group_key("g", "state"), "restored/c")
        self.r.system.refusing = False
        self.see(await self.r.committed())


async def history(url: str, log: FakeLog, seed: int) -> None:
    chance = random.Random(seed)
    async with server(url, log) as r:
        await r.redis.command("FLUSHALL")
        story = History(r, chance)
        await r.commit(story.committed)
    for _ in range(4):
        # Each time another server, that knows only what is stored.
        async with server(url, log) as r:
            story.r = r
            await story.leave()
            for _ in range(STEPS // 4):
                if chance.random() < 0.1:
                    r.system.refusing = not r.system.refusing
                await story.step()


@pytest.mark.rule("O1", "O2", "O4")
@pytest.mark.chaos
@pytest.mark.parametrize("seed", seeds(12))
def test_nothing_is_skipped(valkey_url: str, tmp_path: Path, seed: int) -> None:
    run(history(valkey_url, log_with(tmp_path, RECORDS, t=PARTITIONS), seed))
