"""Records of one partition on their way from the door to the table, as Arrow columns.

A `LogBatch` holds only the columns that have something in them; offsets are implied by the first one, and the
producer columns, which repeat one value for thousands of rows, travel as runs.
"""

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from siltlog.infra.arrow.arrays import fixed_array, numbers_of, validity_of
from siltlog.infra.arrow.pieces import Pieces
from siltlog.infra.columns import FEW, FILE_SCHEMA, HEADERS, PRODUCED_SCHEMA, RECORD_SCHEMA, TIMESTAMP, nulls

_FIELDS = (
    pa.field("timestamp", TIMESTAMP),
    pa.field("value", pa.binary()),
    pa.field("key", pa.binary()),
    pa.field("headers", HEADERS),
    pa.field("sequence", pa.int64()),
)
"""The columns a payload may have; bit i of a payload's mask says that column i is there. Only ever appended to."""

_FILE_MASK = 0b01111
_READ_FIELDS = [field for field in RECORD_SCHEMA if field.name not in ("partition", "offset")]
_SCHEMAS = [pa.schema([f for i, f in enumerate(_FIELDS) if mask >> i & 1]) for mask in range(1 << len(_FIELDS))]
_MASKS = {tuple(schema.names): mask for mask, schema in enumerate(_SCHEMAS)}
_SCHEMA_BYTES = [schema.serialize().size for schema in _SCHEMAS]
_PREFIX_ALIGN = 64
SMALL_BYTES_MAX = 256 * 1024
"""A batch below it is joined with its neighbours before a file is made of them."""
ALIKE_MAX = 1_024
"""So many columns of partitions are kept: a reader that keeps up gets a few records at a time."""
JOINED_BYTES_MAX = 64 * 1024
"""A message up to this size is made in one piece: writing it piece by piece would cost more than copying it."""


class ProducerRun(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Neighbouring records of one producer; their sequences rise by one from `first_sequence`.

    `first_sequence` is None where the batch has a `sequence` column of its own (sequences with gaps).
    """

    producer_id: str
    producer_epoch: int
    first_sequence: int | None


class _Prefix(msgspec.Struct, frozen=True, array_like=True, gc=False):
    mask: int
    rows: int
    runs: list[tuple[int, ProducerRun | None]]


_encode_prefix = msgspec.msgpack.Encoder().encode
_decode_prefix = msgspec.msgpack.Decoder(_Prefix).decode
Runs = tuple[tuple[int, ProducerRun | None], ...]
"""(rows, run) in order; None for records without a producer; empty when no record has one."""


@dataclass(frozen=True, slots=True)
class LogBatch:
    """`columns` has `timestamp` and `value`, and `key`, `headers`, `sequence` where any record has one."""

    first_offset: int
    columns: pa.RecordBatch
    nbytes: int
    """About what the records take; kept, because asking Arrow costs as much as making a small batch."""
    runs: Runs = ()

    @property
    def rows(self) -> int:
        rows: int = self.columns.num_rows
        return rows

    @property
    def next_offset(self) -> int:
        return self.first_offset + self.rows

    def slice(self, first_offset: int, next_offset: int) -> "LogBatch":
        """The records in [first_offset, next_offset), which must lie within the batch."""
        if first_offset == self.first_offset and next_offset == self.next_offset:
            return self
        skip, rows = first_offset - self.first_offset, next_offset - first_offset
        nbytes = self.nbytes * rows // self.rows
        return LogBatch(first_offset, self.columns.slice(skip, rows), nbytes, _slice_runs(self.runs, skip, rows))

    def payload(self) -> tuple[bytes | pa.Buffer, ...]:
        """The pieces of a frame: a length-prefixed description, then one Arrow IPC record batch message.

        The buffers of a large batch are not copied.
        """
        mask = _MASKS[tuple(self.columns.schema.names)]
        prefix = _encode_prefix(_Prefix(mask, self.rows, list(self.runs)))
        padding = -(4 + len(prefix)) % _PREFIX_ALIGN
        head = len(prefix).to_bytes(4, "little") + prefix + b"\0" * padding
        if self.nbytes <= JOINED_BYTES_MAX:
            return (b"".join((head, self.columns.serialize())),)
        return (head, *_messages.pieces(self.columns, mask))

    @classmethod
    def from_payload(cls, first_offset: int, payload: pa.Buffer) -> "LogBatch":
        """Zero-copy: the columns keep `payload` alive."""
        length = int.from_bytes(payload.slice(0, 4).to_pybytes(), "little")
        prefix = _decode_prefix(payload.slice(4, length).to_pybytes())
        message = payload.slice(4 + length + -(4 + length) % _PREFIX_ALIGN)
        columns = pa.ipc.read_record_batch(message, _SCHEMAS[prefix.mask])
        return cls(first_offset, columns, payload.size, tuple(prefix.runs))


class _Messages(threading.local):
    """Makes the record batch messages of each schema by one writer of a stream, of which they are a part.

    To make a writer takes three times as long as to write a message. Arrow writes without the interpreter's lock, so
    each thread has its own.
    """

    def __init__(self) -> None:
        self._writers: dict[int, tuple[Pieces, pa.RecordBatchStreamWriter]] = {}

    def pieces(self, columns: pa.RecordBatch, mask: int) -> list[bytes | pa.Buffer]:
        # One that fails may have written half a message, and is not used again.
        kept = self._writers.pop(mask, None)
        sink, writer = self._made(mask) if kept is None else kept
        writer.write_batch(columns)
        self._writers[mask] = sink, writer
        return sink.take()

    def _made(self, mask: int) -> "tuple[Pieces, pa.RecordBatchStreamWriter]":
        """The schema, which comes before the first message, is dropped."""
        sink = Pieces(_SCHEMA_BYTES[mask])
        return sink, pa.ipc.new_stream(pa.PythonFile(sink, mode="w"), _SCHEMAS[mask])


_messages = _Messages()


def record_batch(
    timestamp: pa.Array,
    value: pa.Array,
    key: pa.Array | None,
    headers: pa.Array | None,
    sequence: pa.Array | None = None,
) -> pa.RecordBatch:
    """The columns of a LogBatch; those that are None or all null are left out."""
    columns = [timestamp, value]
    mask = 0b11
    for bit, column in ((2, key), (3, headers), (4, sequence)):
        if column is not None and column.null_count < len(column):
            columns.append(column)
            mask |= 1 << bit
    return pa.RecordBatch.from_arrays(columns, schema=_SCHEMAS[mask])


def concat(batches: Sequence[LogBatch], memory_pool: pa.MemoryPool | None = None) -> LogBatch:
    """One batch of contiguous batches (at least one); a column that only some have is null in the others.

    Its columns are in `memory_pool`, or Arrow's default.
    """
    if len(batches) == 1:
        return batches[0]
    mask = 0
    next_offset = batches[0].first_offset
    for batch in batches:
        # The offsets of the joined records are told by the first one alone.
        assert batch.first_offset == next_offset, f"{batch.first_offset} does not follow on {next_offset}"
        next_offset += batch.columns.num_rows
        mask |= _MASKS[tuple(batch.columns.schema.names)]
    schema = _SCHEMAS[mask]
    table = pa.concat_batches([_with_columns(batch.columns, schema) for batch in batches], memory_pool)
    nbytes = sum(batch.nbytes for batch in batches)
    return LogBatch(batches[0].first_offset, table, nbytes, _concat_runs(batches))


def joined(batches: Sequence[LogBatch]) -> list[LogBatch]:
    """The same records in fewer batches: small neighbours become one, because each batch costs as much as a hundred
    records when its columns are made."""
    found: list[LogBatch] = []
    small: list[LogBatch] = []
    for batch in batches:
        if batch.nbytes >= SMALL_BYTES_MAX:
            if small:
                found.append(concat(small))
                small = []
            found.append(batch)
        else:
            small.append(batch)
    if small:
        found.append(concat(small))
    return found


def record_columns(batch: LogBatch, partition: int) -> pa.RecordBatch:
    """The batch as readers see it: RECORD_SCHEMA."""
    rows, columns = batch.rows, batch.columns
    there = columns.schema.names
    own = [columns.column(field.name) if field.name in there else nulls(rows, field.type) for field in _READ_FIELDS]
    partitions = _few_alike(partition, rows) if rows <= FEW else _alike(partition, rows)
    return pa.RecordBatch.from_arrays([partitions, _offsets(batch), *own], schema=RECORD_SCHEMA)


def produced_columns(batch: LogBatch, partition: int) -> pa.RecordBatch:
    """The batch as readers see it who ask for producers, and which still has its runs: PRODUCED_SCHEMA."""
    columns = record_columns(batch, partition).columns
    return pa.RecordBatch.from_arrays([*columns, *_producer_columns(batch)], schema=PRODUCED_SCHEMA)


def file_columns(*batches: LogBatch) -> pa.Table:
    """The records of at least one batch, in their order, as they are stored in a data file: FILE_SCHEMA.

    Of many batches it is one table: a table of each would take more time than all else that is done with a small one.
    """
    schema = _SCHEMAS[_FILE_MASK]
    parts = [_with_columns(batch.columns, schema) for batch in batches]
    own = {name: pa.chunked_array([part.column(name) for part in parts]) for name in schema.names}
    producer_id, producer_epoch, sequence = _producers_of(batches)
    offsets = np.concatenate([np.arange(batch.first_offset, batch.next_offset, dtype=np.int64) for batch in batches])
    columns = [fixed_array(offsets, pa.int64()), own["timestamp"], own["key"], own["value"]]
    return pa.Table.from_arrays([*columns, own["headers"], producer_id, producer_epoch, sequence], schema=FILE_SCHEMA)


def _alike(partition: int, rows: int) -> pa.Array:
    return fixed_array(np.full(rows, partition, np.int32), pa.int32())


_few_alike = lru_cache(maxsize=ALIKE_MAX)(_alike)


def _offsets(batch: LogBatch) -> pa.Array:
    return fixed_array(np.arange(batch.first_offset, batch.next_offset, dtype=np.int64), pa.int64())


def _with_columns(columns: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    if columns.schema.names == schema.names:
        return columns
    there = set(columns.schema.names)
    arrays = [
        columns.column(field.name) if field.name in there else nulls(columns.num_rows, field.type) for field in schema
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _producers_of(batches: Sequence[LogBatch]) -> Sequence[pa.Array | pa.ChunkedArray]:
    """Producer, epoch and sequence of every record."""
    if any(batch.runs for batch in batches):
        return [pa.chunked_array(column) for column in zip(*map(_producer_columns, batches), strict=True)]
    rows = sum(batch.rows for batch in batches)
    return nulls(rows, pa.string()), nulls(rows, pa.int32()), nulls(rows, pa.int64())


def _producer_columns(batch: LogBatch) -> tuple[pa.Array, pa.Array, pa.Array]:
    rows = batch.rows
    if not batch.runs:
        return nulls(rows, pa.string()), nulls(rows, pa.int32()), nulls(rows, pa.int64())
    counts = [count for count, _ in batch.runs]
    index = np.repeat(np.arange(len(counts)), counts)
    ids = pa.array([run.producer_id if run else None for _, run in batch.runs], pa.string()).take(pa.array(index))
    epochs = pa.array([run.producer_epoch if run else None for _, run in batch.runs], pa.int32()).take(pa.array(index))
    return ids, epochs, _sequences(batch, counts, index)


def _sequences(batch: LogBatch, counts: list[int], index: npt.NDArray[np.int64]) -> pa.Array:
    """The sequences of all records, null where one has none; `index` has the run of each."""
    given = [-1 if run is None or run.first_sequence is None else run.first_sequence for _, run in batch.runs]
    firsts = np.array(given, np.int64)
    starts = np.cumsum(counts) - counts
    sequences = (firsts - starts)[index] + np.arange(batch.rows)
    missing = (firsts < 0)[index]
    if "sequence" in batch.columns.schema.names:
        own = batch.columns.column("sequence")
        sequences = np.where(missing, numbers_of(own, np.int64), sequences)
        missing &= ~validity_of(own)
    return pa.array(sequences, mask=missing)


def _slice_runs(runs: Runs, skip: int, rows: int) -> Runs:
    out: list[tuple[int, ProducerRun | None]] = []
    for count, run in runs:
        drop = min(skip, count)
        take = min(count - drop, rows)
        skip -= drop
        rows -= take
        if take and run is not None:
            first = None if run.first_sequence is None else run.first_sequence + drop
            out.append((take, ProducerRun(run.producer_id, run.producer_epoch, first)))
        elif take:
            out.append((take, None))
    return tuple(out) if any(run for _, run in out) else ()


def _concat_runs(batches: Sequence[LogBatch]) -> Runs:
    if not any(batch.runs for batch in batches):
        return ()
    return tuple(run for batch in batches for run in (batch.runs or ((batch.rows, None),)))
