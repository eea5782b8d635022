"""Keeps `_offsets` and Redis in step: what is committed goes there, and comes back when Redis has lost it."""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from siltlog.consumers.keeping.keeper import Restored
from siltlog.consumers.keeping.restored import RestoredMark
from siltlog.consumers.keeping.saved_offsets import LOAD_RETRY_MS, OffsetLog, SavedOffset
from siltlog.consumers.reading.view import Key
from siltlog.infra import names
from siltlog.infra.errors import SiltlogError, problem
from siltlog.infra.redis.keys import group_key, keeper_text

if TYPE_CHECKING:
    from siltlog.infra.redis.connection import RedisConnection
    from siltlog.infra.telemetry import Logger

LOAD_WAIT_S = 1.0
"""How long a call waits for `_offsets` to be read before it is told to come again."""
ENTRIES_PER_CALL = 5_000
GROUPS_AT_ONCE = 16
Step = Callable[[str, str, Mapping[str, Any]], Awaitable[Mapping[str, Any]]]
"""Runs one transition of a group, whatever Redis has lost."""
_FENCED = (
    "Redis has heard of a later keeper of what groups commit than this server, which waits for news of it; where there "
    f"is no other server, Redis has outlived what this log has in {names.OFFSETS_TOPIC}: empty it, and groups go on "
    "from that"
)
_STRANGE = (
    "in this Redis the group {group} went on in another log that has the same topics, such as the one that this log "
    "was restored from: where it came to are other records here. Give this server a Redis of its own, or empty this "
    f"one where that log is no more, and groups go on from {names.OFFSETS_TOPIC}"
)


class Topics(Protocol):
    def may_have(self, key: Key) -> bool:
        """Whether there is such a partition, or may be: its topic cannot be read now."""

    def signature(self) -> tuple[tuple[str, str, int], ...]:
        """The name, id and count of partitions of each topic: another one after topics came, went or grew."""


class OffsetSnapshots:
    """Used on one event loop.

    Appends, restores and deletions exclude one another: a snapshot that was taken before a deletion never lands behind
    its tombstones, and nothing is put back that is about to be forgotten.
    """

    def __init__(
        self, offsets: OffsetLog, step: Step, topics: Topics, redis: "RedisConnection", logger: "Logger"
    ) -> None:
        self.strange: set[str] = set()
        """Groups that went on in another log, as far as somebody has asked for them."""
        self.cluster_id = offsets.cluster_id
        self.lock = asyncio.Lock()
        self._offsets = offsets
        self._step = step
        self._topics = topics
        self._redis = redis
        self._logger = logger
        self._mark = RestoredMark(redis, offsets.cluster_id)
        self._unsaved: set[str] = set()
        """Groups with offsets that `_offsets` is yet to have."""
        self._urgent: set[str] = set()
        """Groups whose save somebody waits for."""
        self._asked = 0
        self._answered = 0
        self._signature: object = None
        """Signature of the topics at the last search for offsets in deleted ones."""

    @property
    def epoch(self) -> int:
        return self._offsets.epoch

    @property
    def kept(self) -> bool:
        """Whether they are kept here."""
        return self._offsets.kept

    @property
    def loaded(self) -> bool:
        return self._offsets.loaded.is_set()

    def note(self, group: str) -> None:
        """Some of its offsets are to be saved with the next snapshot."""
        self._unsaved.add(group)

    def noted(self) -> frozenset[str]:
        return frozenset(self._unsaved)

    def told(self, groups: Collection[str]) -> None:
        """They are somebody else's to save."""
        self._unsaved.difference_update(groups)

    def known(self, group: str) -> list[SavedOffset]:
        """Lists the saved offsets of the group in topics that still exist, also where one cannot be read now: that must
        not keep others from being put back."""
        return [entry for entry in self._offsets.table.of(group) if self._topics.may_have(entry.key)]

    async def save(self) -> None:
        """Returns once what was noted before this call is in `_offsets`.

        Raises Unavailable, OutcomeUnknown: what is not there yet stays noted.
        """
        await self._loaded()
        async with self.lock:
            await self._save(self._unsaved)

    async def save_now(self, groups: Collection[str]) -> None:
        """Returns once what the groups committed before this call is in `_offsets`. Raises as `save`.

        Calls that come while one saves share the next.
        """
        self._urgent.update(groups)
        self._asked += 1
        asked = self._asked
        await self._loaded()
        async with self.lock:
            if self._answered >= asked:
                return
            covers = self._asked
            urgent = self._urgent.union(groups)
            self._urgent.clear()
            await self._save(urgent)
            self._answered = covers

    async def restore(self, group: str) -> Restored:
        """Gives Redis what `_offsets` has of the group, and notes what Redis alone has.

        Raises Unavailable until `_offsets` was read to its end, and where what Redis has is another log's.
        """
        restored = await self._given_back(group)
        if restored is None:
            raise problem("coordinator_unavailable", _STRANGE.format(group=group), group=group)
        return restored

    async def _given_back(self, group: str) -> Restored | None:
        await self._loaded()
        async with self.lock:
            return await self._restore(group)

    async def restore_emptied(self) -> None:
        """Gives every group back what it had where Redis was emptied or has older files, so that a list of groups has
        them all, and none that was deleted."""
        await self._loaded()
        restored, run_id = await self._mark.read()
        if restored >= self.epoch:
            return
        # Of those of another log some may be no more, and nobody need ask for them again.
        for group in (*self._offsets.table.groups(), *await self._undeleted(), *sorted(self.strange)):
            await self._given_back(group)
        await self._mark.write(self.epoch, run_id)

    async def _undeleted(self) -> list[str]:
        """Groups that were deleted, of which Redis has something all the same, or again."""
        groups = self._offsets.table.deleted_groups()
        there: list[bytes | None] = []
        for first in range(0, len(groups), ENTRIES_PER_CALL):
            page = groups[first : first + ENTRIES_PER_CALL]
            there += await self._redis.commands([("HGET", group_key(group, "state"), "created") for group in page])
        return [group for group, created in zip(groups, there, strict=True) if created is not None]

    async def delete(self, group: str, request: Mapping[str, Any]) -> str:
        """The transition `delete`, and tombstones: what was deleted is not put back, whatever becomes of Redis.

        Returns the status.
        """
        await self._loaded()
        async with self.lock:
            entries = self._offsets.table.of(group)
            reply = await self._as_keeper("delete", group, {**request, **self._beside(group)})
            if reply["status"] == "unrestored":
                raise problem("coordinator_unavailable", f"Redis has just lost the group {group}: delete it again")
            status: str = reply["status"]
            # Where Redis does not know it an attempt before this one ended between the two.
            if status == "ok" or (status == "unknown_group" and entries):
                await self._offsets.delete(group, reply["version"])
                self._unsaved.discard(group)
                return "ok"
            return status

    async def forget(self, group: str, partitions: Collection[str]) -> tuple[str, Collection[str]]:
        """The transition `forget_offsets`, and tombstones for what it forgot; its status, and what members read."""
        await self._loaded()
        async with self.lock:
            request = {"partitions": list(partitions), **self._beside(group)}
            reply = await self._as_keeper("forget_offsets", group, request)
            if reply["status"] == "unrestored":
                raise problem("coordinator_unavailable", f"Redis has just lost the group {group}: ask again")
            if reply["status"] != "ok":
                return reply["status"], ()
            subscribed = set(reply["subscribed"])
            saved = {entry.key.text() for entry in self._offsets.table.of(group)}
            gone = sorted((saved & set(partitions) - subscribed).union(reply["had"]))
            await self._offsets.forget([(group, Key.parse(text)) for text in gone], reply["version"])
            return reply["status"], subscribed

    def _beside(self, group: str) -> dict[str, Any]:
        """What a deletion is told of `_offsets`."""
        above = max((entry.version for entry in self._offsets.table.of(group)), default=0)
        return {"log": self.cluster_id, "new": not self.known(group), "above": above}

    async def forget_gone(self, forget: Callable[[str, list[str]], Awaitable[object]]) -> None:
        """Tombstones for offsets in topics that were deleted, once `forget` has had Redis forget those topics,
        `{topic}/{topic id}`, of a group.

        A group that went on in another log is left for a later call, and keeps no other from it. Raises as `forget`,
        and as `save`: the next call begins anew.
        """
        await self._loaded()
        signature = self._topics.signature()
        if signature == self._signature:
            return
        gone = [
            (group, entry.key) for group, entry in self._offsets.table.entries() if not self._topics.may_have(entry.key)
        ]
        topics: dict[str, set[str]] = {}
        for group, key in gone:
            topics.setdefault(group, set()).add(key.topic_text())
        left: set[str] = set()
        # Redis first: what has its tombstone is found in no later search.
        for group, texts in topics.items():
            try:
                await forget(group, sorted(texts))
            except SiltlogError as error:
                if not is_strange(error):
                    raise
                left.add(group)
        async with self.lock:
            await self._offsets.forget([(group, key) for group, key in gone if group not in left])
        if not left:
            self._signature = signature

    async def _loaded(self) -> None:
        self._offsets.check_kept()
        if self._offsets.loaded.is_set():
            return
        try:
            await asyncio.wait_for(self._offsets.loaded.wait(), LOAD_WAIT_S)
        except TimeoutError:
            raise problem(
                "coordinator_unavailable",
                f"where groups go on is still being read from {names.OFFSETS_TOPIC}; come again in a moment",
                retry_after_ms=LOAD_RETRY_MS,
            ) from None
        self._offsets.check_kept()

    async def _as_keeper(self, transition: str, group: str, request: Mapping[str, Any]) -> Mapping[str, Any]:
        """One transition that Redis refuses once it has heard of a later keeper. Raises Unavailable then."""
        tenure = {"restores": self.cluster_id, "keeper": keeper_text(self.epoch)}
        reply = await self._step(transition, group, {**request, **tenure})
        if reply["status"] == "fenced_keeper":
            raise problem("coordinator_unavailable", _FENCED, retry_after_ms=LOAD_RETRY_MS)
        return reply

    async def _restore(self, group: str) -> Restored | None:
        """None where offsets in topics of this log were committed in another."""
        entries = self.known(group)
        table = self._offsets.table
        part: dict[str, Any] = {
            "entries": [],
            "topics": [],
            "unsaved": [],
            "forgotten": [],
            "last": False,
            "deleted": table.deleted(group),
        }
        seen: dict[str, int] = {}
        for entry in entries:
            if entry.partitions_seen:
                seen[entry.key.topic_text()] = entry.partitions_seen
        rows = [(e.key.text(), e.offset, e.version, e.metadata, e.committed_ms, e.leader_epoch) for e in entries]
        behind = False
        forgotten = self._forgotten(group)
        for first in range(0, max(len(rows), len(forgotten), 1), ENTRIES_PER_CALL):
            which = slice(first, first + ENTRIES_PER_CALL)
            part |= {"entries": rows[which], "forgotten": forgotten[which]}
            reply = await self._as_keeper("restore", group, part)
            behind = behind or reply["behind"]
        generation: int = reply["generation_before"]
        if reply["exists"]:
            # What a keeper before this one took for saved may have been appended to no avail.
            lacking = await self._lacking(group) if behind or reply["strange"] else []
            if lacking and reply["strange"]:
                self._note_strange(group)
                return None
            last = {"entries": [], "forgotten": [], "topics": list(seen.items()), "unsaved": lacking, "last": True}
            await self._as_keeper("restore", group, part | last)
            if lacking:
                self.note(group)
        self.strange.discard(group)
        return Restored(self.epoch, bool(entries), generation)

    def _note_strange(self, group: str) -> None:
        if group not in self.strange:
            self.strange.add(group)
            self._logger.warning("a group went on in another log, and is refused", group=group)

    def _forgotten(self, group: str) -> list[tuple[str, int]]:
        """What was forgotten in topics that there are, as the scripts name it."""
        found = self._offsets.table.forgotten(group)
        named = {topic_id: name for name, topic_id, _ in self._topics.signature()} if found else {}
        return [
            (Key(named[topic_id], topic_id, partition).text(), version)
            for topic_id, partition, version in found
            if topic_id in named
        ]

    async def _lacking(self, group: str) -> list[str]:
        """Partitions of this log of which Redis has more than `_offsets`."""
        reply = await self._as_keeper("unsaved", group, {"all": True})
        entries = [_entry(row) for row in reply["entries"]]
        table, topics = self._offsets.table, self._topics
        return [e.key.text() for e in entries if topics.may_have(e.key) and table.lacks(group, e)]

    async def _save(self, noted: Collection[str]) -> None:
        groups = sorted(noted)
        for first in range(0, len(groups), GROUPS_AT_ONCE):
            await self._save_groups(groups[first : first + GROUPS_AT_ONCE])

    async def _save_groups(self, groups: Sequence[str]) -> None:
        # Taken off the list first: what is committed from here on is noted again.
        self._unsaved.difference_update(groups)
        try:
            replies = await asyncio.gather(*(self._unsaved_of(group) for group in groups))
            found = {
                group: [entry for entry in map(_entry, reply["entries"]) if self._topics.may_have(entry.key)]
                for group, reply in zip(groups, replies, strict=True)
            }
            table = self._offsets.table
            await self._offsets.save(
                [(group, entry) for group, entries in found.items() for entry in entries if table.lacks(group, entry)]
            )
            for group, entries in found.items():
                versions = [(entry.key.text(), entry.version) for entry in entries]
                if versions:
                    await self._as_keeper("saved", group, {"versions": versions})
        except BaseException:
            self._unsaved.update(groups)
            raise

    async def _unsaved_of(self, group: str) -> Mapping[str, Any]:
        reply = await self._as_keeper("unsaved", group, {})
        if reply["status"] == "unrestored":
            # Nobody has called it since this server keeps it.
            await self._restore(group)
            reply = await self._as_keeper("unsaved", group, {})
        return reply


def is_strange(error: SiltlogError) -> bool:
    """Whether a group is refused as one that went on in another log: no time mends it, and nothing else is wrong."""
    return error.error_code == "coordinator_unavailable" and "group" in error.members


def _entry(row: Sequence[Any]) -> SavedOffset:
    text, *rest = row
    return SavedOffset(Key.parse(text), *rest)
