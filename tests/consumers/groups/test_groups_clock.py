"""Groups over a Redis whose clock is set back: what was to come by it comes no later than it would have."""

import asyncio

import pytest
from classic_rig import REBALANCE_MS, SESSION_MS, assignment, classic_rig
from groups_rig import FakeLog, Rig, held, rig, run

from siltlog.consumers.groups.messages import Attempted, AttemptRequest, Membership
from siltlog.infra.kafka.errors import KafkaError
from siltlog.infra.redis.keys import GROUP_PARTS, group_key

DAY_MS = 86_400_000
ALL = [("flights", 0), ("flights", 1)]
STATE = group_key("g", GROUP_PARTS[0])

pytestmark = [pytest.mark.rule("G9"), pytest.mark.parametrize("back_ms", [20_000, DAY_MS])]


async def present(r: Rig) -> list[str]:
    return [member.member for member in (await r.groups.describe("g")).members]


async def beats(r: Rig, told: Membership, milliseconds: int) -> Membership:
    """The member b lives on for so long."""
    for _ in range(0, milliseconds, 1_000):
        told = await r.beat("g", "b", told.generation)
        await r.redis.pass_ms(1_000)
    return told


@pytest.mark.parametrize("restarted", [False, True], ids=["redis lives on", "redis is restarted"])
def test_a_member_that_is_gone_ends_with_its_session(valkey_url: str, back_ms: int, restarted: bool) -> None:
    async def scenario() -> None:
        async with rig(valkey_url, FakeLog(flights=2), stands=True) as r:
            await r.join("g", "gone", "flights", session_timeout_ms=10_000)
            if restarted:
                await r.redis.command("HSET", STATE, "run_id", "another")
            b = await r.join("g", "b", "flights", session_timeout_ms=10_000)
            await r.redis.pass_ms(-back_ms)
            b = await beats(r, b, 9_000)
            assert await present(r) == ["b", "gone"]
            await beats(r, b, 2_000)
            assert await present(r) == ["b"]

    run(scenario())


def test_set_back_twice_and_ahead_between_nobody_who_lives_is_expired(valkey_url: str, back_ms: int) -> None:
    async def scenario() -> None:
        async with rig(valkey_url, FakeLog(flights=2), stands=True) as r:
            await r.join("g", "gone", "flights", session_timeout_ms=10_000)
            b = await r.join("g", "b", "flights", session_timeout_ms=10_000)
            for jump_ms in (-back_ms, 4_000, -back_ms):
                await r.redis.pass_ms(jump_ms)
                b = await beats(r, b, 1_000)
            assert await present(r) == ["b", "gone"]
            await beats(r, b, 4_000)
            assert await present(r) == ["b"]

    run(scenario())


def test_what_a_member_clings_to_is_taken_in_time(valkey_url: str, back_ms: int) -> None:
    async def scenario() -> None:
        async with rig(valkey_url, FakeLog(flights=2), stands=True) as r:
            a = await r.join("g", "a", "flights", rebalance_timeout_ms=10_000)
            assert held(a) == ALL
            b = await r.join("g", "b", "flights")
            await r.redis.pass_ms(-back_ms)
            for _ in range(11):
                await r.redis.pass_ms(1_000)
                b = await r.beat("g", "b", b.generation)
                if "a" in await present(r):
                    a = await r.beat("g", "a", a.generation, ALL)
            assert await present(r) == ["b"]

    run(scenario())


def test_a_record_that_failed_comes_again_after_its_pause(valkey_url: str, back_ms: int) -> None:
    async def nack(r: Rig, generation: int, offset: int) -> Attempted:
        request = AttemptRequest(topic="flights", partition=0, offset=offset, member_id="b", generation=generation)
        return await r.groups.offsets.attempt("g", request, count=True, backoff_ms=(10_000, 30_000))

    async def scenario() -> None:
        async with rig(valkey_url, FakeLog(flights=1), stands=True) as r:
            b = await r.join("g", "b", "flights")
            assert (await nack(r, b.generation, 0)).rest_ms == 10_000
            await r.redis.pass_ms(-back_ms)
            b = await beats(r, b, 6_000)
            said_again = await nack(r, b.generation, 0)
            assert said_again.attempts == 1 and 0 < said_again.rest_ms <= 4_000
            b = await beats(r, b, 5_000)
            assert (await nack(r, b.generation, 0)).attempts == 2

    run(scenario())


def test_members_of_a_classic_group_end_with_their_sessions(valkey_url: str, back_ms: int) -> None:
    async def scenario() -> None:
        async with classic_rig(valkey_url, FakeLog(t=2)) as r:
            gone = await r.join()
            assert (await r.sync(gone, (gone.member_id, assignment(t=[0, 1])))).error == KafkaError.NONE
            await r.of.redis.pass_ms(-back_ms)
            assert await r.beat(gone) == KafkaError.NONE
            await r.of.redis.pass_ms(-back_ms)
            assert await present(r.of) == [gone.member_id]
            await r.of.redis.pass_ms(SESSION_MS + 1_000)
            await r.of.tick()
            assert await present(r.of) == []

    run(scenario())


def test_a_rebalance_of_a_classic_group_ends_in_time(valkey_url: str, back_ms: int) -> None:
    async def scenario() -> None:
        async with classic_rig(valkey_url, FakeLog(t=2)) as r:
            long = {"session_timeout_ms": 3 * REBALANCE_MS}
            silent = await r.join(**long)
            await r.sync(silent, (silent.member_id, assignment(t=[0, 1])))
            coming = asyncio.ensure_future(r.join(**long))
            while await r.beat(silent) != KafkaError.REBALANCE_IN_PROGRESS:
                await asyncio.sleep(0)
            await r.of.redis.pass_ms(-back_ms)
            assert await r.beat(silent) == KafkaError.REBALANCE_IN_PROGRESS
            await r.of.redis.pass_ms(REBALANCE_MS)
            await r.of.tick()
            joined = await coming
            assert [at.member_id for at in joined.members] == [joined.member_id]

    run(scenario())
