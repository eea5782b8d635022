"""Where a partition begins and ends."""

from typing import NamedTuple


class Bounds(NamedTuple):
    """Offsets of one partition at one moment; the last two are exclusive."""

    log_start_offset: int
    table_offset: int
    high_watermark: int
