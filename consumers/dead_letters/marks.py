"""The dead letters that are hidden: what markers say, kept by partition and read on from where it was read to."""

import asyncio
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from siltlog.consumers.dead_letters.marker import Offsets, looked_at
from siltlog.consumers.reading.fetch import Fetcher, FetchPosition
from siltlog.consumers.reading.view import PartitionView, TopicView
from siltlog.infra.errors import OffsetOutOfRange, problem
from siltlog.infra.records import Bounds

CHUNK_RECORDS = 1_000
CHUNK_BYTES = 4 * 1024 * 1024
LOCKS = 64
KEPT_MAX = 10_000
"""Partitions whose markers are kept; one that was not asked for the longest is read anew."""


@dataclass(slots=True)
class Marks:
    """The dead letters of a partition from the log start on, below `end`."""

    start: int = 0
    end: int = 0
    shown: Offsets = field(default_factory=Offsets)
    hidden: Offsets = field(default_factory=Offsets)

    def look(self, batch: pa.RecordBatch, partition: int) -> None:
        """Takes in what comes next."""
        looked = looked_at(batch, partition)
        for first, end in looked.letters.runs():
            self.shown.add(first, end)
        for first, end in looked.hidden:
            self.shown.remove(first, end)
            self.hidden.add(max(first, self.start), end)

    def begin(self, start: int) -> None:
        """The log start has moved there, or beyond."""
        self.start = max(self.start, start)
        self.end = max(self.end, self.start)
        for offsets in (self.shown, self.hidden):
            offsets.remove(0, self.start)


class MarkIndex:
    """Used on one event loop. What was read once is not read again: records do not change."""

    def __init__(self, fetcher: Fetcher) -> None:
        self._fetcher = fetcher
        self._known: OrderedDict[tuple[str, int], Marks] = OrderedDict()
        self._locks = [asyncio.Lock() for _ in range(LOCKS)]

    async def of(self, dead: TopicView, partition: int, bounds: Bounds) -> Marks:
        """What is known once everything below the high watermark of `bounds` was looked at.

        Raises what a read raises.
        """
        key = (dead.topic_id, partition)
        start, end = bounds.log_start_offset, bounds.high_watermark
        async with self._locks[hash(key) % LOCKS]:
            marks = self._known.pop(key, None)
            if marks is None or marks.end > max(end, dead.partitions[partition].bounds().high_watermark):
                # Also where the end of the log was lost: what comes there now is something else.
                marks = Marks()
            self._known[key] = marks
            while len(self._known) > KEPT_MAX:
                self._known.popitem(last=False)
            marks.begin(start)
            while marks.end < end:
                batches, next_offset = await read_on(self._fetcher, dead, partition, marks.end)
                for batch in batches:
                    marks.look(batch, partition)
                marks.end = next_offset
            return marks


async def read_on(
    fetcher: Fetcher,
    dead: TopicView,
    partition: int,
    offset: int,
    max_records: int | None = None,
    max_bytes: int = CHUNK_BYTES,
) -> tuple[Sequence[pa.RecordBatch], int]:
    """The next records from below the high watermark, and where to go on; none where the log start is above by now.

    Raises what a read raises.
    """
    position = FetchPosition(dead.name, partition, offset, topic_id=dead.topic_id)
    result = await fetcher.fetch(
        [position], max_records=max_records or CHUNK_RECORDS, max_bytes=max_bytes, min_bytes=0, wait_ms=0
    )
    [part] = result.partitions
    if part.error is not None:
        start = part.error.members.get("log_start_offset")
        if isinstance(part.error, OffsetOutOfRange) and isinstance(start, int) and start > offset:
            return (), start
        raise part.error
    if part.next_offset <= offset:
        raise problem(
            "topic_unavailable",
            f"the owner of {dead.name} has gone away, and with it what is at {partition}:{offset}; try again",
            topic=dead.name,
        )
    return part.batches, part.next_offset


async def bounds_of(view: PartitionView) -> Bounds:
    """The bounds as the partition's owner has them, where somebody does. Raises Unavailable."""
    return (await view.decided() if view.far else None) or view.bounds()
