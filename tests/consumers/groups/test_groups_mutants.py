"""Each rule of groups that several nodes answer for is needed: a mutant of each is noticed, over a real Redis."""

import asyncio
import random
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import suppress
from functools import wraps
from pathlib import Path
from typing import Any
from unittest.mock import patch as patched

import pytest
from chaos import seeds
from groups_rig import FakeLog, SkewedRedis, held, offsets
from keeper_rig import Cluster, flush, snapshots
from mutants import Mutant, Patch, Play, hold, instead, nothing, nothing_awaited, noticed, plays
from offsets_rig import Server, log_with, server
from planner_rig import nodes, same_log

from siltlog.consumers.groups.messages import MemberRequest
from siltlog.consumers.groups.runner import GroupRunner
from siltlog.consumers.groups.scripts import GroupScripts
from siltlog.consumers.groups.topics import Unknown
from siltlog.consumers.keeping import keeper
from siltlog.consumers.keeping import snapshots as snapshots_
from siltlog.consumers.keeping.keeper import Keepers
from siltlog.consumers.keeping.saved_offsets import OffsetLog
from siltlog.consumers.keeping.snapshots import OffsetSnapshots
from siltlog.infra import names
from siltlog.infra.errors import SiltlogError
from siltlog.infra.redis import same as same_redis
from siltlog.infra.redis.access import RedisAccess
from siltlog.infra.redis.connection import RedisConnection
from siltlog.infra.redis.same import SameRedis

REDIS: list[str] = []
"""Where the Redis of the tests is."""
GroupPlay = Callable[[random.Random, Path], Coroutine[Any, Any, None]]


@pytest.fixture(autouse=True)
def _redis(valkey_url: str) -> Iterator[None]:
    REDIS[:] = [valkey_url]
    yield
    REDIS.clear()


def over_redis(play: GroupPlay) -> Play:
    """Over one that is empty."""

    @wraps(play)
    def run(seed: int, folder: Path) -> None:
        async def emptied() -> None:
            redis = RedisConnection(RedisAccess(REDIS[0]))
            await redis.command("FLUSHALL")
            await redis.close()
            async with asyncio.timeout(30):
                await play(random.Random(seed), folder)

        with patched.object(snapshots_, "LOAD_WAIT_S", 0.01):
            asyncio.run(emptied())

    return run


class OtherValue(SkewedRedis):
    """Another Redis, as far as the value goes that is put there."""

    async def command(self, *args: Any) -> Any:
        if args[1:2] == (names.redis_key("c"),):
            args = (args[0], names.redis_key("other"), *args[2:])
        return await super().command(*args)


@over_redis
async def two_redis_are_not_one(chance: random.Random, _: Path) -> None:
    """CG1"""
    beats = {"controller": ""}
    controllers = lambda: beats["controller"]  # noqa: E731
    redis = [chance.choice((SkewedRedis, SkewedRedis, OtherValue))(REDIS[0]) for _ in range(3)]
    sames = [SameRedis(one, "c", controllers) for one in redis]
    try:
        for one in sames:
            await one.check()
            assert one.value, "it does not know which Redis it has"
        beats["controller"] = sames[0].value
        for _n in range(3):
            emptied = chance.random() < 0.3
            if emptied:
                await redis[0].command("FLUSHALL")
            for at in chance.sample(range(3), 3):
                await sames[at].look()
                try:
                    await sames[at].check()
                    served = True
                except SiltlogError as error:
                    assert error.error_code == "coordinator_unavailable"
                    served = False
                assert served == (type(redis[at]) is type(redis[0])), f"node {at} serves: {served}, {redis}"
    finally:
        for one_redis in redis:
            await one_redis.close()


@over_redis
async def one_node_alone_keeps_what_groups_commit(chance: random.Random, folder: Path) -> None:
    """CG2, CG5"""
    cluster = Cluster(REDIS[0], log_with(folder, 2_000, t=2))
    async with cluster.running("a", "b") as (a, b):
        r = chance.choice((a, b))
        try:
            told, later = await _kept_by_one(chance, r, a, b)
        except SiltlogError as error:
            raise AssertionError(f"it is refused: {error}") from error
        # Nobody keeps them: members beat and commit as ever.
        a.offsets.lost()
        cluster.owner = ""
        calls: list[tuple[str, Callable[[], Coroutine[Any, Any, Any]], bool]] = [
            ("a commit that goes on", lambda: r.commit({0: later + 5}, told), True),
            (
                "a heartbeat",
                lambda: r.groups.members.heartbeat("g", "m", MemberRequest(generation=told.generation)),
                True,
            ),
            ("a commit that goes back", lambda: r.commit({0: later - 1}, told), False),
            ("what may be new", lambda: r.join("n", "t", group="new"), False),
        ]
        for what, call, goes_on in calls:
            try:
                await call()
            except SiltlogError as error:
                assert not goes_on, f"{what} stops: {error}"
                assert error.status == 503, f"{what}: {error}"
            else:
                assert goes_on, f"{what} is answered, and the next loss of Redis takes it away"


async def _kept_by_one(chance: random.Random, r: Server, a: Server, b: Server) -> tuple[Any, int]:
    """What a member of the group was told, and an offset that it has committed."""
    told = await r.join("m", "t", auto_offset_reset="latest")
    assert a.saved() == {0: 2_000, 1: 2_000}, "a first offset is told before it is kept"
    await r.commit({0: 2_000}, told)
    offset = chance.randrange(1, 100)
    await r.commit({0: offset}, told)
    assert a.saved() == {0: offset, 1: 2_000}, "one that goes back is answered before it is kept"
    later = chance.randrange(offset + 1, 1_000)
    await b.commit({0: later}, told)
    assert b.saved() == {} and b.system.appends == 0, "two nodes write them"
    # Where the node that took it dies, the keeper finds it.
    await a.tick()
    assert a.saved()[0] == later
    return told, later


@over_redis
async def who_has_claimed_reads_first(chance: random.Random, folder: Path) -> None:
    """CG3"""
    cluster = Cluster(REDIS[0], log_with(folder, t=2))
    async with cluster.running("a", "b") as (a, b):
        await chance.choice((a, b)).commit({0: 70})
        a.offsets.lost()
        assert a.saved() == {}, "who has lost them goes by what it had read"
        cluster.owner = "b"
        b.system.epoch = 2 * 2**32
        b.offsets.owned()
        await flush(a)
        told: Any = None
        with suppress(SiltlogError):
            told = await chance.choice((a, b)).join("m", "t", auto_offset_reset="latest")
        assert told is None, f"a group begins where its policy says: {offsets(told)}"
        await b.tick()
        assert offsets(await a.join("m", "t", auto_offset_reset="latest")) == {0: 70, 1: 100}


@over_redis
async def a_keeper_that_slept_undoes_nothing(chance: random.Random, folder: Path) -> None:
    """CG4"""
    fresh = True
    cluster = Cluster(REDIS[0], log_with(folder, t=2))
    async with cluster.running("a", "b") as (zombie, b):
        await b.commit({0: 50, 1: 60})
        await cluster.take("b")
        if chance.random() < 0.5:
            await b.tick()
            await b.groups.delete("g")
            with suppress(SiltlogError):
                await snapshots(zombie).restore("g")
            try:
                found = await b.committed()
            except SiltlogError:
                found = {}
            assert not found, "a keeper that slept brings back a deleted group"
        else:
            reset = chance.randrange(50)
            await b.commit({0: reset})
            with suppress(SiltlogError):
                await snapshots(zombie).restore("g")
            assert (await chance.choice((zombie, b)).committed())[0] == reset, "it undoes a reset"
    async with server(REDIS[0], log_with(folder, t=1), fresh=lambda: fresh) as alone:
        await alone.commit({0: 50}, group="h")
        await flush(alone)
        fresh = False
        try:
            await alone.join("m", "t", group="h")
        except SiltlogError as error:
            assert error.error_code == "coordinator_unavailable"
        else:
            raise AssertionError("a keeper whose beat is old puts something back")


@over_redis
async def plans_are_of_the_state_they_came_from(chance: random.Random, _: Path) -> None:
    """CG6"""
    log = FakeLog(t=chance.randrange(3, 7))
    async with nodes(REDIS[0], log, log) as made:
        # They compute at once, and somebody comes or goes before what they have computed is installed.
        there = [f"m{number}" for number in range(3)]
        told: dict[str, Any] = {}
        for turn in range(4):
            comes, goes = f"n{turn}", chance.choice(there)
            members = [comes, *(member for member in there if member != goes)]
            calls = [chance.choice(made).join(member, "t", session_timeout_ms=10_000) for member in members]
            if goes in told:
                calls.append(_leaves(chance.choice(made), goes))
            try:
                found = await asyncio.gather(*calls)
            except SiltlogError as error:
                raise AssertionError(f"it was planned for who is gone: {error}") from error
            told = dict(zip(members, found[: len(members)], strict=True))
            there = members
        for _turn in range(6):
            for member in members:
                told[member] = await chance.choice(made).beat(member, 1)
                # It has let go of what it is to let go of.
                await chance.choice(made).beat(member, told[member].generation, held(told[member]))
        holders: dict[Any, list[str]] = {}
        for member in members:
            for at in held(told[member]):
                holders.setdefault(at, []).append(member)
        assert all(len(who) == 1 for who in holders.values()), f"one partition is two members': {holders}"
        assert len(holders) == len(log.topic("t").partitions), "one is nobody's"
        # The node of each dies: it goes on at the other, and nobody notices.
        before = sum(node.rebalances for node in made)
        generation = (await made[0].groups.describe("g")).generation
        await made[0].groups.close()
        for member in members:
            await made[1].beat(member, told[member].generation, held(told[member]))
        assert (await made[1].groups.describe("g")).generation == generation, "a node that dies rebalances its groups"
        assert sum(node.rebalances for node in made) == before


async def _leaves(node: Any, member: str) -> Any:
    await asyncio.sleep(0.002)
    await node.groups.members.leave("g", member)


@over_redis
async def what_a_node_does_not_know_stays(chance: random.Random, _: Path) -> None:
    """CG7"""
    log = FakeLog(t=2, u=2)
    log.view = 7
    other = same_log(log)
    other.view = 7
    async with nodes(REDIS[0], log, other) as (a, b):
        assert len(held(await a.join("m", topic_pattern="[tu]"))) == 4
        knows = chance.choice(("opening", "behind", "before-growth"))
        if knows == "opening":
            other.opening_now = {"u"}
        elif knows == "behind":
            other.view = 6
            del other.by_name["u"]
        else:
            log.create("u", 4).topic_id = other.topic("u").topic_id
            await a.groups.tick()
            assert len(held(await a.beat("m", 1))) == 6
        await b.join("n", "t")
        kept = [at for at in held(await a.beat("m", 1)) if at[0] == "u"]
        assert len(kept) == (4 if knows == "before-growth" else 2), f"a node that is {knows} takes them away"


def _never_another(patch: Patch) -> None:
    patch.setattr(same_redis, "other_redis", lambda *_: None)


def _a_value_each(patch: Patch) -> None:
    """Whoever finds none makes up another."""

    async def look(self: SameRedis) -> None:
        value = await self._redis.command("HGET", self._key, "value")
        if value is None:
            value = same_redis.secrets.token_hex(16).encode()
            await self._redis.command("HSETNX", self._key, "value", value)
        self.value = value.decode()

    patch.setattr(SameRedis, "look", look)


def _nothing_is_urgent(patch: Patch) -> None:
    patch.setattr(Keepers, "save_now", nothing_awaited)


def _each_keeps(patch: Patch) -> None:
    """Every server keeps what it is told."""

    async def save_now(self: Keepers, group: str) -> None:
        if not self._here.kept:
            self._here._offsets.owned()
        if not self._here.loaded:
            await self._here._offsets.load()
        await self._here.save_now((group,))

    patch.setattr(Keepers, "save_now", save_now)


def _looks_for_nothing(patch: Patch) -> None:
    """What another node only noted is not found by the keeper."""
    run = GroupScripts.run

    async def mutant(self: GroupScripts, transition: str, group: str, request: Mapping[str, Any]) -> Any:
        reply = await run(self, transition, group, request)
        return {**reply, "unsaved": False} if transition == "sweep" and "unsaved" in reply else reply

    patch.setattr(GroupScripts, "run", mutant)
    patch.setattr(OffsetSnapshots, "save", nothing_awaited)


def _goes_on_unread(patch: Patch) -> None:
    """A server that has claimed them takes what it knows for all there is."""
    owned = OffsetLog.owned

    def mutant(self: OffsetLog) -> None:
        owned(self)
        self.loaded.set()

    patch.setattr(OffsetLog, "owned", mutant)


def _heeds_no_tenure(patch: Patch) -> None:
    run = GroupScripts.run

    async def mutant(self: GroupScripts, transition: str, group: str, request: Mapping[str, Any]) -> Any:
        reply = await run(self, transition, group, request)
        if reply["status"] == "fenced_keeper":
            return await run(self, transition, group, {**request, "keeper": reply["keeper"]})
        return reply

    patch.setattr(GroupScripts, "run", mutant)


def _always_fresh(patch: Patch) -> None:
    made = Keepers.__init__
    patch.setattr(
        Keepers, "__init__", lambda self, here, redis, elsewhere=None, _=None: made(self, here, redis, elsewhere)
    )


def _all_wait_for_the_keeper(patch: Patch) -> None:
    run = GroupRunner.run

    async def mutant(self: GroupRunner, transition: str, group: str, request: Mapping[str, Any]) -> Any:
        reply = await run(self, transition, group, request)
        if transition in ("commit", "heartbeat") and self.keepers is not None:
            await self.keepers.save_now(group)
        return reply

    patch.setattr(GroupRunner, "run", mutant)


def _told_without_a_keeper(patch: Patch) -> None:
    """What nobody can keep now is answered all the same."""
    save_now, restore = Keepers.save_now, Keepers.restore

    async def saves(self: Keepers, group: str) -> None:
        with suppress(SiltlogError):
            await save_now(self, group)

    async def restores(self: Keepers, group: str) -> Any:
        try:
            return await restore(self, group)
        except SiltlogError:
            return keeper.Restored(0, False, 0)

    patch.setattr(Keepers, "save_now", saves)
    patch.setattr(Keepers, "restore", restores)


def _installs_on_any_state(patch: Patch) -> None:
    """The revision is that of now, not that of what was computed from."""
    run = GroupScripts.run

    async def mutant(self: GroupScripts, transition: str, group: str, request: Mapping[str, Any]) -> Any:
        if transition == "assign":
            await asyncio.sleep(0.003)
            now = await run(
                self, "inputs", group, {key: request[key] for key in ("log", "keeper", "new") if key in request}
            )
            request = {**request, "revision": now["revision"]}
        return await run(self, transition, group, request)

    patch.setattr(GroupScripts, "run", mutant)


def _knows_all(patch: Patch) -> None:
    patch.setattr(Unknown, "may_be_there", lambda *_: False)


MUTANTS: dict[str, Mutant] = {
    "CG1 any Redis will do": Mutant(two_redis_are_not_one, _never_another),
    "CG1 an emptied one is another": Mutant(two_redis_are_not_one, _a_value_each),
    "CG2 what must be kept first is kept later": Mutant(one_node_alone_keeps_what_groups_commit, _nothing_is_urgent),
    "CG2 each keeps what it is told": Mutant(one_node_alone_keeps_what_groups_commit, _each_keeps),
    "CG2 the keeper does not look for what others took": Mutant(
        one_node_alone_keeps_what_groups_commit, _looks_for_nothing
    ),
    "CG3 what was read is not forgotten": Mutant(who_has_claimed_reads_first, instead(OffsetLog, "lost", nothing)),
    "CG3 nothing is read first": Mutant(who_has_claimed_reads_first, _goes_on_unread),
    "CG4 a keeper of any epoch will do": Mutant(a_keeper_that_slept_undoes_nothing, _heeds_no_tenure),
    "CG4 the beat may be old": Mutant(a_keeper_that_slept_undoes_nothing, _always_fresh),
    "CG5 all wait for the keeper": Mutant(one_node_alone_keeps_what_groups_commit, _all_wait_for_the_keeper),
    "CG5 all is answered without one": Mutant(one_node_alone_keeps_what_groups_commit, _told_without_a_keeper),
    "CG6 a plan is installed on any state": Mutant(plans_are_of_the_state_they_came_from, _installs_on_any_state),
    "CG7 what is not known is not there": Mutant(what_a_node_does_not_know_stays, _knows_all),
}


@pytest.mark.rule("CG1", "CG2", "CG3", "CG4", "CG5", "CG6", "CG7")
@pytest.mark.chaos
@pytest.mark.parametrize("play", plays(MUTANTS), ids=lambda play: play.__name__)
def test_groups_of_several_nodes_keep_their_rules(play: Play, tmp_path: Path) -> None:
    hold(play, seeds(2), tmp_path)


@pytest.mark.parametrize("name", MUTANTS)
def test_a_mutant_is_noticed(name: str, tmp_path: Path) -> None:
    noticed(MUTANTS[name], tmp_path)
