"""Requests to a group, checked when they are decoded, and its results: a membership, attempts, the state of a group."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Annotated, Any, Literal, NamedTuple

import msgspec

from siltlog.consumers.reading.view import Key
from siltlog.infra import names
from siltlog.infra.errors import problem
from siltlog.infra.limits import MEMBER_TIMEOUT_MS_MAX, MEMBER_TIMEOUT_MS_MIN
from siltlog.infra.records import NO_LEADER_EPOCH
from siltlog.infra.security.access import Subject
from siltlog.infra.security.grant import EVERYTHING, Grant

SESSION_TIMEOUT_MS = 45_000
REBALANCE_TIMEOUT_MS = 60_000
HEARTBEAT_INTERVAL_MS_MAX = 5_000
HEARTBEATS_PER_SESSION = 9
WAITS_PER_SESSION = 3
METADATA_CHARS_MAX = 4_096
PATTERN_CHARS_MAX = 1_000
TOPICS_MAX = 10_000
COMMITS_MAX = 100_000
OPEN_ATTEMPTS_MAX = 1_000
"""Records of a partition with attempts that the group has not passed."""
ERROR_CHARS_MAX = 4_096
ATTEMPTS_MAX = 5
ATTEMPTS_MAX_MAX = 1_000
BACKOFF_MS = 200
BACKOFF_MS_MAX = 30_000
BACKOFF_MS_MAX_MAX = 3_600_000

assert HEARTBEATS_PER_SESSION > WAITS_PER_SESSION > 1, "a member that waits must not outlive its session meanwhile"

ResetPolicy = Literal["earliest", "latest", "error"]
Stability = Literal["empty", "stable", "rebalancing"]
CommitStatus = Literal[
    "ok",
    "unknown_member",
    "fenced",
    "group_not_empty",
    "fenced_instance",
    "illegal_generation",
    "rebalance_in_progress",
]
"""The last three are of classic groups."""
GroupType = Literal["consumer", "classic"]
"""The members of a `classic` group share the partitions out; for a `consumer` group the server does."""
Phase = Literal["empty", "preparing", "completing", "stable"]
"""How far a rebalance of a classic group is: its members join, then wait for what their leader says."""
OFFSET_MAX = 2**53 - 1
"""Up to here a number is the same in JSON and in the scripts."""
Whole = Annotated[int, msgspec.Meta(ge=0, le=OFFSET_MAX)]
Limit = Annotated[int, msgspec.Meta(ge=1)]
Timeout = Annotated[int, msgspec.Meta(ge=MEMBER_TIMEOUT_MS_MIN, le=MEMBER_TIMEOUT_MS_MAX)]
Name = Annotated[str, msgspec.Meta(pattern=rf"^{names.NAME_PATTERN.pattern}\Z")]
TopicName = Annotated[str, msgspec.Meta(pattern=rf"^{names.TOPIC_PATTERN.pattern}\Z")]


class Actor(NamedTuple):
    """The caller that speaks for a member: the member belongs to whoever made its first call."""

    subject: Subject
    for_others: bool
    """Whether the caller may speak for members of others too."""
    groups_max: int | None = None
    """How many groups there may be among those that the caller may read; None for any number."""
    reads: Callable[[str], bool] = bool
    """Whether he may read a group."""

    @classmethod
    def of(cls, grant: Grant, group: str) -> "Actor | None":
        """Returns None where nobody is asked who he is."""
        if grant.identity is None:
            return None
        others, reads = grant.may("alter", "group", group), partial(grant.may, "read", "group")
        return cls(grant.identity.subject, others, grant.cap("groups"), reads)

    def fields(self) -> dict[str, Any]:
        """Returns the members of a request by which the scripts know him."""
        return {
            "principal": self.subject.principal,
            "principal_groups": msgspec.json.encode(self.subject.groups).decode(),
            "for_others": self.for_others,
        }


def fields_of(actor: Actor | None) -> dict[str, Any]:
    """Returns none where nobody is asked who he is."""
    return {} if actor is None else actor.fields()


class Timeouts(NamedTuple):
    """The time-outs that members of this server may ask for."""

    session_ms_min: int = MEMBER_TIMEOUT_MS_MIN
    session_ms_max: int = MEMBER_TIMEOUT_MS_MAX
    rebalance_ms_min: int = MEMBER_TIMEOUT_MS_MIN
    rebalance_ms_max: int = MEMBER_TIMEOUT_MS_MAX

    def check(self, session_ms: int | None, rebalance_ms: int | None) -> None:
        """Raises Refused `invalid_request` for one that is outside; None was not asked for."""
        for name, asked_ms, least_ms, most_ms in (
            ("session_timeout_ms", session_ms, self.session_ms_min, self.session_ms_max),
            ("rebalance_timeout_ms", rebalance_ms, self.rebalance_ms_min, self.rebalance_ms_max),
        ):
            if asked_ms is not None and not least_ms <= asked_ms <= most_ms:
                setting = f"{names.ENV_PREFIX}{name.upper()}"
                raise problem(
                    "invalid_request",
                    f"{name} is {asked_ms}, and this server takes {least_ms} to {most_ms} ({setting}_MIN, "
                    f"{setting}_MAX): ask for that",
                )

    def defaults(self) -> dict[str, int]:
        """Returns what a member has that asks for none."""
        return {
            "session_timeout_ms": min(max(SESSION_TIMEOUT_MS, self.session_ms_min), self.session_ms_max),
            "rebalance_timeout_ms": min(max(REBALANCE_TIMEOUT_MS, self.rebalance_ms_min), self.rebalance_ms_max),
        }


ANY_TIMEOUTS = Timeouts()


class PartitionName(msgspec.Struct, forbid_unknown_fields=True):
    topic: TopicName
    partition: Whole


class PolledOffset(PartitionName):
    offset: Whole


class CommittedOffset(PolledOffset):
    metadata: Annotated[str, msgspec.Meta(max_length=METADATA_CHARS_MAX)] = ""
    delivered: Whole | None = None
    """Records below it were handed out to be handled; whoever gets the partition next is told, until it is passed."""


class KafkaOffset(CommittedOffset):
    """What a client of Kafka commits."""

    leader_epoch: int = NO_LEADER_EPOCH
    """The epoch of the record before the offset, as the client knows it; it is kept, and told to whoever asks by
    Kafka's protocol."""


class MemberRequest(msgspec.Struct, forbid_unknown_fields=True):
    """A join (`generation` 0) or heartbeat; what is left out stays as it is."""

    generation: Whole = 0
    topics: Annotated[list[TopicName], msgspec.Meta(max_length=TOPICS_MAX)] | None = None
    topic_pattern: Annotated[str, msgspec.Meta(max_length=PATTERN_CHARS_MAX)] | None = None
    client_id: Name | None = None
    instance_id: Name | None = None
    session_timeout_ms: Timeout | None = None
    rebalance_timeout_ms: Timeout | None = None
    auto_offset_reset: ResetPolicy | None = None
    owned: list[PartitionName] | None = None
    wait_ms: Whole = 0

    def fields(self) -> dict[str, Any]:
        """Returns the fields that were sent, in the form that the scripts keep."""
        topics = None if self.topics is None else ",".join(sorted(set(self.topics)))
        every = {
            "topics": topics,
            "topic_pattern": self.topic_pattern,
            "client_id": self.client_id,
            "session_timeout_ms": self.session_timeout_ms,
            "rebalance_timeout_ms": self.rebalance_timeout_ms,
            "auto_offset_reset": self.auto_offset_reset,
        }
        return {name: value for name, value in every.items() if value is not None}

    def joining(self, timeouts: Timeouts = ANY_TIMEOUTS) -> dict[str, Any]:
        """Every field of a member that joins. Its instance it keeps for life; the others may change."""
        return {
            "instance_id": self.instance_id or "",
            "topics": "",
            "topic_pattern": "",
            "client_id": "",
            **timeouts.defaults(),
            "auto_offset_reset": "earliest",
        } | self.fields()


class PollRequest(MemberRequest):
    commit: Annotated[list[PolledOffset], msgspec.Meta(max_length=COMMITS_MAX)] | None = None
    max_records: Limit = 500
    max_bytes: Limit = 1024 * 1024
    values: Literal["text", "json", "base64"] = "text"


class AttemptRequest(PolledOffset):
    """One record, as the member that holds its partition names it."""

    member_id: Name
    generation: Whole


class CountRequest(AttemptRequest):
    attempts_max: Limit | None = None
    """Given where the record may have ended a former holder, and is about to be handled: counted while it has fewer."""


class DeadLetterRequest(AttemptRequest):
    error: str
    """Why the record was given up; what is past ERROR_CHARS_MAX is cut."""


Attempts = Annotated[int, msgspec.Meta(ge=1, le=ATTEMPTS_MAX_MAX)]
Backoff = Annotated[int, msgspec.Meta(ge=0, le=BACKOFF_MS_MAX_MAX)]


class NackRequest(PolledOffset):
    """One record that a member could not handle."""

    generation: Whole
    error: str = ""
    """Why; kept with the dead letter, where what is past ERROR_CHARS_MAX is cut."""
    max_attempts: Attempts = ATTEMPTS_MAX
    backoff_ms: Backoff = BACKOFF_MS
    """How long its partition rests after the first attempt; twice as long after the next, at most `backoff_ms_max`."""
    backoff_ms_max: Backoff = BACKOFF_MS_MAX

    def record(self, member_id: str) -> DeadLetterRequest:
        return DeadLetterRequest(self.topic, self.partition, self.offset, member_id, self.generation, self.error)


class CommitRequest(msgspec.Struct, forbid_unknown_fields=True):
    offsets: Annotated[list[CommittedOffset], msgspec.Meta(max_length=COMMITS_MAX)]
    member_id: Name | None = None
    generation: Whole | None = None


class Position(NamedTuple):
    """A partition that a member holds, and the next offset to read there."""

    key: Key
    offset: int


@dataclass(frozen=True, slots=True)
class Membership:
    """The answer to a member. `assignment` None: unchanged since the generation it sent."""

    generation: int
    assignment: list[Position] | None
    releasing: bool
    """Something that was revoked is still the member's: it has to let go."""
    session_timeout_ms: int
    delivered: Mapping[Key, int] = field(default_factory=dict)
    """The end of the records handed out, of each assigned partition where it is beyond the committed offset."""
    resting_ms: Mapping[Key, int] = field(default_factory=dict)
    """For how long an assigned partition is not to be polled yet: handling a record of it failed."""

    @property
    def heartbeat_interval_ms(self) -> int:
        return max(1, min(self.session_timeout_ms // HEARTBEATS_PER_SESSION, HEARTBEAT_INTERVAL_MS_MAX))

    def wait_s(self, wait_ms: int) -> float:
        """A wait within which the session cannot end."""
        return min(wait_ms, self.session_timeout_ms // WAITS_PER_SESSION) / 1000


class Attempted(NamedTuple):
    """The attempts at one record, as the group counts them."""

    key: Key
    attempts: int
    committed: int
    """The group's offset in the partition; -1 when it has none yet."""
    lower: list[int]
    """Lower offsets that the same member has an attempt at, and did not commit."""
    spent: bool = False
    """It had all its attempts before, and was not counted."""
    rest_ms: int = 0
    """For how long its partition is not polled."""


class MemberState(NamedTuple):
    member: str
    client_id: str
    topics: list[str]
    topic_pattern: str
    auto_offset_reset: ResetPolicy | None
    """None: the client's own, as in a classic group."""
    partitions: list[Key]
    instance_id: str
    joined_ms: int | None
    """None: not known, as it joined at a server of a former release."""
    client_host: str = ""
    """The host of a client of Kafka."""


class CommittedState(NamedTuple):
    key: Key
    offset: int
    metadata: str
    committed_ms: int
    leader_epoch: int = NO_LEADER_EPOCH


class Committing(NamedTuple):
    """What became of a commit."""

    status: CommitStatus
    fenced: Collection[Key] = ()
    """The partitions that the member does not hold in that generation: nothing was committed."""


class ClassicMember(NamedTuple):
    metadata: bytes
    """What it sent with the protocol of its group."""
    assignment: bytes
    """What its leader gave it."""


class ClassicState(NamedTuple):
    phase: Phase
    protocol_type: str
    protocol: str
    members: Mapping[str, ClassicMember]


class GroupRow(NamedTuple):
    """A group in a list. `phase` and `protocol_type` are those of a classic group.

    `offsets_alone`: it has no members, and as far as is known it never had one.
    """

    group: str
    state: Stability
    members: int
    type: GroupType = "consumer"
    phase: Phase | None = None
    protocol_type: str = ""
    offsets_alone: bool = False


class GroupState(NamedTuple):
    generation: int
    state: Stability
    members: list[MemberState]
    moving: dict[Key, str]
    """Partitions on their way -> the member that gets them ("" for nobody)."""
    offsets: list[CommittedState]
    rebalanced_ms: int | None
    """When an assignment was last installed; None: none was, as far as is known."""
    classic: ClassicState | None = None
    """None: a consumer group."""

    @property
    def type(self) -> GroupType:
        return "consumer" if self.classic is None else "classic"

    @property
    def offsets_alone(self) -> bool:
        """Whether it has no members, and as far as is known never had one."""
        return self.classic is None and not self.members and self.rebalanced_ms is None

    def seen_by(self, grant: Grant) -> "GroupState":
        """Leaves out what is of topics that may not be described. Raises Refused `unauthenticated`."""
        if grant is EVERYTHING:
            return self
        named = {entry.key.topic for entry in self.offsets} | {key.topic for key in self.moving}
        for member in self.members:
            named |= {*member.topics, *(key.topic for key in member.partitions)}
        seen = set(grant.sees("topic", named))
        return self._replace(
            members=[
                member._replace(
                    topics=[topic for topic in member.topics if topic in seen],
                    partitions=[key for key in member.partitions if key.topic in seen],
                )
                for member in self.members
            ],
            moving={key: to for key, to in self.moving.items() if key.topic in seen},
            offsets=[entry for entry in self.offsets if entry.key.topic in seen],
        )
