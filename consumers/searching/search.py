"""Searches a range of a topic piece by piece: row groups of the table, and as much of the head.

Of a row group only the columns that are asked about are read, and the others where something is found: then by Arrow,
and no record is made into an object but what Arrow cannot tell, JSON. All of that is on threads that give way to
others. What is given is kept nowhere: the cache of the reads is theirs.
"""

from bisect import bisect_left
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from siltlog.consumers.reading.reader import last_offset_of, uncovered
from siltlog.consumers.reading.row_groups import CheckedFiles
from siltlog.consumers.reading.view import PartitionView
from siltlog.consumers.searching.member import Member
from siltlog.consumers.searching.places import SearchRange, cursor_text
from siltlog.infra.arrow.record_filter import RecordFilter
from siltlog.infra.columns import PRODUCED_SCHEMA, RECORD_SCHEMA
from siltlog.infra.errors import CorruptData, problem
from siltlog.infra.store.store import ObjectStore
from siltlog.infra.table.data_file import DataFile, read_row_group
from siltlog.infra.table.snapshot import TableSnapshot

HEAD_RECORDS_MAX = 50_000
HEAD_BYTES_MAX = 4 * 1024 * 1024
"""How much of the head one piece has."""
JSON_RECORDS_MAX = 500
"""After so many values that were read as JSON, which takes the interpreter as Arrow does not, others have a turn."""


class Runs(Protocol):
    def __call__(self, work: Callable[[], Any], /) -> Awaitable[Any]:
        """Does work on a thread."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a record is to have, each part of it where it is asked for."""

    records: RecordFilter
    member: Member | None = None
    producers: bool = False
    """Records are given with theirs; so they are where one is wanted."""

    def __bool__(self) -> bool:
        return bool(self.records) or self.member is not None

    @property
    def schema(self) -> pa.Schema:
        """What records are given as."""
        return PRODUCED_SCHEMA if self.producers or self.records.producer_id is not None else RECORD_SCHEMA

    @property
    def columns(self) -> list[str]:
        """The columns by which it is told."""
        records = self.records.columns
        return ["offset", *records, *(["value"] if self.member is not None and "value" not in records else [])]

    def narrowed(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The rows of `batch`, which has `columns`, that may be wanted, by Arrow alone; that are, without a member."""
        batch = self.records.of(batch)
        return batch if self.member is None or not batch.num_rows else self.member.narrowed(batch)

    def told_by_json(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Keeps those of the narrowed rows that are wanted."""
        assert self.member is not None
        values = batch.column("value").to_pylist()
        rows = [at for at, value in enumerate(values) if self.member.is_in(value)]
        return batch.take(pa.array(rows, pa.int64()))


@dataclass(frozen=True, slots=True)
class Piece:
    """What one step looked at: a partition up to `next_offset`; `rows` are those that are wanted."""

    partition: int
    next_offset: int
    rows: pa.RecordBatch | None = None


class Search:
    """Used on one event loop, by one task. Partitions take turns."""

    def __init__(
        self,
        store: ObjectStore,
        checked: CheckedFiles,
        run: Runs,
        rest: Callable[[], Awaitable[None]],
        within: SearchRange,
        wanted: Wanted,
    ) -> None:
        """`rest` is awaited where others are to have their turn."""
        self._store = store
        self._checked = checked
        self._run = run
        self._rest = rest
        self._topic = within.topic
        self._starts = within.starts
        self._ends = within.ends
        self._wanted = wanted
        self._schema = wanted.schema
        self._offsets = dict(within.starts)
        self._turn = deque(partition for partition, start in within.starts.items() if start < within.ends[partition])

    @property
    def looked_at(self) -> int:
        """How many offsets were looked at, or are known to have nothing."""
        return sum(self._offsets.values()) - sum(self._starts.values())

    @property
    def of(self) -> int:
        return sum(self._ends.values()) - sum(self._starts.values())

    @property
    def complete(self) -> bool:
        return not self._turn

    def cursor(self) -> str | None:
        """Says where to go on; None once it is complete."""
        return None if self.complete else cursor_text(self._topic, self._offsets, self._ends)

    async def step(self) -> Piece:
        """Looks at the next piece, of which nothing counts before `reached` says so; there must be one.

        Raises what is wrong with its partition, as a read does.
        """
        partition = self._turn[0]
        view = self._topic.partitions[partition]
        while True:
            position, end = await self._bounded(view)
            if position >= end:
                return Piece(partition, self._ends[partition])
            producers = self._schema is PRODUCED_SCHEMA
            batches = await view.read_head(position, end, HEAD_RECORDS_MAX, HEAD_BYTES_MAX, producers)
            if batches:
                return await self._in_head(partition, batches)
            # Taken after the head declined: it lets an offset go only once the topic's snapshot covers it.
            snapshot = self._topic.snapshot
            if position < snapshot.starts.get(partition, 0):
                # The log start moved since the bounds were read.
                return Piece(partition, snapshot.starts[partition])
            table_end = min(snapshot.offsets.get(partition, 0), end)
            if batches is not None or position >= table_end:
                raise uncovered(self._topic, view, position, "no source answers for it")
            try:
                return await self._in_table(partition, snapshot, position, table_end)
            except CorruptData:
                # A file of an older snapshot may be gone; the newer one has its records elsewhere.
                if self._topic.snapshot.version == snapshot.version:
                    raise

    def reached(self, partition: int, offset: int) -> None:
        """What lies before `offset` was looked at, and given where it is wanted; the next partition has its turn."""
        self._offsets[partition] = min(max(offset, self._offsets[partition]), self._ends[partition])
        if partition in self._turn:
            self._turn.remove(partition)
            if self._offsets[partition] < self._ends[partition]:
                self._turn.append(partition)

    async def _bounded(self, view: PartitionView) -> tuple[int, int]:
        """Gives the first offset and the end of what is left to be looked at, of what may be seen now."""
        bounds, end = view.bounds(), self._ends[view.partition]
        if bounds.high_watermark < end:
            # It was there when the search began: its owner knows whether it still is.
            decided = await view.decided()
            if decided is None:
                raise problem(
                    "topic_unavailable",
                    f"{self._topic.name}/{view.partition} can be read up to {bounds.high_watermark} until a node owns "
                    "it; go on from next in a moment",
                )
            bounds = decided
        position = max(self._offsets[view.partition], bounds.log_start_offset)
        return position, min(end, bounds.high_watermark)

    async def _in_table(self, partition: int, snapshot: TableSnapshot, position: int, end: int) -> Piece:
        files = self._checked.of(self._topic.name, snapshot, partition)
        at = bisect_left(files, position, key=last_offset_of)
        if at == len(files) or files[at].first_offset >= end:
            return Piece(partition, end)
        file = files[at]
        columns = self._wanted.columns if self._wanted else self._schema.names
        group: pa.RecordBatch = await self._run(
            partial(_row_group, self._store, self._topic.name, file, columns, position)
        )
        if not group.num_rows:
            return Piece(partition, min(file.last_offset + 1, end))
        offsets = group.column("offset").to_numpy()
        next_offset = min(int(offsets[-1]) + 1, end)
        first, stop = (int(at) for at in np.searchsorted(offsets, (position, end)))
        rows = await self._told([group.slice(first, stop - first)])
        if rows.num_rows and self._wanted:
            rows = await self._run(
                partial(_whole, self._store, self._topic.name, file, self._schema, position, rows.column("offset"))
            )
        return Piece(partition, next_offset, rows)

    async def _in_head(self, partition: int, batches: Sequence[pa.RecordBatch]) -> Piece:
        next_offset = batches[-1].column("offset")[-1].as_py() + 1
        return Piece(partition, next_offset, await self._told(batches))

    async def _told(self, batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
        """The rows that are wanted."""
        rows: pa.RecordBatch = await self._run(partial(_narrowed, batches, self._wanted))
        if self._wanted.member is None or not rows.num_rows:
            return rows
        told = []
        for first in range(0, rows.num_rows, JSON_RECORDS_MAX):
            told.append(await self._run(partial(self._wanted.told_by_json, rows.slice(first, JSON_RECORDS_MAX))))
            await self._rest()
        return pa.concat_batches(told)


def _row_group(store: ObjectStore, topic: str, file: DataFile, columns: Sequence[str], offset: int) -> pa.RecordBatch:
    """The first row group from `offset` on; no rows where the file has none there."""
    table = read_row_group(store, topic, file, columns=columns, offset=offset).combine_chunks()
    return table.to_batches()[0] if table.num_rows else pa.RecordBatch.from_pylist([], schema=table.schema)


def _whole(
    store: ObjectStore, topic: str, file: DataFile, schema: pa.Schema, position: int, offsets: pa.Array
) -> pa.RecordBatch:
    """The records at these offsets of the first row group from `position` on."""
    group = _row_group(store, topic, file, schema.names, position)
    return group.take(pa.array(np.searchsorted(group.column("offset").to_numpy(), offsets.to_numpy())))


def _narrowed(batches: Sequence[pa.RecordBatch], wanted: Wanted) -> pa.RecordBatch:
    return pa.concat_batches([wanted.narrowed(batch) for batch in batches])
