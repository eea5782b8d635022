"""CRC-32C (Castagnoli, RFC 3720), of frames of the write-ahead log and of whole data files; processors compute it."""

import google_crc32c
import pyarrow as pa

_PIECE_BYTES = 1024 * 1024
"""The interpreter's lock is held for so much at a time, a tenth of a millisecond."""


def crc32c(data: pa.Buffer | bytes, start: int = 0) -> int:
    checksum: int = google_crc32c.extend(start, data)
    return checksum


def crc32c_in_pieces(data: pa.Buffer) -> int:
    """Gives the same as `crc32c`, and lets other threads run between the pieces."""
    crc = 0
    for first in range(0, data.size, _PIECE_BYTES):
        crc = crc32c(data.slice(first, min(_PIECE_BYTES, data.size - first)), crc)
    return crc


def crc32c_of(source: pa.NativeFile, piece_bytes: int) -> int:
    """Gives the CRC32C of `source` from its position to its end, with `piece_bytes` of it in memory at a time."""
    crc = 0
    while (piece := source.read_buffer(piece_bytes)).size:
        crc = crc32c(piece, crc)
    return crc
