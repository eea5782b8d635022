import pyarrow as pa
from fake_log import record_batch
from hypothesis import given
from hypothesis import strategies as st

from siltlog.infra.arrow.record_filter import RecordFilter

texts = st.one_of(st.none(), st.binary(max_size=6), st.sampled_from([b"", b"a", b"aa", b"ba\0", b"%_.*"]))
wanted = st.one_of(st.none(), st.sampled_from([b"", b"a", b"ba", b"\0", b"%", b".*", b"\xff"]))


@given(st.lists(st.tuples(texts, texts)), wanted, wanted, st.integers(0, 3))
def test_it_keeps_what_a_loop_over_the_records_would(
    records: list[tuple[bytes | None, bytes | None]], key: bytes | None, contains: bytes | None, cut: int
) -> None:
    batch = record_batch(3, 10, [value for _, value in records], keys=[key for key, _ in records]).slice(cut)
    wanted = RecordFilter(key, contains)
    found = wanted.of(batch)
    assert found.schema == batch.schema
    assert found.column("offset").to_pylist() == [
        10 + cut + index
        for index, (of_key, value) in enumerate(records[cut:])
        if (key is None or of_key == key) and (contains is None or (value is not None and contains in value))
    ]
    one_by_one = [wanted.takes(*record, ()) for record in records[cut:]]
    assert found.column("offset").to_pylist() == [10 + cut + n for n, takes in enumerate(one_by_one) if takes]


names = st.sampled_from(["a", "b", "a:b", "größe"])
some_headers = st.one_of(st.none(), st.lists(st.tuples(names, st.one_of(st.none(), st.sampled_from([b"", b"x"])))))


@given(st.lists(some_headers), names, st.one_of(st.none(), st.sampled_from([b"", b"x"])), st.integers(0, 3))
def test_it_knows_headers(
    headers: list[list[tuple[str, bytes | None]] | None], name: str, value: bytes | None, cut: int
) -> None:
    batch = record_batch(3, 10, [b"v"] * len(headers), headers=headers).slice(cut)
    wanted = RecordFilter(header=name, header_value=value)
    expected = [
        10 + cut + index
        for index, pairs in enumerate(headers[cut:])
        if any(own == name and value in (None, text) for own, text in pairs or ())
    ]
    found = wanted.of(batch)
    assert found.schema == batch.schema and found.column("offset").to_pylist() == expected
    one_by_one = [wanted.takes(None, b"v", pairs or ()) for pairs in headers[cut:]]
    assert expected == [10 + cut + n for n, takes in enumerate(one_by_one) if takes]
    assert wanted and wanted.columns == ["headers"]


def test_one_that_wants_all_copies_nothing() -> None:
    batch: pa.RecordBatch = record_batch(0, 0, [b"a"])
    assert RecordFilter().of(batch) is batch
    assert not RecordFilter()
    assert RecordFilter(contains=b"")
