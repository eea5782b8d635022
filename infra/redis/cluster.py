"""Calls of a Redis Cluster: each goes to the node that has its key, and waits for no other."""

import asyncio
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeAlias, TypeVar
from urllib.parse import urlsplit

from redis import exceptions
from redis.crc import REDIS_CLUSTER_HASH_SLOTS, key_slot

from siltlog.infra.redis.access import RedisAccess
from siltlog.infra.redis.client import Command, RedisClient

AWAY_S = 1.0
"""How long a node that took no call is left alone, and how often at most is asked who has which slot."""
TRIES_MAX = 8
TRY_AGAIN_S = 0.05

Address: TypeAlias = tuple[str, int]
T = TypeVar("T")

_LOST = (exceptions.ConnectionError, exceptions.TimeoutError, exceptions.ClusterDownError, OSError)
"""What says that a node takes no calls now."""


class Cluster:
    """The nodes of a Redis Cluster, and which of them has which slot, as the Redis cluster specification has it.

    A command has keys of one slot, or none; one without a key goes to any node. `seed` is a client of the address of
    `access`, which leads to one of the nodes. Errors are redis-py's.

    Its RedisCluster (8.1) is not used: where several calls run at once, one that fails closes the connections under the
    others, which fail by that and do the same, for as long as calls come.
    """

    def __init__(self, seed: RedisClient, access: RedisAccess) -> None:
        self._seed = _Node(seed, urlsplit(access.url).hostname or "localhost")
        self._access = access
        self._nodes: dict[Address, _Node] = {}
        self._owners: list[Address | None] = []
        """Of each slot; empty until they are first read."""
        self._stale = True
        self._look_at = 0.0
        self._looking: asyncio.Task[None] | None = None

    async def execute(self, *command: str | bytes | int) -> Any:
        """The reply. Follows the key where it is moved or about to be."""
        await self._view()
        slot = _slot(command)
        for _ in range(TRIES_MAX):
            node = self._node(slot)
            try:
                return await self._call(node, lambda client: client.execute(*command))
            except exceptions.MovedError as moved:
                self._moved(moved, node)
            except exceptions.AskError as ask:
                return await self._call(self._at(_address(ask, node)), lambda client: _asking(client, command))
            except exceptions.TryAgainError:
                await asyncio.sleep(TRY_AGAIN_S)
        raise exceptions.ClusterError(f"slot {slot} is on the move for too long")

    async def execute_all(self, commands: Sequence[Command]) -> list[Any]:
        """The replies, in order; one round trip to each node. Raises the first error of those that any gave."""
        await self._view()
        positions: defaultdict[_Node, list[int]] = defaultdict(list)
        for position, command in enumerate(commands):
            positions[self._node(_slot(command))].append(position)
        replies: list[Any] = [None] * len(commands)

        async def at(node: _Node) -> None:
            found = await self._call(node, lambda client: client.pipeline([commands[i] for i in positions[node]]))
            for position, reply in zip(positions[node], found, strict=True):
                if isinstance(reply, exceptions.AskError | exceptions.TryAgainError):
                    replies[position] = await self.execute(*commands[position])
                elif isinstance(reply, Exception):
                    raise reply
                else:
                    replies[position] = reply

        for outcome in await asyncio.gather(*map(at, positions), return_exceptions=True):
            if isinstance(outcome, BaseException):
                raise outcome
        return replies

    async def close(self) -> None:
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.gather(self._looking, return_exceptions=True)
        for node in self._nodes.values():
            await node.client.close()

    async def _call(self, node: "_Node", use: Callable[[RedisClient], Awaitable[T]]) -> T:
        try:
            return await node.call(use)
        except _LOST:
            self._stale = True
            raise

    def _node(self, slot: int | None) -> "_Node":
        if slot is None:
            return next((node for node in self._nodes.values() if node.away_until is None), self._seed)
        address = self._owners[slot]
        if address is None:
            self._stale = True
            raise exceptions.ClusterDownError(f"no node of the cluster has slot {slot}")
        return self._at(address)

    def _at(self, address: Address) -> "_Node":
        if address not in self._nodes:
            self._nodes[address] = _Node(RedisClient(self._access.at(*address)), address[0])
        return self._nodes[address]

    def _moved(self, moved: exceptions.MovedError, said_by: "_Node") -> None:
        self._owners[moved.slot_id] = _address(moved, said_by)
        # Others have moved too, likely.
        self._stale = True

    async def _view(self) -> None:
        """Sees to it that the owners of slots are read where they may have changed; waits for it the first time."""
        if self._stale and self._looking is None and time.monotonic() >= self._look_at:
            self._stale = False
            self._look_at = time.monotonic() + AWAY_S
            self._looking = asyncio.create_task(self._look())
        if not self._owners:
            if self._looking is None:
                raise exceptions.ConnectionError("no node of the cluster took a call a moment ago")
            # Whoever is cancelled meanwhile takes it from nobody else.
            await asyncio.shield(self._looking)

    async def _look(self) -> None:
        try:
            await self._read_owners()
        except Exception:
            self._stale = True
            if not self._owners:
                raise
        finally:
            self._looking = None

    async def _read_owners(self) -> None:
        there = [node for node in self._nodes.values() if node.away_until is None]
        failure: Exception = exceptions.ClusterDownError("no node of the cluster knows of any slot")
        for node in (*there, self._seed):
            try:
                rows = await node.client.execute("CLUSTER SLOTS")
            except (exceptions.RedisError, OSError) as error:
                failure = error
                continue
            if rows:
                self._owners = _owners(rows, node)
                await self._forget_others()
                return
        raise failure

    async def _forget_others(self) -> None:
        for address in self._nodes.keys() - set(self._owners):
            await self._nodes.pop(address).client.close_idle()


class _Node:
    def __init__(self, client: RedisClient, host: str) -> None:
        self.client = client
        self.host = host
        self.away_until: float | None = None

    async def call(self, use: Callable[[RedisClient], Awaitable[T]]) -> T:
        """What `use` returns. Raises ConnectionError where a call failed a moment ago, and nothing is asked."""
        self._check()
        try:
            answer = await use(self.client)
        except _LOST:
            self.away_until = time.monotonic() + AWAY_S
            raise
        except exceptions.ResponseError:
            self.away_until = None
            raise
        self.away_until = None
        return answer

    def _check(self) -> None:
        if self.away_until is None:
            return
        now = time.monotonic()
        if now < self.away_until:
            raise exceptions.ConnectionError(f"{self.client.place} took no call a moment ago")
        # One call tries it; the others wait for how that ends.
        self.away_until = now + AWAY_S


def _slot(command: Command) -> int | None:
    name, *arguments = command
    if name in ("EVAL", "EVALSHA"):
        arguments = arguments[2 : 2 + int(arguments[1])]
    if not arguments:
        return None
    key = arguments[0]
    return key_slot(key if isinstance(key, bytes) else str(key).encode())


def _owners(rows: Sequence[Any], said_by: _Node) -> list[Address | None]:
    """The primary of each slot, by a reply to CLUSTER SLOTS."""
    owners: list[Address | None] = [None] * REDIS_CLUSTER_HASH_SLOTS
    for first, last, (host, port, *_), *_ in rows:
        owners[first : last + 1] = [_location(host, port, said_by)] * (last + 1 - first)
    return owners


def _address(redirection: exceptions.AskError, said_by: _Node) -> Address:
    return _location(redirection.host, redirection.port, said_by)


def _location(host: str | bytes | None, port: int, said_by: _Node) -> Address:
    """Where a node is that the cluster names; without a host it is the one that says so."""
    named = host.decode() if isinstance(host, bytes) else host
    return named or said_by.host, port


async def _asking(client: RedisClient, command: Command) -> Any:
    _, reply = await client.pipeline([("ASKING",), command])
    if isinstance(reply, Exception):
        raise reply
    return reply
