"""The footer of a Parquet file: its bytes at the file's end, and what it says of row groups."""

import zlib
from collections.abc import Container, Iterable
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


class Together(NamedTuple):
    """Row groups whose offsets lie among each other, as another program's OPTIMIZE writes them; mostly just one."""

    first: int
    last: int
    rows: int
    indices: list[int]


def groups_together(metadata: pq.FileMetaData) -> list[Together]:
    """All row groups, the lowest offsets first. Raises ValueError where one has no statistics of its offsets."""
    groups = [metadata.row_group(index) for index in range(metadata.num_row_groups)]
    bounds = [stored_bounds(group, "offset") for group in groups]
    together: list[Together] = []
    for index in sorted(range(len(groups)), key=bounds.__getitem__):
        first, last = bounds[index]
        rows, indices = groups[index].num_rows, [index]
        if together and first <= together[-1].last:
            before = together.pop()
            first, last = before.first, max(before.last, last)
            rows, indices = before.rows + rows, before.indices + indices
        together.append(Together(first, last, rows, indices))
    return together


def columns_bytes(metadata: pq.FileMetaData, indices: Iterable[int], columns: Container[str]) -> int:
    """The bytes of these columns in these row groups, not compressed."""
    groups = [metadata.row_group(index) for index in indices]
    chunks = (group.column(index) for group in groups for index in range(group.num_columns))
    return sum(chunk.total_uncompressed_size for chunk in chunks if chunk.path_in_schema.split(".")[0] in columns)


def _column_chunk(group: Any, name: str) -> Any:
    for index in range(group.num_columns):
        chunk = group.column(index)
        if chunk.path_in_schema == name:
            return chunk
    raise ValueError(f"there is no column {name}")
