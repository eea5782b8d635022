"""File compaction: small neighbouring files of a partition become one, and no reader notices.

Spark reads the files that the plan names and writes plain Parquet into a folder of the run; the commit goes through
the one door to the table. Killed at any point and run again, the result is the same: what was written and not committed
is an orphan, which vacuum removes.
"""

import uuid
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING

from siltlog.infra import names
from siltlog.infra.clock import Clock, SystemClock
from siltlog.infra.data_file import DataFile
from siltlog.infra.delta_log import JOB_MS_MAX
from siltlog.infra.errors import Fenced, SiltlogError, problem
from siltlog.infra.settings import ServerSettings
from siltlog.infra.store import ObjectStore
from siltlog.infra.table import TopicTable
from siltlog.infra.table_snapshot import TableSnapshot
from siltlog.pipelines.compaction_plan import Chunk, CompactionPlan, Limits, plan
from siltlog.pipelines.rewriting import failures_named, write_merged, written_files
from siltlog.pipelines.session import spark_session
from siltlog.pipelines.topics import open_each, store_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Progress = Callable[[str, int, int], None]
"""Called with the topic, the bytes done and the bytes planned."""

ROUNDS_MAX = 5
"""Plans made for a topic in one run: for chunks that others came before, and for output that is small again."""
NEVER_READ = -1
"""The version of a table that could not be opened."""
LONG_JOB_BYTES = 1024 * 1024 * 1024
"""From here on Spark runs with the optimising compiler."""


@dataclass(slots=True)
class CompactionReport:
    """What was done to one topic; of a dry run what would be. `error` ended it early."""

    topic: str
    dry_run: bool
    version: int = NEVER_READ
    files_before: int = 0
    bytes_before: int = 0
    files_after: int = 0
    bytes_after: int = 0
    chunks: int = 0
    merged_files: int = 0
    written_files: int = 0
    written_bytes: int = 0
    raced_chunks: int = 0
    """Given up because somebody else changed their partitions first."""
    seconds: float = 0.0
    error: SiltlogError | None = None


def compact_topics(
    settings: ServerSettings,
    topics: Sequence[str] = (),
    *,
    dry_run: bool = False,
    progress: Progress | None = None,
    clock: Clock | None = None,
) -> list[CompactionReport]:
    """Merges the small files of `topics` (all when empty). Spark is started only when there is something to merge.

    A topic that fails has its `error` in its report and the others go on. Raises UnknownTopic for a name that is none,
    ConfigError when Spark, Java or the jars are missing.
    """
    clock = clock or SystemClock()
    store = store_of(settings)
    reports: dict[str, CompactionReport] = {}
    plans: list[tuple[TopicTable, CompactionPlan]] = []
    for topic, table in open_each(store, topics, clock):
        reports[topic] = CompactionReport(topic, dry_run)
        if isinstance(table, SiltlogError):
            reports[topic].error = table
            continue
        try:
            made = plan_of(table.snapshot, clock)
        except SiltlogError as error:
            reports[topic].error = error
            continue
        plans.append((table, made))
        reports[topic] = _planned(table.snapshot, topic, made) if dry_run else _nothing(table)
    if not dry_run:
        short_job = sum(made.size_bytes for _, made in plans) < LONG_JOB_BYTES
        with ExitStack() as stack:
            spark: SparkSession | None = None
            for table, made in plans:
                if made.chunks:
                    spark = spark or stack.enter_context(spark_session(store, short_job=short_job))
                    reports[table.topic] = compact(spark, store, table, clock, progress)
    return list(reports.values())


def plan_of(snapshot: TableSnapshot, clock: Clock, limits: Limits | None = None) -> CompactionPlan:
    return plan(snapshot, snapshot.config, clock.now_us() // 1000, limits)


def _nothing(table: TopicTable) -> CompactionReport:
    return _report(table.topic, table.snapshot, dry_run=False)


def _planned(snapshot: TableSnapshot, topic: str, made: CompactionPlan) -> CompactionReport:
    report = _report(topic, snapshot, dry_run=True)
    report.chunks = len(made.chunks)
    report.merged_files = made.files
    report.written_files = made.files_after
    report.files_after += made.files_after - made.files
    return report


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
    """Plans and runs until nothing is left to merge, or `ROUNDS_MAX` plans were made."""
    started = clock.monotonic()
    report = _report(table.topic, table.snapshot, dry_run=False)
    try:
        for _ in range(ROUNDS_MAX):
            made = plan_of(table.refresh(), clock, limits)
            if not made.chunks:
                break
            done_bytes = 0
            for chunk in made.chunks:
                outputs = run_chunk(spark, store, table, chunk, clock)
                _count(report, chunk, outputs)
                done_bytes += chunk.size_bytes
                if progress is not None:
                    progress(table.topic, done_bytes, made.size_bytes)
    except SiltlogError as error:
        report.error = error
    report.version = table.snapshot.version
    report.files_after, report.bytes_after = len(table.snapshot.files), _size(table.snapshot)
    report.seconds = clock.monotonic() - started
    return report


def _count(report: CompactionReport, chunk: Chunk, outputs: Sequence[DataFile] | None) -> None:
    if outputs is None:
        report.raced_chunks += 1
        return
    report.chunks += 1
    report.merged_files += len(chunk.files)
    report.written_files += len(outputs)
    report.written_bytes += sum(file.size_bytes for file in outputs)


def run_chunk(
    spark: "SparkSession", store: ObjectStore, table: TopicTable, chunk: Chunk, clock: Clock
) -> list[DataFile] | None:
    """Writes the merges of `chunk` and commits them; None when another rewrite came first (plan anew).

    Raises CorruptData when a source is damaged, Unavailable, OutcomeUnknown.
    """
    snapshot = table.refresh()
    if any(snapshot.files.get(file.path) != file for file in chunk.files):
        return None
    started_us = clock.now_us()
    folder = names.rewrite_folder(uuid.uuid4().hex)
    with failures_named(store, table.topic, chunk.files):
        write_merged(spark, store, table.topic, chunk.merges, folder, str(snapshot.config["compression"]))
    outputs = written_files(store, table.topic, [merge.partition for merge in chunk.merges], folder)
    if clock.now_us() - started_us > JOB_MS_MAX * 1000:
        raise problem(
            "topic_unavailable",
            f"a chunk of topic {table.topic} took longer than {JOB_MS_MAX // 60_000} minutes, so that vacuum may take "
            "its files for orphans; nothing was committed: give Spark more cores, then run it again",
        )
    try:
        table.rewrite(snapshot.version, chunk.files, outputs, str(uuid.uuid4()))
    except Fenced:
        return None
    return outputs
