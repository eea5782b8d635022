"""How far behind a group is, in records and in seconds."""

from bisect import bisect_right

from siltlog.consumers.lag import Lag
from siltlog.consumers.log_view import PartitionView, TopicView
from siltlog.infra.clock import MICROS_PER_SECOND


async def lag_of(topic: TopicView, view: PartitionView, offset: int, now_us: int) -> Lag:
    """Of a reader whose next offset is `offset`. A record in the table is as old as the oldest of its file."""
    bounds = view.bounds()
    at = max(offset, bounds.log_start_offset)
    if at >= bounds.high_watermark:
        return Lag(0, 0.0)
    timestamp_us = await _timestamp_us(topic, view, at, bounds.high_watermark)
    age_us = max(0, now_us - timestamp_us) if timestamp_us is not None else 0
    return Lag(bounds.high_watermark - at, age_us / MICROS_PER_SECOND)


async def _timestamp_us(topic: TopicView, view: PartitionView, offset: int, end: int) -> int | None:
    batches = await view.read_head(offset, end, 1, 1)
    if batches:
        value: int = batches[0].column("timestamp").cast("int64")[0].as_py()
        return value
    files = topic.snapshot.files_of(view.partition)
    index = max(bisect_right(files, offset, key=lambda file: file.first_offset) - 1, 0)
    return files[index].min_timestamp_us if files else None
