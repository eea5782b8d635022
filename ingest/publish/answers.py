"""Answers to a publish, and about a producer."""

from typing import Annotated, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from siltlog.infra.http.answers import Whole


class PublishedPartition(msgspec.Struct):
    """The part of a request that went to one partition. Offsets are inclusive; null: not known (yet, or any more)."""

    partition: Whole
    first_offset: Whole | None
    last_offset: Whole | None
    count: Whole
    duplicate: Annotated[bool, Meta(description="All of it was there already: nothing was appended")]


class Published(msgspec.Struct):
    topic: str
    acks: Literal["none", "written", "wal", "object", "table"]
    partitions: list[PublishedPartition]
    records: Annotated[
        list[tuple[Whole, Whole | None]] | UnsetType,
        Meta(description="`[partition, offset]` of each record in the request's order; left out for Arrow"),
    ] = UNSET


class ProducerPartition(msgspec.Struct):
    partition: Whole
    next_sequence: Whole
    last_offset: Annotated[
        Whole | None, Meta(description="Of the producer's last record; null when not known any more")
    ]


class ProducerState(msgspec.Struct):
    producer_id: str
    producer_epoch: Whole
    partitions: Annotated[list[ProducerPartition], Meta(description="A partition that is absent begins at 0")]
