"""Reads a partition of a topic of the system for this server itself."""

import asyncio
from collections.abc import AsyncIterator, Sequence

import pyarrow as pa

from siltlog.consumers.dead_letters.record import Stored, stored_records
from siltlog.consumers.reading.fetch import Fetcher, FetchPosition
from siltlog.consumers.reading.view import TopicView

LOOK_BYTES = 16 * 1024 * 1024


async def stored_in(fetcher: Fetcher, topic: TopicView, first: int, end: int, partition: int = 0) -> list[Stored]:
    """The records in [first, end), which is below the high watermark. Raises what a read raises."""
    found: list[Stored] = []
    async for some in stored_pages(fetcher, topic, first, end, partition, end - first):
        found += some
    return found


async def stored_pages(
    fetcher: Fetcher, topic: TopicView, first: int, end: int, partition: int, records_max: int
) -> AsyncIterator[list[Stored]]:
    """The same, some at a time; offsets that name no record are passed over. A page may be empty."""
    while first < end:
        at = FetchPosition(topic.name, partition, first, topic_id=topic.topic_id)
        result = await fetcher.fetch(
            [at], max_records=min(records_max, end - first), max_bytes=LOOK_BYTES, min_bytes=0, wait_ms=0
        )
        [part] = result.partitions
        if part.error is not None:
            raise part.error
        assert part.next_offset > first, "below the high watermark a read gets on"
        found = await asyncio.to_thread(_records, part.batches)
        first = part.next_offset
        yield [record for record in found if record.offset < end]


def _records(batches: Sequence[pa.RecordBatch]) -> list[Stored]:
    return [record for batch in batches for record in stored_records(batch)]
