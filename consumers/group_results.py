"""What is told about groups and their members."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from siltlog.consumers.group_requests import HEARTBEAT_INTERVAL_MS_MAX, HEARTBEATS_PER_SESSION, WAITS_PER_SESSION
from siltlog.consumers.group_scripts import Key


class Position(NamedTuple):
    """A partition that a member holds, and the next offset to read there."""

    key: Key
    offset: int


@dataclass(frozen=True, slots=True)
class Membership:
    """What a member is told. `assignment` None: unchanged since the generation it sent."""

    generation: int
    assignment: list[Position] | None
    releasing: bool
    """Something that was revoked is still the member's: it has to let go."""
    session_timeout_ms: int
    delivered: Mapping[Key, int] = field(default_factory=dict)
    """Of the assignment: up to where records were handed out, where that is beyond the committed offset."""

    @property
    def heartbeat_interval_ms(self) -> int:
        return max(1, min(self.session_timeout_ms // HEARTBEATS_PER_SESSION, HEARTBEAT_INTERVAL_MS_MAX))

    def wait_s(self, wait_ms: int) -> float:
        """A wait within which the session cannot end."""
        return min(wait_ms, self.session_timeout_ms // WAITS_PER_SESSION) / 1000


class Attempted(NamedTuple):
    """What is known of handling one record."""

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
    auto_offset_reset: str
    partitions: list[Key]
    instance_id: str


class CommittedState(NamedTuple):
    key: Key
    offset: int
    metadata: str
    committed_ms: int


class GroupState(NamedTuple):
    generation: int
    state: str
    members: list[MemberState]
    moving: dict[Key, str]
    """Partitions on their way -> the member that gets them ("" for nobody)."""
    offsets: list[CommittedState]
