"""The footer of a Parquet file: its bytes at the file's end, and what it says of row groups."""

import zlib
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

FOOTER_GUESS_BYTES = 32 * 1024
"""One read takes so much of a file's end; a footer nearly always lies in it."""
_FOOTER_TAIL_BYTES = 8


class Footer(NamedTuple):
    content: bytes
    """The footer, its length and the magic bytes: the file's end."""
    crc: int

    def metadata(self) -> pq.FileMetaData:
        return pq.read_metadata(pa.BufferReader(self.content))


def read_footer(source: pa.NativeFile) -> Footer:
    """Raises ValueError when the file does not end as a Parquet file does."""
    size = source.size()
    content = source.read_at(min(size, FOOTER_GUESS_BYTES), max(0, size - FOOTER_GUESS_BYTES))
    if len(content) < _FOOTER_TAIL_BYTES or content[-4:] != b"PAR1":
        raise ValueError("it does not end as a Parquet file does")
    length = int.from_bytes(content[-8:-4], "little") + _FOOTER_TAIL_BYTES
    if length > size:
        raise ValueError("its footer is longer than the file")
    if length > len(content):
        content = source.read_at(length, size - length)
    content = content[-length:]
    return Footer(content, zlib.crc32(content))


def stored_bounds(group: Any, name: str) -> tuple[int, int]:
    """Minimum and maximum in a row group's statistics, as stored."""
    statistics = _column_chunk(group, name).statistics
    if statistics is None or not statistics.has_min_max:
        raise ValueError(f"its footer has no statistics of {name}")
    return int(statistics.min_raw), int(statistics.max_raw)


def _column_chunk(group: Any, name: str) -> Any:
    for index in range(group.num_columns):
        chunk = group.column(index)
        if chunk.path_in_schema == name:
            return chunk
    raise ValueError(f"there is no column {name}")
