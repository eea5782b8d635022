"""`silt compact`: small neighbouring files of a partition become one, and no reader notices; then, where the topic's
cleanup.policy says so, records that later ones with their keys supersede go (`keys.py`).

Killed at any point and run again, the result is the same.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING

from siltlog.infra import names
from siltlog.infra.clock import Clock, SystemClock
from siltlog.infra.errors import CorruptData, SiltlogError
from siltlog.infra.settings.settings import ServerSettings
from siltlog.infra.store.store import ObjectStore
from siltlog.infra.table.data_file import DataFile
from siltlog.infra.table.snapshot import TableSnapshot
from siltlog.infra.table.table import TopicTable
from siltlog.pipelines.compaction.keys import Passes, compact_keys, keys_plan
from siltlog.pipelines.compaction.keys_plan import compacts_keys, may_be_due
from siltlog.pipelines.compaction.plan import LIVE_FILES_MAX, Chunk, CompactionPlan, Limits, plan
from siltlog.pipelines.compaction.rewriting import run_chunk
from siltlog.pipelines.spark.session import has_ended, spark_session
from siltlog.pipelines.topics import have_gone, open_each, store_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Progress = Callable[[str, int, int], None]
"""Called with the topic, the bytes done and the bytes planned."""

ROUNDS_MAX = 5
"""Plans made for a topic in one run: for chunks that others came before, and for output that is small again."""
BUSY_SECONDS_MAX = 600.0
"""Compaction of one topic goes on for so long; then it is another topic's turn."""
SCHEDULED_FILES_MIN = 20
"""A run of the schedule does not start Spark for fewer files: else the records of its own runs would keep it busy."""
NEVER_READ = -1
"""The version of a table that could not be opened."""
LONG_JOB_BYTES = 1024 * 1024 * 1024
"""The bytes from which on Spark runs with the optimising compiler."""


@dataclass(slots=True)
class CompactionReport:
    """The compaction of one topic; a dry run has what would be done. `error` ended it early."""

    topic: str
    dry_run: bool
    version: int = NEVER_READ
    files_before: int = 0
    bytes_before: int = 0
    files_after: int = 0
    bytes_after: int = 0
    chunks: int = 0
    """Written and committed, of files and of keys."""
    merged_files: int = 0
    written_files: int = 0
    written_bytes: int = 0
    raced_chunks: int = 0
    """Given up because somebody else changed their partitions first."""
    key_partitions: int = 0
    """Looked through for superseded records."""
    key_bytes: int = 0
    """Bytes of their files."""
    removed_rows: int = 0
    """Superseded by later records of their keys; a dry run does not look."""
    seconds: float = 0.0
    error: SiltlogError | None = None


def compact_topics(
    settings: ServerSettings,
    topics: Sequence[str] = (),
    *,
    dry_run: bool = False,
    progress: Progress | None = None,
    clock: Clock | None = None,
    files_min: int = 1,
) -> list[CompactionReport]:
    """Merges the small files of `topics` (all when empty). Spark is started only when there is something to merge:
    `files_min` files, over all topics, or keys that are due.

    A topic that fails has its `error` in its report and the others go on. Raises UnknownTopic for a name that is none,
    ConfigError when Spark, Java or the jars are missing.
    """
    clock = clock or SystemClock()
    store = store_of(settings)
    reports: dict[str, CompactionReport] = {}
    due: list[tuple[TopicTable, int]] = []
    due_files, due_keys = 0, False
    for topic, table in open_each(store, topics, clock):
        reports[topic] = CompactionReport(topic, dry_run)
        if isinstance(table, SiltlogError):
            reports[topic].error = table
            continue
        try:
            made = plan_of(table.snapshot, clock, keys_next=True)
            passes = keys_plan(store, topic, table.snapshot, clock)
        except SiltlogError as error:
            reports[topic].error = error
            continue
        reports[topic] = _planned(topic, table.snapshot, made, passes, dry_run=dry_run)
        if made.chunks or passes:
            due.append((table, made.size_bytes + _key_bytes(passes)))
            due_files += made.files
            due_keys = due_keys or bool(passes)
    short_job = sum(size for _, size in due) < LONG_JOB_BYTES
    left = [table for table, _ in due] if (due_files >= files_min or due_keys) and not dry_run else []
    while left:
        with spark_session(store, short_job=short_job) as spark:
            # A topic that is too much for its JVM ends it; the others get another one.
            while left:
                table = left.pop(0)
                reports[table.topic] = compact(spark, store, table, clock, progress)
                if has_ended(spark):
                    break
    return list(reports.values())


def plan_of(
    snapshot: TableSnapshot, clock: Clock, limits: Limits | None = None, *, keys_next: bool = False
) -> CompactionPlan:
    """Plans the merges of a topic; with `keys_next` key compaction follows, which merges the files it writes."""
    config, now_ms = snapshot.config, clock.now_us() // 1000
    rewritten_next = may_be_due(snapshot, config, now_ms) if keys_next else ()
    return plan(snapshot, config, now_ms, limits, rewritten_next=rewritten_next)


def _planned(
    topic: str, snapshot: TableSnapshot, made: CompactionPlan, passes: Passes, *, dry_run: bool
) -> CompactionReport:
    report = _report(topic, snapshot, dry_run=dry_run)
    if dry_run:
        report.chunks = len(made.chunks)
        report.merged_files = made.files
        report.written_files = made.files_after
        report.files_after += made.files_after - made.files
        report.key_partitions = sum(len(ranges) for ranges in passes)
        report.key_bytes = _key_bytes(passes)
    return report


def _key_bytes(passes: Passes) -> int:
    return sum(found.size_bytes for ranges in passes for found in ranges)


def _report(topic: str, snapshot: TableSnapshot, *, dry_run: bool) -> CompactionReport:
    files, size = len(snapshot.files), _size(snapshot)
    return CompactionReport(topic, dry_run, snapshot.version, files, size, files, size)


def _size(snapshot: TableSnapshot) -> int:
    return sum(file.size_bytes for file in snapshot.files.values())


def compact(
    spark: "SparkSession",
    store: ObjectStore,
    table: TopicTable,
    clock: Clock,
    progress: Progress | None = None,
    limits: Limits | None = None,
) -> CompactionReport:
    """Compacts keys where they are due, then merges until nothing is left to merge or enough plans were made: so most
    of what key compaction rewrites is written once.
    """
    started = clock.monotonic()
    report = _report(table.topic, table.snapshot, dry_run=False)
    for tries_left in reversed(range(ROUNDS_MAX)):
        try:
            if compacts_keys(table.snapshot.config):
                _merge(spark, store, table, report, clock, progress, limits, keys_next=True)
                _compact_keys(spark, store, table, report, clock, limits)
            _merge(spark, store, table, report, clock, progress, limits)
            break
        except SiltlogError as error:
            if tries_left and _was_erased(store, table.topic, error):
                report.raced_chunks += 1
                continue
            report.error = error
            break
    report.version = table.snapshot.version
    report.files_after, report.bytes_after = len(table.snapshot.files), _size(table.snapshot)
    report.seconds = clock.monotonic() - started
    return report


def _was_erased(store: ObjectStore, topic: str, error: SiltlogError) -> bool:
    """Whether it is about a file that was planned for and has gone since."""
    path = str(error.members.get("path", "")).removeprefix(f"{names.topic_path(topic)}/")
    return isinstance(error, CorruptData) and bool(path) and have_gone(store, topic, [path])


def _merge(
    spark: "SparkSession",
    store: ObjectStore,
    table: TopicTable,
    report: CompactionReport,
    clock: Clock,
    progress: Progress | None,
    limits: Limits | None,
    *,
    keys_next: bool = False,
) -> None:
    busy_until = clock.monotonic() + BUSY_SECONDS_MAX
    for made_before in count():
        made = plan_of(table.refresh(), clock, limits, keys_next=keys_next)
        busy = len(table.snapshot.files) > LIVE_FILES_MAX and clock.monotonic() < busy_until
        if not made.chunks or (made_before >= ROUNDS_MAX and not busy):
            return
        done_bytes = 0
        for chunk in made.chunks:
            outputs = run_chunk(spark, store, table, chunk, clock)
            _count(report, chunk, outputs)
            done_bytes += chunk.size_bytes
            if progress is not None:
                progress(table.topic, done_bytes, made.size_bytes)


def _compact_keys(
    spark: "SparkSession",
    store: ObjectStore,
    table: TopicTable,
    report: CompactionReport,
    clock: Clock,
    limits: Limits | None,
) -> None:
    for _ in range(ROUNDS_MAX):
        passes = keys_plan(store, table.topic, table.refresh(), clock)
        done = compact_keys(spark, store, table, passes, clock, limits)
        report.key_partitions += done.partitions
        report.key_bytes += _key_bytes(passes)
        report.removed_rows += done.removed_rows
        report.chunks += done.chunks
        report.merged_files += done.merged_files
        report.written_files += done.written_files
        report.written_bytes += done.written_bytes
        report.raced_chunks += done.raced_chunks
        if not done.raced_chunks:
            return


def _count(report: CompactionReport, chunk: Chunk, outputs: Sequence[DataFile] | None) -> None:
    if outputs is None:
        report.raced_chunks += 1
        return
    report.chunks += 1
    report.merged_files += len(chunk.files)
    report.written_files += len(outputs)
    report.written_bytes += sum(file.size_bytes for file in outputs)
