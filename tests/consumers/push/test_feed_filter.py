import pyarrow as pa
from fake_log import record_batch
from hypothesis import given
from hypothesis import strategies as st

from siltlog.consumers.push.feed import RecordFilter

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
    one_by_one = [wanted.takes(*record) for record in records[cut:]]
    assert found.column("offset").to_pylist() == [10 + cut + n for n, takes in enumerate(one_by_one) if takes]


def test_one_that_wants_all_copies_nothing() -> None:
    batch: pa.RecordBatch = record_batch(0, 0, [b"a"])
    assert RecordFilter().of(batch) is batch
    assert not RecordFilter()
    assert RecordFilter(contains=b"")
