"""Values that all rooms share: bounds of a partition, offsets and lags from its end, new records, stored offsets."""

from collections.abc import Iterable
from typing import NamedTuple

import msgspec

OFFSET_JUMP = 1 << 32
"""A successor that cannot know what its predecessor gave out starts at the next multiple of this."""
NO_LEADER_EPOCH = -1


class Bounds(NamedTuple):
    """Offsets of one partition at one moment; the last two are exclusive."""

    log_start_offset: int
    table_offset: int
    high_watermark: int


class Lag(msgspec.Struct, frozen=True, gc=False):
    """How far behind a reader or a group is.

    `records` counts offsets from the position to the end, but for those that were jumped; fewer records may be there,
    because compaction leaves gaps.
    `seconds` is the age of the next record to read; 0 when there is none.
    """

    records: int
    seconds: float


def records_between(start: int, end: int, gaps: Iterable[tuple[int, int]]) -> int:
    """Counts the offsets of [start, end) that are in none of the `gaps` [from, to), which were jumped.

    There may be fewer records, where compaction removed some.
    """
    jumped = sum(max(min(end, after) - max(start, first), 0) for first, after in gaps)
    return max(end - start, 0) - jumped


def counted(offset: int, end: int) -> int:
    """The offset itself, or where it is negative so many before the end of its partition."""
    return offset if offset >= 0 else max(end + offset, 0)


class NewRecord(NamedTuple):
    """`headers` in order, duplicates kept. `timestamp_us` None: the time of the append."""

    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    timestamp_us: int | None = None


class SentBatch(msgspec.Struct, frozen=True, gc=False):
    """A record batch of Kafka's protocol as its producer sent it, but for its offset: readers of that protocol get it
    as it is."""

    first_offset: int
    num_rows: int
    nbytes: int
    """About what the records take, however they are read."""
    data: bytes
    """Not compressed, and with the times that are stored."""

    @property
    def next_offset(self) -> int:
        return self.first_offset + self.num_rows


class StoredOffset(msgspec.Struct, frozen=True):
    """The value of a record of `_offsets`: where a group goes on in one partition; members may be added.

    The record's key is `names.offset_key`. Of two for the same key the higher version wins.
    """

    topic: str
    offset: int
    """The next offset to read."""
    version: int
    metadata: str
    committed_ms: int
    partitions_seen: int = 0
    """How many partitions the topic had when the group first read it; 0 where it has not yet."""
    leader_epoch: int = NO_LEADER_EPOCH
    """The leader epoch that a client of Kafka committed with it."""

    def encode(self) -> bytes:
        """Gives the JSON that is stored."""
        return _encode(self)

    @classmethod
    def decode(cls, value: bytes) -> "StoredOffset":
        """Raises msgspec.MsgspecError."""
        return _decode(value)


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(StoredOffset).decode
