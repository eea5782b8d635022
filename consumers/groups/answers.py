"""Answers about groups and their members, as JSON."""

from typing import Annotated

import msgspec
from msgspec import Meta

from siltlog.consumers.groups.messages import GroupType, Phase, ResetPolicy, Stability
from siltlog.consumers.reading.answers import Fetched
from siltlog.infra.http.answers import Time, Whole


class Polled(Fetched):
    generation: Annotated[Whole, Meta(description="Send it with the next poll")]


class Assigned(msgspec.Struct):
    topic: str
    partition: Whole
    topic_id: Annotated[str, Meta(description="Another one than before: the topic was deleted and created again")]
    offset: Annotated[Whole, Meta(description="Where to read from")]
    delivered: Annotated[
        Whole | msgspec.UnsetType,
        Meta(
            description="There when records below it were handed out to a former holder that committed less: one of "
            "them may have ended it, so count an attempt at each before it is handled"
        ),
    ] = msgspec.UNSET


class Assignment(msgspec.Struct):
    generation: Whole
    assignment: Annotated[list[Assigned] | None, Meta(description="Null: unchanged since the generation sent")]
    heartbeat_interval_ms: Whole


Type = Annotated[
    GroupType,
    Meta(description="The server shares out the partitions of a `consumer` group, a member those of a `classic` one"),
]


class GroupEntry(msgspec.Struct):
    group: str
    state: Stability
    members: Whole
    type: Type
    topics: Annotated[
        list[str] | msgspec.UnsetType,
        Meta(description="Of which it has committed offsets, where the list has an order or is of one topic"),
    ] = msgspec.UNSET
    lag: Annotated[Whole | msgspec.UnsetType, Meta(description="Records, in those topics")] = msgspec.UNSET


class GroupList(msgspec.Struct):
    groups: list[GroupEntry]
    next: str | None


class HeldPartition(msgspec.Struct):
    topic: str
    partition: Whole


class MovingPartition(HeldPartition):
    to: Annotated[str | None, Meta(description="The member that gets it once its holder let go")]


class GroupMember(msgspec.Struct):
    member_id: str
    client_id: str | None
    instance_id: Annotated[str | None, Meta(description="Of a static member")]
    topics: list[str]
    topic_pattern: str | None
    auto_offset_reset: Annotated[ResetPolicy | None, Meta(description="Null: the own one of a client of Kafka")]
    joined_at: Annotated[Time | None, Meta(description="Null: it joined at a server of a former release")]
    assignment: list[HeldPartition]
    client_host: Annotated[str | None, Meta(description="Of a client of Kafka")]


class GroupPartition(HeldPartition):
    member_id: str | None
    offset: Whole
    log_start_offset: Whole
    high_watermark: Whole
    lag: Annotated[Whole, Meta(description="Records")]
    lag_seconds: float | None


class Group(msgspec.Struct):
    group: str
    state: Stability
    generation: Whole
    last_rebalance_at: Annotated[
        Time | None, Meta(description="When its partitions were last assigned; null: never, as far as is known")
    ]
    members: list[GroupMember]
    moving: list[MovingPartition]
    partitions: list[GroupPartition]
    type: Type
    phase: Annotated[
        Phase | None,
        Meta(description="How far a rebalance of a classic group is: members join, then wait for their leader"),
    ]
    protocol_type: Annotated[str | None, Meta(description="Of a classic group: `consumer`, `connect` or another")]
    protocol: Annotated[str | None, Meta(description="By which the leader of a classic group shares out partitions")]


class Committed(HeldPartition):
    offset: Annotated[Whole, Meta(description="The next offset to read")]
    metadata: str
    committed_at: Time


class GroupOffsets(msgspec.Struct):
    group: str
    offsets: list[Committed]


class OffsetMoved(HeldPartition):
    before: Annotated[Whole | None, Meta(description="Null where the group had no offset")]
    after: Whole


class OffsetsMoved(msgspec.Struct):
    offsets: list[OffsetMoved]
