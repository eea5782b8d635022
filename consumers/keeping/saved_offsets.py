"""Offsets saved in the topic `_offsets`: `OffsetTable` keeps the last one of each group and partition, without IO.

`OffsetLog` reads the topic into the table, and appends to it.
"""

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from siltlog.consumers.reading.budget import Budget, Share
from siltlog.consumers.reading.reader import Reader
from siltlog.consumers.reading.row_groups import RowGroups
from siltlog.consumers.reading.view import Key, LogView, SystemLog
from siltlog.infra import names
from siltlog.infra.errors import SiltlogError, UnknownTopic, problem
from siltlog.infra.records import NO_LEADER_EPOCH, NewRecord, StoredOffset
from siltlog.infra.settings.topic_config import Value

FORGOTTEN_MS = 604_800_000
"""How long a deletion is remembered: a Redis that comes back with files of before it must not bring back what went."""
CONFIG: Mapping[str, Value] = {
    "cleanup.policy": "compact",
    "delete.retention.ms": FORGOTTEN_MS,
    # What is durable is read after a restart, whatever the server's own acks are.
    "acks": "wal",
    # What is not in the table is in the write-ahead log: a commit for every snapshot would only make small files.
    "flush.ms": 30_000,
}
LOAD_RETRY_MS = 500
APPEND_RECORDS_MAX = 2_000
READ_RECORDS = 100_000
READ_BYTES = 32 * 1024 * 1024


class SavedOffset(NamedTuple):
    """The next offset to read. Of two for the same partition of a group the higher version wins."""

    key: Key
    offset: int
    version: int
    metadata: str
    committed_ms: int
    partitions_seen: int = 0
    """How many partitions the topic had when the group first read it; 0 where it has not yet."""
    leader_epoch: int = NO_LEADER_EPOCH


_Place = tuple[str, int]
"""(topic id, partition)"""


def saved_record(group: str, entry: SavedOffset) -> NewRecord:
    value = StoredOffset(entry.key.topic, *entry[1:])
    return NewRecord(names.offset_key(group, entry.key.topic_id, entry.key.partition), value.encode())


def forgotten_record(group: str, key: Key, version: int = 0) -> NewRecord:
    """A tombstone: the group has no offset there any more of up to this version; 0: nobody asks which one it was."""
    return _tombstone(names.offset_key(group, key.topic_id, key.partition), version)


def deleted_record(group: str, version: int) -> NewRecord:
    """The group was deleted: nothing of it that is of up to this version is there any more."""
    return _tombstone(names.deleted_group_key(group), version)


def _tombstone(key: bytes, version: int) -> NewRecord:
    return NewRecord(key, None, ((names.RECORD_HEADER_FORGOTTEN, str(version).encode()),) if version else ())


class OffsetTable:
    """Remembers what was deleted too, until `expire`: Redis may come back with files of before that."""

    def __init__(self) -> None:
        self._groups: dict[str, dict[_Place, SavedOffset]] = {}
        self._forgotten: dict[str, dict[_Place, int]] = {}
        """Up to which version what a group had committed there was forgotten."""
        self._deleted: dict[str, int] = {}
        """Up to which version all of a group was."""

    def groups(self) -> list[str]:
        return sorted(self._groups)

    def deleted_groups(self) -> list[str]:
        return sorted(self._deleted)

    def of(self, group: str) -> list[SavedOffset]:
        return list(self._groups.get(group, {}).values())

    def entries(self) -> Iterator[tuple[str, SavedOffset]]:
        for group, places in self._groups.items():
            for entry in places.values():
                yield group, entry

    def __len__(self) -> int:
        return sum(map(len, self._groups.values()))

    def deleted(self, group: str) -> int:
        """Up to which version all of the group was deleted; 0 for never."""
        return self._deleted.get(group, 0)

    def forgotten(self, group: str) -> list[tuple[str, int, int]]:
        """(topic id, partition, up to which version) of what was forgotten by itself."""
        return [(*place, version) for place, version in self._forgotten.get(group, {}).items()]

    def lacks(self, group: str, entry: SavedOffset) -> bool:
        """Whether `entry` says more than what is here, and was not forgotten."""
        place = entry.key.topic_id, entry.key.partition
        if place in self._groups.get(group, {}):
            return self._outranks(group, entry)
        return entry.version > max(self._forgotten.get(group, {}).get(place, -1), self._deleted.get(group, -1))

    def _outranks(self, group: str, entry: SavedOffset) -> bool:
        known = self._groups.get(group, {}).get((entry.key.topic_id, entry.key.partition))
        return known is None or (entry.version, entry.partitions_seen) > (known.version, known.partitions_seen)

    def put(self, group: str, entry: SavedOffset) -> None:
        """What is saved after a deletion counts, whatever its version."""
        if self._outranks(group, entry):
            place = entry.key.topic_id, entry.key.partition
            self._groups.setdefault(group, {})[place] = entry
            self._forgotten.get(group, {}).pop(place, None)

    def drop(self, group: str, topic_id: str, partition: int, version: int = 0) -> None:
        """What the group has there of up to `version` is gone."""
        places = self._groups.get(group, {})
        places.pop((topic_id, partition), None)
        if not places:
            self._groups.pop(group, None)
        if version > self._deleted.get(group, 0):
            self._forgotten.setdefault(group, {})[topic_id, partition] = version

    def delete(self, group: str, version: int) -> None:
        """All that is known of the group was dropped, and so is what Redis has of it of up to `version`."""
        self._deleted[group] = max(version, self._deleted.get(group, 0))
        self._forgotten.pop(group, None)

    def expire(self, before_ms: int) -> None:
        """Deletions of before that are not remembered any more."""
        self._deleted = {group: version for group, version in self._deleted.items() if version >= before_ms}
        for group, places in list(self._forgotten.items()):
            left = {place: version for place, version in places.items() if version >= before_ms}
            self._forgotten[group] = left
            if not left:
                del self._forgotten[group]

    def fold(self, batches: Iterable[pa.RecordBatch]) -> None:
        """Takes in records of `_offsets` (RECORD_SCHEMA) in their order. Raises ValueError for one that is none.

        Of a key only the last record of a batch is looked at: its version is the highest, because one writer appends.
        """
        for batch in batches:
            # First: after a deletion versions may begin anew.
            gone = batch.filter(batch.column("value").is_null())
            for key, headers in zip(gone.column("key").to_pylist(), gone.column("headers").to_pylist(), strict=True):
                self._take_tombstone(key or b"", headers or ())
            rows = _last_rows(batch.column("key"))
            taken = pa.array(rows)
            keys: Sequence[bytes | None] = batch.column("key").take(taken).to_pylist()
            values: Sequence[bytes | None] = batch.column("value").take(taken).to_pylist()
            for key, value in zip(keys, values, strict=True):
                if value is not None:
                    self._take(key or b"", value)

    def _take_tombstone(self, key: bytes, headers: Sequence[Mapping[str, Any]]) -> None:
        group, topic_id, partition = key.decode().split("/")
        told = [int(header["value"]) for header in headers if header["key"] == names.RECORD_HEADER_FORGOTTEN]
        version = max(told, default=0)
        if key == names.deleted_group_key(group):
            self.delete(group, version)
        else:
            self.drop(group, topic_id, int(partition), version)

    def _take(self, key: bytes, value: bytes) -> None:
        group, topic_id, partition = key.decode().split("/")
        stored = StoredOffset.decode(value)
        place = Key(stored.topic, topic_id, int(partition))
        self.put(group, SavedOffset(place, *msgspec.structs.astuple(stored)[1:]))


def _last_rows(keys: pa.Array) -> npt.NDArray[np.int64]:
    """The row of the last record of each key, ascending."""
    codes = keys.dictionary_encode(null_encoding="encode").indices.to_numpy()
    last = np.full(int(codes.max()) + 1 if len(codes) else 0, -1, np.int64)
    np.maximum.at(last, codes, np.arange(len(codes)))
    return np.sort(last)


class OffsetLog:
    """Used on one event loop. `cluster_id` says of which log the offsets are.

    They are kept here from `owned` until `lost`: what others have appended is read first.
    """

    def __init__(
        self, log: LogView, system: SystemLog, row_groups: RowGroups, *, cluster_id: str, interval_ms: int
    ) -> None:
        self.cluster_id = cluster_id
        self.interval_ms = interval_ms
        """How old what it says of a group may be."""
        self.table = OffsetTable()
        """Complete once it was loaded: only this node appends."""
        self.loaded = asyncio.Event()
        self.news = asyncio.Event()
        """Set when they are to be read."""
        self.kept = False
        """Whether they are kept here."""
        self.epoch = 0
        """The epoch under which this node appends; 0 while there is no topic."""
        self._tenure = 0
        self._log = log
        self._system = system
        self._reader = Reader(row_groups)

    def owned(self) -> None:
        """This node has claimed the topic, or nobody else can: nothing is appended but by it."""
        self._begin(kept=True)
        self.epoch = self._system.epoch_of(names.OFFSETS_TOPIC)
        self.news.set()

    def lost(self) -> None:
        """The topic is another node's, or about to be."""
        self._begin(kept=False)

    def look(self) -> bool:
        """Whether this node still has the topic as it had when it read it; if not, it begins anew."""
        epoch = self._system.epoch_of(names.OFFSETS_TOPIC)
        if self.epoch and epoch != self.epoch:
            self.owned()
            return False
        self.epoch = epoch
        return epoch > 0

    def _begin(self, *, kept: bool) -> None:
        self._tenure += 1
        self.kept = kept
        self.table = OffsetTable()
        self.loaded.clear()

    def check_kept(self) -> int:
        """Returns the tenure, to be checked again after whatever takes time. Raises Unavailable."""
        if not self.kept:
            raise _not_kept()
        return self._tenure

    def _check(self, tenure: int) -> None:
        if tenure != self._tenure:
            raise _not_kept()

    async def load(self) -> int:
        """Reads `_offsets` to its end; the records read. Raises CorruptData, Unavailable; nothing is known then."""
        tenure = self.check_kept()
        try:
            topic = self._log.topic(names.OFFSETS_TOPIC)
        except UnknownTopic:
            self.loaded.set()
            return 0
        self.epoch = self._system.epoch_of(names.OFFSETS_TOPIC)
        view = topic.partitions[0]
        table = OffsetTable()
        offset = view.bounds().log_start_offset
        end = view.bounds().high_watermark
        records = 0
        while offset < end:
            budget = Budget(READ_RECORDS, READ_BYTES)
            read = await self._reader.read(topic, view, offset, budget, Share(), "wal")
            try:
                await asyncio.to_thread(table.fold, read.batches)
            except ValueError as error:
                raise problem(
                    "corrupt_data",
                    f"topic {names.OFFSETS_TOPIC}, from offset {offset}: a record is no offset of a group: {error}",
                    topic=names.OFFSETS_TOPIC,
                    partition=0,
                    first_offset=offset,
                    last_offset=read.next_offset - 1,
                ) from error
            records += sum(batch.num_rows for batch in read.batches)
            offset = read.next_offset
        self._check(tenure)
        self.table = table
        self.loaded.set()
        return records

    async def save(self, entries: Sequence[tuple[str, SavedOffset]]) -> None:
        """(group, entry); durable when it returns. Raises Unavailable or OutcomeUnknown."""
        tenure = self.check_kept()
        for first in range(0, len(entries), APPEND_RECORDS_MAX):
            part = entries[first : first + APPEND_RECORDS_MAX]
            await self._append([saved_record(group, entry) for group, entry in part], tenure)
            for group, entry in part:
                self.table.put(group, entry)

    async def forget(self, places: Sequence[tuple[str, Key]], version: int = 0) -> None:
        """(group, partition): they have no offset of up to `version` any more, and get none back. Raises as `save`."""
        tenure = self.check_kept()
        for first in range(0, len(places), APPEND_RECORDS_MAX):
            part = places[first : first + APPEND_RECORDS_MAX]
            await self._append([forgotten_record(group, key, version) for group, key in part], tenure)
            for group, key in part:
                self.table.drop(group, key.topic_id, key.partition, version)

    async def delete(self, group: str, version: int) -> None:
        """Nothing of the group of up to `version` is there any more, nor comes back. Raises as `save`."""
        tenure = self.check_kept()
        await self.forget([(group, entry.key) for entry in self.table.of(group)], version)
        await self._append([deleted_record(group, version)], tenure)
        self.table.delete(group, version)

    async def _append(self, records: Sequence[NewRecord], tenure: int) -> None:
        self._check(tenure)
        await self._system.ensure(names.OFFSETS_TOPIC, 1, CONFIG)
        self._check(tenure)
        if not self.look():
            raise _not_kept()
        try:
            await self._system.append(names.OFFSETS_TOPIC, 0, records, epoch=self.epoch)
        except SiltlogError as error:
            raise _not_kept() if error.error_code == "not_owner" else error from None
        # Whoever has the topic by now has read these records, if they count.
        self._check(tenure)


def _not_kept() -> SiltlogError:
    return problem(
        "coordinator_unavailable",
        f"another node keeps what groups commit: it has {names.OFFSETS_TOPIC} by now; come again in a moment",
        retry_after_ms=LOAD_RETRY_MS,
    )
