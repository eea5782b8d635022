"""Arrow arrays from Python's and numpy's values and back, by their buffers.

`pyarrow.array` and some of its methods import pandas where that is installed, which takes half a second: too much for a
program that publishes one record.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

BINARY_BYTES_MAX = 2**31 - 1
"""What one binary array can hold."""


def binary_array(values: Sequence[bytes | None]) -> pa.Array:
    """Shape (n,), null where a value is None. Raises OverflowError above BINARY_BYTES_MAX."""
    count = len(values)
    missing: npt.NDArray[np.bool_] | None = None
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


def fixed_array(numbers: Any, type_: pa.DataType) -> pa.Array:
    """`numbers` (shape (n,), an `array` or numpy's, of the width of `type_`) as an Arrow array without nulls."""
    return pa.Array.from_buffers(type_, len(numbers), [None, pa.py_buffer(numbers)])


def numbers_of(array: pa.Array, dtype: type[np.generic]) -> npt.NDArray[Any]:
    """The values of an array of fixed width; where it is null, anything."""
    return np.frombuffer(array.buffers()[1], dtype)[array.offset : array.offset + len(array)]


def validity_of(array: pa.Array) -> npt.NDArray[np.bool_]:
    """Where it is not null; shape (n,)."""
    bitmap = array.buffers()[0]
    if bitmap is None:
        return np.ones(len(array), np.bool_)
    bits = np.unpackbits(np.frombuffer(bitmap, np.uint8), count=array.offset + len(array), bitorder="little")
    return bits[array.offset :].view(np.bool_)
