"""Putting records of a topic into other files: Spark reads and writes them, and the door commits.

Spark writes plain Parquet into a folder of the run. Killed at any point, what was written and not committed is an
orphan, which vacuum removes.
"""

import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from siltlog.infra import names
from siltlog.infra.clock import Clock
from siltlog.infra.columns import FILE_SCHEMA
from siltlog.infra.errors import Fenced, problem
from siltlog.infra.settings.topic_config import TopicConfig
from siltlog.infra.store.s3_denied import missing_permission
from siltlog.infra.store.store import ObjectStore
from siltlog.infra.table.data_file import (
    ROW_GROUP_BYTES_MAX,
    ROW_GROUP_ROWS_MAX,
    DataFile,
    data_file_from_footer,
    read_data_file,
    with_content_crc,
)
from siltlog.infra.table.entries import JOB_MS_MAX
from siltlog.infra.table.table import TopicTable
from siltlog.infra.table.totals import Kept
from siltlog.pipelines.compaction.plan import CHUNK_SCANS_MAX, Chunk, Merge
from siltlog.pipelines.spark.errors import is_denied, lacks_space, reason_of, spark_errors
from siltlog.pipelines.topics import spark_uri

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Choose = Callable[["DataFrame", Merge], "DataFrame"]
"""Picks the records of a merge that stay."""

CODECS = {"zstd": "zstd", "lz4": "lz4_raw", "snappy": "snappy", "gzip": "gzip", "none": "uncompressed"}
READ_OPTIONS = {
    "parquet.page.verify-checksum.enabled": "true",
    "recursiveFileLookup": "true",  # the folders name no columns
    "__globPaths__": "false",  # a path is a path, whatever is in the name of the root
}
READS_AT_ONCE = 8
WRITE_OPTIONS = {
    "parquet.page.write-checksum.enabled": "true",
    # With it come the delta encodings. Its pages have checksums too, and all readers verify them.
    "parquet.writer.version": "PARQUET_2_0",
    "parquet.compression.codec.zstd.level": "1",
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


@dataclass(frozen=True)
class Choice:
    """A choice of the records of a chunk that stay (key compaction)."""

    choose: Choose
    kept: Sequence[Kept]
    """How many records `choose` leaves of each merge, in their order."""
    marks: Mapping[str, int]
    """App transactions of the commit."""
    config: TopicConfig
    """The settings of the topic when the choice was made: nothing is committed if they have changed since."""


def run_chunk(
    spark: "SparkSession",
    store: ObjectStore,
    table: TopicTable,
    chunk: Chunk,
    clock: Clock,
    choice: Choice | None = None,
) -> list[DataFile] | None:
    """Writes the merges of `chunk`, all of their records or those of `choice`, and commits them; None when another
    rewrite or other settings came first (plan anew).

    Raises CorruptData when a source is damaged or the output is not what it should be, Unavailable, OutcomeUnknown.
    """
    snapshot = table.refresh()
    if any(snapshot.files.get(file.path) != file for file in chunk.files):
        return None
    if choice is not None and snapshot.config.own != choice.config.own:
        return None
    merges = [merge for number, merge in enumerate(chunk.merges) if choice is None or choice.kept[number].rows]
    outputs: list[DataFile] = []
    if merges:
        started_us = clock.now_us()
        folder = names.rewrite_folder(uuid.uuid4().hex)
        compression = str(snapshot.config["compression"])
        with failures_named(store, table.topic, chunk.files):
            choose = None if choice is None else choice.choose
            write_merged(spark, store, table.topic, merges, folder, compression, choose)
        outputs = written_files(store, table.topic, merges, folder)
        if clock.now_us() - started_us > JOB_MS_MAX * 1000:
            raise problem(
                "topic_unavailable",
                f"a chunk of topic {table.topic} took longer than {JOB_MS_MAX // 60_000} minutes, so that vacuum may "
                "take its files for orphans; nothing was committed: give Spark more cores, then run it again",
            )
    marks = None if choice is None else choice.marks
    kept = None if choice is None else _by_partition(chunk.merges, choice.kept)
    try:
        table.rewrite(snapshot.version, chunk.files, outputs, str(uuid.uuid4()), kept=kept, marks=marks)
    except Fenced:
        return None
    return outputs


def _by_partition(merges: Sequence[Merge], kept: Sequence[Kept]) -> dict[int, Kept]:
    found: dict[int, Kept] = {}
    for merge, each in zip(merges, kept, strict=True):
        before = found.get(merge.partition, Kept(0, 0, 0, each.unique_below))
        found[merge.partition] = Kept(
            before.rows + each.rows, before.total + each.total, before.keyless + each.keyless, each.unique_below
        )
    return found


def records_of(spark: "SparkSession", store: ObjectStore, topic: str, files: Sequence[DataFile]) -> "DataFrame":
    """The columns of FILE_SCHEMA of every record in `files`; page checksums are verified."""
    from pyspark.sql.pandas.types import from_arrow_schema

    topic_path = names.topic_path(topic)
    paths = [spark_uri(store, f"{topic_path}/{file.path}") for file in files]
    return spark.read.schema(from_arrow_schema(FILE_SCHEMA)).options(**READ_OPTIONS).parquet(*paths)


def write_merged(
    spark: "SparkSession",
    store: ObjectStore,
    topic: str,
    merges: Sequence[Merge],
    folder: str,
    compression: str,
    choose: Choose | None = None,
) -> None:
    """Each merge as one file, sorted by offset, beneath a folder whose name begins with `folder`.

    Few merges are a query and a folder each, as many at a time as there are cores: in one query Spark would write them
    one after the other, and take each row apart once more to see which folder it belongs to.
    """
    root = f"{names.topic_path(topic)}/{folder}"
    options = WRITE_OPTIONS | {"compression": CODECS[compression]}
    if choose is None and len(merges) > CHUNK_SCANS_MAX:
        shuffled = _all_shuffled(spark, store, topic, merges)
        shuffled.write.partitionBy(names.PARTITION_COLUMN).options(**options).parquet(spark_uri(store, root))
        return

    def write(number: int, merge: Merge) -> None:
        spark.sparkContext.setJobGroup(folder, f"a merge of topic {topic}")
        records = records_of(spark, store, topic, merge.files)
        if choose is not None:
            records = choose(records, merge)
        place = f"{root}-{number}/{names.partition_folder(merge.partition)}"
        records.coalesce(1).sortWithinPartitions("offset").write.options(**options).parquet(spark_uri(store, place))

    with ThreadPoolExecutor(min(len(merges), spark.sparkContext.defaultParallelism)) as pool:
        try:
            for _ in pool.map(write, range(len(merges)), merges):
                pass
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            spark.sparkContext.cancelJobGroup(folder)
            raise


def _all_shuffled(spark: "SparkSession", store: ObjectStore, topic: str, merges: Sequence[Merge]) -> "DataFrame":
    """One merge of each partition at most."""
    from pyspark.sql import functions

    assert len({merge.partition for merge in merges}) == len(merges)
    files = [file for merge in merges for file in merge.files]
    for file in files:
        assert file.path.rpartition("/")[0].rpartition("/")[2] == names.partition_folder(file.partition), file.path
    in_path = functions.regexp_extract("_metadata.file_path", rf"/{names.PARTITION_COLUMN}=(\d+)/[^/]+$", 1)
    tasks = min(len(merges), 4 * spark.sparkContext.defaultParallelism)
    return (
        records_of(spark, store, topic, files)
        .withColumn(names.PARTITION_COLUMN, in_path.cast("int"))
        # By its number, not its hash: two partitions in one task would wait for each other.
        .repartitionById(tasks, names.PARTITION_COLUMN)
        .sortWithinPartitions(names.PARTITION_COLUMN, "offset")
    )


def written_files(store: ObjectStore, topic: str, merges: Sequence[Merge], folder: str) -> list[DataFile]:
    """The files that Spark wrote, one for each of `merges`, each read once for its checksum.

    What Hadoop put beside them is removed.
    """
    topic_path = names.topic_path(topic)
    partitions = {names.partition_folder(merge.partition): merge.partition for merge in merges}
    roots = [each for each in store.folders(topic_path) if each.startswith(folder)]
    outputs: list[DataFile] = []
    strangers = 0
    for info in (info for root in roots for info in store.list(f"{topic_path}/{root}")):
        path = info.path.removeprefix(f"{topic_path}/")
        parent, _, name = path.partition("/")[2].rpartition("/")
        if name.startswith((".", "_")):
            store.delete(info.path)
        elif parent in partitions:
            outputs.append(data_file_from_footer(store, topic, path, partitions[parent]))
        else:
            strangers += 1
    outputs.sort(key=lambda file: (file.partition, file.first_offset))
    wanted = sorted(merges, key=lambda merge: (merge.partition, merge.first_offset))
    if strangers or len(outputs) != len(wanted) or not all(map(_within, outputs, wanted)):
        raise problem(
            "internal",
            f"Spark wrote {len(outputs) + strangers} files into {topic_path}/{folder} for {len(merges)} merges, or not "
            "within their offsets; nothing was committed",
        )
    with ThreadPoolExecutor(READS_AT_ONCE) as pool:
        return list(pool.map(lambda file: with_content_crc(store, topic, file), outputs))


def _within(file: DataFile, merge: Merge) -> bool:
    return (
        file.partition == merge.partition
        and file.first_offset >= merge.first_offset
        and file.last_offset <= merge.last_offset
    )


@contextmanager
def failures_named(store: ObjectStore, topic: str, files: Sequence[DataFile]) -> Iterator[None]:
    """A failure of Spark becomes CorruptData when one of `files` is damaged or gone, else Unavailable (`disk_full`,
    `topic_unavailable`)."""
    try:
        yield
    except spark_errors() as error:
        for file in files:
            read_data_file(store, topic, file, columns=FILE_SCHEMA.names)
        if lacks_space(error):
            raise problem(
                "disk_full",
                f"no space is left to merge files of topic {topic}; free space on the disk of the tables, and on that "
                "of temporary files (TMPDIR)",
            ) from error
        if is_denied(error):
            raise missing_permission(reason_of(error), f"files of topic {topic}", topic=topic) from error
        raise problem(
            "topic_unavailable", f"Spark could not merge files of topic {topic}: {reason_of(error)}", topic=topic
        ) from error
