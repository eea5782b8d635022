"""A batch of a producer of Kafka as the body of a publish."""

from typing import Any

import pyarrow as pa

from siltlog.infra.errors import problem
from siltlog.infra.kafka.batch import BatchHead
from siltlog.infra.kafka.columns import Columns
from siltlog.ingest.records.body import TIMESTAMP_BYTES, Body, Rows


def body_of(partition: int, head: BatchHead, columns: Columns | None, first_sequence: int | None) -> Body:
    """`columns` are there where the batch has more than ROWS_MAX records; `first_sequence` is by our count, None where
    the producer is not idempotent."""
    count = head.rows
    nbytes = len(head.records) + TIMESTAMP_BYTES * count
    if columns is None:
        return Body(count, nbytes, _rows(partition, head, first_sequence), positions=False)
    return Body(
        count,
        nbytes,
        timestamp=columns.timestamp,
        key=columns.key,
        value=columns.value,
        headers=columns.headers,
        only_partition=partition,
        first_sequence=first_sequence,
        time_bounds=columns.time_bounds,
        positions=False,
    )


def check_tombstones(body: Body) -> None:
    """Raises Refused `invalid_record` for a null value without a key: where keys are compacted it deletes nothing."""
    if body.rows is not None:
        pairs = zip(body.rows.keys, body.rows.values, strict=True)
        index = next((index for index, (key, value) in enumerate(pairs) if key is None and value is None), None)
    else:
        assert body.value is not None
        lacking: Any = body.value.is_null()
        if body.key is not None:
            lacking = pa.compute.and_(lacking, body.key.is_null())
        index = lacking.index(True).as_py()
        index = None if index < 0 else index
    if index is not None:
        raise problem("invalid_record", f"record {index}: a null value is a tombstone and needs a key", index=index)


def _rows(partition: int, head: BatchHead, first_sequence: int | None) -> Rows:
    """The records as lists: columns of so few would cost more than all else that is done with them."""
    count, lists = head.rows, head.content.lists()
    sequences: list[int | None] = [None] * count
    if first_sequence is not None:
        sequences = list(range(first_sequence, first_sequence + count))
    return Rows(lists.timestamps, lists.keys, lists.values, lists.headers, [partition] * count, sequences)
