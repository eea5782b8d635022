"""The records of a range that meet a condition of Spark SQL: found by Spark, written down, read as a table's files are.

They are written into a folder as rewrites have, so that vacuum removes what a run that nobody ends leaves there.
"""

import re
from functools import reduce
from typing import TYPE_CHECKING

import msgspec

from siltlog.infra import names
from siltlog.infra.columns import RECORD_SCHEMA
from siltlog.infra.records import counted
from siltlog.infra.store.store import ObjectStore
from siltlog.infra.table.data_file import DataFile, data_file_from_footer
from siltlog.infra.table.snapshot import TableSnapshot
from siltlog.pipelines.compaction.compact import LONG_JOB_BYTES
from siltlog.pipelines.compaction.rewriting import WRITE_OPTIONS
from siltlog.pipelines.replay.range import Selection, Slice
from siltlog.pipelines.spark.query import translated
from siltlog.pipelines.spark.session import spark_session
from siltlog.pipelines.topics import select_of, spark_uri

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

DONE = "_done"
"""Beside the files, once all are there: their paths. Vacuum, which goes by age, may leave it behind without them."""
COMPRESSION = "zstd"
_PARTITION = re.compile(rf"/{names.PARTITION_COLUMN}=(\d+)/[^/]+\.parquet$")


def matching(store: ObjectStore, topic: str, snapshot: TableSnapshot, selection: Selection, run: str) -> list[Slice]:
    """Slices of files that have only records that meet `selection.where`; those of an earlier call for `run`, if there
    are any.

    Raises Refused for SQL that is not valid, Unavailable when Spark fails, ConfigError where it is missing.
    """
    folder = _folder(topic, run)
    paths = _found(store, folder)
    if paths is None:
        size = sum(file.size_bytes for file in snapshot.files.values())
        with spark_session(store, short_job=size < LONG_JOB_BYTES) as spark, translated():
            found = _selected(spark.sql(select_of(store, topic, snapshot)), selection, snapshot)
            (
                found.select(*RECORD_SCHEMA.names)
                # Each task has a stretch of one partition after the other.
                .repartitionByRange(names.PARTITION_COLUMN, "offset")
                .sortWithinPartitions(names.PARTITION_COLUMN, "offset")
                .write.mode("overwrite")
                .partitionBy(names.PARTITION_COLUMN)
                .options(**WRITE_OPTIONS, compression=COMPRESSION)
                .parquet(spark_uri(store, folder))
            )
        written = [info.path for info in store.list(folder)]
        store.sync(written)
        paths = [path for path in written if _PARTITION.search(path)]
        store.put(f"{folder}/{DONE}", msgspec.json.encode(paths))
        store.sync([f"{folder}/{DONE}"])
    files: dict[int, list[DataFile]] = {}
    for path in paths:
        named = _PARTITION.search(path)
        assert named is not None, path
        partition = int(named[1])
        relative = path.removeprefix(f"{names.topic_path(topic)}/")
        files.setdefault(partition, []).append(data_file_from_footer(store, topic, relative, partition))
    return [_slice(partition, sorted(group, key=_first)) for partition, group in sorted(files.items())]


def _found(store: ObjectStore, folder: str) -> list[str] | None:
    """Lists the files that an earlier call wrote; None where it did not end, or where some of them are gone."""
    try:
        paths = msgspec.json.decode(store.get(f"{folder}/{DONE}"), type=list[str])
    except (FileNotFoundError, msgspec.DecodeError):
        return None
    return None if None in store.sizes(paths) else paths


def remove_matches(store: ObjectStore, topic: str, run: str) -> None:
    folder = _folder(topic, run)
    for info in store.list(folder):
        store.delete(info.path)
        store.prune(info.path.rpartition("/")[0])


def _folder(topic: str, run: str) -> str:
    return f"{names.topic_path(topic)}/{names.rewrite_folder(run)}"


def _selected(frame: "DataFrame", selection: Selection, snapshot: TableSnapshot) -> "DataFrame":
    from pyspark.sql import functions as f

    micros = f.unix_micros("timestamp")
    conditions = [f.expr(str(selection.where))]
    if selection.start_offset is not None:
        conditions.append(f.col("offset") >= _place(selection.start_offset, snapshot))
    if selection.end_offset is not None:
        conditions.append(f.col("offset") < _place(selection.end_offset, snapshot))
    if selection.start_us is not None:
        conditions.append(micros >= selection.start_us)
    if selection.end_us is not None:
        conditions.append(micros < selection.end_us)
    if selection.key is not None:
        conditions.append(f.col("key") == f.lit(selection.key))
    if selection.partitions:
        conditions.append(f.col(names.PARTITION_COLUMN).isin(list(selection.partitions)))
    return reduce(lambda chosen, condition: chosen.where(condition), conditions, frame)


def _place(offset: int, snapshot: TableSnapshot) -> "Column":
    """The offset, or what it is in each partition where it counts from the end."""
    from pyspark.sql import functions as f

    if offset >= 0:
        return f.lit(offset)
    by_partition = [f.lit(n) for p, end in snapshot.offsets.items() for n in (p, counted(offset, end))]
    return f.element_at(f.create_map(*by_partition), f.col(names.PARTITION_COLUMN))


def _slice(partition: int, files: list[DataFile]) -> Slice:
    return Slice(partition, files[0].first_offset, files[-1].last_offset + 1, tuple(files))


def _first(file: DataFile) -> int:
    return file.first_offset
