"""A Redis that comes back as another process, with the files of an earlier time."""

from siltlog.infra.redis.connection import RedisConnection
from siltlog.infra.redis.keys import group_key, restored_key

Files = dict[bytes, bytes]
FORMER_PROCESS = "0" * 40


async def files_of(redis: RedisConnection) -> Files:
    """What a restart finds, where it finds what there is now."""
    keys = await redis.command("KEYS", "silt:*")
    return {key: dumped for key in keys if (dumped := await redis.command("DUMP", key)) is not None}


async def come_back(
    redis: RedisConnection, files: Files, groups: tuple[str, ...] = ("g",), cluster_id: str = "c"
) -> None:
    """All that was stored since is lost, and what is there was stored by a former process."""
    for key in await redis.command("KEYS", "silt:*"):
        await redis.command("DEL", key)
    for key, dumped in files.items():
        await redis.command("RESTORE", key, 0, dumped)
    stores = [(group_key(group, "state"), ("run_id", f"restored/{cluster_id}")) for group in groups]
    for key, fields in (*stores, (restored_key(cluster_id), ("run_id",))):
        for field in fields:
            if await redis.command("HEXISTS", key, field):
                await redis.command("HSET", key, field, FORMER_PROCESS)
