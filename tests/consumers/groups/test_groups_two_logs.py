"""Servers of two logs on one Redis: a group's members read one of them."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from groups_rig import embedded, held, refusal, run
from offsets_rig import log_with, server

from siltlog.infra.redis.embedded import EmbeddedValkey


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
