"""Where the parts of a batch's records are: found by a loop, or of many records by numpy at once."""

from array import array
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from siltlog.infra.arrow.arrays import binary_array, fixed_array
from siltlog.infra.kafka.wire import Malformed

FEW = 20
"""Up to so many records a loop is faster."""
HEADERS_MAX = 1_000
"""A record has so many at most: numpy takes a round for each, and a stranger's could have millions of two bytes."""
RECORD_BYTES_MIN = 7
_SAME_BEFORE = 8
"""After so many records in a row of one size it is looked whether more are; twice as many each time that few were."""
_SAME_MORE = 64
_SAME_RECORDS_MIN = 256
"""Of fewer records in all a look would take as long as it saves."""
_PADDING = bytes(32)
"""Numbers of variable length may be read that begin where the records end."""
_VARINT_BYTES_MAX = 5
_VARLONG_BYTES_MAX = 10
_UINT32_MAX = 2**32 - 1
Numbers = npt.NDArray[np.int64]
_NO_BOUNDS = np.empty((0, 2, 2), np.int64)
_NO_NULLS = np.empty(0, np.bool_)
_OFFSETS = np.arange(1 << 13)
"""Those that take two bytes at most."""
_ONE_BYTE_OFFSETS = 1 << 6
_OFFSET_SIZES = np.where(_OFFSETS < _ONE_BYTE_OFFSETS, 1, 2)
_OFFSET_FIRST = np.where(_OFFSETS < _ONE_BYTE_OFFSETS, 2 * _OFFSETS, 2 * _OFFSETS & 0x7F | 0x80).astype(np.uint8)
_OFFSET_SECOND = (2 * _OFFSETS >> 7).astype(np.uint8)


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
    value, at = _unsigned(records, at, _VARINT_BYTES_MAX)
    if value > _UINT32_MAX:
        raise Malformed("a number of variable length is above 32 bits")
    return value >> 1 ^ -(value & 1), at


def _varlong(records: memoryview, at: int) -> tuple[int, int]:
    value, at = _unsigned(records, at, _VARLONG_BYTES_MAX)
    value &= 2**64 - 1
    return value >> 1 ^ -(value & 1), at


def _unsigned(records: memoryview | bytes, at: int, bytes_max: int) -> tuple[int, int]:
    value = shift = 0
    for byte in records[at : at + bytes_max]:
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return value, at + shift // 7
    if shift < 7 * bytes_max:
        raise IndexError
    raise Malformed(f"a number of variable length has more than {bytes_max} bytes")


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
    starts, ends = _hop(content, data, len(records), count)
    deltas, at = _varints(data, starts + 1, _VARLONG_BYTES_MAX)
    at = _after_offsets(data, at)
    bounds, nulls = np.empty((count, 2, 2), np.int64), np.empty((count, 2), np.bool_)
    for part, name in enumerate(("key", "value")):
        at = _parts(data, at, ends, name, bounds[:, part], nulls[:, part])
    # Of a record that ends before them this is a byte of the next one: it is refused all the same.
    if not data.take(at).any():
        header_counts, at = np.zeros(count, np.int64), at + 1
        header_bounds, header_nulls = _NO_BOUNDS, _NO_NULLS
    else:
        header_counts, at = _varints(data, at, _VARINT_BYTES_MAX)
        _expect((header_counts >= 0) & (header_counts <= HEADERS_MAX), f"it has more than {HEADERS_MAX} headers")
        # Two bytes at least for each, so that no room is laid out for headers that are not there.
        _expect(2 * header_counts <= ends - at, "its headers do not fit into its bytes")
        header_bounds, header_nulls, at = _headers(data, at, ends, header_counts)
    _expect(at == ends, "it ends too early or too late")
    return Layout(deltas, bounds, nulls, header_counts, header_bounds, header_nulls)


def _hop(content: bytes, data: npt.NDArray[np.uint8], size: int, count: int) -> tuple[Numbers, Numbers]:
    """Where each record begins, after its length, and where it ends; `size` bytes of `content` are theirs.

    Each tells where the next one is. Where several are of one size it is tried whether more are, all at once.
    """
    starts, ends = (array("q", bytes(8 * count)) for _ in range(2))
    at = first = last = since = index = 0
    enough = _SAME_BEFORE if count >= _SAME_RECORDS_MIN else count
    try:
        while first < count:
            for index in range(first, count):
                begun = at
                length = content[at]
                if length < 0x80:
                    at += 1
                elif (second := content[at + 1]) < 0x80:
                    length = length & 0x7F | second << 7
                    at += 2
                else:
                    length, at = _unsigned(content, at, _VARINT_BYTES_MAX)
                starts[index] = at
                at += length >> 1
                if length & 1 or length < 2 * (RECORD_BYTES_MIN - 1) or at > size or length > _UINT32_MAX:
                    own = length >> 1 ^ -(length & 1)
                    raise Malformed(f"it has {own} bytes, and {size - starts[index]} are left")
                ends[index] = at
                if length != last:
                    last = length
                    since = index
                elif index - since == enough:
                    break
            first = index + 1
            if first == count:
                break
            more = _of_one_size(data, begun, at, size, count - first)
            if more:
                steps = (at - begun) * np.arange(1, more + 1)
                np.frombuffer(starts, np.int64)[first : first + more] = starts[index] + steps
                np.frombuffer(ends, np.int64)[first : first + more] = at + steps
                first += more
                at += (at - begun) * more
            if more < _SAME_MORE:
                enough *= 2
    except Malformed as error:
        raise error.within(f"record {index}") from None
    except IndexError:
        raise Malformed("the bytes end within it", f"record {index}") from None
    if at != size:
        raise Malformed(f"{size - at} bytes follow the records")
    return np.frombuffer(starts, np.int64), np.frombuffer(ends, np.int64)


def _of_one_size(data: npt.NDArray[np.uint8], begun: int, at: int, size: int, most: int) -> int:
    """How many records after the one from `begun` to `at` are of its size: as many as begin with the same length."""
    step = at - begun
    most = min(most, (size - at) // step)
    prefix = 1
    while data[begun + prefix - 1] >= 0x80:
        prefix += 1
    for part in range(prefix):
        # Up to `most` lie within `size`, and so do their first bytes.
        differ = data[at + part : at + step * most : step][:most] != data[begun + part]
        if differ.any():
            most = int(np.argmax(differ))
    return most


def _after_offsets(data: npt.NDArray[np.uint8], at: Numbers) -> Numbers:
    """Takes the offsets at the places `at`, which have to be 0, 1, 2, …; gives the places after them."""
    count = len(at)
    if count <= len(_OFFSETS):
        # As every client writes them.
        later = slice(_ONE_BYTE_OFFSETS, count)
        first, second = data.take(at), data.take(at[later] + 1)
        if (first == _OFFSET_FIRST[:count]).all() and (second == _OFFSET_SECOND[later]).all():
            return at + _OFFSET_SIZES[:count]
    offsets, at = _varints(data, at, _VARINT_BYTES_MAX)
    _expect(offsets == np.arange(count), "its offset is not the next one")
    return at


def _expect(holds: npt.NDArray[np.bool_], what: str, rows: Numbers | None = None) -> None:
    """Raises Malformed for the first record (one of `rows`, or of all) for which something does not hold."""
    if not holds.all():
        index = int(np.argmin(holds))
        raise Malformed(what, f"record {index if rows is None else rows[index]}")


def _varints(
    data: npt.NDArray[np.uint8], at: Numbers, bytes_max: int, records: Numbers | None = None
) -> tuple[Numbers, Numbers]:
    """The numbers at the places `at` (shape (n,)) of `records`, or of all, and the places after them."""
    value = data.take(at).astype(np.int64)
    at = at + 1
    more = np.flatnonzero(value >= 0x80)
    if not len(more):
        return value >> 1 ^ -(value & 1), at
    # All of them mostly, or few.
    rows: Any = slice(None) if len(more) == len(at) else more
    value &= 0x7F
    shift = 7
    while len(more):
        if shift == 7 * bytes_max:
            first = more[0] if records is None else records[more[0]]
            raise Malformed(f"a number of variable length has more than {bytes_max} bytes", f"record {first}")
        byte = data.take(at[rows]).astype(np.int64)
        value[rows] |= (byte & 0x7F) << shift
        at[rows] += 1
        rows = more = more[byte >= 0x80]
        shift += 7
    unsigned = value.view(np.uint64)
    if bytes_max == _VARINT_BYTES_MAX and shift > 7 * (_VARINT_BYTES_MAX - 1):
        _expect(unsigned <= _UINT32_MAX, "a number of variable length is above 32 bits", records)
    return (unsigned >> np.uint64(1)).view(np.int64) ^ -(value & 1), at


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
    lengths, at = _varints(data, at, _VARINT_BYTES_MAX, rows)
    after = at + np.maximum(lengths, 0)
    _expect((lengths >= -1) & (after <= ends), f"its {name} does not fit into its bytes", rows)
    bounds[:, 0], bounds[:, 1] = at, after
    np.less(lengths, 0, out=nulls)
    return after


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
        _expect(~missing[:, 0], "the name of a header is null", rows)
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
