from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from siltlog.infra import delta_names, names
from siltlog.infra.errors import CorruptData
from siltlog.infra.settings.topic_config import TopicConfig
from siltlog.infra.table.data_file import DataFile
from siltlog.infra.table.snapshot import TableSnapshot
from siltlog.ingest.flush.due import FILES_PER_SECOND_BUDGET
from siltlog.pipelines.compaction.plan import (
    CHUNK_SCANS_MAX,
    RETENTION_BYTES_MIN,
    RETENTION_PARTS,
    RETENTION_RECORDS_MIN,
    TINY_FILE_BYTES,
    CompactionPlan,
    Limits,
    plan,
)

NOW_MS = 1_000_000
SMALL = Limits(file_bytes_target=1_000, chunk_bytes_max=3_000, chunk_files_max=50)
SMALL_FILE_BYTES = 5_000
MERGED_FILES_PER_SECOND = 250
MERGED_BYTES_PER_SECOND = 10_000_000
CHUNK_SECONDS = 1.0
PLAN_SECONDS = 3.0
"""What merging is taken to need, for a simulation."""
FOR_EVER = TopicConfig({"retention.ms": -1})


def data_file(partition: int, first: int, last: int, size: int, newest_ms: int = NOW_MS, name: str = "") -> DataFile:
    path = f"{names.partition_folder(partition)}/{name or f'{first}-{last}'}.parquet"
    times = (newest_ms * 1000, newest_ms * 1000)
    return DataFile(path, partition, last - first + 1, size, first, last, *times, newest_ms)


def snapshot_of(files: Sequence[DataFile], partitions: int = 3, *, deleted: bool = False) -> TableSnapshot:
    properties = {delta_names.PROPERTY_PARTITIONS: str(partitions), delta_names.PROPERTY_DELETED: str(deleted).lower()}
    return TableSnapshot.build(7, properties, {}, files)


def sized(*sizes: int, partition: int = 0) -> list[DataFile]:
    return [data_file(partition, 10 * index, 10 * index + 9, size) for index, size in enumerate(sizes)]


def applied(snapshot: TableSnapshot, made: CompactionPlan) -> TableSnapshot:
    """The snapshot after `made` ran, with files as large as their sources together."""
    files = dict(snapshot.files)
    for chunk in made.chunks:
        for merge in chunk.merges:
            for file in merge.files:
                del files[file.path]
            newest_ms = max(file.max_timestamp_us for file in merge.files) // 1000
            first, last = merge.files[0].first_offset, merge.files[-1].last_offset
            merged = data_file(merge.partition, first, last, merge.size_bytes, newest_ms, f"merged-{first}")
            files[merged.path] = merged
    return snapshot_of(list(files.values()), snapshot.partitions)


@st.composite
def snapshots(draw: st.DrawFn) -> TableSnapshot:
    files = []
    for partition in range(3):
        offset = 0
        for _ in range(draw(st.integers(0, 40))):
            offset += draw(st.sampled_from([0, 0, 5]))
            rows = draw(st.integers(1, 9))
            size = draw(st.sampled_from([1, 2, 10, 100, 300, 499, 500, 700, 2_000]))
            newest_ms = NOW_MS - draw(st.integers(0, 2_000))
            files.append(data_file(partition, offset, offset + rows - 1, size, newest_ms))
            offset += rows
    return snapshot_of(files)


configs = st.sampled_from(
    [FOR_EVER, TopicConfig({"retention.ms": 1_000}), TopicConfig({"retention.ms": 10, "cleanup.policy": "compact"})]
)


@given(snapshots(), configs)
def test_merges_are_neighbours_covered_once_and_bounded(snapshot: TableSnapshot, config: TopicConfig) -> None:
    made = plan(snapshot, config, NOW_MS, SMALL)
    covered = [file.path for chunk in made.chunks for file in chunk.files]
    assert len(covered) == len(set(covered))
    for chunk in made.chunks:
        assert chunk.size_bytes <= SMALL.chunk_bytes_max
        assert len(chunk.files) <= SMALL.chunk_files_max
        one_each = len({merge.partition for merge in chunk.merges}) == len(chunk.merges)
        assert one_each or len(chunk.merges) <= CHUNK_SCANS_MAX
        for merge in chunk.merges:
            in_order = list(snapshot.files_of(merge.partition))
            start = in_order.index(merge.files[0])
            assert tuple(in_order[start : start + len(merge.files)]) == merge.files
            assert len(merge.files) >= 2
            assert merge.size_bytes <= SMALL.file_bytes_target
            assert all(file.size_bytes < SMALL.big_bytes for file in merge.files)


@given(snapshots(), configs)
def test_its_result_needs_nothing_more(snapshot: TableSnapshot, config: TopicConfig) -> None:
    after = applied(snapshot, plan(snapshot, config, NOW_MS, SMALL))
    assert plan(after, config, NOW_MS, SMALL).chunks == ()


@given(snapshots())
def test_merging_delays_no_removal_by_retention_much(snapshot: TableSnapshot) -> None:
    retention_ms = 1_000
    config = TopicConfig({"retention.ms": retention_ms})
    for chunk in plan(snapshot, config, NOW_MS, SMALL).chunks:
        for merge in chunk.merges:
            waits_ms = 0
            removable_ms = []
            for file in snapshot.files_of(merge.partition):
                waits_ms = max(waits_ms, file.max_timestamp_us // 1000)
                if file in merge.files:
                    removable_ms.append(waits_ms)
            delay_ms = removable_ms[-1] - removable_ms[0]
            assert delay_ms <= retention_ms // RETENTION_PARTS or removable_ms[-1] < NOW_MS - retention_ms


def test_merged_files_are_a_part_of_what_retention_keeps() -> None:
    """Retention removes whole files: ones as large as all that is to be kept would keep twice as much."""
    offsets = range(0, 100_000, 500)
    files = [data_file(0, first, first + 499, 100_000, NOW_MS) for first in offsets]
    by_records = TopicConfig({"retention.ms": -1, "retention.records": 20 * RETENTION_RECORDS_MIN})
    by_bytes = TopicConfig({"retention.ms": -1, "retention.bytes": 20 * RETENTION_BYTES_MIN})
    (everything,) = plan(snapshot_of(files), FOR_EVER, NOW_MS).chunks[0].merges
    assert len(everything.files) == 200
    for config, rows_max, bytes_max in (
        (by_records, 2 * RETENTION_RECORDS_MIN, 20_000_000),
        (by_bytes, 100_000, 2 * RETENTION_BYTES_MIN),
    ):
        merges = [merge for chunk in plan(snapshot_of(files), config, NOW_MS).chunks for merge in chunk.merges]
        assert sum(len(merge.files) for merge in merges) >= 180
        assert all(sum(file.rows for file in merge.files) <= rows_max for merge in merges)
        assert all(merge.size_bytes <= bytes_max for merge in merges)
        assert len(merges) < 12
    keyed = TopicConfig({"cleanup.policy": "compact", "retention.bytes": 1, "retention.records": 1})
    assert len(plan(snapshot_of(files), keyed, NOW_MS).chunks[0].merges) == 1, "it says when records go, not this"


def test_small_files_become_one() -> None:
    (chunk,) = plan(snapshot_of(sized(*[1] * 40)), FOR_EVER, NOW_MS, SMALL).chunks
    assert [len(merge.files) for merge in chunk.merges] == [40]


def test_files_fill_up_to_the_target() -> None:
    merges = [
        merge
        for chunk in plan(snapshot_of(sized(*[300] * 7)), FOR_EVER, NOW_MS, SMALL).chunks
        for merge in chunk.merges
    ]
    assert [merge.size_bytes for merge in merges] == [900, 900]


def test_a_large_file_is_not_written_again_for_a_small_one() -> None:
    assert plan(snapshot_of(sized(200, 1, 398)), FOR_EVER, NOW_MS, SMALL).files == 2
    assert plan(snapshot_of(sized(200, 1, 399)), FOR_EVER, NOW_MS, SMALL).files == 3


def test_big_files_are_left_alone_and_part_their_neighbours() -> None:
    assert plan(snapshot_of(sized(1, 500, 1, 900, 1)), FOR_EVER, NOW_MS, SMALL).chunks == ()


def test_more_files_than_a_chunk_takes_come_to_rest_after_some_rounds() -> None:
    snapshot = snapshot_of(sized(*[1] * 170))
    counts = [170]
    while (made := plan(snapshot, FOR_EVER, NOW_MS, SMALL)).chunks:
        snapshot = applied(snapshot, made)
        counts.append(len(snapshot.files))
    assert counts == [170, 4, 1]


@pytest.mark.parametrize("partitions", [6, 100])
def test_at_the_full_rate_of_files_a_table_stays_small(partitions: int) -> None:
    """Small files come at a server's full rate; compaction runs again as soon as it has ended."""
    files: dict[str, DataFile] = {}
    ends = dict.fromkeys(range(partitions), 0)
    written = most = came = 0
    seconds = 0.0

    def pass_time(spent: float) -> None:
        nonlocal came, most, seconds
        seconds += spent
        while came < seconds * FILES_PER_SECOND_BUDGET:
            partition = came % partitions
            file = data_file(partition, ends[partition], ends[partition] + 9, SMALL_FILE_BYTES)
            files[file.path] = file
            ends[partition] += 10
            came += 1
        most = max(most, len(files))

    while seconds < 900:
        pass_time(PLAN_SECONDS)
        for chunk in plan(snapshot_of(list(files.values()), partitions), FOR_EVER, NOW_MS).chunks:
            pass_time(CHUNK_SECONDS + len(chunk.files) / MERGED_FILES_PER_SECOND)
            pass_time(chunk.size_bytes / MERGED_BYTES_PER_SECOND)
            written += chunk.size_bytes
            for merge in chunk.merges:
                for file in merge.files:
                    del files[file.path]
                first, last = merge.files[0].first_offset, merge.files[-1].last_offset
                merged = data_file(merge.partition, first, last, merge.size_bytes, name=f"merged-{first}-{last}")
                files[merged.path] = merged

    assert most < 5_000

    assert written < 5 * came * SMALL_FILE_BYTES, "how often a record is written anew has a bound"


def test_expired_records_are_merged_whatever_their_age() -> None:
    files = [data_file(0, index, index, 1, newest_ms=index * 10_000) for index in range(10)]
    config = TopicConfig({"retention.ms": 1_000})
    assert plan(snapshot_of(files), config, NOW_MS, SMALL).files == 10
    assert plan(snapshot_of(files), config, 0, SMALL).chunks == ()


def test_partitions_share_a_chunk() -> None:
    files = sized(1, 1, 1, partition=0) + sized(1, 1, 1, partition=2)
    (chunk,) = plan(snapshot_of(files), FOR_EVER, NOW_MS, SMALL).chunks
    assert [merge.partition for merge in chunk.merges] == [0, 2]


def test_a_deleted_topic_has_nothing_to_merge() -> None:
    assert plan(snapshot_of(sized(1, 1), deleted=True), FOR_EVER, NOW_MS, SMALL).chunks == ()


def test_what_keys_were_compacted_through_is_not_merged_with_the_rest() -> None:
    files = sized(1, 1, 1, 1, 1, 1)
    snapshot = snapshot_of(files)
    compacted = TableSnapshot.build(7, snapshot.properties, {delta_names.txn_compacted(0): 35}, files)
    merges = [merge.files for chunk in plan(compacted, FOR_EVER, NOW_MS, SMALL).chunks for merge in chunk.merges]
    assert merges == [tuple(files[:3]), tuple(files[3:])]


def test_several_merges_of_a_partition_are_written_together() -> None:
    made = plan(snapshot_of(sized(*[300] * 12)), FOR_EVER, NOW_MS, SMALL)
    assert [len(chunk.merges) for chunk in made.chunks] == [3, 1]
    roomy = Limits(file_bytes_target=1_000, chunk_bytes_max=1_000_000, chunk_files_max=1_000)
    made = plan(snapshot_of(sized(*[300] * 60)), FOR_EVER, NOW_MS, roomy)
    assert [len(chunk.merges) for chunk in made.chunks] == [CHUNK_SCANS_MAX, 20 - CHUNK_SCANS_MAX]


def test_what_key_compaction_writes_next_is_merged_only_where_files_are_tiny_or_very_many() -> None:
    limits = Limits(chunk_files_max=10)
    tiny, small = TINY_FILE_BYTES - 1, TINY_FILE_BYTES
    files = [*sized(*[small] * 4), *sized(*[tiny] * 4, partition=1), *sized(*[small] * 13, partition=2)]

    def merged(rewritten_next: set[int]) -> set[int]:
        made = plan(snapshot_of(files), FOR_EVER, NOW_MS, limits, rewritten_next=rewritten_next)
        return {merge.partition for chunk in made.chunks for merge in chunk.merges}

    assert merged(set()) == {0, 1, 2}
    assert merged({0, 1}) == {1, 2}
    assert merged({0, 2}) == {1, 2}, "more files than a query should have"


def test_overlapping_files_are_named_and_not_merged() -> None:
    files = [data_file(0, 0, 9, 1), data_file(0, 9, 12, 1)]
    with pytest.raises(CorruptData, match=r"0-9\.parquet.*9-12\.parquet.*offset 9"):
        plan(snapshot_of(files), FOR_EVER, NOW_MS, SMALL)


def test_files_of_one_partition_are_in_order() -> None:
    merges = [
        merge
        for chunk in plan(snapshot_of(sized(*[200] * 12)), FOR_EVER, NOW_MS, SMALL).chunks
        for merge in chunk.merges
    ]
    for before, after in pairwise(merges):
        assert before.files[-1].last_offset < after.files[0].first_offset
