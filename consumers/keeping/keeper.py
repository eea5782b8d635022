"""The keeper of what groups commit, beside Redis: the server that owns `_offsets`, which all others ask."""

from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol

import msgspec

from siltlog.consumers.keeping.restored import RestoredMark
from siltlog.infra.errors import SiltlogError, problem

if TYPE_CHECKING:
    from siltlog.consumers.keeping.snapshots import OffsetSnapshots
    from siltlog.infra.redis.connection import RedisConnection

AWAY_RETRY_MS = 500
SAVES_AT_ONCE = 1_000
"""Groups of which one call tells the keeper that there is something to save."""
TURNS_MAX = 3
"""How often one call follows the keeper from server to server."""


class Restored(NamedTuple):
    epoch: int
    """The keeper's: that of its ownership of `_offsets`."""
    had: bool
    """Whether `_offsets` has anything of the group."""
    generation: int
    """The group's, before it was restored."""


class KeeperAsked(msgspec.Struct, frozen=True):
    call: Literal["restore", "restore_emptied", "save", "delete", "forget"]
    groups: tuple[str, ...] = ()
    partitions: tuple[str, ...] = ()
    """The partitions whose offsets are forgotten, as the scripts name them."""


class KeeperTold(msgspec.Struct, frozen=True):
    epoch: int
    had: bool = False
    generation: int = 0
    status: str = ""
    subscribed: tuple[str, ...] = ()
    """The partitions whose offsets stay, as members read their topics."""


class Elsewhere(Protocol):
    """Finds the server that owns `_offsets`."""

    async def ask(self, asked: KeeperAsked) -> KeeperTold | None:
        """Its answer; None where that is this server. Raises what it refuses with, and Unavailable where nobody
        answers."""


class Keepers:
    """Has done what the keeper does, whoever that is. Used on one event loop."""

    def __init__(
        self,
        here: "OffsetSnapshots",
        redis: "RedisConnection",
        elsewhere: Elsewhere | None = None,
        fresh: Callable[[], bool] = lambda: True,
    ) -> None:
        """Takes this server for the only one without `elsewhere`. While it is not `fresh` another may be the keeper."""
        self.cluster_id = here.cluster_id
        self._here = here
        self._mark = RestoredMark(redis, here.cluster_id)
        self._elsewhere = elsewhere
        self._fresh = fresh
        self._heard = 0

    @property
    def is_here(self) -> bool:
        """Whether it is this server, as far as that is known here."""
        return self._here.kept and self._here.epoch >= self._heard

    @property
    def epoch(self) -> int:
        """The highest epoch of a keeper that has read `_offsets`, of those heard of."""
        return max(self._heard, self._here.epoch if self._here.loaded else 0)

    def heard(self, text: str) -> None:
        """A group says that it was restored by a keeper of this epoch."""
        if text:
            self._heard = max(self._heard, int(text))

    async def restore(self, group: str) -> Restored:
        """Raises Unavailable until the keeper has read `_offsets` to its end."""
        told = await self._done(KeeperAsked("restore", (group,)))
        return Restored(told.epoch, told.had, told.generation)

    async def restore_emptied(self) -> None:
        """Gives every group back what it had where Redis was emptied or has older files, so that a list of groups has
        them all, and none that was deleted."""
        if self.is_here:
            await self._here.restore_emptied()
            return
        restored, _ = await self._mark.read()
        if restored < self.epoch:
            await self._done(KeeperAsked("restore_emptied"))

    async def save_now(self, group: str) -> None:
        """Returns once what the group committed before this call is saved. Raises Unavailable, OutcomeUnknown."""
        await self._done(KeeperAsked("save", (group,)))

    async def save(self) -> None:
        """Has saved what was noted here."""
        if self.is_here:
            await self._here.save()
            return
        noted = sorted(self._here.noted())
        for first in range(0, len(noted), SAVES_AT_ONCE):
            groups = noted[first : first + SAVES_AT_ONCE]
            self._here.told(groups)
            told = None
            try:
                if self._elsewhere is not None:
                    told = await self._elsewhere.ask(KeeperAsked("save", tuple(groups)))
            finally:
                # Where this server is the keeper by now it reads first, and saves the next time.
                for group in groups if told is None else ():
                    self._here.note(group)

    async def delete(self, group: str, request: Mapping[str, Any]) -> str:
        """Returns the status of the transition. A group that is unused is deleted by the keeper alone."""
        if request:
            return await self._here.delete(group, request)
        return (await self._done(KeeperAsked("delete", (group,)))).status

    async def forget(self, group: str, partitions: Collection[str]) -> KeeperTold:
        """Has offsets forgotten, in Redis and beside it; the status of the transition and what it left."""
        return await self._done(KeeperAsked("forget", (group,), tuple(partitions)))

    async def answer(self, asked: KeeperAsked) -> KeeperTold:
        """Does what another server asks of this one. Raises Unavailable where it is not the keeper."""
        if not self.is_here or not self._fresh():
            raise _away("this server does not keep what groups commit")
        epoch = self._here.epoch
        match asked.call:
            case "restore":
                return KeeperTold(*await self._here.restore(asked.groups[0]))
            case "restore_emptied":
                await self._here.restore_emptied()
            case "save":
                await self._here.save_now(asked.groups)
            case "delete":
                return KeeperTold(epoch, status=await self._here.delete(asked.groups[0], {}))
            case "forget":
                status, subscribed = await self._here.forget(asked.groups[0], asked.partitions)
                return KeeperTold(epoch, status=status, subscribed=tuple(subscribed))
        return KeeperTold(epoch)

    async def _done(self, asked: KeeperAsked) -> KeeperTold:
        for _ in range(TURNS_MAX):
            if self.is_here or self._elsewhere is None:
                return await self.answer(asked)
            told = await self._elsewhere.ask(asked)
            if told is not None:
                self._heard = max(self._heard, told.epoch)
                return told
        raise _away("nobody keeps what groups commit for now")


def _away(why: str) -> SiltlogError:
    return problem("coordinator_unavailable", f"{why}; come again in a moment", retry_after_ms=AWAY_RETRY_MS)
