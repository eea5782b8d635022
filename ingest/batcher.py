"""When to flush which partitions: by bytes or by age. Pure: no IO, `now` is an argument."""

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

FILES_PER_SECOND_BUDGET = 100
"""Small files cost the writer, the table and its readers: with many active partitions each waits longer."""
LINGER_SECONDS_MAX = 60.0
AWAITED_SECONDS = 0.25
"""Who waits for the table waits so long for others to come into the same file, not for all of `flush.ms`."""
EARLY_BYTES = 1024 * 1024
"""A partition with this much makes a file worth having, however many others are active."""


class Load(NamedTuple):
    """What one partition has that is synced and not in the table."""

    topic: str
    partition: int
    bytes: int
    oldest_seconds: float
    """When the oldest of it was appended, on the monotonic clock."""
    flush_ms: int
    flush_bytes: int
    pins_oldest_segment: bool = False
    hidden: bool = False
    """Nobody sees it before it is in the table (the topic's `acks`)."""
    awaited: bool = False
    """Somebody waits for it to be in the table (`acks=table` of a request)."""


@lru_cache(256)
def linger_seconds(flush_ms: int, active_partitions: int) -> float:
    """How long a partition with little data waits."""
    base = flush_ms / 1000
    share = active_partitions / FILES_PER_SECOND_BUDGET
    # Above the base, the half of it more that taking others along (`due`) takes off again.
    return base if share <= base else min(share + base / 2, max(base, LINGER_SECONDS_MAX))


def due(loads: Sequence[Load], now_seconds: float) -> list[Load]:
    """The partitions to flush now, the one that pins the oldest segment first, then by age.

    One that has waited long enough takes along those of its topic that would within `flush_ms`: each flush is a commit,
    and many partitions whose times differ a little would make as many.
    """
    active = len(loads)
    chosen: list[Load] = []
    others: list[Load] = []
    aged: set[str] = set()
    for load in loads:
        (chosen if now_seconds >= due_at(load, active) else others).append(load)
        if now_seconds >= load.oldest_seconds + linger_seconds(load.flush_ms, active):
            aged.add(load.topic)
    if aged:
        chosen += [load for load in others if load.topic in aged and _soon(load, active, now_seconds)]
    return sorted(chosen, key=lambda load: (not load.pins_oldest_segment, load.oldest_seconds))


def _soon(load: Load, active_partitions: int, now_seconds: float) -> bool:
    return load.oldest_seconds + linger_seconds(load.flush_ms, active_partitions) <= now_seconds + load.flush_ms / 1000


def due_at(load: Load, active_partitions: int) -> float:
    """When `load` is to be flushed, on the monotonic clock."""
    base_at = load.oldest_seconds + load.flush_ms / 1000
    if load.bytes >= load.flush_bytes or load.pins_oldest_segment:
        return load.oldest_seconds
    if load.awaited:
        # As soon as the budget of files lets it, and never later than others.
        return min(base_at, load.oldest_seconds + max(AWAITED_SECONDS, active_partitions / FILES_PER_SECOND_BUDGET))
    if load.hidden or load.bytes >= EARLY_BYTES:
        return base_at
    return load.oldest_seconds + linger_seconds(load.flush_ms, active_partitions)
