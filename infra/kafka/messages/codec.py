"""One message in one version, read and written by the native codec where there is one, else by closures."""

from collections.abc import Mapping
from typing import Any

from siltlog.infra.arrow.pieces import joined
from siltlog.infra.kafka import native
from siltlog.infra.kafka.messages.compiling import struct_reader, struct_writer
from siltlog.infra.kafka.messages.schema import Field
from siltlog.infra.kafka.wire import Budget, Buffer, Frame

PIECE_BYTES_MIN = 16 * 1024
"""A buffer of this size is a piece of its own; smaller ones are joined with their neighbours."""


class MessageCodec:
    """Closures do what the native codec does not take, and say what is wrong with it."""

    def __init__(self, fields: tuple[Field, ...], version: int, flexible: bool) -> None:
        self._read = struct_reader(fields, version, flexible)
        self._write = struct_writer(fields, version, flexible)
        self._native = native.message(fields, version, flexible)

    def read(self, frame: Frame, at: int, elements_max: int) -> tuple[dict[str, Any], int]:
        """The fields of the message that begins at `at`, and the place after it. Raises Malformed, TooMany among it."""
        if self._native is not None:
            found: tuple[dict[str, Any], int] | None = self._native.read(frame, at, elements_max)
            if found is not None:
                return found
        return self._read(frame, at, Budget(elements_max))

    def pieces(self, head: bytes, value: Mapping[str, Any]) -> list[Buffer]:
        """`head` and the message after it, in pieces. Raises ValueError."""
        if self._native is not None:
            found: list[Buffer] | None = self._native.write(head, value, PIECE_BYTES_MIN)
            if found is not None:
                return found
        pieces: list[Buffer] = [head]
        self._write(value, pieces.append)
        return joined(pieces, PIECE_BYTES_MIN - 1)
