"""The stored form of the log: the header block of a segment, and the entries that follow it.

    segment  = header block (HEADER_BYTES), entry, entry, ...         what follows the last entry means nothing
    entry    = header, one table row per frame, payload per frame     one group commit; each part aligned to 8 bytes

Every bit that counts is under a CRC32C: the header block ends with its own, an entry's covers its header and table, the
table holds those of the payloads. An entry's CRC goes on from the one of its segment's header block, which has the
segment number and a nonce in it: an entry of a former life of a recycled file, or one that a publisher put into a
payload, never passes for an entry of this segment.
"""

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from siltlog.infra.store.checksum import crc32c

HEADER_BYTES = 4096
ALIGN_BYTES = 8
FORMAT_VERSION = 1

_SEGMENT_MAGIC = b"SILTWAL\n"
_ENTRY_MAGIC = 0x544C4953
_CRC = struct.Struct("<I")
# magic, format version, length of the cluster id, segment, size of the file, created (us), nonce; then the cluster id
_HEADER = struct.Struct("<8sIIQQQ16s")
# magic, CRC | segment, position, length, synced segment, synced position, frames, reserved
_ENTRY = struct.Struct("<IIQQQQQII")
# kind, partition, topic id, epoch, first offset, count, CRC of the payload, length of the payload
_FRAME = struct.Struct("<B3xi16sqqIIQ")
_ENTRY_CRC_FROM = 8
ENTRY_BYTES = _ENTRY.size
_ROWS_AT = ENTRY_BYTES - _ENTRY_CRC_FROM
_COUNT_AT = _ROWS_AT - 8
"""Positions in the checked bytes: where the table begins, and where the number of its rows is."""
REPAIRED_FRAMES_MAX = 1023
"""The largest table in which a flipped bit is looked for, as that takes time."""
_POLYNOMIAL = 0x82F63B78
"""The polynomial of CRC32C, its bits reversed."""
FRAME_BYTES = _FRAME.size
TOPIC_ID_BYTES = 16
CLUSTER_ID_BYTES_MAX = HEADER_BYTES - _HEADER.size - _CRC.size
_PADDING = tuple(bytes(n) for n in range(ALIGN_BYTES))
assert ENTRY_BYTES % ALIGN_BYTES == FRAME_BYTES % ALIGN_BYTES == HEADER_BYTES % ALIGN_BYTES == 0


class FrameKind(IntEnum):
    RECORDS = 1
    """A batch of one topic-partition."""
    CONTROL = 2
    """An event that the log's user must remember; part of every later STATE."""
    SYNC = 3
    """Nothing but the synced position in its entry's header."""
    STATE = 4
    """The state that the log's user has after every frame before this one."""


@dataclass(frozen=True, slots=True)
class Frame:
    """`topic_id` has 16 bytes; `first_offset` and `count` are the batch's; the payload is opaque.

    A payload to be written may come in pieces, so that large ones need not be joined first; one read back is whole.
    """

    kind: FrameKind
    topic_id: bytes
    partition: int
    epoch: int
    first_offset: int
    count: int
    payload: pa.Buffer | bytes | tuple[pa.Buffer | bytes, ...]

    @property
    def pieces(self) -> tuple[pa.Buffer | bytes, ...]:
        return self.payload if isinstance(self.payload, tuple) else (self.payload,)

    @property
    def payload_whole(self) -> pa.Buffer:
        """The payload of a frame that was read."""
        assert not isinstance(self.payload, tuple)
        return self.payload if isinstance(self.payload, pa.Buffer) else pa.py_buffer(self.payload)

    @property
    def payload_bytes(self) -> int:
        return sum(len(piece) for piece in self.payload) if isinstance(self.payload, tuple) else len(self.payload)


class Location(NamedTuple):
    """The place of a payload: `position` in the file of `segment`, `length` in bytes, CRC32C."""

    segment: int
    position: int
    length: int
    crc: int


class Position(NamedTuple):
    """A place between entries."""

    segment: int
    position: int


class SegmentHeader(NamedTuple):
    version: int
    segment: int
    size_bytes: int
    created_us: int
    cluster_id: str
    seed: int
    """Where the CRC of each of this segment's entries starts."""


class EntryHead(NamedTuple):
    """An entry whose header and table passed their CRC; `rows` are the raw rows of the table."""

    position: int
    length: int
    synced: Position
    rows: pa.Buffer

    @property
    def end(self) -> int:
        return self.position + self.length


def marker_frame() -> Frame:
    return Frame(FrameKind.SYNC, bytes(TOPIC_ID_BYTES), 0, 0, 0, 0, b"")


def state_frame(state: bytes) -> Frame:
    return Frame(FrameKind.STATE, bytes(TOPIC_ID_BYTES), 0, 0, 0, 0, state)


MARKER_BYTES = ENTRY_BYTES + FRAME_BYTES


def frame_bytes(payload_bytes: int) -> int:
    """The bytes that one frame takes inside an entry."""
    return FRAME_BYTES + aligned(payload_bytes)


def aligned(size: int) -> int:
    return size + (-size % ALIGN_BYTES)


def encode_header(
    *, segment: int, size_bytes: int, created_us: int, cluster_id: str, nonce: bytes
) -> tuple[bytes, int]:
    """The block of HEADER_BYTES and the seed of the segment's entries. `nonce` has 16 random bytes."""
    name = cluster_id.encode()
    assert len(name) <= CLUSTER_ID_BYTES_MAX
    start = _HEADER.pack(_SEGMENT_MAGIC, FORMAT_VERSION, len(name), segment, size_bytes, created_us, nonce) + name
    body = start.ljust(HEADER_BYTES - _CRC.size, b"\0")
    seed = crc32c(body)
    return body + _CRC.pack(seed), seed


def decode_header(block: bytes) -> SegmentHeader | None:
    """None when the block is not one, or damaged."""
    if len(block) != HEADER_BYTES or not block.startswith(_SEGMENT_MAGIC):
        return None
    body = block[: -_CRC.size]
    (seed,) = _CRC.unpack(block[-_CRC.size :])
    if crc32c(body) != seed:
        return None
    _, version, name_bytes, segment, size_bytes, created_us, _ = _HEADER.unpack_from(body)
    cluster_id = body[_HEADER.size : _HEADER.size + name_bytes].decode()
    return SegmentHeader(version, segment, size_bytes, created_us, cluster_id, seed)


def encode_entry(
    frames: Sequence[Frame], *, start: Position, seed: int, synced: Position
) -> tuple[list[pa.Buffer | bytes], int, list[Location]]:
    """The buffers to write at `start`, in order, their length together, and where each payload comes to lie.

    Payloads are not copied.
    """
    segment = start.segment
    position = start.position + ENTRY_BYTES + FRAME_BYTES * len(frames)
    rows: list[bytes] = []
    payloads: list[pa.Buffer | bytes] = []
    locations: list[Location] = []
    for frame in frames:
        size = frame.payload_bytes
        crc = 0
        for piece in frame.pieces:
            crc = crc32c(piece, crc)
        rows.append(
            _FRAME.pack(
                frame.kind, frame.partition, frame.topic_id, frame.epoch, frame.first_offset, frame.count, crc, size
            )
        )
        locations.append(Location(segment, position, size, crc))
        payloads += frame.pieces
        padding = -size % ALIGN_BYTES
        if padding:
            payloads.append(_PADDING[padding])
        position += size + padding
    length = position - start.position
    table = b"".join(rows)
    head = _ENTRY.pack(_ENTRY_MAGIC, 0, segment, start.position, length, *synced, len(frames), 0)
    checked = head[_ENTRY_CRC_FROM:] + table
    magic_and_crc = _CRC.pack(_ENTRY_MAGIC) + _CRC.pack(crc32c(checked, seed))
    return [magic_and_crc + checked, *payloads], length, locations


def decode_head(data: pa.Buffer, start: Position, seed: int) -> EntryHead | None:
    """The entry at `start`, of which header and table are checked and payloads not; None when there is none.

    `data` is the segment's file from its first byte; `seed` its header's.
    """
    if start.position + ENTRY_BYTES > data.size:
        return None
    magic, crc, segment, position, length, *synced, count, _ = _ENTRY.unpack_from(data, start.position)
    rows_end = position + ENTRY_BYTES + FRAME_BYTES * count
    if magic != _ENTRY_MAGIC or segment != start.segment or position != start.position or rows_end > data.size:
        return None
    checked = data.slice(position + _ENTRY_CRC_FROM, rows_end - position - _ENTRY_CRC_FROM)
    if crc32c(checked, seed) != crc or position + length > data.size:
        return None
    return EntryHead(position, length, Position(*synced), checked.slice(_ROWS_AT))


def entry_begins(data: pa.Buffer, start: Position) -> bool:
    """Whether what stands at `start` says that it is the entry of that place, sound or not."""
    if start.position + ENTRY_BYTES > data.size:
        return False
    _, _, segment, position, *_ = _ENTRY.unpack_from(data, start.position)
    return bool((segment, position) == start)


def repaired_head(data: pa.Buffer, start: Position, seed: int) -> EntryHead | None:
    """The entry at `start` as it was before a bit of its header or table flipped; None where that does not mend it."""
    if start.position + ENTRY_BYTES > data.size:
        return None
    magic, crc, *_, counted, _ = _ENTRY.unpack_from(data, start.position)
    # A wrong bit in the number of frames leaves the length of the table unknown: each of its bits may be it.
    for count in (counted, *(counted ^ 1 << bit for bit in range(REPAIRED_FRAMES_MAX.bit_length()))):
        size = ENTRY_BYTES + FRAME_BYTES * count
        if count > REPAIRED_FRAMES_MAX or start.position + size > data.size:
            continue
        checked = bytearray(data.slice(start.position + _ENTRY_CRC_FROM, size - _ENTRY_CRC_FROM).to_pybytes())
        checked[_COUNT_AT : _COUNT_AT + 4] = count.to_bytes(4, "little")
        difference = crc32c(bytes(checked), seed) ^ crc
        wrong = (magic ^ _ENTRY_MAGIC).bit_count() + (counted ^ count).bit_count()
        if not wrong and difference.bit_count() > 1:
            bit = flipped_bit(len(checked), difference)
            if bit is None:
                continue
            checked[bit // 8] ^= 1 << bit % 8
        elif wrong + difference.bit_count() != 1:
            continue
        _, _, segment, position, length, *synced, frames, _ = _ENTRY.unpack(bytes(_ENTRY_CRC_FROM) + checked[:_ROWS_AT])
        if (segment, position, frames) == (*start, count) and position + length <= data.size:
            return EntryHead(position, length, Position(*synced), pa.py_buffer(bytes(checked[_ROWS_AT:])))
    return None


def flipped_bit(nbytes: int, difference: int) -> int | None:
    """The bit of `nbytes` bytes that changes their CRC32C by `difference`, counted from the lowest one of the first
    byte; None when no single one does."""
    # The sum is linear: what one bit adds to it depends on nothing but how many come after it.
    adds = _POLYNOMIAL
    for bit in range(nbytes * 8 - 1, -1, -1):
        if adds == difference:
            return bit
        adds = (adds >> 1) ^ (_POLYNOMIAL if adds & 1 else 0)
    return None


def decode_frames(data: pa.Buffer, segment: int, head: EntryHead) -> Iterator[tuple[Frame, Location]]:
    """The frames of an entry, payloads as views of `data` that are not checked."""
    position = head.position + ENTRY_BYTES + head.rows.size
    for kind, partition, topic_id, epoch, first_offset, count, crc, size in _FRAME.iter_unpack(head.rows):
        payload = data.slice(position, size)
        yield (
            Frame(FrameKind(kind), topic_id, partition, epoch, first_offset, count, payload),
            Location(segment, position, size, crc),
        )
        position += aligned(size)


def find_heads(data: pa.Buffer, segment: int, seed: int, position: int) -> Iterator[EntryHead]:
    """Every entry of `segment` whose header and table are sound, at or after `position`, wherever it lies."""
    for place in _entry_places(data, segment, aligned(position)):
        head = decode_head(data, Position(segment, place), seed)
        if head is not None:
            yield head


def has_traces(data: pa.Buffer, segment: int) -> bool:
    """Whether anything looks like an entry of `segment`, where a damaged header block leaves no seed to check with."""
    return bool(_entry_places(data, segment, 0))


def _entry_places(data: pa.Buffer, segment: int, first: int) -> list[int]:
    """Finds where magic, segment and position are an entry's; a recycled file is full of older ones."""
    count = (data.size - first) // ALIGN_BYTES
    if count * ALIGN_BYTES < ENTRY_BYTES:
        return []
    words = np.frombuffer(data, dtype="<u8", offset=first, count=count)
    hits = np.flatnonzero((words[:-2] & 0xFFFFFFFF) == _ENTRY_MAGIC)
    places = first + hits * ALIGN_BYTES
    found: list[int] = places[(words[hits + 1] == segment) & (words[hits + 2] == places)].tolist()
    return found
