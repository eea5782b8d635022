"""Structs in Thrift's compact protocol, as Parquet's footers, page headers and page indexes are, read strictly.

https://github.com/apache/thrift/blob/master/doc/specs/thrift-compact-protocol.md
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

I32 = 5
I64 = 6
BINARY = 8
BOOL = 2
_TRUE = 1
_BYTE = 3
_I16 = 4
_DOUBLE = 7
_LIST = 9
_SET = 10
_STRUCT = 12
_VARINT_BITS = {_I16: 16, I32: 32, I64: 64}
_WIDE = 15
"""A list's length that does not fit into four bits: a number follows."""


class ListOf(NamedTuple):
    of: Any
    """A Kind."""


Struct = Mapping[int, Any]
"""The Kind of each field by its id."""
Kind = int | ListOf | Struct
"""I32 and the like, a list, or a struct."""


class Reader:
    """Reads structs one after another; every read raises ValueError where the bytes are none."""

    def __init__(self, content: bytes | memoryview, position: int = 0) -> None:
        self._content = content
        self.position = position

    def struct(self, fields: Struct | None = None) -> dict[int, Any]:
        """Its values by the ids of their fields. With `fields` it may have no others, nor of other types."""
        values: dict[int, Any] = {}
        number = 0
        while head := self._byte():
            kind, step = head & 0x0F, head >> 4
            if not step:
                raise ValueError("a field of a header has no number")
            number += step
            if fields is not None and number not in fields:
                raise ValueError(f"a header has a field {number}")
            values[number] = self._value(kind, None if fields is None else fields[number], in_list=False)
        return values

    def _value(self, kind: int, wanted: Kind | None, *, in_list: bool) -> Any:
        if wanted is not None and _code(wanted) != (BOOL if kind == _TRUE else kind):
            raise ValueError("a field of a header is of another type")
        if kind in (_TRUE, BOOL):
            return self._byte() == _TRUE if in_list else kind == _TRUE
        if kind == _BYTE:
            return self._byte()
        if kind in _VARINT_BITS:
            number = self._varint(_VARINT_BITS[kind])
            return (number >> 1) ^ -(number & 1)
        if kind == _DOUBLE:
            return self._bytes(8)
        if kind == BINARY:
            return self._bytes(self._varint(32))
        if kind in (_LIST, _SET):
            return self._list(wanted.of if isinstance(wanted, ListOf) else None)
        if kind == _STRUCT:
            return self.struct(wanted if isinstance(wanted, Mapping) else None)
        raise ValueError("a field of a header is of a type that no page header has")

    def _list(self, wanted: Kind | None) -> list[Any]:
        head = self._byte()
        kind, length = head & 0x0F, head >> 4
        if length == _WIDE:
            length = self._varint(32)
        if length > len(self._content) - self.position:
            raise ValueError("a list is longer than what holds it")
        return [self._value(kind, wanted, in_list=True) for _ in range(length)]

    def _varint(self, bits: int) -> int:
        number = shift = 0
        while True:
            byte = self._byte()
            number |= (byte & 0x7F) << shift
            if byte < 0x80:
                break
            shift += 7
        if number >> bits or (shift and not byte):
            raise ValueError("a number is not written as its type is")
        return number

    def _byte(self) -> int:
        if self.position >= len(self._content):
            raise ValueError("a header is cut short")
        self.position += 1
        return self._content[self.position - 1]

    def _bytes(self, length: int) -> bytes:
        if length > len(self._content) - self.position:
            raise ValueError("a header is cut short")
        self.position += length
        return bytes(self._content[self.position - length : self.position])


def _code(kind: Kind) -> int:
    if isinstance(kind, ListOf):
        return _LIST
    return _STRUCT if isinstance(kind, Mapping) else kind
