"""The columns that `format("siltlog")` gives: those of Spark's Kafka source, in its order."""

import pyarrow as pa

from siltlog.infra.schema import FETCH_SCHEMA

TIMESTAMP_TYPES = {"create": 0, "append": 1}
"""Kafka's numbers, by `timestamp.type`: CreateTime and LogAppendTime."""

READ_DDL = (
    "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, timestampType int, "
    "headers array<struct<key:string,value:binary>>"
)
TIMESTAMP_TYPE = "timestampType"
READ_SCHEMA = pa.schema(
    [
        *(FETCH_SCHEMA.field(name) for name in ("key", "value", "topic", "partition", "offset", "timestamp")),
        pa.field(TIMESTAMP_TYPE, pa.int32()),
        FETCH_SCHEMA.field("headers"),
    ]
)
"""READ_DDL in Arrow."""
