"""Reads a log after a stop of any kind, changes nothing, and refuses what is damaged.

What must hold (only one entry is ever under way, and each records the position known synced when it was written):

- Below a recorded synced position every bit was on disk once. A bad entry there is corruption, and so is one in a
  segment that another follows: the following one's first entry records where it ended.
- Above it, what is bad was torn by a power cut, and never acknowledged: the log is cut there, and it is told what of.
  The last entry before a kill may have been acknowledged all the same, and damaged since: one that is whole but for a
  single bit (`last_entry.py`) is corruption too.
"""

import itertools
from pathlib import Path
from typing import Any

import pyarrow as pa

from siltlog.infra import names
from siltlog.infra.errors import ConfigError, SiltlogError, problem
from siltlog.infra.store.checksum import crc32c
from siltlog.ingest.wal.codec import (
    FORMAT_VERSION,
    FRAME_BYTES,
    HEADER_BYTES,
    EntryHead,
    Frame,
    FrameKind,
    Position,
    SegmentHeader,
    aligned,
    decode_frames,
    decode_head,
    decode_header,
    find_heads,
    has_traces,
)
from siltlog.ingest.wal.last_entry import LastEntry, last_entry
from siltlog.ingest.wal.recovery import FoundSegment, Scan

NAMED_MAX = 10


def scan(directory: Path, cluster_id: str, *, accept_loss: bool = False) -> Scan:
    """Checks every bit that counts of the log in `directory`, one segment at a time, the newest first.

    Raises CorruptData that names file, position, topic id, partition and offsets as far as they are known, and
    ConfigError for a log of another root or a newer version. With `accept_loss` the last entry may be a damaged one.
    """
    notes: list[str] = []
    cuts: list[LastEntry] = []
    segments: list[FoundSegment] = []
    empty: list[Path] = []
    following: EntryHead | None = None
    oldest: FoundSegment | None = None
    numbered = _numbered(directory)
    for number, path in reversed(numbered):
        # Read, not mapped: a disk that cannot give a block back is an error here, and a signal in a mapping.
        data = _read(path)
        header = _header(path, number, data, cluster_id)
        if header is None:
            if number != numbered[-1][0] or has_traces(data, number):
                raise _corrupt(path, 0, "its header block is damaged")
            notes.append(f"{path} has no sound header block and never held anything: it is used anew")
            empty.append(path)
            continue
        oldest = segment = FoundSegment(number, path, header.size_bytes, header.seed, _mapped(path))
        first = _first_head(segment, data)
        if first is None:
            if following is not None:
                raise _corrupt(path, HEADER_BYTES, "its first entry is damaged though segments follow")
            _prove_torn(segment, data, HEADER_BYTES, None, None)
            cuts += _cut(segment, data, HEADER_BYTES, None, accept_loss)
            empty.append(path)
            continue
        cuts += _check_entries(segment, data, following, accept_loss)
        segments.append(segment)
        following = first
    if oldest is not None and not segments:
        raise _corrupt(oldest.path, HEADER_BYTES, "its first entry is damaged, and the oldest segment always has one")
    return Scan(segments[::-1], empty, notes, cuts)


def _numbered(directory: Path) -> list[tuple[int, Path]]:
    """The segment files in order. Raises CorruptData when one is missing between two others."""
    found = sorted((int(path.stem), path) for path in directory.glob(f"*{names.WAL_SUFFIX}") if path.stem.isdecimal())
    for (number, path), (after, _) in itertools.pairwise(found):
        if after != number + 1:
            lost = directory / names.segment_file(number + 1)
            raise problem(
                "corrupt_data",
                f"the write-ahead log lacks {lost}: {path.name} is there and newer ones are. {_way_out(directory)}",
                file=str(lost),
            )
    return found


def _header(path: Path, number: int, data: pa.Buffer, cluster_id: str) -> SegmentHeader | None:
    """The header block of segment `number`, None when it is damaged. Raises as `scan`."""
    header = decode_header(bytes(data[:HEADER_BYTES]))
    if header is None:
        return None
    if header.version > FORMAT_VERSION:
        raise ConfigError(
            f"{path} has format version {header.version}, and this version of siltlog reads up to {FORMAT_VERSION}: "
            "start the newer version again"
        )
    if header.cluster_id != cluster_id:
        raise ConfigError(
            f"the write-ahead log in {path.parent} belongs to another root (cluster id {header.cluster_id}, this "
            f"root's is {cluster_id}): give the data dir back its root (SILT_ROOT), or use another data dir"
        )
    if header.segment != number:
        raise _corrupt(path, 0, f"it is segment {header.segment}, by its header block")
    if data.size < header.size_bytes:
        raise _corrupt(path, data.size, f"only {data.size} of its {header.size_bytes} bytes are left")
    return header


def _mapped(path: Path) -> pa.Buffer:
    with pa.memory_map(str(path)) as source:
        return source.read_buffer(source.size())


def _read(path: Path) -> pa.Buffer:
    try:
        with pa.OSFile(str(path)) as source:
            return source.read_buffer(source.size())
    except PermissionError as error:
        raise ConfigError(f"{path} cannot be read: give this user the right to the data dir") from error
    except OSError as error:
        raise _corrupt(path, 0, f"it cannot be read ({error})") from error


def _first_head(segment: FoundSegment, data: pa.Buffer) -> EntryHead | None:
    """The first entry, payloads checked."""
    head = decode_head(data, Position(segment.number, HEADER_BYTES), segment.seed)
    if head is None or _damaged_frame(segment, data, head) is not None:
        return None
    return head


def _check_entries(
    segment: FoundSegment, data: pa.Buffer, following: EntryHead | None, accept_loss: bool
) -> list[LastEntry]:
    """Fills in what is known of `segment`, up to where it was known synced when `following` was written.

    Without `following` it is the last one, and ends where its sound entries end; what is cut off there.
    """
    cuts: list[LastEntry] = []
    limit = None
    if following is not None:
        if following.synced.segment != segment.number or not HEADER_BYTES < following.synced.position <= data.size:
            raise _corrupt(segment.path, 0, f"the next segment says that it follows {following.synced}")
        limit = following.synced.position
    last: Frame | None = None
    position = HEADER_BYTES
    while limit is None or position < limit:
        head = decode_head(data, Position(segment.number, position), segment.seed)
        damaged = _damaged_frame(segment, data, head) if head is not None else None
        if head is None or damaged is not None:
            if limit is not None:
                raise _corrupt(segment.path, position, f"it was known synced up to {limit}", damaged, last)
            _prove_torn(segment, data, position, damaged, last)
            cuts = _cut(segment, data, position, last, accept_loss)
            break
        last = _take(segment, data, head) or last
        position = head.end
    segment.end = position
    return cuts


def _cut(
    segment: FoundSegment, data: pa.Buffer, position: int, last: Frame | None, accept_loss: bool
) -> list[LastEntry]:
    """Finds what is cut off at `position`. Raises CorruptData for an entry that was not torn but damaged."""
    found = last_entry(segment.path, data, Position(segment.number, position), segment.seed)
    if found is None:
        return []
    if found.one_bit and not accept_loss:
        others = ", ".join(_described(frame) for frame in found.frames[1:NAMED_MAX])
        detail = (
            "it was written whole, and a single bit of it is wrong, so it may have been acknowledged"
            + (f"; with it goes {others}" if others else "")
            + (f" and {len(found.frames) - NAMED_MAX} more" if len(found.frames) > NAMED_MAX else "")
        )
        way_out = (
            "Put the file back from a copy of the disk and start again; where there is none, `silt serve "
            "--accept-loss` goes on without that group commit"
        )
        raise _corrupt(segment.path, position, detail, next(iter(found.frames), None), last, way_out)
    return [found]


def _take(segment: FoundSegment, data: pa.Buffer, head: EntryHead) -> Frame | None:
    """Counts in a sound entry; the last of its records frames."""
    segment.entries += 1
    if segment.first_synced is None:
        segment.first_synced = head.synced
    segment.last_synced = head.synced
    last: Frame | None = None
    for frame, location in decode_frames(data, segment.number, head):
        if frame.kind == FrameKind.RECORDS:
            key = (frame.topic_id, frame.partition)
            segment.ends[key] = max(segment.ends.get(key, -1), frame.first_offset + frame.count)
            segment.records_bytes += FRAME_BYTES + aligned(location.length)
            last = frame
        elif frame.kind == FrameKind.STATE:
            segment.has_state = True
        segment.frames += frame.kind in (FrameKind.RECORDS, FrameKind.CONTROL)
    return last


def _prove_torn(
    segment: FoundSegment, data: pa.Buffer, position: int, damaged: Frame | None, last: Frame | None
) -> None:
    """Raises CorruptData when an entry beyond the bad one at `position` records that it had been synced."""
    for beyond in find_heads(data, segment.number, segment.seed, position):
        if beyond.synced > (segment.number, position):
            detail = f"the entry at {beyond.position} records that it had been synced"
            raise _corrupt(segment.path, position, detail, damaged, last)


def _damaged_frame(segment: FoundSegment, data: pa.Buffer, head: EntryHead) -> Frame | None:
    """The first frame whose payload fails its checksum."""
    for frame, location in decode_frames(data, segment.number, head):
        if crc32c(frame.payload) != location.crc:
            return frame
    return None


def _corrupt(
    path: Path,
    position: int,
    detail: str,
    damaged: Frame | None = None,
    last: Frame | None = None,
    way_out: str | None = None,
) -> SiltlogError:
    where = f"the write-ahead log is damaged: {path} at position {position}"
    members: dict[str, Any] = {"file": str(path), "position": position}
    if damaged is not None:
        where += f", {_described(damaged)}"
        members |= {
            "topic_id": damaged.topic_id.hex(),
            "partition": damaged.partition,
            "first_offset": damaged.first_offset,
            "last_offset": damaged.first_offset + damaged.count - 1,
        }
    elif last is not None:
        where += f", after {_described(last)}"
    return problem("corrupt_data", f"{where}; {detail}. {way_out or _way_out(path.parent)}", **members)


def _described(frame: Frame) -> str:
    if frame.kind != FrameKind.RECORDS:
        return f"a {frame.kind.name} frame"
    return (
        f"topic id {frame.topic_id.hex()}, partition {frame.partition}, "
        f"offsets {frame.first_offset} to {frame.first_offset + frame.count - 1}"
    )


def _way_out(directory: Path) -> str:
    return (
        "Put the file back from a copy of the disk and start again; where there is none, move the folder "
        f"{directory} away and start with --take-over: what was not yet in tables is lost then"
    )
