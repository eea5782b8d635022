"""Static members: who comes back as the same instance finds everything where it was."""

import asyncio
from typing import Any

import pytest
from groups_rig import FakeLog, Rig, held, offsets, refusal, rig, run

from siltlog.consumers.groups.messages import CommitRequest, CommittedOffset
from siltlog.infra.errors import Fenced

EVERY = [("flights", number) for number in range(6)]


async def commit(r: Rig, member: str, generation: int, number: int, offset: int) -> None:
    entry = CommittedOffset("flights", number, offset)
    await r.groups.offsets.commit("g", CommitRequest(offsets=[entry], member_id=member, generation=generation))


async def three(r: Rig, **fields: Any) -> dict[str, Any]:
    """Static members a, b and c, each with two of six partitions; what each was last told."""
    for name in "abc":
        await r.join("g", name, "flights", instance_id=f"i-{name}", **fields)
    for _ in range(3):
        for name in "abc":
            told = await r.beat("g", name, 1)
            await r.beat("g", name, told.generation, owned=held(told))
    told_all = {name: await r.beat("g", name, 1) for name in "abc"}
    assert [len(held(told)) for told in told_all.values()] == [2, 2, 2]
    return told_all


@pytest.mark.rule("G6")
def test_a_restart_within_the_session_timeout_moves_nothing(valkey_url: str) -> None:
    async def scenario() -> None:
        async with rig(valkey_url, FakeLog(flights=6)) as r:
            before = await three(r, session_timeout_ms=10_000)
            await commit(r, "b", before["b"].generation, held(before["b"])[0][1], 7)
            # b is closed without a word; its partitions wait for it.
            await r.redis.pass_ms(9_000)
            for name in "ac":
                assert (await r.beat("g", name, before[name].generation)).assignment is None
            back = await r.join("g", "b2", "flights", instance_id="i-b", session_timeout_ms=10_000)
            assert held(back) == held(before["b"]) and 7 in offsets(back).values()
            for name in "ac":
                assert (await r.beat("g", name, before[name].generation)).assignment is None
            state = await r.groups.describe("g")
            assert state.state == "stable" and not state.moving
            assert [(member.member, member.instance_id) for member in state.members] == [
                ("a", "i-a"), ("b2", "i-b"), ("c", "i-c"),
            ]  # fmt: skip
            # Past the former member's session too.
            await r.redis.pass_ms(5_000)
            await r.tick()
            assert held(await r.beat("g", "b2", 1)) == held(before["b"])

    run(scenario())


def test_who_does_not_come_back_in_time_is_expired_like_any_other(valkey_url: str) -> None:
    async def scenario() -> None:
        async with rig(valkey_url, FakeLog(flights=6)) as r:
            before = await three(r, session_timeout_ms=10_000)
            await r.redis.pass_ms(9_000)
            for name in "ac":
                await r.beat("g", name, before[name].generation)
            await r.redis.pass_ms(2_000)
            await r.tick()
            told = {name: held(await r.beat("g", name, 1)) for name in "ac"}
            assert sorted(told["a"] + told["c"]) == EVERY
            late = await r.join("g", "b2", "flights", instance_id="i-b")
            assert held(late) == [] and (await r.groups.describe("g")).state == "rebalancing"

    run(scenario())


@pytest.mark.rule("G4", "G7")
def test_a_live_member_is_fenced_by_who_joins_as_its_instance(valkey_url: str) -> None:
    async def scenario() -> None:
        async with rig(valkey_url, FakeLog(flights=6)) as r:
            before = await three(r)
            mine = held(before["a"])[0][1]
            waiting = asyncio.create_task(r.beat("g", "a", before["a"].generation, wait_ms=15_000))
            await asyncio.sleep(0.05)
            other = await r.join("g", "a2", "flights", instance_id="i-a")
            assert held(other) == held(before["a"]) and other.generation > before["a"].generation
            # At once, not when its wait ends.
            error = await refusal(asyncio.wait_for(waiting, 5))
            assert isinstance(error, Fenced) and error.error_code == "fenced_member"
            assert error.members["fenced_by"] == "instance_id" and "instance_id" in error.detail
            for awaited in (
                commit(r, "a", before["a"].generation, mine, 3),
                r.beat("g", "a", before["a"].generation),
                r.join("g", "a", "flights", instance_id="i-a"),
            ):
                assert (await refusal(awaited)).error_code == "fenced_member"
            await r.groups.members.leave("g", "a")
            await commit(r, "a2", other.generation, mine, 4)
            assert held(await r.beat("g", "a2", 1)) == held(before["a"])

    run(scenario())


@pytest.mark.rule("G6")
def test_what_the_former_member_was_to_let_go_is_free(valkey_url: str) -> None:
    async def scenario() -> None:
        async with rig(valkey_url, FakeLog(flights=4)) as r:
            await r.join("g", "a", "flights", instance_id="i")
            b = await r.join("g", "b", "flights")
            told = await r.beat("g", "a", 1)
            assert told.releasing and held(b) == []
            back = await r.join("g", "a2", "flights", instance_id="i")
            assert held(back) == held(told) and not back.releasing
            assert len(held(await r.beat("g", "b", b.generation))) == 2
            assert (await r.groups.describe("g")).state == "stable"

    run(scenario())


def test_what_was_on_its_way_to_the_former_member_comes_to_the_new(valkey_url: str) -> None:
    async def scenario() -> None:
        async with rig(valkey_url, FakeLog(flights=4)) as r:
            a = await r.join("g", "a", "flights")
            await r.join("g", "b", "flights", instance_id="i")
            told = await r.beat("g", "a", a.generation)
            b2 = await r.join("g", "b2", "flights", instance_id="i")
            assert held(b2) == []
            await r.beat("g", "a", told.generation, owned=held(told))
            assert len(held(await r.beat("g", "b2", b2.generation))) == 2
            assert (await r.groups.describe("g")).state == "stable"

    run(scenario())


def test_it_may_come_back_with_another_subscription(valkey_url: str) -> None:
    async def scenario() -> None:
        async with rig(valkey_url, FakeLog(flights=2, trains=2)) as r:
            await r.join("g", "a", "flights", "trains", instance_id="i")
            b = await r.join("g", "b", "flights", "trains")
            back = await r.join("g", "a2", "trains", instance_id="i")
            assert not [at for at in held(back) if at[0] == "flights"]
            for _ in range(2):
                back = await r.beat("g", "a2", back.generation, owned=[("trains", 0), ("trains", 1)])
                told = await r.beat("g", "b", 1)
                await r.beat("g", "b", told.generation, owned=held(told))
            assert held(await r.beat("g", "a2", 1)) == [("trains", 0), ("trains", 1)]
            assert held(await r.beat("g", "b", b.generation)) == [("flights", 0), ("flights", 1)]
            assert (await r.groups.describe("g")).state == "stable"

    run(scenario())


def test_an_instance_is_for_life(valkey_url: str) -> None:
    async def scenario() -> None:
        async with rig(valkey_url, FakeLog(flights=4)) as r:
            a = await r.join("g", "a", "flights", instance_id="i")
            # The join, sent again, is the same member; so is a poll that repeats its fields.
            again = await r.join("g", "a", "flights", instance_id="i")
            assert again.generation == a.generation
            assert (await r.beat("g", "a", a.generation, instance_id="i")).assignment is None
            for member in ("a", "b"):
                await r.join("g", "b", "flights")
                error = await refusal(r.beat("g", member, a.generation, instance_id="j"))
                assert error.status == 422 and "instance_id" in error.detail
            # After a leave the instance is as good as new.
            await r.groups.members.leave("g", "a")
            c = await r.join("g", "c", "flights", instance_id="i")
            assert (await r.beat("g", "c", c.generation)).assignment is None
            assert [member.member for member in (await r.groups.describe("g")).members] == ["b", "c"]
            assert await r.redis.command("HGETALL", "silt:{g}:instances") == {b"i": b"c"}

    run(scenario())


def test_an_assignment_computed_before_the_takeover_is_not_installed(valkey_url: str) -> None:
    async def scenario() -> None:
        async with rig(valkey_url, FakeLog(flights=1)) as r:
            await r.join("g", "a", "flights", instance_id="i")
            runner = r.groups._runner
            inputs = await runner.run("inputs", "g", {})
            await r.join("g", "a2", "flights", instance_id="i")
            ((partition, _),) = inputs["current"]
            request = {"target": [(partition, "a")], "topics": [], "bounds": [], "revision": inputs["revision"]}
            assert (await runner.run("assign", "g", request))["status"] == "outdated"
            assert held(await r.beat("g", "a2", 1)) == [("flights", 0)]

    run(scenario())
