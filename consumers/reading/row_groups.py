"""Decoded row groups of data files: read on a few threads, each once for all who wait, kept up to a bound of bytes.

`CheckedFiles` refuses a list of files in which two hold the same offset, and checks each list once.
"""

import asyncio
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from siltlog.consumers.reading.budget import record_ends
from siltlog.infra.columns import PRODUCED_SCHEMA, RECORD_SCHEMA
from siltlog.infra.errors import problem
from siltlog.infra.process.priority import run_behind_others
from siltlog.infra.store.store import ObjectStore
from siltlog.infra.table.data_file import DataFile, read_row_group
from siltlog.infra.table.snapshot import TableSnapshot

T = TypeVar("T")

CACHE_BYTES_MAX = 128 * 1024 * 1024
READS_MAX = 4
"""Reads of tables that run at once; others wait."""
CHECKED_MAX = 10_000
"""How many partitions' checked lists of files are remembered; past that all are forgotten."""
_Key = tuple[str, str, bool]
"""Topic and path of a file, and whether its records are read with their producers."""


@dataclass(frozen=True, slots=True, eq=False)
class RowGroup:
    """The rows of one row group; every row that its file has in [first_offset, next_offset) is among them."""

    first_offset: int
    next_offset: int
    batch: pa.RecordBatch
    """RECORD_SCHEMA; PRODUCED_SCHEMA where it was read with producers."""
    offsets: npt.NDArray[np.int64]
    ends: npt.NDArray[np.int64]
    """Bytes of the first 1, 2, ... records, as a Budget counts them: taken here, on the thread that read them."""
    nbytes: int

    def covers(self, offset: int) -> bool:
        return self.first_offset <= offset < self.next_offset

    def between(self, offset: int, end: int) -> tuple[pa.RecordBatch, npt.NDArray[np.int64]]:
        """The rows in [offset, end), and the bytes of the first 1, 2, ... of them."""
        start, stop = (int(at) for at in np.searchsorted(self.offsets, (offset, end)))
        before = self.ends[start - 1] if start else 0
        return self.batch.slice(start, stop - start), self.ends[start:stop] - before

    def is_past_middle(self, offset: int) -> bool:
        return 2 * (offset - self.first_offset) > self.next_offset - self.first_offset


class RowGroups:
    """Used on one event loop; only the decoding itself is on the threads."""

    def __init__(self, store: ObjectStore, *, bytes_max: int = CACHE_BYTES_MAX, reads_max: int = READS_MAX) -> None:
        self._store = store
        self._bytes_max = bytes_max
        self._reads_max = reads_max
        # Decoding takes all the processors there are; publishes have little to do, and at once.
        self._threads = ThreadPoolExecutor(reads_max, "table-read", initializer=run_behind_others)
        self._files: dict[_Key, list[RowGroup]] = {}
        self._used: OrderedDict[RowGroup, _Key] = OrderedDict()
        self._reading: dict[_Key, asyncio.Future[RowGroup]] = {}
        self.nbytes = 0

    def close(self) -> None:
        self._threads.shutdown(wait=True, cancel_futures=True)

    async def run(self, read: Callable[[], T]) -> T:
        """Another read of the table, under the same bound."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, read)

    async def at(self, topic: str, file: DataFile, offset: int, producers: bool = False) -> RowGroup:
        """The row group with the lowest offset of `file` at or above `offset`, which must not be above its last.

        Raises CorruptData and Unavailable as reading the file does.
        """
        key = (topic, file.path, producers)
        while True:
            group = self._kept(key, offset)
            if group is not None:
                return group
            reading = self._reading.get(key)
            if reading is None:
                return await asyncio.shield(self._read(key, file, offset))
            # Somebody reads this file now: what they read may be what is asked for.
            await asyncio.wait([reading])
            if reading.exception() is None and reading.result().covers(offset):
                return reading.result()

    def ahead(self, topic: str, file: DataFile, offset: int, producers: bool = False) -> bool:
        """Begins to read what will be asked for next, where a thread is free; False where none is."""
        if len(self._reading) >= self._reads_max:
            return False
        key = (topic, file.path, producers)
        if key not in self._reading and self._kept(key, offset) is None:
            self._read(key, file, offset)
        return True

    def _kept(self, key: _Key, offset: int) -> RowGroup | None:
        groups = self._files.get(key, ())
        at = bisect_right(groups, offset, key=lambda group: group.first_offset) - 1
        if at < 0 or not groups[at].covers(offset):
            return None
        self._used.move_to_end(groups[at])
        return groups[at]

    def _read(self, key: _Key, file: DataFile, offset: int) -> "asyncio.Future[RowGroup]":
        topic, _, producers = key
        load = partial(_load, self._store, topic, file, offset, PRODUCED_SCHEMA if producers else RECORD_SCHEMA)
        future = asyncio.get_running_loop().run_in_executor(self._threads, load)
        self._reading[key] = future
        future.add_done_callback(partial(self._keep, key))
        return future

    def _keep(self, key: _Key, future: "asyncio.Future[RowGroup]") -> None:
        del self._reading[key]
        if future.cancelled() or future.exception() is not None:
            return
        group = future.result()
        if group.nbytes > self._bytes_max:
            return
        groups = self._files.setdefault(key, [])
        # The same row group may have been asked for from before its first row and from within.
        for other in [other for other in groups if other.next_offset == group.next_offset]:
            self._drop(other)
        groups = self._files.setdefault(key, [])
        groups.insert(bisect_right(groups, group.first_offset, key=lambda other: other.first_offset), group)
        self._used[group] = key
        self.nbytes += group.nbytes
        while self.nbytes > self._bytes_max:
            self._drop(next(iter(self._used)))

    def _drop(self, group: RowGroup) -> None:
        key = self._used.pop(group)
        self._files[key].remove(group)
        if not self._files[key]:
            del self._files[key]
        self.nbytes -= group.nbytes


def _load(store: ObjectStore, topic: str, file: DataFile, offset: int, schema: pa.Schema) -> RowGroup:
    table = read_row_group(store, topic, file, columns=schema.names, offset=offset)
    if not table.num_rows:
        none, empty = np.empty(0, np.int64), pa.RecordBatch.from_pylist([], schema=schema)
        return RowGroup(offset, file.last_offset + 1, empty, none, none, 0)
    batch = table.combine_chunks().to_batches()[0]
    offsets = batch.column("offset").to_numpy()
    first, last = int(offsets[0]), int(offsets[-1])
    ends = record_ends(batch)
    return RowGroup(min(first, offset), last + 1, batch, offsets, ends, batch.get_total_buffer_size() + ends.nbytes)


class CheckedFiles:
    """Each list is checked once. Used on one event loop."""

    def __init__(self) -> None:
        self._checked: dict[tuple[str, int], Sequence[DataFile]] = {}

    def of(self, topic: str, snapshot: TableSnapshot, partition: int) -> Sequence[DataFile]:
        """The partition's files, ascending. Raises CorruptData where two overlap: some rows would be given twice."""
        files = snapshot.files_of(partition)
        if self._checked.get((topic, partition)) is not files:
            for before, after in pairwise(files):
                if after.first_offset <= before.last_offset:
                    raise problem(
                        "corrupt_data",
                        f"the files {before.path} and {after.path} of topic {topic}, partition {partition} both hold "
                        f"offset {after.first_offset} in table version {snapshot.version}; "
                        "bring the table back to a version before they overlapped",
                        topic=topic,
                        partition=partition,
                        path=after.path,
                        first_offset=after.first_offset,
                        last_offset=min(before.last_offset, after.last_offset),
                    )
            if len(self._checked) >= CHECKED_MAX:
                self._checked.clear()
            self._checked[topic, partition] = files
        return files
