"""Whether the nodes of a cluster have one Redis: a random value there, put by whoever comes first, says so."""

import secrets
from collections.abc import Callable

from siltlog.infra.errors import SiltlogError, problem
from siltlog.infra.redis.connection import RedisConnection
from siltlog.infra.redis.keys import redis_key

VALUE_BYTES = 16
RETRY_MS = 2_000


def other_redis(found: str, controllers: str, place: str) -> SiltlogError | None:
    """Why a node that has `found` in its Redis at `place` may not serve groups where the controller's has
    `controllers`; empty is not known."""
    if not found or not controllers or found == controllers:
        return None
    return problem(
        "coordinator_unavailable",
        f"this node's Redis, at {place}, is another than that of the controller: each would give all partitions to its "
        "own members; let SILT_REDIS_URL name one on all nodes",
        retry_after_ms=RETRY_MS,
    )


class SameRedis:
    """Used on one event loop."""

    def __init__(self, redis: RedisConnection, cluster_id: str, controllers: Callable[[], str]) -> None:
        """`controllers()` is what the controller's last beat says that it has found; empty while that is not known."""
        self.value = ""
        """What this node has found last, for its own beats."""
        self._redis = redis
        self._key = redis_key(cluster_id)
        self._controllers = controllers

    async def look(self) -> None:
        """Reads the value. Raises Unavailable without Redis: the one that was found last stays then.

        A Redis that was emptied is known again at once: whoever comes first puts back what all have found there.
        """
        value = await self._redis.command("HGET", self._key, "value")
        if value is None:
            await self._redis.command("HSETNX", self._key, "value", self.value or secrets.token_hex(VALUE_BYTES))
            value = await self._redis.command("HGET", self._key, "value")
        self.value = value.decode() if value is not None else ""

    async def check(self) -> None:
        """Raises Unavailable where groups here would not be those of the controller."""
        if not self.value:
            await self.look()
        error = other_redis(self.value, self._controllers(), self._redis.place)
        if error is not None:
            raise error
