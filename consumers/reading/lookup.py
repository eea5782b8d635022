"""Finds the offset of a time: the lowest one at or after it. Timestamps need not rise with offsets."""

from bisect import bisect_left
from functools import partial

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


def _first(offsets: pa.Array, timestamps: pa.Array, timestamp_us: int, position: int) -> int | None:
    """The lowest of `offsets` (ascending) from `position` on whose timestamp is late enough."""
    numbers: npt.NDArray[np.int64] = offsets.to_numpy()
    late = (timestamps.cast(pa.int64()).to_numpy() >= timestamp_us) & (numbers >= position)
    at = int(late.argmax()) if len(late) else 0
    return int(numbers[at]) if len(late) and late[at] else None
