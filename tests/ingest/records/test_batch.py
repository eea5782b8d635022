"""Log batches against lists of records: payloads, slices, joins, and the columns of files and readers."""

from concurrent.futures import ThreadPoolExecutor
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from siltlog.infra.arrow.arrays import binary_array, fixed_array
from siltlog.infra.columns import FILE_SCHEMA, HEADERS, PRODUCED_SCHEMA, RECORD_SCHEMA, TIMESTAMP
from siltlog.ingest.records import batch as log_batch
from siltlog.ingest.records.batch import (
    JOINED_BYTES_MAX,
    LogBatch,
    ProducerRun,
    concat,
    file_columns,
    joined,
    produced_columns,
    record_batch,
    record_columns,
)


class Row(NamedTuple):
    timestamp: int
    value: bytes | None
    key: bytes | None
    headers: list[dict[str, Any]] | None
    producer: tuple[str, int] | None
    sequence: int | None


HEADER_LISTS = st.lists(
    st.fixed_dictionaries({"key": st.sampled_from(["a", "é"]), "value": st.none() | st.binary(max_size=3)}),
    min_size=1,
    max_size=2,
)


@st.composite
def batches(draw: st.DrawFn, first_offset: int = 0) -> tuple[LogBatch, list[Row]]:
    """A batch, and its records; each of the columns that a batch may lack is there or not."""
    runs, rows = [], []
    gaps = draw(st.booleans())
    keyed, headed = draw(st.booleans()), draw(st.booleans())
    for _ in range(draw(st.integers(1, 3))):
        count = draw(st.integers(1, 4))
        producer = draw(st.none() | st.tuples(st.sampled_from(["p", "q"]), st.integers(0, 3)))
        first = draw(st.integers(0, 2**53 - 10))
        step = 2 if gaps else 1
        if producer is None:
            runs.append((count, None))
        else:
            runs.append((count, ProducerRun(*producer, None if gaps else first)))
        for i in range(count):
            key = draw(st.none() | st.binary(max_size=5)) if keyed else None
            value = draw(st.binary(max_size=200) if key is None else st.none() | st.binary(max_size=5))
            headers = draw(st.none() | HEADER_LISTS) if headed else None
            sequence = None if producer is None else first + i * step
            rows.append(Row(draw(st.integers(-(2**40), 2**50)), value, key, headers, producer, sequence))
    columns = record_batch(
        pa.array([row.timestamp for row in rows], pa.int64()).cast(TIMESTAMP),
        pa.array([row.value for row in rows], pa.binary()),
        pa.array([row.key for row in rows], pa.binary()),
        pa.array([row.headers for row in rows], HEADERS),
        pa.array([row.sequence for row in rows], pa.int64()) if gaps else None,
    )
    has_producer = any(run for _, run in runs)
    return LogBatch(first_offset, columns, columns.nbytes, tuple(runs) if has_producer else ()), rows


def check(batch: LogBatch, rows: list[Row]) -> None:
    assert (batch.rows, batch.next_offset) == (len(rows), batch.first_offset + len(rows))
    table = file_columns(batch)
    table.validate(full=True)
    assert table.schema == FILE_SCHEMA
    offsets = list(range(batch.first_offset, batch.next_offset))
    assert table.column("offset").to_pylist() == offsets
    assert table.column("timestamp").cast(pa.int64()).to_pylist() == [row.timestamp for row in rows]
    for name in ("value", "key", "headers", "sequence"):
        assert table.column(name).to_pylist() == [getattr(row, name) for row in rows], name
    assert table.column("producer_id").to_pylist() == [row.producer and row.producer[0] for row in rows]
    assert table.column("producer_epoch").to_pylist() == [row.producer and row.producer[1] for row in rows]
    produced = produced_columns(batch, 3)
    assert produced.schema == PRODUCED_SCHEMA
    for name in ("producer_id", "producer_epoch", "sequence"):
        assert pa.chunked_array([produced.column(name)]).equals(table.column(name)), name
    read = record_columns(batch, 3)
    assert produced.select(RECORD_SCHEMA.names).equals(read)
    assert read.schema == RECORD_SCHEMA
    assert read.column("partition").to_pylist() == [3] * len(rows)
    for name in ("offset", "timestamp", "key", "value", "headers"):
        assert pa.chunked_array([read.column(name)]).equals(table.column(name)), name


def written(batch: LogBatch) -> LogBatch:
    pieces = batch.payload()
    return LogBatch.from_payload(batch.first_offset, pa.py_buffer(b"".join(bytes(piece) for piece in pieces)))


@settings(max_examples=200, deadline=None)
@given(st.data(), st.integers(0, 2**40))
def test_payloads_and_slices(data: st.DataObject, first_offset: int) -> None:
    batch, rows = data.draw(batches(first_offset))
    check(batch, rows)
    check(written(batch), rows)
    start = data.draw(st.integers(0, len(rows) - 1))
    end = data.draw(st.integers(start + 1, len(rows)))
    part = batch.slice(first_offset + start, first_offset + end)
    check(part, rows[start:end])
    check(written(part), rows[start:end])
    check(written(batch).slice(first_offset + start, first_offset + end), rows[start:end])


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(st.lists(batches(), min_size=1, max_size=4), st.data())
def test_joined_batches_are_their_records_in_order(
    parts: list[tuple[LogBatch, list[Row]]], data: st.DataObject
) -> None:
    starts = [100, *accumulate((len(rows) for _, rows in parts), initial=100)][1:-1]
    placed = [
        LogBatch(start, batch.columns, batch.nbytes, batch.runs)
        for start, (batch, _) in zip(starts, parts, strict=True)
    ]
    rows = [row for _, own in parts for row in own]
    whole = concat([written(batch) if data.draw(st.booleans()) else batch for batch in placed])
    check(whole, rows)
    check(written(whole), rows)
    start = data.draw(st.integers(0, len(rows) - 1))
    check(whole.slice(100 + start, whole.next_offset), rows[start:])


@given(st.lists(batches(), min_size=1, max_size=6), st.integers(0, 600))
def test_small_neighbours_become_one_batch(drawn: list[tuple[LogBatch, list[Row]]], small_bytes_max: int) -> None:
    parts, first_offset = [], 100
    for batch, rows in drawn:
        parts.append(LogBatch(first_offset, batch.columns, batch.nbytes, batch.runs))
        first_offset += len(rows)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(log_batch, "SMALL_BYTES_MAX", small_bytes_max)
        found = joined(parts)
    large = [batch for batch in parts if batch.nbytes >= small_bytes_max]
    assert all(any(batch is kept for kept in found) for batch in large)
    assert len(found) <= 2 * len(large) + 1
    check(concat(found), [row for _, rows in drawn for row in rows])
    assert found[0].first_offset == 100 and found[-1].next_offset == first_offset


@settings(max_examples=50, deadline=None)
@given(batches(), st.integers(1, 400))
def test_payloads_in_pieces_are_the_same_bytes_to_a_reader(drawn: tuple[LogBatch, list[Row]], times: int) -> None:
    batch, rows = drawn
    many = concat([LogBatch(i * len(rows), batch.columns, batch.nbytes, batch.runs) for i in range(times)])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(log_batch, "JOINED_BYTES_MAX", -1)
        in_pieces = many.payload()
        assert len(in_pieces) > 1
        check(written(many), rows * times)


def test_columns_in_which_nothing_is_are_left_out() -> None:
    times, values = pa.array([0, 0], TIMESTAMP), pa.array([b"a", b"b"])
    assert record_batch(times, values, pa.nulls(2, pa.binary()), None).schema.names == ["timestamp", "value"]
    keyed = record_batch(times, values, pa.array([None, b""]), pa.nulls(2, HEADERS), pa.array([None, 5]))
    assert keyed.schema.names == ["timestamp", "value", "key", "sequence"]


def test_threads_make_payloads_beside_each_other() -> None:
    """Each large batch is its own, though one writer of a thread makes all of a schema."""
    made = [large(number) for number in range(8)]
    wanted = [b"".join(bytes(piece) for piece in batch.payload()) for batch in made]
    assert all(whole.endswith(bytes(batch.columns.serialize())) for whole, batch in zip(wanted, made, strict=True))
    with ThreadPoolExecutor(4) as threads:
        found = list(threads.map(lambda batch: [bytes(piece) for piece in batch.payload()], made * 50))
    assert [b"".join(pieces) for pieces in found] == wanted * 50
    assert len(set(wanted)) == len(wanted)


def test_what_cannot_be_written_is_no_part_of_what_comes_next() -> None:
    good, other = large(1), large(2)
    wanted = [bytes(piece) for piece in good.payload()]
    torn = pa.record_batch({"timestamp": other.columns.column("timestamp").cast(pa.int64()), "value": other.columns[1]})
    with pytest.raises(pa.ArrowInvalid):
        LogBatch(0, torn, other.nbytes).payload()
    assert [bytes(piece) for piece in good.payload()] == wanted


def large(number: int) -> LogBatch:
    rows = 2 * JOINED_BYTES_MAX // 100
    timestamp = fixed_array(np.arange(rows, dtype=np.int64), TIMESTAMP)
    columns = record_batch(timestamp, binary_array([bytes([number + 1]) * 100] * rows), None, None)
    return LogBatch(0, columns, rows * 108)
