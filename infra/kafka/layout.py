"""Where the parts of a batch's records are: found by a loop, or of many records by numpy at once."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from siltlog.infra.arrow.arrays import binary_array, fixed_array
from siltlog.infra.kafka.spans import (
    RECORD_BYTES_MIN,
    UINT32_MAX,
    VARINT_BYTES_MAX,
    VARLONG_BYTES_MAX,
    Numbers,
    expect,
    spans,
    unsigned,
    varints,
)
from siltlog.infra.kafka.wire import Malformed

FEW = 20
"""Up to so many records a loop is faster."""
HEADERS_MAX = 1_000
"""A record has so many at most: numpy takes a round for each, and a stranger's could have millions of two bytes."""
_PADDING = bytes(32)
"""Numbers of variable length may be read that begin where the records end."""
_NO_BOUNDS = np.empty((0, 2, 2), np.int64)
_NO_NULLS = np.empty(0, np.bool_)
_OFFSETS_MAX = 1 << 15
"""A mebibyte has so many records at most, unless they are smaller than 32 bytes."""
_OFFSETS_OF_SIZE = (1 << 6, 1 << 13, 1 << 20)
"""Offsets below these take one byte, two bytes, three."""


def _offset_bytes() -> tuple[Numbers, tuple[npt.NDArray[np.uint8], ...]]:
    """The bytes that each of the offsets takes, and what the first one is, the second, and the third."""
    offsets = np.arange(_OFFSETS_MAX)
    sizes = 1 + np.searchsorted(_OFFSETS_OF_SIZE, offsets, side="right")
    parts = [2 * offsets >> 7 * part & 0x7F | np.where(sizes > part + 1, 0x80, 0) for part in range(3)]
    return sizes, tuple(part.astype(np.uint8) for part in parts)


_OFFSET_SIZES, _OFFSET_BYTES = _offset_bytes()


# Not frozen: of one record that would be a good part of the time that all of this takes.
@dataclass(slots=True)
class Layout:
    """Says where things are, of n records with h headers in all. Where something is null its start is its end."""

    timestamp_deltas: Numbers
    """Shape (n,)."""
    bounds: Numbers
    """Start and end of key and value; shape (n, 2, 2)."""
    nulls: npt.NDArray[np.bool_]
    """Whether key and value are null; shape (n, 2)."""
    header_counts: Numbers
    """Shape (n,)."""
    header_bounds: Numbers
    """Start and end of name and value, in the order of the records; shape (h, 2, 2)."""
    header_nulls: npt.NDArray[np.bool_]
    """Whether a header's value is null; shape (h,)."""


def layout(records: memoryview, count: int) -> Layout:
    """The places of `count` records, of which `records` (format `B`) has nothing else.

    Raises Malformed, whose `where` is `record {index}`, or empty where it is no single record's.
    """
    if count * RECORD_BYTES_MIN > len(records):
        raise Malformed(f"{count} records do not fit into {len(records)} bytes")
    if count <= FEW:
        return by_loop(records, count)
    return by_numpy(records, count)


def by_loop(records: memoryview, count: int) -> Layout:
    """Does what `layout` does."""
    deltas: list[int] = []
    bounds: list[int] = []
    nulls: list[bool] = []
    header_counts: list[int] = []
    header_bounds: list[int] = []
    header_nulls: list[bool] = []
    at = index = 0
    try:
        for index in range(count):
            length, at = _varint(records, at)
            end = at + length
            if length < 0 or end > len(records):
                raise Malformed(f"it has {length} bytes, and {len(records) - at} are left")
            delta, at = _varlong(records, at + 1)
            offset, at = _varint(records, at)
            if offset != index:
                raise Malformed(f"its offset is {offset} after that of the batch, not {index}")
            key, key_end, key_null = _bytes(records, at, end, "key")
            value, value_end, value_null = _bytes(records, key_end, end, "value")
            headers, at = _varint(records, value_end)
            if not 0 <= headers <= HEADERS_MAX:
                raise Malformed(f"it has {headers} headers; at most {HEADERS_MAX} are taken")
            for _ in range(headers):
                name, at, missing = _bytes(records, at, end, "name of a header")
                if missing:
                    raise Malformed("the name of a header is null")
                header_bounds += (name, at)
                value_at, at, missing = _bytes(records, at, end, "value of a header")
                header_bounds += (value_at, at)
                header_nulls.append(missing)
            if at != end:
                raise Malformed(f"it ends {abs(end - at)} bytes too {'early' if at < end else 'late'}")
            deltas.append(delta)
            bounds += (key, key_end, value, value_end)
            nulls += (key_null, value_null)
            header_counts.append(headers)
    except Malformed as error:
        raise error.within(f"record {index}") from None
    except IndexError:
        raise Malformed("the bytes end within it", f"record {index}") from None
    if at != len(records):
        raise Malformed(f"{len(records) - at} bytes follow the records")
    return Layout(
        np.array(deltas, np.int64),
        np.array(bounds, np.int64).reshape(count, 2, 2),
        np.array(nulls, np.bool_).reshape(count, 2),
        np.array(header_counts, np.int64),
        np.array(header_bounds, np.int64).reshape(-1, 2, 2) if header_bounds else _NO_BOUNDS,
        np.array(header_nulls, np.bool_) if header_nulls else _NO_NULLS,
    )


def _varint(records: memoryview, at: int) -> tuple[int, int]:
    value = records[at]
    if value < 0x80:
        return value >> 1 ^ -(value & 1), at + 1
    value, at = unsigned(records, at, VARINT_BYTES_MAX)
    if value > UINT32_MAX:
        raise Malformed("a number of variable length is above 32 bits")
    return value >> 1 ^ -(value & 1), at


def _varlong(records: memoryview, at: int) -> tuple[int, int]:
    value, at = unsigned(records, at, VARLONG_BYTES_MAX)
    value &= 2**64 - 1
    return value >> 1 ^ -(value & 1), at


def _bytes(records: memoryview, at: int, end: int, name: str) -> tuple[int, int, bool]:
    """Start and end of bytes after their length, and whether they are null."""
    length, at = _varint(records, at)
    if length < -1 or at + length > end:
        raise Malformed(f"its {name} has {length} bytes, and {end - at} are left")
    return at, at + max(length, 0), length < 0


def by_numpy(records: memoryview, count: int) -> Layout:
    """Does what `layout` does."""
    content = b"".join((records, _PADDING))
    data = np.frombuffer(content, np.uint8)
    starts, ends = spans(content, data, len(records), count)
    deltas, at = varints(data, starts + 1, VARLONG_BYTES_MAX)
    at = _after_offsets(data, at)
    bounds, nulls = np.empty((count, 2, 2), np.int64), np.empty((count, 2), np.bool_)
    for part, name in enumerate(("key", "value")):
        at = _parts(data, at, ends, name, bounds[:, part], nulls[:, part])
    # Of a record that ends before them this is a byte of the next one: it is refused all the same.
    if not data.take(at).any():
        header_counts, at = np.zeros(count, np.int64), at + 1
        header_bounds, header_nulls = _NO_BOUNDS, _NO_NULLS
    else:
        header_counts, at = varints(data, at, VARINT_BYTES_MAX)
        expect((header_counts >= 0) & (header_counts <= HEADERS_MAX), f"it has more than {HEADERS_MAX} headers")
        # Two bytes at least for each, so that no room is laid out for headers that are not there.
        expect(2 * header_counts <= ends - at, "its headers do not fit into its bytes")
        header_bounds, header_nulls, at = _headers(data, at, ends, header_counts)
    expect(at == ends, "it ends too early or too late")
    return Layout(deltas, bounds, nulls, header_counts, header_bounds, header_nulls)


def _after_offsets(data: npt.NDArray[np.uint8], at: Numbers) -> Numbers:
    """Takes the offsets at the places `at`, which have to be 0, 1, 2, …; gives the places after them."""
    count = len(at)
    if count <= _OFFSETS_MAX and _are_offsets(data, at):
        # As every client writes them.
        return at + _OFFSET_SIZES[:count]
    offsets, at = varints(data, at, VARINT_BYTES_MAX)
    expect(offsets == np.arange(count), "its offset is not the next one")
    return at


def _are_offsets(data: npt.NDArray[np.uint8], at: Numbers) -> bool:
    """Whether at the places `at` the offsets are written in as few bytes as they take."""
    count = len(at)
    for part, (first, own) in enumerate(zip((0, *_OFFSETS_OF_SIZE), _OFFSET_BYTES, strict=False)):
        if first >= count:
            break
        places = at[first:] + part if part else at
        if (data.take(places) != own[first:count]).any():
            return False
    return True


def _parts(
    data: npt.NDArray[np.uint8],
    at: Numbers,
    ends: Numbers,
    name: str,
    bounds: Numbers,
    nulls: npt.NDArray[np.bool_],
    rows: Numbers | None = None,
) -> Numbers:
    """Fills in start and end of bytes after their lengths, and whether they are null; gives the places after them."""
    same = _one_length(data, at)
    if same is not None:
        length, size = same
        at = at + size
        after = at + length if length > 0 else at
        fits = after <= ends
        nulls[:] = length < 0
    else:
        lengths, at = varints(data, at, VARINT_BYTES_MAX, rows)
        after = at + np.maximum(lengths, 0)
        fits = (lengths >= -1) & (after <= ends)
        np.less(lengths, 0, out=nulls)
    expect(fits, f"its {name} does not fit into its bytes", rows)
    bounds[:, 0], bounds[:, 1] = at, after
    return after


def _one_length(data: npt.NDArray[np.uint8], at: Numbers) -> tuple[int, int] | None:
    """The length at all of the places `at`, and the bytes that it takes there; None where they differ, or are long."""
    place = int(at[0])
    first, second = data[place : place + 2].tolist()
    size = 1 if first < 0x80 else 2
    number = first if size == 1 else first & 0x7F | second << 7
    length = number >> 1 ^ -(number & 1)
    if (size == 2 and second >= 0x80) or length < -1 or (data.take(at) != first).any():
        return None
    return None if size == 2 and (data.take(at + 1) != second).any() else (length, size)


def _headers(
    data: npt.NDArray[np.uint8], at: Numbers, ends: Numbers, counts: Numbers
) -> tuple[Numbers, npt.NDArray[np.bool_], Numbers]:
    """The headers of all records in their order, and the places after them: a round for the first ones, and so on."""
    total = int(counts.sum())
    bounds, nulls = np.empty((total, 2, 2), np.int64), np.empty(total, np.bool_)
    firsts = np.cumsum(counts) - counts
    for number in range(int(counts.max())):
        rows = np.flatnonzero(counts > number)
        places, stops = at[rows], ends[rows]
        part, missing = np.empty((len(rows), 2, 2), np.int64), np.empty((len(rows), 2), np.bool_)
        for which, name in enumerate(("name of a header", "value of a header")):
            places = _parts(data, places, stops, name, part[:, which], missing[:, which], rows)
        expect(~missing[:, 0], "the name of a header is null", rows)
        bounds[firsts[rows] + number], nulls[firsts[rows] + number] = part, missing[:, 1]
        at[rows] = places
    return bounds, nulls, at


def gathered(records: memoryview, bounds: Numbers, nulls: npt.NDArray[np.bool_] | None) -> pa.Array:
    """The bytes between `bounds` (start and end, rising; shape (n, 2)) as binary, null where `nulls` says so."""
    count = len(bounds)
    if count <= FEW:
        missing = [False] * count if nulls is None else nulls.tolist()
        places = zip(bounds.tolist(), missing, strict=True)
        return binary_array([None if null else bytes(records[start:end]) for (start, end), null in places])
    # All bytes are one array, in which what is wanted takes turns with what lies between.
    ends = np.zeros(2 * count + 1, np.int32)
    ends[1:] = bounds.reshape(-1)
    whole = pa.Array.from_buffers(pa.binary(), 2 * count, [None, pa.py_buffer(ends), pa.py_buffer(records)])
    index = fixed_array(np.arange(1, 2 * count, 2), pa.int64())
    if nulls is not None and nulls.any():
        validity = pa.py_buffer(np.packbits(~nulls, bitorder="little"))
        index = pa.Array.from_buffers(pa.int64(), count, [validity, index.buffers()[1]])
    return whole.take(index)
