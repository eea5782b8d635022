"""What a publish is answered: where its records are."""

from collections.abc import Iterator
from itertools import repeat
from typing import Any

import numpy as np

from siltlog.infra.http.requests import JsonReply
from siltlog.ingest.log.log import Appended, PartitionAck
from siltlog.ingest.log.topic import TopicLog
from siltlog.ingest.producers.check import Producer
from siltlog.ingest.producers.idempotency import IdempotencyKey
from siltlog.ingest.records.body import Body


def count(topic: TopicLog, body: Body, appended: Appended, by: Producer | IdempotencyKey | None) -> None:
    """Adds an acknowledged publish to what the topic has counted since the start."""
    new = body.count
    if by is not None:
        new = sum(ack.count for ack in appended.acks if not ack.duplicate)
        topic.producers.duplicates_total += body.count - new
    topic.records_total += new
    topic.bytes_total += body.nbytes * new // body.count


def publish_reply(topic: TopicLog, appended: Appended, acks: str, *, positions: bool) -> JsonReply:
    """With `positions` every record's partition and offset, in the order of the request."""
    given = acks != "none"
    partitions = [
        {
            "partition": ack.partition,
            "first_offset": ack.first_offset if given else None,
            "last_offset": ack.last_offset if given else None,
            "count": ack.count,
            "duplicate": ack.duplicate,
        }
        for ack in appended.acks
    ]
    document: dict[str, Any] = {"topic": topic.name, "acks": acks, "partitions": partitions}
    if positions:
        if given:
            document["records"] = positions_of(appended)
        else:
            document["records"] = appended.split.positions({ack.partition: None for ack in appended.acks})
    return JsonReply(document, 200 if given else 202)


def positions_of(appended: Appended) -> list[tuple[int, int | None]]:
    """(partition, offset) of every record in the request's order; None for one whose offset is not known any more."""
    if any(ack.places is not None for ack in appended.acks):
        return _positions_in_runs(appended)
    return appended.split.positions({ack.partition: ack.first_offset for ack in appended.acks})


def _positions_in_runs(appended: Appended) -> list[tuple[int, int | None]]:
    offsets = {ack.partition: _offsets(ack) for ack in appended.acks}
    targets = np.asarray(appended.split.partition_of_record).tolist()
    return [(partition, next(offsets[partition])) for partition in targets]


def _offsets(ack: PartitionAck) -> Iterator[int | None]:
    for first, rows in ack.places or ((ack.first_offset, ack.count),):
        yield from repeat(None, rows) if first is None else range(first, first + rows)
