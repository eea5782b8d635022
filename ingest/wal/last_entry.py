"""Tells what stands where a log ends: nothing, a torn group commit, or one that was whole and was damaged since.

A power cut tears the group that is under way: some of its sectors are never written. It was not acknowledged. But the
last group before a kill may have been, and nothing in the log says so yet. A sum that is right again once one bit is
flipped back tells the two apart: what was torn looks like that in one case of some 30,000. Pure.
"""

from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from siltlog.infra.store.checksum import crc32c
from siltlog.ingest.wal.codec import (
    EntryHead,
    Frame,
    FrameKind,
    Position,
    decode_frames,
    decode_head,
    entry_begins,
    flipped_bit,
    repaired_head,
)

ONE_BIT_BYTES_MAX = 16 * 1024
"""The most bytes that are mended: in more it is too likely that some flipped bit makes any sum right."""


@dataclass(frozen=True)
class LastEntry:
    """A group commit at the end of a log that is not as it was meant to be written."""

    path: Path
    position: int
    frames: tuple[Frame, ...]
    """Its records frames, payloads as they are; none when its header or table cannot be read."""
    readable: bool
    """Whether header and table are sound, or can be made so."""
    one_bit: bool
    """All of it was written: a single bit is wrong."""


def last_entry(path: Path, data: pa.Buffer, start: Position, seed: int) -> LastEntry | None:
    """Describes the unsound entry at `start` in the file `path`; None when no entry was begun there."""
    head = decode_head(data, start, seed)
    repaired = None if head is not None else repaired_head(data, start, seed)
    readable = head or repaired
    if readable is None:
        begun = entry_begins(data, start)
        return LastEntry(path, start.position, (), readable=False, one_bit=False) if begun else None
    wrong = _wrong_payloads(data, start.segment, readable)
    one_bit = not wrong if repaired is not None else len(wrong) == 1 and _is_one_bit(*wrong[0])
    records = tuple(f for f, _ in decode_frames(data, start.segment, readable) if f.kind == FrameKind.RECORDS)
    return LastEntry(path, start.position, records, readable=True, one_bit=one_bit)


def _wrong_payloads(data: pa.Buffer, segment: int, head: EntryHead) -> list[tuple[pa.Buffer, int]]:
    """Each with what its sum is too much by."""
    found = []
    for frame, location in decode_frames(data, segment, head):
        difference = crc32c(frame.payload_whole) ^ location.crc
        if difference:
            found.append((frame.payload_whole, difference))
    return found


def _is_one_bit(payload: pa.Buffer, difference: int) -> bool:
    return payload.size <= ONE_BIT_BYTES_MAX and flipped_bit(payload.size, difference) is not None
