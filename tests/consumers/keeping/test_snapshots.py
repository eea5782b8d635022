"""What `_offsets` is for: a Redis that is lost costs records that come again, and never one that is skipped."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from groups_rig import offsets, refusal, run
from offsets_rig import Server, log_with, server

from siltlog.consumers.groups.messages import MemberRequest, Membership, PartitionName
from siltlog.consumers.reading.view import Key
from siltlog.infra import names
from siltlog.infra.errors import SiltlogError, Unavailable
from siltlog.infra.redis.embedded import EmbeddedValkey
from siltlog.infra.redis.keys import GROUPS_KEY, group_key


async def flush(r: Server) -> None:
    await r.redis.command("FLUSHALL")


@pytest.mark.rule("O2")
def test_an_emptied_redis_gets_its_offsets_back_before_a_member_is_told_where_to_start(
    url: str, tmp_path: Path
) -> None:
    async def scenario() -> None:
        async with server(url, log_with(tmp_path, t=3)) as r:
            told = await r.join("m", "t", auto_offset_reset="latest")
            await r.commit({0: 100, 1: 100}, told)
            await r.tick()
            await flush(r)
            assert (await refusal(r.commit({0: 100}, told))).error_code == "fenced_member"
            assert (await refusal(r.groups.members.heartbeat("g", "m", _beat(told)))).error_code == "unknown_member"
            r.log.topic("t").partitions[2].append([b"v"] * 50)
            again = await r.join("m2", "t", auto_offset_reset="latest")
            # Partition 2 goes on where `latest` was when the group first came, not where it is now.
            assert offsets(again) == {0: 100, 1: 100, 2: 100}
            assert again.generation > told.generation

    run(scenario())


def _beat(told: Membership, wait_ms: int = 0) -> MemberRequest:
    return MemberRequest(generation=told.generation, wait_ms=wait_ms)


def test_what_was_committed_since_the_last_snapshot_comes_again_and_nothing_is_skipped(
    url: str, tmp_path: Path
) -> None:
    async def scenario() -> None:
        async with server(url, log_with(tmp_path, t=1)) as r:
            told = await r.join("m", "t")
            await r.commit({0: 40}, told)
            await r.tick()
            await r.commit({0: 60}, told)
            await flush(r)
            assert offsets(await r.join("m2", "t")) == {0: 40}

    run(scenario())


@pytest.mark.rule("O1")
@pytest.mark.parametrize("policy", ["earliest", "latest"])
def test_a_first_offset_is_kept_before_the_member_is_told_of_it(url: str, tmp_path: Path, policy: str) -> None:
    async def scenario() -> None:
        async with server(url, log_with(tmp_path, t=2)) as r:
            first = await r.join("m", "t", auto_offset_reset=policy)
            for view in r.log.topic("t").partitions:
                view.append([b"v"] * 7)
            await flush(r)
            assert offsets(await r.join("m2", "t", auto_offset_reset=policy)) == offsets(first)

    run(scenario())


@pytest.mark.rule("O1")
def test_where_it_cannot_be_kept_nobody_is_told_of_it(url: str, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with server(url, log_with(tmp_path, t=1)) as r:
            r.system.refusing = True
            assert isinstance(await refusal(r.join("m", "t", auto_offset_reset="latest")), Unavailable)
            assert isinstance(await refusal(r.join("m", "t", auto_offset_reset="latest")), Unavailable)
            r.system.refusing = False
            assert offsets(await r.join("m", "t", auto_offset_reset="latest")) == {0: 100}
            assert r.saved() == {0: 100}

    run(scenario())


@pytest.mark.rule("O1")
def test_an_offset_that_goes_back_is_kept_before_it_is_answered(url: str, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with server(url, log_with(tmp_path, t=1)) as r:
            told = await r.join("m", "t")
            await r.commit({0: 80}, told)
            await r.tick()
            await r.commit({0: 90}, told)
            assert r.saved() == {0: 80}
            await r.commit({0: 30}, told)
            assert r.saved() == {0: 30}
            await flush(r)
            assert offsets(await r.join("m2", "t")) == {0: 30}

    run(scenario())


@pytest.mark.rule("O1")
def test_what_is_set_without_a_member_is_kept_before_it_is_answered(url: str, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with server(url, log_with(tmp_path, t=2)) as r:
            await r.commit({0: 10, 1: 20})
            await r.commit({0: 50})
            await flush(r)
            assert await r.committed() == {0: 50, 1: 20}
            r.system.refusing = True
            assert isinstance(await refusal(r.commit({0: 60})), Unavailable)

    run(scenario())


def test_a_commit_is_answered_without_waiting_for_a_snapshot(url: str, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with server(url, log_with(tmp_path, t=1)) as r:
            told = await r.join("m", "t")
            appends = r.system.appends
            for offset in range(1, 50):
                await r.commit({0: offset}, told)
            assert r.system.appends == appends
            await r.tick()
            assert r.system.appends == appends + 1 and r.saved() == {0: 49}
            await r.tick()
            assert r.system.appends == appends + 1, "nothing was committed since"
            assert not await r.redis.command("EXISTS", group_key("g", "unsaved"))

    run(scenario())


@pytest.mark.rule("O3")
def test_an_absent_group_is_not_new_until_all_was_read(url: str, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr("siltlog.consumers.keeping.snapshots.LOAD_WAIT_S", 0.01)

    async def scenario() -> None:
        log = log_with(tmp_path, t=1)
        async with server(url, log) as r:
            await r.commit({0: 70})
        async with server(url, log, loaded=False) as r:
            # Known in Redis: there is nothing to wait for.
            assert await r.committed() == {0: 70}
            await flush(r)
            for call in (r.join("m", "t"), r.commit({0: 5}), r.groups.describe("g"), r.groups.delete("g")):
                refused = await refusal(call)
                assert (refused.error_code, refused.status) == ("coordinator_unavailable", 503)
                assert refused.retry_after_ms
            assert (await refusal(r.groups.list_groups("", "", 10))).error_code == "coordinator_unavailable"
            assert (await refusal(r.join("m", "t", group="really-new"))).error_code == "coordinator_unavailable"
            await r.tick()
            assert offsets(await r.join("m", "t")) == {0: 70}
            assert offsets(await r.join("m", "t", group="really-new")) == {0: 0}

    run(scenario())


@pytest.mark.parametrize("group", ["saved", "never-saved"])
def test_a_member_that_waits_learns_of_the_loss_at_once(url: str, tmp_path: Path, group: str) -> None:
    async def scenario() -> None:
        async with server(url, log_with(tmp_path, t=1, empty=0)) as r:
            told = await r.join("m", "t" if group == "saved" else "empty", group=group)
            waiting = asyncio.create_task(r.groups.members.heartbeat(group, "m", _beat(told, wait_ms=15_000)))
            await asyncio.sleep(0.05)
            await flush(r)
            await r.tick()
            if group == "never-saved":
                assert (await refusal(r.groups.describe(group))).error_code == "unknown_group"
            # Far less than it would wait.
            assert (await refusal(asyncio.wait_for(waiting, 10))).error_code == "unknown_member"

    run(scenario())


def test_all_groups_of_an_emptied_redis_are_listed_at_once(url: str, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with server(url, log_with(tmp_path, t=1)) as r:
            for group in ("a", "b", "c"):
                await r.commit({0: 10}, group=group)
            await r.tick()
            await flush(r)
            rows, _ = await r.groups.list_groups("", "", 10)
            assert [row[:3] for row in rows] == [("a", "empty", 0), ("b", "empty", 0), ("c", "empty", 0)]
            await flush(r)
            await r.tick()
            assert len(await r.redis.command("ZRANGE", GROUPS_KEY, 0, -1)) == 3

    run(scenario())


@pytest.mark.rule("O4")
def test_restoring_writes_only_what_is_absent_and_of_two_the_higher_version(url: str, tmp_path: Path) -> None:
    async def scenario() -> None:
        log = log_with(tmp_path, t=3)
        async with server(url, log) as r:
            await r.commit({0: 10, 1: 10, 2: 10})
            told = await r.join("m", "t")
            await r.commit({1: 20}, told)
            key = group_key("g", "offsets")
            at = {number: Key("t", log.topic("t").topic_id, number).text() for number in range(3)}
            older = await r.redis.command("HGET", key, at[2])
            await r.commit({2: 30}, told)
            await r.tick()
            await r.commit({1: 25}, told)
            # As a Redis that comes back without some of what it had: it names itself anew then.
            await r.redis.command("HDEL", key, at[0])
            await r.redis.command("HSET", key, at[2], older)
            await r.redis.command("HDEL", group_key("g", "state"), "restored/c")
            assert await r.committed() == {0: 10, 1: 25, 2: 30}

    run(scenario())


@pytest.mark.rule("O5")
def test_partitions_added_later_start_at_their_beginning_after_a_loss_too(url: str, tmp_path: Path) -> None:
    async def scenario() -> None:
        log = log_with(tmp_path, t=2)
        async with server(url, log) as r:
            await r.join("m", "t", auto_offset_reset="latest")
            topic = log.topic("t")
            grown = log_with(tmp_path / "other", t=3).topic("t").partitions[2]
            grown.topic = topic
            topic.snapshot.starts[2] = topic.snapshot.offsets[2] = 0
            topic.partitions.append(grown)
            await flush(r)
            assert offsets(await r.join("m2", "t", auto_offset_reset="latest")) == {0: 100, 1: 100, 2: 0}

    run(scenario())


def test_how_much_of_a_topic_was_seen_is_kept_with_offsets_that_were_set_before(url: str, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with server(url, log_with(tmp_path, t=2)) as r:
            await r.commit({0: 40, 1: 50})
            assert {entry.partitions_seen for entry in r.offsets.table.of("g")} == {0}
            await r.join("m", "t", auto_offset_reset="latest")
            await r.tick()
            assert {entry.partitions_seen for entry in r.offsets.table.of("g")} == {2}
            appends = r.system.appends
            await r.tick()
            assert r.system.appends == appends

    run(scenario())


def test_a_topic_that_the_group_never_read_begins_as_its_policy_says_after_a_loss_too(url: str, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with server(url, log_with(tmp_path, t=3)) as r:
            await r.commit({0: 40})
            await flush(r)
            told = await r.join("m", "t", auto_offset_reset="latest")
            assert offsets(told) == {0: 40, 1: 100, 2: 100}

    run(scenario())


def test_a_deleted_group_does_not_come_back(url: str, tmp_path: Path) -> None:
    async def scenario() -> None:
        log = log_with(tmp_path, t=1)
        async with server(url, log) as r:
            await r.commit({0: 70})
            await r.groups.delete("g")
            assert (await refusal(r.groups.describe("g"))).error_code == "unknown_group"
            await flush(r)
            assert (await refusal(r.groups.describe("g"))).error_code == "unknown_group"
            assert (await r.groups.list_groups("", "", 10))[0] == []
        async with server(url, log) as r:
            await flush(r)
            assert offsets(await r.join("m", "t")) == {0: 0}

    run(scenario())


def test_asking_for_what_is_not_there_leaves_nothing_in_redis(url: str, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with server(url, log_with(tmp_path, t=1)) as r:
            for group in ("a", "b"):
                assert (await refusal(r.groups.describe(group))).error_code == "unknown_group"
                assert (await refusal(r.groups.delete(group))).error_code == "unknown_group"
            assert await r.redis.command("KEYS", "silt:{*") == []

    run(scenario())


def test_who_joins_waits_for_its_own_group_alone(url: str, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with server(url, log_with(tmp_path, t=1)) as r:
            told = await r.join("m", "t", group="busy")
            await r.commit({0: 70}, told, group="busy")
            await asyncio.gather(*(r.join("m", "t", group=f"g{number}") for number in range(10)))
            assert r.saved("busy") == {0: 0} and all(r.saved(f"g{number}") == {0: 0} for number in range(10))
            assert r.system.appends < 11, "who waits at once shares an append"
            await r.tick()
            assert r.saved("busy") == {0: 70}

    run(scenario())


@pytest.mark.rule("O6")
def test_a_deletion_that_was_cut_short_is_finished_by_the_next(url: str, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with server(url, log_with(tmp_path, t=1)) as r:
            await r.commit({0: 70})
            r.system.refusing = True
            assert isinstance(await refusal(r.groups.delete("g")), Unavailable)
            r.system.refusing = False
            await r.groups.delete("g")
            assert (await refusal(r.groups.delete("g"))).error_code == "unknown_group"
            await flush(r)
            assert (await refusal(r.groups.describe("g"))).error_code == "unknown_group"

    run(scenario())


@pytest.mark.rule("O6")
def test_a_group_that_is_deleted_while_it_is_saved_stays_deleted(url: str, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with server(url, log_with(tmp_path, t=1)) as r:
            told = await r.join("m", "t")
            await r.commit({0: 70}, told)
            await r.groups.members.leave("g", "m")
            deleting: list[asyncio.Task[None]] = []

            async def delete() -> None:
                deleting.append(asyncio.create_task(r.groups.delete("g")))
                for _ in range(50):
                    await asyncio.sleep(0.001)

            r.system.between = delete
            await r.tick()
            await deleting[0]
            assert r.saved() == {}
            await flush(r)
            assert (await refusal(r.groups.describe("g"))).error_code == "unknown_group"

    run(scenario())


@pytest.mark.rule("KF17")
def test_an_offset_that_is_forgotten_while_it_is_saved_stays_forgotten(url: str, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with server(url, log_with(tmp_path, t=2)) as r:
            told = await r.join("m", "t")
            await r.commit({0: 70, 1: 60}, told)
            await r.groups.members.leave("g", "m")
            forgetting: list[asyncio.Task[Any]] = []

            async def forget() -> None:
                forgetting.append(asyncio.create_task(r.groups.offsets.forget("g", [PartitionName("t", 0)])))
                for _ in range(50):
                    await asyncio.sleep(0.001)

            r.system.between = forget
            await r.tick()
            await forgetting[0]
            assert r.saved() == {1: 60}
            await flush(r)
            assert await r.committed() == {1: 60}
            # What is committed after it counts.
            await r.commit({0: 5})
            await flush(r)
            assert await r.committed() == {0: 5, 1: 60}

    run(scenario())


def test_offsets_of_a_deleted_topic_do_not_come_back(url: str, tmp_path: Path) -> None:
    async def scenario() -> None:
        log = log_with(tmp_path, t=1, u=1)
        async with server(url, log) as r:
            await r.commit({0: 70})
            await r.commit({0: 30}, topic="u")
            log.delete("t")
            successor = log.create("t", 1)
            successor.partitions[0].append([b"new"] * 100)
            await r.tick()
            assert {entry.key.topic for entry in r.offsets.table.of("g")} == {"u"}
        async with server(url, log) as r:
            await flush(r)
            told = await r.join("m", "t", "u")
            assert told.assignment is not None
            assert {at.key.topic: at.offset for at in told.assignment} == {"t": 0, "u": 30}

    run(scenario())


@pytest.mark.rule("O11")
def test_a_topic_that_cannot_be_read_keeps_nothing_else_from_being_kept(url: str, tmp_path: Path) -> None:
    async def scenario() -> None:
        log = log_with(tmp_path, t=1, u=1)
        async with server(url, log) as r:
            await r.commit({0: 70})
            await r.commit({0: 30}, topic="u", group="h")
            await r.tick()
        log.unreadable.add("t")
        async with server(url, log) as r:
            await flush(r)
            # Others are put back, and what they commit from now on is saved.
            await r.tick()
            assert await r.committed("h") == {0: 30}
            told = await r.join("m", "u", group="h")
            await r.commit({0: 40}, told, topic="u", group="h")
            await r.tick()
            assert r.saved("h") == {0: 40}
            assert r.saved("g") == {0: 70}, "it is none that was deleted"
            log.unreadable.clear()
            await r.tick()
            assert await r.committed("g") == {0: 70}

    run(scenario())


@pytest.mark.rule("O10")
def test_redis_forgets_what_a_deleted_topic_had_also_where_it_took_nothing_at_first(url: str, tmp_path: Path) -> None:
    async def scenario() -> None:
        log = log_with(tmp_path, t=1, u=1)
        async with server(url, log) as r:
            await r.commit({0: 70})
            await r.commit({0: 30}, topic="u")
            await r.tick()
            log.delete("t")
            await r.redis.command("ACL", "SETUSER", "default", "-hdel")
            try:
                with pytest.raises(SiltlogError):
                    await r.tick()
            finally:
                await r.redis.command("ACL", "SETUSER", "default", "+hdel")
            await r.tick()
            there = await r.redis.command("HKEYS", group_key("g", "offsets"))
            assert [key.split(b"/")[0] for key in there] == [b"u"]
            assert {entry.key.topic for entry in r.offsets.table.of("g")} == {"u"}

    run(scenario())


def test_a_group_that_nobody_uses_is_forgotten_and_one_with_members_is_not(url: str, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with server(url, log_with(tmp_path, t=1), retention_ms=3_600_000) as r:
            await r.commit({0: 1}, group="old")
            await r.commit({0: 1}, group="held")
            told = await r.join("m", "t", group="held", session_timeout_ms=3_600_000)
            await r.pass_ms(3_000_000)
            await r.groups.members.heartbeat("held", "m", _beat(told))
            await r.pass_ms(3_000_000)
            await r.commit({0: 1}, group="new")
            await r.tick()
            assert r.offsets.table.groups() == ["held", "new"]
            await r.groups.members.leave("held", "m")
            await r.tick()
            assert "held" in r.offsets.table.groups(), "it is unused only since now"
            await flush(r)
            assert [row[0] for row in (await r.groups.list_groups("", "", 10))[0]] == ["held", "new"]

    run(scenario())


def test_a_group_whose_topics_are_gone_is_forgotten_too(url: str, tmp_path: Path) -> None:
    async def scenario() -> None:
        log = log_with(tmp_path, t=1, u=1)
        async with server(url, log, retention_ms=3_600_000) as r:
            for group, topic in (("gone", "t"), ("other", "u")):
                await r.join("m", topic, group=group)
                await r.groups.members.leave(group, "m")
            told = await r.join("m", "t", group="held", session_timeout_ms=3_600_000)
            log.delete("t")
            await r.tick()
            await r.pass_ms(1_000_000)
            await r.join("m", "u", group="new")
            await r.tick()
            assert [row[0] for row in (await r.groups.list_groups("", "", 10))[0]] == ["gone", "held", "new", "other"]
            await r.pass_ms(2_000_000)
            await r.groups.members.heartbeat("held", "m", _beat(told))
            # Those of a log that shares this Redis are its own to forget.
            await r.redis.command("ZADD", GROUPS_KEY, 0, "theirs")
            await r.redis.command("HSET", group_key("theirs", "state"), "created", 1, "log", "another")
            await r.redis.command("ZADD", GROUPS_KEY, 0, "never met")
            await r.redis.command("HSET", group_key("never met", "state"), "created", 1)
            await r.pass_ms(1_000_000)
            await r.tick()
            left = [row[0] for row in (await r.groups.list_groups("", "", 10))[0]]
            assert left == ["held", "never met", "new", "theirs"]

    run(scenario())


def test_a_clock_that_jumps_ahead_has_no_group_forgotten(url: str, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with server(url, log_with(tmp_path, t=1), retention_ms=3_600_000) as r:
            await r.commit({0: 1})
            r.clock.later_ms += 4_000_000
            await r.tick()
            assert r.offsets.table.groups() == ["g"]
            r.clock.later_ms -= 4_000_000
            await r.redis.pass_ms(4_000_000)
            await r.tick()
            assert r.offsets.table.groups() == ["g"]
            r.clock.later_ms += 4_000_000
            await r.tick()
            assert r.offsets.table.groups() == []

    run(scenario())


def test_a_server_that_is_restarted_reads_table_and_head_and_saves_what_it_left_unsaved(
    url: str, tmp_path: Path
) -> None:
    async def scenario() -> None:
        log = log_with(tmp_path, t=3)
        async with server(url, log) as r:
            told = await r.join("m", "t")
            for offset in range(1, 40):
                await r.commit({0: offset, 1: 2 * offset}, told)
                await r.tick()
                if offset in (10, 20, 30):
                    log.topic(names.OFFSETS_TOPIC).partitions[0].flush()
            log.topic(names.OFFSETS_TOPIC).partitions[0].evict()
            await r.commit({2: 99}, told)
        async with server(url, log) as r:
            assert r.saved() == {0: 39, 1: 78, 2: 0}
            await r.tick()
            assert r.saved() == {0: 39, 1: 78, 2: 99}
            await flush(r)
            assert await r.committed() == {0: 39, 1: 78, 2: 99}

    run(scenario())


@pytest.mark.rule("O7")
def test_two_servers_on_one_redis_do_not_undo_each_others_work(url: str, tmp_path: Path) -> None:
    async def scenario() -> None:
        ours, theirs = log_with(tmp_path / "a", t=1), log_with(tmp_path / "b", u=1)
        async with server(url, ours, cluster_id="a") as a, server(url, theirs, cluster_id="b") as b:
            await a.commit({0: 50})
            await b.commit({0: 60}, topic="u")
            for r in (a, b, a, b):
                await r.tick()
            assert [entry.key.topic for entry in a.offsets.table.of("g")] == ["t"]
            assert [entry.key.topic for entry in b.offsets.table.of("g")] == ["u"]
            await flush(a)
            # Whoever is asked first puts back its own; what the other has waits for the other.
            assert {at.key.topic: at.offset for at in (await a.join("m", "t")).assignment or ()} == {"t": 50}
            assert {entry.key.topic: entry.offset for entry in (await b.groups.describe("g")).offsets} == {"u": 60}
            await a.groups.members.leave("g", "m")
            told = await b.join("n", "u", auto_offset_reset="latest")
            assert {at.key.topic: at.offset for at in told.assignment or ()} == {"u": 60}

    run(scenario())


@pytest.mark.rule("O7")
@pytest.mark.parametrize("by_hand", [True, False])
def test_a_group_that_one_log_deletes_is_still_the_others(url: str, tmp_path: Path, *, by_hand: bool) -> None:
    async def scenario() -> None:
        ours, theirs = log_with(tmp_path / "a", t=1), log_with(tmp_path / "b", u=1)
        async with (
            server(url, ours, cluster_id="a", retention_ms=1_000) as a,
            server(url, theirs, cluster_id="b") as b,
        ):
            await a.commit({0: 50})
            await b.commit({0: 60}, topic="u")
            await b.tick()
            if by_hand:
                await a.groups.delete("g")
            else:
                await a.pass_ms(2_000)
                await a.tick()
            assert a.offsets.table.of("g") == []
            told = await b.join("n", "u", auto_offset_reset="latest")
            assert {at.key.topic: at.offset for at in told.assignment or ()} == {"u": 60}
            await b.groups.members.leave("g", "n")
            told = await a.join("m", "t", auto_offset_reset="latest")
            assert {at.key.topic: at.offset for at in told.assignment or ()} == {"t": 100}, "it was deleted"

    run(scenario())


def test_a_valkey_that_lost_its_files_is_filled_again(own: EmbeddedValkey, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with server(own.start(), log_with(tmp_path, t=2)) as r:
            told = await r.join("m", "t")
            await r.commit({0: 33, 1: 44}, told)
            await r.tick()
            await asyncio.to_thread(own.stop)
            for file in (tmp_path / "valkey").rglob("*"):
                if file.is_file() and ("aof" in file.name or file.suffix == ".rdb"):
                    file.unlink()
            await asyncio.to_thread(own.start)
            assert offsets(await _patiently(r)) == {0: 33, 1: 44}

    run(scenario())


async def _patiently(r: Server) -> Membership:
    """A join that bears a connection that broke."""
    for _ in range(3_000):
        try:
            return await r.join("m2", "t")
        except Unavailable:
            await asyncio.sleep(0.02)
    raise AssertionError("groups do not come back")


def test_it_is_said_while_nothing_is_kept_beside_redis(url: str, tmp_path: Path) -> None:
    async def until(r: Server, degraded: bool) -> list[str]:
        for _ in range(6_000):
            await asyncio.sleep(0.01)
            if bool(r.groups.degraded()) == degraded:
                return r.groups.degraded()
        raise AssertionError(r.groups.degraded())

    async def scenario() -> None:
        async with server(url, log_with(tmp_path, t=1)) as r:
            r.offsets.interval_ms = 10
            told = await r.join("m", "t")
            r.groups.start()
            r.system.refusing = True
            await r.commit({0: 5}, told)
            [said] = await until(r, degraded=True)
            assert "write-ahead log" in said
            r.system.refusing = False
            await until(r, degraded=False)
            assert r.saved() == {0: 5}

    run(scenario())


def test_lags_are_measured_from_what_was_saved(url: str, tmp_path: Path, monkeypatch: Any) -> None:
    async def scenario() -> None:
        async with server(url, log_with(tmp_path, t=2)) as r:
            await r.commit({0: 100, 1: 40})
            await r.tick()
            lags = {(group, key.partition): lag for group, key, lag in r.groups.lags()}
            assert [lags["g", number].records for number in (0, 1)] == [0, 60]
            assert lags["g", 0].seconds == 0 and lags["g", 1].seconds > 1_000
            assert r.groups.lags_left_out() == 0
            monkeypatch.setattr("siltlog.consumers.keeping.upkeep.LAGS_MAX", 1)
            await r.tick()
            assert (len(r.groups.lags()), r.groups.lags_left_out()) == (1, 1)

    run(scenario())
