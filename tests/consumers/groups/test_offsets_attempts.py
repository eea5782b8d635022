"""Attempts to handle a record, and how far records were handed out: counted in Redis until the group passes them."""

import pytest
from groups_rig import FakeLog, Rig, rig, run

from siltlog.consumers.groups.messages import (
    OPEN_ATTEMPTS_MAX,
    Attempted,
    AttemptRequest,
    CommitRequest,
    CommittedOffset,
    Membership,
)
from siltlog.consumers.reading.view import Key
from siltlog.infra.errors import Fenced, OffsetOutOfRange, Refused


async def attempt(r: Rig, member: str, generation: int, offset: int, *, count: bool = True) -> Attempted:
    request = AttemptRequest(topic="flights", partition=0, offset=offset, member_id=member, generation=generation)
    return await r.groups.offsets.attempt("g", request, count=count)


async def commit(r: Rig, member: str | None, generation: int | None, offset: int, delivered: int | None = None) -> None:
    entry = CommittedOffset("flights", 0, offset, delivered=delivered)
    await r.groups.offsets.commit("g", CommitRequest(offsets=[entry], member_id=member, generation=generation))


def delivered(told: Membership) -> dict[int, int]:
    return {key.partition: offset for key, offset in told.delivered.items()}


def test_attempts_are_counted_until_the_group_passes_the_record(valkey_url: str) -> None:
    async def scenario() -> None:
        async with rig(valkey_url, FakeLog(flights=1)) as r:
            told = await r.join("g", "a", "flights")
            assert [(await attempt(r, "a", told.generation, 7)).attempts for _ in range(3)] == [1, 2, 3]
            asked = await attempt(r, "a", told.generation, 7, count=False)
            assert asked.attempts == 3 and asked.committed == 0 and asked.lower == []
            assert (await attempt(r, "a", told.generation, 9)).lower == [7]
            await commit(r, "a", told.generation, 8)
            assert (await attempt(r, "a", told.generation, 9, count=False)) == Attempted(asked.key, 1, 8, [])
            # What was passed is not counted any more.
            assert (await attempt(r, "a", told.generation, 7)).attempts == 0

    run(scenario())


def test_attempts_outlive_the_member_that_counted_them(valkey_url: str) -> None:
    async def scenario() -> None:
        async with rig(valkey_url, FakeLog(flights=1)) as r:
            a = await r.join("g", "a", "flights", session_timeout_ms=60_000)
            await attempt(r, "a", a.generation, 3)
            await r.redis.pass_ms(60_001)
            b = await r.join("g", "b", "flights")
            with pytest.raises(Fenced):
                await attempt(r, "a", a.generation, 3)
            found = await attempt(r, "b", b.generation, 3)
            assert found.attempts == 2
            await attempt(r, "b", b.generation, 4)
            assert (await attempt(r, "b", b.generation, 5)).lower == [3, 4]

    run(scenario())


def test_lower_records_of_a_member_that_is_gone_are_nobodys_work(valkey_url: str) -> None:
    async def scenario() -> None:
        async with rig(valkey_url, FakeLog(flights=1)) as r:
            a = await r.join("g", "a", "flights", session_timeout_ms=60_000)
            await attempt(r, "a", a.generation, 3)
            await r.redis.pass_ms(60_001)
            b = await r.join("g", "b", "flights")
            assert (await attempt(r, "b", b.generation, 5)).lower == []

    run(scenario())


def test_only_the_present_owner_counts(valkey_url: str) -> None:
    async def scenario() -> None:
        async with rig(valkey_url, FakeLog(flights=1)) as r:
            told = await r.join("g", "a", "flights")
            await r.join("g", "b", "flights")
            with pytest.raises(Fenced, match="b of the group g does not hold flights/0"):
                await attempt(r, "b", told.generation, 0)
            with pytest.raises(Fenced):
                await attempt(r, "a", told.generation - 1, 0)

    run(scenario())


def test_a_record_that_is_not_there_has_no_attempts(valkey_url: str) -> None:
    async def scenario() -> None:
        async with rig(valkey_url, FakeLog(flights=1)) as r:
            told = await r.join("g", "a", "flights")
            for offset in (100, 101):
                with pytest.raises(OffsetOutOfRange, match=f"no record at {offset}"):
                    await attempt(r, "a", told.generation, offset)

    run(scenario())


def test_records_with_attempts_are_bounded(valkey_url: str) -> None:
    async def scenario() -> None:
        log = FakeLog()
        log.create("flights", 1, end=OPEN_ATTEMPTS_MAX + 10)
        async with rig(valkey_url, log) as r:
            told = await r.join("g", "a", "flights")
            for offset in range(OPEN_ATTEMPTS_MAX):
                await attempt(r, "a", told.generation, offset)
            with pytest.raises(Refused, match="commit what is done"):
                await attempt(r, "a", told.generation, OPEN_ATTEMPTS_MAX)
            assert (await attempt(r, "a", told.generation, 5)).attempts == 2
            await commit(r, "a", told.generation, 1)
            assert (await attempt(r, "a", told.generation, OPEN_ATTEMPTS_MAX)).attempts == 1

    run(scenario())


def test_who_goes_back_begins_without_attempts(valkey_url: str) -> None:
    async def scenario() -> None:
        async with rig(valkey_url, FakeLog(flights=1)) as r:
            told = await r.join("g", "a", "flights")
            await commit(r, "a", told.generation, 5, delivered=50)
            await attempt(r, "a", told.generation, 7)
            await r.groups.members.leave("g", "a")
            await commit(r, None, None, 2)
            again = await r.join("g", "b", "flights")
            assert delivered(again) == {}
            assert (await attempt(r, "b", again.generation, 7)).attempts == 1

    run(scenario())


def test_who_gets_a_partition_is_told_what_was_handed_out_and_not_committed(valkey_url: str) -> None:
    async def scenario() -> None:
        async with rig(valkey_url, FakeLog(flights=2)) as r:
            a = await r.join("g", "a", "flights", session_timeout_ms=60_000)
            assert delivered(a) == {}
            await commit(r, "a", a.generation, 0, delivered=50)
            await commit(r, "a", a.generation, 10)
            await r.redis.pass_ms(60_001)
            b = await r.join("g", "b", "flights")
            assert delivered(b) == {0: 50}
            # Until the group has passed it, whoever commits.
            await commit(r, "b", b.generation, 50)
            await r.groups.members.leave("g", "b")
            assert delivered(await r.join("g", "c", "flights")) == {}

    run(scenario())


@pytest.mark.rule("D3")
def test_a_clean_hand_over_leaves_no_mark(valkey_url: str) -> None:
    async def scenario() -> None:
        async with rig(valkey_url, FakeLog(flights=1)) as r:
            a = await r.join("g", "a", "flights")
            await commit(r, "a", a.generation, 0, delivered=50)
            await commit(r, "a", a.generation, 20, delivered=20)
            await r.groups.members.leave("g", "a")
            assert delivered(await r.join("g", "b", "flights")) == {}

    run(scenario())


def test_a_deleted_group_and_a_deleted_topic_leave_nothing(valkey_url: str) -> None:
    async def scenario() -> None:
        async with rig(valkey_url, FakeLog(flights=1)) as r:
            for how in ("group", "topic"):
                told = await r.join("g", how, "flights")
                await commit(r, how, told.generation, 1, delivered=50)
                await attempt(r, how, told.generation, 7)
                await r.groups.members.leave("g", how)
                assert await r.redis.command("EXISTS", "silt:{g}:attempts")
                if how == "group":
                    await r.groups.delete("g")
                else:
                    topic_id = r.log.topic("flights").topic_id
                    await r.groups._runner.run("forget", "g", {"topics": [f"flights/{topic_id}"]})
                assert not await r.redis.command("EXISTS", "silt:{g}:attempts")

    run(scenario())


def test_the_key_names_the_record(valkey_url: str) -> None:
    async def scenario() -> None:
        async with rig(valkey_url, FakeLog(flights=1)) as r:
            told = await r.join("g", "a", "flights")
            found = await attempt(r, "a", told.generation, 7)
            assert found.key == Key("flights", r.log.topic("flights").topic_id, 0)

    run(scenario())
