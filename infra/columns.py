"""Columns: the stored table, the record as it is read, and the body a publisher may send.

Names and types are those of Spark's Kafka source, so that a job ports by changing its format.
"""

from functools import lru_cache

import pyarrow as pa

TIMESTAMP = pa.timestamp("us", tz="UTC")
HEADERS = pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))

TABLE_SCHEMA = pa.schema(
    [
        pa.field("partition", pa.int32()),
        pa.field("offset", pa.int64()),
        pa.field("timestamp", TIMESTAMP),
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("headers", HEADERS),
        pa.field("producer_id", pa.string()),
        pa.field("producer_epoch", pa.int32()),
        pa.field("sequence", pa.int64()),
    ]
)
"""The columns of a topic table. Columns are only ever added at the end."""

FILE_SCHEMA = pa.schema([field for field in TABLE_SCHEMA if field.name != "partition"])
"""The columns inside a data file: the partition is in its path and in the Delta log."""

RECORD_SCHEMA = pa.schema(
    [TABLE_SCHEMA.field(name) for name in ("partition", "offset", "timestamp", "key", "value", "headers")]
)
"""A record as every reader gets it."""

PRODUCED_SCHEMA = pa.schema(
    [*RECORD_SCHEMA, *(TABLE_SCHEMA.field(name) for name in ("producer_id", "producer_epoch", "sequence"))]
)
"""A record with its producer, for readers that ask for it; all three are null where it was published without one."""

FETCH_SCHEMA = pa.schema([pa.field("topic", pa.string()), *RECORD_SCHEMA])
"""The Arrow reply of POST /v1/fetch."""


FEW = 64
"""Columns of up to so many nulls are kept: a reader that keeps up gets a few records at a time."""


def nulls(count: int, type_: pa.DataType) -> pa.Array:
    """`count` nulls that serialise small: `pa.nulls` of a list of structs would carry its children's buffers."""
    return _few_nulls(count, type_) if count <= FEW else _nulls(count, type_)


def _nulls(count: int, type_: pa.DataType) -> pa.Array:
    if not pa.types.is_list(type_):
        return pa.nulls(count, type_)
    validity, offsets = pa.py_buffer(bytes(-(-count // 8))), pa.py_buffer(bytes((count + 1) * 4))
    return pa.Array.from_buffers(type_, count, [validity, offsets], count, children=[pa.nulls(0, type_.value_type)])


_few_nulls = lru_cache(maxsize=8 * FEW)(_nulls)
