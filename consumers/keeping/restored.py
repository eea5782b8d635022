"""Remembers in Redis that every group has what `_offsets` has of it."""

from pathlib import Path
from typing import TYPE_CHECKING

from siltlog.infra.redis.keys import restored_key

if TYPE_CHECKING:
    from siltlog.infra.redis.connection import RedisConnection

_SCRIPT = Path(__file__).parent / "restored.lua"


class RestoredMark:
    """Says in Redis that all groups were restored since it was emptied, or became another process, which may have come
    back with older files."""

    def __init__(self, redis: "RedisConnection", cluster_id: str) -> None:
        self._redis = redis
        self._key = restored_key(cluster_id)
        self._script = redis.script(_SCRIPT.read_text("utf-8"))

    async def read(self) -> tuple[int, str]:
        """The epoch of the keeper that has restored them, -1 for nobody; and the process of Redis."""
        reply = await self._script([self._key], {})
        return int(reply["epoch"]), reply["run_id"]

    async def write(self, epoch: int, run_id: str) -> None:
        await self._redis.command("HSET", self._key, "epoch", epoch, "run_id", run_id)
