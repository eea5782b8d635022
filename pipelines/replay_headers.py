"""Headers that tell where a replayed record came from, a column at a time."""

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from siltlog.infra import names
from siltlog.infra.arrow_arrays import numbers_of
from siltlog.infra.schema import HEADERS

ADDED = (
    names.RECORD_HEADER_REPLAY_RUN,
    names.RECORD_HEADER_REPLAY_TOPIC,
    names.RECORD_HEADER_REPLAY_PARTITION,
    names.RECORD_HEADER_REPLAY_OFFSET,
    names.RECORD_HEADER_REPLAY_TIMESTAMP,
)


def with_origin(records: pa.Table, run: str, topic: str) -> pa.Array:
    """The headers of `records` (RECORD_SCHEMA, one chunk), each with ADDED behind its own; shape (n,)."""
    count = records.num_rows
    own = records["headers"].combine_chunks()
    lengths = numbers_of(pc.list_value_length(own).fill_null(0), np.int32).astype(np.int64)
    pairs = own.flatten()
    keys = pa.chunked_array([pairs.field("key"), pa.array(ADDED, pa.string())]).combine_chunks()
    values = pa.chunked_array([pairs.field("value"), *_origins(records, run, topic)]).combine_chunks()
    ends = np.zeros(count + 1, np.int64)
    np.cumsum(lengths + len(ADDED), out=ends[1:])
    key_at = np.empty(ends[-1], np.int64)
    value_at = np.empty(ends[-1], np.int64)
    added_at = (ends[1:, None] - len(ADDED) + np.arange(len(ADDED))).ravel()
    is_own: npt.NDArray[np.bool_] = np.ones(ends[-1], np.bool_)
    is_own[added_at] = False
    key_at[is_own] = value_at[is_own] = np.arange(len(pairs))
    key_at[added_at] = np.tile(len(pairs) + np.arange(len(ADDED)), count)
    # The run and the topic are one value each; partition, offset and time are one for each record.
    origin_at = np.empty((count, len(ADDED)), np.int64)
    origin_at[:, :2] = len(pairs) + np.arange(2)
    origin_at[:, 2:] = len(pairs) + 2 + np.arange(3) * count + np.arange(count)[:, None]
    value_at[added_at] = origin_at.ravel()
    struct = pa.StructArray.from_arrays(
        [keys.take(pa.array(key_at)), values.take(pa.array(value_at))], ["key", "value"]
    )
    return pa.ListArray.from_arrays(pa.array(ends.astype(np.int32)), struct).cast(HEADERS)


def _origins(records: pa.Table, run: str, topic: str) -> list[pa.Array]:
    """Run and topic, then the partitions, offsets and times of the records, as text in bytes."""
    # Arrow writes a time without a zone forty times as fast.
    times = records["timestamp"].combine_chunks().cast(pa.timestamp("us")).cast(pa.string())
    texts = [
        records["partition"].combine_chunks().cast(pa.string()),
        records["offset"].combine_chunks().cast(pa.string()),
        pc.binary_join_element_wise(pc.replace_substring(times, " ", "T", max_replacements=1), "Z", ""),
    ]
    return [pa.array([run.encode(), topic.encode()], pa.binary()), *(text.cast(pa.binary()) for text in texts)]
