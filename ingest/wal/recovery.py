"""The contents of a log as a start finds it, and what a new run must do before it may append.

What is good above the last recorded synced position may be acknowledged, but perhaps only the page cache has it. A new
run copies it into a segment of its own and syncs that, before anything else is done with it.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa

from siltlog.ingest.wal.codec import (
    ENTRY_BYTES,
    FRAME_BYTES,
    HEADER_BYTES,
    Frame,
    FrameKind,
    Location,
    Position,
    aligned,
    decode_frames,
    decode_head,
)
from siltlog.ingest.wal.last_entry import LastEntry
from siltlog.ingest.wal.segment import Partition, segment_room

# A last segment with no more records than this part of its room is written anew at start rather than followed by one
# more: a server that keeps dying must not use up the log's budget with nearly empty segments.
REWRITE_ROOM_PART = 4


@dataclass
class FoundSegment:
    """A segment file as it was found. `end` is where its sound entries end; what lies behind counts for nothing."""

    number: int
    path: Path
    size_bytes: int
    seed: int
    data: pa.Buffer
    """The file, mapped; the mapping lives as long as a view of it."""
    first_synced: Position | None = None
    last_synced: Position | None = None
    entries: int = 0
    end: int = HEADER_BYTES
    frames: int = 0
    """RECORDS and CONTROL frames."""
    records_bytes: int = 0
    ends: dict[Partition, int] = field(default_factory=dict)
    has_state: bool = False

    def contents(self) -> Iterator[tuple[Frame, Location]]:
        position = HEADER_BYTES
        while position < self.end:
            head = decode_head(self.data, Position(self.number, position), self.seed)
            assert head is not None
            yield from decode_frames(self.data, self.number, head)
            position = head.end


@dataclass
class Scan:
    """A whole log. `segments` hold entries, oldest first; `empty` are prepared or half-made files above them."""

    segments: list[FoundSegment]
    empty: list[Path]
    notes: list[str]
    cuts: list[LastEntry]
    """Entries found behind the last sound ones, which are cut off."""

    @property
    def start(self) -> Position:
        """The position at which the new run's first segment takes up: everything from here on is copied into it.

        Its number is one more than this position's segment, and it replaces the file that has that number. When the
        last segment holds little, this is its beginning, so that starting again and again does not use up segments.
        """
        if not self.segments:
            return Position(0, 0)
        last = self.segments[-1]
        assert last.first_synced is not None and last.last_synced is not None
        little = last.records_bytes <= segment_room(last.size_bytes) // REWRITE_ROOM_PART
        if little or last.last_synced.segment != last.number or last.last_synced.position == HEADER_BYTES:
            # The very first segment of a log follows none: its first entry names its own start.
            before = last.first_synced
            return before if before.segment < last.number else Position(last.number - 1, 0)
        return last.last_synced

    def kept(self) -> list[FoundSegment]:
        """The segments that stay as they are, the last of them perhaps cut."""
        return [segment for segment in self.segments if segment.number <= self.start.segment]

    def frames(self) -> Iterator[tuple[Frame, Location]]:
        """Every RECORDS and CONTROL frame, in log order. Payloads are views of the mapped files.

        The location of records that will be copied is the one they have once that is done.
        """
        start = self.start
        copies = _copy_positions(self._frames_from(start))
        for frame, location in self._all_frames():
            if frame.kind in (FrameKind.RECORDS, FrameKind.CONTROL):
                copied = frame.kind == FrameKind.RECORDS and _above(location, start)
                place = location._replace(segment=start.segment + 1, position=next(copies)) if copied else location
                yield frame, place

    def frames_to_copy(self) -> list[Frame]:
        """The RECORDS frames from `start` on. CONTROL frames are not copied: the next state has what they said."""
        return self._frames_from(self.start)

    def state(self) -> tuple[bytes | None, int]:
        """The newest state, if there is one, and the number of `frames()` that come before it."""
        for index, segment in reversed(list(enumerate(self.segments))):
            before = sum(earlier.frames for earlier in self.segments[:index])
            newest: tuple[bytes, int] | None = None
            for frame, _ in segment.contents() if segment.has_state else ():
                if frame.kind == FrameKind.STATE:
                    newest = (frame.payload_whole.to_pybytes(), before)
                before += frame.kind in (FrameKind.RECORDS, FrameKind.CONTROL)
            if newest is not None:
                return newest
        return None, 0

    def _all_frames(self) -> Iterator[tuple[Frame, Location]]:
        for segment in self.segments:
            yield from segment.contents()

    def _frames_from(self, start: Position) -> list[Frame]:
        return [
            frame
            for segment in self.segments[-1:]
            for frame, location in segment.contents()
            if frame.kind == FrameKind.RECORDS and _above(location, start)
        ]


@dataclass(frozen=True)
class Recovery:
    """The contents of a log. `frames` can be gone through again and again; it keeps nothing in memory.

    Payloads are views of mapped files, and stay valid as long as they are referred to. Each frame comes with the
    location it can be read at once `Wal.start` has returned (that of a CONTROL frame is of no use then).
    """

    state: bytes | None
    """The newest state; None in an empty log."""
    frames_before_state: int
    """How many of `frames` that state already knows of."""
    notes: list[str]
    cuts: list[LastEntry]
    """Group commits at the end of the log that are not whole: cut off."""
    _scan: Scan

    @property
    def frames(self) -> Iterator[tuple[Frame, Location]]:
        """RECORDS and CONTROL frames in log order."""
        return self._scan.frames()


def _above(location: Location, start: Position) -> bool:
    return (location.segment, location.position) >= start


def _copy_positions(frames: Sequence[Frame]) -> Iterator[int]:
    """Yields where payloads of copied frames will lie: in the first entry of a segment, with a state behind them."""
    position = HEADER_BYTES + ENTRY_BYTES + FRAME_BYTES * (len(frames) + 1)
    for frame in frames:
        yield position
        position += aligned(frame.payload_bytes)
