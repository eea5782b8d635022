"""Answers to reads, as JSON."""

from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, UnsetType

from siltlog.infra.http.answers import Bounds, PartitionBounds, Problem, Time, Whole


class Header(msgspec.Struct):
    """`value_base64` where the bytes are not UTF-8."""

    key: str
    value: str | UnsetType | None = UNSET
    value_base64: str | UnsetType = UNSET


class Producer(msgspec.Struct):
    """`sequence` is null where the record came without one."""

    id: str
    epoch: Whole
    sequence: Whole | None


class Record(msgspec.Struct):
    """`value` is text, JSON (`values=json`) or null for a tombstone; `value_base64` where it is none of them.
    `producer`, with `producers=true` or `producer_id`, is null where the record was published without one."""

    partition: Whole
    offset: Whole
    timestamp: Time
    headers: list[Header]
    topic: str | UnsetType = UNSET
    key: str | UnsetType | None = UNSET
    key_base64: str | UnsetType = UNSET
    value: Any | UnsetType = UNSET
    value_base64: str | UnsetType = UNSET
    producer: Producer | UnsetType | None = UNSET


class PartitionOffset(PartitionBounds):
    offset: Annotated[
        Whole | UnsetType,
        Meta(description="With `timestamp`: the lowest offset at or after it, else the high watermark"),
    ] = UNSET
    gaps: Annotated[
        list[tuple[int, int]] | UnsetType,
        Meta(description="Offsets [from, to) that were jumped, and that no record has; left out where there are none"),
    ] = UNSET


class TopicOffsets(msgspec.Struct):
    topic: str
    topic_id: str
    partitions: list[PartitionOffset]


class PartitionRecords(Bounds):
    topic: str
    partition: Whole
    records: list[Record]
    next_offset: Annotated[Whole, Meta(description="Read on from here: offsets may have gaps")]


class FetchedPartition(msgspec.Struct):
    """Bounds are null where the partition was not found; `error` is a problem of this partition alone."""

    topic: str
    partition: Whole
    next_offset: Whole
    log_start_offset: Whole | None
    table_offset: Whole | None
    high_watermark: Whole | None
    error: Problem | None


class Fetched(msgspec.Struct):
    partitions: list[FetchedPartition]
    records: list[Record]
