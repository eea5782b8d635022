"""The pages of a Parquet file, walked so that every byte before its footer is accounted for.

A checksum covers a page's bytes and not its header, so what headers say is held against the footer, which the log has a
checksum of, and against the pages: their places, sizes, values, encodings and levels. What no reader needs to read the
records may still be wrong in a header (its statistics).
https://github.com/apache/parquet-format/blob/master/src/main/thrift/parquet.thrift
"""

import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from siltlog.pipelines.audit.thrift_compact import BINARY, BOOL, I32, I64, ListOf, Reader

MAGIC = b"PAR1"
_TAIL_BYTES = 8
_DATA_PAGE, _DICTIONARY_PAGE, _DATA_PAGE_V2 = 0, 2, 3
_LEVEL_ENCODINGS = (3, 4)
"""RLE, and BIT_PACKED where there are none."""
_UNKNOWN_NULLS = -1
_STATISTICS = {1: BINARY, 2: BINARY, 3: I64, 4: I64, 5: BINARY, 6: BINARY, 7: BOOL, 8: BOOL}
_PAGE_HEADER = {
    1: I32,  # type
    2: I32,  # size when inflated
    3: I32,  # size
    4: I32,  # CRC-32
    5: {1: I32, 2: I32, 3: I32, 4: I32, 5: _STATISTICS},  # values, encoding, that of the levels
    7: {1: I32, 2: I32, 3: BOOL},  # a dictionary: values, encoding
    # values, nulls, rows, encoding, bytes of definition and of repetition levels, whether it is compressed
    8: {1: I32, 2: I32, 3: I32, 4: I32, 5: I32, 6: I32, 7: BOOL, 8: _STATISTICS},
}
_OFFSET_INDEX = {1: ListOf({1: I64, 2: I32, 3: I64}), 2: ListOf(I64)}
_COLUMN_INDEX = {
    1: ListOf(BOOL),
    2: ListOf(BINARY),
    3: ListOf(BINARY),
    4: I32,
    5: ListOf(I64),
    6: ListOf(I64),
    7: ListOf(I64),
}


class Place(NamedTuple):
    """Bytes [start, end) that something has."""

    start: int
    end: int


@dataclass(frozen=True)
class _Chunk:
    """A column of a row group as the footer has it."""

    name: str
    place: Place
    values: int
    rows: int
    inflated_bytes: int
    encodings: Counter[tuple[bool, int]]
    """How many pages there are of each encoding, dictionaries apart; Arrow says of no data page its right version."""
    level_bits: tuple[int, int]
    """Bits of a repetition level and of a definition level."""
    level_max: int
    offset_index: Place | None
    column_index: Place | None
    bloom_filter: Place | None


class _Page(NamedTuple):
    offset: int
    size: int
    """Bytes, with the header."""
    first_row: int | None


def chunks_without_checksum(source: pa.NativeFile, metadata: pq.FileMetaData) -> set[str]:
    """The columns that have a page without a checksum.

    Raises ValueError where anything before the footer is not as the footer and the pages themselves say. A column
    chunk is in memory at a time.
    """
    size = source.size()
    footer_bytes = int.from_bytes(source.read_at(_TAIL_BYTES, size - _TAIL_BYTES)[:4], "little")
    footer_start = size - _TAIL_BYTES - footer_bytes
    if source.read_at(len(MAGIC), 0) != MAGIC:
        raise ValueError("it does not begin as a Parquet file does")
    footer = Reader(source.read_at(footer_bytes, footer_start)).struct()
    places = [Place(0, len(MAGIC))]
    without = set()
    for chunk in _chunks(footer, metadata):
        pages, protected = _walk(source.read_at(chunk.place.end - chunk.place.start, chunk.place.start), chunk)
        if not protected:
            without.add(chunk.name)
        places.append(chunk.place)
        for index, check in ((chunk.offset_index, _check_offset_index), (chunk.column_index, _check_column_index)):
            if index is not None:
                check(source.read_at(index.end - index.start, index.start), chunk, pages)
                places.append(index)
        if chunk.bloom_filter is not None:
            places.append(chunk.bloom_filter)
    _check_places(places, footer_start)
    return without


def _chunks(footer: dict[int, Any], metadata: pq.FileMetaData) -> Iterator[_Chunk]:
    for group in footer.get(4, []):
        for number, column in enumerate(group[1]):
            said = column[3]
            start = min(said[9], said.get(11) or said[9])
            leaf = metadata.schema.column(number)
            levels = leaf.max_repetition_level, leaf.max_definition_level
            yield _Chunk(
                leaf.path,
                Place(start, start + said[7]),
                said[5],
                group[3],
                said[6],
                _counted(said.get(13, [])),
                (levels[0].bit_length(), levels[1].bit_length()),
                levels[1],
                Place(column[4], column[4] + column[5]) if 4 in column else None,
                Place(column[6], column[6] + column[7]) if 6 in column else None,
                Place(said[14], said[14] + said[15]) if {14, 15} <= said.keys() else None,
            )


def _walk(content: bytes, chunk: _Chunk) -> tuple[list[_Page], bool]:
    """The data pages of a chunk, and whether each of its pages has a checksum."""
    pages: list[_Page] = []
    encodings: Counter[tuple[bool, int]] = Counter()
    position = values = inflated = row = 0
    protected = True
    while position < len(content):
        reader = Reader(content, position)
        header = reader.struct(_PAGE_HEADER)
        end = reader.position + _size(header, 3)
        if end > len(content):
            raise ValueError(f"a page of {chunk.name} is longer than its column")
        body = content[reader.position : end]
        crc = header.get(4)
        protected &= crc is not None
        if crc is not None and zlib.crc32(body) != crc % 2**32:
            raise ValueError(f"a page of {chunk.name} fails its checksum")
        inflated += reader.position - position + _size(header, 2)
        encodings[_kind(header, chunk)] += 1
        if header[1] != _DICTIONARY_PAGE:
            pages.append(_Page(chunk.place.start + position, end - position, row))
            values += _size(header[5 if header[1] == _DATA_PAGE else 8], 1)
            if values > chunk.values:
                raise ValueError(f"the pages of {chunk.name} have more than {chunk.values} values")
        if header[1] == _DATA_PAGE_V2:
            _check_levels(header[8], body, chunk)
            row += header[8][3]
        position = end
    if values != chunk.values:
        raise ValueError(f"the pages of {chunk.name} have {values} values, not {chunk.values}")
    if row and row != chunk.rows:
        raise ValueError(f"the pages of {chunk.name} have {row} rows, not {chunk.rows}")
    if inflated != chunk.inflated_bytes or (chunk.encodings and encodings != chunk.encodings):
        raise ValueError(f"the pages of {chunk.name} are of other sizes, types or encodings than its footer says")
    return pages, protected


def _counted(statistics: Sequence[dict[int, int]]) -> Counter[tuple[bool, int]]:
    counted: Counter[tuple[bool, int]] = Counter()
    for each in statistics:
        counted[each[1] == _DICTIONARY_PAGE, each[2]] += each[3]
    return counted


def _kind(header: dict[int, Any], chunk: _Chunk) -> tuple[bool, int]:
    """Whether a page is a dictionary, and its encoding.

    Raises ValueError unless its header has what a page of that type has.
    """
    kind: int = header.get(1, -1)
    described = {_DATA_PAGE: 5, _DICTIONARY_PAGE: 7, _DATA_PAGE_V2: 8}.get(kind)
    if described is None or header.keys() & {5, 7, 8} != {described}:
        raise ValueError(f"a page of {chunk.name} is of no type that there is")
    page = header[described]
    needed = {_DATA_PAGE: {1, 2, 3, 4}, _DICTIONARY_PAGE: {1, 2}, _DATA_PAGE_V2: {1, 2, 3, 4, 5, 6}}[kind]
    if not needed <= page.keys():
        raise ValueError(f"the header of a page of {chunk.name} is not whole")
    if kind == _DATA_PAGE and not {page[3], page[4]} <= {*_LEVEL_ENCODINGS}:
        raise ValueError(f"the levels of a page of {chunk.name} are of no encoding that there is")
    return kind == _DICTIONARY_PAGE, page[4 if kind == _DATA_PAGE_V2 else 2]


def _size(struct: dict[int, Any], field: int) -> int:
    size: int = struct.get(field, -1)
    if size < 0:
        raise ValueError("a page has no size")
    return size


def _check_levels(page: dict[int, Any], body: bytes, chunk: _Chunk) -> None:
    """Raises ValueError unless the levels of a page, which are not compressed, have the rows and nulls it says."""
    repetition_bytes, definition_bytes = _size(page, 6), _size(page, 5)
    if repetition_bytes + definition_bytes > len(body):
        raise ValueError(f"the levels of a page of {chunk.name} are longer than the page")
    repetition = _levels(body[:repetition_bytes], chunk.level_bits[0], page[1])
    definition = _levels(body[repetition_bytes : repetition_bytes + definition_bytes], chunk.level_bits[1], page[1])
    nulls = page[1] - int(np.count_nonzero(definition == chunk.level_max))
    if page[3] != int(np.count_nonzero(repetition == 0)) or page[2] not in (nulls, _UNKNOWN_NULLS):
        raise ValueError(f"a page of {chunk.name} has not as many rows or nulls as its header says")


def _levels(content: bytes, bits: int, count: int) -> "np.ndarray[Any, np.dtype[np.uint8]]":
    """Levels in Parquet's hybrid of runs and packed bits, which have to take all of `content`."""
    if not bits:
        if content:
            raise ValueError("levels where there are none")
        return np.zeros(count, np.uint8)
    runs: list[np.ndarray[Any, np.dtype[np.uint8]]] = []
    position = found = 0
    while position < len(content):
        head, position = _run_head(content, position)
        if head & 1:
            packed = content[position : position + (head >> 1) * bits]
            position += (head >> 1) * bits
            each = np.unpackbits(np.frombuffer(packed, np.uint8), bitorder="little").reshape(-1, bits)
            runs.append((each << np.arange(bits, dtype=np.uint8)).sum(axis=1, dtype=np.uint8))
        else:
            if head >> 1 > count - found:
                raise ValueError("levels for more values than there are")
            runs.append(np.full(head >> 1, content[position] if position < len(content) else 0, np.uint8))
            position += 1
        found += len(runs[-1])
    if position != len(content) or not count <= found < count + 8:
        raise ValueError("levels for other values than there are")
    return np.concatenate([np.zeros(0, np.uint8), *runs])[:count]


def _run_head(content: bytes, position: int) -> tuple[int, int]:
    """The number at `position`, and where what follows it begins."""
    number = shift = 0
    while position < len(content):
        number |= (content[position] & 0x7F) << shift
        shift += 7
        position += 1
        if content[position - 1] < 0x80:
            break
    return number, position


def _check_offset_index(content: bytes, chunk: _Chunk, pages: Sequence[_Page]) -> None:
    reader = Reader(content)
    places = reader.struct(_OFFSET_INDEX).get(1, [])
    found = [(place.get(1), place.get(2)) for place in places]
    rows = [place.get(3) for place in places]
    wanted_rows = [page.first_row for page in pages]
    if reader.position != len(content) or found != [(page.offset, page.size) for page in pages]:
        raise ValueError(f"the index of the pages of {chunk.name} names other pages than there are")
    if rows != wanted_rows and any(wanted_rows):
        raise ValueError(f"the index of the pages of {chunk.name} names other rows than they have")
    if rows[:1] != [0][: len(rows)] or rows != sorted(rows):
        raise ValueError(f"the index of the pages of {chunk.name} names no rows in their order")


def _check_column_index(content: bytes, chunk: _Chunk, pages: Sequence[_Page]) -> None:
    reader = Reader(content)
    index = reader.struct(_COLUMN_INDEX)
    lengths = {len(index.get(field, ())) for field in (1, 2, 3)}
    if reader.position != len(content) or lengths != {len(pages)} or index.get(4) not in (0, 1, 2):
        raise ValueError(f"the index of the values of {chunk.name} is not of its pages")


def _check_places(places: list[Place], footer_start: int) -> None:
    position = 0
    for place in sorted(places):
        if place.start != position:
            raise ValueError(f"bytes {position} to {place.start} are of no page, or of two")
        position = place.end
    if position != footer_start:
        raise ValueError(f"bytes {position} to {footer_start} are of no page")
