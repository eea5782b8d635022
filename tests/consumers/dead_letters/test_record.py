"""What is said about a dead letter, and what it was before."""

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from siltlog.consumers.dead_letters.record import ADDED, Failure, Stored, dead_letter, origin, said_of, stored_records
from siltlog.infra.columns import RECORD_SCHEMA
from siltlog.infra.errors import CorruptData
from siltlog.infra.records import NewRecord

NAMES = st.text(max_size=8) | st.sampled_from(ADDED)
HEADERS = st.lists(st.tuples(NAMES, st.none() | st.binary(max_size=8)), max_size=12).map(tuple)
TIMES = st.integers(-(10**15), 4 * 10**15)
RECORDS = st.builds(
    Stored,
    offset=st.integers(0, 2**53 - 1),
    timestamp_us=TIMES,
    key=st.none() | st.binary(max_size=8),
    value=st.none() | st.binary(max_size=8),
    headers=HEADERS,
)
FAILURES = st.builds(
    Failure,
    topic=st.just("flights"),
    partition=st.integers(0, 9_999),
    group=st.just("reporting"),
    attempts=st.integers(0, 2**31),
    error=st.text(max_size=40),
    failed_us=TIMES,
)


@given(record=RECORDS, failure=FAILURES)
def test_what_was_given_up_comes_back_as_it_was(record: Stored, failure: Failure) -> None:
    made = dead_letter(record, failure)
    dead = Stored(7, failure.failed_us, made.key, made.value, made.headers)
    assert origin(dead) == (
        failure.partition,
        NewRecord(record.key, record.value, record.headers, record.timestamp_us),
    )
    said = said_of(dead.headers)
    assert said is not None
    assert (said["topic"], said["group"], said["error"]) == ("flights", "reporting", failure.error)
    assert (said["partition"], said["offset"], said["attempts"]) == (failure.partition, record.offset, failure.attempts)


@given(headers=HEADERS)
def test_what_is_no_dead_letter_is_not_taken_for_one(headers: tuple[tuple[str, bytes | None], ...]) -> None:
    said = said_of(headers)
    assert (said is None) == (tuple(name for name, _ in headers[-len(ADDED) :]) != ADDED)
    if said is None:
        with pytest.raises(CorruptData):
            origin(Stored(0, 0, None, b"", headers))


@given(st.lists(RECORDS, max_size=5))
def test_records_of_a_batch(records: list[Stored]) -> None:
    rows = [
        record._asdict()
        | {"partition": 0, "timestamp": record.timestamp_us}
        | {"headers": [{"key": name, "value": value} for name, value in record.headers] or None}
        for record in records
    ]
    columns = [pa.array([row[field.name] for row in rows], field.type) for field in RECORD_SCHEMA]
    assert list(stored_records(pa.RecordBatch.from_arrays(columns, schema=RECORD_SCHEMA))) == records
