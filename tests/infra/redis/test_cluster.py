"""Calls of a real Redis Cluster: many at once, beside nodes that die or hang, and while slots move."""

import asyncio
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis
from redis.crc import key_slot
from valkey_cluster import Cluster, cluster

from siltlog.infra.errors import SiltlogError, Unavailable
from siltlog.infra.redis.access import RedisAccess
from siltlog.infra.redis.client import RedisClient
from siltlog.infra.redis.cluster import _Node, _owners
from siltlog.infra.redis.connection import RedisConnection

pytestmark = pytest.mark.slow

KEYS = [f"key-{number}" for number in range(60)]


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[Cluster]:
    with cluster(tmp_path) as started:
        yield started


def keys_of(nodes: Cluster, node: int) -> list[str]:
    return [key for key in KEYS if nodes.node_of(key) == node]


def slots_asked(nodes: Cluster, node: int) -> int:
    """How often the node was asked who has which slot."""
    stats = nodes.clients[node].info("commandstats")
    return int(stats.get("cmdstat_cluster|slots", {"calls": 0})["calls"])


async def refused(connection: RedisConnection, key: str) -> bool:
    try:
        await connection.command("GET", key)
    except SiltlogError as error:
        assert isinstance(error, Unavailable) and error.error_code == "coordinator_unavailable"
        return True
    return False


def test_many_calls_at_once(nodes: Cluster) -> None:
    async def scenario() -> None:
        connection = RedisConnection(RedisAccess(nodes.url))
        script = connection.script("return cmsgpack.pack(redis.call('INCR', KEYS[1]))")

        async def calls(key: str) -> None:
            for number in range(20):
                assert await script([key], None) == 2 * number + 1
                assert await connection.command("GET", key) == str(2 * number + 1).encode()
                assert await connection.commands([("INCR", key), ("GET", key)]) == [
                    2 * number + 2,
                    str(2 * number + 2).encode(),
                ]

        await asyncio.gather(*map(calls, KEYS))
        assert await connection.commands([("GET", key) for key in KEYS]) == [b"40"] * len(KEYS)
        assert await connection.commands([]) == []
        await connection.close()

    asyncio.run(scenario())


def test_a_node_that_died_is_left_alone_by_most_calls(nodes: Cluster) -> None:
    async def scenario() -> None:
        connection = RedisConnection(RedisAccess(nodes.url))
        away, there = keys_of(nodes, 1), [*keys_of(nodes, 0), *keys_of(nodes, 2)]
        await connection.commands([("SET", key, "1") for key in KEYS])
        nodes.kill(1)
        began, asked = asyncio.get_running_loop().time(), slots_asked(nodes, 0) + slots_asked(nodes, 2)
        for _ in range(20):
            assert all(await asyncio.gather(*(refused(connection, key) for key in away)))
            assert not any(await asyncio.gather(*(refused(connection, key) for key in there)))
        with pytest.raises(Unavailable):
            await connection.commands([("GET", key) for key in KEYS])
        seconds = asyncio.get_running_loop().time() - began
        assert slots_asked(nodes, 0) + slots_asked(nodes, 2) - asked <= seconds + 1
        await connection.close()

    asyncio.run(scenario())


def test_a_node_that_hangs_holds_up_no_call_of_another(nodes: Cluster) -> None:
    async def scenario() -> None:
        connection = RedisConnection(RedisAccess(nodes.url))
        await connection.commands([("SET", key, "1") for key in KEYS])
        pid = int(nodes.clients[1].info("server")["process_id"])
        os.kill(pid, signal.SIGSTOP)
        try:
            hanging = [asyncio.create_task(refused(connection, key)) for key in keys_of(nodes, 1) * 5]
            await asyncio.sleep(0)
            for key in [*keys_of(nodes, 0), *keys_of(nodes, 2)]:
                assert await connection.command("GET", key) == b"1"
            assert not any(task.done() for task in hanging)
            assert all(await asyncio.gather(*hanging))
        finally:
            os.kill(pid, signal.SIGCONT)
        while await refused(connection, keys_of(nodes, 1)[0]):
            await asyncio.sleep(0.1)
        assert await connection.commands([("GET", key) for key in KEYS]) == [b"1"] * len(KEYS)
        await connection.close()

    asyncio.run(scenario())


def test_slots_move_while_they_are_used(nodes: Cluster) -> None:
    """As operators do it: the new owner imports, the old one migrates, then the slot is given to the new one."""

    async def scenario() -> None:
        connection = RedisConnection(RedisAccess(nodes.url))
        key = keys_of(nodes, 0)[0]
        slot = key_slot(key.encode())
        ids = [client.execute_command("CLUSTER", "MYID").decode() for client in nodes.clients]
        script = connection.script("return cmsgpack.pack(redis.call('INCR', KEYS[1]))")
        assert await script([key], None) == 1
        nodes.clients[2].execute_command("CLUSTER", "SETSLOT", slot, "IMPORTING", ids[0])
        nodes.clients[0].execute_command("CLUSTER", "SETSLOT", slot, "MIGRATING", ids[2])
        assert await script([key], None) == 2
        nodes.clients[0].execute_command("MIGRATE", "127.0.0.1", nodes.ports[2], key, 0, 5_000)
        # The old owner says ASK.
        assert await script([key], None) == 3
        assert await connection.commands([("INCR", key), ("GET", key)]) == [4, b"4"]
        for client in (nodes.clients[2], nodes.clients[0]):
            client.execute_command("CLUSTER", "SETSLOT", slot, "NODE", ids[2])
        # It says MOVED.
        assert await connection.commands([("INCR", key), ("GET", key)]) == [5, b"5"]
        assert await script([key], None) == 6
        await connection.close()

    asyncio.run(scenario())


@pytest.mark.parametrize("dead", [0, 1])
def test_slots_of_a_node_that_died_are_found_at_another(nodes: Cluster, dead: int) -> None:
    """Also where it is the one of the address, and no other was called before."""

    async def scenario() -> None:
        connection = RedisConnection(RedisAccess(nodes.url))
        key = keys_of(nodes, dead)[0]
        await connection.command("SET", key, "1")
        new_owner = nodes.clients[2].execute_command("CLUSTER", "MYID")
        nodes.kill(dead)
        assert await refused(connection, key)
        nodes.clients[2].execute_command("CLUSTER", "BUMPEPOCH")
        for node in (2, 1 - dead):
            nodes.clients[node].execute_command("CLUSTER", "SETSLOT", key_slot(key.encode()), "NODE", new_owner)
        while await refused(connection, key):
            await asyncio.sleep(0.1)
        assert await connection.command("GET", key) is None
        assert await connection.command("PING") in (True, b"PONG")
        await connection.close()

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("row", "address"),
    [
        ([b"10.0.0.2", 7000, b"id", []], ("10.0.0.2", 7000)),
        ([b"", 7000, b"id", []], ("seed", 7000)),
        ([None, 7000, b"id"], ("seed", 7000)),
        ([b"?", 7000, b"id", [b"ip", b"10.0.0.2"]], ("10.0.0.2", 7000)),
        ([b"?", 7000, b"id", {b"ip": b"10.0.0.2"}], ("10.0.0.2", 7000)),
    ],
)
def test_where_a_node_is(row: list[object], address: tuple[str, int]) -> None:
    seed = _Node(RedisClient(RedisAccess("redis://seed:1/0")), "seed", lambda: None)
    owners = _owners([[5, 6, row, [b"replica", 7001, b"id", []]]], seed)
    assert owners[4:8] == [None, address, address, None]


def test_a_node_without_a_name_is_not_taken_for_another() -> None:
    seed = _Node(RedisClient(RedisAccess("redis://seed:1/0")), "seed", lambda: None)
    with pytest.raises(ValueError, match="cluster-announce-hostname"):
        _owners([[0, 1, [b"?", 7000, b"id", []]]], seed)


def test_one_broken_connection_is_no_node_that_is_away() -> None:
    """The call after one that failed tries the node; if that fails too, the node is left alone."""

    async def scenario() -> None:
        doubts: list[None] = []
        node = _Node(RedisClient(RedisAccess("redis://seed:1/0")), "seed", lambda: doubts.append(None))

        async def breaks(_: RedisClient) -> None:
            raise redis.ConnectionError("Connection closed by server.")

        async def answers(_: RedisClient) -> str:
            return "answer"

        for _ in range(3):
            with pytest.raises(redis.ConnectionError, match="closed"):
                await node.call(breaks)
            assert await node.call(answers) == "answer"
        for _ in range(2):
            with pytest.raises(redis.ConnectionError, match="closed"):
                await node.call(breaks)
        with pytest.raises(redis.ConnectionError, match="took no call a moment ago"):
            await node.call(answers)
        assert len(doubts) == 5

    asyncio.run(scenario())


def test_nobody_is_there_and_then_all_are(tmp_path: Path) -> None:
    async def scenario() -> None:
        connection = RedisConnection(RedisAccess(nodes.url))
        for node in range(3):
            os.kill(pids[node], signal.SIGSTOP)
        hanging = asyncio.create_task(refused(connection, KEYS[0]))
        await asyncio.sleep(0.1)
        for node in range(3):
            os.kill(pids[node], signal.SIGCONT)
        assert not await hanging
        for node in range(3):
            nodes.kill(node)
        assert all([await refused(connection, key) for key in KEYS])
        await connection.close()

    with cluster(tmp_path) as nodes:
        pids = [int(client.info("server")["process_id"]) for client in nodes.clients]
        asyncio.run(scenario())
