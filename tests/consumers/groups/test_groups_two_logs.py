"""Servers of two logs on one Redis: a group's members read one of them."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from groups_rig import embedded, held, offsets, refusal, run
from offsets_rig import log_with, server

from siltlog.consumers.keeping.saved_offsets import SavedOffset
from siltlog.consumers.reading.view import Key
from siltlog.infra.redis.embedded import EmbeddedValkey
from siltlog.infra.redis.keys import group_key
from siltlog.infra.telemetry import logger


@pytest.fixture
def own(tmp_path: Path) -> Iterator[EmbeddedValkey]:
    valkey = embedded(tmp_path)
    yield valkey
    valkey.stop()


@pytest.mark.rule("G8")
def test_a_group_whose_members_read_another_log_is_left_alone(own: EmbeddedValkey, tmp_path: Path) -> None:
    async def scenario() -> None:
        url = await asyncio.to_thread(own.start)
        ours, theirs = log_with(tmp_path / "a", t=2), log_with(tmp_path / "b", t=3)
        async with server(url, ours, cluster_id="a") as a, server(url, theirs, cluster_id="b") as b:
            told = await a.join("m", "t", session_timeout_ms=10_000)
            assert len(held(told)) == 2
            error = await refusal(b.join("n", "t"))
            assert error.error_code == "group_not_empty" and "another log" in error.detail
            # Nor does it plan for them: it does not have their topics.
            for r in (b, a, b):
                await r.groups._runner.tick()
                await r.groups._runner.plan("g")
            again = await a.join("m", "t")
            assert held(again) == held(told) and not again.releasing
            assert len(held(await b.join("n", "t", group="h"))) == 3
            # With its last member gone, also by b's clockwork, the group is anybody's.
            await a.pass_ms(11_000)
            await b.redis.pass_ms(11_000)
            await b.groups._runner.run("sweep", "g", {})
            assert len(held(await b.join("n", "t"))) == 3
            assert (await refusal(a.join("o", "t"))).error_code == "group_not_empty"

    run(scenario())


@pytest.mark.rule("O9")
def test_a_copy_of_a_log_does_not_go_on_where_groups_of_that_log_were(
    own: EmbeddedValkey, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def refused() -> list[str]:
        """The groups of which the log has said that they are refused, since this was asked last."""
        lines = map(json.loads, capsys.readouterr().err.splitlines())
        return [line["group"] for line in lines if line["event"] == "group_of_another_log"]

    async def scenario() -> None:
        url = await asyncio.to_thread(own.start)
        log, copy = log_with(tmp_path / "a", t=1), log_with(tmp_path / "b", t=1)
        copy.topic("t").topic_id = log.topic("t").topic_id
        async with server(url, log, cluster_id="a") as a:
            for group in ("g", "h"):
                told = await a.join("m", "t", group=group, session_timeout_ms=10_000)
                await a.commit({0: 90}, told, group=group)
            await a.commit({0: 90}, group="by hand")
        capsys.readouterr()
        async with server(url, copy, cluster_id="b", told=logger("warning", "json")) as b:
            b.offsets.table.put("g", SavedOffset(Key("t", copy.topic("t").topic_id, 0), 50, 1, "", 0))
            await b.redis.pass_ms(11_000)
            for group in ("g", "h", "by hand"):
                for _ in range(2):
                    error = await refusal(b.join("n", "t", group=group))
                    assert error.error_code == "coordinator_unavailable" and "a Redis of its own" in error.detail
                    assert error.retryable == "yes"
            assert refused() == ["g", "h", "by hand"]
            [warning] = b.groups.degraded()
            assert "3 went on in another log" in warning
            await b.tick()
            assert len(held(await b.join("n", "t", group="new"))) == 1
            await b.redis.command("FLUSHALL")
            assert offsets(await b.join("n", "t")) == {0: 50}
            assert "2 went on in another log" in b.groups.degraded()[0]
            # Nobody asks for the others any more, and yet they are known to be no more.
            await b.tick()
            assert b.groups.degraded() == []
            assert offsets(await b.join("n", "t", group="h")) == {0: 0}
            assert refused() == []

    run(scenario())


@pytest.mark.rule("O9")
def test_a_group_of_another_log_keeps_no_other_from_being_looked_after(own: EmbeddedValkey, tmp_path: Path) -> None:
    async def scenario() -> None:
        url = await asyncio.to_thread(own.start)
        log, copy = log_with(tmp_path / "a", t=1), log_with(tmp_path / "b", t=1)
        copy.topic("t").topic_id = log.topic("t").topic_id
        async with server(url, log, cluster_id="a") as a:
            told = await a.join("m", "t", session_timeout_ms=10_000)
            await a.commit({0: 90}, told)
        async with server(url, copy, cluster_id="b") as b:
            assert (await refusal(b.join("n", "t"))).error_code == "coordinator_unavailable"
            await b.join("m", "t", group="other", session_timeout_ms=10_000)
            await b.groups._runner.tick()
            assert b.groups.member_counts()["other"] == 1
            await b.pass_ms(11_000)
            for known in b.groups._runner._known.values():
                known.due = min(known.due, 0.0)
            await b.groups._runner.tick()
            assert b.groups.member_counts()["other"] == 0
        # Nor do those that nobody uses stay.
        async with server(url, copy, cluster_id="b", retention_ms=1_000) as b:
            for group in ("g", "unused"):
                b.offsets.table.put(group, SavedOffset(Key("t", copy.topic("t").topic_id, 0), 50, 1, "", 0))
            await b.tick()
            await b.pass_ms(20_000)
            await b.tick()
            assert not b.saved("unused") and b.saved("g") == {0: 50}

    run(scenario())


@pytest.mark.rule("O9", "O10")
def test_a_group_of_another_log_keeps_no_other_from_forgetting_deleted_topics(
    own: EmbeddedValkey, tmp_path: Path
) -> None:
    async def scenario() -> None:
        url = await asyncio.to_thread(own.start)
        log, copy = log_with(tmp_path / "a", t=1, u=1), log_with(tmp_path / "b", t=1, u=1)
        for topic in ("t", "u"):
            copy.topic(topic).topic_id = log.topic(topic).topic_id
        async with server(url, log, cluster_id="a") as a:
            await a.commit({0: 90})
            await a.commit({0: 60}, topic="u")
        async with server(url, copy, cluster_id="b") as b:
            for topic, offset in (("t", 50), ("u", 40)):
                b.offsets.table.put("g", SavedOffset(Key(topic, copy.topic(topic).topic_id, 0), offset, 1, "", 0))
            await b.commit({0: 30}, topic="u", group="other")
            await b.tick()
            copy.delete("u")
            await b.tick()
            assert [(group, entry.key.topic) for group, entry in b.offsets.table.entries()] == [("g", "t"), ("g", "u")]
            assert await b.redis.command("HKEYS", group_key("other", "offsets")) == []
            theirs = await b.redis.command("HKEYS", group_key("g", "offsets"))
            assert {name.split(b"/")[0] for name in theirs} == {b"t", b"u"}
            # Once the other log's group is no more its turn comes, though no topic came or went since.
            await b.redis.command("FLUSHALL")
            await b.tick()
            assert [(group, entry.key.topic) for group, entry in b.offsets.table.entries()] == [("g", "t")]

    run(scenario())
