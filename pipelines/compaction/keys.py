"""Key compaction: of each key the last record stays, with its offset; readers go past the gaps.

Spark looks through the keys of a partition and makes a map of the offsets that stay, one bit each; files that lose
records are then read once more, masked with it and written, some at a time, and each commit is one of its own. Killed
at any point and run again, the result is the same: what was committed stays right, whatever is still to come.
"""

import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING

from siltlog.infra import names
from siltlog.infra.clock import Clock
from siltlog.infra.errors import Fenced, problem
from siltlog.infra.store.store import ObjectStore
from siltlog.infra.table.data_file import DataFile, read_data_file
from siltlog.infra.table.snapshot import TableSnapshot
from siltlog.infra.table.table import TopicTable
from siltlog.infra.table.totals import Kept
from siltlog.pipelines.compaction.keys_plan import (
    KeptFile,
    KeyRange,
    compacts_keys,
    first_too_young,
    plan,
    rewrites,
)
from siltlog.pipelines.compaction.plan import MIB, Chunk, Limits, Merge
from siltlog.pipelines.compaction.rewriting import Choice, failures_named, records_of, run_chunk
from siltlog.pipelines.producer_rows import first_needed
from siltlog.pipelines.spark.session import spark_settings

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

SHUFFLE_TASKS = "spark.sql.shuffle.partitions"

Passes = tuple[tuple[KeyRange, ...], ...]

SCAN_BYTES_MAX = 256 * MIB
"""File bytes for one task, which reads only keys and offsets of them, and passes on one row for each key."""
TASK_ROWS = 500_000
"""Rows for one task that gathers keys: it has room for so many keys."""
WORD_BITS = 64
WORD_SHIFT = 6
POSITION_MASKS = tuple(
    sum(1 << bit for bit in range(WORD_BITS) if bit >> power & 1) - (1 << WORD_BITS) for power in range(WORD_SHIFT)
)
"""For each power of two a mask of the positions in a word that contain it, as a signed number: six counts of bits give
the sum of the positions that are set."""


@dataclass(slots=True)
class KeysDone:
    """The result of compacting the keys of a topic."""

    partitions: int = 0
    removed_rows: int = 0
    chunks: int = 0
    merged_files: int = 0
    written_files: int = 0
    written_bytes: int = 0
    raced_chunks: int = 0


@dataclass(frozen=True, slots=True)
class Survivors:
    """The records that stay in the ranges of one pass."""

    words: "DataFrame"
    """(partition, word, kept): bit `offset % 64` of the row of `offset / 64` says whether that record stays."""
    files: Mapping[str, KeptFile]
    """By path."""
    tombstones: Mapping[int, int]
    """The number of tombstones that stay for now, by partition."""


def keys_plan(store: ObjectStore, topic: str, snapshot: TableSnapshot, clock: Clock) -> Passes:
    """Reads files where only they tell how far a partition may be compacted. Raises CorruptData, Unavailable."""
    config, now_ms = snapshot.config, clock.now_us() // 1000
    if snapshot.deleted or not compacts_keys(config):
        return ()
    horizons = {}
    for partition, file in first_too_young(snapshot, config, now_ms).items():
        horizons[partition] = _first_young(store, topic, file, now_ms - config.integer("min.compaction.lag.ms"))
    due = {found.partition for ranges in plan(snapshot, config, now_ms, horizons) for found in ranges}
    # Of records that tell what no object beside the table does about their producers, none may go.
    needed = first_needed(store, topic, snapshot, sorted(due), now_ms)
    for partition, offset in needed.items():
        horizons[partition] = min(offset, horizons.get(partition, offset))
    return plan(snapshot, config, now_ms, horizons)


def _first_young(store: ObjectStore, topic: str, file: DataFile, young_ms: int) -> int:
    """The first offset in `file` whose record is not older than that; its end where statistics were rounded up."""
    import numpy as np
    import pyarrow as pa

    records = read_data_file(store, topic, file, columns=["offset", "timestamp"])
    young = np.flatnonzero(records.column("timestamp").cast(pa.int64()).to_numpy() > young_ms * 1000)
    return int(records.column("offset")[int(young[0])].as_py()) if len(young) else file.last_offset + 1


def compact_keys(
    spark: "SparkSession",
    store: ObjectStore,
    table: TopicTable,
    passes: Passes,
    clock: Clock,
    limits: Limits | None = None,
) -> KeysDone:
    """Runs `passes`, planned on the table's snapshot; ends with the first chunk that others overtook.

    Raises CorruptData when a file is damaged or what was written is not what was to stay, Unavailable, OutcomeUnknown.
    """
    done = KeysDone()
    planned = table.snapshot
    for ranges in passes:
        files = [file for found in ranges for file in found.files]
        with failures_named(store, table.topic, files), _survivors(spark, store, table.topic, ranges) as survivors:
            made = rewrites(ranges, survivors.files, planned.config, clock.now_us() // 1000, limits or Limits())
            for chunk in made:
                choice = _choice(planned, ranges, chunk, survivors)
                outputs = run_chunk(spark, store, table, chunk, clock, choice)
                if outputs is None:
                    # What follows must not land before it: a tombstone would go before what it stands for.
                    done.raced_chunks += 1
                    return done
                done.chunks += 1
                done.removed_rows += sum(file.rows for file in chunk.files) - sum(file.rows for file in outputs)
                done.merged_files += len(chunk.files)
                done.written_files += len(outputs)
                done.written_bytes += sum(file.size_bytes for file in outputs)
        if not _mark(table, planned, ranges, survivors.tombstones, clock):
            done.raced_chunks += 1
            return done
        done.partitions += len(ranges)
    return done


def _choice(planned: TableSnapshot, ranges: Sequence[KeyRange], chunk: Chunk, survivors: Survivors) -> Choice:
    from pyspark.sql import functions as f

    ends = {found.partition: found.end for found in ranges}
    kept: list[Kept] = []
    marks: dict[str, int] = {}
    for merge in chunk.merges:
        end = ends[merge.partition]
        each = [survivors.files[file.path].kept for file in merge.files]
        kept.append(
            Kept(sum(f_.rows for f_ in each), sum(f_.total for f_ in each), sum(f_.keyless for f_ in each), end)
        )
        mark = names.txn_compacted(merge.partition)
        through = min(end, merge.last_offset + 1)
        marks[mark] = max(marks.get(mark, planned.compacted(merge.partition)), through)

    def choose(records: "DataFrame", merge: Merge) -> "DataFrame":
        first, last = merge.first_offset >> WORD_SHIFT, merge.last_offset >> WORD_SHIFT
        words = survivors.words.where(
            (f.col(names.PARTITION_COLUMN) == merge.partition)
            & f.col("word").between(first, last)
            & (f.col("kept") != 0)
        ).select("word", "kept")
        bit = f.expr(f"shiftrightunsigned(kept, cast(offset & {WORD_BITS - 1} as int)) & 1")
        in_word = f.shiftright(records["offset"], WORD_SHIFT) == words["word"]
        return records.join(f.broadcast(words), in_word).where(bit == 1).select(*records.columns)

    return Choice(choose, kept, marks, planned.config)


def _mark(
    table: TopicTable,
    planned: TableSnapshot,
    ranges: Sequence[KeyRange],
    tombstones: Mapping[int, int],
    clock: Clock,
) -> bool:
    """Notes how far the partitions are compacted, and since when their tombstones wait; False when overtaken."""
    snapshot = table.refresh()
    if snapshot.config.own != planned.config.own:
        return False
    marks: dict[str, int] = {}
    for found in ranges:
        partition = found.partition
        marks[names.txn_compacted(partition)] = max(snapshot.compacted(partition), found.end)
        awaited = snapshot.transactions.get(names.txn_tombstones(partition), 0)
        if awaited != planned.transactions.get(names.txn_tombstones(partition), 0):
            continue
        if found.expired_below or not awaited:
            # Whether there are any is known only where values were read.
            none_left = bool(found.expired_below) and not tombstones[partition]
            marks[names.txn_tombstones(partition)] = 0 if none_left else found.end
            marks[names.txn_tombstones_since(partition)] = clock.now_us() // 1000
    nothing = {found.partition: Kept(0, 0, 0, 0) for found in ranges}
    try:
        table.rewrite(snapshot.version, [], [], str(uuid.uuid4()), kept=nothing, marks=marks)
    except Fenced:
        return False
    return True


@contextmanager
def _survivors(
    spark: "SparkSession", store: ObjectStore, topic: str, ranges: Sequence[KeyRange]
) -> "Iterator[Survivors]":
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
    for found in ranges:
        if seen[found.partition][0] != found.rows:
            raise problem(
                "corrupt_data",
                f"of {found.rows} records of topic {topic}, partition {found.partition}, Spark saw "
                f"{seen[found.partition][0]}; nothing was committed",
                topic=topic,
                partition=found.partition,
            )
    return Survivors(words, _by_file(spark, ranges, words), {partition: left for partition, (_, left) in seen.items()})


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
