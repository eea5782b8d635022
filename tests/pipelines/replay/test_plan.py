"""Plans of replays and the records of a range: pure, or over a table that is written as the server writes it."""

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from record_tables import new_id, records
from topic_writer import TopicWriter

from siltlog.infra import names, producer_names
from siltlog.infra.columns import RECORD_SCHEMA
from siltlog.infra.errors import Refused, SiltlogError
from siltlog.infra.store.store import ObjectStore
from siltlog.infra.table.opening import snapshot_at
from siltlog.pipelines.replay.plan import (
    BLOCK_OFFSETS,
    Progress,
    Target,
    checked_run,
    plan,
    read_plan,
    read_progress,
    resume_from,
    write_plan,
    write_progress,
)
from siltlog.pipelines.replay.publish import ADDED, in_blocks, with_origin
from siltlog.pipelines.replay.query import matching, remove_matches
from siltlog.pipelines.replay.range import Selection, plan_slices, records_of, totals

OFFSETS = st.lists(st.integers(0, 4 * BLOCK_OFFSETS), unique=True, max_size=60).map(sorted)
PAIRS = st.lists(st.tuples(st.text(max_size=3), st.none() | st.binary(max_size=3)), max_size=3)


def read(store: ObjectStore, snapshot: Any, selection: Selection) -> list[tuple[int, int]]:
    slices = plan_slices("events", snapshot, selection)
    tables = [table for part in slices for table in records_of(store, "events", part, selection)]
    rows = [row for table in tables for row in zip(*(table[name].to_pylist() for name in NAMES), strict=True)]
    assert len(rows) <= totals(slices)[1]
    return rows


NAMES = ("partition", "offset")


def test_a_range_by_offsets_times_keys_and_version(store: ObjectStore) -> None:
    topic = TopicWriter(store, "events")
    topic.append(3, 2)
    before = topic.table.snapshot.version
    topic.append(4, 0)
    now = topic.table.refresh()
    everything = [(0, offset) for offset in range(7)] + [(1, 0), (1, 1)]
    assert read(store, now, Selection()) == everything
    assert read(store, now, Selection(start_offset=1, end_offset=4)) == [(0, 1), (0, 2), (0, 3), (1, 1)]
    assert read(store, now, Selection(partitions=(1,))) == [(1, 0), (1, 1)]
    old = snapshot_at(store, "events", before)
    assert (old.version, read(store, old, Selection())) == (before, [row for row in everything if row[1] < 3])
    first = records(0, 7, full=True)
    moments = first["timestamp"].cast(pa.int64()).to_pylist()
    chosen = Selection(start_us=moments[2], end_us=moments[2] + 1, partitions=(0,))
    assert (0, 2) in read(store, now, chosen)
    assert all(moments[offset] == moments[2] for _, offset in read(store, now, chosen))
    key = first["key"].to_pylist()[1]
    assert read(store, now, Selection(key=key, partitions=(0,), end_offset=3)) == [
        (0, offset) for offset, other in enumerate(first["key"].to_pylist()[:3]) if other == key
    ]
    assert read(store, now, Selection(start_offset=100)) == []
    last = {partition: max(offset for p, offset in everything if p == partition) for partition in (0, 1)}
    assert read(store, now, Selection(start_offset=-2, end_offset=-1)) == [(p, last[p] - 1) for p in (0, 1)]
    assert read(store, now, Selection(start_offset=-(10**6))) == everything
    with pytest.raises(Refused, match="it has 2"):
        plan_slices("events", now, Selection(partitions=(2,)))
    for version in (-1, now.version + 1):
        with pytest.raises(Refused, match=f"no version {version}"):
            snapshot_at(store, "events", version)


PLACE = st.none() | st.integers(-60, 60)


@given(PLACE, PLACE, st.integers(0, 50), st.integers(0, 50))
def test_negative_places_count_from_the_end(first: int | None, last: int | None, log_start: int, rows: int) -> None:
    end = log_start + rows
    start, stop = Selection(start_offset=first, end_offset=last).offsets_in(log_start, end)
    assert log_start <= start and stop <= end
    offsets = range(log_start, end)
    expected = set(offsets)
    for place, keeps_above in ((first, True), (last, False)):
        if place is not None:
            cut = place if place >= 0 else end + place
            expected &= {offset for offset in offsets if (offset >= cut) is keeps_above}
    assert set(range(start, stop)) == expected


def test_what_a_run_is_outlives_its_process(store: ObjectStore) -> None:
    topic = TopicWriter(store, "events")
    topic.append(3, 2)
    made = plan("events", topic.table.snapshot, Selection(key=b"\xff", where="true"), Target("copy", "id", 2))
    assert made.keep_partitions and made.version == topic.table.snapshot.version
    assert not plan("events", topic.table.snapshot, Selection(), Target("copy", "id", 3)).keep_partitions
    assert read_plan(store, "run") is None
    assert write_plan(store, "run", made) and not write_plan(store, "run", made)
    assert read_plan(store, "run") == made
    assert read_progress(store, "run") == Progress()
    write_progress(store, "run", Progress({1: 5}))
    assert read_progress(store, "run") == Progress({1: 5})
    for into in ("_jobs", "events.dlq"):
        with pytest.raises(Refused, match="--into"):
            plan("events", topic.table.snapshot, Selection(), Target(into, "id", 2))
    for run in ("", "a/b", "..", "x" * 129):
        with pytest.raises(Refused, match="a run is named by"):
            checked_run(run)


def test_partitions_that_grew_go_by_their_keys(store: ObjectStore) -> None:
    topic = TopicWriter(store, "events", 1)
    topic.append(3)
    grown = topic.table.grow(2, [3], topic.epochs[0], new_id(), config=topic.config)
    assert not plan("events", grown, Selection(), Target("copy", "id", 2)).keep_partitions


@pytest.mark.rule("KF23")
def test_partitions_stay_where_keys_are_placed_alike(store: ObjectStore) -> None:
    for name, own in (("ours", "xxhash64"), ("kafkas", "murmur2")):
        topic = TopicWriter(store, name, partitioner=own)
        topic.append(3)
        for into in ("xxhash64", "murmur2"):
            made = plan(name, topic.table.snapshot, Selection(), Target("copy", "id", 2, into))
            assert made.keep_partitions == (own == into)


RUNS = st.text("seat-01", min_size=1, max_size=7)
PARTITIONS = st.integers(0, 11)


@given(RUNS, RUNS, PARTITIONS, PARTITIONS)
def test_no_two_runs_have_one_producer(one: str, other: str, first: int, second: int) -> None:
    producers = producer_names.replay_run_producer(one, first), producer_names.replay_run_producer(other, second)
    assert (producers[0] == producers[1]) == ((one, first) == (other, second))
    assert producer_names.replay_run_seat(one) != producers[1]


@pytest.mark.rule("Y2")
@given(OFFSETS, st.integers(1, 2000))
def test_no_request_has_records_of_two_blocks(offsets: list[int], bytes_max: int) -> None:
    blocks = list(in_blocks(_tables(offsets), bytes_max))
    assert [offset for block in blocks for offset in block["offset"].to_pylist()] == offsets
    for block in blocks:
        assert len({offset // BLOCK_OFFSETS for offset in block["offset"].to_pylist()}) == 1


@pytest.mark.rule("Y2")
@given(OFFSETS, st.data())
def test_a_run_that_goes_on_leaves_nothing_out(offsets: list[int], data: st.DataObject) -> None:
    """Killed within any request, of which any part may have landed."""
    requests = [block["offset"].to_pylist() for block in in_blocks(_tables(offsets), 80)]
    sent = data.draw(st.integers(0, len(requests)))
    arrived = {offset for request in requests[:sent] for offset in request}
    if sent < len(requests):
        arrived |= set(data.draw(st.lists(st.sampled_from(requests[sent]))))
    progress = data.draw(st.sampled_from([None, *(request[-1] + 1 for request in requests[:sent])]))
    last = [max(part) for remainder in range(3) if (part := [one for one in arrived if one % 3 == remainder])]
    start = resume_from(0, progress, last)
    assert {offset for offset in offsets if offset < start} <= arrived


def _tables(offsets: list[int]) -> Iterator[pa.Table]:
    whole = pa.table({"offset": pa.array(offsets, pa.int64())})
    return (whole.slice(start, 7) for start in range(0, len(offsets), 7))


@given(st.lists(st.none() | PAIRS, max_size=5))
def test_headers_tell_where_a_record_was(headers: list[list[tuple[str, bytes | None]] | None]) -> None:
    count = len(headers)
    table = pa.table(
        {
            "partition": pa.array([3] * count, pa.int32()),
            "offset": pa.array(range(count), pa.int64()),
            "timestamp": pa.array([1_700_000_000_123_456 + n for n in range(count)], pa.timestamp("us", "UTC")),
            "key": pa.nulls(count, pa.binary()),
            "value": pa.nulls(count, pa.binary()),
            "headers": pa.array(headers, RECORD_SCHEMA.field("headers").type),
        },
        schema=RECORD_SCHEMA,
    )
    for start in range(min(count, 2)):
        given_back = with_origin(table.slice(start).combine_chunks(), "run-1", "events").to_pylist()
        for at, found in enumerate(given_back, start):
            own = [{"key": key, "value": value} for key, value in headers[at] or []]
            said = (b"run-1", b"events", b"3", str(at).encode(), b"2023-11-14T22:13:20.%06dZ" % (123_456 + at))
            assert found == own + [{"key": name, "value": value} for name, value in zip(ADDED, said, strict=True)]


@pytest.mark.slow
@pytest.mark.rule("Y6")
@pytest.mark.spark
def test_a_condition_of_spark_sql(store: ObjectStore, spark: Any) -> None:
    topic = TopicWriter(store, "events")
    topic.append(30, 2)
    topic.append(30, 0)
    snapshot = topic.table.refresh()
    selection = Selection(where="string(value) like '%7' or `offset` = 1", start_offset=1, end_offset=50)
    expected = [(0, 1), *((0, offset) for offset in (7, 17, 27, 37, 47)), (1, 1)]
    assert matching(store, "events", snapshot, Selection(where="false", start_us=5), "run-2") == []
    last = matching(store, "events", snapshot, Selection(where="true", start_offset=-3, end_offset=-1), "run-4")
    assert [(part.partition, part.start, part.end) for part in last] == [(0, 57, 59), (1, 0, 1)]
    for _ in range(2):
        slices = matching(store, "events", snapshot, selection, "run-1")
        found = [
            row
            for part in slices
            for table in records_of(store, "events", part, selection)
            for row in zip(*(table[name].to_pylist() for name in NAMES), strict=True)
        ]
        assert found == expected
        store.delete(f"{names.topic_path('events')}/{next(iter(snapshot.files))}")  # what was found is not looked for
    folder = f"{names.topic_path('events')}/{names.rewrite_folder('run-1')}"
    [lost, *_] = [info.path for info in store.list(folder) if info.path.endswith(".parquet")]
    store.delete(lost)
    with pytest.raises(SiltlogError):
        # As vacuum may leave it: it is looked for again, where the table has lost files by now.
        matching(store, "events", snapshot, selection, "run-1")
    with pytest.raises(Refused, match="no_such_column"):
        matching(store, "events", snapshot, Selection(where="no_such_column = 1"), "run-3")
    for run in ("run-1", "run-2", "run-4"):
        remove_matches(store, "events", run)
    assert not [info for info in store.list(names.topic_path("events")) if names.REWRITE_PREFIX in info.path]
