"""Nodes of one cluster that do not have the same Redis: two of them would make two assignments."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from groups_rig import FakeLog, SkewedRedis, embedded, held, refusal, run

from siltlog.consumers.groups.groups import Groups
from siltlog.consumers.groups.messages import MemberRequest
from siltlog.infra.clock import SystemClock
from siltlog.infra.redis.embedded import EmbeddedValkey
from siltlog.infra.redis.keys import redis_key
from siltlog.infra.redis.same import SameRedis, other_redis
from siltlog.infra.telemetry import logger


@pytest.fixture
def valkeys(tmp_path: Path) -> Iterator[list[EmbeddedValkey]]:
    servers = [embedded(tmp_path / name) for name in ("one", "two")]
    yield servers
    for server in servers:
        server.stop()


@asynccontextmanager
async def node(
    url: str, log: FakeLog, beats: dict[str, str], controller: str
) -> AsyncIterator[tuple[Groups, SameRedis]]:
    redis = SkewedRedis(url)
    same = SameRedis(redis, "c", lambda: beats.get(controller, ""))
    groups = Groups(redis, log, SystemClock(), logger("critical", "console"), same=same)
    try:
        yield groups, same
    finally:
        await groups.close()
        await redis.close()


@pytest.mark.rule("CG1")
def test_a_node_with_another_redis_than_the_controllers_serves_no_groups(valkeys: list[EmbeddedValkey]) -> None:
    async def scenario() -> None:
        urls = [await asyncio.to_thread(valkey.start) for valkey in valkeys]
        log, beats = FakeLog(t=2), dict[str, str]()
        join = MemberRequest(topics=["t"])
        async with (
            node(urls[0], log, beats, "a") as (a, of_a),
            node(urls[0], log, beats, "a") as (b, of_b),
            node(urls[1], log, beats, "a") as (c, of_c),
        ):
            # Whoever comes first puts it there.
            await asyncio.gather(*(same.look() for same in (of_a, of_b, of_c)))
            assert of_a.value == of_b.value != of_c.value and len(of_a.value) == 32
            beats["a"] = of_a.value
            assert len(held(await a.members.heartbeat("g", "m", join))) == 2
            assert (await b.members.heartbeat("g", "n", join)).assignment == []
            for call in (
                c.members.heartbeat("g", "o", join),
                c.describe("g"),
                c.delete("g"),
                c.list_groups("", "", 10),
                c.tick(),
            ):
                error = await refusal(call)
                assert (error.error_code, error.status) == ("coordinator_unavailable", 503), error
                assert "SILT_REDIS_URL" in error.detail
            # Where the controller is another the others are out.
            beats["a"] = of_c.value
            assert (await refusal(b.describe("g"))).status == 503
            await c.members.heartbeat("g", "o", join)
            # One that was emptied is known again at once, whoever comes first.
            beats["a"] = of_a.value
            await a._redis.command("FLUSHALL")
            for same in (of_b, of_a):
                await same.look()
            assert of_a.value == of_b.value == beats["a"]
            assert (await refusal(b.describe("g"))).error_code == "unknown_group"

    run(scenario())


@pytest.mark.rule("CG1")
def test_a_node_looks_before_its_first_answer_and_every_second(valkeys: list[EmbeddedValkey]) -> None:
    async def scenario() -> None:
        urls = [await asyncio.to_thread(valkey.start) for valkey in valkeys]
        beats = {"a": "of-another-redis"}
        async with node(urls[0], FakeLog(t=1), beats, "a") as (groups, same):
            assert (await refusal(groups.describe("g"))).error_code == "coordinator_unavailable"
            await groups._redis.command("HSET", redis_key("c"), "value", "of-another-redis")
            assert (await refusal(groups.describe("g"))).error_code == "coordinator_unavailable"
            groups._runner._look_at = 0.0
            await groups.tick()
            assert (await refusal(groups.describe("g"))).error_code == "unknown_group" and same.value == beats["a"]

    run(scenario())


def test_what_is_not_known_stops_nobody() -> None:
    assert other_redis("", "x", "here") is None and other_redis("x", "", "here") is None
    assert other_redis("x", "x", "here") is None
    error = other_redis("x", "y", "redis://here")
    assert error is not None and "redis://here" in error.detail
