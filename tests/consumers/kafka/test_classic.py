"""Classic groups by their members: who is told what, and who is refused."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from classic_rig import REBALANCE_MS, SESSION_MS, ClassicRig, assignment, classic_rig, joining, subscription
from groups_rig import FakeLog, refusal, run
from offsets_rig import log_with, server
from planner_rig import nodes

from siltlog.consumers.groups.messages import CommitRequest, CommittedOffset, GroupRow
from siltlog.consumers.kafka import classic as classic_module
from siltlog.consumers.kafka.classic import ClassicGroups, Joined
from siltlog.consumers.kafka.epoch import generation_of
from siltlog.infra.kafka.errors import KafkaError
from siltlog.infra.redis.keys import group_key

Scenario = Callable[[ClassicRig], Awaitable[None]]


def played(url: str, scenario: Scenario, **more: Any) -> None:
    async def play() -> None:
        async with classic_rig(url, FakeLog(t=4, u=2), **more) as r:
            async with asyncio.timeout(30):
                await scenario(r)

    run(play())


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    while not await condition():
        await asyncio.sleep(0.002)


async def phase(r: ClassicRig) -> str:
    state = (await r.of.groups.describe("g")).classic
    assert state is not None
    return state.phase


async def pair(r: ClassicRig, **more: Any) -> tuple[Joined, Joined]:
    """Two members of one generation, each with half of the partitions of `t`; the first of them leads."""
    a = await r.join(**more)
    await r.sync(a, (a.member_id, assignment(t=[0, 1, 2, 3])))
    coming = asyncio.ensure_future(r.join(**more))
    await until(lambda: _told(r, a, KafkaError.REBALANCE_IN_PROGRESS))
    a = await r.join(a.member_id, **more)
    b = await coming
    assert (a.leader, b.leader, a.epoch) == (a.member_id, a.member_id, b.epoch)
    await r.sync(a, (a.member_id, assignment(t=[0, 1])), (b.member_id, assignment(t=[2, 3])))
    await r.sync(b)
    return a, b


async def _told(r: ClassicRig, member: Joined, error: KafkaError) -> bool:
    return await r.beat(member) == error


async def commit(r: ClassicRig, member: Joined, offset: int, partition: int = 0) -> None:
    offsets = [CommittedOffset("t", partition, offset)]
    await r.of.groups.offsets.commit("g", CommitRequest(offsets, member.member_id, generation_of(member.epoch)))


def test_a_member_has_its_id_before_it_joins(valkey_url: str) -> None:
    async def scenario(r: ClassicRig) -> None:
        told = await r.join(asks_for_id=True)
        assert told.error == KafkaError.MEMBER_ID_REQUIRED and told.member_id.startswith("client-")
        assert (await refusal(r.of.groups.describe("g"))).error_code == "unknown_group"
        joined = await r.join(told.member_id, asks_for_id=True)
        assert (joined.error, joined.member_id) == (KafkaError.NONE, told.member_id)
        # Whoever is known by an instance needs no second try, and neither does an older client.
        assert (await r.join(instance_id="i", asks_for_id=True, protocol_type="other")).error != 79

    played(valkey_url, scenario)


@pytest.mark.rule("KF13")
def test_the_leader_shares_out_and_all_hear_it(valkey_url: str) -> None:
    async def scenario(r: ClassicRig) -> None:
        # Nobody looks again by himself for as long as the test lasts.
        long = {"session_timeout_ms": 10 * REBALANCE_MS}
        a = await r.join(**long)
        assert [member.member_id for member in a.members] == [a.member_id] == [a.leader]
        assert a.members[0].metadata == subscription("t") and (a.protocol_type, a.protocol) == ("consumer", "range")
        assert await phase(r) == "completing"
        given = assignment(t=[0, 1, 2, 3])
        assert (await r.sync(a, (a.member_id, given))).assignment == given
        assert await r.beat(a) == KafkaError.NONE
        coming = asyncio.ensure_future(r.join(**long))
        await until(lambda: _told(r, a, KafkaError.REBALANCE_IN_PROGRESS))
        # What it has read it may commit until it has joined again.
        await commit(r, a, 10)
        again = await r.join(a.member_id, **long)
        b = await coming
        assert r.of.groups.counts.rebalances == {"members": 2, "topics": 0}
        assert again.epoch == b.epoch > a.epoch and {at.member_id for at in again.members} == {a.member_id, b.member_id}
        assert b.members == [] and b.leader == a.member_id
        for speaker, error in ((a, "generation"), (again, "rebalance")):
            refused = await refusal(commit(r, speaker, 20))
            assert (refused.error_code, refused.members["fenced_by"]) == ("fenced_member", error)
        follower = asyncio.ensure_future(r.sync(b))
        await until(lambda: _have_arrived(r, 1))
        leader = await r.sync(again, (a.member_id, assignment(t=[0])), (b.member_id, assignment(t=[1, 2, 3])))
        assert (leader.assignment, (await follower).assignment) == (assignment(t=[0]), assignment(t=[1, 2, 3]))
        # Who asks again hears the same.
        assert (await r.sync(again, (a.member_id, b"other"))).assignment == assignment(t=[0])
        assert (await refusal(commit(r, a, 20))).members["fenced_by"] == "generation"
        await commit(r, again, 20)
        [told] = (await r.of.groups.describe("g")).offsets
        assert told.offset == 20

    played(valkey_url, scenario)


@pytest.mark.rule("KF13")
def test_who_is_not_of_the_generation_is_refused(valkey_url: str) -> None:
    async def scenario(r: ClassicRig) -> None:
        a, b = await pair(r)
        stranger = Joined(KafkaError.NONE, "stranger", a.epoch)
        old = Joined(KafkaError.NONE, a.member_id, a.epoch - 1)
        for member, error in ((stranger, KafkaError.UNKNOWN_MEMBER_ID), (old, KafkaError.ILLEGAL_GENERATION)):
            assert await r.beat(member) == error
            assert (await r.sync(member)).error == error
        assert (await refusal(commit(r, stranger, 1))).error_code == "unknown_member"
        assert await r.leave((b.member_id, ""), ("stranger", "")) == [KafkaError.NONE, KafkaError.UNKNOWN_MEMBER_ID]
        assert await r.beat(b) == KafkaError.UNKNOWN_MEMBER_ID
        assert (await r.join(b.member_id)).error == KafkaError.UNKNOWN_MEMBER_ID, "an id that left is refused"
        assert (await r.sync(a)).error == KafkaError.REBALANCE_IN_PROGRESS
        a = await r.join(a.member_id)
        assert [at.member_id for at in a.members] == [a.member_id]

    played(valkey_url, scenario)


def test_members_agree_on_a_protocol(valkey_url: str) -> None:
    async def scenario(r: ClassicRig) -> None:
        both = [("sticky", b"s"), ("range", b"r")]
        a = await r.join(protocols=both)
        assert a.protocol == "sticky"
        for wrong in ({"protocols": [("other", b"")]}, {"protocol_type": "connect"}, {"protocols": []}):
            assert (await r.join(**wrong)).error == KafkaError.INCONSISTENT_GROUP_PROTOCOL
        assert (await r.join(session_timeout_ms=1)).error == KafkaError.INVALID_SESSION_TIMEOUT
        coming = asyncio.ensure_future(r.join(protocols=[("range", b"of b")]))
        await until(lambda: _told(r, a, KafkaError.REBALANCE_IN_PROGRESS))
        a = await r.join(a.member_id, protocols=both)
        assert (a.protocol, (await coming).protocol) == ("range", "range")
        assert sorted(at.metadata for at in a.members) == [b"of b", b"r"]
        synced = await r.classic.sync("g", _speaker(a), "consumer", "sticky", (), None)
        assert synced.error == KafkaError.INCONSISTENT_GROUP_PROTOCOL

    played(valkey_url, scenario)


def _speaker(member: Joined) -> classic_module.Speaker:
    return classic_module.Speaker(member.member_id, "", member.epoch)


@pytest.mark.rule("KF14")
def test_who_does_not_come_in_time_is_gone(valkey_url: str) -> None:
    async def scenario(r: ClassicRig) -> None:
        long = {"session_timeout_ms": 3 * REBALANCE_MS}
        a, b = await pair(r, **long)
        coming = asyncio.ensure_future(r.join(**long))
        await until(lambda: _told(r, a, KafkaError.REBALANCE_IN_PROGRESS))
        rejoining = asyncio.ensure_future(r.join(a.member_id, **long))
        await until(lambda: _have_arrived(r, 2))
        await r.of.redis.pass_ms(REBALANCE_MS)
        await r.of.tick()
        c, a = await coming, await rejoining
        assert {at.member_id for at in a.members} == {a.member_id, c.member_id}
        assert await r.beat(b) == KafkaError.UNKNOWN_MEMBER_ID
        # Nor does the leader: whoever waits for its word joins anew, without it.
        waiting = asyncio.ensure_future(r.sync(c))
        await until(lambda: _have_arrived(r, 1))
        await r.of.redis.pass_ms(REBALANCE_MS)
        await r.of.tick()
        assert (await waiting).error == KafkaError.REBALANCE_IN_PROGRESS
        c = await r.join(c.member_id, **long)
        assert c.leader == c.member_id and len(c.members) == 1
        assert r.of.groups.counts.evictions["rebalance"] == 2

    played(valkey_url, scenario)


async def _have_arrived(r: ClassicRig, count: int) -> bool:
    return bool(await r.of.redis.command("SCARD", "silt:{g}:arrived") == count)


@pytest.mark.rule("KF14")
def test_a_session_ends(valkey_url: str) -> None:
    async def scenario(r: ClassicRig) -> None:
        a, b = await pair(r)
        await r.of.redis.pass_ms(SESSION_MS - 5_000)
        assert await r.beat(b) == KafkaError.NONE
        await r.of.redis.pass_ms(5_000)
        await r.of.tick()
        assert await r.beat(a) == KafkaError.UNKNOWN_MEMBER_ID
        assert await r.beat(b) == KafkaError.REBALANCE_IN_PROGRESS
        b = await r.join(b.member_id)
        assert b.leader == b.member_id and await r.leave((b.member_id, "")) == [KafkaError.NONE]
        state = await r.of.groups.describe("g")
        assert (state.state, state.type, state.members) == ("empty", "classic", [])
        assert r.of.groups.counts.evictions["session"] == 1

    played(valkey_url, scenario)


@pytest.mark.rule("KF14")
def test_whoever_waits_is_there(valkey_url: str) -> None:
    async def scenario(r: ClassicRig) -> None:
        a = await r.join(session_timeout_ms=4_000)
        await r.sync(a)
        coming = asyncio.ensure_future(r.join(session_timeout_ms=3_000))
        # The session of the one that was there ends, and that of the one that waits does not.
        b = await coming
        assert [at.member_id for at in b.members] == [b.member_id]
        assert await r.beat(a) == KafkaError.UNKNOWN_MEMBER_ID

    played(valkey_url, scenario)


def test_the_first_rebalance_waits_for_more(valkey_url: str) -> None:
    async def scenario(r: ClassicRig) -> None:
        joins = [asyncio.ensure_future(r.join()) for _ in range(3)]
        joined = await asyncio.gather(*joins)
        assert len({at.epoch for at in joined}) == 1
        assert sorted(len(at.members) for at in joined) == [0, 0, 3]

    played(valkey_url, scenario, delay_ms=300)


@pytest.mark.rule("KF15")
def test_an_instance_comes_back_without_a_rebalance(valkey_url: str) -> None:
    async def scenario(r: ClassicRig) -> None:
        a, b = await r.join(instance_id="a"), None
        await r.sync(a, (a.member_id, assignment(t=[0, 1, 2, 3])), instance_id="a")
        coming = asyncio.ensure_future(r.join(instance_id="b"))
        await until(lambda: _told(r, a, KafkaError.REBALANCE_IN_PROGRESS))
        a = await r.join(a.member_id, "a")
        b = await coming
        given = assignment(t=[2, 3])
        await r.sync(a, (a.member_id, assignment(t=[0, 1])), (b.member_id, given), instance_id="a")
        await r.sync(b, instance_id="b")

        again = await r.join(instance_id="b")
        assert (again.error, again.epoch, again.leader) == (KafkaError.NONE, b.epoch, a.member_id)
        assert again.member_id != b.member_id and await r.beat(a, "a") == KafkaError.NONE
        assert (await r.sync(again, instance_id="b")).assignment == given
        assert await r.beat(b, "b") == KafkaError.FENCED_INSTANCE_ID
        assert (await r.sync(b, instance_id="b")).error == KafkaError.FENCED_INSTANCE_ID
        assert (await r.join(b.member_id, "b")).error == KafkaError.FENCED_INSTANCE_ID
        assert await r.leave((b.member_id, "b")) == [KafkaError.FENCED_INSTANCE_ID]
        assert (await refusal(commit(r, b, 1, 2))).error_code == "unknown_member"
        assert (await r.join(b.member_id, asks_for_id=True)).error == KafkaError.UNKNOWN_MEMBER_ID
        assert await r.beat(a, "other") == KafkaError.UNKNOWN_MEMBER_ID
        await commit(r, again, 1, 2)

        # The leader too: it does not share out again, and a client that cannot know that is not told that it leads.
        leader = await r.join(instance_id="a")
        assert (leader.leader, leader.skip, len(leader.members)) == (leader.member_id, True, 2)
        older = await r.join(instance_id="a", skips=False)
        assert (older.leader, older.skip, list(older.members)) == (leader.member_id, False, [])
        assert (await r.sync(older, instance_id="a")).assignment == assignment(t=[0, 1])

        # What it reads is another: all join anew.
        other = asyncio.ensure_future(r.join(instance_id="b", protocols=[("range", subscription("u"))]))
        await until(lambda: _told_instance(r, older, "a"))
        older = await r.join(older.member_id, "a")
        assert (await other).epoch == older.epoch > b.epoch
        assert await r.leave(("", "a"), ("", "none")) == [KafkaError.NONE, KafkaError.UNKNOWN_MEMBER_ID]

    played(valkey_url, scenario)


async def _told_instance(r: ClassicRig, member: Joined, instance: str) -> bool:
    return await r.beat(member, instance) == KafkaError.REBALANCE_IN_PROGRESS


@pytest.mark.rule("KF15")
@pytest.mark.rule("KF15")
def test_what_an_instance_sent_before_redis_was_lost_ends_nobody(valkey_url: str) -> None:
    """Clients give up once they hear that another process runs under their instance."""

    async def scenario(r: ClassicRig) -> None:
        a = await r.join(instance_id="i")
        await r.sync(a, (a.member_id, b"a"), instance_id="i")
        await r.of.redis.command("FLUSHALL")
        b = await r.join(instance_id="i")
        assert await r.beat(a, "i") == KafkaError.UNKNOWN_MEMBER_ID
        assert (await r.join(a.member_id, "i")).error == KafkaError.UNKNOWN_MEMBER_ID
        await r.join(instance_id="i")
        assert await r.beat(b, "i") == KafkaError.FENCED_INSTANCE_ID
        assert (await r.join(b.member_id, "i")).error == KafkaError.FENCED_INSTANCE_ID

    played(valkey_url, scenario)


def test_an_instance_may_miss_a_rebalance(valkey_url: str) -> None:
    async def scenario(r: ClassicRig) -> None:
        a = await r.join(instance_id="a", session_timeout_ms=3 * REBALANCE_MS)
        await r.sync(a, (a.member_id, b"all"), instance_id="a")
        coming = asyncio.ensure_future(r.join(session_timeout_ms=3 * REBALANCE_MS))
        await until(lambda: _told_instance(r, a, "a"))
        await r.of.redis.pass_ms(REBALANCE_MS)
        await r.of.tick()
        b = await coming
        assert b.leader == b.member_id and {at.instance_id for at in b.members} == {"a", ""}
        synced = await r.sync(b, (b.member_id, b"b"), (a.member_id, b"a"))
        assert synced.assignment == b"b"
        back = await r.join(instance_id="a")
        assert (back.epoch, (await r.sync(back, instance_id="a")).assignment) == (b.epoch, b"a")

    played(valkey_url, scenario)


def test_a_join_is_repeated(valkey_url: str) -> None:
    async def scenario(r: ClassicRig) -> None:
        a, b = await pair(r)
        again = await r.join(b.member_id)
        assert (again.epoch, again.leader) == (b.epoch, a.member_id), "who asks for nothing new causes nothing"
        changes = asyncio.ensure_future(r.join(b.member_id, protocols=[("range", subscription("t", "u"))]))
        await until(lambda: _told(r, a, KafkaError.REBALANCE_IN_PROGRESS))
        a = await r.join(a.member_id)
        assert (await changes).epoch == a.epoch > b.epoch
        await r.sync(a)
        leads = asyncio.ensure_future(r.join(a.member_id))
        await until(lambda: _told(r, at_epoch(b, a.epoch), KafkaError.REBALANCE_IN_PROGRESS))
        b = await r.join(b.member_id)
        assert (await leads).epoch == b.epoch > a.epoch, "the leader has something to share out"

    played(valkey_url, scenario)


def at_epoch(member: Joined, epoch: int) -> Joined:
    return Joined(KafkaError.NONE, member.member_id, epoch)


def test_a_group_is_of_one_type_while_it_has_members(valkey_url: str) -> None:
    async def scenario(r: ClassicRig) -> None:
        a = await r.join()
        await r.sync(a, (a.member_id, assignment(t=[0, 3], u=[1])))
        refused = await refusal(r.of.join("g", "m", "t"))
        assert refused.error_code == "group_not_empty" and "share out" in refused.detail
        assert (await refusal(r.of.beat("g", a.member_id, 5))).error_code == "group_not_empty"
        await commit(r, a, 7, 3)
        state = await r.of.groups.describe("g")
        assert state.generation == generation_of(a.epoch)
        [member] = state.members
        assert [(key.topic, key.partition) for key in member.partitions] == [("t", 0), ("t", 3), ("u", 1)]
        assert member.topics == ["t"] and member.auto_offset_reset is None
        [row] = (await r.of.groups.list_groups("", "", 10))[0]
        assert row == GroupRow("g", "stable", 1, "classic", "stable", "consumer")
        assert (await refusal(r.of.groups.delete("g"))).error_code == "group_not_empty"
        assert (
            await refusal(r.of.groups.offsets.commit("g", CommitRequest([CommittedOffset("t", 0, 1)])))
        ).error_code == ("group_not_empty")
        # By hand it is taken out, as any member.
        await r.of.groups.members.leave("g", a.member_id)
        await r.of.groups.offsets.commit("g", CommitRequest([CommittedOffset("t", 0, 1)]))
        told = await r.of.join("g", "m", "t")
        assert {key.partition: offset for key, offset in told.assignment or ()} == {0: 1, 1: 0, 2: 0, 3: 7}
        assert (await r.join()).error == KafkaError.INCONSISTENT_GROUP_PROTOCOL
        assert (await r.of.groups.describe("g")).classic is None
        await r.of.groups.members.leave("g", "m")
        assert (await r.join()).error == KafkaError.NONE

    played(valkey_url, scenario)


def test_nothing_is_planned_for_a_classic_group(valkey_url: str) -> None:
    async def scenario(r: ClassicRig) -> None:
        a = await r.join()
        await r.sync(a, (a.member_id, assignment(t=[0])))
        # One that was begun before the group was classic finds out.
        await r.of.groups.transitions.plan("g")
        assert await r.of.redis.command("HLEN", "silt:{g}:owners") == 0
        calls = r.of.groups.transitions._known["g"].planner._asked
        r.of.log.create("v", 3)
        await r.of.tick()
        await r.of.tick()
        assert r.of.groups.transitions._known["g"].planner._asked == calls
        assert await r.beat(a) == KafkaError.NONE

    played(valkey_url, scenario)


def test_a_join_reads_itself_and_not_all_others(valkey_url: str) -> None:
    async def scenario(r: ClassicRig) -> None:
        async def reads_of_all(count: int) -> int:
            """How often all of a hash was read while one more joined."""
            await r.of.redis.command("CONFIG", "RESETSTAT")
            coming.append(asyncio.ensure_future(r.join()))
            await until(lambda: _joined(r, count))
            told = await r.of.redis.command("INFO", "commandstats")
            return sum(int(told.get(f"cmdstat_{name}", {"calls": 0})["calls"]) for name in ("hgetall", "hvals"))

        coming = [asyncio.ensure_future(r.join())]
        await until(lambda: _joined(r, 1))
        reads = [await reads_of_all(count) for count in range(2, 8)]
        assert reads == [0] * 6, reads
        for join in coming:
            join.cancel()
        await asyncio.gather(*coming, return_exceptions=True)

    played(valkey_url, scenario, delay_ms=20_000)


async def _joined(r: ClassicRig, count: int) -> bool:
    return bool(await r.of.redis.command("ZCARD", group_key("g", "sessions")) == count)


def test_a_lost_redis_and_a_server_that_ends(valkey_url: str) -> None:
    async def scenario(r: ClassicRig) -> None:
        a, b = await pair(r)
        await r.of.redis.command("FLUSHALL")
        assert await r.beat(a) == KafkaError.UNKNOWN_MEMBER_ID
        a = await r.join()
        assert a.epoch > b.epoch
        await r.sync(a)
        coming = asyncio.ensure_future(r.join())
        await until(lambda: _told(r, a, KafkaError.REBALANCE_IN_PROGRESS))
        r.of.log.draining = True
        r.of.groups.wake()
        assert (await refusal(coming)).error_code == "coordinator_unavailable"

    played(valkey_url, scenario)


def test_what_a_member_sends_is_bounded(valkey_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(r: ClassicRig) -> None:
        monkeypatch.setattr(classic_module, "METADATA_BYTES_MAX", 10)
        monkeypatch.setattr(classic_module, "MEMBERS_MAX", 1)
        assert (await r.join(protocols=[("range", b"12345678901")])).error == KafkaError.INVALID_REQUEST
        assert (await r.join("i" * 1_001)).error == KafkaError.INVALID_REQUEST
        long = "p" * 1_001
        assert (await r.join(protocols=[(long, b"")])).error == KafkaError.INVALID_REQUEST
        assert (await r.join(protocol_type=long)).error == KafkaError.INVALID_REQUEST
        for protocols in (("range", "range"), ("",), ("range", "")):
            sent = [(name, b"") for name in protocols]
            assert (await r.join(protocols=sent)).error == KafkaError.INCONSISTENT_GROUP_PROTOCOL
        a = await r.join(protocols=[("range", bytes(range(246, 256)))])
        assert a.members[0].metadata == bytes(range(246, 256))
        assert (await r.join(protocols=[("range", b"")])).error == KafkaError.GROUP_MAX_SIZE_REACHED
        monkeypatch.setattr(classic_module, "MEMBERS_MAX", 2)
        monkeypatch.setattr(classic_module, "GROUP_BYTES_MAX", 15)
        assert (await r.join(protocols=[("range", b"123456")])).error == KafkaError.GROUP_MAX_SIZE_REACHED
        monkeypatch.setattr(classic_module, "ASSIGNMENTS_BYTES_MAX", 3)
        assert (await r.sync(a, (a.member_id, b"1234"))).error == KafkaError.INVALID_REQUEST
        assert (await r.sync(a, (a.member_id, b"\xff\0\x80"))).assignment == b"\xff\0\x80"

    played(valkey_url, scenario)


def test_what_is_kept_of_who_left_is_bounded(valkey_url: str) -> None:
    async def scenario(r: ClassicRig) -> None:
        await r.join("a", asks_for_id=True)
        for first in range(0, 11_000, 1_000):
            await r.leave(*((f"m{number}", "") for number in range(first, first + 1_000)))
        assert await r.of.redis.command("ZCARD", "silt:{g}:refused") == 10_000
        assert (
            await r.join("m10999", protocols=[("range", b"")], asks_for_id=True)
        ).error == KafkaError.UNKNOWN_MEMBER_ID
        for members in ([("m" * 1_001, "")], [("", "i" * 1_001)], [("m", "")] * 1_001):
            assert (await r.classic.leave("g", members, None)).error == KafkaError.INVALID_REQUEST

    played(valkey_url, scenario)


def test_members_at_two_servers(valkey_url: str) -> None:
    async def scenario() -> None:
        log = FakeLog(t=4)
        async with asyncio.timeout(30), nodes(valkey_url, log, log) as made:
            for node in made:
                node.groups.start()
            here, there = (ClassicRig(node, ClassicGroups(node.groups, 0, lambda: False)) for node in made)
            a = await here.join()
            await here.sync(a, (a.member_id, assignment(t=[0, 1, 2, 3])))
            coming = asyncio.ensure_future(there.join())
            await until(lambda: _told(here, a, KafkaError.REBALANCE_IN_PROGRESS))
            # Its own server has not heard yet that it is over.
            a = await here.join(a.member_id)
            b = await coming
            assert (b.error, b.epoch) == (KafkaError.NONE, a.epoch)
            waiting = asyncio.ensure_future(there.sync(b))
            await here.sync(a, (a.member_id, b"a"), (b.member_id, b"b"))
            assert (await waiting).assignment == b"b"

    run(scenario())


def test_what_is_committed_outlives_redis(valkey_url: str, tmp_path: Path) -> None:
    async def scenario() -> None:
        log = log_with(tmp_path, t=2)
        async with server(valkey_url, log) as r:
            await r.redis.command("FLUSHALL")
            classic = ClassicGroups(r.groups, 0, lambda: False)
            a = await classic.join("g", joining(), None)
            await classic.sync("g", _speaker(a), None, None, [(a.member_id, assignment(t=[0, 1]))], None)
            await r.groups.offsets.commit(
                "g", CommitRequest([CommittedOffset("t", 0, 7)], a.member_id, generation_of(a.epoch))
            )
            assert r.saved() == {0: 7}
            await r.redis.command("FLUSHALL")
            assert await classic.heartbeat("g", _speaker(a), None) == KafkaError.UNKNOWN_MEMBER_ID
            b = await classic.join("g", joining(), None)
            assert b.epoch > a.epoch
            [told] = (await r.groups.describe("g")).offsets
            assert told.offset == 7
            refused = await refusal(
                r.groups.offsets.commit(
                    "g", CommitRequest([CommittedOffset("t", 0, 3)], a.member_id, generation_of(a.epoch))
                )
            )
            assert refused.error_code == "unknown_member"

    run(scenario())
