from collections.abc import Sequence
from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from siltlog.infra import delta_names, names
from siltlog.infra.errors import CorruptData
from siltlog.infra.settings.topic_config import TopicConfig
from siltlog.infra.table.data_file import DataFile
from siltlog.infra.table.snapshot import TableSnapshot
from siltlog.pipelines.retention.plan import plan

NOW_MS = 1_000_000


def data_file(partition: int, first: int, rows: int, size: int = 10, newest_ms: int = NOW_MS) -> DataFile:
    path = f"{names.partition_folder(partition)}/{first}.parquet"
    times = (newest_ms * 1000, newest_ms * 1000)
    return DataFile(path, partition, rows, size, first, first + rows - 1, *times, newest_ms)


def snapshot_of(
    files: Sequence[DataFile], starts: dict[int, int] | None = None, *, partitions: int = 2, deleted: bool = False
) -> TableSnapshot:
    """Each table offset is the end of its partition's last file."""
    properties = {delta_names.PROPERTY_PARTITIONS: str(partitions), delta_names.PROPERTY_DELETED: str(deleted).lower()}
    transactions = {delta_names.txn_start(partition): start for partition, start in (starts or {}).items()}
    for file in files:
        app_id = delta_names.txn_offset(file.partition)
        transactions[app_id] = max(transactions.get(app_id, 0), file.last_offset + 1)
    return TableSnapshot.build(7, properties, transactions, files)


def config(**settings: int | str) -> TopicConfig:
    return TopicConfig({name.replace("_", "."): value for name, value in ({"retention_ms": -1} | settings).items()})


def aged(*ages_ms: int, size: int = 10) -> TableSnapshot:
    """One partition whose files of ten records have newest records of these ages."""
    return snapshot_of([data_file(0, 10 * n, 10, size, NOW_MS - age) for n, age in enumerate(ages_ms)])


def start_of(snapshot: TableSnapshot, **settings: int | str) -> int:
    made = plan(snapshot, config(**settings), NOW_MS)
    return made.moves[0].start if made.moves else snapshot.starts[0]


def test_each_limit_alone() -> None:
    snapshot = aged(50, 40, 30, 20, 10)
    assert start_of(snapshot) == 0
    assert [start_of(snapshot, retention_ms=ms) for ms in (60, 50, 49, 30, 29, 0)] == [0, 0, 10, 20, 30, 50]
    assert [start_of(snapshot, retention_bytes=size) for size in (50, 41, 40, 11, 10, 1, 0)] == [
        0,
        0,
        10,
        30,
        40,
        40,
        50,
    ]
    assert [start_of(snapshot, retention_records=rows) for rows in (50, 41, 40, 1, 0)] == [0, 0, 10, 40, 50]


def test_limits_together_remove_what_any_of_them_does() -> None:
    snapshot = aged(50, 0, 40, 30, 20)
    assert start_of(snapshot, retention_ms=25) == 10, "a young record keeps those after it"
    assert start_of(snapshot, retention_ms=25, retention_records=30) == 40, "unless it is expired in another way"
    assert start_of(snapshot, retention_bytes=45, retention_records=1_000_000) == 0


def test_a_file_stays_for_its_newest_record() -> None:
    assert start_of(aged(-5, 100, 100), retention_ms=50) == 0


def test_the_first_offset_there_is_becomes_the_log_start() -> None:
    snapshot = snapshot_of([data_file(0, 0, 5, newest_ms=1), data_file(0, 2**32, 5)])
    assert start_of(snapshot, retention_ms=5) == 2**32


@pytest.mark.parametrize("policy", ["delete", "compact,delete"])
def test_policies_that_delete(policy: str) -> None:
    assert start_of(aged(50), retention_ms=5, cleanup_policy=policy) == 10


def test_nothing_is_planned_for_topics_that_keep_their_records() -> None:
    assert start_of(aged(50), retention_ms=5, cleanup_policy="compact") == 0
    deleted = snapshot_of([data_file(0, 0, 5, newest_ms=1)], deleted=True)
    assert plan(deleted, config(retention_ms=5), NOW_MS).moves == ()
    assert plan(snapshot_of([]), config(retention_ms=0), NOW_MS).moves == ()


def test_overlapping_files_are_named() -> None:
    files = [data_file(0, 0, 10, newest_ms=1), data_file(0, 5, 10)]
    with pytest.raises(CorruptData, match=r"0\.parquet and .*5\.parquet .*offset 5"):
        plan(snapshot_of(files), config(retention_ms=5), NOW_MS)


def test_what_lies_below_the_log_start_goes_although_it_is_young() -> None:
    snapshot = snapshot_of([data_file(0, 0, 5), data_file(0, 5, 5)], {0: 7})
    made = plan(snapshot, config(retention_ms=1_000), NOW_MS)
    assert [(move.before, move.start, move.rows) for move in made.moves] == [(7, 7, 5)]


@st.composite
def snapshots(draw: st.DrawFn) -> TableSnapshot:
    files, starts = [], {}
    for partition in range(2):
        offset = 0
        for _ in range(draw(st.integers(0, 25))):
            offset += draw(st.sampled_from([0, 0, 0, 3]))
            rows = draw(st.integers(1, 9))
            newest_ms = NOW_MS - draw(st.integers(-5, 100))
            files.append(data_file(partition, offset, rows, draw(st.integers(0, 30)), newest_ms))
            offset += rows
        first = next((file.rows for file in files if file.partition == partition), 0)
        starts[partition] = draw(st.integers(0, max(first - 1, 0)))
    return snapshot_of(files, starts)


limits = st.one_of(st.just(-1), st.integers(0, 120))


@pytest.mark.rule("L3")
@given(snapshots(), limits, limits, limits)
def test_every_removed_record_is_expired_and_the_prefix_is_the_longest(
    snapshot: TableSnapshot, period_ms: int, bytes_max: int, records_max: int
) -> None:
    settings = config(retention_ms=period_ms, retention_bytes=bytes_max, retention_records=records_max)
    made = plan(snapshot, settings, NOW_MS)
    moves = {move.partition: move for move in made.moves}
    for partition in range(2):
        files = snapshot.files_of(partition)
        rest_bytes = [0, *accumulate(file.size_bytes for file in reversed(files))]
        rest_rows = [0, *accumulate(file.rows for file in reversed(files))]

        expired = [
            (period_ms >= 0 and file.max_timestamp_us < (NOW_MS - period_ms) * 1000)
            or (bytes_max >= 0 and rest_bytes[len(files) - index - 1] >= bytes_max)
            or (records_max >= 0 and rest_rows[len(files) - index - 1] >= records_max)
            for index, file in enumerate(files)
        ]
        move = moves.get(partition)
        count = len(move.files) if move else 0
        assert all(expired[:count])
        assert count == len(files) or not expired[count]
        if move is not None:
            assert move.files == tuple(files[:count]) and move.before == snapshot.starts[partition]
            assert move.before < move.start <= snapshot.offsets[partition]
            assert all(file.last_offset < move.start for file in move.files)
            assert all(file.first_offset >= move.start for file in files[count:])


@given(snapshots(), limits, limits, st.integers(1, 7))
def test_in_steps_it_comes_to_the_same(
    snapshot: TableSnapshot, period_ms: int, records_max: int, files_max: int
) -> None:
    settings = config(retention_ms=period_ms, retention_records=records_max)
    whole = plan(snapshot, settings, NOW_MS)
    starts = dict(snapshot.starts)
    files = list(snapshot.files.values())
    removed = 0
    while (made := plan(snapshot_of(files, starts), settings, NOW_MS, files_max=files_max)).moves:
        assert 0 < made.files <= files_max
        removed += made.files
        for move in made.moves:
            files = [file for file in files if file not in move.files]
            # The table offset of an emptied partition is not in its files.
            starts[move.partition] = move.start
    assert removed == whole.files
    assert {p: start for p, start in starts.items() if start != snapshot.starts[p]} == {
        move.partition: move.start for move in whole.moves
    }


@given(snapshots(), limits, st.integers(0, 60))
def test_until(snapshot: TableSnapshot, records_max: int, end: int) -> None:
    settings = config(retention_records=records_max)
    whole = {move.partition: move for move in plan(snapshot, settings, NOW_MS).moves}
    made = plan(snapshot, settings, NOW_MS, until={0: end})
    assert all(move.partition == 0 for move in made.moves)
    kept = [file for file in whole[0].files if file.last_offset < end] if 0 in whole else []
    assert [file for move in made.moves for file in move.files] == kept
