"""Gives the output of Arrow's writer as a list of buffers: the bodies of large columns are not copied."""

from collections.abc import Iterable
from typing import TypeAlias, TypeVar

import pyarrow as pa

Piece: TypeAlias = "bytes | pa.Buffer"
P = TypeVar("P", bound="bytes | memoryview | pa.Buffer")


class Pieces:
    """A file for `pyarrow.PythonFile`. The first `skip_bytes`, which must end where a piece ends, are dropped."""

    closed = False

    def __init__(self, skip_bytes: int = 0) -> None:
        self.pieces: list[Piece] = []
        self._skip_bytes = skip_bytes

    def write(self, data: Piece) -> int:
        size = len(data)
        if self._skip_bytes:
            self._skip_bytes -= size
            assert self._skip_bytes >= 0
        else:
            self.pieces.append(data)
        return size

    def take(self) -> list[Piece]:
        """What has been written and was not taken."""
        taken, self.pieces = self.pieces, []
        return taken

    def writable(self) -> bool:
        return True

    def flush(self) -> None:
        """Nothing is held back."""

    def close(self) -> None:
        """The pieces outlive the writer."""


def joined(pieces: Iterable[P], small_bytes_max: int) -> list[P | bytes]:
    """The pieces in order; neighbours of at most `small_bytes_max` each become one."""
    out: list[P | bytes] = []
    small: list[P] = []
    for piece in pieces:
        if len(piece) <= small_bytes_max:
            small.append(piece)
            continue
        if small:
            out.append(b"".join(small))
            small = []
        out.append(piece)
    if small:
        out.append(b"".join(small))
    return out
