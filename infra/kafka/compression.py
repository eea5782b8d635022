"""Inflates the records of a batch, to a limit, and deflates them, by the codecs that Kafka has."""

import zlib
from collections.abc import Callable
from struct import Struct
from typing import Any

import pyarrow as pa
import xxhash

from siltlog.infra.kafka.wire import Buffer

NO_CODEC, GZIP, SNAPPY, LZ4, ZSTD = range(5)
_STREAMED = {GZIP: "gzip", LZ4: "lz4", ZSTD: "zstd"}
CODECS = frozenset((NO_CODEC, SNAPPY, *_STREAMED))
CODEC_NUMBERS = {"none": NO_CODEC, "snappy": SNAPPY, **{name: number for number, name in _STREAMED.items()}}
FIRST_PIECE_RATIO = 8
PIECE_BYTES_MIN = 64 * 1024
_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEAD_BYTES = 16
_XERIAL_VERSIONS = b"\0\0\0\1\0\0\0\1"
"""The version of the framing, and the lowest that reads it."""
_BLOCK = Struct(">i")
SNAPPY_RATIO_MAX = 22
"""A copy of 64 bytes takes three: no block of snappy stands for more than so many times its size."""
SNAPPY_SLACK_BYTES = 64
SNAPPY_BLOCK_BYTES = 64 * 1024
"""Snappy looks no further back for what it has seen."""
_LZ4_MAGIC = b"\x04\x22\x4d\x18"
_LZ4_VERSION_AND_INDEPENDENT_BLOCKS = 0b0110_0000
"""Java's client reads no other blocks, and Arrow writes others of more than 64 KiB."""
_LZ4_BLOCK_BYTES = {4: 64 * 1024, 5: 256 * 1024, 6: 1024 * 1024, 7: 4 * 1024 * 1024}
"""By their number in a frame's head."""
_LZ4_BLOCK = Struct("<I")
_LZ4_STORED = 1 << 31
_LZ4_BLOCK_CHECKSUM, _LZ4_SIZE, _LZ4_CHECKSUM, _LZ4_DICTIONARY = 1 << 4, 1 << 3, 1 << 2, 1
"""What the flags of a frame's head say that there is, too."""
_LZ4_BLOCKS_MAX = 1 << 16
"""No more are looked at to find the end of a frame; those of 64 KiB stand for 4 GiB."""
_LZ4_END = bytes(4)
_GZIP_MAGIC = b"\x1f\x8b"
_GZIP_WINDOW = zlib.MAX_WBITS | 16
"""Has zlib read gzip's own head and end."""
GZIP_LEVEL = 1
"""Takes a third of the time of the usual level, for a quarter more bytes."""
SMALL_BYTES = 128
"""What is smaller is sent as it is: the frame of a codec takes as much as there is to gain."""


def inflated(data: memoryview, codec: int, bytes_max: int) -> memoryview:
    """`data` inflated; as it is, whatever its size, without a codec.

    Raises ValueError where it is broken, and OverflowError where it stands for more than `bytes_max` bytes. `codec` is
    one of CODECS.
    """
    if codec == NO_CODEC:
        return data
    inflate = _OWN_WAYS.get(codec) or _streamed(_STREAMED[codec])
    # Below 0 a stream would read all that there is.
    return memoryview(inflate(data, max(bytes_max, 0)))


def deflated(data: Buffer | pa.Buffer, codec: int) -> Buffer | pa.Buffer:
    """`data` by `codec`, one of CODECS, in the form that every client of Kafka reads."""
    if codec == SNAPPY:
        return _xerial(memoryview(data))
    if codec == LZ4:
        return _lz4_frame(memoryview(data))
    if codec == GZIP:
        return _whole(data, pa.Codec("gzip", compression_level=GZIP_LEVEL))
    return _whole(data, pa.Codec("zstd")) if codec == ZSTD else data


def _whole(data: Any, codec: pa.Codec) -> pa.Buffer:
    found: pa.Buffer = codec.compress(pa.py_buffer(data))
    return found


def _xerial(data: memoryview) -> bytes:
    """Blocks in the framing of Java's library, which reads no other."""
    codec = pa.Codec("snappy")
    pieces: list[Any] = [_XERIAL_MAGIC, _XERIAL_VERSIONS]
    for at in range(0, len(data), SNAPPY_BLOCK_BYTES):
        block = codec.compress(pa.py_buffer(data[at : at + SNAPPY_BLOCK_BYTES]))
        pieces += (_BLOCK.pack(len(block)), block)
    return b"".join(pieces)


def _lz4_frame(data: memoryview) -> bytes:
    """A frame of independent blocks, which are as large as all of `data` where that may be."""
    number, size = next((each for each in _LZ4_BLOCK_BYTES.items() if len(data) <= each[1]), (7, _LZ4_BLOCK_BYTES[7]))
    head = bytes((_LZ4_VERSION_AND_INDEPENDENT_BLOCKS, number << 4))
    pieces: list[Any] = [_LZ4_MAGIC, head, bytes((xxhash.xxh32_intdigest(head) >> 8 & 0xFF,))]
    codec = pa.Codec("lz4_raw")
    for at in range(0, len(data), size):
        plain = data[at : at + size]
        block = codec.compress(pa.py_buffer(plain))
        if len(block) < len(plain):
            pieces += (_LZ4_BLOCK.pack(len(block)), block)
        else:
            pieces += (_LZ4_BLOCK.pack(len(plain) | _LZ4_STORED), plain)
    pieces.append(_LZ4_END)
    return b"".join(pieces)


def _streamed(codec: str) -> Callable[[memoryview, int], bytes]:
    def inflate(data: memoryview, bytes_max: int) -> bytes:
        pieces: list[bytes] = []
        size, ask = 0, max(len(data) * FIRST_PIECE_RATIO, PIECE_BYTES_MIN)
        try:
            with pa.CompressedInputStream(pa.BufferReader(pa.py_buffer(data)), codec) as stream:
                # One more than may be, so that what is above the limit shows.
                while piece := stream.read(min(ask, bytes_max + 1 - size)):
                    pieces.append(piece)
                    size, ask = size + len(piece), 2 * ask
                    if size > bytes_max:
                        raise OverflowError(f"its records inflate to more than {bytes_max} bytes")
        except OSError:
            raise _broken(codec) from None
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    return inflate


def _broken(codec: str) -> ValueError:
    return ValueError(f"its records are not {codec}, or they end too early")


def _gzip(data: memoryview, bytes_max: int) -> bytes:
    try:
        return _streamed("gzip")(data, bytes_max)
    except ValueError:
        return _gzip_and_rest(data, bytes_max)


def _gzip_and_rest(data: memoryview, bytes_max: int) -> bytes:
    """One stream, and bytes behind it that begin no other: Java's library passes over those, and so do Kafka's brokers.

    Only one is looked for: to find out where each of very many ends would take for ever.
    """
    stream = zlib.decompressobj(wbits=_GZIP_WINDOW)
    try:
        found = stream.decompress(data, bytes_max + 1)
    except zlib.error:
        raise _broken("gzip") from None
    if len(found) > bytes_max:
        raise OverflowError(f"its records inflate to more than {bytes_max} bytes")
    if not stream.eof or stream.unused_data[: len(_GZIP_MAGIC)] == _GZIP_MAGIC:
        raise _broken("gzip")
    return found


def _lz4(data: memoryview, bytes_max: int) -> bytes:
    """One frame, or several; where bytes follow that are no frame, the first, as Java's reader and Kafka's brokers."""
    inflate = _streamed("lz4")
    try:
        return inflate(data, bytes_max)
    except ValueError:
        end = _lz4_frame_end(data)
        if end >= len(data):
            raise
        return inflate(data[:end], bytes_max)


def _lz4_frame_end(data: memoryview) -> int:
    """Where the first frame ends; the end of `data`, or one behind it, where that cannot be told."""
    if len(data) < len(_LZ4_MAGIC) + 3 or data[: len(_LZ4_MAGIC)] != _LZ4_MAGIC:
        return len(data)
    flags = data[len(_LZ4_MAGIC)]
    at = len(_LZ4_MAGIC) + 3 + 8 * bool(flags & _LZ4_SIZE) + 4 * bool(flags & _LZ4_DICTIONARY)
    for _ in range(_LZ4_BLOCKS_MAX):
        if at + _LZ4_BLOCK.size > len(data):
            break
        (head,) = _LZ4_BLOCK.unpack_from(data, at)
        at += _LZ4_BLOCK.size
        if head == 0:
            return at + 4 * bool(flags & _LZ4_CHECKSUM)
        at += (head & ~_LZ4_STORED) + 4 * bool(flags & _LZ4_BLOCK_CHECKSUM)
    return len(data)


def _snappy(data: memoryview, bytes_max: int) -> bytes:
    """Takes one block, or blocks in the framing of Java's library."""
    if data[: len(_XERIAL_MAGIC)] != _XERIAL_MAGIC:
        return _snappy_block(data, bytes_max)
    pieces: list[bytes] = []
    size, at = 0, _XERIAL_HEAD_BYTES
    while at < len(data):
        if at + _BLOCK.size > len(data):
            raise ValueError("its records end within a block of snappy")
        (length,) = _BLOCK.unpack_from(data, at)
        at += _BLOCK.size
        if not 0 <= length <= len(data) - at:
            raise ValueError(f"a block of snappy has {length} bytes, and {len(data) - at} are left")
        pieces.append(_snappy_block(data[at : at + length], bytes_max - size))
        size += len(pieces[-1])
        at += length
    return b"".join(pieces)


def _snappy_block(block: memoryview, bytes_max: int) -> bytes:
    size = shift = 0
    for byte in block[:5]:
        size |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            break
    if size > len(block) * SNAPPY_RATIO_MAX + SNAPPY_SLACK_BYTES:
        raise ValueError(f"a block of snappy of {len(block)} bytes cannot stand for {size}")
    if size > bytes_max:
        raise OverflowError("its records inflate to more than what is taken")
    try:
        found: bytes = pa.decompress(pa.py_buffer(block), size, "snappy", asbytes=True)
    except OSError:
        raise ValueError("its records are not snappy") from None
    return found


_OWN_WAYS = {SNAPPY: _snappy, GZIP: _gzip, LZ4: _lz4}
