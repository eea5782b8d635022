"""A plan says which partitions are looked through, and which of their files are written anew."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from siltlog.infra import delta_names, names
from siltlog.infra.errors import CorruptData
from siltlog.infra.settings.topic_config import TopicConfig
from siltlog.infra.table.data_file import DataFile
from siltlog.infra.table.snapshot import TableSnapshot
from siltlog.infra.table.totals import Kept
from siltlog.pipelines.compaction.keys_plan import (
    CHUNK_WORDS_MAX,
    CLEAN_PARTS,
    PASS_PARTITIONS_MAX,
    SMALL_BYTES,
    KeptFile,
    KeyRange,
    first_too_young,
    fits_in_memory,
    plan,
    rewrites,
)
from siltlog.pipelines.compaction.plan import CHUNK_SCANS_MAX, MIB, Limits

NOW_MS = 1_000_000
COMPACT = TopicConfig({"cleanup.policy": "compact", "delete.retention.ms": 1_000})
SMALL = Limits(file_bytes_target=1_000, chunk_bytes_max=3_000, chunk_files_max=50)


def data_file(partition: int, first: int, rows: int, size: int, newest_ms: int = NOW_MS) -> DataFile:
    path = f"{names.partition_folder(partition)}/{first}.parquet"
    return DataFile(path, partition, rows, size, first, first + rows - 1, newest_ms * 1000, newest_ms * 1000, newest_ms)


def snapshot_of(files: Sequence[DataFile], partitions: int = 2, **transactions: int) -> TableSnapshot:
    """`compacted_0=5` sets the app transaction `compacted/0`."""
    ends = dict.fromkeys(range(partitions), 0)
    for file in files:
        ends[file.partition] = max(ends[file.partition], file.last_offset + 1)
    numbers = {delta_names.txn_offset(partition): end for partition, end in ends.items()}
    numbers |= {name.replace("_", "/"): number for name, number in transactions.items()}
    return TableSnapshot.build(3, {delta_names.PROPERTY_PARTITIONS: str(partitions)}, numbers, files)


def ranges_of(snapshot: TableSnapshot, config: TopicConfig = COMPACT, **horizons: int) -> list[KeyRange]:
    passes = plan(snapshot, config, NOW_MS, {int(name[1:]): end for name, end in horizons.items()})
    return [found for ranges in passes for found in ranges]


def test_a_small_partition_is_due_with_its_first_new_record() -> None:
    files = [data_file(0, 0, 10, 100), data_file(0, 10, 1, 1)]
    (found,) = ranges_of(snapshot_of(files, compacted_0=10))
    assert (found.start, found.end, found.last, found.expired_below) == (0, 11, 10, 0)
    assert found.files == tuple(files)
    assert ranges_of(snapshot_of(files, compacted_0=11)) == []


@pytest.mark.parametrize("policy", ["compact", "compact,delete"])
def test_policies_that_compact(policy: str) -> None:
    snapshot = snapshot_of([data_file(0, 0, 10, 100)])
    assert ranges_of(snapshot, TopicConfig({"cleanup.policy": policy}))
    assert ranges_of(snapshot, TopicConfig({})) == []


def test_a_large_partition_waits_until_a_part_of_it_is_new() -> None:
    clean = data_file(0, 0, 1_000, SMALL_BYTES * 4)
    enough = SMALL_BYTES * 4 // CLEAN_PARTS
    assert ranges_of(snapshot_of([clean, data_file(0, 1_000, 10, enough - 1)], compacted_0=1_000)) == []
    assert ranges_of(snapshot_of([clean, data_file(0, 1_000, 10, enough)], compacted_0=1_000))


def test_of_a_file_on_both_sides_of_the_mark_its_share_counts() -> None:
    whole = data_file(0, 0, 1_000, SMALL_BYTES * 5)
    assert ranges_of(snapshot_of([whole], compacted_0=900)) == []
    assert ranges_of(snapshot_of([whole], compacted_0=800))


def test_expired_tombstones_make_a_partition_due() -> None:
    files = [data_file(0, 0, 10, 100), data_file(0, 10, 10, 100)]
    marks = {"compacted_0": 20, "tombstones_0": 10}
    since = "tombstones-since/0"
    waiting = snapshot_of(files, **marks, **{since: NOW_MS - 999})
    assert ranges_of(waiting) == []
    (found,) = ranges_of(snapshot_of(files, **marks, **{since: NOW_MS - 1_000}))
    assert found.expired_below == 10
    dirty = snapshot_of(files, compacted_0=10, tombstones_0=10, **{since: NOW_MS - 999})
    assert ranges_of(dirty)[0].expired_below == 0


def test_the_largest_time_keeps_tombstones_for_ever() -> None:
    config = TopicConfig({"cleanup.policy": "compact", "delete.retention.ms": 2**53 - 1})
    marks = {"compacted_0": 20, "tombstones_0": 10, "tombstones-since/0": 0}
    files = [data_file(0, 0, 10, 100), data_file(0, 10, 10, 100)]
    assert ranges_of(snapshot_of(files, **marks), config) == []
    (found,) = ranges_of(snapshot_of(files, **{**marks, "compacted_0": 10}), config)
    assert found.expired_below == 0


@pytest.mark.rule("K1")
def test_nothing_above_the_horizon_is_looked_through() -> None:
    files = [data_file(0, 0, 10, 1), data_file(0, 10, 10, 1), data_file(0, 20, 10, 1)]
    (found,) = ranges_of(snapshot_of(files), p0=15)
    assert (found.end, found.last, len(found.files)) == (15, 29, 2)
    assert ranges_of(snapshot_of(files), p0=0) == []
    assert ranges_of(snapshot_of(files, compacted_0=15), p0=15) == []


def test_the_first_file_with_a_young_record_is_named() -> None:
    files = [data_file(0, 0, 10, 1, 100), data_file(0, 10, 10, 1, 901), data_file(0, 20, 10, 1, 50)]
    config = TopicConfig({"cleanup.policy": "compact", "min.compaction.lag.ms": 100})
    assert first_too_young(snapshot_of(files), config, 1_000) == {0: files[1]}
    assert first_too_young(snapshot_of(files), config, 1_001) == {}
    assert first_too_young(snapshot_of(files), COMPACT, 1_000) == {}


def test_partitions_are_looked_through_together_as_far_as_they_are_small() -> None:
    files = [data_file(partition, 0, 10, 10) for partition in range(PASS_PARTITIONS_MAX + 3)]
    assert [len(ranges) for ranges in plan(snapshot_of(files, len(files)), COMPACT, NOW_MS, {})] == [16, 3]
    large = [replace(file, size_bytes=700 * MIB) for file in files[:3]]
    assert [len(ranges) for ranges in plan(snapshot_of(large, 3), COMPACT, NOW_MS, {})] == [1, 1, 1]


def test_overlapping_files_are_named() -> None:
    with pytest.raises(CorruptData, match="both claim offset 9"):
        ranges_of(snapshot_of([data_file(0, 0, 10, 1), data_file(0, 9, 3, 1)]))


def test_five_million_keys_fit_in_memory_and_many_more_do_not() -> None:
    """Keys of 16 bytes, and 4 to tell where each ends."""
    assert fits_in_memory(5_000_000, 5_000_000 * 20)
    assert not fits_in_memory(5_000_000, 5_000_000 * 64)
    assert not fits_in_memory(15_000_000, 0)


@st.composite
def kept_ranges(draw: st.DrawFn) -> tuple[list[KeyRange], dict[str, KeptFile]]:
    ranges, kept = [], {}
    for partition in range(draw(st.integers(1, 3))):
        offset, files = 0, []
        for _ in range(draw(st.integers(1, 30))):
            rows = draw(st.integers(1, 9))
            size = draw(st.sampled_from([1, 10, 300, 499, 500, 2_000, 5_000]))
            files.append(data_file(partition, offset, rows, size, NOW_MS - draw(st.integers(0, 500))))
            stays = draw(st.one_of(st.just(rows), st.integers(0, rows)))
            words = draw(st.sampled_from([0, 1, CHUNK_WORDS_MAX // 2, CHUNK_WORDS_MAX]))
            kept[files[-1].path] = KeptFile(Kept(stays, 0, 0, offset + rows), words)
            offset += rows
        ranges.append(KeyRange(partition, 0, offset, offset - 1, 0, tuple(files)))
    return ranges, kept


@pytest.mark.rule("K3")
@given(
    kept_ranges(), st.sampled_from([COMPACT, TopicConfig({"cleanup.policy": "compact,delete", "retention.ms": 900})])
)
def test_every_file_that_loses_is_written_once_in_order_and_in_bounds(made: Any, config: TopicConfig) -> None:
    ranges, kept = made
    chunks = rewrites(ranges, kept, config, NOW_MS, SMALL)
    covered = [file.path for chunk in chunks for file in chunk.files]
    assert len(covered) == len(set(covered))
    losing = {file.path for found in ranges for file in found.files if kept[file.path].kept.rows < file.rows}
    assert losing <= set(covered)
    for found in ranges:
        merges = [merge for chunk in chunks for merge in chunk.merges if merge.partition == found.partition]
        for before, after in pairwise(merges):
            assert before.files[-1].last_offset < after.files[0].first_offset
        for merge in merges:
            start = found.files.index(merge.files[0])
            assert merge.files == found.files[start : start + len(merge.files)]
            assert any(file.path in losing for file in merge.files)
            stays = sum(file.size_bytes * kept[file.path].kept.rows // file.rows for file in merge.files)
            assert len(merge.files) == 1 or stays <= SMALL.file_bytes_target
    for chunk in chunks:
        assert len(chunk.merges) <= CHUNK_SCANS_MAX
        alone = len(chunk.files) == 1
        assert alone or chunk.size_bytes <= SMALL.chunk_bytes_max
        assert alone or sum(kept[file.path].words for file in chunk.files) <= CHUNK_WORDS_MAX
