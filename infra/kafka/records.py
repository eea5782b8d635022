"""Arrow columns as record batches for a reader: their bytes joined by Arrow, and compressed where that is asked for."""

from collections.abc import Iterator
from itertools import pairwise
from struct import Struct
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from siltlog.infra.arrow.arrays import binary_values, numbers_of, validity_of
from siltlog.infra.kafka.batch import CONTROL, CRC_START, EPOCH_END, HEAD, LENGTH_END, MAGIC, TRANSACTIONAL
from siltlog.infra.kafka.columns import US_PER_MS
from siltlog.infra.kafka.compression import NO_CODEC, SMALL_BYTES, deflated
from siltlog.infra.kafka.native import NativeColumns, native_columns
from siltlog.infra.kafka.spans import Numbers
from siltlog.infra.kafka.wire import Buffer
from siltlog.infra.store.checksum import crc32c

FEW = 120
"""Up to so many records a loop is faster."""
GAP_MAX = 1 << 20
"""A batch ends before a larger gap: offsets within it are numbers of 32 bits, and clients lay out room by them."""
DELTA_MAX = 2**31 - 1
RUN_ROWS_MIN = 64
"""Records of one size are written as rows of a table where so many, on average, are neighbours."""
RECORD_BYTES_EXTRA = 32
"""What a record takes beside its key, value and headers, at most."""
NO_PRODUCER = (-1, -1, -1)
COMMIT_KEY = b"\0\0\0\1"
"""Version 0 of a control record's key, and the type of a commit."""
COMMIT_VALUE = b"\0\0" + bytes(4)
"""Version 0 of its value, and the coordinator's epoch."""
_OFFSET, _EPOCH = Struct(">q"), Struct(">i")


def encode(
    columns: pa.RecordBatch, leader_epoch: int, bytes_max: int = 1024 * 1024, codec: int = NO_CODEC
) -> list[Buffer]:
    """Batches in order, each of about `bytes_max` at most or of one record; each is two buffers, head and records.

    Records that take no fewer bytes by `codec`, one of CODECS, are not compressed.

    `columns` has `offset`, rising and maybe with gaps, `timestamp`, `key`, `value` and `headers` as in
    `siltlog.infra.columns.RECORD_SCHEMA`; others are passed over. Times are rounded down to milliseconds.
    """
    offsets = numbers_of(columns.column("offset"), np.int64)
    times = numbers_of(columns.column("timestamp"), np.int64)
    native = native_columns(columns)
    pieces: list[Buffer] = []
    for start, end in _ranges(columns, offsets, bytes_max, native):
        own = offsets[start:end]
        records: Buffer
        if native is None:
            # Rounded towards the past also before 1970.
            millis = times[start:end] // US_PER_MS
            records, latest_ms = _records(columns.slice(start, end - start), own, millis), int(millis.max())
        else:
            records, latest_ms = native.records(start, end)
        attributes = NO_CODEC
        if codec and len(records) >= SMALL_BYTES:
            compressed = deflated(records, codec)
            if len(compressed) < len(records):
                records, attributes = compressed, codec
        between = int(times[start]) // US_PER_MS, latest_ms
        pieces += (_head(records, own, between, leader_epoch, attributes), records)
    return pieces


def resent(batch: bytes, first_offset: int, leader_epoch: int) -> bytes:
    """A batch as its producer sent it, for a reader: of what its checksum is not of, two fields are the log's."""
    return b"".join(
        (_OFFSET.pack(first_offset), batch[_OFFSET.size : LENGTH_END], _EPOCH.pack(leader_epoch), batch[EPOCH_END:])
    )


def control_marker(offset: int, leader_epoch: int, timestamp_ms: int = 0) -> bytes:
    """A control batch of one COMMIT marker at `offset`: readers pass over it, and go on after it."""
    record = _record(0, 0, COMMIT_KEY, COMMIT_VALUE, b"\0")
    at, times = np.array([offset]), (timestamp_ms, timestamp_ms)
    return bytes(_head(record, at, times, leader_epoch, CONTROL | TRANSACTIONAL)) + record


def _ranges(
    columns: pa.RecordBatch, offsets: Numbers, bytes_max: int, native: NativeColumns | None
) -> Iterator[tuple[int, int]]:
    """The rows of each batch."""
    rows = len(offsets)
    if rows <= 1:
        if rows:
            yield 0, 1
        return
    if native is not None:
        yield from pairwise((0, *native.cuts(bytes_max, GAP_MAX, DELTA_MAX)))
        return
    far = np.flatnonzero(np.diff(offsets) > GAP_MAX) + 1
    if (
        not len(far)
        and columns.nbytes + rows * RECORD_BYTES_EXTRA <= bytes_max
        and offsets[-1] - offsets[0] <= DELTA_MAX
    ):
        yield 0, rows
        return
    sizes = _sizes(columns)
    reached = np.cumsum(sizes)
    start = 0
    for stop in (*far.tolist(), rows):
        while start < stop:
            used = int(reached[start] - sizes[start])
            full = int(np.searchsorted(reached, used + bytes_max, side="right"))
            beyond = int(np.searchsorted(offsets, offsets[start] + DELTA_MAX, side="right"))
            end = min(max(full, start + 1), beyond, stop)
            yield start, end
            start = end


def _sizes(columns: pa.RecordBatch) -> Numbers:
    """About what each record takes."""
    sizes = np.full(columns.num_rows, RECORD_BYTES_EXTRA, np.int64)
    for name in ("key", "value"):
        sizes += _lengths(columns.column(name))
    headers = columns.column("headers")
    if headers.null_count < len(headers):
        entries = headers.flatten()
        taken = np.zeros(len(entries) + 1, np.int64)
        np.cumsum(_lengths(entries.field(0)) + _lengths(entries.field(1)) + 2 * 5, out=taken[1:])
        ends = np.concatenate(([0], np.cumsum(_lengths(headers))))
        sizes += np.diff(taken[ends])
    return sizes


def _lengths(array: pa.Array) -> Numbers:
    """Bytes of each value, or elements of each list; 0 where it is null."""
    counted = pc.list_value_length(array) if pa.types.is_list(array.type) else pc.binary_length(array)
    return numbers_of(counted.fill_null(0), np.int32).astype(np.int64)


def _head(records: Buffer, offsets: Numbers, times: tuple[int, int], leader_epoch: int, attributes: int = 0) -> bytes:
    """`times` are the first one and the latest, in milliseconds."""
    base, rows = int(offsets[0]), len(offsets)
    length = HEAD.size - LENGTH_END + len(records)
    delta = int(offsets[-1]) - base
    unsigned = HEAD.pack(base, length, leader_epoch, MAGIC, 0, attributes, delta, *times, *NO_PRODUCER, rows)
    crc = crc32c(pa.py_buffer(records), crc32c(unsigned[CRC_START:]))
    return HEAD.pack(base, length, leader_epoch, MAGIC, crc, attributes, delta, *times, *NO_PRODUCER, rows)


def _records(part: pa.RecordBatch, offsets: Numbers, millis: Numbers) -> Buffer:
    if len(offsets) <= FEW:
        return _looped(part, offsets, millis)
    tabled = _tabled(part, offsets, millis)
    records: Buffer = _joined(part, offsets, millis) if tabled is None else tabled
    return records


def _looped(part: pa.RecordBatch, offsets: Numbers, millis: Numbers) -> bytes:
    keys, values = (binary_values(part.column(name)) for name in ("key", "value"))
    headers = part.column("headers")
    tails = [_tail(each) for each in headers.to_pylist()] if headers.null_count < len(headers) else [b"\0"] * len(keys)
    places = zip((millis - millis[0]).tolist(), (offsets - offsets[0]).tolist(), strict=True)
    return b"".join(
        _record(time, offset, key, value, tail)
        for (time, offset), key, value, tail in zip(places, keys, values, tails, strict=True)
    )


def _record(time_delta: int, offset_delta: int, key: bytes | None, value: bytes | None, tail: bytes) -> bytes:
    body = b"".join((b"\0", _varint(time_delta), _varint(offset_delta), _prefixed(key), _prefixed(value), tail))
    return _varint(len(body)) + body


def _tail(headers: list[dict[str, bytes | str | None]] | None) -> bytes:
    pieces = [_varint(len(headers or ()))]
    for header in headers or ():
        name, value = header["key"], header["value"]
        pieces += (_prefixed(str(name or "").encode()), _prefixed(value if isinstance(value, bytes) else None))
    return b"".join(pieces)


def _prefixed(data: bytes | None) -> bytes:
    return b"\x01" if data is None else _varint(len(data)) + data


def _varint(value: int) -> bytes:
    number = value << 1 if value >= 0 else ~(value << 1)
    if number < 0x80:
        return bytes((number,))
    out = bytearray()
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def _joined(part: pa.RecordBatch, offsets: Numbers, millis: Numbers) -> pa.Buffer:
    """Does what `_looped` does."""
    key, value, headers = (part.column(name) for name in ("key", "value", "headers"))
    tail = [pa.scalar(b"\0", pa.binary())] if headers.null_count == len(headers) else _tails(headers)
    before_key = [np.zeros(len(offsets), np.int64), millis - millis[0], offsets - offsets[0], _prefixes(key)]
    before_value = [_prefixes(value)]
    sizes = sum(map(_varint_sizes, before_key + before_value)) + _lengths(key) + _lengths(value)
    sizes += 1 if len(tail) == 1 else sum(map(_lengths, tail))
    pieces = [_varints([sizes, *before_key]), key, _varints(before_value), value, *tail]
    return _bytes_of(_concatenated(pieces))


def _tabled(part: pa.RecordBatch, offsets: Numbers, millis: Numbers) -> pa.Buffer | None:
    """Does what `_looped` does where keys are of one length, values too, and there are no headers; None elsewhere.

    Neighbours whose numbers are of one length too are the rows of a table, of which each column is written at once.
    """
    headers = part.column("headers")
    if headers.null_count < len(headers):
        return None
    key, value = (_of_one_length(part.column(name)) for name in ("key", "value"))
    if key is None or value is None:
        return None
    times, deltas = millis - millis[0], offsets - offsets[0]
    time_sizes, delta_sizes = _varint_sizes(times), _varint_sizes(deltas)
    cuts = np.flatnonzero((np.diff(time_sizes) != 0) | (np.diff(delta_sizes) != 0)) + 1
    if len(cuts) * RUN_ROWS_MIN > len(offsets):
        return None
    key_prefix, value_prefix = (np.frombuffer(each.prefix, np.uint8) for each in (key, value))
    bodies = 2 + time_sizes + delta_sizes + sum(each.content.shape[1] + len(each.prefix) for each in (key, value))
    out = np.empty(int((bodies + _varint_sizes(bodies)).sum()), np.uint8)
    at = 0
    for start, end in pairwise((0, *cuts.tolist(), len(offsets))):
        parts = [
            np.frombuffer(_varint(int(bodies[start])) + b"\0", np.uint8),
            _varint_table(times[start:end], int(time_sizes[start])),
            _varint_table(deltas[start:end], int(delta_sizes[start])),
            key_prefix, key.content[start:end], value_prefix, value.content[start:end], np.zeros(1, np.uint8),
        ]  # fmt: skip
        width = sum(each.shape[-1] for each in parts)
        table = out[at : at + (end - start) * width].reshape(end - start, width)
        column = 0
        for each in parts:
            table[:, column : column + each.shape[-1]] = each
            column += each.shape[-1]
        at += table.size
    return pa.py_buffer(out)


class _OneLength(NamedTuple):
    """Values of one length, or all of them null."""

    prefix: bytes
    content: npt.NDArray[np.uint8]
    """Shape (n, length)."""


def _of_one_length(array: pa.Array) -> _OneLength | None:
    rows = len(array)
    if array.null_count == rows:
        return _OneLength(_prefixed(None), np.empty((rows, 0), np.uint8))
    ends = _ends(array)
    length = int(ends[1] - ends[0])
    if array.null_count or (np.diff(ends) != length).any():
        return None
    if not length:
        return _OneLength(_prefixed(b""), np.empty((rows, 0), np.uint8))
    content = np.frombuffer(array.buffers()[2], np.uint8)[ends[0] : ends[-1]].reshape(rows, length)
    return _OneLength(_varint(length), content)


def _varint_table(numbers: Numbers, size: int) -> npt.NDArray[np.uint8]:
    """Numbers that take `size` bytes each; shape (n, size)."""
    rest = _zigzag(numbers)
    table = np.empty((len(numbers), size), np.uint8)
    for column in range(size):
        table[:, column] = rest & np.uint64(0x7F)
        rest = rest >> np.uint64(7)
    table[:, :-1] |= 0x80
    return table


def _tails(headers: pa.Array) -> list[pa.Array]:
    """The count of each record's headers, and their bytes."""
    counts = _lengths(headers)
    entries = headers.flatten()
    # A name is never null for Kafka; in a table that others wrote it may be.
    name, value = entries.field(0).fill_null("").cast(pa.binary()), entries.field(1)
    each = _concatenated([_varints([_prefixes(name)]), name, _varints([_prefixes(value)]), value])
    # The headers of a record are neighbours: theirs are the bytes from the first one's start to the last one's end.
    ends = _ends(each)[np.concatenate(([0], np.cumsum(counts)))]
    own = pa.Array.from_buffers(pa.binary(), len(headers), [None, pa.py_buffer(ends), each.buffers()[2]])
    return [_varints([counts]), own]


def _ends(array: pa.Array) -> npt.NDArray[np.int32]:
    return np.frombuffer(array.buffers()[1], np.int32)[array.offset : array.offset + len(array) + 1]


def _prefixes(array: pa.Array) -> Numbers:
    """The length of each value, -1 where it is null."""
    lengths = _lengths(array)
    if array.null_count:
        lengths[~validity_of(array)] = -1
    return lengths


def _concatenated(pieces: list[Any]) -> pa.Array:
    """The bytes of all `pieces`, row by row; null is nothing."""
    return pc.binary_join_element_wise(*pieces, b"", null_handling="replace", null_replacement=b"")


def _bytes_of(array: pa.Array) -> pa.Buffer:
    ends = _ends(array)
    return array.buffers()[2].slice(int(ends[0]), int(ends[-1] - ends[0]))


def _zigzag(numbers: Numbers) -> npt.NDArray[np.uint64]:
    return (numbers << 1 ^ numbers >> 63).view(np.uint64)


def _varint_sizes(numbers: Numbers) -> Numbers:
    """The bytes that each takes as a number of variable length."""
    unsigned = _zigzag(numbers)
    sizes = np.ones(len(numbers), np.int64)
    most = int(unsigned.max())
    for bits in range(7, most.bit_length(), 7):
        sizes += unsigned >= np.uint64(1 << bits)
    return sizes


def _varints(columns: list[Numbers]) -> pa.Array:
    """Numbers of variable length, those of a row one after the other, as a binary array."""
    parts: list[npt.NDArray[np.uint8]] = []
    """The first byte of each, the second of each, and so on."""
    kept: list[npt.NDArray[np.bool_] | None] = []
    """Where there is such a byte; None where all have it."""
    for numbers in columns:
        rest = _zigzag(numbers)
        own = None
        while int(rest.max()) >= 0x80:
            later = rest >> np.uint64(7)
            more = later != 0
            parts.append((rest & np.uint64(0x7F)).astype(np.uint8) | more.view(np.uint8) << 7)
            kept.append(own)
            own = None if more.all() else more
            rest = later
        parts.append(rest.astype(np.uint8))
        kept.append(own)
    rows = len(parts[0])
    ends = np.full(rows + 1, len(parts), np.int32)
    data = np.stack(parts, axis=1).reshape(-1)
    if any(each is not None for each in kept):
        mask = np.ones((rows, len(parts)), np.bool_)
        for number, each in enumerate(kept):
            if each is not None:
                mask[:, number] = each
                ends[1:] -= ~each
        data = data[mask.reshape(-1)]
    ends[0] = 0
    np.cumsum(ends, out=ends)
    return pa.Array.from_buffers(pa.binary(), rows, [None, pa.py_buffer(ends), pa.py_buffer(data)])
