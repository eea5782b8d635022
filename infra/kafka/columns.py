"""Records of a batch as Arrow columns."""

import numpy as np
import pyarrow as pa

from siltlog.infra.arrow.arrays import fixed_array
from siltlog.infra.columns import HEADERS, TIMESTAMP, nulls
from siltlog.infra.kafka.batch import NO_TIMESTAMP, BatchHead
from siltlog.infra.kafka.layout import gathered

SCHEMA = pa.schema(
    [
        pa.field("timestamp", TIMESTAMP),
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("headers", HEADERS),
    ]
)
_ENTRY = list(HEADERS.value_type)


def columns(head: BatchHead) -> pa.RecordBatch:
    """The records of a batch that `check` has passed: SCHEMA.

    A time is null where the producer gave none, headers are null where a record has none.
    """
    found = head.layout
    key, value = (
        nulls(head.rows, pa.binary())
        if found.nulls[:, part].all()
        else gathered(head.records, found.bounds[:, part], found.nulls[:, part])
        for part in (0, 1)
    )
    return pa.RecordBatch.from_arrays([_timestamp(head), key, value, _headers(head)], schema=SCHEMA)


def _timestamp(head: BatchHead) -> pa.Array:
    millis = head.layout.timestamp_deltas + head.base_timestamp_ms
    given = millis != NO_TIMESTAMP
    if given.all():
        return fixed_array(millis * 1000, TIMESTAMP)
    if not given.any():
        return nulls(head.rows, TIMESTAMP)
    validity = pa.py_buffer(np.packbits(given, bitorder="little"))
    return pa.Array.from_buffers(TIMESTAMP, head.rows, [validity, pa.py_buffer(millis * 1000)])


def _headers(head: BatchHead) -> pa.Array:
    found = head.layout
    if not len(found.header_bounds):
        return nulls(head.rows, HEADERS)
    contents = gathered(head.records, found.header_bounds[:, 1], found.header_nulls)
    entries = pa.StructArray.from_arrays([head.header_names, contents], fields=_ENTRY)
    ends = np.zeros(head.rows + 1, np.int32)
    np.cumsum(found.header_counts, out=ends[1:])
    validity = pa.py_buffer(np.packbits(found.header_counts > 0, bitorder="little"))
    return pa.Array.from_buffers(HEADERS, head.rows, [validity, pa.py_buffer(ends)], children=[entries])
