"""Bodies become frames: the records of many requests, joined as a group commit does, within what was reserved."""

from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from siltlog.infra.columns import HEADERS
from siltlog.infra.settings.topic_config import TopicConfig
from siltlog.ingest.log.admission import FRAME_OVERHEAD_BYTES, RECORD_OVERHEAD_BYTES
from siltlog.ingest.log.partition import Offsets, Piece, _batches_of
from siltlog.ingest.producers.sequencer import ProducerBatch
from siltlog.ingest.records.arrow import parse_arrow
from siltlog.ingest.records.batch import file_columns
from siltlog.ingest.records.body import Body, HeaderList, Rows, from_rows
from siltlog.ingest.records.split import split
from siltlog.ingest.wal.codec import frame_bytes

PARTITIONS = 3
NOW_US = 1_795_255_969_361_001
CONFIG = TopicConfig({})
Record = tuple[bytes | None, bytes, HeaderList | None]
RECORDS = st.lists(
    st.tuples(
        st.none() | st.binary(max_size=9),
        st.binary(max_size=300),
        st.none()
        | st.lists(st.tuples(st.sampled_from(["", "é", "x" * 99]), st.none() | st.binary(max_size=9)), max_size=3),
    ),
    min_size=1,
    max_size=50,
)
REQUESTS = st.lists(st.tuples(RECORDS, st.booleans(), st.sampled_from(["", "p", "q" * 196])), min_size=1, max_size=8)


def body_of(records: list[Record], arrow: bool) -> Body:
    keys, values, headers = (list(column) for column in zip(*records, strict=True))
    if not arrow:
        none: list[Any] = [None] * len(records)
        sizes = (
            len(v) + len(k or b"") + 8 + sum(len(n) + len(c or b"") + 8 for n, c in h or ()) for k, v, h in records
        )
        rows = Rows(list(none), keys, values, [h or None for h in headers], [-1] * len(records), list(none))
        return from_rows(rows, sum(sizes))
    stored = [one and [{"key": name, "value": value} for name, value in one] for one in headers]
    columns = {"key": pa.array(keys, pa.binary()), "value": pa.array(values), "headers": pa.array(stored, HEADERS)}
    batch = pa.record_batch(columns)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return parse_arrow(sink.getvalue().to_pybytes(), 1 << 20)


def reserved_for(body: Body, partitions: int) -> int:
    return body.nbytes + RECORD_OVERHEAD_BYTES * body.count + FRAME_OVERHEAD_BYTES * partitions


@settings(max_examples=150)
@given(REQUESTS)
def test_what_many_requests_add_is_joined_in_order_within_what_they_reserved(
    requests: list[tuple[list[Record], bool, str]],
) -> None:
    pieces: dict[int, list[Piece]] = {partition: [] for partition in range(PARTITIONS)}
    wanted: dict[int, list[Any]] = {partition: [] for partition in range(PARTITIONS)}
    sequences: dict[tuple[str, int], int] = {}
    reserved = 0
    for records, arrow, producer_id in requests:
        body = body_of(records, arrow)
        parts = split(body, PARTITIONS, 1, CONFIG, 1_000, NOW_US)
        reserved += reserved_for(body, len(parts.slices))
        for part in parts.slices:
            first = sequences.get((producer_id, part.partition), 0)
            producer = ProducerBatch(producer_id, 7, first, part.count) if producer_id else None
            sequences[producer_id, part.partition] = first + part.count
            nbytes = body.nbytes * part.count // body.count
            pieces[part.partition].append(Piece(part.count, part.records, nbytes, producer))
            numbers = range(first, first + part.count)
            wanted[part.partition] += [(producer_id or None, n if producer_id else None) for n in numbers]
        for (key, value, headers), partition in zip(records, list(parts.partition_of_record), strict=True):
            own = [{"key": name, "value": content} for name, content in headers or ()] or None
            wanted[int(partition)].append((key, value, own))

    written = 0
    for partition, added in pieces.items():
        batches = _batches_of(100, added)
        assert [batch.first_offset for batch in batches[:1]] == [100][: len(batches)]
        for batch, following in pairwise(batches):
            assert batch.next_offset == following.first_offset
        rows = [row for batch in batches for row in file_columns(batch).to_pylist()]
        found = [(row["producer_id"], row["sequence"]) for row in rows]
        assert found == [item for item in wanted[partition] if len(item) == 2]
        records_found = [(row["key"], row["value"], row["headers"]) for row in rows]
        assert records_found == [item for item in wanted[partition] if len(item) == 3]
        written += sum(frame_bytes(sum(len(piece) for piece in batch.payload())) for batch in batches)
    assert written <= reserved


@pytest.mark.parametrize("arrow", [False, True])
@pytest.mark.parametrize("headers", [None, [("", None)]])
def test_many_empty_records_take_no_more_than_was_reserved(arrow: bool, headers: HeaderList | None) -> None:
    body = body_of([(None, b"", None), *[(b"", b"", headers)] * 20_000], arrow)
    parts = split(body, PARTITIONS, 1, CONFIG, 1_000, NOW_US)
    written = 0
    for part in parts.slices:
        [batch] = _batches_of(0, [Piece(part.count, part.records, body.nbytes, None)])
        written += frame_bytes(sum(len(piece) for piece in batch.payload()))
    assert written <= reserved_for(body, len(parts.slices))


OFFSETS = st.lists(st.integers(-1, 9), min_size=5, max_size=5)


@given(OFFSETS)
def test_offsets_that_are_out_of_order_cannot_be_made(numbers: list[int]) -> None:
    if numbers == sorted(numbers):
        assert Offsets(*numbers).submitted == numbers[-1]
    else:
        with pytest.raises(AssertionError, match="in order"):
            Offsets(*numbers)
