"""What is told of tables that are made up, file by file."""

import time
from collections.abc import Sequence
from typing import Any

import pytest

from siltlog.infra import delta_names, names
from siltlog.infra.records import Bounds
from siltlog.infra.settings.topic_config import TopicConfig
from siltlog.infra.table.data_file import DataFile
from siltlog.infra.table.snapshot import TableSnapshot
from siltlog.pipelines.compaction.plan import LIVE_FILES_MAX
from siltlog.server.tables.answers import TopicHealth
from siltlog.server.tables.file_rows import Place, page
from siltlog.server.tables.health import Flushing, LogSeen, health_of

NOW_MS = 1_800_000_000_000
HOUR_MS = 3_600_000
MIB = 1024 * 1024
SEEN = LogSeen(7, NOW_MS - 5_000, 4, NOW_MS - 60_000)
FINE = Flushing("", None)


def data_file(
    partition: int, first: int, rows: int = 10, size: int = 1_000, age_ms: int = 0, run: str = ""
) -> DataFile:
    path = f"{run}{names.partition_folder(partition)}/{first}.parquet"
    newest_us = (NOW_MS - age_ms) * 1000
    return DataFile(path, partition, rows, size, first, first + rows - 1, newest_us, newest_us, NOW_MS - age_ms)


def snapshot_of(files: Sequence[DataFile], partitions: int = 2, **settings: int | str) -> TableSnapshot:
    config = TopicConfig({name.replace("_", "."): value for name, value in ({"retention_ms": -1} | settings).items()})
    properties = {delta_names.PROPERTY_PARTITIONS: str(partitions), **config.properties()}
    transactions: dict[str, int] = {}
    for file in files:
        app_id = delta_names.txn_offset(file.partition)
        transactions[app_id] = max(transactions.get(app_id, 0), file.last_offset + 1)
    return TableSnapshot.build(7, properties, transactions, files)


def health(snapshot: TableSnapshot, seen: LogSeen = SEEN, flushing: Flushing | None = FINE) -> TopicHealth:
    bounds = [
        (each, Bounds(snapshot.starts[each], offset, offset + 3)) for each, offset in sorted(snapshot.offsets.items())
    ]
    return health_of("orders", snapshot, bounds, seen, flushing, NOW_MS * 1000)


def said(found: TopicHealth) -> list[tuple[str, str]]:
    return [(problem.severity, problem.detail) for problem in found.problems]


def test_the_table_is_counted_and_timed() -> None:
    files = [data_file(0, 0, size=100 * MIB), data_file(0, 10), data_file(1, 0, rows=5), data_file(1, 5)]
    found = health(snapshot_of(files))
    table = found.table
    assert (table.version, table.files, table.rows, table.bytes) == (7, 4, 35, 100 * MIB + 3_000)
    assert (table.small_files, table.small_files_share) == (3, 0.75)
    assert (table.age_ms, table.checkpoint_version, table.checkpoint_age_ms) == (5_000, 4, 60_000)
    assert (table.commits_since_checkpoint, table.lag_ms) == (3, None)
    one = found.partitions[1]
    assert (one.partition, one.files, one.rows, one.small_files) == (1, 2, 15, 2)
    assert (one.log_start_offset, one.table_offset, one.high_watermark) == (0, 15, 18)
    assert found.problems == []


def test_an_empty_table_is_fine() -> None:
    found = health(snapshot_of([]), LogSeen(7, None, None, None))
    assert (found.table.files, found.table.small_files_share, found.table.age_ms) == (0, 0.0, None)
    assert found.table.commits_since_checkpoint == 8, "all there are"
    assert found.problems == []


def test_what_retention_would_remove_is_told_by_each_limit() -> None:
    files = [data_file(0, 10 * each, age_ms=(5 - each) * 60_000) for each in range(5)]
    found = health(snapshot_of(files, retention_ms=150_000, retention_bytes=4_000)).retention
    assert found is not None
    assert found.by_time is not None
    assert found.by_bytes is not None
    assert (found.by_time.files, found.by_time.rows, found.by_time.bytes) == (3, 30, 3_000)
    assert (found.by_bytes.files, found.by_records) == (1, None)
    assert (found.files, found.rows, found.bytes) == (3, 30, 3_000)
    [moved] = found.log_start_offsets
    assert (moved.partition, moved.before, moved.after, moved.files) == (0, 0, 30, 3)
    kept = health(snapshot_of(files, retention_ms=1, cleanup_policy="compact")).retention
    assert kept is not None
    assert (kept.files, kept.by_time) == (0, None)


def test_what_compaction_would_do_is_told() -> None:
    files = [data_file(0, 10 * each) for each in range(5)]
    found = health(snapshot_of(files)).compaction
    assert found is not None
    assert (found.files, found.files_after, found.bytes, found.key_partitions) == (5, 1, 5_000, 0)
    by_key = health(snapshot_of(files, cleanup_policy="compact")).compaction
    assert by_key is not None
    assert by_key.key_partitions == 1


def test_files_that_overlap_are_told_once_and_nothing_is_planned_of_them() -> None:
    found = health(snapshot_of([data_file(0, 0), data_file(0, 5)], retention_records=0))
    assert (found.compaction, found.retention) == (None, None)
    [(severity, detail)] = said(found)
    assert severity == "error"
    assert "both claim offset 5" in detail


@pytest.mark.parametrize(
    ("flushing", "seen", "severity", "what"),
    [
        (Flushing("the last flush to the table failed: no space", None), SEEN, "error", "no space"),
        (Flushing("", 400_000), SEEN, "error", "waits for 400 s"),
        (FINE, LogSeen(7, None, None, None, "nobody answers"), "warning", "cannot be read: nobody answers"),
        (FINE, LogSeen(7, NOW_MS, -5_000, NOW_MS), "warning", "5,007 commits came since the last checkpoint"),
    ],
)
def test_what_somebody_should_know(flushing: Flushing, seen: LogSeen, severity: str, what: str) -> None:
    [(found, detail)] = said(health(snapshot_of([data_file(0, 0)]), seen, flushing))
    assert found == severity
    assert what in detail


def test_expired_files_are_told_of_only_where_retention_is_overdue() -> None:
    for age_ms, problems in ((HOUR_MS, 0), (3 * HOUR_MS, 1)):
        found = health(snapshot_of([data_file(0, 0, age_ms=age_ms)], retention_ms=HOUR_MS // 2))
        assert found.retention is not None
        assert found.retention.files == 1
        assert len(found.problems) == problems


def test_a_crowded_table_is_told_of() -> None:
    files = [data_file(0, 10 * each) for each in range(LIVE_FILES_MAX + 1)]
    [(severity, detail)] = said(health(snapshot_of(files)))
    assert (severity, f"{LIVE_FILES_MAX + 1:,} files" in detail) == ("warning", True)


def paged(snapshot: TableSnapshot, limit: int, partition: int | None = None) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    after = None
    while True:
        made = page("orders", snapshot, partition, after, limit)
        assert len(made.files) <= limit
        found += [(row.partition, row.first_offset) for row in made.files]
        if made.next is None:
            return found
        after = Place.read(made.next)


def test_pages_have_every_file_once() -> None:
    files = [data_file(part, 10 * each) for part in range(3) for each in range(7)]
    snapshot = snapshot_of(files, 3)
    whole = [(file.partition, file.first_offset) for file in files]
    for limit in (1, 2, 7, 20, 21, 100):
        assert paged(snapshot, limit) == whole
    assert paged(snapshot, 2, 1) == whole[7:14]


def test_a_page_after_a_compaction_goes_on_at_the_same_offset() -> None:
    before = snapshot_of([data_file(0, 10 * each) for each in range(4)])
    first = page("orders", before, None, None, 2)
    assert first.next is not None
    after = snapshot_of([data_file(0, 0, rows=40, run="rewrite-1/")])
    [row] = page("orders", after, None, Place.read(first.next), 2).files
    assert (row.first_offset, row.rows, row.compacted, row.small) == (0, 40, True, True)


def test_pages_of_files_that_overlap_come_to_an_end() -> None:
    lasts = (20, 15, 5, 25, 40, 30)
    snapshot = snapshot_of([data_file(0, first, rows=last - first + 1) for first, last in enumerate(lasts)])
    for limit in range(1, 7):
        after: Place | None = Place(0, 2)
        for _ in lasts:
            made = page("orders", snapshot, None, after, limit)
            after = None if made.next is None else Place.read(made.next)
            if after is None:
                break
        assert after is None, limit


def test_a_file_is_told_without_its_path() -> None:
    [row] = page("orders", snapshot_of([data_file(1, 3, age_ms=1_000)]), 1, None, 5).files
    told: dict[str, Any] = {name: getattr(row, name) for name in row.__struct_fields__}
    assert "path" not in told
    assert (row.last_offset, row.bytes, row.compacted) == (12, 1_000, False)
    assert row.min_timestamp == row.written_at == "2027-01-15T07:59:59.000000Z"


def test_a_hundred_thousand_files_are_a_matter_of_seconds_and_their_pages_of_none() -> None:
    files = [data_file(each % 10, each // 10 * 10, size=MIB, age_ms=each) for each in range(100_000)]
    snapshot = snapshot_of(files, 10, retention_ms=60_000)
    began = time.process_time()
    assert health(snapshot).table.files == 100_000
    whole = time.process_time() - began
    began = time.process_time()
    for _ in range(10):
        page("orders", snapshot, None, Place(5, 50_000), 100)
    assert time.process_time() - began < whole
    print(f"health {whole:.3f} s, a page {(time.process_time() - began) / 10:.4f} s")
