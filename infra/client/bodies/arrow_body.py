"""The body of a publish request: an Arrow IPC stream, written without copying the records.

`pyarrow.compute` takes as long to import as all else that a producer needs beside Arrow: only where it is called.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from siltlog.infra import names
from siltlog.infra.arrow.arrays import fixed_array
from siltlog.infra.arrow.partitioner import PARTITIONERS, XXHASH64, Partitioner, PlacedBy
from siltlog.infra.arrow.pieces import Pieces, joined
from siltlog.infra.client.core import Buffer
from siltlog.infra.client.endpoints import UNIX, Endpoints, is_loopback
from siltlog.infra.columns import HEADERS, TIMESTAMP
from siltlog.infra.errors import problem

Compression = Literal["none", "lz4", "zstd"]
CompressionOption = Compression | Literal["auto"]
"""\"auto\" is lz4, or none towards this machine."""

PIECE_BYTES_MIN = 16 * 1024
"""Smaller pieces of a body are joined before they go to the socket."""
COPIED_BYTES_MAX = 256 * 1024
"""Below this one copy costs less than a writer and several pieces do."""
END_OF_STREAM = b"\xff\xff\xff\xff\0\0\0\0"
CHUNK_ROWS_MIN = 1_000
"""Tables in smaller chunks are copied together: each chunk becomes a batch of the stream, and costs as such."""
SORTABLE_MAX = 2**15 - 1
PUBLISHED = {
    "value": pa.binary(),
    "key": pa.binary(),
    "headers": HEADERS,
    "timestamp": TIMESTAMP,
    "partition": pa.int32(),
}
IGNORED = frozenset(("topic", "offset", "producer_id", "producer_epoch", "sequence"))
"""Columns that a read gives and a publish does not take: what was read can be published again."""


@dataclass(frozen=True, slots=True)
class Placement:
    """Says which partition each of n rows goes to, and in which order they are sent.

    `partition` (shape (n,), in the rows' own order) is None when all go to `single`. `order` gives the rows sorted by
    partition, rows of one partition in their own order; `rank` (own order) is a row's place within its partition.
    `keyless` is where keyless rows go.
    """

    keyless: int
    single: int
    counts: Mapping[int, int]
    partition: npt.NDArray[np.int32] | None = None
    order: npt.NDArray[np.int64] | None = None
    rank: npt.NDArray[np.int64] | None = None


def place(records: pa.Table, partitions: int, keyless: int, by: Partitioner) -> Placement:
    """Places the rows: in the partition they name, else their key's by the topic's partitioner, else `keyless`."""
    count = records.num_rows
    assigned: npt.NDArray[np.int32] | None = None
    if "key" in records.column_names:
        assigned = by.partitions_of(_one_chunk(records["key"]), partitions, keyless)
    if "partition" in records.column_names:
        named = _one_chunk(records["partition"])
        default = np.full(count, keyless, np.int32) if assigned is None else assigned
        assigned = np.where(named.is_valid().to_numpy(zero_copy_only=False), named.fill_null(0).to_numpy(), default)
    if assigned is None:
        return Placement(keyless, keyless, {keyless: count})
    counts = np.bincount(assigned)
    present = np.flatnonzero(counts)
    if len(present) == 1:
        return Placement(keyless, int(present[0]), {int(present[0]): count})
    # Sixteen-bit integers are sorted by radix, which keeps equal ones in order and takes linear time.
    sortable = assigned.astype(np.int16) if partitions <= SORTABLE_MAX else assigned
    order = np.argsort(sortable, kind="stable")
    starts = np.cumsum(counts) - counts
    rank = np.empty(count, np.int64)
    rank[order] = np.arange(count) - starts[assigned[order]]
    return Placement(keyless, -1, {int(p): int(counts[p]) for p in present}, assigned.astype(np.int32), order, rank)


def placed_headers(by: PlacedBy) -> dict[str, str]:
    """What tells the server how keys were placed."""
    headers = {names.HEADER_PARTITION_COUNT: str(by.partitions)}
    return headers if by.partitioner == XXHASH64.name else headers | {names.HEADER_PARTITIONER: by.partitioner}


def placed_by(topic: Mapping[str, Any]) -> PlacedBy:
    """How a topic places keys, of what its server tells of it, or of why it has refused them."""
    named = topic.get("partitioner") or topic.get("config", {}).get("partitioner", {}).get("value")
    partitioner = XXHASH64.name if named is None else str(named)
    if partitioner not in PARTITIONERS:
        raise problem(
            "invalid_config",
            f"the topic places keys by {partitioner[:40]!r}, which this client does not know: it takes a newer one",
        )
    return PlacedBy(int(topic["partitions"]), partitioner)


def out_of_range(records: pa.Table, partitions: int) -> list[int]:
    """The rows that name a partition which the topic does not have."""
    if "partition" not in records.column_names:
        return []
    import pyarrow.compute as pc

    named = records["partition"]
    wrong = pc.or_(pc.less(named, 0), pc.greater_equal(named, partitions)).fill_null(False)
    return [int(index) for index in pc.indices_nonzero(wrong).to_pylist()]


def body_of(
    records: pa.Table, placement: Placement, sequences: Mapping[int, int], compression: Compression
) -> list[Buffer]:
    """The records as an IPC stream; `sequences` are each partition's first.

    A body for one partition is the records alone: their partition and first sequence are said beside it. The pieces
    refer to the records' own memory where rows need no reordering.
    """
    table = records.drop_columns("partition") if "partition" in records.column_names else records
    if placement.partition is not None and placement.order is not None and placement.rank is not None:
        order = fixed_array(placement.order, pa.int64())
        columns = {name: table[name].take(order) for name in table.column_names}
        partition = placement.partition[placement.order]
        first = np.zeros(int(partition[-1]) + 1, np.int64)
        for number in placement.counts:
            first[number] = sequences.get(number, 0)
        columns["partition"] = fixed_array(partition, pa.int32())
        columns["sequence"] = fixed_array(first[partition] + placement.rank[placement.order], pa.int64())
        table = pa.table(columns)
    if compression == "none" and table.nbytes < COPIED_BYTES_MAX:
        messages = [table.schema.serialize(), *(batch.serialize() for batch in table.to_batches()), END_OF_STREAM]
        return [b"".join(messages)]
    sink = Pieces()
    options = pa.ipc.IpcWriteOptions(compression=None if compression == "none" else compression)
    with pa.PythonFile(sink, mode="w") as file, pa.ipc.new_stream(file, table.schema, options=options) as writer:
        writer.write_table(table)
    return joined(sink.pieces, PIECE_BYTES_MIN - 1)


def published_table(topic: str, given: Any) -> pa.Table:
    """A table, record batch, or pandas or polars frame as the columns that are published; all null ones are left out.

    Raises TypeError for another kind of object or column type, ValueError for unknown columns, Refused
    `invalid_record` for a null value without a key.
    """
    table = _table(given)
    unknown = [name for name in table.column_names if name not in PUBLISHED and name not in IGNORED]
    if unknown or "value" not in table.column_names:
        raise ValueError(
            f"a batch has the columns {', '.join(PUBLISHED)} (only value is needed), "
            f"not {', '.join(table.column_names)}"
        )
    columns: dict[str, pa.ChunkedArray] = {}
    for name, type_ in PUBLISHED.items():
        if name in table.column_names and (name == "value" or table[name].null_count < table.num_rows):
            columns[name] = _as_type(name, table[name], type_)
    if columns["value"].null_count:
        import pyarrow.compute as pc

        keys = columns.get("key")
        tombstones = columns["value"].is_null()
        keyless = tombstones if keys is None else pc.and_(tombstones, keys.is_null())
        first = pc.index(keyless, True).as_py()
        if first >= 0:
            raise problem(
                "invalid_record",
                f"row {first} for {topic} has neither a value nor a key: a tombstone says which key it removes",
                index=first,
            )
    published = pa.table(columns)
    chunks = max(column.num_chunks for column in published.columns)
    return published.combine_chunks() if chunks * CHUNK_ROWS_MIN > published.num_rows and chunks > 1 else published


def _table(given: Any) -> pa.Table:
    if isinstance(given, pa.Table):
        return given
    if isinstance(given, pa.RecordBatch):
        return pa.Table.from_batches([given])
    if type(given).__module__.partition(".")[0] == "pandas":
        return pa.Table.from_pandas(given, preserve_index=False)
    if hasattr(given, "__arrow_c_stream__"):
        return pa.table(given)
    raise TypeError(
        f"a batch is an Arrow table or record batch, or a pandas or polars frame, not {type(given).__name__}"
    )


def _as_type(name: str, column: pa.ChunkedArray, type_: pa.DataType) -> pa.ChunkedArray:
    if column.type == type_:
        return column
    if type_ == pa.binary() and not _textual(column.type):
        raise TypeError(f"the column {name} must be binary or string, not {column.type}; encode it first")
    if name == "timestamp" and not pa.types.is_timestamp(column.type):
        raise TypeError(f"the column timestamp must be a timestamp, not {column.type}")
    if name == "timestamp" and column.type.tz is None:
        raise TypeError("the column timestamp has no time zone; cast it to timestamp('us', tz='UTC')")
    if name == "timestamp" and column.type.unit == "ns":
        return column.cast(type_, safe=False)
    try:
        return column.cast(type_)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise TypeError(f"the column {name} cannot be {type_}: {error}") from None


def _textual(type_: pa.DataType) -> bool:
    if pa.types.is_dictionary(type_):
        type_ = type_.value_type
    return bool(
        pa.types.is_binary(type_)
        or pa.types.is_string(type_)
        or pa.types.is_large_binary(type_)
        or pa.types.is_large_string(type_)
        or pa.types.is_fixed_size_binary(type_)
        or pa.types.is_binary_view(type_)
        or pa.types.is_string_view(type_)
        or pa.types.is_null(type_)
    )


def _one_chunk(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def compression_for(endpoints: Endpoints, asked: CompressionOption) -> Compression:
    if asked != "auto":
        return asked
    local = all(url.startswith(UNIX) or is_loopback(url) for url in endpoints.urls)
    return "none" if local else "lz4"
