"""What the objects of a journal are still needed for: records in no table yet, claims that are beside none. Pure."""

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from siltlog.ingest.wal.codec import Frame, FrameKind

OBJECTS_MAX = 300
"""What pins more objects than this is flushed first: so many a successor reads in some seconds."""

Partition = tuple[bytes, int]
TableOffsets = Callable[[bytes, int], int]
"""(topic id, partition) -> the table offset; a very high one where the topic is gone."""
ClaimsStored = Callable[[bytes], bool]
"""Topic id -> whether all claims of its producers are beside its table."""


@dataclass(slots=True)
class _Pin:
    number: int
    ends: dict[Partition, int] = field(default_factory=dict)
    claims: set[bytes] = field(default_factory=set)


class Pins:
    def __init__(self) -> None:
        self._pins: deque[_Pin] = deque()

    def __len__(self) -> int:
        return len(self._pins)

    def add(self, number: int, frames: Iterable[Frame]) -> None:
        """Notes what object `number` holds; numbers rise. A CONTROL frame names its topic."""
        pin = _Pin(number)
        for frame in frames:
            if frame.kind is FrameKind.RECORDS:
                key = (frame.topic_id, frame.partition)
                pin.ends[key] = max(pin.ends.get(key, 0), frame.first_offset + frame.count)
            else:
                pin.claims.add(frame.topic_id)
        self._pins.append(pin)

    def flushed_below(self, next_number: int, table_offset: TableOffsets, claims_stored: ClaimsStored) -> int:
        """The lowest number that is still needed, `next_number` where none is."""
        while self._pins and not self._needed(self._pins[0], table_offset, claims_stored):
            self._pins.popleft()
        return self._pins[0].number if self._pins else next_number

    def _needed(self, pin: _Pin, table_offset: TableOffsets, claims_stored: ClaimsStored) -> bool:
        if any(end > table_offset(*partition) for partition, end in pin.ends.items()):
            return True
        return not all(claims_stored(topic_id) for topic_id in pin.claims)

    def pressing(self, table_offset: TableOffsets) -> set[Partition]:
        """The partitions that keep the oldest object, where there are more than OBJECTS_MAX."""
        if len(self._pins) <= OBJECTS_MAX:
            return set()
        oldest = self._pins[0]
        return {partition for partition, end in oldest.ends.items() if end > table_offset(*partition)}
