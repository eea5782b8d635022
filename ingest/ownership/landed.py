"""Finds how far this WAL's own records have come in a table, and which of them never got there.

A table offset alone does not say it: a copy of this data dir, or who took over, may have made it. What proves that a
record landed is a commit that this WAL noted, or the record itself, found in the table at its offset.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import pyarrow as pa

from siltlog.infra import delta_names
from siltlog.infra.columns import FILE_SCHEMA
from siltlog.infra.store.store import ObjectStore
from siltlog.infra.table.data_file import DataFile, read_data_file
from siltlog.infra.table.entries import Entry, read_entry
from siltlog.infra.table.snapshot import TableSnapshot
from siltlog.ingest.log import state as wal_state
from siltlog.ingest.ownership.found import FoundFrame, each_once
from siltlog.ingest.records.batch import LogBatch, file_columns

FILES_OPEN = 2
"""Frames lie closer together than files: neighbours read the same ones."""


@dataclass(frozen=True, slots=True)
class Landed:
    """Offsets by partition: every record of this WAL below one is in the table by a commit of its own, or set aside.

    -1 where that is not known.
    """

    offsets: Mapping[int, int]
    in_doubt: bool = False
    """The log of the table no longer tells whether the last commit landed."""

    def offset(self, partition: int) -> int:
        return self.offsets.get(partition, 0)


class Absent(NamedTuple):
    """Records that the table does not have, and the epoch they were acknowledged in."""

    epoch: int
    batch: LogBatch


def landed(store: ObjectStore, snapshot: TableSnapshot, topic: str, known: wal_state.TopicState | None) -> Landed:
    """Gives the offsets that `known` says, with those of the commit whose outcome it does not know, if that landed.

    Raises Unavailable where the log cannot be read now.
    """
    if known is None:
        return Landed({})
    offsets = {partition: state.table_offset for partition, state in known.partitions.items()}
    if not known.open_commit:
        return Landed(offsets)
    try:
        own = _entry_of(store, snapshot, topic, known)
    except FileNotFoundError:
        return Landed(offsets, in_doubt=True)
    if own is not None:
        for partition in range(snapshot.partitions):
            reached = own.transactions.get(delta_names.txn_offset(partition), wal_state.NOT_KNOWN)
            offsets[partition] = max(reached, offsets.get(partition, 0))
    return Landed(offsets)


def _entry_of(store: ObjectStore, snapshot: TableSnapshot, topic: str, known: wal_state.TopicState) -> Entry | None:
    """The open commit's; FileNotFoundError where the entry that may be it was cleaned up."""
    after = known.table_version if known.open_version < 0 else known.open_version
    for version in range(after + 1, snapshot.version + 1):
        entry = read_entry(store, topic, version)
        if entry.commit_id == known.open_commit:
            return entry
        if _shuts_out(entry, known.epochs):
            break
    return None


def _shuts_out(entry: Entry, own_epochs: Sequence[int]) -> bool:
    """Whether no append that was decided on before can come after this entry: another has claimed or appended."""
    epochs, offsets = (app_id(0).removesuffix("0") for app_id in (delta_names.txn_epoch, delta_names.txn_offset))
    claimed = any(name.startswith(epochs) and n not in own_epochs for name, n in entry.transactions.items())
    return claimed or (bool(entry.adds) and any(name.startswith(offsets) for name in entry.transactions))


def missing(
    store: ObjectStore,
    topic: str,
    snapshot: TableSnapshot,
    partition: int,
    frames: Iterable[FoundFrame],
    landed_offset: int,
) -> list[Absent]:
    """The records of `frames` from `landed_offset` on that the table does not hold as they are, in order.

    One that the table may have had, and retention or key compaction removed, counts as missing: that cannot be told.
    """
    rows = _Rows(store, topic, snapshot, partition)
    absent: list[Absent] = []
    at = landed_offset
    for frame in each_once(frames):
        first = max(frame.first_offset, at)
        if first < frame.next_offset:
            batch = LogBatch.from_payload(frame.first_offset, frame.payload()).slice(first, frame.next_offset)
            absent += [Absent(frame.epoch, run) for run in _absent(batch, rows.between(first, frame.next_offset))]
            at = frame.next_offset
    return absent


def _absent(batch: LogBatch, rows: pa.Table) -> Iterator[LogBatch]:
    """The runs of `batch` that `rows` does not have at the same offsets."""
    own = _comparable(file_columns(batch))
    if own.equals(rows):
        return
    there = {row["offset"]: row for row in rows.to_pylist()}
    begin: int | None = None
    for row in own.to_pylist():
        offset = row["offset"]
        same = there.get(offset) == row
        if same and begin is not None:
            yield batch.slice(begin, offset)
        begin = None if same else offset if begin is None else begin
    if begin is not None:
        yield batch.slice(begin, batch.next_offset)


class _Rows:
    """The table's rows of one partition."""

    def __init__(self, store: ObjectStore, topic: str, snapshot: TableSnapshot, partition: int) -> None:
        self._files = snapshot.files_of(partition)
        self._end = snapshot.offsets[partition]
        self._read = lru_cache(FILES_OPEN)(lambda file: _read(store, topic, file))

    def between(self, first: int, end: int) -> pa.Table:
        """The rows at offsets [first, end)."""
        parts = [_EMPTY]
        if first < self._end:
            for file in self._files:
                if file.first_offset < end and file.last_offset >= first:
                    rows = self._read(file)
                    offsets = rows.column("offset").to_numpy()
                    begin, stop = offsets.searchsorted([first, end]).tolist()
                    parts.append(rows.slice(begin, stop - begin))
        return pa.concat_tables(parts)


def _read(store: ObjectStore, topic: str, file: DataFile) -> pa.Table:
    return _comparable(read_data_file(store, topic, file, columns=FILE_SCHEMA.names))


def _comparable(rows: pa.Table) -> pa.Table:
    """Times as numbers: some that are stored are no times to Python."""
    at = rows.schema.get_field_index("timestamp")
    return rows.set_column(at, "timestamp", rows.column("timestamp").cast(pa.int64()))


_EMPTY = _comparable(FILE_SCHEMA.empty_table())
