"""Whether the pages of a Parquet file carry checksums: no footer says, only the header of a page itself.

A page header is a Thrift struct in the compact protocol: type, sizes, then the optional `crc`
(https://github.com/apache/parquet-format/blob/master/src/main/thrift/parquet.thrift). A writer gives every page of a
column chunk a checksum or none, so the first page tells.
"""

import pyarrow as pa
import pyarrow.parquet as pq

HEADER_BYTES = 32
"""More than a header has up to its fourth field."""
_I32 = 5
_CRC_FIELD = 4


def chunks_without_checksum(source: pa.NativeFile, metadata: pq.FileMetaData) -> set[str]:
    """The columns of which a chunk begins with a page that has no checksum. Raises ValueError for one that is none."""
    found = set()
    for index in range(metadata.num_row_groups):
        group = metadata.row_group(index)
        for number in range(group.num_columns):
            chunk = group.column(number)
            start = min(
                offset for offset in (chunk.dictionary_page_offset, chunk.data_page_offset) if offset is not None
            )
            if chunk.num_values and not has_checksum(source.read_at(HEADER_BYTES, start)):
                found.add(chunk.path_in_schema)
    return found


def has_checksum(header: bytes) -> bool:
    """Whether the page header that `header` begins with has the field `crc`. Raises ValueError for no page header."""
    position, number = 0, 0
    while position < len(header):
        head = header[position]
        position += 1
        if head & 0x0F != _I32 or head >> 4 == 0:
            if number == 0:
                raise ValueError("a column does not begin with a page")
            return False
        number += head >> 4
        if number >= _CRC_FIELD:
            return number == _CRC_FIELD
        while position < len(header) and header[position] & 0x80:
            position += 1
        position += 1
    raise ValueError("a column does not begin with a page")
