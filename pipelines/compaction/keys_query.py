"""The last record of each key, found by Spark: whatever the size of a partition, on as many executors as there are.

Each key goes through a shuffle, which is most of its cost.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import reduce
from typing import TYPE_CHECKING

from siltlog.infra import names
from siltlog.infra.store.store import ObjectStore
from siltlog.infra.table.totals import Kept
from siltlog.pipelines.compaction.keys_plan import KeptFile, KeyRange
from siltlog.pipelines.compaction.plan import MIB, Merge
from siltlog.pipelines.compaction.rewriting import records_of
from siltlog.pipelines.compaction.survivors import WORD_BITS, WORD_SHIFT, Survivors, check_seen
from siltlog.pipelines.spark.session import spark_settings

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

SHUFFLE_TASKS = "spark.sql.shuffle.partitions"
SCAN_BYTES_MAX = 256 * MIB
"""File bytes for one task, which reads only keys and offsets of them, and passes on one row for each key."""
TASK_ROWS = 500_000
"""Rows for one task that gathers keys: it has room for so many keys."""
POSITION_MASKS = tuple(
    sum(1 << bit for bit in range(WORD_BITS) if bit >> power & 1) - (1 << WORD_BITS) for power in range(WORD_SHIFT)
)
"""A mask for each power of two has the positions in a word that contain it, as a signed number: six counts of bits give
the sum of the positions that are set."""


@contextmanager
def query(spark: "SparkSession", store: ObjectStore, topic: str, ranges: Sequence[KeyRange]) -> Iterator[Survivors]:
    """Raises CorruptData when Spark saw others than the log says."""
    from pyspark.sql import DataFrame

    tasks = max(int(spark.conf.get(SHUFFLE_TASKS)), *(found.rows // TASK_ROWS for found in ranges))
    settings = {SHUFFLE_TASKS: str(tasks), "spark.sql.files.maxPartitionBytes": str(SCAN_BYTES_MAX)}
    words = reduce(DataFrame.union, [_words(spark, store, topic, found) for found in ranges]).persist()
    try:
        with spark_settings(spark, settings):
            survivors = _counted(spark, topic, ranges, words)
        yield survivors
    finally:
        words.unpersist()


def _words(spark: "SparkSession", store: ObjectStore, topic: str, found: KeyRange) -> "DataFrame":
    """The map of one partition. A record that neither supersedes nor can be superseded is a group of its own."""
    from pyspark.sql import functions as f

    offset, key = f.col("offset"), f.col("key")
    alone = f.when(key.isNull() | (offset < found.start) | (offset >= found.end), offset)
    tombstone = f.lit(0)
    if found.expired_below:
        # Reads the values, which is half of the work: only then.
        tombstone = f.when(key.isNotNull() & f.col("value").isNull(), 1).otherwise(0)
    marked = f.shiftleft(offset, 1).bitwiseOR(tombstone)
    last = (
        records_of(spark, store, topic, found.files)
        .groupBy("key", alone.alias("alone"))
        .agg(f.max(marked).alias("marked"), f.count("*").alias("rows"))
        .select("key", f.shiftright("marked", 1).alias("offset"), f.col("marked").bitwiseAND(1) == 1, "rows")
        .toDF("key", "offset", "tombstone", "rows")
    )
    expired = f.col("tombstone") & (offset < found.expired_below) & (offset != found.last)
    stays = (offset >= found.start) & ~expired
    bit = f.expr("shiftleft(1L, cast(offset & 63 as int))")
    return (
        last.groupBy(f.shiftright("offset", 6).alias("word"))
        .agg(
            f.bit_or(f.when(stays, bit).otherwise(0)).alias("kept"),
            f.bit_or(f.when(stays & key.isNull(), bit).otherwise(0)).alias("keyless"),
            f.sum("rows").alias("rows"),
            f.count_if(stays & f.col("tombstone") & (offset != found.last)).alias("tombstones"),
        )
        .withColumn(names.PARTITION_COLUMN, f.lit(found.partition))
    )


def _counted(spark: "SparkSession", topic: str, ranges: Sequence[KeyRange], words: "DataFrame") -> Survivors:
    from pyspark.sql import functions as f

    seen = {
        row[0]: (row[1], row[2])
        for row in words.groupBy(names.PARTITION_COLUMN).agg(f.sum("rows"), f.sum("tombstones")).collect()
    }
    check_seen(topic, ranges, {partition: rows for partition, (rows, _) in seen.items()})

    def of_merge(merge: Merge) -> "DataFrame":
        first, last = merge.first_offset >> WORD_SHIFT, merge.last_offset >> WORD_SHIFT
        near = (f.col(names.PARTITION_COLUMN) == merge.partition) & f.col("word").between(first, last)
        return words.where(near & (f.col("kept") != 0)).select("word", "kept")

    tombstones = {partition: left for partition, (_, left) in seen.items()}
    return Survivors(of_merge, _by_file(spark, ranges, words), tombstones)


def _by_file(spark: "SparkSession", ranges: Sequence[KeyRange], words: "DataFrame") -> dict[str, KeptFile]:
    """Counts in the map of records that stay how many each file keeps."""
    from pyspark.sql import functions as f

    files = {file.path: found for found in ranges for file in found.files}
    listed = [(f_.partition, f_.path, f_.first_offset, f_.last_offset) for found in ranges for f_ in found.files]
    shift = WORD_SHIFT + 10
    bounds = (
        spark.createDataFrame(listed, "in_partition int, path string, first long, last long")
        # To join by: of all files only those near a word are compared with it.
        .withColumn("bucket", f.explode(f.sequence(f.shiftright("first", shift), f.shiftright("last", shift))))
    )
    begin, end = f.expr(f"word * {WORD_BITS}"), f.expr(f"word * {WORD_BITS} + {WORD_BITS - 1}")
    first, last = f.col("first"), f.col("last")
    near = (
        (f.col(names.PARTITION_COLUMN) == f.col("in_partition"))
        & (f.shiftright("word", shift - WORD_SHIFT) == f.col("bucket"))
        & (end >= first)
        & (begin <= last)
    )
    from_first = f.when(first > begin, f.expr(f"shiftleft(-1L, cast(first - word * {WORD_BITS} as int))"))
    to_last = f.when(
        last < end, f.expr(f"shiftrightunsigned(-1L, cast(word * {WORD_BITS} + {WORD_BITS - 1} - last as int))")
    )
    within = from_first.otherwise(-1).bitwiseAND(to_last.otherwise(-1))
    counted = (
        words.join(f.broadcast(bounds), near)
        .select(
            "path",
            (begin - first).alias("distance"),
            f.col("kept").bitwiseAND(within).alias("kept"),
            f.col("keyless").bitwiseAND(within).alias("keyless"),
        )
        .withColumn("rows", f.bit_count("kept"))
        .groupBy("path")
        .agg(
            f.sum("rows"),
            f.sum(f.col("distance") * f.col("rows") + _positions_sum("kept")),
            f.sum(f.bit_count("keyless")),
            f.count_if(f.col("rows") > 0),
        )
    )
    nothing = KeptFile(Kept(0, 0, 0, 0), 0)
    kept = dict.fromkeys(files, nothing)
    first_offsets = {path: first for _, path, first, _ in listed}
    for path, rows, distances, keyless, count in counted.collect():
        kept[path] = KeptFile(Kept(rows, distances + rows * first_offsets[path], keyless, files[path].end), count)
    return kept


def _positions_sum(word: str) -> "Column":
    """The sum of the positions of the bits that are set."""
    from pyspark.sql import functions as f

    counts = [
        f.bit_count(f.col(word).bitwiseAND(f.lit(mask))) * (1 << power) for power, mask in enumerate(POSITION_MASKS)
    ]
    return reduce(lambda left, right: left + right, counts)
