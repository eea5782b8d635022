"""Consumer groups: who reads what, and how far they are.

Every transition of a group is one script in Redis; this module gives them their arguments and turns their answers
into results and errors.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, cast, get_args

from siltlog.consumers.groups.keeper import Elsewhere, KeeperAsked, KeeperTold
from siltlog.consumers.groups.messages import (
    ANY_TIMEOUTS,
    OPEN_ATTEMPTS_MAX,
    Actor,
    Attempted,
    AttemptRequest,
    ClassicMember,
    ClassicState,
    CommitRequest,
    CommitStatus,
    CommittedOffset,
    CommittedState,
    Committing,
    GroupRow,
    GroupState,
    MemberRequest,
    Membership,
    MemberState,
    PartitionName,
    Phase,
    PolledOffset,
    Position,
    Stability,
    Timeouts,
)
from siltlog.consumers.groups.runner import GroupCounts, GroupRunner
from siltlog.consumers.groups.saved_offsets import OffsetLog, SavedOffset
from siltlog.consumers.groups.scripts import Key, Reply, keys_of, listed, raise_for
from siltlog.consumers.groups.topics import Commit, GroupTopics, pattern_problem
from siltlog.consumers.groups.upkeep import FOR_EVER, OffsetUpkeep
from siltlog.consumers.groups.waiters import Waiter
from siltlog.consumers.reading.view import LogView
from siltlog.infra.clock import Clock
from siltlog.infra.errors import SiltlogError, problem
from siltlog.infra.records import Lag
from siltlog.infra.redis.keys import GROUPS_KEY, group_key
from siltlog.infra.security.grant import Access, cap_reached

if TYPE_CHECKING:
    from siltlog.infra.redis.connection import RedisConnection
    from siltlog.infra.redis.same import SameRedis
    from siltlog.infra.telemetry import Logger

LISTED_AT_ONCE = 1_000
"""How many names are looked through at once where some are not shown."""


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
        self.timeouts = timeouts
        """What members may ask for."""
        self._redis = redis
        self._clock = clock
        self._topics = GroupTopics(log, access)
        self._runner = GroupRunner(redis, self._topics, clock, logger, offsets, elsewhere, fresh, same)
        self._upkeep: OffsetUpkeep | None = None
        if offsets is not None and self._runner.snapshots is not None and self._runner.keepers is not None:
            self._upkeep = OffsetUpkeep(
                offsets,
                self._runner.snapshots,
                self._runner.keepers,
                self._runner,
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

    def members(self) -> Sequence[int]:
        """How many each group has, of those that this server has met."""
        return self._runner.members()

    def member_counts(self) -> dict[str, int]:
        """How many each group has, by name, of those that this server has met; some seconds old."""
        return self._runner.member_counts()

    def degraded(self) -> list[str]:
        """Lists what does not work as it should, in words for people."""
        if self._upkeep is None or not self._upkeep.problem:
            return []
        return [f"groups: what they commit is not kept beside Redis for now: {self._upkeep.problem}"]

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

    def waiting(self, group: str, member: str) -> AbstractContextManager[Waiter]:
        """A waiter that sees every change of what `member` may read from here on."""
        return self._runner.waiters.waiting(group, member)

    async def heartbeat(
        self, group: str, member: str, request: MemberRequest, actor: Actor | None = None
    ) -> Membership:
        """Joins or renews the session; with `wait_ms` returns once what the member may read has changed.

        `actor` None: nobody is asked who he is. Raises Fenced `unknown_member` or `fenced_member`; Refused `forbidden`
        where the member, or that of its instance, is another's; UnknownTopic for a join of a topic that is not there;
        OffsetOutOfRange where the member's policy is `error` and a partition of its has no offset.
        """
        with self.waiting(group, member) as waiter:
            told = await self.beat(group, member, request, actor)
            ends = self._clock.monotonic() + told.wait_s(request.wait_ms)
            while told.assignment is None and not (self._topics.draining or waiter.ended):
                waiter.told(told.generation)
                if not await waiter.wait(ends - self._clock.monotonic()):
                    break
                told = await self.beat(group, member, MemberRequest(generation=request.generation), actor)
            return told

    async def beat(
        self,
        group: str,
        member: str,
        request: MemberRequest,
        actor: Actor | None = None,
        *,
        poll: bool = False,
        commits: Sequence[PolledOffset] | None = None,
    ) -> Membership:
        """One heartbeat, without waiting. As a poll it also commits, lets go of what the member was told to, and always
        says what it may read."""
        self._check(request)
        body: dict[str, Any] = {
            "member": member,
            "generation": request.generation,
            "fields": request.fields(),
            "poll": poll,
        }
        if request.generation == 0:
            if not request.topics and not request.topic_pattern:
                raise problem("invalid_request", "a join names what it wants to read: give topics or topic_pattern")
            self._topics.require(request.topics or ())
            await self.check_room(group, actor)
            body["join"] = request.joining(self.timeouts)
        if actor is not None:
            body |= actor.fields()
            if request.generation == 0:
                body["join"] |= {name: body[name] for name in ("principal", "principal_groups")}
        if request.instance_id is not None:
            body["instance_id"] = request.instance_id
        if request.owned is not None:
            body["owned"] = self._topics.owned(request.owned)
        await self._topics.learn(commits or ())
        reply = await self._runner.run(
            "heartbeat", group, body | ({"commits": self._topics.commits(commits)} if commits else {})
        )
        raise_for(reply, group, member)
        if reply["plan"] or _is_unresolved(reply):
            await self._runner.plan(group)
            reply = await self._runner.run("heartbeat", group, body)
            raise_for(reply, group, member)
        return self._membership(group, reply)

    async def leave(self, group: str, member: str, actor: Actor | None = None) -> None:
        """The member's partitions are free at once. Its id is refused from now on, known or not."""
        reply = await self._runner.run("leave", group, {"member": member, **_fields(actor)})
        if reply["status"] == "classic":
            reply = await self._runner.run("classic_leave", group, {"members": [(member, "")], **_fields(actor)})
            reply["status"] = "other_principal" if reply["statuses"] == ["other_principal"] else "ok"
        raise_for(reply, group, member)
        if reply["plan"]:
            await self._runner.plan(group)

    async def commit(
        self, group: str, request: CommitRequest, topic_id: str | None = None, actor: Actor | None = None
    ) -> None:
        """All of it or nothing. Raises Fenced `fenced_member` with the partitions that are not the member's,
        Refused `group_not_empty` without a member while there are some, and what `GroupTopics.commits` does."""
        if (request.member_id is None) != (request.generation is None):
            raise problem("invalid_request", "member_id and generation come together: give both or neither")
        await self._topics.learn(request.offsets)
        commits = self._topics.commits(request.offsets, topic_id, by_member=request.member_id is not None)
        reply = await self._commit(group, request, commits, actor)
        if reply["status"] == "group_not_empty":
            raise problem(
                "group_not_empty",
                f"the group {group} has members: commit as one of them, with member_id and generation, "
                "or stop them first",
            )
        raise_for(reply, group, request.member_id or "")

    async def commit_problem(self, offset: CommittedOffset) -> SiltlogError | None:
        """Why nobody may commit an offset, whoever holds its partition; one below the log start may be."""
        try:
            await self._topics.learn((offset,))
            self._topics.commits((offset,))
        except SiltlogError as error:
            return error
        return None

    async def try_commit(
        self, group: str, request: CommitRequest, actor: Actor | None = None, *, instance_id: str = ""
    ) -> Committing:
        """Commits offsets that have no problem, all of them or none; also below the log start. `instance_id` is that of
        a static member of a classic group.

        Raises Refused `forbidden` where the member is another's.
        """
        reply = await self._commit(group, request, self._topics.commits(request.offsets), actor, instance_id)
        if reply["status"] == "fenced_commits":
            return Committing("fenced" if reply["known"] else "unknown_member", keys_of(reply["partitions"]))
        if reply["status"] in get_args(CommitStatus):
            return Committing(reply["status"])
        raise_for(reply, group, request.member_id or "")
        return Committing("ok")

    async def _commit(
        self,
        group: str,
        request: CommitRequest,
        commits: Sequence[Commit],
        actor: Actor | None,
        instance_id: str = "",
    ) -> Reply:
        body: dict[str, Any] = {"commits": commits, "generation": request.generation, **_fields(actor)}
        if instance_id:
            body["instance_id"] = instance_id
        if request.member_id is not None:
            body["member"] = request.member_id
        return await self._runner.run("commit", group, body)

    async def committed(
        self,
        group: str,
        partitions: Sequence[PartitionName] | None = None,
        member: str | None = None,
        generation: int = 0,
    ) -> dict[Key, CommittedState]:
        """What a group has committed, in some partitions or, None, in all; nothing where topic or group is unknown.

        Raises Fenced `unknown_member` and `fenced_member` where a `member` asks that there is not, or one whose
        `generation` was lost.
        """
        body: dict[str, Any] = {}
        if partitions is not None:
            body["partitions"] = self._topics.owned(partitions)
        if member is not None:
            body |= {"member": member, "generation": generation}
        reply = await self._runner.run("offsets", group, body)
        raise_for(reply, group, member or "")
        found = (CommittedState(Key.parse(text), *rest) for text, *rest in reply["offsets"])
        return {entry.key: entry for entry in found if self._topics.has(entry.key)}

    async def forget_offsets(self, group: str, partitions: Sequence[PartitionName]) -> frozenset[Key]:
        """Forgets what a group has committed, but where members read the topic; returns those partitions.

        Raises Refused `unknown_group`, and `group_not_empty` where nobody knows what its members read.
        """
        status, subscribed = await self._runner.forget(group, self._topics.owned(partitions))
        if status == "unknown_group":
            raise _unknown_group(group)
        if status == "group_not_empty":
            raise problem(
                "group_not_empty", f"the group {group} has members, which do not say what they read: stop them"
            )
        return frozenset(keys_of(list(subscribed)))

    async def attempt(
        self,
        group: str,
        request: AttemptRequest,
        actor: Actor | None = None,
        *,
        count: bool,
        suspect_max: int | None = None,
        backoff_ms: tuple[int, int] | None = None,
    ) -> Attempted:
        """Tells the attempts at a record, and counts one more with `count`, but never at one that was committed.

        With `suspect_max` the record may have ended a former holder, and is about to be handled: it is counted while
        it has fewer attempts, the one by which it ended a consumer among them. With `backoff_ms`, the pause after the
        first attempt and the longest one, polls leave its partition out until the pause is over; what is said again
        meanwhile counts no other attempt.

        Raises Fenced where the member does not hold the partition, what `GroupTopics.record` does, and Refused
        `invalid_request` where too many records of the partition have attempts and none is committed.
        """
        await self._topics.learn((request,))
        key = self._topics.record(request)
        body = {
            "member": request.member_id,
            "generation": request.generation,
            "partition": key.text(),
            "offset": request.offset,
            "count": count,
            "open_max": OPEN_ATTEMPTS_MAX,
            **_fields(actor),
        }
        if suspect_max is not None:
            body["suspect_max"] = suspect_max
        if backoff_ms is not None:
            body["backoff_ms"], body["backoff_ms_max"] = backoff_ms
        reply = await self._runner.run("attempts", group, body)
        raise_for(reply, group, request.member_id)
        if reply["status"] == "too_many":
            raise problem(
                "invalid_request",
                f"{OPEN_ATTEMPTS_MAX} records of {request.topic}/{request.partition} have attempts and are not "
                f"committed by the group {group}: commit what is done before another one is begun",
            )
        counted = reply["attempts"], reply["committed"], list(reply["lower"]), reply["spent"], int(reply["rest_ms"])
        return Attempted(key, *counted)

    async def describe(self, group: str) -> GroupState:
        """Raises Refused `unknown_group`. Offsets of topics that are gone are left out."""
        reply = await self._runner.run("describe", group, {})
        if reply["status"] == "unknown_group":
            raise _unknown_group(group)
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
                at._replace(partitions=sorted(self._topics.keys(map(tuple, given[at.member])))) for at in members
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
            raise _unknown_group(group)
        if status == "group_not_empty":
            raise problem(
                "group_not_empty",
                f"the group {group} has members: stop them, then delete it; "
                "one with an instance_id is gone once its session timeout is over",
            )

    async def list_groups(
        self, prefix: str, after: str, limit: int, sees: Callable[[list[str]], list[str]] | None = None
    ) -> tuple[list[GroupRow], str | None]:
        """Up to `limit` groups by name after `after`; and where to go on, None at the end.

        `sees` keeps of some names those that are shown.
        """
        await self._runner.check_same()
        if self._runner.keepers is not None:
            await self._runner.keepers.restore_emptied()
        low = f"({after}" if after >= prefix and after else f"[{prefix}" if prefix else "-"
        high = f"({prefix}\x7f" if prefix else "+"
        groups = await self._named(low, high, limit + 1, sees)
        return await self.states(groups[:limit]), groups[limit - 1] if len(groups) > limit else None

    async def names(self, limit: int) -> list[str]:
        """The first `limit` groups by name. Raises Unavailable."""
        return await self._named("-", "+", limit, None)

    async def states(self, groups: Sequence[str]) -> list[GroupRow]:
        """Tells the states of some groups, without those that there are not. Raises Unavailable."""
        commands = [
            command
            for group in groups
            for command in (
                ("HMGET", group_key(group, "state"), "created", "stale", "type", "phase", "protocol_type"),
                ("ZCARD", group_key(group, "sessions")),
                ("HLEN", group_key(group, "moves")),
            )
        ]
        replies = await self._redis.commands(commands) if commands else []
        rows: list[GroupRow] = []
        for index, group in enumerate(groups):
            (created, stale, *of_classic), members, moves = replies[3 * index : 3 * index + 3]
            if created is None:
                continue
            kind, *about = ["" if text is None else text.decode() for text in of_classic]
            if kind == "classic":
                phase = cast("Phase", about[0])
                rows.append(GroupRow(group, _stability(phase), members, "classic", phase, about[1]))
            else:
                state: Stability = "empty" if not members else "rebalancing" if moves or stale == b"1" else "stable"
                rows.append(GroupRow(group, state, members))
        return rows

    async def _named(self, low: str, high: str, count: int, sees: Callable[[list[str]], list[str]] | None) -> list[str]:
        """The first `count` groups of a range of names that are seen."""
        page = count if sees is None else max(count, LISTED_AT_ONCE)
        groups: list[str] = []
        while len(groups) < count:
            found = await self._redis.command("ZRANGEBYLEX", GROUPS_KEY, low, high, "LIMIT", 0, page)
            found = [name.decode() for name in found]
            groups += found if sees is None else sees(found)
            if len(found) < page:
                break
            low = f"({found[-1]}"
        return groups[:count]

    async def check_room(self, group: str, actor: Actor | None) -> None:
        """Raises Refused `cap_reached` where this group would be one too many."""
        groups_max = None if actor is None else actor.groups_max
        if actor is None or groups_max is None:
            return
        if await self._redis.command("ZSCORE", GROUPS_KEY, group) is not None:
            return

        def own(found: list[str]) -> list[str]:
            return [name for name in found if actor.reads(name)]

        there = len(await self._named("-", "+", groups_max, own)) if groups_max else 0
        if there >= groups_max:
            raise cap_reached(actor.subject.principal, "groups", there, groups_max)

    def _check(self, request: MemberRequest) -> None:
        self.timeouts.check(request.session_timeout_ms, request.rebalance_timeout_ms)
        if request.topic_pattern:
            wrong = pattern_problem(request.topic_pattern)
            if wrong is not None:
                raise problem("invalid_request", wrong)

    def _membership(self, group: str, reply: Reply) -> Membership:
        assignment: list[Position] | None = None
        if "assignment" in reply:
            assignment = []
            lost = []
            for text, offset in reply["assignment"]:
                key = Key.parse(text)
                if self._topics.is_stale(key):
                    continue
                if offset < 0:
                    lost.append(key)
                elif reply["auto_offset_reset"] != "error":
                    offset = self._topics.readable_from(key, offset)
                assignment.append(Position(key, offset))
            if lost and reply["auto_offset_reset"] == "error":
                raise problem(
                    "offset_out_of_range",
                    f"the group {group} has no offset for {listed(sorted(lost))} and auto_offset_reset is 'error': "
                    "set one while the group has no members, or join with earliest or latest",
                )
            assignment = sorted(position for position in assignment if position.offset >= 0)
        delivered, resting = _by_key(reply, "delivered"), _by_key(reply, "resting")
        state = reply["generation"], assignment, reply["releasing"], reply["session_timeout_ms"]
        return Membership(*state, delivered, resting)


def _classic(told: Mapping[str, Any]) -> ClassicState:
    members = {
        member: ClassicMember(metadata.encode("latin-1"), assignment.encode("latin-1"))
        for member, _, metadata, assignment in told["members"]
    }
    return ClassicState(told["phase"], told["protocol_type"], told["protocol"], members)


def _stability(phase: Phase) -> Stability:
    return phase if phase in ("empty", "stable") else "rebalancing"


def _fields(actor: Actor | None) -> dict[str, Any]:
    return {} if actor is None else actor.fields()


def _by_key(reply: Reply, name: str) -> dict[Key, int]:
    return {Key.parse(text): int(number) for text, number in reply.get(name, ())}


def _is_unresolved(reply: Reply) -> bool:
    """Whether a partition came to the member before it had an offset, from one whose policy was `error`."""
    return reply["auto_offset_reset"] not in ("", "error") and any(
        offset < 0 for _, offset in reply.get("assignment", ())
    )


def _unknown_group(group: str) -> SiltlogError:
    return problem("unknown_group", f"there is no group {group}; a group begins with its first member or commit")
