"""Primitives of Kafka's wire protocol: lengths, text, bytes, variable-length numbers, read and written.

A reader takes a frame and a place in it and gives the value and the place after it. It raises Malformed, or IndexError
or `struct.error` where the bytes end: who reads a whole struct makes one error of those. No reader makes anything of a
length before it has seen that so many bytes are there.
"""

from collections.abc import Callable, Sequence
from struct import Struct
from typing import Any

Frame = memoryview
"""A frame as it is read: of format `B`."""
Buffer = bytes | memoryview
Reader = Callable[[Frame, int, "Budget"], tuple[Any, int]]
Out = Callable[[Any], None]
"""Takes the next piece of a frame that is written."""
Writer = Callable[[Any, Out], None]

ELEMENTS_MAX = 100_000
"""All arrays of a frame have so many at most. An element may take two bytes, and hundreds of them once it is a dict."""

_INT16 = Struct(">h")
_INT32 = Struct(">i")
_VARINT_BYTES_MAX = 5
_UINT32_MAX = 2**32 - 1
_UUID_BYTES = 16
_INT16_MAX = 2**15 - 1


class Malformed(Exception):
    """A frame is not what the protocol says: `what` is wrong with it, and `where` is the path of the field."""

    def __init__(self, what: str, where: str = "") -> None:
        super().__init__(f"{where}: {what}" if where else what)
        self.what = what
        self.where = where

    def within(self, name: str) -> "Malformed":
        """The same error, seen from the struct or array that has the field `name`."""
        dot = "." if self.where and not self.where.startswith("[") else ""
        return type(self)(self.what, f"{name}{dot}{self.where}")


class TooMany(Malformed):
    """The arrays of a frame have more elements than its reader may take."""


class Budget:
    """How many elements of arrays there may still be, while a frame is read."""

    __slots__ = ("_elements_max", "elements")

    def __init__(self, elements_max: int = ELEMENTS_MAX) -> None:
        self.elements = self._elements_max = elements_max

    def take(self, count: int) -> None:
        """Raises TooMany."""
        self.elements -= count
        if self.elements < 0:
            raise TooMany(f"the arrays of a frame have more than {self._elements_max} elements in all")


def read_uvarint(frame: Frame, at: int) -> tuple[int, int]:
    """An unsigned number of at most 32 bits, seven of them a byte, the lowest first."""
    byte = frame[at]
    if byte < 0x80:
        return byte, at + 1
    value, shift, end = byte & 0x7F, 7, at + _VARINT_BYTES_MAX
    at += 1
    while at < end:
        byte = frame[at]
        value |= (byte & 0x7F) << shift
        at += 1
        if byte < 0x80:
            if value > _UINT32_MAX:
                break
            return value, at
        shift += 7
    raise Malformed("a number of variable length is above 32 bits")


def uvarint(value: int) -> bytes:
    if 0 <= value < 0x80:
        return bytes((value,))
    if not 0 <= value <= _UINT32_MAX:
        raise ValueError(f"{value} is not within 32 bits")
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def read_length16(frame: Frame, at: int) -> tuple[int, int]:
    """A length before the bytes it is of; -1 stands for null."""
    length: int = _INT16.unpack_from(frame, at)[0]
    return length, at + 2


def read_length32(frame: Frame, at: int) -> tuple[int, int]:
    """Does what `read_length16` does, for four bytes."""
    length: int = _INT32.unpack_from(frame, at)[0]
    return length, at + 4


def read_compact_length(frame: Frame, at: int) -> tuple[int, int]:
    """Does what `read_length16` does, for a number of variable length, which is one more."""
    length, at = read_uvarint(frame, at)
    return length - 1, at


def write_length16(length: int) -> bytes:
    if length > _INT16_MAX:
        raise ValueError(f"{length} bytes of text do not fit: at most {_INT16_MAX}")
    return _INT16.pack(length)


def write_length32(length: int) -> bytes:
    return _INT32.pack(length)


def write_compact_length(length: int) -> bytes:
    return uvarint(length + 1)


ReadLength = Callable[[Frame, int], tuple[int, int]]
WriteLength = Callable[[int], bytes]


def bytes_reader(read_length: ReadLength, nullable: bool, of: Callable[[Frame], Any]) -> Reader:
    """Reads a length and gives what `of` makes of so many bytes, which it gets as a view."""

    def read(frame: Frame, at: int, _: Budget) -> tuple[Any, int]:
        length, at = read_length(frame, at)
        end = at + length
        if length < 0:
            if nullable and length == -1:
                return None, at
            raise Malformed("it is null" if length == -1 else f"its length is {length}")
        if end > len(frame):
            raise Malformed(f"it has {length} bytes, and {len(frame) - at} are left")
        return of(frame[at:end]), end

    return read


def text_of(view: Frame) -> str:
    try:
        return str(view, "utf-8")
    except UnicodeDecodeError as error:
        raise Malformed(f"it is not UTF-8 at byte {error.start}") from None


def untouched(view: Frame) -> Frame:
    return view


def text_writer(write_length: WriteLength, nullable: bool) -> Writer:
    def write(value: str | None, out: Out) -> None:
        if value is None:
            out(_null(write_length, nullable))
            return
        data = value.encode()
        out(write_length(len(data)) + data)

    return write


def bytes_writer(write_length: WriteLength, nullable: bool) -> Writer:
    """Writes bytes, or a list of buffers one after the other; large ones are pieces of their own."""

    def write(value: Buffer | Sequence[Buffer] | None, out: Out) -> None:
        if value is None:
            out(_null(write_length, nullable))
            return
        pieces = value if isinstance(value, list | tuple) else (value,)
        views = [memoryview(piece).cast("B") for piece in pieces]
        out(write_length(sum(map(len, views))))
        for view in views:
            out(view)

    return write


def write_uuid(value: bytes, out: Out) -> None:
    if len(value) != _UUID_BYTES:
        raise ValueError(f"it has {len(value)} bytes, not {_UUID_BYTES}")
    out(bytes(value))


def array_reader(read_length: ReadLength, nullable: bool, read_element: Reader, element_bytes_min: int) -> Reader:
    """Reads a count and so many elements, each of at least `element_bytes_min` bytes."""

    def read(frame: Frame, at: int, budget: Budget) -> tuple[Any, int]:
        count, at = read_length(frame, at)
        if count < 0:
            if nullable and count == -1:
                return None, at
            raise Malformed("it is null" if count == -1 else f"its count is {count}")
        if count * element_bytes_min > len(frame) - at:
            raise Malformed(f"{count} elements do not fit into the {len(frame) - at} bytes that are left")
        budget.take(count)
        values = []
        try:
            for _ in range(count):
                value, at = read_element(frame, at, budget)
                values.append(value)
        except Malformed as error:
            raise error.within(f"[{len(values)}]") from None
        return values, at

    return read


def array_writer(write_length: WriteLength, nullable: bool, write_element: Writer) -> Writer:
    def write(values: Sequence[Any] | None, out: Out) -> None:
        if values is None:
            out(_null(write_length, nullable))
            return
        out(write_length(len(values)))
        for value in values:
            write_element(value, out)

    return write


def _null(write_length: WriteLength, nullable: bool) -> bytes:
    if not nullable:
        raise ValueError("it cannot be null in this version")
    return write_length(-1)
