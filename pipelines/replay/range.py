"""Records of a topic between two places: which files have them at one version, and reading them in order."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from siltlog.infra import names
from siltlog.infra.arrow.arrays import numbers_of
from siltlog.infra.clock import Clock
from siltlog.infra.columns import RECORD_SCHEMA, TIMESTAMP
from siltlog.infra.errors import CorruptData, problem
from siltlog.infra.records import counted
from siltlog.infra.store.store import ObjectStore
from siltlog.infra.table.data_file import DataFile, row_groups
from siltlog.infra.table.snapshot import TableSnapshot
from siltlog.infra.table.table import TopicTable


class Selection(msgspec.Struct, frozen=True, kw_only=True):
    """A choice of records, which must fit every field that is given; a field that is None chooses nothing."""

    start_offset: int | None = None
    end_offset: int | None = None
    """Exclusive, like every end here. Both are those of every partition; negative ones count from where it ends."""
    start_us: int | None = None
    end_us: int | None = None
    """Times that the timestamps of the records lie between, wherever the records stand."""
    start_said: str | None = None
    end_said: str | None = None
    """How a time was said that is another one with each run, such as `1h`."""
    key: bytes | None = None
    partitions: tuple[int, ...] = ()
    """Empty: all of them."""
    where: str | None = None
    """A condition of Spark SQL over the columns of RECORD_SCHEMA."""

    def is_same(self, other: "Selection") -> bool:
        """Whether both were said alike: who repeats `1h` later means what was begun with it."""
        return self._as_said() == other._as_said()

    def _as_said(self) -> "Selection":
        return msgspec.structs.replace(
            self,
            start_us=self.start_us if self.start_said is None else None,
            end_us=self.end_us if self.end_said is None else None,
        )

    def offsets_in(self, log_start: int, end: int) -> tuple[int, int]:
        """The first offset and the one after the last of a partition that has [log_start, end)."""
        first = log_start if self.start_offset is None else max(counted(self.start_offset, end), log_start)
        return first, end if self.end_offset is None else min(counted(self.end_offset, end), end)

    def has_time(self, file: DataFile) -> bool:
        """Whether a record of the file can be within the times."""
        return (self.start_us is None or file.max_timestamp_us >= self.start_us) and (
            self.end_us is None or file.min_timestamp_us < self.end_us
        )

    def of(self, records: pa.Table) -> pa.Table:
        """Picks the `records` (RECORD_SCHEMA) that have the times and the key."""
        if self.start_us is not None:
            records = records.filter(pc.greater_equal(records["timestamp"], _moment(self.start_us)))
        if self.end_us is not None:
            records = records.filter(pc.less(records["timestamp"], _moment(self.end_us)))
        if self.key is not None:
            records = records.filter(pc.equal(records["key"], pa.scalar(self.key, pa.binary())))
        return records


class Slice(msgspec.Struct, frozen=True):
    """The offsets [start, end) of one partition, and the files that may have such records, ascending."""

    partition: int
    start: int
    end: int
    files: tuple[DataFile, ...]

    @property
    def rows(self) -> int:
        """The most records that it can have."""
        return sum(
            min(file.rows, min(file.last_offset + 1, self.end) - max(file.first_offset, self.start))
            for file in self.files
        )

    @property
    def size_bytes(self) -> int:
        return sum(file.size_bytes for file in self.files)


def plan_slices(topic: str, snapshot: TableSnapshot, selection: Selection) -> list[Slice]:
    """Plans a slice of each chosen partition that has records of the range. Raises Refused `unknown_partition`."""
    chosen = selection.partitions or range(snapshot.partitions)
    for partition in chosen:
        if not 0 <= partition < snapshot.partitions:
            raise problem(
                "unknown_partition",
                f"{topic} has no partition {partition}; it has {snapshot.partitions}, numbered from 0",
                topic=topic,
                partition=partition,
            )
    slices = []
    for partition in sorted(set(chosen)):
        start, end = selection.offsets_in(snapshot.starts[partition], snapshot.offsets[partition])
        files = tuple(
            file
            for file in snapshot.files_of(partition)
            if file.last_offset >= start and file.first_offset < end and selection.has_time(file)
        )
        if files:
            slices.append(Slice(partition, start, end, files))
    return slices


def records_of(
    store: ObjectStore, topic: str, part: Slice, selection: Selection, *, start: int | None = None
) -> Iterator[pa.Table]:
    """The selected records at and above `start`, a row group at a time: RECORD_SCHEMA tables, offsets ascending.

    Raises CorruptData, Unavailable as reading the files does.
    """
    position = part.start if start is None else max(start, part.start)
    for file in part.files:
        if file.last_offset < position:
            continue
        for group in row_groups(store, topic, file, columns=RECORD_SCHEMA.names, first_offset=position):
            offsets = numbers_of(group["offset"].combine_chunks(), np.int64)
            selected = selection.of(group.slice(0, int(np.searchsorted(offsets, part.end))))
            if selected.num_rows:
                yield selected.combine_chunks()
            position = int(offsets[-1]) + 1
            if position >= part.end:
                return


@contextmanager
def version_named(store: ObjectStore, topic: str, version: int, clock: Clock, anew: str) -> Iterator[None]:
    """Around reading what the table held at `version`: what vacuum removed since is told from damage.

    `anew` says how to begin once more.
    """
    try:
        yield
    except CorruptData as error:
        path = str(error.members.get("path", ""))
        relative = path.removeprefix(f"{names.topic_path(topic)}/")
        if store.size(path) is not None or relative in TopicTable.open(store, topic, clock).snapshot.files:
            raise
        raise problem(
            "invalid_request",
            f"vacuum has removed files that version {version} of topic {topic} had, so it cannot be read any more; "
            f"{anew}",
            topic=topic,
        ) from error


def totals(slices: Sequence[Slice]) -> tuple[int, int, int]:
    """Files, records at most, bytes."""
    return (
        sum(len(part.files) for part in slices),
        sum(part.rows for part in slices),
        sum(part.size_bytes for part in slices),
    )


def _moment(micros: int) -> pa.Scalar:
    return pa.scalar(micros, TIMESTAMP)
