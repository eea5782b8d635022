"""Several servers of one log on one Redis: one of them keeps what groups commit, and the others ask it."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from chaos import seeds
from groups_rig import offsets, refusal, run
from keeper_rig import Cluster, Life, flush, snapshots
from offsets_rig import Server, log_with, server

from siltlog.consumers.groups.messages import MemberRequest, PartitionName
from siltlog.infra.redis.keys import group_key

Scenario = Callable[[Cluster, list[Server]], Awaitable[None]]


def with_servers(url: str, folder: Path, scenario: Scenario, count: int = 2, **topics: int) -> None:
    async def play() -> None:
        cluster = Cluster(url, log_with(folder, **(topics or {"t": 2})))
        async with cluster.running(*"abc"[:count]) as servers:
            await scenario(cluster, servers)

    run(play())


@pytest.mark.rule("CG2")
def test_what_one_server_commits_is_saved_by_the_keeper_and_comes_back_at_any(url: str, tmp_path: Path) -> None:
    async def scenario(cluster: Cluster, servers: list[Server]) -> None:
        a, b = servers
        told = await b.join("m", "t", auto_offset_reset="latest")
        # A first offset is there before anybody is told of it.
        assert a.saved() == {0: 100, 1: 100} and b.saved() == {}
        await b.commit({0: 100}, told)
        await b.commit({1: 70}, told)
        assert a.saved() == {0: 100, 1: 70}, "one that goes back too"
        await b.groups.members.leave("g", "m")
        await b.commit({0: 40})
        assert a.saved() == {0: 40, 1: 70}
        await flush(b)
        assert offsets(await b.join("n", "t", auto_offset_reset="latest")) == {0: 40, 1: 70}
        assert await b.groups.offsets.forget("g", [PartitionName("t", 0)]), "a member reads it"
        await b.groups.members.leave("g", "n")
        assert a.saved() == {0: 40, 1: 70}
        assert not await b.groups.offsets.forget("g", [PartitionName("t", 0), PartitionName("none", 0)])
        assert a.saved() == {1: 70}
        await flush(b)
        assert await b.committed() == {1: 70}
        await b.groups.delete("g")
        assert a.saved() == {}
        await flush(b)
        for r in servers:
            assert (await refusal(r.groups.describe("g"))).error_code == "unknown_group"

    with_servers(url, tmp_path, scenario)


@pytest.mark.rule("CG2")
def test_the_keeper_saves_in_its_time_what_others_only_noted(url: str, tmp_path: Path) -> None:
    async def scenario(cluster: Cluster, servers: list[Server]) -> None:
        a, b = servers
        told = await b.join("m", "t", auto_offset_reset="earliest")
        asked = cluster.asked
        await b.commit({0: 50}, told)
        assert a.saved() == {0: 0, 1: 0} and cluster.asked == asked, "a commit waits for no other server"
        await b.tick()
        assert a.saved() == {0: 50, 1: 0} and cluster.asked == asked + 1
        await b.tick()
        assert cluster.asked == asked + 1
        # Where the server that took the commit dies, the keeper finds it.
        await b.commit({0: 60}, told)
        await a.tick()
        assert a.saved() == {0: 60, 1: 0}

    with_servers(url, tmp_path, scenario)


@pytest.mark.rule("CG2")
def test_all_groups_of_an_emptied_redis_are_listed_at_any_server(url: str, tmp_path: Path) -> None:
    async def scenario(cluster: Cluster, servers: list[Server]) -> None:
        a, b = servers
        for group in ("x", "y"):
            await b.commit({0: 10}, group=group)
        await flush(a)
        assert [row[0] for row in (await b.groups.list_groups("", "", 10))[0]] == ["x", "y"]
        asked = cluster.asked
        await b.groups.list_groups("", "", 10)
        assert cluster.asked == asked

    with_servers(url, tmp_path, scenario)


@pytest.mark.rule("CG3")
def test_a_keeper_that_takes_over_reads_and_saves_and_the_one_before_stops(url: str, tmp_path: Path) -> None:
    async def scenario(cluster: Cluster, servers: list[Server]) -> None:
        a, b, c = servers
        told = await c.join("m", "t", auto_offset_reset="latest")
        await c.commit({0: 80}, told)
        a.offsets.lost()
        await cluster.take("b")
        assert b.saved() == {0: 80, 1: 100}
        await c.commit({0: 70}, told)
        assert b.saved() == {0: 70, 1: 100} and a.saved() == {}
        await c.commit({1: 100}, told)
        await flush(a)
        assert offsets(await a.join("n", "t", auto_offset_reset="latest")) == {0: 70, 1: 100}
        # And back.
        b.offsets.lost()
        await cluster.take("a")
        await b.groups.members.leave("g", "n")
        await b.commit({0: 30})
        assert a.saved() == {0: 30, 1: 100}

    with_servers(url, tmp_path, scenario, 3)


@pytest.mark.rule("CG3")
def test_nothing_is_put_back_before_the_keeper_has_read_all(url: str, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr("siltlog.consumers.keeping.snapshots.LOAD_WAIT_S", 0.01)

    async def scenario(cluster: Cluster, servers: list[Server]) -> None:
        a, b = servers
        await b.commit({0: 70})
        a.offsets.lost()
        cluster.owner = ""
        assert (await refusal(a.join("m", "t", group="new"))).status == 503, "nobody keeps them"
        cluster.owner = "b"
        b.system.epoch = 2 * 2**32
        b.offsets.owned()
        # What Redis knows waits for nothing; what it has lost, and what may be new, does.
        assert await a.committed() == {0: 70}
        await flush(a)
        for r in servers:
            for call in (r.join("m", "t"), r.groups.describe("g"), r.join("m", "t", group="new")):
                assert (await refusal(call)).error_code == "coordinator_unavailable"
        await b.tick()
        assert offsets(await a.join("m", "t")) == {0: 70, 1: 0}

    with_servers(url, tmp_path, scenario)


@pytest.mark.rule("CG4")
def test_a_zombie_keeper_does_not_bring_back_a_deleted_group(url: str, tmp_path: Path) -> None:
    async def scenario(cluster: Cluster, servers: list[Server]) -> None:
        zombie, b = servers
        await b.commit({0: 50})
        await cluster.take("b")
        await b.tick()
        await b.groups.delete("g")
        assert zombie.saved() == {0: 50} and zombie.offsets.kept
        # It wakes where it was: about to put back what it had read.
        error = await refusal(snapshots(zombie).restore("g"))
        assert error.error_code == "coordinator_unavailable" and "later keeper" in error.detail
        for r in (b, zombie, b):
            assert (await refusal(r.groups.describe("g"))).error_code == "unknown_group"
        # By now it has heard, and asks the other.
        assert offsets(await zombie.join("m", "t", auto_offset_reset="latest")) == {0: 100, 1: 100}
        assert b.saved() == {0: 100, 1: 100}

    with_servers(url, tmp_path, scenario)


@pytest.mark.rule("CG4")
@pytest.mark.parametrize("emptied", [False, True], ids=["kept", "emptied"])
def test_a_zombie_keeper_does_not_undo_a_reset(url: str, tmp_path: Path, *, emptied: bool) -> None:
    async def scenario(cluster: Cluster, servers: list[Server]) -> None:
        zombie, b = servers
        await b.commit({0: 50, 1: 60})
        await cluster.take("b")
        await b.commit({0: 5})
        if emptied:
            await flush(b)
            # Before anybody else asks: Redis knows of no keeper then, and takes what the zombie has.
            await snapshots(zombie).restore("g")
        else:
            await refusal(snapshots(zombie).restore("g"))
        assert await b.committed() == {0: 5, 1: 60}
        assert await zombie.committed() == {0: 5, 1: 60}

    with_servers(url, tmp_path, scenario)


@pytest.mark.rule("CG4")
def test_what_a_zombie_keeper_took_for_saved_is_saved(url: str, tmp_path: Path) -> None:
    async def scenario(cluster: Cluster, servers: list[Server]) -> None:
        zombie, b = servers
        told = await b.join("m", "t", auto_offset_reset="earliest")
        await b.commit({0: 20}, told)
        # The other has read all there was, and what the zombie appends now counts for nothing.
        cluster.servers["a"].system.log = log_with(tmp_path / "nowhere")
        await zombie.tick()
        assert zombie.saved() == {0: 20, 1: 0}
        await cluster.take("b")
        assert b.saved() == {0: 0, 1: 0}
        await b.tick()
        await b.tick()
        assert b.saved() == {0: 20, 1: 0}
        # One that is on its way is refused.
        await b.commit({0: 30}, told)
        snapshots(zombie).note("g")
        error = await refusal(snapshots(zombie).save())
        assert error.error_code == "coordinator_unavailable"
        assert await b.redis.command("EXISTS", group_key("g", "unsaved"))

    with_servers(url, tmp_path, scenario)


@pytest.mark.rule("CG4")
def test_a_server_whose_beat_is_old_puts_nothing_back(url: str, tmp_path: Path) -> None:
    async def scenario() -> None:
        fresh = True
        async with server(url, log_with(tmp_path, t=1), fresh=lambda: fresh) as r:
            await r.commit({0: 50})
            await flush(r)
            fresh = False
            assert (await refusal(r.join("m", "t"))).error_code == "coordinator_unavailable"
            fresh = True
            assert offsets(await r.join("m", "t")) == {0: 50}

    run(scenario())


@pytest.mark.rule("CG5")
def test_while_nobody_keeps_them_commits_go_on_and_what_must_be_kept_first_waits(url: str, tmp_path: Path) -> None:
    async def scenario(cluster: Cluster, servers: list[Server]) -> None:
        a, b = servers
        told = await b.join("m", "t", auto_offset_reset="earliest")
        a.offsets.lost()
        cluster.owner = ""
        await b.commit({0: 50}, told)
        assert (
            await b.groups.members.heartbeat("g", "m", MemberRequest(generation=told.generation))
        ).assignment is None
        assert (await refusal(b.commit({0: 40}, told))).status == 503, "it goes back"
        await cluster.take("b")
        await b.commit({0: 60}, told)
        assert b.saved()[0] == 60
        await flush(b)
        assert offsets(await a.join("n", "t"))[0] == 60

    with_servers(url, tmp_path, scenario)


def test_a_member_that_waits_at_another_server_learns_of_the_loss(url: str, tmp_path: Path) -> None:
    async def scenario(cluster: Cluster, servers: list[Server]) -> None:
        a, b = servers
        told = await b.join("m", "t")
        beat = MemberRequest(generation=told.generation, wait_ms=15_000)
        waiting = asyncio.create_task(b.groups.members.heartbeat("g", "m", beat))
        await asyncio.sleep(0.05)
        await flush(a)
        b.groups._runner._check_at = 0.0
        await b.groups.tick()
        assert (await refusal(asyncio.wait_for(waiting, 10))).error_code == "unknown_member"

    with_servers(url, tmp_path, scenario)


@pytest.mark.rule("CG3")
def test_who_has_claimed_them_again_unheard_reads_them_anew(url: str, tmp_path: Path) -> None:
    async def scenario(cluster: Cluster, servers: list[Server]) -> None:
        a, b = servers
        await a.commit({0: 50})
        # Another had them meanwhile, and nobody told this one.
        await cluster.take("b")
        await b.commit({0: 40})
        cluster.owner = "a"
        a.system.epoch = 3 * 2**32
        assert (await refusal(a.commit({0: 30}))).error_code == "coordinator_unavailable"
        await a.tick()
        assert a.saved() == {0: 30}

    with_servers(url, tmp_path, scenario)


@pytest.mark.rule("CG2", "CG3", "CG4")
@pytest.mark.chaos
@pytest.mark.parametrize("seed", seeds(6))
def test_whoever_keeps_them_nothing_is_skipped(url: str, tmp_path: Path, seed: int) -> None:
    async def play() -> None:
        cluster = Cluster(url, log_with(tmp_path, 1_000, t=2))
        async with cluster.running("a", "b"):
            life = Life(cluster, seed)
            await life.any().commit(life.committed)
            for _ in range(40):
                await life.step()

    run(play())
