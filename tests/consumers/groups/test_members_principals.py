"""A member is its principal's: nobody else speaks for it, and it gets what that principal may read."""

from collections.abc import Awaitable, Callable

import pytest
from groups_rig import FakeLog, Rig, held, refusal, rig, run

from siltlog.consumers.groups.messages import (
    Actor,
    AttemptRequest,
    CommitRequest,
    CommittedOffset,
    MemberRequest,
    Membership,
)
from siltlog.infra.clock import SystemClock
from siltlog.infra.security.access import Entry, Policy, Subject
from siltlog.infra.security.grant import Access

ALICE = Actor(Subject("key:alice"), for_others=False)
BOB = Actor(Subject("key:bob"), for_others=False)
OPERATOR = Actor(Subject("key:operator"), for_others=True)


class Readers(Access):
    def __init__(self) -> None:
        super().__init__(SystemClock())
        self._entries: dict[str, Entry] = {}

    def let(self, principal: str, *topics: str) -> None:
        """Has a principal read these topics alone."""
        kept = {name: entry for name, entry in self._entries.items() if entry.principal != principal}
        new = {f"{principal} {topic}": Entry(principal, "topic", topic, ("read",)) for topic in topics}
        self._entries = kept | new
        self.change(Policy(self._entries, {}))


async def join(rig: Rig, member: str, actor: Actor | None, *topics: str, **fields: object) -> Membership:
    return await rig.groups.members.heartbeat("g", member, MemberRequest(topics=list(topics), **fields), actor)  # type: ignore[arg-type]


def commit(rig: Rig, told: Membership, actor: Actor | None) -> Awaitable[None]:
    request = CommitRequest([CommittedOffset("t", 0, 5)], "m", told.generation)
    return rig.groups.offsets.commit("g", request, None, actor)


def attempt(rig: Rig, told: Membership, actor: Actor | None) -> Awaitable[object]:
    return rig.groups.offsets.attempt("g", AttemptRequest("t", 0, 3, "m", told.generation), actor, count=True)


def beat(rig: Rig, told: Membership, actor: Actor | None) -> Awaitable[object]:
    return rig.groups.members.beat("g", "m", MemberRequest(generation=told.generation), actor)


def poll(rig: Rig, told: Membership, actor: Actor | None) -> Awaitable[object]:
    return rig.groups.members.beat("g", "m", MemberRequest(generation=told.generation), actor, poll=True)


def leave(rig: Rig, told: Membership, actor: Actor | None) -> Awaitable[object]:
    return rig.groups.members.leave("g", "m", actor)


CALLS: list[Callable[[Rig, Membership, Actor | None], Awaitable[object]]] = [commit, attempt, beat, poll, leave]


@pytest.mark.rule("A2")
@pytest.mark.parametrize("call", CALLS)
def test_only_its_principal_and_who_may_alter_the_group_speak_for_a_member(
    valkey_url: str, call: Callable[[Rig, Membership, Actor | None], Awaitable[object]]
) -> None:
    async def scenario() -> None:
        async with rig(valkey_url, FakeLog(t=1)) as it:
            told = await join(it, "m", ALICE, "t")
            refused = await refusal(call(it, told, BOB))
            assert (refused.error_code, refused.status) == ("forbidden", 403)
            state = await it.groups.describe("g")
            assert [(member.member, len(member.partitions)) for member in state.members] == [("m", 1)]
            assert state.offsets[0].offset == 0
            await call(it, told, ALICE)
            if call is not leave:
                await call(it, told, OPERATOR)
                assert (await refusal(call(it, told, BOB))).error_code == "forbidden", "it is no operator's by that"

    run(scenario())


@pytest.mark.rule("A2")
def test_who_may_alter_the_group_has_a_member_leave(valkey_url: str) -> None:
    async def scenario() -> None:
        async with rig(valkey_url, FakeLog(t=1)) as it:
            await join(it, "m", ALICE, "t")
            await it.groups.members.leave("g", "m", OPERATOR)
            assert not (await it.groups.describe("g")).members

    run(scenario())


@pytest.mark.rule("A2")
def test_an_instance_is_taken_over_by_its_own_principal_only(valkey_url: str) -> None:
    async def scenario() -> None:
        async with rig(valkey_url, FakeLog(t=1)) as it:
            await join(it, "m", ALICE, "t", instance_id="i")
            assert (await refusal(join(it, "n", BOB, "t", instance_id="i"))).error_code == "forbidden"
            assert [member.member for member in (await it.groups.describe("g")).members] == ["m"]
            assert held(await join(it, "n", ALICE, "t", instance_id="i")) == [("t", 0)]
            assert held(await join(it, "o", OPERATOR, "t", instance_id="i")) == [("t", 0)]

    run(scenario())


@pytest.mark.rule("A2")
def test_a_member_of_nobody_is_his_who_speaks_for_it_first(valkey_url: str) -> None:
    async def scenario() -> None:
        async with rig(valkey_url, FakeLog(t=1)) as it:
            told = await join(it, "m", None, "t")
            await beat(it, told, ALICE)
            assert (await refusal(beat(it, told, BOB))).error_code == "forbidden"
            await beat(it, told, None)

    run(scenario())


@pytest.mark.rule("A3")
def test_a_pattern_matches_what_each_members_principal_may_read(valkey_url: str) -> None:
    async def scenario() -> None:
        readers = Readers()
        readers.let("key:alice", "flights", "fares")
        readers.let("key:bob", "fares")
        async with rig(valkey_url, FakeLog(flights=2, fares=1, audits=1), readers) as it:
            bob = await join(it, "b", BOB, topic_pattern=".*")
            assert held(bob) == [("fares", 0)]
            alice = await join(it, "a", ALICE, topic_pattern=".*")
            assert held(alice) == [("flights", 0), ("flights", 1)]

    run(scenario())


@pytest.mark.rule("A3")
@pytest.mark.parametrize("wanted", [{"topic_pattern": ".*"}, {"topics": ["flights", "fares"]}])
def test_who_lost_read_loses_the_partitions_and_who_gained_it_gets_them(
    valkey_url: str, wanted: dict[str, object]
) -> None:
    async def scenario() -> None:
        readers = Readers()
        readers.let("key:alice", "flights", "fares")
        readers.let("key:bob", "fares")
        async with rig(valkey_url, FakeLog(flights=1, fares=1), readers) as it:
            request = MemberRequest(**wanted)  # type: ignore[arg-type]
            alice = await it.groups.members.heartbeat("g", "a", request, ALICE)
            assert held(alice) == [("fares", 0), ("flights", 0)]
            await it.tick()
            readers.let("key:alice", "fares")
            await it.tick()
            alice = await it.groups.members.beat("g", "a", MemberRequest(generation=alice.generation), ALICE)
            assert held(alice) == [("fares", 0)]
            assert alice.releasing
            readers.let("key:alice", "fares", "flights")
            await it.tick()
            alice = await it.groups.members.beat("g", "a", MemberRequest(generation=alice.generation), ALICE)
            assert held(alice) == [("fares", 0), ("flights", 0)]

    run(scenario())


@pytest.mark.rule("A3")
def test_the_groups_of_a_token_count_and_are_those_of_the_last_call(valkey_url: str) -> None:
    async def scenario() -> None:
        readers = Readers()
        readers.let("group:ops", "flights")
        async with rig(valkey_url, FakeLog(flights=1), readers) as it:
            user = Actor(Subject("user:u", ("ops",)), for_others=False)
            told = await join(it, "u", user, topic_pattern=".*")
            assert held(told) == [("flights", 0)]
            left = Actor(Subject("user:u"), for_others=False)
            told = await it.groups.members.beat("g", "u", MemberRequest(generation=told.generation), left)
            assert held(told) == []
            told = await it.groups.members.beat("g", "u", MemberRequest(generation=told.generation), user)
            assert held(told) == [("flights", 0)]

    run(scenario())
