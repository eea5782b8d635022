"""The segments that hold something still: reading from them, and giving them up once tables hold it."""

import threading
from collections.abc import Callable, Mapping, Sequence

import pyarrow as pa

from siltlog.infra.errors import problem
from siltlog.infra.store.checksum import crc32c
from siltlog.ingest.wal.codec import Frame, Location
from siltlog.ingest.wal.disk import Disk
from siltlog.ingest.wal.segment import Partition, Segment

TableOffsets = Callable[[bytes, int], int] | Mapping[Partition, int]


class SegmentGone(LookupError):
    """The segment was recycled: what it held is in tables, to be read there."""


class LiveSegments:
    """Thread-safe. Numbers have no gaps: only the oldest is ever given up."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._lock = threading.Lock()
        self._by_number: dict[int, Segment] = {}

    def add(self, segment: Segment) -> None:
        with self._lock:
            self._by_number[segment.number] = segment

    def note(self, segment: Segment, frames: Sequence[Frame]) -> None:
        """Counts in what was written to it."""
        with self._lock:
            segment.note(frames)

    def __len__(self) -> int:
        return len(self._by_number)

    def hold(self, number: int) -> bool:
        """Keeps segment `number` until `release`; False when it is gone already."""
        with self._lock:
            segment = self._by_number.get(number)
            if segment is not None:
                segment.readers += 1
            return segment is not None

    def release(self, number: int) -> None:
        with self._lock:
            segment = self._by_number.get(number)
            if segment is not None:
                segment.readers -= 1

    def read(self, location: Location) -> pa.Buffer:
        """The payload at `location`. Raises SegmentGone, CorruptData."""
        if not self.hold(location.segment):
            raise SegmentGone(f"segment {location.segment} of the write-ahead log is gone")
        try:
            segment = self._by_number[location.segment]
            data = self._disk.read(segment.fd, location.position, location.length)
        finally:
            self.release(location.segment)
        if len(data) != location.length or crc32c(data) != location.crc:
            raise problem(
                "corrupt_data",
                f"the write-ahead log is damaged: {segment.path}, {location.length} bytes at position "
                f"{location.position} fail their checksum. Stop the server, put the file back from a copy of the disk",
                file=str(segment.path),
                position=location.position,
            )
        return pa.py_buffer(data)

    def give_up(self, below: int, table_offsets: TableOffsets) -> list[Segment]:
        """Takes out the oldest segments, of those numbered below `below`, that nobody needs any more."""
        freed: list[Segment] = []
        with self._lock:
            for number in sorted(self._by_number):
                segment = self._by_number[number]
                if number >= below or segment.readers or _pins(segment, table_offsets):
                    break
                freed.append(self._by_number.pop(number))
        return freed

    def can_give_up(self, below: int, table_offsets: TableOffsets) -> bool:
        """Whether `give_up` would take out any."""
        with self._lock:
            oldest = min(self._by_number, default=below)
            if oldest >= below:
                return False
            segment = self._by_number[oldest]
            return not segment.readers and not _pins(segment, table_offsets)

    def unpin(self, key: Partition, before_segment: int) -> None:
        """A partition's records in segments below `before_segment` need no longer be kept."""
        with self._lock:
            for number, segment in self._by_number.items():
                if number < before_segment:
                    segment.ends.pop(key, None)

    def pinning(self, below: int, table_offsets: TableOffsets | None) -> list[Partition]:
        """Lists the (topic id, partition) that keep the oldest segment, when its number is below `below`."""
        with self._lock:
            oldest = min(self._by_number, default=below)
            if oldest >= below:
                return []
            segment = self._by_number[oldest]
            return list(segment.ends) if table_offsets is None else _pins(segment, table_offsets)

    def has_below(self, number: int) -> bool:
        with self._lock:
            return any(each < number for each in self._by_number)

    def close(self) -> None:
        with self._lock:
            for segment in self._by_number.values():
                self._disk.close(segment.fd)
            self._by_number.clear()


def _pins(segment: Segment, table_offsets: TableOffsets) -> list[Partition]:
    if isinstance(table_offsets, Mapping):
        return [key for key, end in segment.ends.items() if end > table_offsets.get(key, -1)]
    return [key for key, end in segment.ends.items() if end > table_offsets(*key)]
