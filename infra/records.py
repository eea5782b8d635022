"""Values that all rooms share: a partition's bounds, offsets counted from its end, a record to publish."""

from typing import NamedTuple

OFFSET_JUMP = 1 << 32
"""A successor that cannot know what its predecessor gave out starts at the next multiple of this."""


class Bounds(NamedTuple):
    """Offsets of one partition at one moment; the last two are exclusive."""

    log_start_offset: int
    table_offset: int
    high_watermark: int


def counted(offset: int, end: int) -> int:
    """The offset itself, or where it is negative so many before the end of its partition."""
    return offset if offset >= 0 else max(end + offset, 0)


class NewRecord(NamedTuple):
    """`headers` in order, duplicates kept. `timestamp_us` None: the time of the append."""

    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    timestamp_us: int | None = None
