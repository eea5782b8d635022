"""Answers about topics."""

from typing import Annotated, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from siltlog.infra.http.answers import Bounds, PartitionBounds, Time, Whole


class DeletedRecords(Bounds):
    topic: str
    partition: Whole


class ConfigEntry(msgspec.Struct):
    value: int | str
    source: Literal["topic", "server", "default"]


class DescribedPartition(PartitionBounds):
    """What is beside the bounds is not in lists of topics, and what is of the head and the WAL is told by the owner."""

    bytes: Annotated[Whole, Meta(description="Of its files in the Delta table")] | UnsetType = UNSET
    files: Annotated[Whole, Meta(description="Of the Delta table")] | UnsetType = UNSET
    head_start_offset: (
        Annotated[Whole, Meta(description="From it on reads need no file of the table; the high watermark: none do")]
        | UnsetType
    ) = UNSET
    head_bytes: Annotated[Whole, Meta(description="What its head takes in memory")] | UnsetType = UNSET
    wal_segments: (
        Annotated[
            Whole,
            Meta(description="Segments of the write-ahead log with records of it that are not in the table yet"),
        ]
        | UnsetType
    ) = UNSET
    wal_bytes: Annotated[Whole, Meta(description="What these records take there")] | UnsetType = UNSET


class Topic(msgspec.Struct):
    """`records` leaves out what was jumped, and is an upper bound where compaction left gaps; `bytes` and `files` are
    those of the Delta table."""

    name: str
    topic_id: Annotated[str, Meta(description="New after delete and create")]
    partitions: Annotated[int, Meta(ge=1)]
    created_at: Time
    table_uri: str
    config: dict[str, ConfigEntry]
    records: Whole
    bytes: Whole
    files: Whole
    offsets: list[DescribedPartition]
    sort_value: Annotated[float, Meta(description="What a list with `sort` was sorted by")] | UnsetType = UNSET
    owner: Annotated[str, Meta(description="The node that owns it; empty while none does")] | UnsetType = UNSET


class Topics(msgspec.Struct):
    topics: list[Topic]
    next: Annotated[str | None, Meta(description="Send it as `after` for more; null: these were the last")]
