"""Records of `_offsets`, and what they say together."""

from fake_log import record_batch
from hypothesis import given
from hypothesis import strategies as st
from pytest import mark, raises

from siltlog.consumers.keeping.saved_offsets import OffsetTable, SavedOffset, forgotten_record, saved_record
from siltlog.consumers.reading.view import Key
from siltlog.infra.records import NewRecord

IDS = ("0b8e3c1e-0000-4000-8000-000000000001", "0b8e3c1e-0000-4000-8000-000000000002")
groups = st.sampled_from(["g", "reporting.eu", "a-b_c"])
keys = st.builds(Key, st.just("t"), st.sampled_from(IDS), st.integers(0, 2))
entries = st.builds(
    SavedOffset,
    keys,
    st.integers(0, 2**53 - 1),
    st.just(0),
    st.text(max_size=20),
    st.integers(0, 2**53 - 1),
    st.integers(0, 9),
)
events = st.lists(st.tuples(groups, entries, st.booleans()), max_size=40)


def batches(records: list[NewRecord], sizes: list[int]) -> list[object]:
    found, at = [], 0
    for size in [*sizes, len(records)]:
        part = records[at : at + size]
        if part:
            found.append(record_batch(0, at, [one.value for one in part], keys=[one.key for one in part]))
        at += size
    return found


@given(events, st.lists(st.integers(1, 10), max_size=5))
def test_the_last_of_each_key_counts_however_the_records_are_cut(
    happened: list[tuple[str, SavedOffset, bool]], sizes: list[int]
) -> None:
    expected: dict[tuple[str, str, int], SavedOffset] = {}
    records = []
    for group, entry, gone in happened:
        place = (group, entry.key.topic_id, entry.key.partition)
        # A group that was deleted begins anew, maybe under a clock that was put back.
        entry = entry._replace(version=expected[place].version + 1 if place in expected else 1)
        if gone:
            expected.pop(place, None)
            records.append(forgotten_record(group, entry.key))
        else:
            expected[place] = entry
            records.append(saved_record(group, entry))
    table = OffsetTable()
    table.fold(batches(records, sizes))
    assert {(g, e.key.topic_id, e.key.partition): e for g, e in table.entries()} == expected
    assert table.groups() == sorted({group for group, _, _ in expected})


@given(st.permutations(range(1, 6)))
def test_of_two_the_higher_version_wins(versions: list[int]) -> None:
    table = OffsetTable()
    key = Key("t", IDS[0], 0)
    for version in versions:
        table.put("g", SavedOffset(key, version * 10, version, "", 0))
    assert table.of("g") == [SavedOffset(key, 50, 5, "", 0)]
    entry = table.of("g")[0]
    assert not table.lacks("g", entry) and table.lacks("h", entry)
    assert table.lacks("g", entry._replace(partitions_seen=1))


@mark.parametrize(
    ("key", "value"), [(b"g/x", b"{}"), (b"g/x/0", b"{}"), (b"g/x/0", b"no JSON"), (None, b"{}")], ids=repr
)
def test_what_is_no_offset_is_not_passed_over(key: bytes | None, value: bytes) -> None:
    with raises(ValueError):
        OffsetTable().fold([record_batch(0, 0, [value], keys=[key])])


def test_a_version_of_a_group_that_was_deleted_outranks_nothing() -> None:
    key = Key("t", IDS[0], 0)
    before, after = SavedOffset(key, 90, 9, "", 0), SavedOffset(key, 5, 2, "", 0)
    table = OffsetTable()
    table.fold(batches([saved_record("g", before), forgotten_record("g", key), saved_record("g", after)], [1]))
    assert table.of("g") == [after]
