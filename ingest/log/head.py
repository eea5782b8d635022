"""The head of a partition: its newest records in memory, and the WAL frames of those that had to leave it.

Small chunks are joined, and the places of frames are kept as plain numbers: both save memory.
"""

from array import array
from bisect import bisect_right
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import overload

import numpy as np
import pyarrow as pa

from siltlog.infra.records import SentBatch
from siltlog.ingest.records.batch import LogBatch, concat
from siltlog.ingest.wal import Location, Wal

COALESCE_CHUNKS = 32
COALESCE_LEVELS = 2
COALESCE_BYTES_MAX = 512 * 1024
CHUNK_OVERHEAD_BYTES = 2_500
"""One chunk costs so much beside its Arrow buffers; counted, so that a head of tiny chunks stays within its budget."""
RUN_BYTES = 230
"""One of a batch's runs takes so much, with the id and the sequence it names."""
SENT_BYTES_MAX = 32 * 1024
"""So much is kept of the newest batches as they were sent: what a reader that keeps up has not read. None are kept once
so much has come since somebody asked for them."""
SENT_OVERHEAD_BYTES = 150
"""One of them takes so much beside its bytes."""
FRAME_BYTES = 48
"""One frame of a joined chunk takes so much: its place, and when it was appended."""
_NUMBERS = 1 + len(Location._fields)
_SEGMENT, _LENGTH = (Location._fields.index(name) for name in ("segment", "length"))


class Frames(Sequence[tuple[int, Location]]):
    """(first offset, place) of frames, oldest first, in 40 bytes each; a tuple of tuples takes ten times as much."""

    __slots__ = ("_numbers",)

    def __init__(self, frames: Iterable[tuple[int, Location]] = ()) -> None:
        self._numbers = array("q")
        for first_offset, place in frames:
            self.add(first_offset, place)

    def add(self, first_offset: int, place: Location) -> None:
        self._numbers.append(first_offset)
        self._numbers.extend(place)

    def join(self, others: Sequence[tuple[int, Location]]) -> None:
        """Puts `others` after these."""
        if isinstance(others, Frames):
            self._numbers.extend(others._numbers)
        else:
            for first_offset, place in others:
                self.add(first_offset, place)

    def places(self) -> tuple[set[int], int]:
        """The segments that they lie in, and their bytes: by columns, as there may be hundreds of thousands."""
        numbers = np.array(self._numbers, np.int64).reshape(-1, _NUMBERS)
        return set(np.unique(numbers[:, 1 + _SEGMENT]).tolist()), int(numbers[:, 1 + _LENGTH].sum())

    def __len__(self) -> int:
        return len(self._numbers) // _NUMBERS

    def __iter__(self) -> Iterator[tuple[int, Location]]:
        numbers = self._numbers
        for at in range(0, len(numbers), _NUMBERS):
            yield numbers[at], Location(*numbers[at + 1 : at + _NUMBERS])

    @overload
    def __getitem__(self, index: int) -> tuple[int, Location]: ...
    @overload
    def __getitem__(self, index: slice) -> "Frames": ...
    def __getitem__(self, index: int | slice) -> "tuple[int, Location] | Frames":
        if isinstance(index, slice):
            return Frames(self[at] for at in range(*index.indices(len(self))))
        at = range(len(self))[index] * _NUMBERS
        return self._numbers[at], Location(*self._numbers[at + 1 : at + _NUMBERS])


@dataclass(slots=True)
class Chunk:
    """Records [first_offset, next_offset); `batch` is None once they left the memory, `frames` says where they are."""

    first_offset: int
    next_offset: int
    batch: LogBatch | None
    frames: Sequence[tuple[int, Location]]
    nbytes: int
    """The bytes it takes in memory; without a batch, in the WAL."""
    times: Sequence[float]
    """When each of `frames` was appended."""
    level: int = 0

    def places(self) -> Iterator[tuple[int, int, Location]]:
        """Yields (first offset, offset after the last, place) of its frames."""
        ends = [first_offset for first_offset, _ in self.frames[1:]] + [self.next_offset]
        for (first_offset, place), end in zip(self.frames, ends, strict=True):
            yield first_offset, end, place


class Head:
    """Contiguous chunks of one partition, oldest first. Everything unflushed is here, in memory or by its frames."""

    def __init__(self, offset: int) -> None:
        self.chunks: deque[Chunk] = deque()
        self._end = offset
        self._table_offset = offset
        self.resident_bytes = 0
        self.unflushed_bytes = 0
        self.oldest_unflushed_seconds: float | None = None
        """When the oldest record above the table offset was appended; None when there is none."""
        self._appended_since_merge = 0
        self._sent: deque[SentBatch] = deque()
        self._sent_bytes = 0
        self._unasked_bytes = SENT_BYTES_MAX
        """What came since somebody asked for what is kept as it was sent."""

    @property
    def start(self) -> int:
        """The lowest offset that the head covers; its end when it is empty."""
        return self.chunks[0].first_offset if self.chunks else self._end

    @property
    def end(self) -> int:
        return self._end

    def append(self, batch: LogBatch, frame: Location, now_seconds: float) -> None:
        nbytes = batch.nbytes + CHUNK_OVERHEAD_BYTES + RUN_BYTES * len(batch.runs)
        frames = ((batch.first_offset, frame),)
        chunk = Chunk(batch.first_offset, batch.next_offset, batch, frames, nbytes, (now_seconds,))
        self.chunks.append(chunk)
        self._end = batch.next_offset
        self.resident_bytes += nbytes
        self.unflushed_bytes += nbytes
        if self.oldest_unflushed_seconds is None:
            self.oldest_unflushed_seconds = now_seconds
        self._coalesce()

    @property
    def keeps_sent(self) -> bool:
        """Whether batches are kept as they were sent."""
        return self._unasked_bytes < SENT_BYTES_MAX

    def keep(self, sent: SentBatch) -> None:
        """Keeps a batch of the newest records as it was sent, too; older ones go for it."""
        nbytes = len(sent.data) + SENT_OVERHEAD_BYTES
        self._unasked_bytes += nbytes
        if not self.keeps_sent:
            self._drop_sent()
            return
        self._sent.append(sent)
        self._count_sent(nbytes)
        while self._sent_bytes > SENT_BYTES_MAX:
            self._count_sent(-len(self._sent.popleft().data) - SENT_OVERHEAD_BYTES)

    def _drop_sent(self) -> None:
        self._sent.clear()
        self._count_sent(-self._sent_bytes)

    def _count_sent(self, nbytes: int) -> None:
        self._sent_bytes += nbytes
        self.resident_bytes += nbytes

    def sent(self, offset: int, end: int) -> list[SentBatch]:
        """The batches that are kept as they were sent, contiguous from `offset`, below `end`.

        From now on such are kept, unless who asks is behind them.
        """
        if offset < (self._sent[0].first_offset if self._sent else self.start):
            return []
        self._unasked_bytes = 0
        found: list[SentBatch] = []
        for each in reversed(self._sent):
            if each.first_offset < offset:
                break
            if each.next_offset <= end:
                found.append(each)
        found.reverse()
        for count, each in enumerate(found):
            if each.first_offset != offset:
                return found[:count]
            offset = each.next_offset
        return found

    def restore(self, first_offset: int, next_offset: int, frame: Location, now_seconds: float) -> None:
        """Takes over a recovered frame without reading its records."""
        last = self.chunks[-1] if self.chunks else None
        if (
            last is not None
            and last.batch is None
            and last.next_offset == first_offset
            and last.nbytes + frame.length <= COALESCE_BYTES_MAX
            and isinstance(last.frames, Frames)
            and isinstance(last.times, array)
        ):
            last.frames.add(first_offset, frame)
            last.times.append(now_seconds)
            last.next_offset = next_offset
            last.nbytes += frame.length
        else:
            frames = Frames(((first_offset, frame),))
            self.chunks.append(Chunk(first_offset, next_offset, None, frames, frame.length, array("d", (now_seconds,))))
        self._end = next_offset
        self.unflushed_bytes += frame.length
        self.oldest_unflushed_seconds = now_seconds

    def flushed(self, table_offset: int) -> None:
        """The table holds everything below `table_offset`; what is resident stays to serve tailing readers."""
        self._table_offset = table_offset
        while self.chunks and self.chunks[0].batch is None and self.chunks[0].next_offset <= table_offset:
            self.chunks.popleft()
        self.unflushed_bytes = 0
        self.oldest_unflushed_seconds = None
        for chunk in reversed(self.chunks):
            if chunk.next_offset <= table_offset:
                if not chunk.frames:
                    return
                self._settle(chunk)
                continue
            if chunk.first_offset < table_offset:
                # Joined while a flush was under way: what that flushed may be recycled from now on.
                chunk.frames = Frames(_frames_above(chunk, table_offset))
                chunk.times = chunk.times[-len(chunk.frames) :]
                _begin_with_frames(chunk)
            self.unflushed_bytes += chunk.nbytes
            self.oldest_unflushed_seconds = chunk.times[0]

    def evict(self, bytes_wanted: int) -> int:
        """Drops the oldest resident records until `bytes_wanted` are free; how many bytes became free."""
        freed = self._sent_bytes
        self._drop_sent()
        for chunk in list(self.chunks):
            if freed >= bytes_wanted:
                break
            if chunk.batch is None:
                continue
            freed += chunk.nbytes
            self.resident_bytes -= chunk.nbytes
            chunk.batch = None
            if chunk.next_offset <= self._table_offset:
                # Nothing unflushed or resident lies before it: chunks leave the memory oldest first.
                self.chunks.popleft()
            else:
                _begin_with_frames(chunk)
        return freed

    def unflushed(self) -> tuple[set[int], int]:
        """The segments of the WAL that hold records above the table offset, and the bytes of their frames there."""
        segments: set[int] = set()
        nbytes = 0
        for chunk in reversed(self.chunks):
            if chunk.next_offset <= self._table_offset:
                break
            frames = chunk.frames if isinstance(chunk.frames, Frames) else Frames(chunk.frames)
            found, found_bytes = frames.places()
            segments |= found
            nbytes += found_bytes
        return segments, nbytes

    def between(self, offset: int, end: int) -> Iterator[Chunk]:
        """The chunks that hold records in [offset, end), oldest first."""
        chunks = list(self.chunks)
        at = bisect_right(chunks, offset, key=lambda chunk: chunk.first_offset) - 1
        for chunk in chunks[max(at, 0) :]:
            if chunk.first_offset >= end:
                return
            if chunk.next_offset > offset:
                yield chunk

    def _settle(self, chunk: Chunk) -> None:
        """The table has all of the chunk: what only a flush asks for goes."""
        chunk.frames = chunk.times = ()
        if chunk.batch is None:
            return
        nbytes = chunk.nbytes
        if chunk.batch.runs:
            chunk.batch = replace(chunk.batch, runs=())
        chunk.nbytes = _joined_bytes(chunk.batch, 0) if chunk.level else chunk.batch.nbytes + CHUNK_OVERHEAD_BYTES
        self.resident_bytes += chunk.nbytes - nbytes

    def _coalesce(self) -> None:
        self._appended_since_merge += 1
        if self._appended_since_merge < COALESCE_CHUNKS:
            return
        self._appended_since_merge = 0
        for level in range(COALESCE_LEVELS):
            tail = [self.chunks[-1 - i] for i in range(min(COALESCE_CHUNKS, len(self.chunks)))]
            if len(tail) < COALESCE_CHUNKS or any(chunk.level != level or chunk.batch is None for chunk in tail):
                return
            if sum(chunk.nbytes for chunk in tail) > COALESCE_BYTES_MAX:
                return
            tail.reverse()
            merged = _merge(tail)
            for _ in tail:
                self.chunks.pop()
            self.chunks.append(merged)
            self.resident_bytes += merged.nbytes - sum(chunk.nbytes for chunk in tail)
            unflushed = sum(chunk.nbytes for chunk in tail if chunk.next_offset > self._table_offset)
            self.unflushed_bytes += merged.nbytes - unflushed


def _begin_with_frames(chunk: Chunk) -> None:
    """Leaves out records without frames: they are in the table, where readers find them once they left the memory."""
    if chunk.batch is None:
        chunk.first_offset = chunk.frames[0][0]


def _frames_above(chunk: Chunk, table_offset: int) -> Iterator[tuple[int, Location]]:
    return ((first_offset, place) for first_offset, end, place in chunk.places() if end > table_offset)


def _merge(tail: Sequence[Chunk]) -> Chunk:
    batches = [chunk.batch for chunk in tail if chunk.batch is not None]
    # What stays is kept apart from what comes and goes: the allocator of all else rounds up by a third.
    batch = concat(batches, pa.system_memory_pool())
    frames, times = Frames(), array("d")
    for chunk in tail:
        frames.join(chunk.frames)
        times.extend(chunk.times)
    nbytes = _joined_bytes(batch, len(frames))
    return Chunk(tail[0].first_offset, batch.next_offset, batch, frames, nbytes, times, tail[0].level + 1)


def _joined_bytes(batch: LogBatch, frames: int) -> int:
    """The bytes of a chunk whose batch was joined, and so has buffers of its own."""
    buffers: int = batch.columns.get_total_buffer_size()
    return buffers + CHUNK_OVERHEAD_BYTES + RUN_BYTES * len(batch.runs) + FRAME_BYTES * frames


def load(chunk: Chunk, wal: Wal) -> LogBatch:
    """The chunk's records, from memory or from the WAL (blocking). Raises CorruptData where a frame is damaged.

    The caller holds the segments of `chunk.frames`.
    """
    batch = chunk.batch
    if batch is not None:
        return batch
    return concat([LogBatch.from_payload(first_offset, wal.read(frame)) for first_offset, frame in chunk.frames])
