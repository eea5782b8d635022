"""Arrow arrays from Python's and numpy's values and back, by their buffers.

`pyarrow.array` and some of its methods import pandas where that is installed, which takes half a second: too much for a
program that publishes one record.
"""

from array import array
from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

BINARY_BYTES_MAX = 2**31 - 1
"""The bytes that one binary array can hold."""
FEW = 64


def binary_array(values: Sequence[bytes | None]) -> pa.Array:
    """Shape (n,), null where a value is None. Raises OverflowError above BINARY_BYTES_MAX."""
    count = len(values)
    missing: npt.NDArray[np.bool_] | None = None
    if count <= FEW and None not in values:
        # numpy takes three times as long for one value, and as long for so many.
        few = array("i", accumulate(map(len, values), initial=0))  # type: ignore[arg-type]
        return pa.Array.from_buffers(pa.binary(), count, [None, pa.py_buffer(few), pa.py_buffer(b"".join(values))])  # type: ignore[arg-type]
    if None in values:
        missing = np.fromiter((value is None for value in values), np.bool_, count)
        values = [value or b"" for value in values]
    ends = np.zeros(count + 1, np.int64)
    np.cumsum(np.fromiter(map(len, values), np.int64, count), out=ends[1:])  # type: ignore[arg-type]
    if ends[-1] > BINARY_BYTES_MAX:
        raise OverflowError(f"{ends[-1]} bytes do not fit in one array")
    validity = None if missing is None else pa.py_buffer(np.packbits(~missing, bitorder="little"))
    buffers = [validity, pa.py_buffer(ends.astype(np.int32)), pa.py_buffer(b"".join(values))]  # type: ignore[arg-type]
    return pa.Array.from_buffers(pa.binary(), count, buffers)


def binary_values(array: pa.Array) -> list[bytes | None]:
    """The values of a binary or string array, as bytes."""
    count = len(array)
    missing = array.null_count
    if missing == count:
        return [None] * count
    _, offsets, data = array.buffers()
    ends = np.frombuffer(offsets, np.int32)[array.offset : array.offset + count + 1]
    first = int(ends[0])
    used = memoryview(data)[first : int(ends[-1])].tobytes() if data is not None else b""
    values: list[bytes | None] = [used[start:stop] for start, stop in pairwise((ends - first).tolist())]
    if missing:
        for at in np.flatnonzero(~validity_of(array)).tolist():
            values[at] = None
    return values


def fixed_array(numbers: Any, type_: pa.DataType) -> pa.Array:
    """`numbers` (shape (n,), an `array` or numpy's, of the width of `type_`) as an Arrow array without nulls."""
    return pa.Array.from_buffers(type_, len(numbers), [None, pa.py_buffer(numbers)])


def repeated_text(text: str, count: int) -> pa.Array:
    """Shape (count,): `text` in every row."""
    content = text.encode()
    ends = np.arange(count + 1, dtype=np.int32) * np.int32(len(content))
    return pa.StringArray.from_buffers(count, pa.py_buffer(ends), pa.py_buffer(content * count))


def numbers_of(array: pa.Array, dtype: type[np.generic]) -> npt.NDArray[Any]:
    """The values of an array of fixed width; where it is null, anything."""
    return np.frombuffer(array.buffers()[1], dtype)[array.offset : array.offset + len(array)]


def validity_of(array: pa.Array) -> npt.NDArray[np.bool_]:
    """Tells which values are not null; shape (n,)."""
    bitmap = array.buffers()[0]
    if bitmap is None:
        return np.ones(len(array), np.bool_)
    bits = np.unpackbits(np.frombuffer(bitmap, np.uint8), count=array.offset + len(array), bitorder="little")
    return bits[array.offset :].view(np.bool_)
