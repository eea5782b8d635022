"""Records as an Arrow IPC stream, without copying them: the stream is a list of buffers."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa

from siltlog.infra.arrow.pieces import Piece, Pieces, joined
from siltlog.infra.columns import FETCH_SCHEMA, RECORD_SCHEMA

CHUNK_ROWS_MAX = 65_536
JOIN_ROWS_MAX = 4_096
JOIN_BYTES_MAX = 256 * 1024
"""Neighbours below both are joined: a message of a few rows costs more to read than its rows."""

SMALL_BYTES_MAX = 16 * 1024
"""Pieces up to this size are joined before they are sent; larger ones go out as they are."""

END_OF_STREAM = b"\xff\xff\xff\xff\x00\x00\x00\x00"
"""A message without a head: "Columnar format", IPC streaming format."""


def record_stream(batches: Iterable[pa.RecordBatch], schema: pa.Schema = RECORD_SCHEMA) -> list[Piece]:
    """An IPC stream of batches of `schema`."""
    return _stream(_sized(batches), schema, None)


def fetch_stream(
    parts: Sequence[tuple[str, Sequence[pa.RecordBatch]]], metadata: Mapping[str, str] | None = None
) -> list[Piece]:
    """An IPC stream of FETCH_SCHEMA, of (topic, its RECORD_SCHEMA batches) in order."""
    if sum(batch.get_total_buffer_size() for _, part in parts for batch in part) <= SMALL_BYTES_MAX:
        every: Iterable[pa.RecordBatch] = _in_one(parts)
    else:
        every = (_with_topic(topic, batch) for topic, part in parts for batch in _sized(part))
    return _stream(every, FETCH_SCHEMA, metadata)


def _in_one(parts: Sequence[tuple[str, Sequence[pa.RecordBatch]]]) -> list[pa.RecordBatch]:
    """All rows in one message, or none: the few records of a reader that keeps up lie in many partitions."""
    batches = [batch for _, part in parts for batch in part]
    if not batches:
        return []
    topics = {topic for topic, part in parts if part}
    if len(topics) == 1:
        return [_with_topic(topics.pop(), _joined(batches))]
    return [pa.concat_batches([_with_topic(topic, batch) for topic, part in parts for batch in part])]


def _stream(batches: Iterable[pa.RecordBatch], schema: pa.Schema, metadata: Mapping[str, str] | None) -> list[Piece]:
    if metadata:
        schema = schema.with_metadata(dict(metadata))
    every = list(batches)
    if sum(batch.get_total_buffer_size() for batch in every) <= SMALL_BYTES_MAX:
        # A writer costs several times what it writes here.
        return [b"".join((schema.serialize(), *(batch.serialize() for batch in every), END_OF_STREAM))]
    sink = Pieces()
    with pa.PythonFile(sink, mode="w") as out, pa.ipc.new_stream(out, schema) as writer:
        for batch in every:
            writer.write_batch(batch)
    return joined(sink.pieces, SMALL_BYTES_MAX)


def _sized(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The same rows in messages that are neither tiny nor huge."""
    batches = list(batches)
    if len(batches) == 1 and batches[0].num_rows <= CHUNK_ROWS_MAX:
        yield batches[0]
        return
    small: list[pa.RecordBatch] = []
    rows = nbytes = 0
    for batch in batches:
        if batch.num_rows <= JOIN_ROWS_MAX and (size := batch.get_total_buffer_size()) <= JOIN_BYTES_MAX:
            small.append(batch)
            rows += batch.num_rows
            nbytes += size
            if rows <= JOIN_ROWS_MAX and nbytes <= JOIN_BYTES_MAX:
                continue
            batch = None
        if small:
            yield _joined(small)
            small, rows, nbytes = [], 0, 0
        if batch is not None:
            for at in range(0, batch.num_rows, CHUNK_ROWS_MAX):
                yield batch.slice(at, CHUNK_ROWS_MAX)
    if small:
        yield _joined(small)


def _joined(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)


def _with_topic(topic: str, batch: pa.RecordBatch) -> pa.RecordBatch:
    text = topic.encode()
    rows = batch.num_rows
    offsets = np.arange(0, (rows + 1) * len(text), len(text), dtype=np.int32)
    column = pa.StringArray.from_buffers(rows, pa.py_buffer(offsets), pa.py_buffer(text * rows))
    return pa.RecordBatch.from_arrays([column, *batch.columns], schema=FETCH_SCHEMA)
