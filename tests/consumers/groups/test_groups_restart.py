"""Groups over a Valkey that is killed, loses its scripts, its last second or everything."""

import asyncio
import itertools
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from groups_rig import FakeLog, Rig, embedded, held, offsets, refusal, rig, run
from processes import alive

from siltlog.consumers.groups.messages import CommitRequest, CommittedOffset
from siltlog.infra.errors import Unavailable
from siltlog.infra.redis.embedded import EmbeddedValkey
from siltlog.infra.redis.keys import GROUP_PARTS, group_key

EVERY = [("flights", number) for number in range(4)]


@pytest.fixture
def valkey(tmp_path: Path) -> Iterator[EmbeddedValkey]:
    """One of the test's own, to be killed."""
    server = embedded(tmp_path)
    yield server
    server.stop()


async def kill(r: Rig) -> None:
    info = await r.redis.command("INFO", "server")
    pid = int(info["process_id"])
    os.kill(pid, signal.SIGKILL)
    # Until then it may answer once more.
    while alive(pid):
        await asyncio.sleep(0.01)
    await asyncio.sleep(0.05)


def test_killed_in_the_middle_it_is_back_with_everything(valkey: EmbeddedValkey) -> None:
    async def scenario() -> None:
        async with rig(valkey.start(), FakeLog(flights=4)) as r:
            a = await r.join("g", "a", "flights")
            acknowledged = 0
            for offset in itertools.count():
                if offset == 10:
                    killed = asyncio.ensure_future(kill(r))
                await asyncio.sleep(0.001)
                entry = CommittedOffset("flights", 0, offset)
                try:
                    await r.groups.offsets.commit("g", CommitRequest([entry], "a", a.generation))
                except Unavailable as error:
                    assert error.error_code == "coordinator_unavailable" and error.status == 503
                    break
                acknowledged = offset
            await killed
            assert acknowledged >= 9
            assert isinstance(await refusal(r.join("g", "b", "flights")), Unavailable)
            valkey._run()
            # The member goes on as if nothing had been.
            told = await r.beat("g", "a", 0, topics=["flights"])
            assert held(told) == EVERY
            assert offsets(told)[0] in (acknowledged, acknowledged + 1), "the last may have arrived unanswered"
            await r.groups.offsets.commit("g", CommitRequest([CommittedOffset("flights", 0, 99)], "a", a.generation))

    run(scenario())


@pytest.mark.rule("G3")
def test_after_a_restart_nothing_moves_for_one_session_timeout(valkey: EmbeddedValkey) -> None:
    async def scenario() -> None:
        async with rig(valkey.start(), FakeLog(flights=4)) as r:
            a = await r.join("g", "a", "flights", session_timeout_ms=10_000)
            await r.join("g", "b", "flights", session_timeout_ms=20_000)
            told = await r.beat("g", "a", a.generation)
            await kill(r)
            valkey._run()
            await r.redis.pass_ms(60_000)
            # Everybody's session is over; nobody expires, and what is let go does not move.
            await r.tick()
            assert [member.member for member in (await r.groups.describe("g")).members] == ["a", "b"]
            await r.beat("g", "a", told.generation, owned=held(told))
            assert held(await r.beat("g", "b", 0, topics=["flights"])) == []
            late = await r.join("g", "c", "flights")
            assert held(late) == []
            await r.redis.pass_ms(8_000)
            await r.beat("g", "a", told.generation)
            await r.redis.pass_ms(8_000)
            await r.beat("g", "a", told.generation)
            await r.redis.pass_ms(5_000)
            await r.tick()
            state = await r.groups.describe("g")
            assert [member.member for member in state.members] == ["a", "c"], "b was silent for the whole time"
            assert sum(len(member.partitions) for member in state.members) == 4

    run(scenario())


@pytest.mark.rule("G5")
def test_what_a_topic_gained_meanwhile_is_read_once_things_move_again(valkey: EmbeddedValkey) -> None:
    async def scenario() -> None:
        log = FakeLog(flights=2)
        async with rig(valkey.start(), log) as r:
            a = await r.join("g", "a", "flights", session_timeout_ms=10_000)
            await r.tick()
            await kill(r)
            valkey._run()
            log.create("flights", 3).topic_id = log.topic("flights").topic_id
            for _ in range(2):
                await r.tick()
                assert (await r.beat("g", "a", a.generation)).assignment is None
            await r.redis.pass_ms(9_000)
            await r.beat("g", "a", a.generation)
            await r.redis.pass_ms(2_000)
            await r.tick()
            assert len(held(await r.beat("g", "a", a.generation))) == 3

    run(scenario())


def test_an_instance_that_comes_back_meanwhile_takes_its_place(valkey: EmbeddedValkey) -> None:
    async def scenario() -> None:
        async with rig(valkey.start(), FakeLog(flights=4)) as r:
            await r.join("g", "a", "flights", instance_id="i")
            b = await r.join("g", "b", "flights")
            told = await r.beat("g", "a", 1)
            await kill(r)
            valkey._run()
            back = await r.join("g", "a2", "flights", instance_id="i")
            assert held(back) == held(told)
            assert held(await r.beat("g", "b", 1)) == [], "not even what the former one had to let go"
            await r.redis.pass_ms(40_000)
            for member in ("a2", "b"):
                await r.beat("g", member, b.generation)
            await r.redis.pass_ms(6_000)
            await r.tick()
            assert held(await r.beat("g", "b", 1)) == sorted(set(EVERY) - set(held(told)))

    run(scenario())


@pytest.mark.rule("G2")
def test_a_redis_without_its_last_second(valkey: EmbeddedValkey) -> None:
    """What was issued and forgotten is never issued again, and holds nothing."""

    async def scenario() -> None:
        async with rig(valkey.start(), FakeLog(flights=4)) as r:
            await r.join("g", "a", "flights")
            keys = [group_key("g", part) for part in GROUP_PARTS]
            before = {key: await r.redis.command("DUMP", key) for key in keys}
            first = await r.beat("g", "a", 1)
            b = await r.join("g", "b", "flights")
            revoked = await r.beat("g", "a", first.generation)
            for key, content in before.items():
                await r.redis.command("DEL", key)
                if content is not None:
                    await r.redis.command("RESTORE", key, 0, content)
            await r.redis.command("HSET", group_key("g", "state"), "run_id", "f" * 40)

            error = await refusal(r.beat("g", "b", b.generation))
            assert error.error_code == "unknown_member"
            # The member knows of a generation that Redis does not: it is told everything, and lets nothing go.
            told = await r.beat("g", "a", revoked.generation, owned=held(revoked))
            assert held(told) == EVERY and told.generation > revoked.generation
            commit = CommitRequest([CommittedOffset("flights", 3, 5)], "a", told.generation)
            await r.groups.offsets.commit("g", commit)
            assert (await r.beat("g", "a", told.generation)).assignment is None

    run(scenario())


def test_an_emptied_redis_makes_members_join_anew(valkey: EmbeddedValkey) -> None:
    async def scenario() -> None:
        async with rig(valkey.start(), FakeLog(flights=4)) as r:
            a = await r.join("g", "a", "flights")
            await r.redis.command("FLUSHALL")
            await r.redis.command("SCRIPT", "FLUSH")
            assert (await refusal(r.beat("g", "a", a.generation))).error_code == "unknown_member"
            again = await r.join("g", "a2", "flights")
            assert again.generation > a.generation and held(again) == EVERY
            assert [row[:3] for row in (await r.groups.list_groups("", "", 10))[0]] == [("g", "stable", 1)]

    run(scenario())


def test_without_redis_the_clockwork_goes_on(valkey: EmbeddedValkey, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("siltlog.consumers.groups.runner.TICK_S", 0.01)

    async def scenario() -> None:
        async with rig(valkey.start(), FakeLog(flights=4)) as r:
            a = await r.join("g", "a", "flights")
            r.groups.start()
            waiting = asyncio.create_task(r.beat("g", "a", a.generation, wait_ms=60_000))
            # Redis has answered it: what is lost now is lost while it waits.
            while not any(waiter._told for waiter in r.groups._runner.waiters._waiters["g"]):
                await asyncio.sleep(0.001)
            await kill(r)
            r.log.create("trains", 1)
            await asyncio.sleep(0.1)
            assert not waiting.done()
            valkey._run()
            await r.join("g", "b", "flights", "trains")
            # After the hold everything would move; here it is the drain that ends the wait.
            r.log.draining = True
            assert (await waiting).assignment is None

    run(scenario())
