import subprocess
import sys
from collections import defaultdict
from datetime import UTC, datetime

import msgspec
import pyarrow as pa
import pytest
from fake_server import Stored, fake_server
from hypothesis import given
from hypothesis import strategies as st

from siltlog.consumers.library.positions import Fetch, FetchProblem, Positions, Run
from siltlog.consumers.library.record import ConsumerRecord, records_of
from siltlog.consumers.library.sources.server import FetchPlan, fetched_of
from siltlog.infra import names
from siltlog.infra.client.core import Response
from siltlog.infra.client.record import TopicPartition
from siltlog.infra.columns import FETCH_SCHEMA
from siltlog.infra.errors import OffsetOutOfRange

MOMENT = datetime(2026, 11, 21, 7, 36, 0, 123456, tzinfo=UTC)
A, B, OTHER = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 1)


def rows_of(at: TopicPartition, offsets: list[int]) -> list[dict[str, object]]:
    return [
        {"topic": at.topic, "partition": at.partition, "offset": offset, "timestamp": MOMENT, "value": b"%d" % offset}
        for offset in offsets
    ]


def reply_of(
    parts: dict[TopicPartition, tuple[list[int], int]], errors: dict[TopicPartition, str] | None = None
) -> pa.Table:
    """A reply with each partition's offsets and next offset."""
    rows = [row for at, (offsets, _) in parts.items() for row in rows_of(at, offsets)]
    states = [
        {
            "topic": at.topic, "partition": at.partition, "next_offset": after, "log_start_offset": 3,
            "table_offset": 5, "high_watermark": 90,
            "error": {"error_code": errors[at], "status": 416} if errors and at in errors else None,
        }
        for at, (_, after) in parts.items()
    ]  # fmt: skip
    metadata = {names.ARROW_METADATA_KEY: msgspec.json.encode(states)}
    return pa.Table.from_pylist(rows, FETCH_SCHEMA).replace_schema_metadata(metadata)


def depart(positions: Positions) -> Fetch:
    states = positions.wanted(None, 0.0)
    fetch = Fetch(FetchPlan("server", (), "wal", 1, 1, 1), states, 0.0)
    for state in states:
        state.fetch = fetch
    return fetch


def land(positions: Positions, fetch: Fetch, reply: pa.Table) -> list[FetchProblem]:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, reply.schema) as writer:
        writer.write_table(reply)
    return positions.land(fetch, fetched_of(Response(200, {}, sink.getvalue().to_pybytes())))


def drain(positions: Positions, size: int = 10, marks: dict[TopicPartition, int] | None = None) -> list[Run]:
    runs = []
    while (run := positions.take(size, marks)) is not None:
        positions.handed_out(run)
        runs.append(run)
    return runs


def offsets_of(runs: list[Run]) -> dict[TopicPartition, list[int]]:
    found: dict[TopicPartition, list[int]] = defaultdict(list)
    for run in runs:
        found[run.state.at] += run.rows["offset"].to_pylist()
    return dict(found)


@pytest.mark.rule("M1", "M7")
def test_rows_come_out_by_partition_and_positions_follow_what_the_server_named() -> None:
    positions = Positions()
    for at in (A, B, OTHER):
        positions.assign(at, 0)
    land(positions, depart(positions), reply_of({B: ([0, 4], 9), OTHER: ([1], 2), A: ([], 7)}))
    assert positions.states[A].position == 7
    assert offsets_of(drain(positions, size=1)) == {B: [0, 4], OTHER: [1]}
    assert [positions.states[at].position for at in (A, B, OTHER)] == [7, 9, 2]
    assert positions.uncommitted() == {}
    positions.mark_done()
    # Retention has passed OTHER meanwhile: below the log start nothing can be committed.
    assert positions.uncommitted() == {A: 7, B: 9, OTHER: 3}
    positions.committed({A: 7, B: 9, OTHER: 3})
    assert positions.uncommitted() == {}


@pytest.mark.rule("M2")
def test_a_reply_to_what_has_moved_meanwhile_is_left_out() -> None:
    positions = Positions()
    positions.assign(A, 0)
    positions.assign(B, 0)
    positions.assign(OTHER, 0)
    before = depart(positions)
    positions.seek(A, 50)
    positions.revoke([B])
    positions.revoke([OTHER])
    positions.assign(OTHER, 0)
    land(positions, before, reply_of({A: ([0], 1), B: ([0], 1), OTHER: ([0], 1)}))
    assert drain(positions) == []
    assert positions.states[A].asked == 50


def test_what_is_buffered_goes_with_its_partition() -> None:
    positions = Positions()
    positions.assign(A, 0)
    positions.assign(B, 0)
    land(positions, depart(positions), reply_of({A: ([0, 1], 2), B: ([0, 1], 2)}))
    positions.states[A].paused = True
    assert offsets_of(drain(positions)) == {B: [0, 1]}
    positions.states[A].paused = False
    run = positions.take(1)
    assert run is not None
    positions.revoke([A])
    positions.give_back(run)
    assert drain(positions) == []


def test_a_problem_is_told_with_the_bounds() -> None:
    positions = Positions()
    positions.assign(A, 0)
    [found] = land(positions, depart(positions), reply_of({A: ([], 0)}, {A: "offset_out_of_range"}))
    assert isinstance(found.fetched.error, OffsetOutOfRange)
    assert found.fetched.bounds == (3, 5, 90)


@pytest.mark.rule("M1")
def test_a_gap_behind_the_last_record_is_passed_with_it() -> None:
    positions = Positions()
    positions.assign(A, 0)
    land(positions, depart(positions), reply_of({A: ([0, 1], 2)}))
    land(positions, depart(positions), reply_of({A: ([], 20)}))
    assert positions.states[A].position == 0
    assert offsets_of(drain(positions, size=1)) == {A: [0, 1]}
    assert positions.states[A].position == 20
    assert positions.finished({A: 20})


@pytest.mark.rule("M3")
def test_a_commit_whose_answer_was_lost_is_made_again() -> None:
    positions = Positions()
    positions.assign(A, 8)
    positions.seek(A, 0)
    assert positions.uncommitted() == {A: 0}
    positions.committing([A])
    positions.states[A].done = 8
    assert positions.uncommitted() == {A: 8}


def test_what_is_paused_is_fetched_again_where_its_room_is_needed() -> None:
    positions = Positions()
    for at in (A, B):
        positions.assign(at, 0)
    land(positions, depart(positions), reply_of({A: ([0, 1], 2), B: ([0, 1], 2)}))
    positions.states[A].paused = True
    assert not positions.all_held(None)
    drain(positions)
    assert positions.all_held(None) and positions.buffered_bytes > 0
    positions.forget_buffered()
    assert positions.buffered_bytes == 0 and positions.states[A].asked == 0
    positions.states[A].paused = False
    late = depart(positions)
    land(positions, late, reply_of({A: ([0, 1], 2), B: ([], 2)}))
    assert offsets_of(drain(positions)) == {A: [0, 1]}


def test_marks_end_a_partition_even_inside_a_gap() -> None:
    positions = Positions()
    positions.assign(A, 0)
    positions.assign(B, 0)
    marks = {A: 5, B: 0}
    assert [state.at for state in positions.wanted(marks, 0.0)] == [A]
    land(positions, depart(positions), reply_of({A: ([0, 2, 8, 9], 10), B: ([], 0)}))
    assert not positions.finished(marks)
    assert offsets_of(drain(positions, marks=marks)) == {A: [0, 2]}
    assert positions.finished(marks)
    assert offsets_of(drain(positions)) == {A: [8, 9]}


@given(
    st.lists(st.integers(0, 3), max_size=30).map(lambda gaps: [sum(gaps[: i + 1]) + i for i in range(len(gaps))]),
    st.lists(st.integers(1, 7), min_size=1, max_size=40),
    st.integers(0, 20),
)
def test_taking_in_any_sizes_gives_every_record_once(offsets: list[int], sizes: list[int], back: int) -> None:
    positions = Positions()
    positions.assign(A, 0)
    after = offsets[-1] + 3 if offsets else 3
    land(positions, depart(positions), reply_of({A: (offsets, after)}))
    seen: list[int] = []
    for turn in range(1000):
        run = positions.take(sizes[turn % len(sizes)])
        if run is None:
            break
        if turn == back and run.rows.num_rows > 1:
            seen += run.rows["offset"].to_pylist()[:1]
            positions.give_back(run._replace(rows=run.rows.slice(1)))
            continue
        seen += run.rows["offset"].to_pylist()
        assert seen[-1] < run.after
        positions.handed_out(run)
    assert seen == offsets
    assert positions.states[A].position == after


def test_records_have_bytes_as_stored() -> None:
    rows = pa.Table.from_pylist(
        [
            {
                "offset": 1,
                "timestamp": MOMENT,
                "key": b"k",
                "value": b'{"a": 1}',
                "headers": [{"key": "h", "value": None}],
            },
            {"offset": 3, "timestamp": MOMENT, "key": b"k", "value": None, "headers": None},
        ],
        FETCH_SCHEMA,
    )
    first, second = records_of("t", 2, rows)
    assert first == ConsumerRecord("t", 2, 1, MOMENT, b"k", b'{"a": 1}', (("h", None),))
    assert first.json() == {"a": 1} and first.text() == '{"a": 1}'
    assert second.headers == () and second.json() is None and second.text() is None


@pytest.mark.rule("X6")
def test_a_program_that_polls_loads_only_what_that_takes() -> None:
    """Pandas alone takes half a second; it is installed here, and many functions of pyarrow import it."""
    script = """
import sys
from siltlog import Consumer, TopicPartition

with Consumer(sys.argv[1], assign=[TopicPartition("t", 0), TopicPartition("t", 1)], stop_at="latest") as consumer:
    assert consumer.poll(max_records=2, timeout_ms=20_000)
    assert consumer.poll_arrow(max_records=2, timeout_ms=20_000).num_rows
    assert next(consumer).text() == "v"
    assert len(list(consumer)) > 10
    assert consumer.poll_arrow(timeout_ms=0).num_rows == 0
    assert {lag.records for lag in consumer.lag().values()} == {0}
heavy = {
    "pandas", "redis", "deltalake", "starlette", "aiohttp", "asyncio", "boto3", "fsspec", "pydantic", "pyspark",
    "uvicorn",
}
assert not heavy & {name.partition(".")[0] for name in sys.modules}, heavy & set(sys.modules)
"""
    with fake_server() as server:
        server.topic("t", 2)
        for partition in (0, 1):
            server.topics["t"].partitions[partition] += [Stored(b"v", b"k", None, MOMENT) for _ in range(10)]
        subprocess.run([sys.executable, "-c", script, server.url], check=True, timeout=60)


def test_sorting_a_reply_imports_no_pandas() -> None:
    script = """
import sys
import numpy as np
import pyarrow as pa
from siltlog.consumers.library.sources.server import by_partition
from siltlog.infra.arrow.arrays import binary_array, fixed_array
from siltlog.infra.columns import FETCH_SCHEMA

known = {
    "topic": binary_array([b"a", b"a", b"b"]).view(pa.string()),
    "partition": fixed_array(np.array([0, 2, 2], np.int32), pa.int32()),
}
columns = [known[field.name] if field.name in known else pa.nulls(3, field.type) for field in FETCH_SCHEMA]
found = by_partition(pa.Table.from_arrays(columns, schema=FETCH_SCHEMA))
assert [(at.topic, at.partition) for at in found] == [("a", 0), ("a", 2), ("b", 2)], found
assert "pandas" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)
