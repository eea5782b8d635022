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


class Topic(msgspec.Struct):
    """`records` is an upper bound where compaction left gaps; `bytes` and `files` are those of the Delta table."""

    name: str
    topic_id: Annotated[str, Meta(description="New after delete and create")]
    partitions: Annotated[int, Meta(ge=1)]
    created_at: Time
    table_uri: str
    config: dict[str, ConfigEntry]
    records: Whole
    bytes: Whole
    files: Whole
    offsets: list[PartitionBounds]
    sort_value: Annotated[float, Meta(description="What a list with `sort` was sorted by")] | UnsetType = UNSET
    owner: Annotated[str, Meta(description="The node that owns it; empty while none does")] | UnsetType = UNSET


class Topics(msgspec.Struct):
    topics: list[Topic]
    next: Annotated[str | None, Meta(description="Send it as `after` for more; null: these were the last")]
