"""Key compaction: of each key the last record stays, with its offset; readers go past the gaps.

The keys of a partition are looked through, which makes a map of the offsets that stay, one bit each; files that lose
records are then read once more by Spark, masked with it and written, some at a time, and each commit is one of its own.
Killed at any point and run again, the result is the same: what was committed stays right, whatever is still to come.
"""

import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from siltlog.infra import delta_names
from siltlog.infra.clock import Clock
from siltlog.infra.errors import Fenced
from siltlog.infra.store.store import ObjectStore
from siltlog.infra.table.data_file import DataFile, read_data_file
from siltlog.infra.table.snapshot import TableSnapshot
from siltlog.infra.table.table import TopicTable
from siltlog.infra.table.totals import Kept
from siltlog.pipelines.compaction.keys_plan import (
    KeyRange,
    compacts_keys,
    first_too_young,
    plan,
    rewrites,
)
from siltlog.pipelines.compaction.keys_query import query
from siltlog.pipelines.compaction.keys_search import search
from siltlog.pipelines.compaction.plan import Chunk, Limits, Merge
from siltlog.pipelines.compaction.rewriting import Choice, failures_named, run_chunk
from siltlog.pipelines.compaction.survivors import WORD_BITS, WORD_SHIFT, Survivors
from siltlog.pipelines.producer_rows import first_needed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Passes = tuple[tuple[KeyRange, ...], ...]


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
        mark = delta_names.txn_compacted(merge.partition)
        through = min(end, merge.last_offset + 1)
        marks[mark] = max(marks.get(mark, planned.compacted(merge.partition)), through)

    def choose(records: "DataFrame", merge: Merge) -> "DataFrame":
        words = survivors.words(merge)
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
        marks[delta_names.txn_compacted(partition)] = max(snapshot.compacted(partition), found.end)
        awaited = snapshot.transactions.get(delta_names.txn_tombstones(partition), 0)
        if awaited != planned.transactions.get(delta_names.txn_tombstones(partition), 0):
            continue
        if found.expired_below or not awaited:
            # Whether there are any is known only where values were read.
            none_left = bool(found.expired_below) and not tombstones[partition]
            marks[delta_names.txn_tombstones(partition)] = 0 if none_left else found.end
            marks[delta_names.txn_tombstones_since(partition)] = clock.now_us() // 1000
    nothing = {found.partition: Kept(0, 0, 0, 0) for found in ranges}
    try:
        table.rewrite(snapshot.version, [], [], str(uuid.uuid4()), kept=nothing, marks=marks)
    except Fenced:
        return False
    return True


@contextmanager
def _survivors(
    spark: "SparkSession", store: ObjectStore, topic: str, ranges: Sequence[KeyRange]
) -> Iterator[Survivors]:
    """This process finds what it has the memory for; Spark the rest, and all of it on a cluster."""
    if not spark.sparkContext.master.startswith("local"):
        with query(spark, store, topic, ranges) as asked:
            yield asked
        return
    found, rest = search(spark, store, topic, ranges)
    if not rest:
        yield found
        return
    large = {each.partition for each in rest}
    with query(spark, store, topic, rest) as asked:
        yield Survivors(
            lambda merge: (asked if merge.partition in large else found).words(merge),
            {**found.files, **asked.files},
            {**found.tombstones, **asked.tombstones},
        )
