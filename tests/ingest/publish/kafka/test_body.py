"""Batches of Kafka as bodies of a publish: few records as lists, many as columns, and the same either way."""

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from siltlog.infra.columns import RECORD_SCHEMA
from siltlog.infra.errors import Refused
from siltlog.infra.kafka.batch import check
from siltlog.infra.kafka.records import encode
from siltlog.ingest.publish.kafka.body import body_of, check_tombstones
from siltlog.ingest.records.body import Body, Rows

_BYTES = st.none() | st.binary(max_size=20)
_HEADERS = st.lists(st.tuples(st.text(max_size=5), _BYTES), max_size=3)
_RECORDS = st.lists(st.tuples(st.integers(-1, 2**40), _BYTES, _BYTES, _HEADERS), min_size=1, max_size=8)


def batch(records: list[tuple[int, bytes | None, bytes | None, list[tuple[str, bytes | None]]]]) -> bytes:
    rows: dict[str, list[Any]] = {
        "partition": [0] * len(records),
        "offset": list(range(len(records))),
        "timestamp": [millis * 1000 for millis, *_ in records],
        "key": [key for _, key, _, _ in records],
        "value": [value for _, _, value, _ in records],
        "headers": [[{"key": name, "value": value} for name, value in pairs] or None for *_, pairs in records],
    }
    [table] = pa.table(rows, schema=RECORD_SCHEMA).to_batches()
    return b"".join(encode(table, -1))


def bodies(data: bytes, sequence: int | None) -> tuple[Rows, Body]:
    """The same records as lists and as columns."""
    head = check(data, 1 << 20)
    few = body_of(3, head, None, sequence).rows
    assert few is not None
    return few, body_of(3, head, head.content.columns(), sequence)


def listed(column: pa.Array | None, count: int) -> list[Any]:
    return [None] * count if column is None else column.to_pylist()


@given(_RECORDS, st.none() | st.integers(0, 2**40))
@pytest.mark.rule("KF1")
def test_few_and_many_are_the_same_records(records: Any, sequence: int | None) -> None:
    few, many = bodies(batch(records), sequence)
    count = len(records)
    micros = None if many.timestamp is None else many.timestamp.cast(pa.int64())
    assert few.timestamps == listed(micros, count) == [None if at == -1 else at * 1000 for at, *_ in records]
    assert few.keys == listed(many.key, count) == [key for _, key, _, _ in records]
    assert few.values == listed(many.value, count) == [value for _, _, value, _ in records]
    pairs = [one and [(each["key"], each["value"]) for each in one] for one in listed(many.headers, count)]
    assert few.headers == pairs == [given or None for *_, given in records]
    assert few.partitions == [many.only_partition] * count == [3] * count
    first = many.first_sequence
    numbers = [None] * count if first is None else list(range(first, first + count))
    given = [at for at in few.timestamps if at is not None]
    assert many.time_bounds == ((min(given), max(given)) if len(given) == count else None)
    assert few.sequences == numbers == [None if sequence is None else sequence + at for at in range(count)]


def test_a_tombstone_without_a_key_is_found_either_way() -> None:
    data = batch([(0, b"k", None, []), (0, None, b"v", []), (0, None, None, [])])
    head = check(data, 1 << 20)
    for body in (body_of(0, head, None, None), body_of(0, head, head.content.columns(), None)):
        with pytest.raises(Refused, match="record 2"):
            check_tombstones(body)
    whole = check(batch([(0, b"k", None, []), (0, None, b"v", [])]), 1 << 20)
    for body in (body_of(0, whole, None, None), body_of(0, whole, whole.content.columns(), None)):
        check_tombstones(body)
