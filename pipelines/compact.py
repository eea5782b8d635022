"""File compaction: small neighbouring files of a partition become one, and no reader notices.

Spark reads the files that the plan names and writes plain Parquet into a folder of the run; the commit goes through
the one door to the table. Killed at any point and run again, the result is the same: what was written and not committed
is an orphan, which vacuum removes.
"""

import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from siltlog.infra import names
from siltlog.infra.clock import Clock, SystemClock
from siltlog.infra.data_file import (
    ROW_GROUP_BYTES_MAX,
    ROW_GROUP_ROWS_MAX,
    DataFile,
    data_file_from_footer,
    read_data_file,
)
from siltlog.infra.delta_log import JOB_MS_MAX
from siltlog.infra.errors import Fenced, SiltlogError, problem
from siltlog.infra.schema import FILE_SCHEMA
from siltlog.infra.settings import ServerSettings
from siltlog.infra.store import ObjectStore
from siltlog.infra.table import TopicTable
from siltlog.infra.table_snapshot import TableSnapshot
from siltlog.pipelines.compaction_plan import Chunk, CompactionPlan, Limits, plan
from siltlog.pipelines.session import reason_of, spark_errors, spark_session
from siltlog.pipelines.topics import open_each, spark_uri, store_of

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
CODECS = {"zstd": "zstd", "lz4": "lz4_raw", "snappy": "snappy", "gzip": "gzip", "none": "uncompressed"}
READ_OPTIONS = {
    "parquet.page.verify-checksum.enabled": "true",
    "recursiveFileLookup": "true",  # the folders name no columns
    "__globPaths__": "false",  # a path is a path, whatever is in the name of the root
}
WRITE_OPTIONS = {
    "parquet.page.write-checksum.enabled": "true",
    "parquet.block.size": str(ROW_GROUP_BYTES_MAX),
    "parquet.block.row.count.limit": str(ROW_GROUP_ROWS_MAX),
    "parquet.enable.dictionary": "false",
    "parquet.enable.dictionary#key": "true",
    "parquet.enable.dictionary#producer_id": "true",
    "parquet.enable.dictionary#headers.list.element.key": "true",
    # A footer with the smallest and the largest value would be as large as two records.
    "parquet.column.statistics.enabled": "false",
    "parquet.column.statistics.enabled#offset": "true",
    "parquet.column.statistics.enabled#timestamp": "true",
    "mapreduce.fileoutputcommitter.marksuccessfuljobs": "false",
}


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
    with _failures_named(store, table.topic, chunk):
        write_merged(spark, store, table.topic, chunk, folder, str(snapshot.config["compression"]))
    outputs = _written(store, table.topic, chunk, folder)
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


def write_merged(
    spark: "SparkSession", store: ObjectStore, topic: str, chunk: Chunk, folder: str, compression: str
) -> None:
    """Each merge as one file in `folder`, sorted by offset."""
    from pyspark.sql import functions
    from pyspark.sql.pandas.types import from_arrow_schema

    for file in chunk.files:
        assert file.path.rpartition("/")[0].rpartition("/")[2] == names.partition_folder(file.partition), file.path
    topic_path = names.topic_path(topic)
    paths = [spark_uri(store, f"{topic_path}/{file.path}") for file in chunk.files]
    in_path = functions.regexp_extract("_metadata.file_path", rf"/{names.PARTITION_COLUMN}=(\d+)/[^/]+$", 1)
    tasks = min(len(chunk.merges), 4 * spark.sparkContext.defaultParallelism)
    (
        spark.read.schema(from_arrow_schema(FILE_SCHEMA))
        .options(**READ_OPTIONS)
        .parquet(*paths)
        .withColumn(names.PARTITION_COLUMN, in_path.cast("int"))
        # By its number, not its hash: two partitions in one task would wait for each other.
        .repartitionById(tasks, names.PARTITION_COLUMN)
        .sortWithinPartitions(names.PARTITION_COLUMN, "offset")
        .write.partitionBy(names.PARTITION_COLUMN)
        .options(**WRITE_OPTIONS, compression=CODECS[compression])
        .parquet(spark_uri(store, f"{topic_path}/{folder}"))
    )


def _written(store: ObjectStore, topic: str, chunk: Chunk, folder: str) -> list[DataFile]:
    """The files that Spark wrote, one for each merge; what Hadoop put beside them is removed."""
    topic_path = names.topic_path(topic)
    by_folder = {names.partition_folder(merge.partition): merge.partition for merge in chunk.merges}
    outputs: list[DataFile] = []
    for info in store.list(f"{topic_path}/{folder}"):
        path = info.path.removeprefix(f"{topic_path}/")
        parent, _, name = path.removeprefix(f"{folder}/").rpartition("/")
        if name.startswith((".", "_")):
            store.delete(info.path)
        else:
            outputs.append(data_file_from_footer(store, topic, path, by_folder[parent]))
    if sorted(file.partition for file in outputs) != sorted(by_folder.values()):
        raise problem(
            "internal",
            f"Spark wrote {len(outputs)} files into {topic_path}/{folder} for {len(by_folder)} merges; nothing was "
            "committed",
        )
    return outputs


@contextmanager
def _failures_named(store: ObjectStore, topic: str, chunk: Chunk) -> Iterator[None]:
    """A failure of Spark becomes CorruptData when a source is damaged or gone, else Unavailable."""
    try:
        yield
    except spark_errors() as error:
        for file in chunk.files:
            read_data_file(store, topic, file, columns=FILE_SCHEMA.names)
        raise problem(
            "topic_unavailable", f"Spark could not merge files of topic {topic}: {reason_of(error)}", topic=topic
        ) from error
