"""A client of one Redis server, by redis-py."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeAlias, TypeVar

from redis import exceptions
from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from siltlog.infra.redis.access import RedisAccess, connection_pool

CONNECTIONS_MAX = 32
CONNECT_TIMEOUT_S = 2.0
REPLY_TIMEOUT_S = 5.0

Command: TypeAlias = Sequence[str | bytes | int]
T = TypeVar("T")
IN_SCRIPT = "Error running script"
"""How an error of a command in a script begins before Redis 7, which has its code in the middle."""


class RedisClient:
    """Up to 32 connections to the server at an address, made as they are needed, and made anew after each loss.

    Where a call finds that the primary became a replica, or gets no reply in time, all connections are given up: the
    address may lead to another server by now, and each of them would say so only to its next call. Errors are
    redis-py's. Raises ValueError for an address that is none.
    """

    def __init__(self, access: RedisAccess) -> None:
        self.place = access.place
        self._access = access
        # One try per call: a script that took effect before its connection broke must not run a second time.
        self._options: dict[str, Any] = {
            "max_connections": CONNECTIONS_MAX,
            "timeout": REPLY_TIMEOUT_S,
            "socket_timeout": REPLY_TIMEOUT_S,
            "socket_connect_timeout": CONNECT_TIMEOUT_S,
            "retry": Retry(NoBackoff(), 0),
            # With 3 it asks for notices of maintenance, and then (8.1) overlooks that Redis closed an idle connection.
            "protocol": 2,
        }
        self._redis = self._made()

    async def execute(self, *command: str | bytes | int) -> Any:
        """The reply of one command, strings as bytes."""
        return await self._used(lambda redis: redis.execute_command(*command))  # type: ignore[no-untyped-call]

    async def pipeline(self, commands: Sequence[Command]) -> list[Any]:
        """The replies of several commands in one round trip, on one connection; of those that failed the errors."""

        async def use(redis: Redis) -> list[Any]:
            pipeline = redis.pipeline(transaction=False)
            for command in commands:
                pipeline.execute_command(*command)
            replies: list[Any] = await pipeline.execute(raise_on_error=False)
            for reply in replies:
                if isinstance(reply, exceptions.RedisError) and _of_replica(reply):
                    raise reply
            return replies

        return await self._used(use)

    async def give_up(self) -> None:
        """Ends every connection, one on which a call waits when that ends. More calls make new ones."""
        redis, self._redis = self._redis, self._made()
        await redis.connection_pool.disconnect(inuse_connections=False)

    async def close(self) -> None:
        await self._redis.connection_pool.disconnect()

    async def _used(self, use: Callable[[Redis], Awaitable[T]]) -> T:
        redis = self._redis
        try:
            return await use(redis)
        except (exceptions.ResponseError, exceptions.TimeoutError) as error:
            elsewhere = isinstance(error, exceptions.TimeoutError) or _of_replica(error)
            if elsewhere and redis is self._redis:
                await self.give_up()
            raise
        # Where Redis closed a connection that was idle, transports of Python 3.12 and later say no more than that.
        except (AttributeError, TypeError) as error:
            raise exceptions.ConnectionError(f"the connection was closed ({error})") from error
        finally:
            if redis is not self._redis:
                await redis.connection_pool.disconnect(inuse_connections=False)

    def _made(self) -> Redis:
        return Redis.from_pool(connection_pool(self._access, **self._options))


def _of_replica(error: exceptions.RedisError) -> bool:
    return isinstance(error, exceptions.ReadOnlyError) or (IN_SCRIPT in str(error) and "-READONLY " in str(error))
