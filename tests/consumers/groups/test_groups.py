"""Groups on a real Valkey, one rule of docs/design/groups.md at a time."""

import asyncio
import subprocess
import sys

import pytest
from groups_rig import FakeLog, Rig, held, offsets, refusal, rig, run

from siltlog.consumers.groups.messages import CommitRequest, CommittedOffset, MemberRequest
from siltlog.infra.errors import Fenced, OffsetOutOfRange, UnknownTopic

EVERY = [("flights", number) for number in range(4)]


async def commit(rig: Rig, member: str | None, generation: int | None, *entries: tuple[str, int, int]) -> None:
    committed = [CommittedOffset(topic, partition, offset) for topic, partition, offset in entries]
    await rig.groups.offsets.commit("g", CommitRequest(offsets=committed, member_id=member, generation=generation))


def test_one_member_gets_everything(valkey_url: str) -> None:
    async def scenario() -> None:
        async with rig(valkey_url, FakeLog(flights=4)) as r:
            told = await r.join("g", "a", "flights")
            assert held(told) == EVERY
            assert offsets(told) == dict.fromkeys(range(4), 0)
            assert told.heartbeat_interval_ms == 5_000
            again = await r.beat("g", "a", told.generation)
            assert again.assignment is None and again.generation == told.generation

    run(scenario())


def test_a_join_that_is_sent_again_is_the_same_member(valkey_url: str) -> None:
    async def scenario() -> None:
        async with rig(valkey_url, FakeLog(flights=4)) as r:
            first = await r.join("g", "a", "flights")
            second = await r.join("g", "a", "flights")
            assert first == second
            assert len((await r.groups.describe("g")).members) == 1

    run(scenario())


def test_a_partition_moves_only_once_it_was_let_go(valkey_url: str) -> None:
    async def scenario() -> None:
        async with rig(valkey_url, FakeLog(flights=4)) as r:
            a = await r.join("g", "a", "flights")
            b = await r.join("g", "b", "flights")
            assert held(b) == []
            assert (await r.groups.describe("g")).state == "rebalancing"

            told = await r.beat("g", "a", a.generation)
            kept = held(told)
            assert len(kept) == 2 and told.releasing and told.generation > a.generation
            assert (await r.beat("g", "b", b.generation)).assignment is None
            # Not yet: the generation of this heartbeat is older than the one that revoked.
            still = await r.beat("g", "a", a.generation, owned=kept)
            assert still.releasing

            let_go = await r.beat("g", "a", told.generation, owned=kept)
            assert let_go.assignment is None and not let_go.releasing
            moved = await r.beat("g", "b", b.generation)
            assert held(moved) == sorted(set(EVERY) - set(kept))
            assert (await r.groups.describe("g")).state == "stable"

    run(scenario())


def test_it_tells_since_when_members_are_there_and_when_partitions_were_assigned(valkey_url: str) -> None:
    async def scenario() -> None:
        async with rig(valkey_url, FakeLog(flights=2)) as r:

            async def told() -> tuple[dict[str, int | None], int | None]:
                state = await r.groups.describe("g")
                return {member.member: member.joined_ms for member in state.members}, state.rebalanced_ms

            await r.groups.offsets.commit("g", CommitRequest(offsets=[CommittedOffset("flights", 0, 1)]))
            assert await told() == ({}, None), "no member was there yet"
            a = await r.join("g", "a", "flights")
            joined, rebalanced = await told()
            assert joined["a"] is not None and rebalanced is not None and joined["a"] <= rebalanced
            await r.redis.pass_ms(10_000)
            await r.beat("g", "a", a.generation)
            assert await told() == (joined, rebalanced), "a heartbeat changes neither"
            await r.join("g", "b", "flights")
            both, later = await told()
            assert both["a"] == joined["a"] and both["b"] is not None and later is not None
            assert both["b"] >= joined["a"] + 10_000 and later >= rebalanced + 10_000
            for member in ("a", "b"):
                await r.groups.members.leave("g", member)
            nobody, last = await told()
            assert nobody == {} and last is not None and last >= later
            await r.groups.delete("g")
            await r.groups.offsets.commit("g", CommitRequest(offsets=[CommittedOffset("flights", 0, 1)]))
            assert await told() == ({}, None)

    run(scenario())


def test_left_out_owned_lets_nothing_go(valkey_url: str) -> None:
    async def scenario() -> None:
        async with rig(valkey_url, FakeLog(flights=4)) as r:
            a = await r.join("g", "a", "flights")
            await r.join("g", "b", "flights")
            told = await r.beat("g", "a", a.generation)
            assert (await r.beat("g", "a", told.generation)).releasing
            assert (await r.beat("g", "a", told.generation, owned=EVERY)).releasing

    run(scenario())


def test_the_commit_rule(valkey_url: str) -> None:
    async def scenario() -> None:
        async with rig(valkey_url, FakeLog(flights=4)) as r:
            a = await r.join("g", "a", "flights")
            await r.join("g", "b", "flights")
            told = await r.beat("g", "a", a.generation)
            (kept, *_), lost = held(told), next(at for at in EVERY if at not in held(told))
            # Revoked and not let go: still its own, at the old generation too.
            await commit(r, "a", a.generation, (*lost, 7))
            await commit(r, "a", told.generation, (*lost, 8))
            await r.beat("g", "a", told.generation, owned=held(told))
            error = await refusal(commit(r, "a", told.generation, (*kept, 9), (*lost, 9)))
            assert isinstance(error, Fenced) and error.error_code == "fenced_member"
            assert error.members["partitions"] == [{"topic": lost[0], "partition": lost[1]}]
            state = {(e.key.topic, e.key.partition): e.offset for e in (await r.groups.describe("g")).offsets}
            assert state[lost] == 8 and state[kept] == 0, "all or nothing"
            # What did not move is never fenced by somebody else's rebalance.
            await commit(r, "a", a.generation, (*kept, 9))
            b = await r.beat("g", "b", 1)
            assert lost in held(b) and offsets(b)[lost[1]] == 8
            # The new holder may not commit with a generation from before it held the partition.
            assert isinstance(await refusal(commit(r, "b", told.generation, (*lost, 9))), Fenced)
            await commit(r, "b", b.generation, (*lost, 9))
            future = await refusal(commit(r, "b", b.generation + 10**9, (*lost, 10)))
            assert isinstance(future, Fenced)
            stranger = await refusal(commit(r, "nobody", b.generation, (*lost, 10)))
            assert isinstance(stranger, Fenced)

    run(scenario())


@pytest.mark.rule("G4")
def test_a_member_that_left_moves_only_its_partitions_and_never_comes_back(valkey_url: str) -> None:
    async def scenario() -> None:
        async with rig(valkey_url, FakeLog(flights=6)) as r:
            told = {name: await r.join("g", name, "flights") for name in "abc"}
            for _ in range(2):
                for name in "abc":
                    owned = held(await r.beat("g", name, 1))
                    told[name] = await r.beat("g", name, told[name].generation)
                    await r.beat("g", name, told[name].generation, owned=owned)
            before = {name: held(await r.beat("g", name, 1)) for name in "abc"}
            assert [len(parts) for parts in before.values()] == [2, 2, 2]
            await r.groups.members.leave("g", "b")
            await r.groups.members.leave("g", "b")
            after = {name: held(await r.beat("g", name, 1)) for name in "ac"}
            assert all(set(before[name]) < set(after[name]) for name in "ac")
            for generation in (0, told["b"].generation):
                error = await refusal(r.join("g", "b", "flights", generation=generation))
                assert error.error_code == "fenced_member"
            await r.groups.members.leave("g", "overtaken")
            error = await refusal(r.join("g", "overtaken", "flights"))
            assert error.error_code == "fenced_member", "a join that arrives after its own leave makes no ghost"
            error = await refusal(r.beat("g", "never", 5))
            assert error.error_code == "unknown_member" and error.status == 404

    run(scenario())


@pytest.mark.rule("G4")
def test_a_session_expires_and_its_partitions_move(valkey_url: str) -> None:
    async def scenario() -> None:
        async with rig(valkey_url, FakeLog(flights=4)) as r:
            await r.join("g", "a", "flights", session_timeout_ms=10_000)
            b = await r.join("g", "b", "flights", session_timeout_ms=30_000)
            await r.redis.pass_ms(9_000)
            await r.tick()
            assert len((await r.groups.describe("g")).members) == 2
            await r.redis.pass_ms(2_000)
            await r.tick()
            assert held(await r.beat("g", "b", b.generation)) == EVERY
            assert (await refusal(r.beat("g", "a", 1))).error_code == "fenced_member"
            await r.redis.pass_ms(86_000_000)
            assert (await refusal(r.beat("g", "a", 1))).error_code == "fenced_member"
            await r.redis.pass_ms(400_000)
            assert (await refusal(r.beat("g", "a", 1))).error_code == "unknown_member"

    run(scenario())


def test_who_does_not_let_go_in_time_is_expired(valkey_url: str) -> None:
    async def scenario() -> None:
        async with rig(valkey_url, FakeLog(flights=4)) as r:
            a = await r.join("g", "a", "flights", rebalance_timeout_ms=5_000)
            b = await r.join("g", "b", "flights")
            told = await r.beat("g", "a", a.generation)
            await r.redis.pass_ms(4_000)
            assert (await r.beat("g", "a", told.generation)).releasing
            await r.redis.pass_ms(2_000)
            assert held(await r.beat("g", "b", b.generation)) == EVERY
            assert (await refusal(r.beat("g", "a", told.generation))).error_code == "fenced_member"

    run(scenario())


def test_the_reset_policy_is_applied_once_and_later_partitions_start_at_0(valkey_url: str) -> None:
    async def scenario() -> None:
        log = FakeLog()
        topic = log.create("flights", 2, start=10, end=50)
        async with rig(valkey_url, log) as r:
            a = await r.join("g", "a", "flights", auto_offset_reset="latest")
            assert offsets(a) == {0: 50, 1: 50}
            topic.partitions[0].end = 60
            bigger = log.create("flights", 3, end=70)
            bigger.topic_id = topic.topic_id
            await r.tick()
            told = await r.beat("g", "a", a.generation)
            assert offsets(told) == {0: 50, 1: 50, 2: 0}
            await r.groups.members.leave("g", "a")
            late = await r.join("g", "b", "flights", auto_offset_reset="latest")
            assert offsets(late) == {0: 50, 1: 50, 2: 0}
            # Retention went past what is committed: reading goes on with what is there.
            bigger.partitions[2].start = 5
            assert offsets(await r.join("g", "b", "flights"))[2] == 5

    run(scenario())


def test_policy_error(valkey_url: str) -> None:
    async def scenario() -> None:
        async with rig(valkey_url, FakeLog(flights=2)) as r:
            error = await refusal(r.join("g", "a", "flights", auto_offset_reset="error"))
            assert isinstance(error, OffsetOutOfRange) and "flights/0" in error.detail
            await r.groups.members.leave("g", "a")
            await commit(r, None, None, ("flights", 0, 3), ("flights", 1, 4))
            assert offsets(await r.join("g", "b", "flights", auto_offset_reset="error")) == {0: 3, 1: 4}

    run(scenario())


def test_policy_error_is_resolved_by_a_holder_with_another(valkey_url: str) -> None:
    async def scenario() -> None:
        async with rig(valkey_url, FakeLog(flights=1)) as r:
            await refusal(r.join("g", "a", "flights", auto_offset_reset="error"))
            b = await r.join("g", "b", "flights", auto_offset_reset="latest")
            await r.groups.members.leave("g", "a")
            assert offsets(await r.beat("g", "b", b.generation)) == {0: 100}

    run(scenario())


def test_a_topic_created_again_starts_anew(valkey_url: str) -> None:
    async def scenario() -> None:
        log = FakeLog(flights=2)
        async with rig(valkey_url, log) as r:
            a = await r.join("g", "a", "flights")
            await commit(r, "a", a.generation, ("flights", 0, 40), ("flights", 1, 40))
            former = log.topic("flights").topic_id
            log.create("flights", 2, end=200)
            error = await refusal(commit(r, "a", a.generation, ("flights", 0, 150)))
            assert error.error_code == "fenced_member"
            await r.tick()
            told = await r.beat("g", "a", a.generation)
            assert offsets(told) == {0: 0, 1: 0}
            assert [entry.offset for entry in (await r.groups.describe("g")).offsets] == [0, 0]
            request = CommitRequest(offsets=[CommittedOffset("flights", 0, 1)])
            assert isinstance(await refusal(r.groups.offsets.commit("g", request, former)), UnknownTopic)

    run(scenario())


def test_commits_are_checked(valkey_url: str) -> None:
    async def scenario() -> None:
        log = FakeLog(flights=1)
        log.topic("flights").partitions[0].start = 10
        async with rig(valkey_url, log) as r:
            for offset in (9, 101):
                error = await refusal(commit(r, None, None, ("flights", 0, offset)))
                assert error.status == 422 and error.members["high_watermark"] == 100
            assert (await refusal(commit(r, None, None, ("flights", 1, 1)))).error_code == "unknown_partition"
            assert isinstance(await refusal(commit(r, None, None, ("trains", 0, 1))), UnknownTopic)
            await commit(r, None, None, ("flights", 0, 10))
            await commit(r, None, None, ("flights", 0, 100))
            a = await r.join("g", "a", "flights")
            assert offsets(a) == {0: 100}
            assert (await refusal(commit(r, None, None, ("flights", 0, 10)))).error_code == "group_not_empty"
            assert (await refusal(commit(r, "a", None, ("flights", 0, 10)))).status == 422

    run(scenario())


def test_patterns_and_changes_of_subscription(valkey_url: str) -> None:
    async def scenario() -> None:
        log = FakeLog(**{"a.one": 1, "a.two": 1, "b": 1, "_audit": 1, "a.one.dlq": 1})
        async with rig(valkey_url, log) as r:
            a = await r.join("g", "a", topic_pattern="a[.].*")
            assert held(a) == [("a.one", 0), ("a.two", 0)]
            log.create("a.three", 1)
            await r.tick()
            told = await r.beat("g", "a", a.generation)
            assert held(told) == [("a.one", 0), ("a.three", 0), ("a.two", 0)]
            narrow = await r.beat("g", "a", told.generation, topics=["b"], topic_pattern="")
            assert held(narrow) == [("b", 0)] and narrow.releasing
            for pattern in ("(", "a)|(b"):
                wrong = await refusal(r.join("g", "b", topic_pattern=pattern))
                assert wrong.status == 422 and "RE2" in wrong.detail
            assert (await refusal(r.join("g", "b"))).status == 422
            assert isinstance(await refusal(r.join("g", "b", "trains")), UnknownTopic)

    run(scenario())


def test_the_first_pattern_does_not_wait_for_pandas() -> None:
    """Its import takes a second or two, in which nothing else would be served."""
    script = (
        "import sys; from siltlog.consumers.groups.topics import pattern_problem; "
        "assert pattern_problem('a.*') is None and 'pandas' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


@pytest.mark.rule("G1")
def test_a_delayed_heartbeat_changes_nothing(valkey_url: str) -> None:
    async def scenario() -> None:
        async with rig(valkey_url, FakeLog(flights=4, trains=1)) as r:
            a = await r.join("g", "a", "flights", session_timeout_ms=10_000)
            b = await r.join("g", "b", "flights")
            told = await r.beat("g", "a", a.generation)
            await r.beat("g", "a", told.generation)
            await r.redis.pass_ms(6_000)
            late = await r.beat("g", "a", a.generation, owned=[], topics=["trains"])
            assert held(late) == held(told) and late.releasing
            state = await r.groups.describe("g")
            assert [member.topics for member in state.members] == [["flights"], ["flights"]]
            # Nor did it renew the session.
            await r.redis.pass_ms(5_000)
            assert held(await r.beat("g", "b", b.generation)) == EVERY

    run(scenario())


@pytest.mark.rule("G1")
def test_what_was_told_in_a_reply_that_was_lost_is_told_again(valkey_url: str) -> None:
    async def scenario() -> None:
        async with rig(valkey_url, FakeLog(flights=4)) as r:
            a = await r.join("g", "a", "flights")
            b = await r.join("g", "b", "flights")
            lost = await r.beat("g", "a", a.generation)
            told = await r.beat("g", "a", a.generation)
            assert told == lost and told.releasing
            # The heartbeat that lets go arrives, its answer does not: once more changes nothing.
            for _ in range(2):
                await r.beat("g", "a", told.generation, owned=held(told))
                assert held(await r.beat("g", "b", b.generation)) == sorted(set(EVERY) - set(held(told)))
            # Nor does it when the one that lost something comes back to what it knew.
            again = await r.beat("g", "a", a.generation, owned=EVERY)
            assert held(again) == held(told)
            assert held(await r.beat("g", "b", b.generation)) == sorted(set(EVERY) - set(held(told)))

    run(scenario())


def test_a_lost_heartbeat_costs_nothing_while_the_session_lasts(valkey_url: str) -> None:
    async def scenario() -> None:
        async with rig(valkey_url, FakeLog(flights=4)) as r:
            a = await r.join("g", "a", "flights", session_timeout_ms=9_000)
            # One a third of the session: two in a row may get lost.
            for _ in range(3):
                await r.redis.pass_ms(8_900)
                await r.tick()
                assert (await r.beat("g", "a", a.generation)).assignment is None
            await commit(r, "a", a.generation, ("flights", 0, 1))

    run(scenario())


def test_waiting_ends_with_a_change_and_costs_nothing_before(valkey_url: str) -> None:
    async def scenario() -> None:
        async with rig(valkey_url, FakeLog(flights=4)) as r:
            a = await r.join("g", "a", "flights")
            waiting = asyncio.create_task(r.beat("g", "a", a.generation, wait_ms=15_000))
            await asyncio.sleep(0.05)
            assert not waiting.done()
            await r.join("g", "b", "flights")
            told = await waiting
            assert len(held(told)) == 2 and told.releasing

    run(scenario())


def test_nothing_runs_for_those_who_wait(valkey_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("siltlog.consumers.groups.runner.TICK_S", 0.01)

    async def scripts_run(r: Rig) -> int:
        stats = await r.redis.command("INFO", "commandstats")
        return int(stats["cmdstat_evalsha"]["calls"])

    async def scenario() -> None:
        async with rig(valkey_url, FakeLog(flights=4)) as r:
            r.groups.start()
            generations = {
                f"g{number}": (await r.join(f"g{number}", "m", "flights")).generation for number in range(50)
            }
            waiting = [
                asyncio.create_task(r.beat(group, "m", generation, wait_ms=15_000))
                for group, generation in generations.items()
            ]
            before = -1
            async with asyncio.timeout(60):
                # What began them may take its time; if they ran for ever it would never end.
                while before != (before := await scripts_run(r)):
                    await asyncio.sleep(0.3)
            await asyncio.sleep(0.3)
            assert await scripts_run(r) == before and not any(task.done() for task in waiting)
            await r.groups.close()
            await asyncio.gather(*waiting)

    run(scenario())


def test_a_change_by_another_server_is_noticed(valkey_url: str) -> None:
    async def scenario() -> None:
        log = FakeLog(flights=4)
        async with rig(valkey_url, log) as r:
            a = await r.join("g", "a", "flights")
            waiting = asyncio.create_task(r.beat("g", "a", a.generation, wait_ms=15_000))
            await asyncio.sleep(0.05)
            other = type(r.groups)(r.redis, log, r.groups.members._clock, None)
            await other.members.heartbeat("g", "b", MemberRequest(topics=["flights"]))
            r.groups._runner._check_at = 0.0
            await r.groups._runner.tick()
            assert len(held(await waiting)) == 2

    run(scenario())


def test_groups_are_listed_described_and_deleted(valkey_url: str) -> None:
    async def scenario() -> None:
        async with rig(valkey_url, FakeLog(flights=1)) as r:
            for group in ("a", "b1", "b2", "b3", "c"):
                await r.join(group, "m", "flights")
            await r.groups.members.leave("b2", "m")
            rows, after = await r.groups.list_groups("b", "", 2)
            assert [row[:3] for row in rows] == [("b1", "stable", 1), ("b2", "empty", 0)] and after == "b2"
            rows, after = await r.groups.list_groups("b", "b2", 2)
            assert [row[:3] for row in rows] == [("b3", "stable", 1)] and after is None
            assert len((await r.groups.list_groups("", "", 100))[0]) == 5
            assert (await refusal(r.groups.delete("b1"))).error_code == "group_not_empty"
            await r.groups.delete("b2")
            for gone in ("b2", "never"):
                assert (await refusal(r.groups.delete(gone))).error_code == "unknown_group"
                assert (await refusal(r.groups.describe(gone))).error_code == "unknown_group"
            # The id that left stays refused, and generations go on.
            assert (await refusal(r.join("b2", "m", "flights"))).error_code == "fenced_member"
            assert held(await r.join("b2", "n", "flights")) == [("flights", 0)]

    run(scenario())


def test_what_another_server_deleted_is_forgotten(valkey_url: str) -> None:
    async def scenario() -> None:
        log = FakeLog(flights=2)
        async with rig(valkey_url, log) as r:
            other = type(r.groups)(r.redis, log, r.groups.members._clock, None)
            for group in ("deleted", "kept"):
                await r.join(group, "a", "flights")
            await other._runner.tick()
            assert list(other.member_counts().values()) == [1, 1]
            await r.groups.members.leave("deleted", "a")
            await r.groups.delete("deleted")
            other._runner._scan_at = 0.0
            await other._runner.tick()
            assert list(other.member_counts().values()) == [1]
            # Made anew it is met anew.
            await r.join("deleted", "b", "flights")
            other._runner._scan_at = 0.0
            await other._runner.tick()
            assert list(other.member_counts().values()) == [1, 1]

    run(scenario())


def test_a_new_server_takes_up_what_it_finds(valkey_url: str) -> None:
    async def scenario() -> None:
        log = FakeLog(flights=2)
        async with rig(valkey_url, log) as r:
            await r.join("g", "a", "flights", session_timeout_ms=10_000)
            await r.join("g", "b", "flights", session_timeout_ms=60_000)
            successor = type(r.groups)(r.redis, log, r.groups.members._clock, None)
            await r.redis.pass_ms(20_000)
            await successor._runner.tick()
            state = await successor.describe("g")
            assert [(member.member, len(member.partitions)) for member in state.members] == [("b", 2)]

    run(scenario())


@pytest.mark.rule("G1")
def test_a_move_that_is_called_off(valkey_url: str) -> None:
    async def scenario() -> None:
        async with rig(valkey_url, FakeLog(flights=4)) as r:
            a = await r.join("g", "a", "flights")
            await r.join("g", "b", "flights")
            told = await r.beat("g", "a", a.generation)
            kept = held(told)
            assert len(kept) == 2
            await r.groups.members.leave("g", "b")
            # It had begun to let go; that does not count any more, and it is told to go on.
            back = await r.beat("g", "a", told.generation, owned=kept)
            assert held(back) == EVERY and not back.releasing
            await commit(r, "a", a.generation, *((topic, number, 1) for topic, number in EVERY))
            assert (await r.groups.describe("g")).state == "stable"

    run(scenario())


def test_an_assignment_from_an_old_state_is_not_installed(valkey_url: str) -> None:
    async def scenario() -> None:
        async with rig(valkey_url, FakeLog(flights=1)) as r:
            await r.join("g", "a", "flights")
            await r.join("g", "b", "flights")
            runner = r.groups._runner
            inputs = await runner.run("inputs", "g", {})
            await r.groups.members.leave("g", "b")
            key = (await r.groups.describe("g")).members[0].partitions[0].text()
            topic = key.rpartition("/")[0]
            request = {"target": [(key, "b")], "topics": [(topic, 1)], "bounds": [], "revision": inputs["revision"]}
            assert (await runner.run("assign", "g", request))["status"] == "outdated"
            state = await r.groups.describe("g")
            assert state.state == "stable" and not state.moving

    run(scenario())


def test_many_servers_and_members_at_once(valkey_url: str) -> None:
    async def scenario() -> None:
        log = FakeLog(flights=50)
        async with rig(valkey_url, log) as r:
            other = type(r.groups)(r.redis, log, r.groups.members._clock, None)
            members = [f"m{number:02d}" for number in range(40)]
            told = dict(
                zip(
                    members,
                    await asyncio.gather(
                        *(
                            (r.groups, other)[number % 2].members.heartbeat(
                                "g", member, MemberRequest(topics=["flights"])
                            )
                            for number, member in enumerate(members)
                        )
                    ),
                    strict=True,
                )
            )

            async def settle(member: str) -> None:
                at = await r.beat("g", member, 0, topics=["flights"])
                told[member] = await r.beat("g", member, at.generation, owned=held(at))

            for _ in range(2):
                await asyncio.gather(*(settle(member) for member in members))
            state = await r.groups.describe("g")
            assert state.state == "stable"
            assert sorted(len(member.partitions) for member in state.members) == [1] * 30 + [2] * 10

    run(scenario())


def test_closing_ends_every_wait(valkey_url: str) -> None:
    async def scenario() -> None:
        async with rig(valkey_url, FakeLog(flights=1)) as r:
            a = await r.join("g", "a", "flights")
            waiting = asyncio.create_task(r.beat("g", "a", a.generation, wait_ms=15_000))
            await asyncio.sleep(0.05)
            await r.groups.close()
            assert (await waiting).assignment is None

    run(scenario())


def test_closing_in_the_middle_of_anything_ends(valkey_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("siltlog.consumers.groups.runner.TICK_S", 0.0)
    monkeypatch.setattr("siltlog.consumers.groups.runner.CHECK_S", 0.0)

    async def scenario() -> None:
        for _ in range(20):
            async with rig(valkey_url, FakeLog(flights=8)) as r:
                r.groups.start()
                told = await asyncio.gather(*(r.join("g", str(number), "flights") for number in range(8)))
                waiting = [
                    asyncio.create_task(r.beat("g", str(number), at.generation, wait_ms=15_000))
                    for number, at in enumerate(told)
                ]
                await r.groups.members.leave("g", "0")
                for task in waiting[4:]:
                    task.cancel()
                await asyncio.gather(*waiting[4:], return_exceptions=True)
                await r.groups.close()
                await asyncio.gather(*waiting, return_exceptions=True)

    run(scenario())


def test_a_group_whose_state_is_damaged_holds_up_no_other(valkey_url: str) -> None:
    async def scenario() -> None:
        async with rig(valkey_url, FakeLog(flights=2)) as r:
            for group in ("a", "b", "c"):
                await r.join(group, "gone", "flights", session_timeout_ms=10_000)
                await r.join(group, "kept", "flights", session_timeout_ms=60_000)
            await r.redis.command("SET", "silt:{b}:held", "damaged")
            await r.redis.pass_ms(11_000)
            error = await refusal(r.tick())
            assert "WRONGTYPE" in error.detail
            for group in ("a", "c"):
                assert r.groups._runner._known[group].members == 1
                assert len(held(await r.beat(group, "kept", 1))) == 2

    run(scenario())
