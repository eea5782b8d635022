"""Decides when to flush which partitions: by bytes or by age. Pure: no IO, `now` is an argument."""

from collections.abc import Collection, Sequence
from functools import lru_cache
from typing import NamedTuple

from siltlog.infra.settings.topic_config import FLUSH_WAIT_MS_MAX

FILES_PER_SECOND_BUDGET = 100
"""Small files cost the writer, the table and its readers: with many active partitions each waits longer."""
LINGER_SECONDS_MAX = 60.0
AWAITED_SECONDS = 0.25
"""Records with a publisher that waits for the table wait so long for others in their file, not all of `flush.ms`."""
EARLY_BYTES = 1024 * 1024
"""A partition with this much makes a file worth having, however many others are active."""


class Pace(NamedTuple):
    """The pace that the files of its table allow a topic (`file_budget`)."""

    ready_seconds: float = 0.0
    """When the next files of little data are within its budget, on the monotonic clock."""
    early_bytes: int = EARLY_BYTES
    awaited_seconds: float = AWAITED_SECONDS


UNHURRIED = Pace()
"""The pace of a topic that may make as many files as its `flush.ms` asks for."""


class Load(NamedTuple):
    """The records of one partition that are synced and not in the table."""

    topic: str
    partition: int
    bytes: int
    oldest_seconds: float
    """When the oldest of it was appended, on the monotonic clock."""
    flush_ms: int
    flush_bytes: int
    pins_oldest_segment: bool = False
    hidden: bool = False
    """Whether nobody sees it before it is in the table (the topic's `acks`)."""
    awaited: bool = False
    """Somebody waits for it to be in the table (`acks=table` of a request)."""
    pace: Pace = UNHURRIED
    held_seconds: float = 0.0
    """Until when its topic's budget of files keeps it back, on the monotonic clock (`held`)."""


def held_until(pace: Pace, nbytes: int, oldest_seconds: float, flush_ms: int) -> float:
    """Tells until when the topic's budget of files keeps back what is small and what nobody waits for."""
    if nbytes >= pace.early_bytes:
        return 0.0
    return min(pace.ready_seconds, oldest_seconds + max(flush_ms, FLUSH_WAIT_MS_MAX) / 1000)


@lru_cache(256)
def linger_seconds(flush_ms: int, active_partitions: int) -> float:
    """How long a partition with little data waits."""
    base = flush_ms / 1000
    share = active_partitions / FILES_PER_SECOND_BUDGET
    # Above the base, the half of it more that taking others along (`due`) takes off again.
    return base if share <= base else min(share + base / 2, max(base, LINGER_SECONDS_MAX))


def active_partitions(loads: Sequence[Load], now_seconds: float) -> int:
    """Counts the partitions that compete for the files of all topics: those that their own topics do not keep back."""
    return sum(load.held_seconds <= now_seconds for load in loads)


def due(loads: Sequence[Load], now_seconds: float) -> list[Load]:
    """The partitions to flush now, the one that pins the oldest segment first, then by age.

    One that has waited long enough takes along those of its topic that would within `flush_ms`: each flush is a commit,
    and many partitions whose times differ a little would make as many.
    """
    active = active_partitions(loads, now_seconds)
    chosen: list[Load] = []
    others: list[Load] = []
    aged: set[str] = set()
    let_go: set[str] = set()
    for load in loads:
        if now_seconds < due_at(load, active):
            others.append(load)
            continue
        chosen.append(load)
        if now_seconds >= _waited_at(load, active):
            aged.add(load.topic)
            if load.held_seconds:
                let_go.add(load.topic)
    if aged:
        chosen += [load for load in others if load.topic in aged and _soon(load, active, now_seconds, let_go)]
    return sorted(chosen, key=lambda load: (not load.pins_oldest_segment, load.oldest_seconds))


def _waited_at(load: Load, active_partitions: int) -> float:
    """The time at which it has waited long enough for the files of all topics, and for those of its own."""
    lingered_at = load.oldest_seconds + linger_seconds(load.flush_ms, active_partitions)
    return lingered_at if lingered_at > load.held_seconds else load.held_seconds


def _soon(load: Load, active_partitions: int, now_seconds: float, let_go: Collection[str]) -> bool:
    if load.held_seconds > now_seconds and load.topic not in let_go:
        # What keeps to the budget is not taken along by what does not.
        return False
    return load.oldest_seconds + linger_seconds(load.flush_ms, active_partitions) <= now_seconds + load.flush_ms / 1000


def due_at(load: Load, active_partitions: int) -> float:
    """When `load` is to be flushed, on the monotonic clock."""
    base_at = load.oldest_seconds + load.flush_ms / 1000
    if load.bytes >= load.flush_bytes or load.pins_oldest_segment:
        return load.oldest_seconds
    if load.awaited:
        # As soon as the budget of files lets it, and never later than others.
        return min(
            base_at, load.oldest_seconds + max(load.pace.awaited_seconds, active_partitions / FILES_PER_SECOND_BUDGET)
        )
    if load.hidden or load.bytes >= load.pace.early_bytes:
        return base_at
    return _waited_at(load, active_partitions)
