"""The columns that `format("siltlog")` gives: those of Spark's Kafka source, in its order."""

import pyarrow as pa

from siltlog.infra.columns import FETCH_SCHEMA
from siltlog.infra.errors import ConfigError

TIMESTAMP_TYPES = {"create": 0, "append": 1}
"""Kafka's numbers, by `timestamp.type`: CreateTime and LogAppendTime."""

READ_DDL = (
    "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, timestampType int, "
    "headers array<struct<key:string,value:binary>>"
)
"""All of them; a `.schema(...)` that has some, in any order, is given those."""
TIMESTAMP_TYPE = "timestampType"
READ_SCHEMA = pa.schema(
    [
        *(FETCH_SCHEMA.field(name) for name in ("key", "value", "topic", "partition", "offset", "timestamp")),
        pa.field(TIMESTAMP_TYPE, pa.int32()),
        FETCH_SCHEMA.field("headers"),
    ]
)
"""READ_DDL in Arrow."""


def schema_of(asked: pa.Schema) -> pa.Schema:
    """`asked` as it is, where it has columns of READ_SCHEMA. Raises ConfigError."""
    for field in asked:
        at = READ_SCHEMA.get_field_index(field.name)
        if at < 0 or READ_SCHEMA.field(at).type != field.type:
            raise ConfigError(
                f"there is no column {field.name} of type {field.type}: leave out .schema(), or take some of {READ_DDL}"
            )
    return asked
