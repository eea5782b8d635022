"""Where a partition begins and ends."""

from typing import NamedTuple

OFFSET_JUMP = 1 << 32
"""A successor that cannot know what its predecessor gave out starts at the next multiple of this."""


class Bounds(NamedTuple):
    """Offsets of one partition at one moment; the last two are exclusive."""

    log_start_offset: int
    table_offset: int
    high_watermark: int
