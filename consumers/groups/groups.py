"""Consumer groups: all that there are on a server, and what becomes of each as a whole.

Every transition of a group is one script in Redis; this module, `members.py` and `offsets.py` give them their arguments
and turn their answers into results and errors.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from siltlog.consumers.groups.members import Members
from siltlog.consumers.groups.messages import (
    ANY_TIMEOUTS,
    ClassicMember,
    ClassicState,
    CommittedState,
    GroupRow,
    GroupState,
    MemberState,
    Phase,
    Stability,
    Timeouts,
)
from siltlog.consumers.groups.offsets import Offsets
from siltlog.consumers.groups.register import Register, Sees
from siltlog.consumers.groups.runner import GroupCounts, GroupRunner
from siltlog.consumers.groups.scripts import keys_of, unknown_group
from siltlog.consumers.groups.topics import GroupTopics
from siltlog.consumers.keeping.keeper import Elsewhere, KeeperAsked, KeeperTold
from siltlog.consumers.keeping.saved_offsets import OffsetLog, SavedOffset
from siltlog.consumers.keeping.upkeep import FOR_EVER, OffsetUpkeep
from siltlog.consumers.reading.view import Key, LogView
from siltlog.infra.clock import Clock
from siltlog.infra.errors import problem
from siltlog.infra.records import Lag
from siltlog.infra.redis.keys import group_key
from siltlog.infra.security.grant import Access

if TYPE_CHECKING:
    from siltlog.infra.redis.connection import RedisConnection
    from siltlog.infra.redis.same import SameRedis
    from siltlog.infra.telemetry import Logger

_OF_A_ROW = ("created", "stale", "rebalanced", "type", "phase", "protocol_type")
"""What of a group's state a list of groups says."""


class Groups:
    """Used on one event loop, between `start` and `close`."""

    def __init__(
        self,
        redis: "RedisConnection",
        log: LogView,
        clock: Clock,
        logger: "Logger",
        offsets: OffsetLog | None = None,
        *,
        offsets_retention_ms: int = FOR_EVER,
        access: Access | None = None,
        elsewhere: Elsewhere | None = None,
        fresh: Callable[[], bool] = lambda: True,
        same: "SameRedis | None" = None,
        timeouts: Timeouts = ANY_TIMEOUTS,
    ) -> None:
        """Keeps nothing beside Redis without `offsets`; forgets a group that nobody used for `offsets_retention_ms`.

        Without `access` everybody may read every topic. `elsewhere` is asked while `offsets` are not kept here; while
        this server is not `fresh` another may keep them. With `same` all nodes must have one Redis. Members may ask for
        `timeouts`.
        """
        self._redis = redis
        self._topics = GroupTopics(log, access)
        self.register = Register(redis)
        self._runner = GroupRunner(redis, self.register, self._topics, clock, logger, offsets, elsewhere, fresh, same)
        self.members = Members(self._runner, self.register, self._topics, clock, logger, timeouts)
        self.offsets = Offsets(self._runner, self._topics)
        self._upkeep: OffsetUpkeep | None = None
        if offsets is not None and self._runner.snapshots is not None and self._runner.keepers is not None:
            self._upkeep = OffsetUpkeep(
                offsets,
                self._runner.snapshots,
                self._runner.keepers,
                self._runner,
                self.register.all,
                log,
                redis,
                clock,
                logger,
                retention_ms=offsets_retention_ms,
            )

    def start(self) -> None:
        self._runner.start()
        if self._upkeep is not None:
            self._upkeep.start()

    async def close(self) -> None:
        """Lets every waiting call return."""
        await self._runner.close()
        if self._upkeep is not None:
            await self._upkeep.close()

    async def tick(self) -> None:
        """Does what is due by now, where `start` was not called. Raises Unavailable without Redis."""
        await self._runner.tick()

    @property
    def transitions(self) -> GroupRunner:
        """Runs what other protocols ask of a group."""
        return self._runner

    @property
    def counts(self) -> GroupCounts:
        """Counts of events on this server since its start."""
        return self._runner.counts

    def member_counts(self) -> dict[str, int]:
        """How many each group has, by name, of those that this server has met; some seconds old."""
        return self._runner.member_counts()

    def degraded(self) -> list[str]:
        """Lists what does not work as it should, in words for people."""
        found: list[str] = []
        if self._upkeep is not None and self._upkeep.problem:
            found.append(f"groups: what they commit is not kept beside Redis for now: {self._upkeep.problem}")
        strange = 0 if self._runner.snapshots is None else len(self._runner.snapshots.strange)
        if strange:
            found.append(
                f"groups: {strange} went on in another log, such as the one that this log was restored from, and are "
                "refused: give this server a Redis of its own, or empty this one where that log is no more"
            )
        return found

    def lags_left_out(self) -> int:
        """How many partitions of groups have no place in `lags`."""
        return 0 if self._upkeep is None else self._upkeep.lags_left_out()

    def lags(self) -> Sequence[tuple[str, Key, Lag]]:
        """(group, partition, lag) for metrics: some seconds old, and not more than a scrape can bear."""
        return () if self._upkeep is None else self._upkeep.lags

    def positions(self) -> Sequence[tuple[str, SavedOffset]]:
        """What groups committed, as it was saved last, where it is kept here: of as many partitions as `lags`."""
        return () if self._upkeep is None else self._upkeep.positions()

    async def as_keeper(self, asked: KeeperAsked) -> KeeperTold:
        """Does what another server asks of the one that keeps what groups commit. Raises Unavailable where that is not
        this one."""
        if self._runner.keepers is None:
            raise problem("coordinator_unavailable", "this server keeps nothing beside Redis")
        return await self._runner.keepers.answer(asked)

    def wake(self) -> None:
        """Every waiting call returns with what it has; for a server that drains."""
        self._runner.waiters.wake_all()

    def look(self) -> None:
        """Every waiting call returns, or asks again; for a server where access has changed."""
        self._runner.waiters.look()

    async def describe(self, group: str) -> GroupState:
        """Raises Refused `unknown_group`. Offsets of topics that are gone are left out."""
        reply = await self._runner.run("describe", group, {})
        if reply["status"] == "unknown_group":
            raise unknown_group(group)
        offsets = [CommittedState(Key.parse(text), *rest) for text, *rest in reply["offsets"]]
        classic = reply.get("classic_group")
        members = sorted(
            MemberState(
                *(member, client, topics.split(",") if topics else [], pattern, reset or None),
                *(keys_of(partitions), instance, int(joined_ms) or None, host),
            )
            for member, client, topics, pattern, reset, partitions, instance, joined_ms, host in reply["members"]
        )
        if classic is not None:
            given = {member: partitions for member, partitions, *_ in classic["members"]}
            members = [
                at._replace(partitions=sorted(await self._topics.keys(map(tuple, given[at.member])))) for at in members
            ]
        return GroupState(
            reply["generation"] if classic is None else int(classic["generation"]),
            reply["state"],
            members,
            {Key.parse(text): member for text, member in reply["moving"]},
            sorted(entry for entry in offsets if self._topics.has(entry.key)),
            int(reply["rebalanced_ms"]) or None,
            None if classic is None else _classic(classic),
        )

    async def delete(self, group: str) -> None:
        """Raises Refused `unknown_group` or `group_not_empty`."""
        status = await self._runner.delete(group, {})
        if status == "unknown_group":
            raise unknown_group(group)
        if status == "group_not_empty":
            raise problem(
                "group_not_empty",
                f"the group {group} has members: stop them, then delete it; "
                "one with an instance_id is gone once its session timeout is over",
            )

    async def list_groups(
        self, prefix: str, after: str, limit: int, sees: Sees | None = None
    ) -> tuple[list[GroupRow], str | None]:
        """Up to `limit` groups by name after `after`; and where to go on, None at the end.

        `sees` keeps of some names those that are shown.
        """
        await self._runner.check_same()
        if self._runner.keepers is not None:
            await self._runner.keepers.restore_emptied()
        groups = await self.register.after(prefix, after, limit + 1, sees)
        return await self.states(groups[:limit]), groups[limit - 1] if len(groups) > limit else None

    async def states(self, groups: Sequence[str]) -> list[GroupRow]:
        """Tells the states of some groups, without those that there are not. Raises Unavailable."""
        commands = [
            command
            for group in groups
            for command in (
                ("HMGET", group_key(group, "state"), *_OF_A_ROW),
                ("ZCARD", group_key(group, "sessions")),
                ("HLEN", group_key(group, "moves")),
            )
        ]
        replies = await self._redis.commands(commands) if commands else []
        rows: list[GroupRow] = []
        for index, group in enumerate(groups):
            (created, stale, rebalanced, *of_classic), members, moves = replies[3 * index : 3 * index + 3]
            if created is None:
                continue
            kind, *about = ["" if text is None else text.decode() for text in of_classic]
            if kind == "classic":
                phase = cast("Phase", about[0])
                rows.append(GroupRow(group, _stability(phase), members, "classic", phase, about[1]))
            else:
                state: Stability = "empty" if not members else "rebalancing" if moves or stale == b"1" else "stable"
                rows.append(GroupRow(group, state, members, offsets_alone=not members and rebalanced is None))
        return rows


def _classic(told: Mapping[str, Any]) -> ClassicState:
    members = {
        member: ClassicMember(metadata.encode("latin-1"), assignment.encode("latin-1"))
        for member, _, metadata, assignment in told["members"]
    }
    return ClassicState(told["phase"], told["protocol_type"], told["protocol"], members)


def _stability(phase: Phase) -> Stability:
    return phase if phase in ("empty", "stable") else "rebalancing"
