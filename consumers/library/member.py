"""A member of a group in the Python library: decides what to tell the group next, and reads its answers. No IO.

Heartbeats go on beside the consumer, and only listen: what they are told waits here until the consumer takes it, so
that partitions come and go only between two records. Both sides hold one lock while they use this.
"""

import logging
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple
from uuid import uuid4

from siltlog.infra.client.calls import group_path, offset_list
from siltlog.infra.client.core import NODE_TIMEOUT_MS, Request, backoff_ms, json_request
from siltlog.infra.client.record import TopicPartition
from siltlog.infra.client.retries import FAILURES_TOLD
from siltlog.infra.errors import Fenced, OutcomeUnknown, SiltlogError, problem

_log = logging.getLogger("siltlog.consumer")
WAIT_MS_MAX = 10_000
WAITS_PER_SESSION = 3
GRACE_MS = 5_000
LEAVE_TIMEOUT_MS = 2_000
FENCED_BY_INSTANCE = "instance_id"
"""Value of `fenced_by` in a refusal: another process runs under this member's instance id."""


def warn_of_retries(error: SiltlogError) -> None:
    """Warns of a call that failed twice in a row: a poll meanwhile returns nothing, and its caller should know why."""
    _log.warning("%s; trying on", error)


@dataclass(frozen=True, slots=True)
class MemberOptions:
    group: str
    topics: Sequence[str]
    topic_pattern: str | None
    auto_offset_reset: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    max_poll_interval_ms: int
    client_id: str | None
    instance_id: str | None


class Place(NamedTuple):
    """Where the group says to read a partition from.

    `delivered`: below it records were handed out to a former holder that ended without committing them.
    `topic_id`: which topic of that name is meant.
    """

    offset: int
    delivered: int | None = None
    topic_id: str | None = None


@dataclass(slots=True)
class News:
    """News of the group since the consumer last took it."""

    lost: bool = False
    assignment: dict[TopicPartition, Place] | None = None
    """Every partition of the member; None: as before."""
    error: SiltlogError | None = None

    def add(self, newer: "News") -> None:
        if newer.lost:
            self.lost, self.assignment = True, None
        self.assignment = newer.assignment if newer.assignment is not None else self.assignment
        self.error = newer.error or self.error


@dataclass(slots=True, eq=False)
class Identity:
    """One membership; a new one follows when this is lost."""

    member_id: str = field(default_factory=lambda: str(uuid4()))
    generation: int = 0
    """The last that was heard."""
    taken: int = 0
    """The generation that the consumer took: it answers for partitions as they were given then, not for later ones."""
    asked: bool = False
    """Whether the group may have heard of it: also a join that is refused can have been noted."""
    joined: bool = False
    owned: list[dict[str, Any]] | None = None
    told: frozenset[TopicPartition] = frozenset()
    """The partitions of the last assignment, applied or not."""
    lets_go: bool = False
    """Whether an assignment took away what an earlier one gave: the group waits to hear that it was let go."""


class Beat(NamedTuple):
    """A heartbeat, or the join that comes before any; its answer goes to `heard`."""

    identity: Identity
    request: Request


class Goodbye(NamedTuple):
    """Whatever comes of it, the membership has ended."""

    request: Request


class Rest(NamedTuple):
    """When there is something to say again (monotonic seconds), unless something changes before."""

    until: float


class GroupMember:
    def __init__(self, options: MemberOptions, now: float) -> None:
        self.last_error: SiltlogError | None = None
        self.polled = now
        """When the consumer last asked for a record."""
        self.has_news = False
        """Whether there is something to `take`."""
        self._options = options
        self._path = group_path(options.group)
        self._identity = Identity()
        self._applied = self._identity
        """The identity under which the consumer holds its partitions."""
        self._news = News()
        self._replaced: SiltlogError | None = None
        """Set for good: joining anew would throw out the process that came in its place."""
        self._failing_since: float | None = None
        self._failures = 0
        self._rests_until = 0.0
        self._polling = False
        self._left = False
        self._ended = False

    @property
    def member_id(self) -> str:
        return self._applied.member_id

    @property
    def generation(self) -> int:
        return self._applied.taken

    def unjoined_s(self, now: float) -> float:
        """Returns for how many seconds joining has failed; 0 for a member."""
        since = self._failing_since
        return 0.0 if since is None or self._identity.joined else now - since

    def told(self) -> News:
        """The news, which stays there."""
        return replace(self._news, error=self._replaced or self._news.error)

    def take(self) -> News:
        """Hands the news to the consumer, which acts on it now."""
        news = self.told()
        self._applied = self._identity
        self._applied.taken = self._applied.generation
        self._news = News()
        self.has_news = self._replaced is not None
        return news

    def poll_begins(self) -> None:
        """The consumer waits for records: it is alive."""
        self._polling = True
        self._left = False

    def poll_ends(self, now: float) -> None:
        self._polling = False
        self.polled = now

    def next_step(self, now: float) -> Beat | Goodbye | Rest | None:
        """Decides what to do next; None: nothing any more."""
        if self._ended:
            return None
        if self._left or self._replaced is not None:
            return Rest(math.inf)
        if self._overdue(now):
            return self._step_out()
        if now < self._rests_until:
            return Rest(self._rests_until)
        identity = self._identity
        return Beat(identity, self._heartbeat(identity, self._wait_ms() if identity.joined else 0))

    def heard(self, beat: Beat, answer: Mapping[str, Any] | SiltlogError, now: float, jitter: float) -> None:
        """Takes what came of a heartbeat, unless something newer is known."""
        identity = beat.identity
        if not isinstance(answer, SiltlogError) and "generation" not in answer:
            answer = OutcomeUnknown("the answer to a heartbeat is not understood", error_code="internal")
        if isinstance(answer, SiltlogError):
            self._failed(identity, answer, now, jitter)
            return
        self._failing_since = None
        self._failures, self._rests_until = 0, 0.0
        if identity is not self._identity or answer["generation"] < identity.generation:
            return
        identity.generation = answer["generation"]
        identity.joined = True
        if answer["assignment"] is not None:
            self.has_news = True
            self._news.assignment = {
                TopicPartition(one["topic"], one["partition"]): Place(
                    one["offset"], one.get("delivered"), one.get("topic_id")
                )
                for one in answer["assignment"]
            }
            told = frozenset(self._news.assignment)
            identity.lets_go = identity.lets_go or bool(identity.told - told)
            identity.told = told

    def end(self) -> Request | None:
        """Ends the membership; how to tell the group, None where it never heard of it or is not to be told."""
        begun, self._ended = not self._ended and self._identity.asked, True
        # A static member comes back within its session timeout, and nothing moves.
        return self._goodbye(self._identity) if begun and self._options.instance_id is None else None

    def holds(self, partitions: Collection[TopicPartition]) -> None:
        """Notes that the member has these partitions from now on."""
        self._applied.owned = [{"topic": at.topic, "partition": at.partition} for at in sorted(partitions)]

    def release(self) -> Beat | None:
        """A heartbeat that is answered at once, so that the group learns what was let go; None where nothing was."""
        identity = self._applied
        if not identity.lets_go or identity is not self._identity or self._news.assignment is not None:
            return None
        identity.lets_go = False
        return Beat(identity, self._heartbeat(identity, wait_ms=0))

    def commit(
        self,
        offsets: Mapping[TopicPartition, int],
        delivered: Mapping[TopicPartition, int],
        retry_timeout_ms: int | None,
    ) -> tuple[Identity, Request]:
        """The request, and whose it is: that one is `lost` when the group says that it is fenced."""
        identity = self._applied
        if identity is not self._identity:
            raise problem("fenced_member", f"this member of {self._options.group} was dropped; it is joining anew")
        entries = offset_list(offsets)
        for at, entry in zip(offsets, entries, strict=True):
            if at in delivered:
                entry["delivered"] = delivered[at]
        document = {"member_id": identity.member_id, "generation": identity.taken, "offsets": entries}
        request = json_request("PUT", f"{self._path}/offsets", document, node_timeout_ms=NODE_TIMEOUT_MS)
        return identity, replace(request, retry_timeout_ms=retry_timeout_ms)

    def lost(self, identity: Identity) -> None:
        """The group has dropped this membership: all it held is another's, and a new one begins."""
        if identity is self._identity:
            self._identity = Identity()
            self._news, self.has_news = News(lost=True), True

    def _wait_ms(self) -> int:
        return min(
            WAIT_MS_MAX,
            self._options.session_timeout_ms // WAITS_PER_SESSION,
            max(1, self._options.max_poll_interval_ms // 2),
        )

    def _heartbeat(self, identity: Identity, wait_ms: int) -> Request:
        identity.asked = True
        document: dict[str, Any] = {"generation": identity.generation, "wait_ms": wait_ms}
        if identity.owned is not None:
            document["owned"] = identity.owned
        options = self._options
        if not identity.joined:
            document |= {
                "session_timeout_ms": options.session_timeout_ms,
                "rebalance_timeout_ms": options.rebalance_timeout_ms,
                "auto_offset_reset": options.auto_offset_reset,
            }
            optional = {
                "topics": list(options.topics),
                "topic_pattern": options.topic_pattern,
                "client_id": options.client_id,
                "instance_id": options.instance_id,
            }
            document |= {name: given for name, given in optional.items() if given}
        path = f"{self._path}/members/{identity.member_id}"
        return json_request("PUT", path, document, read_timeout_ms=wait_ms + GRACE_MS, retry_timeout_ms=0, leaves=True)

    def _goodbye(self, identity: Identity) -> Request:
        path = f"{self._path}/members/{identity.member_id}"
        return json_request("DELETE", path, retry_timeout_ms=LEAVE_TIMEOUT_MS)

    def _failed(self, identity: Identity, error: SiltlogError, now: float, jitter: float) -> None:
        if isinstance(error, Fenced):
            if identity is self._identity and error.members.get("fenced_by") == FENCED_BY_INSTANCE:
                self._replaced = error
            self.lost(identity)
            return
        if error.retryable == "no":
            self._news.error, self.has_news = error, True
        else:
            self.last_error = error
            self._failing_since = self._failing_since or now
        self._rests_until = now + backoff_ms(self._failures, jitter, error.retry_after_ms) / 1000
        self._failures += 1
        if self._failures == FAILURES_TOLD and error.retryable != "no":
            warn_of_retries(error)

    def _overdue(self, now: float) -> bool:
        return not self._polling and (now - self.polled) * 1000 > self._options.max_poll_interval_ms

    def _step_out(self) -> Goodbye:
        """Nothing was asked for in `max_poll_interval_ms`: others get the partitions until the consumer is back."""
        _log.warning(
            "nothing was polled for %s ms: leaving group %s until the next poll",
            self._options.max_poll_interval_ms,
            self._options.group,
        )
        goodbye = Goodbye(self._goodbye(self._identity))
        self.lost(self._identity)
        self._left = True
        return goodbye
