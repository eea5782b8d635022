"""Several servers of one log on one Redis that ask each other as nodes do, and a seeded history of a group."""

import random
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress

from fake_log import FakeLog
from offsets_rig import Server, server

from siltlog.consumers.keeping.keeper import KeeperAsked, KeeperTold
from siltlog.consumers.keeping.snapshots import OffsetSnapshots
from siltlog.infra.errors import SiltlogError, problem


class Cluster:
    """Servers that ask each other as nodes do. `owner` is who has `_offsets` by the newest view."""

    def __init__(self, url: str, log: FakeLog) -> None:
        self.log = log
        self.servers: dict[str, Server] = {}
        self.owner = ""
        self.epoch = 0
        self.asked = 0
        self._url = url

    async def take(self, name: str) -> Server:
        """The server claims `_offsets`. Whoever had it is not told."""
        self.owner = name
        self.epoch += 2**32
        await self.servers[name].keeps(self.epoch)
        return self.servers[name]

    @asynccontextmanager
    async def running(self, *names_: str) -> AsyncIterator[list[Server]]:
        async with AsyncExitStack() as stack:
            for name in names_:
                entered = server(self._url, self.log, elsewhere=_Hop(self, name))
                self.servers[name] = await stack.enter_async_context(entered)
            await self.take(names_[0])
            yield list(self.servers.values())


class _Hop:
    def __init__(self, cluster: Cluster, name: str) -> None:
        self._cluster = cluster
        self._name = name

    async def ask(self, asked: KeeperAsked) -> KeeperTold | None:
        cluster = self._cluster
        if not cluster.owner:
            raise problem("topic_unavailable", "nobody owns it")
        if cluster.owner == self._name:
            return None
        cluster.asked += 1
        return await cluster.servers[cluster.owner].groups.as_keeper(asked)


def snapshots(r: Server) -> OffsetSnapshots:
    """What the server itself does as the keeper, whatever it has heard."""
    assert r.groups._runner.snapshots is not None
    return r.groups._runner.snapshots


async def flush(r: Server) -> None:
    await r.redis.command("FLUSHALL")


class Life:
    """A seeded history of one group over two servers, of which one at a time owns `_offsets`, with or without the other
    having heard of it."""

    def __init__(self, cluster: Cluster, seed: int) -> None:
        self.cluster = cluster
        self.rng = random.Random(seed)
        self.committed = {0: 0, 1: 0}
        self.kept = dict(self.committed)

    def any(self) -> Server:
        return self.rng.choice(list(self.cluster.servers.values()))

    async def step(self) -> None:
        await self.rng.choice([self.commit] * 4 + [self.tick] * 2 + [self.move, self.zombie, self.lose, self.reset])()
        for r in self.cluster.servers.values():
            for number, offset in (await r.committed()).items():
                assert self.kept[number] <= offset <= self.committed[number], (number, offset, self.kept)
                self.committed[number] = offset

    async def commit(self) -> None:
        r = self.any()
        told = await r.join(f"m{self.rng.random()}", "t", session_timeout_ms=1_000)
        held = {at.key.partition: at.offset for at in told.assignment or ()}
        number = self.rng.randrange(2)
        offset = min(held[number] + self.rng.randrange(9), 1_000)
        members = [one.member for one in (await r.groups.describe("g")).members]
        await self.any().commit({number: offset}, told, member=members[0])
        self.committed[number] = offset
        await self.any().groups.members.leave("g", members[0])

    async def reset(self) -> None:
        number, offset = self.rng.randrange(2), self.rng.randrange(1_000)
        await self.any().commit({number: offset})
        self.committed[number] = self.kept[number] = offset

    async def tick(self) -> None:
        owner = self.cluster.servers[self.cluster.owner]
        await owner.tick()
        self.kept |= await owner.committed()

    async def lose(self) -> None:
        await flush(self.any())

    async def move(self) -> None:
        former = self.cluster.owner
        [other] = [name for name in self.cluster.servers if name != former]
        # What it appends from here on is refused: its claim is over.
        self.cluster.servers[former].system.refusing = True
        self.cluster.servers[other].system.refusing = False
        if self.rng.random() < 0.5:
            self.cluster.servers[former].offsets.lost()
        await self.cluster.take(other)

    async def zombie(self) -> None:
        """A server that has not heard that it lost them goes on, with what it had read."""
        [other] = [r for name, r in self.cluster.servers.items() if name != self.cluster.owner]
        for call in (snapshots(other).restore("g"), snapshots(other).save(), snapshots(other).restore_emptied()):
            with suppress(SiltlogError):
                await call
