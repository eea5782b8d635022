"""One file of the log while the process runs, and how a file becomes a segment.

A file only ever gets a segment's name once everything that makes it one is synced: the zeros, the header block, and for
the first segment of a run its first entry too. So a segment with a damaged header block is damaged, not half-made.
"""

import contextlib
import uuid
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa

from siltlog.infra import names
from siltlog.infra.clock import Clock
from siltlog.ingest.wal.codec import (
    HEADER_BYTES,
    MARKER_BYTES,
    Frame,
    FrameKind,
    Location,
    Position,
    encode_entry,
    encode_header,
)
from siltlog.ingest.wal.disk import BLOCK_BYTES, Disk

# Room that is kept in every segment for the entry that seals it, and for one idle marker more than is accounted for.
SEGMENT_RESERVE_BYTES = 2 * MARKER_BYTES
Partition = tuple[bytes, int]


def segment_room(size_bytes: int) -> int:
    """The bytes that entries may take in a file of `size_bytes`."""
    return size_bytes - HEADER_BYTES - SEGMENT_RESERVE_BYTES


def file_bytes_for(room_bytes: int, segment_bytes: int) -> int:
    """The size of a file in which entries may take `room_bytes`: `segment_bytes`, as usual, or the blocks it takes."""
    needed = HEADER_BYTES + SEGMENT_RESERVE_BYTES + room_bytes
    return max(segment_bytes, needed + -needed % BLOCK_BYTES)


class Segment:
    """A file with an open descriptor. `ends`: the offset after the last record of each (topic id, partition) in it."""

    def __init__(self, path: Path, number: int, fd: int, size_bytes: int, seed: int, *, mapped: bool = False) -> None:
        self.path = path
        self.number = number
        self.fd = fd
        self.size_bytes = size_bytes
        self.seed = seed
        self.mapped = mapped
        """Views of this file may live on, so it must be deleted, never written again."""
        self.ends: dict[Partition, int] = {}
        self.readers = 0

    def note(self, frames: Sequence[Frame]) -> None:
        ends = self.ends
        for frame in frames:
            if frame.kind == FrameKind.RECORDS:
                key = (frame.topic_id, frame.partition)
                end = frame.first_offset + frame.count
                if ends.get(key, -1) < end:
                    ends[key] = end


class SegmentFiles:
    """Makes segments out of new and used files in one folder. Not thread-safe; one thread at a time uses it."""

    def __init__(self, directory: Path, disk: Disk, *, segment_bytes: int, cluster_id: str, clock: Clock) -> None:
        self.directory = directory
        self.disk = disk
        self.segment_bytes = segment_bytes
        self._cluster_id = cluster_id
        self._clock = clock
        self.spares: list[Path] = []

    def adopt(self, empty: Sequence[Path]) -> None:
        """Takes up what an earlier run left: its spare files, and its segments that hold nothing, `empty`.

        Files of another size are deleted.
        """
        # The newest first: a stop in between must not leave a gap among the numbers.
        for path in sorted(empty, reverse=True):
            self.disk.move(path, self._spare_path())
        for path in sorted(self.directory.glob(f"*{names.WAL_SPARE_SUFFIX}")):
            if path.stat().st_size == self.segment_bytes:
                self.spares.append(path)
            else:
                self.disk.remove(path)

    def put_aside(self, path: Path) -> None:
        """Takes a segment's name from it; the file becomes a spare. Durable on return."""
        spare = self._spare_path()
        self.disk.move(path, spare)
        self.spares.append(spare)

    def discard_spares(self) -> None:
        while self.spares:
            self.disk.remove(self.spares.pop())

    def make(
        self,
        number: int,
        first: Sequence[Frame] = (),
        *,
        synced: Position | None = None,
        size_bytes: int | None = None,
    ) -> tuple[Segment, int, list[Location]]:
        """Segment `number`, empty or with one entry of the frames `first`: synced and named so on return.

        Over a segment that has this number already. Also returns where its entries end and where the frames lie.
        Raises OSError; then no name has changed, and no file of another size than usual is left.
        """
        size = size_bytes or self.segment_bytes
        if size == self.segment_bytes and self.spares:
            source = self.spares[-1]
            fd = self.disk.open(source)
        else:
            source = self._spare_path()
            fd = self.disk.create(source, size)
            if size == self.segment_bytes:
                self.spares.append(source)
        try:
            header, seed = encode_header(
                segment=number,
                size_bytes=size,
                created_us=self._clock.now_us(),
                cluster_id=self._cluster_id,
                nonce=uuid.uuid4().bytes,
            )
            buffers: list[pa.Buffer | bytes] = [header]
            end = HEADER_BYTES
            locations: list[Location] = []
            if first:
                start = Position(number, HEADER_BYTES)
                entry, length, locations = encode_entry(first, start=start, seed=seed, synced=synced or start)
                buffers += entry
                end += length
            self.disk.write(fd, buffers, 0)
            self.disk.sync(fd)
            path = self.directory / names.segment_file(number)
            self.disk.move(source, path)
        except BaseException:
            self.disk.close(fd)
            if source not in self.spares:
                # Where even that fails, the next start deletes it.
                with contextlib.suppress(OSError):
                    self.disk.remove(source)
            raise
        if source in self.spares:
            self.spares.remove(source)
        segment = Segment(path, number, fd, size, seed)
        segment.note(first)
        return segment, end, locations

    def _spare_path(self) -> Path:
        return self.directory / f"{uuid.uuid4().hex}{names.WAL_SPARE_SUFFIX}"
