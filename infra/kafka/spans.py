"""Where each record of a batch begins and ends: its length says where the next one is."""

from array import array
from typing import Any

import numpy as np
import numpy.typing as npt

from siltlog.infra.kafka.wire import Malformed

Bytes = npt.NDArray[np.uint8]
Numbers = npt.NDArray[np.int64]
RECORD_BYTES_MIN = 7
VARINT_BYTES_MAX = 5
VARLONG_BYTES_MAX = 10
UINT32_MAX = 2**32 - 1
_LOOK_AFTER, _LOOK_AFTER_MAX = 16, 1024
"""After so many records it is looked whether the last were of one size, and more are."""
_SAME = 8
_SAME_MORE = 64
_MANY = 256
"""Of fewer records in all each is checked as it is found."""


def spans(content: bytes, data: Bytes, size: int, count: int) -> tuple[Numbers, Numbers]:
    """Where each of `count` records begins, after its length, and where it ends; `size` bytes are theirs.

    `data` is `content`, which has some zeros behind those. Raises Malformed.
    """
    if count < _MANY:
        return _one_by_one(content, size, count)
    places, why = _places(content, data, size, count)
    begins = np.frombuffer(places, np.int64)
    # Of more than 32 bits a length may be here: it leads beyond the end.
    lengths, starts = varints(data, begins[:-1], VARLONG_BYTES_MAX)
    ends = starts + lengths
    holds = (lengths >= RECORD_BYTES_MIN - 1) & (ends <= size)
    if not holds.all():
        index = int(np.argmin(holds))
        raise _outside(int(lengths[index]), size - int(starts[index])).within(f"record {index}")
    if why:
        raise Malformed(why, f"record {len(starts)}")
    _check_end(int(begins[-1]), size)
    return starts, ends


def _one_by_one(content: bytes, size: int, count: int) -> tuple[Numbers, Numbers]:
    """Does what `spans` does, and of few records in less time."""
    starts, ends = (array("q", bytes(8 * count)) for _ in range(2))
    at = index = 0
    try:
        for index in range(count):
            length = content[at]
            if length < 0x80:
                at += 1
            elif (second := content[at + 1]) < 0x80:
                length = length & 0x7F | second << 7
                at += 2
            else:
                length, at = unsigned(content, at, VARINT_BYTES_MAX)
            starts[index] = at
            at += length >> 1
            if length & 1 or length < 2 * (RECORD_BYTES_MIN - 1) or at > size:
                raise _outside(length >> 1 ^ -(length & 1), size - starts[index])
            ends[index] = at
    except Malformed as error:
        raise error.within(f"record {index}") from None
    except IndexError:
        raise Malformed("the bytes end within it", f"record {index}") from None
    _check_end(at, size)
    return np.frombuffer(starts, np.int64), np.frombuffer(ends, np.int64)


def _outside(length: int, left: int) -> Malformed:
    return Malformed(f"it has {length} bytes, and {left} are left")


def _check_end(end: int, size: int) -> None:
    if end != size:
        raise Malformed(f"{size - end} bytes follow the records")


def _places(content: bytes, data: Bytes, size: int, count: int) -> "tuple[array[int], str]":
    """Where each record begins, before its length, and where the last one ends; and why there are fewer than `count`.

    What a length says is not checked: it only leads on. Where several are of one size it is tried whether more are,
    all at once.
    """
    places = array("q", (0,))
    note = places.append
    at = 0
    look = _LOOK_AFTER
    try:
        while len(places) <= count:
            for _ in range(min(look, count + 1 - len(places))):
                length = content[at]
                if length < 0x80:
                    at += 1 + (length >> 1)
                elif (second := content[at + 1]) < 0x80:
                    at += 2 + ((length & 0x7F | second << 7) >> 1)
                else:
                    length, at = unsigned(content, at, VARINT_BYTES_MAX)
                    at += length >> 1
                note(at)
            left = count + 1 - len(places)
            if not left:
                break
            last = places[-1 - _SAME :]
            begun = last[-2]
            more = 0
            if at <= size and last[-1] - last[0] == _SAME * (at - begun):
                more = _of_one_size(data, begun, at, size, left)
                steps = np.arange(1, more + 1) * (at - begun) + at
                places.frombytes(steps.tobytes())
                at = places[-1]
            look = _LOOK_AFTER if more >= _SAME_MORE else min(2 * look, _LOOK_AFTER_MAX)
    except Malformed as error:
        return places, error.what
    except IndexError:
        return places, "the bytes end within it"
    return places, ""


def _of_one_size(data: Bytes, begun: int, at: int, size: int, most: int) -> int:
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


def unsigned(records: memoryview | bytes, at: int, bytes_max: int) -> tuple[int, int]:
    """The number of variable length at `at`, and the place after it. Raises Malformed, and IndexError at the end."""
    value = shift = 0
    for byte in records[at : at + bytes_max]:
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return value, at + shift // 7
    if shift < 7 * bytes_max:
        raise IndexError
    raise Malformed(f"a number of variable length has more than {bytes_max} bytes")


def expect(holds: npt.NDArray[np.bool_], what: str, rows: Numbers | None = None) -> None:
    """Raises Malformed for the first record (one of `rows`, or of all) for which something does not hold."""
    if not holds.all():
        index = int(np.argmin(holds))
        raise Malformed(what, f"record {index if rows is None else rows[index]}")


def varints(data: Bytes, at: Numbers, bytes_max: int, records: Numbers | None = None) -> tuple[Numbers, Numbers]:
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
    numbers = value.view(np.uint64)
    if bytes_max == VARINT_BYTES_MAX and shift > 7 * (VARINT_BYTES_MAX - 1):
        expect(numbers <= UINT32_MAX, "a number of variable length is above 32 bits", records)
    return (numbers >> np.uint64(1)).view(np.int64) ^ -(value & 1), at
