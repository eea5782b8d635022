"""The connection to Redis, and the one seam where its errors become ours."""

import asyncio
import hashlib
import re
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlsplit

import msgspec
from redis import exceptions

from siltlog.infra.errors import ConfigError, problem
from siltlog.infra.redaction import redacted
from siltlog.infra.redis.access import RedisAccess
from siltlog.infra.redis.client import IN_SCRIPT, Command, RedisClient
from siltlog.infra.redis.cluster import Cluster

_CLOSED = "the handler is closed"
"""What uvloop raises for a write to a connection that was reset a moment ago, before anybody was told."""
_PASSING = re.compile(
    rf"(?:{IN_SCRIPT}.*: -(?:OOM|READONLY)|BUSY|CLUSTERDOWN|MASTERDOWN|MISCONF|NOREPLICAS|TRYAGAIN)\b"
)
"""Refusals that are about Redis's state, among those that redis-py has no class for."""


class RedisConnection:
    """Connections to one Redis, or to all nodes of the Redis Cluster that the one at `access.url` belongs to.

    Connects on first use, and again after every loss. Raises ConfigError for an address that is none. Every call raises
    Unavailable `coordinator_unavailable` while Redis cannot be reached or does not take the call. What was sent before
    a connection was lost may have taken effect.
    """

    def __init__(self, access: RedisAccess) -> None:
        try:
            self.place = access.checked().place
            self._single = RedisClient(access)
        except ValueError as error:
            raise ConfigError(f"SILT_REDIS_URL is not valid: {error}") from None
        self._access = access
        self._cluster: Cluster | None = None
        # A cluster's sockets are found by their addresses, so nobody is one of it through a socket of this machine.
        self._asked = urlsplit(access.url).scheme == "unix"
        self.answers = True
        """How the last call ended: whether it was taken."""

    @property
    def is_cluster(self) -> bool:
        """Whether what is stored is spread over several nodes; not known before the first call."""
        return self._cluster is not None

    def script(self, text: str) -> "Script":
        return Script(self, text)

    async def command(self, *arguments: str | bytes | int) -> Any:
        """The reply of one command, strings as bytes."""
        async with self._translated():
            return await self._execute(*arguments)

    async def commands(self, commands: Sequence[Command]) -> list[Any]:
        """The replies of several commands; not a transaction. One round trip, to a cluster one to each node."""
        async with self._translated():
            await self._ask()
            if self._cluster is not None:
                return await self._cluster.execute_all(commands)
            replies = await self._single.pipeline(commands)
            for reply in replies:
                if isinstance(reply, Exception):
                    raise reply
            return replies

    async def close(self) -> None:
        if self._cluster is not None:
            await self._cluster.close()
        await self._single.close()

    async def _execute(self, *arguments: str | bytes | int) -> Any:
        await self._ask()
        return await (self._cluster or self._single).execute(*arguments)

    async def _ask(self) -> None:
        """Whether it is a cluster is known after this."""
        if self._asked:
            return
        info = await self._single.execute("INFO", "cluster")
        if info.get("cluster_enabled") and self._cluster is None:
            self._cluster = Cluster(self._single, self._access)
        self._asked = True

    @asynccontextmanager
    async def _translated(self) -> AsyncIterator[None]:
        task = asyncio.current_task()
        cancelled_before = task.cancelling() if task is not None else 0
        try:
            yield
            self.answers = True
            # redis-py sends under asyncio.wait_for; before Python 3.12 that loses a cancellation that comes at its end.
            if task is not None and task.cancelling() > cancelled_before:
                raise asyncio.CancelledError
        except exceptions.ResponseError as error:
            refused = type(error) in (exceptions.ResponseError, exceptions.ClusterCrossSlotError)
            if refused and not _PASSING.match(str(error)):
                raise problem("internal", f"Redis refused a call of this server: {redacted(str(error))}") from error
            self.answers = False
            raise problem(
                "coordinator_unavailable",
                f"Redis at {self.place} does not take calls ({redacted(str(error))}): groups come back when it does",
            ) from error
        except (exceptions.RedisError, OSError, RuntimeError) as error:
            if isinstance(error, RuntimeError) and _CLOSED not in str(error):
                raise
            self.answers = False
            said = redacted(str(error)) or type(error).__name__
            raise problem(
                "coordinator_unavailable",
                f"Redis at {self.place} cannot be reached ({said}): groups come back with it; "
                "publishing and reading without a group go on",
            ) from error


class Script:
    """A Lua script that takes and gives one MessagePack value; sent whole where the server does not have it."""

    def __init__(self, connection: RedisConnection, text: str) -> None:
        self._connection = connection
        self._text = text
        self._sha1 = hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()

    async def __call__(self, keys: Sequence[str], request: Any) -> Any:
        arguments: tuple[str | bytes | int, ...] = (len(keys), *keys, msgspec.msgpack.encode(request))
        execute = self._connection._execute
        async with self._connection._translated():
            try:
                reply = await execute("EVALSHA", self._sha1, *arguments)
            except exceptions.NoScriptError:
                reply = await execute("EVAL", self._text, *arguments)
        return msgspec.msgpack.decode(reply)
