"""Generations rise, as whole seconds, over a Valkey that is restarted, emptied, or has those of a former release."""

import asyncio

import pytest
from groups_rig import FakeLog, Rig, held, refusal, rig, run

from siltlog.consumers.groups.messages import CommitRequest, CommittedOffset
from siltlog.consumers.kafka.epoch import EPOCH_MAX, epoch_of
from siltlog.infra.redis.keys import GROUP_PARTS, group_key

STATE = group_key("g", "state")
EVERY = [("flights", number) for number in range(4)]


async def kept(r: Rig) -> dict[str, bytes | None]:
    return {key: await r.redis.command("DUMP", key) for key in (group_key("g", p) for p in GROUP_PARTS)}


async def restarted_as(r: Rig, content: dict[str, bytes | None]) -> None:
    """Redis is as it was then, under another `run_id`."""
    for key, dumped in content.items():
        await r.redis.command("DEL", key)
        if dumped is not None:
            await r.redis.command("RESTORE", key, 0, dumped)
    await r.redis.command("HSET", STATE, "run_id", "f" * 40)


@pytest.mark.rule("KF16")
def test_each_is_a_whole_second_above_the_one_before(valkey_url: str) -> None:
    async def scenario() -> None:
        async with rig(valkey_url, FakeLog(flights=4)) as r:
            seen = []
            for number in range(5):
                seen.append((await r.join("g", f"m{number}", "flights")).generation)
            assert all(generation % 1_000 == 0 for generation in seen)
            assert sorted(set(seen)) == seen
            assert 0 < epoch_of(seen[-1]) < EPOCH_MAX
            # Time catches up with a group that runs ahead of it.
            await r.redis.pass_ms(3_600_000)
            assert (await r.join("g", "late", "flights")).generation >= seen[0] + 3_600_000

    run(scenario())


@pytest.mark.rule("KF16")
def test_those_of_a_former_release_go_on(valkey_url: str) -> None:
    """Milliseconds in Redis, and members that live: nobody is fenced, and nothing moves."""

    async def scenario() -> None:
        async with rig(valkey_url, FakeLog(flights=4)) as r:
            told = await r.join("g", "a", "flights")
            former = int(await r.redis.command("HGET", STATE, "generation")) + 417
            await r.redis.command("HSET", STATE, "generation", former)
            assert (await r.beat("g", "a", former, owned=held(told))).assignment is None
            await r.groups.offsets.commit("g", CommitRequest([CommittedOffset("flights", 0, 5)], "a", former))
            b = await r.join("g", "b", "flights")
            assert b.generation % 1_000 == 0 and former < b.generation <= former + 10_000
            a = await r.beat("g", "a", former, owned=held(told))
            assert a.generation > former and len(held(a)) == 2

    run(scenario())


@pytest.mark.rule("G2")
def test_one_that_redis_has_lost_is_known_as_such_also_once_others_follow(valkey_url: str) -> None:
    async def scenario() -> None:
        async with rig(valkey_url, FakeLog(flights=4)) as r:
            await r.join("g", "a", "flights")
            before = await kept(r)
            b = await r.join("g", "b", "flights")
            revoked = await r.beat("g", "a", 1)
            await r.beat("g", "a", revoked.generation, owned=held(revoked))
            gained = await r.beat("g", "b", b.generation)
            assert len(held(gained)) == 2 and len(held(revoked)) == 2
            await restarted_as(r, before)
            # Others come, and raise the generation, before the member is heard.
            c = await r.join("g", "c", "flights")
            assert c.generation > gained.generation
            error = await refusal(
                r.groups.offsets.commit("g", CommitRequest([CommittedOffset("flights", 0, 5)], "a", revoked.generation))
            )
            assert error.error_code == "fenced_member"
            told = await r.beat("g", "a", revoked.generation, owned=held(revoked))
            assert held(told) == EVERY, "it holds all that this Redis knows of, and has to hear that"
            assert told.generation > c.generation
            assert (await r.beat("g", "a", told.generation, owned=EVERY)).assignment is None
            await r.groups.offsets.commit("g", CommitRequest([CommittedOffset("flights", 0, 5)], "a", told.generation))

    run(scenario())


@pytest.mark.rule("KF16")
def test_none_is_issued_twice_though_many_a_second_were_lost(valkey_url: str) -> None:
    async def scenario() -> None:
        async with rig(valkey_url, FakeLog(flights=1)) as r:
            await r.join("g", "a", "flights")
            before = await kept(r)
            joined = await asyncio.gather(*(r.join("g", f"m{number}", "flights") for number in range(40)))
            highest = max(told.generation for told in joined)
            await restarted_as(r, before)
            assert (await r.join("g", "late", "flights")).generation > highest
            await r.redis.command("FLUSHALL")
            emptied = await r.join("other", "a", "flights")
            assert emptied.generation > highest

    run(scenario())


@pytest.mark.rule("KF16")
def test_nor_where_what_a_restart_had_issued_is_lost_by_the_next(valkey_url: str) -> None:
    async def scenario() -> None:
        async with rig(valkey_url, FakeLog(flights=1)) as r:
            await r.join("g", "a", "flights")
            before = await kept(r)
            issued: set[int] = set()
            for restart in range(8):
                await restarted_as(r, before)
                told = [(await r.join("g", f"m{restart}-{number}", "flights")).generation for number in range(5)]
                assert not issued.intersection(told)
                issued.update(told)
                await r.redis.pass_ms(250)
            # Whoever was told of the highest of them is not told of a lower one.
            await restarted_as(r, before)
            after = await r.beat("g", "a", max(issued))
            assert after.generation > max(issued) and held(after) == [("flights", 0)]

    run(scenario())
