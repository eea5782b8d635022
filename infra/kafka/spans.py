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
"""After so many records it is looked whether more are of one size; after twice as many each time that few were."""
_SAME = 8
"""So many in a row make it worth a look."""
_SAME_MORE = 64
_MANY = 256
"""A look at fewer records would take as long as it saves."""


def spans(content: bytes, data: Bytes, size: int, count: int) -> tuple[Numbers, Numbers]:
    """Where each of `count` records begins, after its length, and where it ends; `size` bytes are theirs.

    Where several are of one size it is tried whether more are, all at once. `data` is `content`, which has some zeros
    behind those bytes. Raises Malformed.
    """
    starts, ends = (array("q", bytes(8 * count)) for _ in range(2))
    at = found = index = 0
    look = _LOOK_AFTER if count >= _MANY else count
    try:
        while found < count:
            for index in range(found, min(found + look, count)):
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
                    raise Malformed(f"it has {length >> 1 ^ -(length & 1)} bytes, and {size - starts[index]} are left")
                ends[index] = at
            found = index + 1
            if found == count:
                break
            step, more = at - ends[index - 1], 0
            if at - ends[index - _SAME] == _SAME * step:
                more = _of_one_size(data, at - step, at, size, count - found)
                steps = step * np.arange(1, more + 1)
                np.frombuffer(starts, np.int64)[found : found + more] = starts[index] + steps
                np.frombuffer(ends, np.int64)[found : found + more] = at + steps
                found += more
                at += step * more
            look = _LOOK_AFTER if more >= _SAME_MORE else min(2 * look, _LOOK_AFTER_MAX)
    except Malformed as error:
        raise error.within(f"record {index}") from None
    except IndexError:
        raise Malformed("the bytes end within it", f"record {index}") from None
    if at != size:
        raise Malformed(f"{size - at} bytes follow the records")
    return np.frombuffer(starts, np.int64), np.frombuffer(ends, np.int64)


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
