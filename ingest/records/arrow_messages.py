"""Tells how large an Arrow IPC stream becomes when its compressed buffers are inflated, without inflating them.

A few kilobytes of zstd may stand for gigabytes, and Arrow's reader inflates a message before anybody can look at it.
Each compressed buffer begins with its inflated size (Arrow columnar format, "Compression"); where the buffers are is
in the message's flatbuffer, whose few needed fields are read here. Arrow has verified it by then.
"""

import struct
from collections.abc import Iterator

import pyarrow as pa

_DICTIONARY_BATCH, _RECORD_BATCH = 2, 3
_MESSAGE_HEADER_TYPE, _MESSAGE_HEADER = 1, 2
_DICTIONARY_DATA = 1
_BATCH_BUFFERS, _BATCH_COMPRESSION = 2, 3
_PLACE = struct.Struct("<qq")
_I64, _I32, _U32, _U16, _U8 = (struct.Struct("<" + code) for code in "qiIHB")
_NOT_COMPRESSED = -1


class BrokenMessage(Exception):
    """The message that begins at byte `at` cannot be read."""

    def __init__(self, at: int, error: Exception) -> None:
        super().__init__(str(error))
        self.at = at


def inflated_within(body: bytes, bytes_max: int) -> bool:
    """Whether the compressed buffers of a stream come to `bytes_max` at most; True for one that is malformed."""
    try:
        return inflated_bytes(body) <= bytes_max
    except BrokenMessage:
        return True


def inflated_bytes(body: bytes) -> int:
    """The sum over the buffers of every compressed batch of a stream; 0 when none is compressed.

    Raises BrokenMessage where the stream is malformed.
    """
    source = pa.BufferReader(body)
    reader = pa.ipc.MessageReader.open_stream(source)
    total = 0
    while True:
        at = source.tell()
        try:
            message = reader.read_next_message()
            content = memoryview(message.body or b"")
            for offset, length in _compressed_buffers(message.metadata.to_pybytes()):
                if length:
                    total += _inflated(content, offset, length)
        except StopIteration:
            return total
        except (pa.ArrowException, struct.error, OSError, ValueError, MemoryError) as error:
            raise BrokenMessage(at, error) from None


def _inflated(content: memoryview, offset: int, length: int) -> int:
    size: int = _I64.unpack_from(content, offset)[0]
    if size == _NOT_COMPRESSED:
        return max(length - _I64.size, 0)
    if size < 0:
        raise pa.ArrowInvalid(f"a compressed buffer says that it has {size} bytes")
    return size


def _compressed_buffers(metadata: bytes) -> Iterator[tuple[int, int]]:
    """(offset, length) of the buffers of a batch that is compressed, from its Message (Arrow's Message.fbs)."""
    message: int = _U32.unpack_from(metadata, 0)[0]
    kind_at = _field(metadata, message, _MESSAGE_HEADER_TYPE)
    kind = _U8.unpack_from(metadata, kind_at)[0] if kind_at else 0
    batch = _table(metadata, message, _MESSAGE_HEADER)
    if kind == _DICTIONARY_BATCH and batch:
        batch = _table(metadata, batch, _DICTIONARY_DATA)
    elif kind != _RECORD_BATCH:
        return
    if not batch or not _field(metadata, batch, _BATCH_COMPRESSION):
        return
    buffers = _table(metadata, batch, _BATCH_BUFFERS)
    if buffers:
        count = _U32.unpack_from(metadata, buffers)[0]
        for i in range(count):
            yield _PLACE.unpack_from(metadata, buffers + _U32.size + i * _PLACE.size)


def _field(metadata: bytes, table: int, number: int) -> int:
    """Where a field of a flatbuffer table is; 0 when it is absent."""
    vtable = table - _I32.unpack_from(metadata, table)[0]
    slot = _U16.size * (2 + number)
    if slot >= _U16.unpack_from(metadata, vtable)[0]:
        return 0
    offset: int = _U16.unpack_from(metadata, vtable + slot)[0]
    return table + offset if offset else 0


def _table(metadata: bytes, table: int, number: int) -> int:
    """Where the table or vector is that a field points to; 0 when it is absent."""
    at = _field(metadata, table, number)
    return at + _U32.unpack_from(metadata, at)[0] if at else 0
