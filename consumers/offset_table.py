"""What `_offsets` says: per group and partition the last offset that was saved there. No IO."""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from siltlog.consumers.group_scripts import Key
from siltlog.infra import names, stored_offset
from siltlog.infra.new_record import NewRecord
from siltlog.infra.stored_offset import StoredOffset


class SavedOffset(NamedTuple):
    """The next offset to read. Of two for the same partition of a group the higher version wins."""

    key: Key
    offset: int
    version: int
    metadata: str
    committed_ms: int
    partitions_seen: int = 0
    """How many partitions the topic had when the group first read it; 0 where it has not yet."""


_Place = tuple[str, int]
"""(topic id, partition)"""


def saved_record(group: str, entry: SavedOffset) -> NewRecord:
    value = StoredOffset(entry.key.topic, *entry[1:])
    return NewRecord(names.offset_key(group, entry.key.topic_id, entry.key.partition), stored_offset.encode(value))


def forgotten_record(group: str, key: Key) -> NewRecord:
    """A tombstone: the group has no offset there any more."""
    return NewRecord(names.offset_key(group, key.topic_id, key.partition), None)


class OffsetTable:
    def __init__(self) -> None:
        self._groups: dict[str, dict[_Place, SavedOffset]] = {}

    def groups(self) -> list[str]:
        return sorted(self._groups)

    def of(self, group: str) -> list[SavedOffset]:
        return list(self._groups.get(group, {}).values())

    def entries(self) -> Iterator[tuple[str, SavedOffset]]:
        for group, places in self._groups.items():
            for entry in places.values():
                yield group, entry

    def __len__(self) -> int:
        return sum(map(len, self._groups.values()))

    def lacks(self, group: str, entry: SavedOffset) -> bool:
        """Whether `entry` says more than what is here."""
        known = self._groups.get(group, {}).get((entry.key.topic_id, entry.key.partition))
        return known is None or (entry.version, entry.partitions_seen) > (known.version, known.partitions_seen)

    def put(self, group: str, entry: SavedOffset) -> None:
        if self.lacks(group, entry):
            self._groups.setdefault(group, {})[entry.key.topic_id, entry.key.partition] = entry

    def drop(self, group: str, topic_id: str, partition: int) -> None:
        places = self._groups.get(group, {})
        places.pop((topic_id, partition), None)
        if not places:
            self._groups.pop(group, None)

    def fold(self, batches: Iterable[pa.RecordBatch]) -> None:
        """Takes in records of `_offsets` (RECORD_SCHEMA) in their order. Raises ValueError for one that is none.

        Of a key only the last record of a batch is looked at: its version is the highest, because one writer appends.
        """
        for batch in batches:
            # First: after a deletion versions may begin anew.
            gone = batch.filter(batch.column("value").is_null()).column("key").unique()
            for key in gone.to_pylist():
                self._take(key or b"", None)
            rows = _last_rows(batch.column("key"))
            taken = pa.array(rows)
            keys: Sequence[bytes | None] = batch.column("key").take(taken).to_pylist()
            values: Sequence[bytes | None] = batch.column("value").take(taken).to_pylist()
            for key, value in zip(keys, values, strict=True):
                self._take(key or b"", value)

    def _take(self, key: bytes, value: bytes | None) -> None:
        group, topic_id, partition = key.decode().split("/")
        if value is None:
            self.drop(group, topic_id, int(partition))
            return
        stored = stored_offset.decode(value)
        place = Key(stored.topic, topic_id, int(partition))
        self.put(
            group,
            SavedOffset(
                place, stored.offset, stored.version, stored.metadata, stored.committed_ms, stored.partitions_seen
            ),
        )


def _last_rows(keys: pa.Array) -> npt.NDArray[np.int64]:
    """The row of the last record of each key, ascending."""
    codes = keys.dictionary_encode(null_encoding="encode").indices.to_numpy()
    last = np.full(int(codes.max()) + 1 if len(codes) else 0, -1, np.int64)
    np.maximum.at(last, codes, np.arange(len(codes)))
    return np.sort(last)
