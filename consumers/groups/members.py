"""The members of groups: they join, stay and leave, and are told what they may read."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from siltlog.consumers.groups.messages import (
    Actor,
    MemberRequest,
    Membership,
    PolledOffset,
    Position,
    Timeouts,
    fields_of,
)
from siltlog.consumers.groups.register import Register
from siltlog.consumers.groups.runner import GroupRunner
from siltlog.consumers.groups.scripts import Reply, listed, raise_for
from siltlog.consumers.groups.topics import GroupTopics, pattern_problem
from siltlog.consumers.groups.waiters import Waiter
from siltlog.consumers.reading.view import Key
from siltlog.infra.clock import Clock
from siltlog.infra.errors import problem
from siltlog.infra.records import Bounds

if TYPE_CHECKING:
    from siltlog.infra.telemetry import Logger

_PLACES: Mapping[str, Callable[[Bounds], int]] = {
    "earliest": lambda bounds: bounds.log_start_offset,
    "latest": lambda bounds: bounds.high_watermark,
}
"""Where a group goes on by the policy of a member."""


class Members:
    """Runs the scripts `heartbeat` and `leave`. Used on one event loop."""

    def __init__(
        self,
        runner: GroupRunner,
        register: Register,
        topics: GroupTopics,
        clock: Clock,
        logger: "Logger",
        timeouts: Timeouts,
    ) -> None:
        self.timeouts = timeouts
        """What members may ask for."""
        self._runner = runner
        self._register = register
        self._topics = topics
        self._clock = clock
        self._logger = logger

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
            await self._register.check_room(group, actor)
            body["join"] = request.joining(self.timeouts)
        if actor is not None:
            body |= actor.fields()
            if request.generation == 0:
                body["join"] |= {name: body[name] for name in ("principal", "principal_groups")}
        if request.instance_id is not None:
            body["instance_id"] = request.instance_id
        if request.owned is not None:
            body["owned"] = await self._topics.owned(request.owned)
        await self._topics.learn(commits or ())
        reply = await self._runner.run(
            "heartbeat", group, body | ({"commits": self._topics.commits(commits)} if commits else {})
        )
        raise_for(reply, group, member)
        if reply["plan"] or _is_unresolved(reply):
            await self._runner.plan(group)
            reply = await self._runner.run("heartbeat", group, body)
            raise_for(reply, group, member)
        return await self._within(group, member, self._membership(group, reply), reply["auto_offset_reset"], actor)

    async def _within(self, group: str, member: str, told: Membership, policy: str, actor: Actor | None) -> Membership:
        """Has the group go on where the member's policy says in partitions that end before its offset, which a client
        of Kafka may have committed: what a member over HTTP is told it can read, commit, and count attempts at."""
        if policy not in _PLACES or not told.assignment:
            return told
        beyond = await self._topics.beyond(told.assignment)
        if not beyond:
            return told
        places = {key: _PLACES[policy](bounds) for key, bounds in beyond.items()}
        commits = [(key.text(), place, "") for key, place in places.items()]
        body = {"member": member, "generation": told.generation, "commits": commits, **fields_of(actor)}
        reply = await self._runner.run("commit", group, body)
        if reply["status"] != "ok":
            # They are another's by now, which its next heartbeat says.
            return told
        for key, before in told.assignment:
            if key in places:
                self._logger.warning(
                    "a group was beyond the end of a partition, and goes on within it",
                    group=group,
                    topic=key.topic,
                    partition=key.partition,
                    policy=policy,
                    before=before,
                    after=places[key],
                )
        return replace(
            told,
            assignment=[Position(key, places.get(key, offset)) for key, offset in told.assignment],
            # Who goes back handles everything as if for the first time.
            delivered={key: end for key, end in told.delivered.items() if key not in places},
            resting_ms={key: rest_ms for key, rest_ms in told.resting_ms.items() if key not in places},
        )

    async def leave(self, group: str, member: str, actor: Actor | None = None) -> None:
        """The member's partitions are free at once. Its id is refused from now on, known or not."""
        reply = await self._runner.run("leave", group, {"member": member, **fields_of(actor)})
        if reply["status"] == "classic":
            reply = await self._runner.run("classic_leave", group, {"members": [(member, "")], **fields_of(actor)})
            reply["status"] = "other_principal" if reply["statuses"] == ["other_principal"] else "ok"
        raise_for(reply, group, member)
        if reply["plan"]:
            await self._runner.plan(group)

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


def _by_key(reply: Reply, name: str) -> dict[Key, int]:
    return {Key.parse(text): int(number) for text, number in reply.get(name, ())}


def _is_unresolved(reply: Reply) -> bool:
    """Whether a partition came to the member before it had an offset, from one whose policy was `error`."""
    return reply["auto_offset_reset"] not in ("", "error") and any(
        offset < 0 for _, offset in reply.get("assignment", ())
    )
