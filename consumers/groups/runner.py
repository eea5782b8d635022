"""Runs and counts the transitions of groups, wakes those who wait, and lets time pass in groups that nobody calls."""

import asyncio
import math
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

from siltlog.consumers.groups.planner import GroupPlanner
from siltlog.consumers.groups.register import Register
from siltlog.consumers.groups.scripts import GroupScripts, Reply
from siltlog.consumers.groups.topics import GroupTopics
from siltlog.consumers.groups.waiters import GroupWaiters
from siltlog.consumers.keeping.keeper import Elsewhere, Keepers
from siltlog.consumers.keeping.saved_offsets import OffsetLog
from siltlog.consumers.keeping.snapshots import OffsetSnapshots, is_strange
from siltlog.consumers.reading.view import Key
from siltlog.infra.clock import Clock
from siltlog.infra.errors import SiltlogError, Unavailable, problem
from siltlog.infra.redis.keys import group_key, keeper_text

if TYPE_CHECKING:
    from siltlog.infra.redis.connection import RedisConnection
    from siltlog.infra.redis.same import SameRedis
    from siltlog.infra.telemetry import Logger

TICK_S = 0.25
"""How late a session may end, and how long a change of topics goes unnoticed."""
CHECK_S = 1.0
"""How often changes that other servers made are looked for, in groups with waiters."""
SCAN_S = 30.0
"""How often groups that this server has not met are looked for."""
RESTORES_MAX = 4
"""How often one call puts back what Redis loses at once again."""

T = TypeVar("T")


class GroupCounts:
    """Each event is counted by the server whose call brought it about: the sum over servers is exact."""

    def __init__(self) -> None:
        self.rebalances: Counter[str] = Counter(members=0, topics=0)
        """Assignments that changed what somebody reads, by what asked for them."""
        self.evictions: Counter[str] = Counter(session=0, rebalance=0, instance=0)
        """Members that were expired or fenced: too late with a heartbeat, too late to let go, replaced as an instance.
        """
        self.commits: Counter[str] = Counter(accepted=0, fenced=0)

    def count(self, request: Mapping[str, Any], reply: Reply) -> None:
        """One transition."""
        self.evictions.update(reply["evicted"])
        self.rebalances["members"] += bool(reply.get("rebalanced"))
        if request.get("commits"):
            if reply["status"] == "ok":
                self.commits["accepted"] += 1
            elif reply["status"] == "fenced_commits":
                self.commits["fenced"] += 1


class _Known:
    """A group as this server remembers it."""

    def __init__(self, planner: GroupPlanner) -> None:
        self.planner = planner
        self.generation = 0
        self.members = 0
        self.due = math.inf
        """When its next session ends, on this server's clock; infinite while it has no members."""
        self.listed = False
        self.followed = -1
        """The state of the topics that its assignment was last compared with."""
        self.holding = False
        """Redis was restarted: nothing moves for now."""
        self.classic = False
        """Whether its members share out its partitions: nothing is planned for it."""
        self.stale = False
        """Whether the group's assignment is not what its members and topics ask for."""


class GroupRunner:
    """Used on one event loop."""

    def __init__(
        self,
        redis: "RedisConnection",
        register: Register,
        topics: GroupTopics,
        clock: Clock,
        logger: "Logger",
        offsets: OffsetLog | None = None,
        elsewhere: Elsewhere | None = None,
        fresh: Callable[[], bool] = lambda: True,
        same: "SameRedis | None" = None,
    ) -> None:
        """Keeps nothing beside Redis without `offsets`. Without `same` no other server need have the same Redis."""
        self.snapshots = None if offsets is None else OffsetSnapshots(offsets, self._step, topics, redis, logger)
        self.keepers = None if self.snapshots is None else Keepers(self.snapshots, redis, elsewhere, fresh)
        self.waiters = GroupWaiters()
        self.counts = GroupCounts()
        self._redis = redis
        self._register = register
        self._same = same
        self._scripts = GroupScripts(redis)
        self._topics = topics
        self._clock = clock
        self._logger = logger
        self._known: dict[str, _Known] = {}
        self._heard = 0
        """The highest generation of any group: where Redis was emptied, all go on above it."""
        self._task: asyncio.Task[None] | None = None
        self._signature: tuple[tuple[str, str, int], ...] = ()
        self._access_version = -1
        self._topics_state = 0
        """How often the signature, or who may read what, has changed."""
        self._gone: set[str] = set()
        """Deleted topics, `{topic}/{topic id}`, that groups may still have offsets of."""
        self._look_at = self._check_at = self._scan_at = clock.monotonic()

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._tick_for_ever())

    async def close(self) -> None:
        self.waiters.wake_all()
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task
            self._task = None

    async def run(self, transition: str, group: str, request: Mapping[str, Any]) -> Reply:
        """One transition; wakes those for whom it, or another server before it, has changed something.

        With `_offsets` beside Redis, a group gets back what Redis has lost before its transition, and what nobody may
        be told before it is there is there when this returns.
        """
        await self.check_same()
        if self.snapshots is None or self.keepers is None:
            return await self._step(transition, group, request)
        body = {**request, "log": self.keepers.cluster_id}
        for _ in range(RESTORES_MAX):
            body["keeper"] = keeper_text(self.keepers.epoch)
            reply = await self._step(transition, group, body)
            if reply["status"] == "unrestored":
                restored = await self.keepers.restore(group)
                body["new"] = not restored.had
                self._notice_loss(group, restored.generation)
                continue
            self.keepers.heard(reply["keeper"])
            if reply["unsaved"]:
                self.snapshots.note(group)
            if reply["urgent"]:
                await self.keepers.save_now(group)
            return reply
        raise problem("coordinator_unavailable", f"Redis loses what is put back for the group {group}; look after it")

    async def check_same(self) -> None:
        """Raises Unavailable where this server's Redis is not that of the cluster."""
        if self._same is not None:
            await self._same.check()

    def _notice_loss(self, group: str, generation: int) -> None:
        """Where Redis is behind what this server knows its members are lost: who waits has to come and hear that."""
        known = self._known.get(group)
        if known is not None and generation < known.generation:
            self.waiters.wake(group, math.inf)
            known.generation = 0

    async def _step(self, transition: str, group: str, request: Mapping[str, Any]) -> Reply:
        reply = await self._scripts.run(transition, group, {**request, "heard": self._heard})
        if reply["status"] in ("unrestored", "fenced_keeper"):
            return reply
        self._heard = max(self._heard, reply["generation"])
        self.counts.count(request, reply)
        if not reply["exists"]:
            if self._known.pop(group, None) is not None:
                self.waiters.wake(group, math.inf)
            if reply.get("undone"):
                await self._register.remove(group)
            return reply
        known = self._known_of(group)
        if transition == "restore":
            self._notice_loss(group, reply["generation_before"])
        if reply["generation_before"] > known.generation:
            self.waiters.wake(group, reply["generation"])
        elif reply["changed"]:
            self.waiters.wake(group, reply["generation"], frozenset(reply["changed"]))
        known.generation = max(known.generation, reply["generation"])
        known.members = reply["member_count"]
        known.classic = reply["classic"]
        known.stale = reply["plan"]
        known.holding = reply["holding"]
        due_ms = reply["due_ms"]
        known.due = math.inf if due_ms < 0 else self._clock.monotonic() + due_ms / 1000
        if reply["created"] or not known.listed:
            await self._register.add(group)
            known.listed = True
        return reply

    def member_counts(self) -> dict[str, int]:
        """How many each group has, by name, of those that this server has met."""
        return {group: known.members for group, known in self._known.items()}

    async def plan(self, group: str) -> None:
        await self._known_of(group).planner.plan()

    async def delete(self, group: str, request: Mapping[str, Any]) -> str:
        """The transition `delete`; what was deleted is not put back, whatever becomes of Redis. Returns its status."""
        await self.check_same()
        if self.keepers is None:
            status: str = (await self._step("delete", group, request))["status"]
        else:
            # Restored here, if need be: while it is deleted nothing is.
            await self.run("sweep", group, {})
            status = await self.keepers.delete(group, request)
        if status == "ok":
            self._known.pop(group, None)
            await self._register.remove(group)
        return status

    async def forget(self, group: str, partitions: Collection[str]) -> tuple[str, Collection[str]]:
        """The transition `forget_offsets`, also beside Redis. Returns its status, and what of it members still read."""
        await self.check_same()
        if self.keepers is None:
            reply = await self._step("forget_offsets", group, {"partitions": list(partitions)})
            return reply["status"], reply.get("subscribed") or ()
        # Restored here, if need be, as before a deletion.
        await self.run("sweep", group, {})
        told = await self.keepers.forget(group, partitions)
        return told.status, told.subscribed

    async def tick(self) -> None:
        """Does what is due by now. Raises Unavailable without Redis."""
        if self._same is not None and self._clock.monotonic() >= self._look_at:
            await self._same.look()
            self._look_at = self._clock.monotonic() + CHECK_S
        await self.check_same()
        await self._each((self._scan, self._keep_up, self._follow_topics, self._follow_others), lambda step: step())

    async def _each(self, things: Iterable[T], act: Callable[[T], Awaitable[None]]) -> None:
        """Acts on each; a failure of one is raised once all others had their turn.

        In a Redis cluster perhaps only the node of one group is away. A single Redis that did not answer is not asked
        again.
        """
        failure: SiltlogError | None = None
        for thing in list(things):
            try:
                await act(thing)
            except SiltlogError as error:
                if is_strange(error):
                    # Told once by the log of whoever keeps what groups commit.
                    continue
                if isinstance(error, Unavailable) and not self._redis.is_cluster:
                    raise
                failure = error
        if failure is not None:
            raise failure

    async def _tick_for_ever(self) -> None:
        reachable = True
        told = ""
        while True:
            await asyncio.sleep(TICK_S)
            if self._topics.draining:
                self.waiters.wake_all()
            try:
                await self.tick()
                if not reachable:
                    self._logger.info("groups are available again", redis=self._redis.place)
                reachable = True
            except Unavailable as error:
                if reachable:
                    self._logger.warning("groups are not available", reason=error.detail)
                reachable = False
            except SiltlogError as error:
                if error.detail != told:
                    self._logger.error("a group could not be looked after", reason=error.detail)
                told = error.detail
            except Exception:
                self._logger.exception("a look at the groups failed; the next follows")

    async def _keep_up(self) -> None:
        """Sessions end, and assignments follow."""

        async def keep_up(group: str) -> None:
            known = self._known.get(group)
            if known is not None and known.due <= self._clock.monotonic():
                await self.run("sweep", group, {})
            if known is not None and known.stale:
                await self.plan(group)

        now = self._clock.monotonic()
        await self._each([group for group, known in self._known.items() if known.due <= now or known.stale], keep_up)

    async def _follow_topics(self) -> None:
        """Plans anew where topics came, went, grew, or have other readers; what was committed in deleted ones goes."""
        signature = self._topics.signature()
        access_version = self._topics.access_version()
        if signature != self._signature or access_version != self._access_version:
            self._gone |= _topic_texts(self._signature) - _topic_texts(signature)
            self._signature, self._access_version = signature, access_version
            self._topics_state += 1
        state = self._topics_state

        async def follow(group: str) -> None:
            known = self._known.get(group)
            if known is not None and known.planner.is_outdated():
                await self.plan(group)
            if known is not None and not known.planner.is_outdated():
                known.followed = state

        behind = [
            group
            for group, known in self._known.items()
            if known.followed != state and known.members and not known.holding and not known.classic
        ]
        await self._each(behind, follow)
        if self._gone:
            # Only now: who held their partitions was told by the plan that they are no more.
            gone = sorted(self._gone)

            async def forget(group: str) -> None:
                await self.run("forget", group, {"topics": gone})

            await self._each([group async for group in self._register.all()], forget)
            self._gone.clear()

    async def _follow_others(self) -> None:
        """Wakes the waiters of groups that another server has changed."""
        now = self._clock.monotonic()
        if now < self._check_at:
            return
        self._check_at = now + CHECK_S
        groups = self.waiters.groups()
        if self._redis.is_cluster:
            await self._each(groups, lambda group: self._follow_generations([group]))
        elif groups:
            await self._follow_generations(groups)

    async def _follow_generations(self, groups: Sequence[str]) -> None:
        stored = await self._redis.commands([("HGET", group_key(group, "state"), "generation") for group in groups])
        for group, generation in zip(groups, stored, strict=True):
            known = self._known.get(group)
            if known is None:
                continue
            if int(generation or 0) < known.generation:
                self._notice_loss(group, int(generation or 0))
            elif int(generation or 0) > known.generation:
                known.generation = int(generation)
                self.waiters.wake(group, known.generation)

    async def _scan(self) -> None:
        """Meets groups that only others have called, and forgets those that others have deleted."""
        if self._clock.monotonic() < self._scan_at:
            return

        async def meet(group: str) -> None:
            await self.run("sweep", group, {})

        met = [group for group, known in self._known.items() if known.listed]
        there = {group async for group in self._register.all()}
        for group in met:
            if group not in there:
                self._known.pop(group, None)
                self.waiters.wake(group, math.inf)
        await self._each(sorted(there - set(self._known)), meet)
        self._scan_at = self._clock.monotonic() + SCAN_S

    def _known_of(self, group: str) -> _Known:
        known = self._known.get(group)
        if known is None:
            known = self._known[group] = _Known(GroupPlanner(group, self._topics, self.run, self.counts.rebalances))
        return known


def _topic_texts(signature: Collection[tuple[str, str, int]]) -> set[str]:
    return {Key(name, topic_id, 0).topic_text() for name, topic_id, _ in signature}
