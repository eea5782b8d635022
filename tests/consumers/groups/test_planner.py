"""Several servers plan for one group over one Redis: at once, knowing different topics, one in the place of another."""

import asyncio
from typing import Any

import pytest
from groups_rig import FakeLog, held, offsets, run
from planner_rig import nodes, same_log

from siltlog.consumers.groups.messages import MemberRequest


@pytest.mark.rule("CG6")
def test_of_two_servers_that_plan_at_once_the_one_with_the_older_state_plans_again(valkey_url: str) -> None:
    async def scenario() -> None:
        log = FakeLog(t=4)
        async with nodes(valkey_url, log, log) as (a, b):
            planned, may_go_on = asyncio.Event(), asyncio.Event()
            run_script = a.groups._runner._scripts.run
            installed: list[str] = []

            async def held_up(transition: str, group: str, request: Any) -> Any:
                if transition == "assign":
                    planned.set()
                    await may_go_on.wait()
                reply = await run_script(transition, group, request)
                if transition == "assign":
                    installed.append(reply["status"])
                return reply

            a.groups._runner._scripts.run = held_up  # type: ignore[method-assign]
            joining = asyncio.create_task(a.join("m", "t"))
            await planned.wait()
            # What a has computed knows of m alone.
            assert len(held(await b.join("n", "t"))) == 2
            may_go_on.set()
            first = await joining
            assert installed == ["outdated", "ok"] and len(held(first)) == 2
            state = await b.groups.describe("g")
            assert sorted(len(member.partitions) for member in state.members) == [2, 2]
            assert len({key for member in state.members for key in member.partitions}) == 4
            assert state.state == "stable"

    run(scenario())


@pytest.mark.rule("CG6")
def test_a_member_goes_on_at_another_node_when_its_own_dies_and_nobody_notices(valkey_url: str) -> None:
    async def scenario() -> None:
        log = FakeLog(t=4)
        async with nodes(valkey_url, log, log) as (a, b):
            await a.join("m", "t", session_timeout_ms=10_000)
            await b.join("n", "t", session_timeout_ms=10_000)
            told = await a.beat("m", 1)
            m = await a.beat("m", told.generation, held(told))
            n = await b.beat("n", 1)
            assert len(held(told)) == len(held(n)) == 2
            mine = [number for _, number in held(told)]
            await a.commit("m", m, 7, *mine)
            generation = (await b.groups.describe("g")).generation
            before = a.rebalances + b.rebalances
            # The node dies: what it knew of the group is gone, and nobody takes leave.
            await a.groups.close()
            await b.redis.pass_ms(6_000)
            told = await b.beat("m", m.generation, [("t", number) for number in mine])
            assert told.assignment is None and not told.releasing and told.generation == m.generation
            await b.commit("m", m, 9, *mine)
            assert (await b.beat("n", n.generation)).assignment is None
            await b.redis.pass_ms(6_000)
            await b.beat("m", m.generation)
            await b.beat("n", n.generation)
            await b.groups.tick()
            state = await b.groups.describe("g")
            assert (state.generation, state.state, len(state.members)) == (generation, "stable", 2)
            assert a.rebalances + b.rebalances == before
            again = await b.beat("m", 1)
            assert offsets(again) == dict.fromkeys(mine, 9)

    run(scenario())


@pytest.mark.rule("CG7")
@pytest.mark.parametrize("knows", ["opening", "behind", "before-growth"])
def test_what_a_server_does_not_know_yet_stays_with_who_holds_it(valkey_url: str, knows: str) -> None:
    async def scenario() -> None:
        log = FakeLog(t=2, u=2)
        log.view = 7
        other = same_log(log)
        other.view = 7
        async with nodes(valkey_url, log, other) as (a, b):
            told = await a.join("m", topic_pattern="[tu]")
            assert len(held(told)) == 4
            if knows == "opening":
                other.opening_now = {"u"}
            elif knows == "behind":
                other.view = 6
                u = other.by_name.pop("u")
            else:
                grown = log.create("u", 4)
                grown.topic_id = other.topic("u").topic_id
                await a.groups.tick()
                told = await a.beat("m", 1)
                assert len(held(told)) == 6
            # Another member comes, by way of the server that does not know all.
            n = await b.join("n", "t")
            assert held(n) == [], "one is on its way"
            state = await a.groups.describe("g")
            assert {key.topic for key in state.moving} == {"t"}
            again = await a.beat("m", 1)
            kept = [at for at in held(again) if at[0] == "u"]
            assert len(kept) == (4 if knows == "before-growth" else 2)
            # A topic that a member no longer wants is not kept for it, whatever is known.
            await a.groups.members.heartbeat("g", "m", MemberRequest(generation=again.generation, topic_pattern="t"))
            await b.groups.tick()
            assert not [at for at in held(await a.beat("m", 1)) if at[0] == "u"]
            # Once it knows, it plans by that.
            await a.groups.members.heartbeat("g", "m", MemberRequest(generation=again.generation, topic_pattern="[tu]"))
            other.opening_now = set()
            other.view = 7
            if knows == "behind":
                other.by_name["u"] = u
            elif knows == "before-growth":
                other.create("u", 4).topic_id = log.topic("u").topic_id
            await b.groups.tick()
            us = [at for at in held(await a.beat("m", 1)) if at[0] == "u"]
            assert len(us) == (4 if knows == "before-growth" else 2)

    run(scenario())


@pytest.mark.rule("CG7")
def test_a_topic_that_was_deleted_is_let_go_of_by_who_knows(valkey_url: str) -> None:
    async def scenario() -> None:
        log = FakeLog(t=1, u=1)
        log.view = 7
        async with nodes(valkey_url, log, same_log(log)) as (a, b):
            await a.join("m", "t", "u")
            b.log.view = 8
            del b.log.by_name["u"]
            await b.join("n", "t")
            assert ("u", 0) not in held(await b.beat("m", 1))

    run(scenario())
