"""The register of groups: the names of all that there are, in one sorted set of Redis."""

from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING

from siltlog.consumers.groups.messages import Actor
from siltlog.infra.redis.keys import GROUPS_KEY, group_key
from siltlog.infra.security.grant import cap_reached

if TYPE_CHECKING:
    from siltlog.infra.redis.connection import RedisConnection

SCAN_PAGE = 1_000
"""How many names are looked through at once, of all or where some are not shown."""
Sees = Callable[[list[str]], list[str]]
"""Keeps of some names those that are shown."""


class Register:
    """Every call raises Unavailable without Redis."""

    def __init__(self, redis: "RedisConnection") -> None:
        self._redis = redis

    async def add(self, group: str) -> None:
        await self._redis.command("ZADD", GROUPS_KEY, 0, group)

    async def remove(self, group: str) -> None:
        """One that was created again meanwhile stays."""
        await self._redis.command("ZREM", GROUPS_KEY, group)
        if await self._redis.command("HEXISTS", group_key(group, "state"), "created"):
            await self.add(group)

    async def all(self) -> AsyncIterator[str]:
        """Every group there is."""
        after = "-"
        while True:
            page = await self._range(after, "+", SCAN_PAGE)
            for name in page:
                yield name
            if len(page) < SCAN_PAGE:
                return
            after = f"({page[-1]}"

    async def first(self, limit: int) -> list[str]:
        """The first `limit` groups by name."""
        return await self._seen("-", "+", limit, None)

    async def after(self, prefix: str, after: str, limit: int, sees: Sees | None = None) -> list[str]:
        """Up to `limit` groups by name after `after`, of those that `sees` keeps."""
        low = f"({after}" if after >= prefix and after else f"[{prefix}" if prefix else "-"
        high = f"({prefix}\x7f" if prefix else "+"
        return await self._seen(low, high, limit, sees)

    async def check_room(self, group: str, actor: Actor | None) -> None:
        """Raises Refused `cap_reached` where this group would be one too many."""
        groups_max = None if actor is None else actor.groups_max
        if actor is None or groups_max is None:
            return
        if await self._redis.command("ZSCORE", GROUPS_KEY, group) is not None:
            return

        def own(found: list[str]) -> list[str]:
            return [name for name in found if actor.reads(name)]

        there = len(await self._seen("-", "+", groups_max, own)) if groups_max else 0
        if there >= groups_max:
            raise cap_reached(actor.subject.principal, "groups", there, groups_max)

    async def _seen(self, low: str, high: str, count: int, sees: Sees | None) -> list[str]:
        """The first `count` groups of a range of names that are seen."""
        page = count if sees is None else max(count, SCAN_PAGE)
        groups: list[str] = []
        while len(groups) < count:
            found = await self._range(low, high, page)
            groups += found if sees is None else sees(found)
            if len(found) < page:
                break
            low = f"({found[-1]}"
        return groups[:count]

    async def _range(self, low: str, high: str, count: int) -> list[str]:
        found = await self._redis.command("ZRANGEBYLEX", GROUPS_KEY, low, high, "LIMIT", 0, count)
        return [name.decode() for name in found]
