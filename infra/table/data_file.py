"""One Parquet file of a topic-partition: writing it, reading it, and what is known of it without opening it.

What a DataFile says of its records is what the Delta log says (the statistics of its Add action), so that a file that
was just written, one read from the log and one read from its footer are equal.
"""

import json
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from siltlog.infra import delta_names, names
from siltlog.infra.arrow.arrays import fixed_array, numbers_of
from siltlog.infra.clock import format_us, parse_us
from siltlog.infra.columns import FILE_SCHEMA, TABLE_SCHEMA
from siltlog.infra.errors import on_one_line, problem
from siltlog.infra.store.store import COPY_BYTES, ObjectStore, Readable
from siltlog.infra.table.footer import columns_bytes, groups_together, read_footer, stored_bounds

MIB = 1024 * 1024
ROW_GROUP_ROWS_MAX = 128 * 1024
ROW_GROUP_BYTES_MAX = 16 * MIB
TOGETHER_BYTES_MAX = 512 * MIB
"""Row groups of another program are put in the order of their offsets together up to so many bytes."""
_RECORD_OVERHEAD_BYTES = 64
"""Counted for each record beside its key and value, when row groups are bounded by bytes."""

US_PER_MS = 1000
TIMESTAMP_MIN_US = parse_us("0001-01-01T00:00:00Z")
TIMESTAMP_MAX_US = parse_us("9999-12-31T23:59:59.999Z")
"""The latest time that statistics can hold; a file with a record outside is kept without them."""

REQUIRED_COLUMNS = ("offset", "timestamp")
STATISTICS_COLUMNS = ["offset", "timestamp"]
DICTIONARY_COLUMNS = ["key", "producer_id", "headers.list.element.key"]
ENCODINGS = {
    "offset": "DELTA_BINARY_PACKED",
    "timestamp": "DELTA_BINARY_PACKED",
    "sequence": "DELTA_BINARY_PACKED",
    "value": "DELTA_LENGTH_BYTE_ARRAY",
}
"""Rising numbers take no room so. Lengths apart from the bytes are a third to a half less work to compress where values
hardly do, and a tenth more where they are alike, as JSON documents are, which become a fifth smaller."""
COMPRESSIONS: dict[str, dict[str, Any]] = {
    "zstd": {"compression": "zstd", "compression_level": 1},
    "lz4": {"compression": "lz4"},
    "snappy": {"compression": "snappy"},
    "gzip": {"compression": "gzip", "compression_level": 6},
    "none": {"compression": "none"},
}


@dataclass(frozen=True, slots=True)
class DataFile:
    """A Parquet file of one topic-partition. Times are floored (minimum) and raised (maximum) to the millisecond."""

    path: str
    """Relative to the topic's path."""
    partition: int
    rows: int
    size_bytes: int
    first_offset: int
    last_offset: int
    """Inclusive."""
    min_timestamp_us: int
    max_timestamp_us: int
    modified_ms: int
    footer_crc: int | None = None
    """CRC-32 of the Parquet footer; None for a file that was committed without."""
    content_crc: int | None = None
    """CRC-32C of the whole file; None for a file that was committed before there was one, and where nobody asks."""

    def statistics(self) -> str:
        """The statistics of the file's Add action (JSON), which readers skip files by."""
        minimum: dict[str, Any] = {"offset": self.first_offset}
        maximum: dict[str, Any] = {"offset": self.last_offset}
        nulls = {"offset": 0}
        if self.min_timestamp_us > TIMESTAMP_MIN_US and self.max_timestamp_us < TIMESTAMP_MAX_US:
            minimum["timestamp"] = _format_ms(self.min_timestamp_us)
            maximum["timestamp"] = _format_ms(self.max_timestamp_us)
            nulls["timestamp"] = 0
        statistics = {"numRecords": self.rows, "minValues": minimum, "maxValues": maximum, "nullCount": nulls}
        if self.footer_crc is not None:
            statistics[delta_names.STATISTICS_FOOTER_CRC] = self.footer_crc
        if self.content_crc is not None:
            statistics[delta_names.STATISTICS_CONTENT_CRC] = self.content_crc
        return json.dumps(statistics, separators=(",", ":"))


def bounded_timestamps(minimum_us: int, maximum_us: int) -> tuple[int, int]:
    """The bounds that statistics can hold: whole milliseconds around both, or the widest where a time is outside."""
    lowest = minimum_us // US_PER_MS * US_PER_MS
    highest = -(-maximum_us // US_PER_MS) * US_PER_MS
    if lowest <= TIMESTAMP_MIN_US or highest >= TIMESTAMP_MAX_US:
        return TIMESTAMP_MIN_US, TIMESTAMP_MAX_US
    return lowest, highest


def _format_ms(micros: int) -> str:
    return format_us(micros)[:-4] + "Z"


def write_data_file(
    store: ObjectStore, topic: str, partition: int, table: pa.Table, *, compression: str, now_ms: int
) -> DataFile:
    """Writes `table` (columns of FILE_SCHEMA, offsets ascending, at least one row) as one new file; it is not synced.

    `compression` is the topic's setting. Optional columns that are all null are left out: readers give nulls for them.
    Raises Unavailable when the store cannot take it.
    """
    # Who reads files needs none of it, and the client is installed without.
    from siltlog.infra.store.checksum import crc32c_in_pieces

    path = f"{names.partition_folder(partition)}/{uuid.uuid4()}.parquet"
    kept = [
        field.name
        for field in FILE_SCHEMA
        if field.name in REQUIRED_COLUMNS or table.column(field.name).null_count < table.num_rows
    ]
    content = _encode(table.select(kept), compression)
    store.put(f"{names.topic_path(topic)}/{path}", content)
    times = pc.min_max(table.column("timestamp").cast(pa.int64()))
    lowest, highest = bounded_timestamps(times["min"].as_py(), times["max"].as_py())
    offsets = table.column("offset")
    return DataFile(
        path=path,
        partition=partition,
        rows=table.num_rows,
        size_bytes=content.size,
        first_offset=offsets[0].as_py(),
        last_offset=offsets[-1].as_py(),
        min_timestamp_us=lowest,
        max_timestamp_us=highest,
        modified_ms=now_ms,
        footer_crc=read_footer(pa.BufferReader(content)).crc,
        content_crc=crc32c_in_pieces(content),
    )


def _encode(table: pa.Table, compression: str) -> pa.Buffer:
    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(
        sink,
        table.schema,
        use_dictionary=DICTIONARY_COLUMNS,
        column_encoding=ENCODINGS,
        write_statistics=STATISTICS_COLUMNS,
        write_page_checksum=True,
        store_schema=False,
        **COMPRESSIONS[compression],
    ) as writer:
        for start, end in row_group_ranges(table):
            writer.write_table(table.slice(start, end - start), row_group_size=end - start)
    return sink.getvalue()


def row_group_ranges(table: pa.Table) -> Iterator[tuple[int, int]]:
    """Ranges of rows [start, end) that cover `table`, each within the row and byte bounds, or a single row."""
    ends = np.cumsum(_record_bytes(table))
    start = 0
    while start < table.num_rows:
        before = ends[start - 1] if start else 0
        end = int(np.searchsorted(ends, before + ROW_GROUP_BYTES_MAX, side="right"))
        end = min(max(end, start + 1), start + ROW_GROUP_ROWS_MAX, table.num_rows)
        yield start, end
        start = end


def _record_bytes(table: pa.Table) -> npt.NDArray[np.int64]:
    total = np.full(table.num_rows, _RECORD_OVERHEAD_BYTES, dtype=np.int64)
    for name in ("key", "value"):
        if name in table.column_names:
            total += pc.binary_length(table.column(name)).fill_null(0).to_numpy()
    if "headers" in table.column_names:
        total += table.column("headers").nbytes // table.num_rows
    return total


def read_data_file(
    store: ObjectStore,
    topic: str,
    file: DataFile | str,
    *,
    columns: Sequence[str],
    first_offset: int = 0,
    max_records: int | None = None,
    as_stored: bool = False,
) -> pa.Table:
    """Records of one file at and above `first_offset`, in the order of their offsets, at most `max_records`.

    `as_stored` leaves all of a file in whatever order it has. `columns` are names of TABLE_SCHEMA (`partition` only
    with a DataFile); one that the file lacks is null. Row groups outside the range are not read. Raises CorruptData,
    naming the file, topic and offsets, when it is missing or any byte read fails its checksum; Unavailable when the
    store cannot be read.
    """
    with damage_named(topic, file), _opened(store, topic, file) as parquet:
        wanted = _present(parquet, columns)
        groups: list[pa.Table] = []
        count = 0
        for indices in _groups_from(parquet, file, first_offset, as_stored=as_stored):
            group = _group(parquet, indices, wanted, first_offset, as_stored=as_stored)
            groups.append(group)
            count += group.num_rows
            if max_records is not None and count >= max_records:
                break
        table = pa.concat_tables(groups) if groups else parquet.schema_arrow.empty_table().select(wanted)
    table = table if max_records is None else table.slice(0, max_records)
    return _completed(table, columns, None if isinstance(file, str) else file.partition)


def read_row_group(
    store: ObjectStore, topic: str, file: DataFile | str, *, columns: Sequence[str], offset: int
) -> pa.Table:
    """Every record of the first row group that has one at or above `offset`; empty when none has.

    Columns and errors are those of `read_data_file`.
    """
    with damage_named(topic, file), _opened(store, topic, file) as parquet:
        wanted = _present(parquet, columns)
        table = parquet.schema_arrow.empty_table().select(wanted)
        for indices in _groups_from(parquet, file, offset):
            group = _group(parquet, indices, wanted)
            if group.num_rows and group.column("offset")[-1].as_py() >= offset:
                table = group
                break
    return _completed(table, columns, None if isinstance(file, str) else file.partition)


def row_groups(
    store: Readable, topic: str, file: DataFile, *, columns: Sequence[str], first_offset: int = 0
) -> Iterator[pa.Table]:
    """The records of one file at and above `first_offset`, each row group read when it is asked for.

    Columns and errors are those of `read_data_file`. Tables have at least one row. The file stays open until the last
    one, or until the iterator is closed.
    """
    with damage_named(topic, file), _opened(store, topic, file) as parquet:
        wanted = _present(parquet, columns)
        for indices in _groups_from(parquet, file, first_offset):
            group = _group(parquet, indices, wanted, first_offset)
            if group.num_rows:
                yield _completed(group, columns, file.partition)


def _group(
    parquet: pq.ParquetFile,
    indices: Sequence[int],
    columns: Sequence[str],
    first_offset: int = 0,
    *,
    as_stored: bool = False,
) -> pa.Table:
    """The records of a row group at and above `first_offset`. Those of another program's OPTIMIZE are put in order,
    with those of the row groups that they lie among."""
    if len(indices) > 1:
        nbytes = columns_bytes(parquet.metadata, indices, columns)
        if nbytes > TOGETHER_BYTES_MAX:
            raise ValueError(
                f"the offsets of {len(indices)} row groups lie among each other, as where another program's OPTIMIZE "
                f"wrote it, and {nbytes} bytes are too much to put in order"
            )
    group = parquet.read_row_groups(indices, columns=columns, use_threads=False)
    offsets = numbers_of(group.column("offset").combine_chunks(), np.int64)
    if not as_stored and np.any(offsets[1:] < offsets[:-1]):
        order = np.argsort(offsets)
        group, offsets = group.take(order), offsets[order]
    return group.slice(int(np.searchsorted(offsets, first_offset)))


def _present(parquet: pq.ParquetFile, columns: Sequence[str]) -> list[str]:
    present = set(parquet.schema_arrow.names)
    return [name for name in dict.fromkeys([*columns, "offset"]) if name in present]


def _completed(table: pa.Table, columns: Sequence[str], partition: int | None) -> pa.Table:
    schema = pa.schema([TABLE_SCHEMA.field(name) for name in columns])
    arrays = []
    for field in schema:
        if field.name in table.column_names:
            arrays.append(table.column(field.name).cast(field.type))
        elif field.name == names.PARTITION_COLUMN:
            assert partition is not None, "a file named by its path alone has no partition"
            arrays.append(fixed_array(np.full(table.num_rows, partition, np.int32), field.type))
        else:
            arrays.append(pa.nulls(table.num_rows, field.type))
    return pa.table(arrays, schema=schema)


def _groups_from(
    parquet: pq.ParquetFile, file: DataFile | str, first_offset: int, *, as_stored: bool = False
) -> list[list[int]]:
    """Row groups that may hold records at or above `first_offset`, the lowest offsets first; those whose offsets lie
    among each other together. With `as_stored` each by itself, as they stand.

    Footers have no checksum: one that contradicts itself or the log must not hide records.
    """
    together = groups_together(parquet.metadata)
    contiguous = not isinstance(file, str) and file.last_offset - file.first_offset + 1 == file.rows
    for first, last, rows, _ in together:
        if last - first + 1 < rows or (contiguous and last - first + 1 != rows):
            raise ValueError(f"its footer says {rows} rows in offsets {first} to {last}")
    if not isinstance(file, str):
        bounds = (together[0].first, together[-1].last) if together else ()
        found = (sum(each.rows for each in together), *bounds)
        if found != (file.rows, file.first_offset, file.last_offset):
            raise ValueError(f"its footer says {found} for rows, first and last offset")
    if as_stored:
        return [[index] for index in range(parquet.metadata.num_row_groups)]
    return [each.indices for each in together if each.last >= first_offset]


def data_file_from_footer(store: ObjectStore, topic: str, path: str, partition: int) -> DataFile:
    """Describes a file of another writer by its footer; `path` is relative to the topic's path.

    Raises CorruptData when it is missing, damaged, or has no statistics of offset and timestamp.
    """
    with damage_named(topic, path), store.open(f"{names.topic_path(topic)}/{path}") as source:
        footer = read_footer(source)
        metadata = footer.metadata()
        info = store.info(f"{names.topic_path(topic)}/{path}")
        groups = [metadata.row_group(index) for index in range(metadata.num_row_groups)]
        if info is None or not groups:
            raise ValueError("it has no rows")
        offsets = [stored_bounds(group, "offset") for group in groups]
        times = [stored_bounds(group, "timestamp") for group in groups]
        lowest, highest = bounded_timestamps(min(low for low, _ in times), max(high for _, high in times))
        return DataFile(
            path=path,
            partition=partition,
            rows=metadata.num_rows,
            size_bytes=info.size,
            first_offset=min(first for first, _ in offsets),
            last_offset=max(last for _, last in offsets),
            min_timestamp_us=lowest,
            max_timestamp_us=highest,
            modified_ms=info.modified_ms,
            footer_crc=footer.crc,
        )


def with_content_crc(store: ObjectStore, topic: str, file: DataFile) -> DataFile:
    """`file` and the CRC of its content, for which it is read whole. Raises as `read_data_file` does."""
    from siltlog.infra.store.checksum import crc32c_of

    with damage_named(topic, file), store.open(f"{names.topic_path(topic)}/{file.path}") as source:
        return replace(file, content_crc=crc32c_of(source, COPY_BYTES))


@contextmanager
def opened_data_file(store: Readable, topic: str, file: DataFile) -> Iterator[pq.ParquetFile]:
    """The file itself, its footer checked, for who looks at all of it.

    What goes wrong inside the block is raised as `read_data_file` does.
    """
    with damage_named(topic, file), _opened(store, topic, file) as parquet:
        yield parquet


@contextmanager
def _opened(store: Readable, topic: str, file: DataFile | str) -> Iterator[pq.ParquetFile]:
    path = file if isinstance(file, str) else file.path
    with store.open(f"{names.topic_path(topic)}/{path}") as source:
        footer = read_footer(source)
        if not isinstance(file, str) and file.footer_crc not in (None, footer.crc):
            raise ValueError("its footer fails its checksum")
        yield pq.ParquetFile(source, metadata=footer.metadata(), page_checksum_verification=True, pre_buffer=True)


@contextmanager
def damage_named(topic: str, file: DataFile | str) -> Iterator[None]:
    """Errors of decoding and an absent file become CorruptData; errors of the store pass."""
    try:
        yield
    except (OSError, ValueError, KeyError, IndexError, EOFError, pa.ArrowException) as error:
        if isinstance(error, OSError) and error.errno is not None and not isinstance(error, FileNotFoundError):
            raise problem("topic_unavailable", f"{error.filename or file} cannot be read: {error}") from error
        path, range_text = file if isinstance(file, str) else file.path, ""
        members: dict[str, Any] = {}
        if not isinstance(file, str):
            range_text = f", partition {file.partition}, offsets {file.first_offset} to {file.last_offset},"
            members = {
                "partition": file.partition,
                "first_offset": file.first_offset,
                "last_offset": file.last_offset,
            }
        what = "is missing" if isinstance(error, FileNotFoundError) else f"is damaged ({on_one_line(error)})"
        raise problem(
            "corrupt_data",
            f"the file {names.topic_path(topic)}/{path} of topic {topic}{range_text} {what}; "
            "restore it from a backup of the root",
            topic=topic,
            path=f"{names.topic_path(topic)}/{path}",
            **members,
        ) from error
