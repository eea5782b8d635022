"""Groups in a Redis Cluster: each group is on one node, all of it, and touches no other."""

import asyncio
import json
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import urllib3
from groups_rig import FakeLog, held, offsets, refusal, run
from valkey_cluster import Cluster, cluster

from siltlog.consumers.groups.groups import Groups
from siltlog.consumers.groups.messages import CommitRequest, CommittedOffset, MemberRequest, Membership, PartitionName
from siltlog.consumers.groups.scripts import _FOLDER, TRANSITIONS
from siltlog.infra.clock import SystemClock
from siltlog.infra.errors import Unavailable
from siltlog.infra.redis.access import RedisAccess
from siltlog.infra.redis.connection import RedisConnection
from siltlog.infra.redis.keys import GROUP_PARTS, group_key
from siltlog.infra.telemetry import logger
from siltlog.testing import running_server

GROUPS = [f"g{number}" for number in range(9)]
EVERY = [("flights", number) for number in range(4)]
OLDEST = (6, 2, 0)
"""The version of Redis that everything has to be there in."""


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[Cluster]:
    with cluster(tmp_path) as started:
        yield started


@asynccontextmanager
async def groups(nodes: Cluster, log: FakeLog) -> AsyncIterator[Groups]:
    redis = RedisConnection(RedisAccess(nodes.url))
    made = Groups(redis, log, SystemClock(), logger("critical", "console"))
    try:
        yield made
    finally:
        await made.close()
        await redis.close()


def join(at: Groups, group: str, member: str, **fields: int) -> asyncio.Task[Membership]:
    return asyncio.ensure_future(at.members.heartbeat(group, member, MemberRequest(topics=["flights"], **fields)))  # type: ignore[arg-type]


def owned(told: Membership) -> list[PartitionName]:
    return [PartitionName(*at) for at in held(told)]


@pytest.mark.slow
def test_groups_on_every_node_of_a_cluster(nodes: Cluster) -> None:
    async def scenario() -> None:
        log = FakeLog(flights=4)
        assert {nodes.node_of(group_key(group, "state")) for group in GROUPS} == {0, 1, 2}
        for group in GROUPS:
            keys = [group_key(group, part) for part in GROUP_PARTS]
            slots = {nodes.clients[0].execute_command("CLUSTER", "KEYSLOT", key) for key in keys}
            assert len(slots) == 1, "a script touches one slot"
        async with groups(nodes, log) as one, groups(nodes, log) as other:
            for group in GROUPS:
                a = await join(one, group, "a")
                assert held(a) == EVERY
                await join(other, group, "b")
                told = await one.members.heartbeat(group, "a", MemberRequest(generation=a.generation))
                entry = CommittedOffset("flights", held(told)[0][1], 7)
                await other.offsets.commit(group, CommitRequest([entry], "a", told.generation))
                await other.members.heartbeat(group, "a", MemberRequest(generation=told.generation, owned=owned(told)))
                b = await one.members.heartbeat(group, "b", MemberRequest(generation=1))
                assert sorted(held(b) + held(told)) == EVERY
                assert (await other.describe(group)).state == "stable"
                assert (
                    offsets(await one.members.heartbeat(group, "a", MemberRequest(generation=1)))[entry.partition] == 7
                )
            listed, _ = await one.list_groups("", "", 100)
            assert [row[:3] for row in listed] == [(group, "stable", 2) for group in GROUPS]
            for member in "ab":
                await one.members.leave(GROUPS[0], member)
            await other.delete(GROUPS[0])
            # A change that another server makes wakes who waits here, whatever node it is on.
            waiting = []
            for group in GROUPS[1:]:
                told = await join(one, group, "a")
                request = MemberRequest(generation=told.generation, wait_ms=15_000)
                waiting.append(asyncio.ensure_future(one.members.heartbeat(group, "a", request)))
            await asyncio.sleep(0.1)
            for group in GROUPS[1:]:
                await other.members.leave(group, "b")
            one._runner._check_at = 0.0
            await one._runner.tick()
            for task in waiting:
                assert held(await task) == EVERY
            async with groups(nodes, log) as third:
                await third._runner.tick()
                assert list(third.member_counts().values()) == [1] * (len(GROUPS) - 1)

    run(scenario())


@pytest.mark.slow
def test_a_node_that_is_away_takes_only_its_own_groups_with_it(nodes: Cluster) -> None:
    async def scenario() -> None:
        log = FakeLog(flights=4)
        away = [group for group in GROUPS if nodes.node_of(group_key(group, "state")) == 1]
        there = [group for group in GROUPS if group not in away]
        async with groups(nodes, log) as one:
            for group in GROUPS:
                await join(one, group, "a", session_timeout_ms=3_000)
                await join(one, group, "b", session_timeout_ms=60_000)
            nodes.kill(1)
            await asyncio.sleep(3.2)
            # The sessions of a end, also in groups that come after one that cannot be reached.
            assert isinstance(await refusal(one._runner.tick()), Unavailable)
            for group in there:
                assert held(await one.members.heartbeat(group, "b", MemberRequest(generation=1))) == EVERY
                assert one._runner._known[group].members == 1
            for group in away:
                error = await refusal(one.members.heartbeat(group, "b", MemberRequest(generation=1)))
                assert isinstance(error, Unavailable) and error.error_code == "coordinator_unavailable"
            log.create("flights", 5).topic_id = log.topic("flights").topic_id
            assert isinstance(await refusal(one._runner.tick()), Unavailable)
            for group in there:
                assert len(held(await one.members.heartbeat(group, "b", MemberRequest(generation=1)))) == 5

    run(scenario())


@pytest.mark.slow
def test_a_server_on_a_cluster(nodes: Cluster) -> None:
    def call(method: str, path: str, **body: Any) -> tuple[int, Any]:
        headers = {"Content-Type": "application/json"}
        url = server.url + path
        reply = urllib3.request(method, url, body=json.dumps(body), headers=headers, timeout=30, retries=False)
        return reply.status, json.loads(reply.data) if reply.data else None

    away = [group for group in GROUPS if nodes.node_of(group_key(group, "state")) == 1]
    with running_server(redis_url=nodes.url, offsets_snapshot_ms=50) as server:
        call("POST", "/v1/topics", name="flights", partitions=2)
        records = [{"value": "v", "partition": partition} for partition in (0, 1)]
        assert call("POST", "/v1/topics/flights/records", records=records)[0] == 200
        for group in GROUPS:
            poll = f"/v1/groups/{group}/members/a/poll"
            status, polled = call("POST", poll, topics=["flights"])
            assert status == 200 and len(polled["records"]) == 2
            attempt = {"member_id": "a", "generation": polled["generation"], "topic": "flights", "partition": 0}
            assert call("POST", f"/v1/groups/{group}/attempts", **attempt, offset=0) == (200, {"attempts": 1})
            commit = [{"topic": "flights", "partition": partition, "offset": 1} for partition in (0, 1)]
            status, polled = call("POST", poll, generation=polled["generation"], commit=commit)
            assert (status, polled["records"]) == (200, [])
            assert call("GET", f"/v1/groups/{group}")[1]["state"] == "stable"
            assert call("DELETE", f"/v1/groups/{group}/members/a")[0] == 204
        assert len(call("GET", "/v1/groups")[1]["groups"]) == len(GROUPS)
        nodes.kill(1)
        for group in GROUPS:
            status, answer = call("GET", f"/v1/groups/{group}/offsets")
            if group in away:
                assert (status, answer["error_code"]) == (503, "coordinator_unavailable")
            else:
                assert (status, [entry["offset"] for entry in answer["offsets"]]) == (200, [1, 1])


def commands() -> set[str]:
    """What the scripts call, and what is called beside them."""
    called: set[str] = set()
    for name in ("prelude", "classic", *TRANSITIONS):
        called |= set(re.findall(r"redis\.p?call\(\s*'(\w+)'", (_FOLDER / f"{name}.lua").read_text()))
    for path in (*_FOLDER.parent.glob("*.py"), *_FOLDER.parents[1].joinpath("keeping").glob("*.py")):
        called |= set(re.findall(r"\(\s*\"([A-Z]{3,})\", (?:\w+_)?(?:key|KEY)\b", path.read_text()))
    return called | {"EVAL", "EVALSHA", "PING"}


def test_every_command_is_there_in_the_oldest_redis(valkey_url: str) -> None:
    """Asks the server itself since when it has each; none takes an option of a later version."""

    async def scenario() -> None:
        redis = RedisConnection(RedisAccess(valkey_url))
        known = commands()
        assert {"HSET", "TIME", "ZRANGEBYLEX", "ZADD", "HGET"} <= known
        for command in sorted(known):
            _, facts = await redis.command("COMMAND DOCS", command)
            since = facts[facts.index(b"since") + 1].decode()
            version = tuple(map(int, since.split(".")))
            assert version <= OLDEST, f"{command} came with {since}"
        await redis.close()

    run(scenario())


@pytest.mark.parametrize("name", ["prelude", "classic", *TRANSITIONS])
def test_scripts_touch_only_the_keys_they_are_given(name: str) -> None:
    text = (_FOLDER / f"{name}.lua").read_text()
    keys = {part.upper() for part in GROUP_PARTS}
    for command, key in re.findall(r"redis\.p?call\(\s*'(\w+)'(?:,\s*([^,)]+))?", text):
        if command == "DEL":
            assert all(word.strip() in keys for word in re.findall(r"'DEL',([^)]*)\)", text)[0].split(","))
        elif command not in ("TIME", "INFO"):
            assert key in keys or key == "key", f"{command} {key}"
