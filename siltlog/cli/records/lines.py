"""Lines of a stream as Arrow arrays: what ends them is found block by block, and no line is handled by itself."""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

BLOCK_BYTES = 4 * 1024 * 1024
LINE_BYTES_MAX = 64 * 1024 * 1024
"""No record may be that large; without a limit a file without line ends would fill the memory."""
_WHITE = np.frombuffer(b" \t\n\r\f", np.uint8)


class Lines(NamedTuple):
    """`values` (binary) and the number of each in the stream, from 1; lines of nothing but white space are left out."""

    values: pa.Array
    numbers: npt.NDArray[np.int64]


class LineTooLong(ValueError):
    """The line of this number does not end within LINE_BYTES_MAX."""

    def __init__(self, number: int) -> None:
        super().__init__(f"it is longer than {LINE_BYTES_MAX} bytes; does the file have lines?")
        self.number = number


def lines_of(read: Callable[[int], bytes]) -> Iterator[Lines]:
    """Runs of lines, as `read(size)` brings them until it gives nothing: what was there at once comes at once.

    An end (`\\n`, `\\r\\n`) is no part of its line. Raises LineTooLong.
    """
    number = 1
    begun: list[bytes] = []
    begun_bytes = 0
    while block := read(BLOCK_BYTES):
        end = block.rfind(b"\n") + 1
        if end:
            whole = b"".join((*begun, block[:end]))
            lines = _split(whole, number)
            number += whole.count(b"\n")
            begun, begun_bytes = [], 0
            if len(lines.values):
                yield lines
        begun.append(block[end:])
        begun_bytes += len(block) - end
        if begun_bytes > LINE_BYTES_MAX:
            raise LineTooLong(number)
    last = _split(b"".join((*begun, b"\n")), number)
    if len(last.values):
        yield last


def _split(text: bytes, number: int) -> Lines:
    """`text` is lines, each with its end; the first has this number."""
    characters = np.frombuffer(text, np.uint8)
    ends = np.flatnonzero(characters == ord("\n")).astype(np.int32)
    count = len(ends)
    offsets = np.concatenate((np.zeros(1, np.int32), ends + np.int32(1)))
    with_ends = pa.BinaryArray.from_buffers(pa.binary(), count, [None, pa.py_buffer(offsets), pa.py_buffer(text)])
    values = pc.binary_slice(with_ends, 0, -1)
    if b"\r\n" in text:
        returned = characters[np.maximum(ends, 1) - 1] == ord("\r")
        returned &= ends > offsets[:-1]
        values = pc.if_else(pa.array(returned), pc.binary_slice(with_ends, 0, -2), values)
    numbers = np.arange(number, number + count, dtype=np.int64)
    doubtful = np.flatnonzero(np.isin(characters[offsets[:-1]], _WHITE))
    if len(doubtful):
        something = np.ones(count, bool)
        something[doubtful] = pc.match_substring_regex(values.take(pa.array(doubtful)), r"\S").to_numpy(False)
        values, numbers = values.filter(pa.array(something)), numbers[something]
    return Lines(values, numbers)
