"""A log in memory for tests of what reads one: real data files and snapshots, a head that the test moves by hand."""

import uuid
from bisect import bisect_right
from collections.abc import Awaitable, Callable, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from siltlog.infra import delta_names, names
from siltlog.infra.columns import FILE_SCHEMA, HEADERS, PRODUCED_SCHEMA, RECORD_SCHEMA, TIMESTAMP, nulls
from siltlog.infra.errors import UnknownTopic, problem
from siltlog.infra.records import Bounds, SentBatch
from siltlog.infra.settings.topic_config import TopicConfig
from siltlog.infra.store.store import ObjectStore
from siltlog.infra.table.data_file import DataFile, read_data_file, write_data_file
from siltlog.infra.table.snapshot import TableSnapshot

CREATED_US = 1_763_710_560_000_000
Pairs = list[tuple[str, bytes | None]]


async def _no_pause() -> None:
    """Nothing happens between two steps of a read."""


def record_batch(
    partition: int,
    first_offset: int,
    values: Sequence[bytes | None],
    *,
    keys: Sequence[bytes | None] | None = None,
    headers: Sequence[Pairs | None] | None = None,
    timestamps: Sequence[int] | None = None,
) -> pa.RecordBatch:
    """RECORD_SCHEMA; without `timestamps` they are CREATED_US + offset."""
    count = len(values)
    offsets = np.arange(first_offset, first_offset + count, dtype=np.int64)
    return pa.RecordBatch.from_arrays(
        [
            pa.array(np.full(count, partition, np.int32)),
            pa.array(offsets),
            pa.array(offsets + CREATED_US if timestamps is None else np.array(timestamps, np.int64)).cast(TIMESTAMP),
            nulls(count, pa.binary()) if keys is None else pa.array(keys, pa.binary()),
            pa.array(values, pa.binary()),
            nulls(count, HEADERS) if headers is None else pa.array(headers, HEADERS),
        ],
        schema=RECORD_SCHEMA,
    )


class FakePartition:
    """Satisfies PartitionView. The head covers [`head_start`, `high_watermark`)."""

    def __init__(self, topic: "FakeTopic", partition: int) -> None:
        self.topic = topic
        self.partition = partition
        self.head: list[pa.RecordBatch] = []
        self.head_start = 0
        self.high_watermark = 0
        self.callbacks: list[Callable[[], None]] = []

    @property
    def far(self) -> bool:
        return False

    def bounds(self) -> Bounds:
        snapshot = self.topic.snapshot
        return Bounds(snapshot.starts[self.partition], snapshot.offsets[self.partition], self.high_watermark)

    async def reaches(self, offset: int) -> bool:
        return False

    async def decided(self) -> Bounds:
        return self.bounds()

    def sent(self, offset: int, end: int) -> Sequence[SentBatch]:
        return ()

    async def read_head(
        self, offset: int, end: int, max_records: int, max_bytes: int, producers: bool = False
    ) -> list[pa.RecordBatch] | None:
        await self.topic.log.pause()
        in_table = producers and offset < self.bounds().table_offset
        found = None if in_table else self._in_head(offset, end, max_records, max_bytes)
        await self.topic.log.pause()
        schema = PRODUCED_SCHEMA if producers else RECORD_SCHEMA
        return found and [_with_columns(batch, schema) for batch in found]

    def _in_head(self, offset: int, end: int, max_records: int, max_bytes: int) -> list[pa.RecordBatch] | None:
        if offset < self.head_start:
            return None
        out: list[pa.RecordBatch] = []
        at = bisect_right(self.head, offset, key=_first) - 1
        for batch in self.head[max(at, 0) :]:
            skip = max(offset - _first(batch), 0)
            part = batch.slice(skip, min(max_records, end - _first(batch) - skip))
            if part.num_rows <= 0 or max_records <= 0 or (out and max_bytes <= 0):
                break
            out.append(part)
            max_records -= part.num_rows
            max_bytes -= part.nbytes
        return out

    def subscribe(self, callback: Callable[[], None]) -> None:
        self.callbacks.append(callback)

    def unsubscribe(self, callback: Callable[[], None]) -> None:
        self.callbacks.remove(callback)

    def moved(self) -> None:
        for callback in list(self.callbacks):
            callback()

    def append(
        self,
        values: Sequence[bytes | None],
        *,
        keys: Sequence[bytes | None] | None = None,
        headers: Sequence[Pairs | None] | None = None,
        timestamps: Sequence[int] | None = None,
        producer_ids: Sequence[str | None] | None = None,
    ) -> None:
        """Each of `producer_ids` sends its record with the offset as its sequence."""
        if not values:
            return
        batch = record_batch(
            self.partition, self.high_watermark, values, keys=keys, headers=headers, timestamps=timestamps
        )
        if producer_ids is not None:
            sent = pa.array([id_ is None for id_ in producer_ids])
            epochs = pc.if_else(sent, None, pa.array([0] * len(values), pa.int32()))
            sequences = pc.if_else(sent, None, batch.column("offset"))
            columns = [*batch.columns, pa.array(producer_ids, pa.string()), epochs, sequences]
            batch = pa.RecordBatch.from_arrays(columns, schema=PRODUCED_SCHEMA)
        self.append_batch(batch)

    def append_batch(self, batch: pa.RecordBatch) -> None:
        self.head.append(batch)
        self.high_watermark += batch.num_rows
        self.moved()

    def flush(self, end: int | None = None, *, compression: str = "zstd") -> DataFile | None:
        """One data file of what lies between the table offset and `end`, and the snapshot that has it."""
        start = self.topic.snapshot.offsets[self.partition]
        batches = self._in_head(start, self.high_watermark if end is None else end, 1 << 60, 1 << 60)
        if not batches:
            return None
        table = pa.Table.from_batches([_with_columns(batch, FILE_SCHEMA) for batch in batches])
        file = write_data_file(
            self.topic.log.store, self.topic.name, self.partition, table, compression=compression, now_ms=0
        )
        self.topic.commit(adds=[file], transactions={delta_names.txn_offset(self.partition): file.last_offset + 1})
        self.moved()
        return file

    def evict(self, end: int | None = None) -> None:
        """The head lets go what lies below `end` and the table offset, whole batches of it."""
        table_offset = self.topic.snapshot.offsets[self.partition]
        end = table_offset if end is None else min(end, table_offset)
        while self.head and _first(self.head[0]) + self.head[0].num_rows <= end:
            self.head.pop(0)
        self.head_start = _first(self.head[0]) if self.head else max(self.head_start, self.high_watermark)

    def jump(self, offset: int) -> None:
        """A claim that goes on at `offset`: nothing will ever lie between; all there is must have been flushed."""
        assert self.topic.snapshot.offsets[self.partition] == self.high_watermark
        self.topic.commit(transactions={delta_names.txn_offset(self.partition): offset})
        self.head.clear()
        self.head_start = self.high_watermark = offset
        self.moved()

    def rewrite(
        self, files: Sequence[DataFile], *, without: Sequence[int] = (), vacuum: bool = False
    ) -> DataFile | None:
        """Neighbouring `files` become one, without the offsets of `without`; `vacuum` deletes them at once."""
        parts = [self._stored(file) for file in files]
        table = pa.concat_tables(parts).sort_by("offset")
        table = table.filter(pc.invert(pc.is_in(table.column("offset"), pa.array(list(without), pa.int64()))))
        log, topic = self.topic.log, self.topic
        merged = None
        if table.num_rows:
            merged = write_data_file(log.store, topic.name, self.partition, table, compression="zstd", now_ms=0)
        topic.commit(adds=[merged] if merged else [], removes=files)
        if vacuum:
            topic.delete_objects(files)
        return merged

    def retain(self, start: int, *, vacuum: bool = False) -> None:
        """The log start moves; files wholly below it go."""
        files = [file for file in self.topic.snapshot.files_of(self.partition) if file.last_offset < start]
        self.topic.commit(removes=files, transactions={delta_names.txn_start(self.partition): start})
        if vacuum:
            self.topic.delete_objects(files)
        self.moved()

    def _stored(self, file: DataFile) -> pa.Table:
        return read_data_file(self.topic.log.store, self.topic.name, file, columns=FILE_SCHEMA.names)


class FakeTopic:
    """Satisfies TopicView."""

    def __init__(self, log: "FakeLog", name: str, partitions: int) -> None:
        self.log = log
        self.name = name
        self.topic_id = str(uuid.uuid4())
        self.created_us = CREATED_US
        self.config = TopicConfig({})
        self._properties = {
            delta_names.PROPERTY_TOPIC_ID: self.topic_id,
            delta_names.PROPERTY_PARTITIONS: str(partitions),
        }
        self.snapshot = TableSnapshot.build(0, self._properties, {}, [])
        self.partitions = [FakePartition(self, partition) for partition in range(partitions)]

    def commit(
        self,
        *,
        adds: Sequence[DataFile] = (),
        removes: Sequence[DataFile] = (),
        transactions: dict[str, int] | None = None,
    ) -> None:
        gone = {file.path for file in removes}
        files = [file for path, file in self.snapshot.files.items() if path not in gone]
        self.snapshot = TableSnapshot.build(
            self.snapshot.version + 1,
            self._properties,
            {**self.snapshot.transactions, **(transactions or {})},
            [*files, *adds],
        )

    def delete_objects(self, files: Sequence[DataFile]) -> None:
        for file in files:
            self.log.store.delete(f"{names.topic_path(self.name)}/{file.path}")


class FakeLog:
    """Satisfies LogView. `pause` is awaited wherever a real log could let others run."""

    def __init__(self, store: ObjectStore) -> None:
        self.store = store
        self.draining = False
        self.pause: Callable[[], Awaitable[None]] = _no_pause
        self.unreadable: set[str] = set()
        """Topics whose tables cannot be opened now."""
        self._topics: dict[str, FakeTopic] = {}

    def create(self, name: str, partitions: int = 1) -> FakeTopic:
        self._topics[name] = FakeTopic(self, name, partitions)
        return self._topics[name]

    def delete(self, name: str) -> None:
        for view in self._topics.pop(name).partitions:
            view.moved()

    def topic(self, name: str) -> FakeTopic:
        if name not in self._topics:
            raise UnknownTopic(f"there is no topic {name}", status=404)
        if name in self.unreadable:
            raise problem("topic_unavailable", f"the table of the topic {name} is being opened here")
        return self._topics[name]

    def topics(self) -> list[FakeTopic]:
        return [self._topics[name] for name in sorted(self._topics.keys() - self.unreadable)]

    view = 0

    def opening(self) -> set[str]:
        return self.unreadable


def _first(batch: pa.RecordBatch) -> int:
    return batch.column("offset")[0].as_py()


def _with_columns(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The columns of `schema`, null where the batch has none."""
    there = set(batch.schema.names)
    columns = [
        batch.column(field.name) if field.name in there else nulls(batch.num_rows, field.type) for field in schema
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)
