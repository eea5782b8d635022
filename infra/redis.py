"""The connection to Redis, and the one seam where its errors become ours."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlsplit

import msgspec
from redis import exceptions
from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from siltlog.infra.errors import ConfigError, problem

CONNECTIONS_MAX = 32
CONNECT_TIMEOUT_S = 2.0
REPLY_TIMEOUT_S = 5.0
_SCHEMES = ("redis", "rediss", "unix")
_PASSING = ("BUSY", "CLUSTERDOWN", "MASTERDOWN", "MISCONF", "NOREPLICAS", "TRYAGAIN")
"""Refusals that are about Redis's state, among those that redis-py has no class for."""


class RedisConnection:
    """A pool of connections to one Redis; connects on first use, and again after every loss.

    Raises ConfigError for an address that is none. Every call raises Unavailable `coordinator_unavailable` while
    Redis cannot be reached or does not take the call. What was sent before a connection was lost may have taken effect.
    """

    def __init__(self, url: str) -> None:
        self.place = _place(url)
        try:
            # One try per call: a script that took effect before its connection broke must not run a second time.
            pool = BlockingConnectionPool.from_url(
                url,
                max_connections=CONNECTIONS_MAX,
                timeout=REPLY_TIMEOUT_S,
                socket_timeout=REPLY_TIMEOUT_S,
                socket_connect_timeout=CONNECT_TIMEOUT_S,
                retry=Retry(NoBackoff(), 0),
            )
        except ValueError as error:
            raise ConfigError(f"SILT_REDIS_URL={self.place} is not a Redis address: {error}") from None
        self._redis = Redis.from_pool(pool)

    def script(self, text: str) -> "Script":
        return Script(self, text)

    async def command(self, *arguments: str | bytes | int) -> Any:
        """The reply of one command, strings as bytes."""
        async with self._translated():
            return await self._redis.execute_command(*arguments)  # type: ignore[no-untyped-call]

    async def commands(self, commands: Sequence[Sequence[str | bytes | int]]) -> list[Any]:
        """The replies of several commands in one round trip; not a transaction."""
        async with self._translated():
            pipeline = self._redis.pipeline(transaction=False)
            for arguments in commands:
                pipeline.execute_command(*arguments)
            replies: list[Any] = await pipeline.execute()
            return replies

    async def close(self) -> None:
        await self._redis.aclose()
        await self._redis.connection_pool.disconnect()

    @asynccontextmanager
    async def _translated(self) -> AsyncIterator[None]:
        task = asyncio.current_task()
        cancelled_before = task.cancelling() if task is not None else 0
        try:
            yield
            # redis-py sends under asyncio.wait_for; before Python 3.12 that loses a cancellation that comes at its end.
            if task is not None and task.cancelling() > cancelled_before:
                raise asyncio.CancelledError
        except exceptions.ResponseError as error:
            if type(error) is exceptions.ResponseError and not str(error).startswith(_PASSING):
                raise problem("internal", f"Redis refused a call of this server: {error}") from error
            raise problem(
                "coordinator_unavailable",
                f"Redis at {self.place} does not take calls ({error}): groups come back when it does",
            ) from error
        except (exceptions.RedisError, OSError) as error:
            raise problem(
                "coordinator_unavailable",
                f"Redis at {self.place} cannot be reached ({error}): groups come back with it; "
                "publishing and reading without a group go on",
            ) from error


class Script:
    """A Lua script that takes and gives one MessagePack value; loaded again where the server's cache has lost it."""

    def __init__(self, connection: RedisConnection, text: str) -> None:
        self._connection = connection
        self._script = connection._redis.register_script(text)

    async def __call__(self, keys: Sequence[str], request: Any) -> Any:
        async with self._connection._translated():
            reply = await self._script(keys=list(keys), args=[msgspec.msgpack.encode(request)])
        return msgspec.msgpack.decode(reply)


def _place(url: str) -> str:
    """`url` without its password and query; ConfigError where it has no scheme that is known."""
    parts = urlsplit(url)
    if parts.scheme not in _SCHEMES:
        raise ConfigError("SILT_REDIS_URL is not a Redis address: use redis://host:6379/0 or unix:///path/to/socket")
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
