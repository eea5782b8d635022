"""Calls of a Redis Cluster: each goes to the node that has its key, and waits for no other."""

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeAlias, TypeVar
from urllib.parse import urlsplit

from redis import exceptions
from redis.crc import REDIS_CLUSTER_HASH_SLOTS, key_slot

from siltlog.infra.redis.access import RedisAccess
from siltlog.infra.redis.client import Command, RedisClient

AWAY_S = 1.0
"""How long a node that takes no calls is left alone, and how often at most the owners of slots are read."""
TRIES_MAX = 8
TRY_AGAIN_S = 0.05
NAMELESS = "?"
"""The host of a node that was not told its own, where the cluster names nodes by that."""

Address: TypeAlias = tuple[str, int]
T = TypeVar("T")

_LOST = (exceptions.ConnectionError, exceptions.TimeoutError, exceptions.ClusterDownError, OSError)
"""What says that a node takes no calls now."""


class Cluster:
    """The nodes of a Redis Cluster, and which of them has which slot, as the Redis cluster specification has it.

    The first argument of a command is its key, but for scripts, whose keys are of one slot; what has none goes to any
    node. `seed` is a client of the address of `access`, which leads to one of the nodes. Errors are redis-py's.

    The RedisCluster of redis-py (8.1) is not used: where several calls run at once, one that fails closes the
    connections under the others, which fail by that and do the same, for as long as calls come.
    """

    def __init__(self, seed: RedisClient, access: RedisAccess) -> None:
        self._access = access
        self._seed = _Node(seed, urlsplit(access.url).hostname or "localhost", self._doubt)
        self._nodes: dict[Address, _Node] = {}
        self._owner_of: list[Address | None] = []
        """The primary of each slot; empty until they are first read."""
        self._doubted = True
        self._readings = 0
        self._read_next_at = 0.0
        self._reading: asyncio.Task[None] | None = None
        self._failure: Exception | None = None

    async def execute(self, *command: str | bytes | int) -> Any:
        """The reply. Follows the key where it is moved or about to be."""
        await self._read_where_doubted()
        slot = _slot(command)
        asked: Address | None = None
        for _ in range(TRIES_MAX):
            node = self._node(slot) if asked is None else self._at(asked)
            try:
                return await node.call(partial(_sent if asked is None else _sent_asking, command))
            except exceptions.MovedError as moved:
                asked = None
                self._owner_of[moved.slot_id] = _redirected(moved, node)
                self._doubt()
            except exceptions.AskError as ask:
                asked = _redirected(ask, node)
            except exceptions.TryAgainError:
                asked = None
                await asyncio.sleep(TRY_AGAIN_S)
        raise exceptions.TryAgainError(f"slot {slot} is being moved")

    async def execute_all(self, commands: Sequence[Command]) -> list[Any]:
        """The replies, in order; one round trip to each node. Raises the first error of those that any gave."""
        await self._read_where_doubted()
        positions: defaultdict[_Node, list[int]] = defaultdict(list)
        for position, command in enumerate(commands):
            positions[self._node(_slot(command))].append(position)
        replies: list[Any] = [None] * len(commands)

        async def at(node: _Node) -> None:
            found = await node.call(partial(_pipelined, [commands[position] for position in positions[node]]))
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
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.wait([self._reading])
        for node in list(self._nodes.values()):
            await node.client.close()

    def _node(self, slot: int | None) -> "_Node":
        if slot is None:
            return min((*self._nodes.values(), self._seed), key=lambda node: (node.is_away, node.has_failed))
        owner = self._owner_of[slot]
        if owner is None:
            self._doubt()
            raise exceptions.ClusterDownError(f"no node of the cluster has slot {slot}")
        return self._at(owner)

    def _at(self, address: Address) -> "_Node":
        if address not in self._nodes:
            self._nodes[address] = _Node(RedisClient(self._access.at(*address)), address[0], self._doubt)
        return self._nodes[address]

    def _doubt(self) -> None:
        """Has the owners of slots read anew: others have changed too, likely."""
        self._doubted = True

    async def _read_where_doubted(self) -> None:
        """Begins to read the owners of slots where they may have changed; waits for it the first time."""
        now = asyncio.get_running_loop().time()
        if self._doubted and self._reading is None and now >= self._read_next_at:
            self._doubted = False
            self._read_next_at = now + AWAY_S
            self._reading = asyncio.create_task(self._read())
        if not self._owner_of:
            if self._reading is not None:
                await asyncio.wait([self._reading])
            if not self._owner_of:
                raise self._failure or exceptions.ConnectionError("the connection to the cluster was closed")

    async def _read(self) -> None:
        try:
            rows, said_by = await self._rows()
            self._owner_of = _owners(rows, said_by)
            for address in self._nodes.keys() - set(self._owner_of):
                await self._nodes.pop(address).client.give_up()
            # All of them can be asked the next time.
            for owner in set(self._owner_of):
                if owner is not None:
                    self._at(owner)
        except (exceptions.RedisError, OSError, ValueError) as error:
            self._failure = error
            self._doubt()
        finally:
            self._reading = None

    async def _rows(self) -> tuple[Sequence[Any], "_Node"]:
        """What a node replies to CLUSTER SLOTS; each time another one is asked first, as one may have an old view."""
        known = [*self._nodes.values(), self._seed]
        first = self._readings % len(known)
        self._readings += 1
        failure: Exception = exceptions.ClusterDownError("no node of the cluster knows of any slot")
        for node in sorted(known[first:] + known[:first], key=lambda node: node.is_away):
            try:
                rows = await node.tried(partial(_sent, ("CLUSTER SLOTS",)))
            except (exceptions.RedisError, OSError) as error:
                failure = error
                continue
            if rows:
                return rows, node
        raise failure


class _Node:
    """`on_lost` is called at each call that the node does not take."""

    def __init__(self, client: RedisClient, host: str, on_lost: Callable[[], None]) -> None:
        self.client = client
        self.host = host
        self._on_lost = on_lost
        self._failed_at: float | None = None
        self._tried_next_at = 0.0

    @property
    def has_failed(self) -> bool:
        """Whether it did not take the last call."""
        return self._failed_at is not None

    @property
    def is_away(self) -> bool:
        """Whether that is so, and it is not time for another one."""
        return self.has_failed and asyncio.get_running_loop().time() < self._tried_next_at

    async def call(self, use: Callable[[RedisClient], Awaitable[T]]) -> T:
        """What `use` returns. Raises ConnectionError while the node is away, and nothing is asked."""
        if self.is_away:
            raise exceptions.ConnectionError(f"{self.client.place} took no call a moment ago")
        return await self.tried(use)

    async def tried(self, use: Callable[[RedisClient], Awaitable[T]]) -> T:
        """What `use` returns, also of a node that is away: whether it is that turns out."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        if self.has_failed:
            # The others wait for how this one ends.
            self._tried_next_at = began + AWAY_S
        try:
            answer = await use(self.client)
        except _LOST:
            # One connection may have broken, so that the next call tries it at once; if that fails, the node is away.
            if self._failed_at is None:
                self._tried_next_at = loop.time()
            elif began >= self._failed_at:
                self._tried_next_at = loop.time() + AWAY_S
            self._failed_at = loop.time()
            self._on_lost()
            raise
        except exceptions.ResponseError:
            self._failed_at = None
            raise
        self._failed_at = None
        return answer


def _slot(command: Command) -> int | None:
    name, *arguments = command
    if name in ("EVAL", "EVALSHA"):
        arguments = arguments[2 : 2 + int(arguments[1])]
    if not arguments:
        return None
    key = arguments[0]
    return key_slot(key if isinstance(key, bytes) else str(key).encode())


def _owners(rows: Sequence[Any], said_by: _Node) -> list[Address | None]:
    """The primary of each slot, by a reply to CLUSTER SLOTS. Raises ValueError where none tells how it is reached."""
    owners: list[Address | None] = [None] * REDIS_CLUSTER_HASH_SLOTS
    for first, last, (host, port, *more), *_ in rows:
        named = _text(host)
        if named == NAMELESS:
            # Behind its id, since Redis 7, what else is known of it.
            named = _facts(more[1] if len(more) > 1 else ()).get("ip", NAMELESS)
        owners[first : last + 1] = [_address(named, port, said_by)] * (last + 1 - first)
    return owners


def _redirected(redirection: exceptions.AskError, said_by: _Node) -> Address:
    try:
        return _address(redirection.host, redirection.port, said_by)
    except ValueError as error:
        raise exceptions.ClusterError(str(error)) from None


def _address(host: str, port: int, said_by: _Node) -> Address:
    """Where a node is that the cluster names; without a host it is at that of the one that says so."""
    if host == NAMELESS:
        raise ValueError(f"the node at port {port} of the cluster has no name: set cluster-announce-hostname there")
    return host or said_by.host, port


def _facts(stored: Any) -> dict[str, str]:
    """Names and values in turn, or a mapping."""
    pairs = stored.items() if isinstance(stored, Mapping) else zip(stored[::2], stored[1::2], strict=True)
    return {_text(name): _text(value) for name, value in pairs}


def _text(stored: str | bytes | None) -> str:
    return stored.decode() if isinstance(stored, bytes) else stored or ""


async def _sent(command: Command, client: RedisClient) -> Any:
    return await client.execute(*command)


async def _sent_asking(command: Command, client: RedisClient) -> Any:
    _, reply = await _pipelined([("ASKING",), command], client)
    if isinstance(reply, Exception):
        raise reply
    return reply


async def _pipelined(commands: Sequence[Command], client: RedisClient) -> list[Any]:
    """The replies, errors among them. Raises those that say that the node takes no calls."""
    replies = await client.pipeline(commands)
    for reply in replies:
        if isinstance(reply, _LOST):
            raise reply
    return replies
