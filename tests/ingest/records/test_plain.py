"""Records one by one: in any order they are what Arrow takes out of their columns; their keys hash as columns do."""

import itertools

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from siltlog.infra.arrow.partitioner import PARTITIONERS
from siltlog.infra.settings.topic_config import TopicConfig
from siltlog.ingest.records.batch import LogBatch
from siltlog.ingest.records.body import Body, plain_body
from siltlog.ingest.records.plain import PLAIN_MAX, PlainRecords, keys_of, lengths_of
from siltlog.ingest.records.split import Split, split

CONFIG = TopicConfig({})
NOW_US = 1_795_255_969_361_001
KEYS = st.none() | st.sampled_from([b"", b"a", b"b" * 40]) | st.binary(max_size=3)
RECORDS = st.lists(st.tuples(KEYS, st.binary(max_size=9)), min_size=1, max_size=60)


def plain_of(keys: list[bytes | None], values: list[bytes]) -> PlainRecords:
    return PlainRecords(values, lengths_of(values), b"".join(values), keys_of(keys))


def slices_of(parts: Split) -> list[tuple[int, int, list[dict[str, object]], list[int] | None]]:
    """Partition, count, records as a frame of the log gives them, and sequences of each slice."""
    found = []
    for part in parts.slices:
        assert isinstance(part.records, pa.RecordBatch)
        part.records.validate(full=True)
        # Also as it is written into the log, from the middle of a buffer.
        stored = LogBatch.from_payload(0, pa.py_buffer(b"".join(LogBatch(0, part.records, 1).payload())))
        assert stored.columns == part.records
        sequences = None if part.sequences is None else list(part.sequences)
        found.append((part.partition, part.count, part.records.to_pylist(), sequences))
    return found


@settings(max_examples=200, deadline=None)
@given(RECORDS, st.data(), st.integers(1, 9), st.booleans())
def test_records_one_by_one_are_split_as_columns_are(
    records: list[tuple[bytes | None, bytes]], data: st.DataObject, partitions: int, numbered: bool
) -> None:
    keys, values = [key for key, _ in records], [value for _, value in records]
    count = len(records)
    keyless = data.draw(st.integers(0, partitions - 1))
    explicit = data.draw(st.none() | st.lists(st.integers(-1, partitions - 1), min_size=count, max_size=count))
    plain = plain_body(plain_of(keys, values))
    columns = Body(count, plain.nbytes, key=pa.array(keys, pa.binary()), value=pa.array(values, pa.binary()))
    for body in (plain, columns):
        body.partition = None if explicit is None else np.array(explicit, np.int32)
        body.sequence = np.arange(7, 7 + count) if numbered else None
    found = split(plain, partitions, keyless, CONFIG, 1000, NOW_US)
    wanted = split(columns, partitions, keyless, CONFIG, 1000, NOW_US)
    assert slices_of(found) == slices_of(wanted)
    targets = np.asarray(wanted.partition_of_record).tolist()
    assert np.asarray(found.partition_of_record).tolist() == targets
    nexts = {partition: itertools.count(100 * partition) for partition in set(targets)}
    places = [(partition, next(nexts[partition])) for partition in targets]
    firsts: dict[int, int | None] = {partition: 100 * partition for partition in set(targets)}
    assert found.positions(firsts) == wanted.positions(firsts) == places


@given(RECORDS, st.data())
def test_any_order_is_what_is_taken_out_of_the_columns(
    records: list[tuple[bytes | None, bytes]], data: st.DataObject
) -> None:
    plain = plain_of([key for key, _ in records], [value for _, value in records])
    order = np.array(data.draw(st.permutations(range(len(records)))))
    for column, ordered in zip(plain.columns(), plain.columns(order), strict=True):
        assert (column is None) == (ordered is None)
        if column is not None and ordered is not None:
            assert ordered.equals(column.take(pa.array(order)))
            ordered.validate(full=True)
    sizes = [len(key or b"") + len(value) for key, value in records]
    assert plain.sizes().tolist() == sizes
    given = (1 + (plain.keys is not None)) * 4 * len(records)
    assert plain.nbytes == sum(sizes) + given


@pytest.mark.parametrize("name", PARTITIONERS)
@given(st.lists(KEYS, min_size=1), st.integers(1, 10_000))
def test_keys_belong_where_their_column_does(name: str, keys: list[bytes | None], partitions: int) -> None:
    by = PARTITIONERS[name]
    found = keys_of(keys)
    if found is None:
        assert set(keys) == {None}
    else:
        column = by.partitions_of(pa.array(keys, pa.binary()), partitions, partitions - 1)
        assert found.partitions(partitions, partitions - 1, by).tolist() == column.tolist()


def test_text_is_its_utf8() -> None:
    keys = keys_of(["Zürich", None, "Zürich"])
    assert keys is not None
    assert keys.array(None).to_pylist() == ["Zürich".encode(), None, "Zürich".encode()]
    with pytest.raises(ValueError, match="surrogates"):
        keys_of(["a", "\ud800"])


def test_too_many_are_columns() -> None:
    for count, stays in ((PLAIN_MAX, True), (PLAIN_MAX + 1, False)):
        body = plain_body(plain_of([b"k"] * count, [b"v"] * count))
        assert (body.plain is not None, body.value is None, body.key is None) == (stays, stays, stays)
