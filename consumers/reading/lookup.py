"""Finds the offset of a time: the lowest one at or after it, or that of the latest. Timestamps need not rise with
offsets."""

from bisect import bisect_left
from functools import partial
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from siltlog.consumers.reading.reader import last_offset_of, uncovered
from siltlog.consumers.reading.row_groups import RowGroups
from siltlog.consumers.reading.view import PartitionView, TopicView
from siltlog.infra.errors import CorruptData
from siltlog.infra.store.store import ObjectStore
from siltlog.infra.table.data_file import DataFile, read_data_file
from siltlog.infra.table.snapshot import TableSnapshot

HEAD_RECORDS_MAX = 1_000_000
HEAD_BYTES_MAX = 64 * 1024 * 1024
"""How much of the head one step looks at."""


class Timed(NamedTuple):
    """A record, by where it is."""

    offset: int
    timestamp_us: int


class Lookup:
    """Used on one event loop."""

    def __init__(self, store: ObjectStore, row_groups: RowGroups) -> None:
        self._store = store
        self._row_groups = row_groups

    async def offset_at(self, topic: TopicView, view: PartitionView, timestamp_us: int) -> int:
        """The lowest visible offset whose timestamp is `timestamp_us` or later; the high watermark when there is none.

        Files are passed over by their statistics; only those that may hold such a record are opened.
        """
        bounds = view.bounds()
        position, end = bounds.log_start_offset, bounds.high_watermark
        while position < end:
            snapshot = topic.snapshot
            position = max(position, snapshot.starts.get(view.partition, 0))
            table_end = min(snapshot.offsets.get(view.partition, 0), end)
            if position < table_end:
                try:
                    found = await self._in_table(topic, view, snapshot, position, timestamp_us)
                except CorruptData:
                    if topic.snapshot.version == snapshot.version:
                        raise
                    continue
                if found is not None and found < end:
                    return found
                position = table_end
                continue
            batches = await view.read_head(position, end, HEAD_RECORDS_MAX, HEAD_BYTES_MAX)
            if batches is None and topic.snapshot.version != snapshot.version:
                continue
            if not batches:
                raise uncovered(topic, view, position, "no source answers for it")
            for batch in batches:
                found = _first(batch.column("offset"), batch.column("timestamp"), timestamp_us, position)
                if found is not None:
                    return found
            position = batches[-1].column("offset")[-1].as_py() + 1
        return end

    async def latest(self, topic: TopicView, view: PartitionView) -> Timed | None:
        """The visible record with the latest timestamp, the first of several; None where there is no record.

        Only files that may hold it, by their statistics, are opened.
        """
        bounds = view.bounds()
        start, end = bounds.log_start_offset, bounds.high_watermark
        while start < end:
            snapshot = topic.snapshot
            start = max(start, snapshot.starts.get(view.partition, 0))
            position = max(start, min(snapshot.offsets.get(view.partition, 0), end))
            best = await self._latest_in_head(view, position, end)
            if best is None and position < end:
                if topic.snapshot.version != snapshot.version:
                    continue
                raise uncovered(topic, view, position, "no source answers for it")
            try:
                return await self._latest_in_table(topic, view, snapshot, start, position, best)
            except CorruptData:
                if topic.snapshot.version == snapshot.version:
                    raise
        return None

    async def _latest_in_head(self, view: PartitionView, position: int, end: int) -> Timed | None:
        """None where the head does not cover all of it."""
        best: Timed | None = None
        while position < end:
            batches = await view.read_head(position, end, HEAD_RECORDS_MAX, HEAD_BYTES_MAX)
            if not batches:
                return None
            for batch in batches:
                best = _later(best, _latest(batch.column("offset"), batch.column("timestamp"), position, end))
            position = batches[-1].column("offset")[-1].as_py() + 1
        return best

    async def _latest_in_table(
        self, topic: TopicView, view: PartitionView, snapshot: TableSnapshot, start: int, end: int, best: Timed | None
    ) -> Timed | None:
        files = snapshot.files_of(view.partition)
        files = files[bisect_left(files, start, key=last_offset_of) :]
        for file in sorted(files, key=lambda file: file.max_timestamp_us, reverse=True):
            if best is not None and file.max_timestamp_us < best.timestamp_us:
                break
            read = partial(_latest_in_file, self._store, topic.name, file, start, end)
            best = _later(best, await self._row_groups.run(read))
        return best

    async def _in_table(
        self, topic: TopicView, view: PartitionView, snapshot: TableSnapshot, position: int, timestamp_us: int
    ) -> int | None:
        files = snapshot.files_of(view.partition)
        for file in files[bisect_left(files, position, key=last_offset_of) :]:
            if file.max_timestamp_us >= timestamp_us:
                found = await self._row_groups.run(
                    partial(_in_file, self._store, topic.name, file, position, timestamp_us)
                )
                if found is not None:
                    return found
        return None


def _in_file(store: ObjectStore, topic: str, file: DataFile, position: int, timestamp_us: int) -> int | None:
    table = read_data_file(store, topic, file, columns=["offset", "timestamp"], first_offset=position)
    return _first(table.column("offset"), table.column("timestamp"), timestamp_us, position)


def _latest_in_file(store: ObjectStore, topic: str, file: DataFile, start: int, end: int) -> Timed | None:
    table = read_data_file(store, topic, file, columns=["offset", "timestamp"], first_offset=start)
    return _latest(table.column("offset"), table.column("timestamp"), start, end)


def _latest(offsets: pa.Array, timestamps: pa.Array, start: int, end: int) -> Timed | None:
    """Looks at those from `start` on and below `end`; `offsets` are ascending."""
    numbers: npt.NDArray[np.int64] = offsets.to_numpy()
    first, stop = np.searchsorted(numbers, (start, end))
    if first == stop:
        return None
    times = timestamps.cast(pa.int64()).to_numpy()[first:stop]
    at = int(times.argmax())
    return Timed(int(numbers[first + at]), int(times[at]))


def _later(one: Timed | None, other: Timed | None) -> Timed | None:
    """Gives the one with the later time; of two with one time the one with the lower offset."""
    there = [each for each in (one, other) if each is not None]
    return max(there, key=lambda each: (each.timestamp_us, -each.offset), default=None)


def _first(offsets: pa.Array, timestamps: pa.Array, timestamp_us: int, position: int) -> int | None:
    """The lowest of `offsets` (ascending) from `position` on whose timestamp is late enough."""
    numbers: npt.NDArray[np.int64] = offsets.to_numpy()
    late = (timestamps.cast(pa.int64()).to_numpy() >= timestamp_us) & (numbers >= position)
    at = int(late.argmax()) if len(late) else 0
    return int(numbers[at]) if len(late) and late[at] else None
