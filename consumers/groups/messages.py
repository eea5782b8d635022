"""Requests to a group, checked when they are decoded, and its results: a membership, attempts, the state of a group."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Annotated, Any, Literal, NamedTuple

import msgspec

from siltlog.consumers.groups.scripts import Key
from siltlog.infra import names
from siltlog.infra.security.access import Subject
from siltlog.infra.security.grant import Grant

SESSION_TIMEOUT_MS = 45_000
REBALANCE_TIMEOUT_MS = 60_000
TIMEOUT_MS_MIN = 100
TIMEOUT_MS_MAX = 3_600_000
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

assert HEARTBEATS_PER_SESSION > WAITS_PER_SESSION > 1, "a member that waits must not outlive its session meanwhile"

ResetPolicy = Literal["earliest", "latest", "error"]
Stability = Literal["empty", "stable", "rebalancing"]
Whole = Annotated[int, msgspec.Meta(ge=0, le=2**53 - 1)]
Limit = Annotated[int, msgspec.Meta(ge=1)]
Timeout = Annotated[int, msgspec.Meta(ge=TIMEOUT_MS_MIN, le=TIMEOUT_MS_MAX)]
Name = Annotated[str, msgspec.Meta(pattern=rf"^{names.NAME_PATTERN.pattern}\Z")]
TopicName = Annotated[str, msgspec.Meta(pattern=rf"^{names.TOPIC_PATTERN.pattern}\Z")]


class Actor(NamedTuple):
    """Who speaks for a member, which is his from its first call on."""

    subject: Subject
    for_others: bool
    """He may speak for members of others too."""
    groups_max: int | None = None
    """So many groups there may be among those that he may read; None for any number."""
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


class PartitionName(msgspec.Struct, forbid_unknown_fields=True):
    topic: TopicName
    partition: Whole


class PolledOffset(PartitionName):
    offset: Whole


class CommittedOffset(PolledOffset):
    metadata: Annotated[str, msgspec.Meta(max_length=METADATA_CHARS_MAX)] = ""
    delivered: Whole | None = None
    """Records below it were handed out to be handled; whoever gets the partition next is told, until it is passed."""


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

    def joining(self) -> dict[str, Any]:
        """Every field of a member that joins. Its instance it keeps for life; the others may change."""
        return {
            "instance_id": self.instance_id or "",
            "topics": "",
            "topic_pattern": "",
            "client_id": "",
            "session_timeout_ms": SESSION_TIMEOUT_MS,
            "rebalance_timeout_ms": REBALANCE_TIMEOUT_MS,
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


class MemberState(NamedTuple):
    member: str
    client_id: str
    topics: list[str]
    topic_pattern: str
    auto_offset_reset: ResetPolicy
    partitions: list[Key]
    instance_id: str


class CommittedState(NamedTuple):
    key: Key
    offset: int
    metadata: str
    committed_ms: int


class GroupState(NamedTuple):
    generation: int
    state: Stability
    members: list[MemberState]
    moving: dict[Key, str]
    """Partitions on their way -> the member that gets them ("" for nobody)."""
    offsets: list[CommittedState]
