"""One partition as its owner sees it: what is pending, in the head, in the table; and who waits for that to change.

Lives on the event loop; every mutable field has this one owner.
"""

import asyncio
from array import array
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple

import msgspec
import pyarrow as pa

from siltlog.infra.arrow.arrays import binary_array, fixed_array
from siltlog.infra.columns import TIMESTAMP
from siltlog.infra.records import Bounds, SentBatch
from siltlog.ingest.log.head import Chunk, Head, load
from siltlog.ingest.log.waiters import Waiters
from siltlog.ingest.producers.sequencer import ProducerBatch, Sequencer
from siltlog.ingest.records.batch import (
    LogBatch,
    ProducerRun,
    Runs,
    concat,
    joined,
    produced_columns,
    record_batch,
    record_columns,
)
from siltlog.ingest.records.body import Rows, headers_array
from siltlog.ingest.wal import Frame, FrameKind, Location, SegmentGone, Wal

if TYPE_CHECKING:
    from siltlog.ingest.log.topic import TopicLog


JOIN_BYTES_MAX = 64 * 1024
"""Batches above it are frames of their own: joining would copy them."""


class Piece(NamedTuple):
    """The part of a request for one partition: `rows` records, as lists or as columns, with their timestamps."""

    rows: int
    records: Rows | pa.RecordBatch
    nbytes: int
    producer: ProducerBatch | None


class Offsets(msgspec.Struct, frozen=True, gc=False):
    """How far a partition has come at one moment, in the order of the fields; a value out of order cannot be made.

    The offset that the sequencer gives out next is at least `submitted`.
    """

    log_start: int
    """The lowest offset that retention has left."""
    table: int
    """Everything below is in the table."""
    shown: int
    """Readers see everything below and nothing else: the high watermark, which never goes back.

    It moves with `table` where the acks of the topic is the table, with what has landed in the journal where it is
    `object`, else with `synced`.
    """
    synced: int
    """Everything below is durable."""
    submitted: int
    """Everything below is durable or on its way into the WAL."""

    def __post_init__(self) -> None:
        assert self.log_start <= self.table <= self.shown <= self.synced <= self.submitted, "offsets are in order"


class Kept(NamedTuple):
    """Where the records of a partition are beside its table."""

    head_start_offset: int
    head_bytes: int
    wal_segments: int
    wal_bytes: int


class PartitionLog:
    """Everybody may read its `offsets`; they change only by its own methods."""

    def __init__(self, topic: "TopicLog", partition: int, wal: Wal) -> None:
        self.topic = topic
        self.partition = partition
        self.epoch = 0
        self.sequencer = Sequencer(taken=topic.producers.bytes)
        self.head = Head(0)
        self.offsets = Offsets(0, 0, 0, 0, 0)
        self.state_offset = -1
        """The offset that the producer object beside the table covers, -1 before there is one."""
        self._pending: list[Piece] = []
        self._pending_first = 0
        self._wal = wal
        self._subscribers: set[Callable[[], None]] = set()
        self._table_waiters = Waiters()
        self._synced_waiters = Waiters()
        self._shown_waiters = Waiters()

    def remembered(self, next_offset: int, table_offset: int) -> None:
        """Takes over how far the process before came, for the state at the head of this one's WAL.

        Until the partition begins nobody reads it: no lower offset is asked for than the table's.
        """
        self.sequencer.next_offset = next_offset
        self.offsets = Offsets(table_offset, table_offset, table_offset, next_offset, next_offset)

    def settled(self, table_offset: int) -> None:
        """Notes before it begins that all of another owner's records below are in the table, or were set aside: also
        those that it flushed while it was claimed from."""
        known = self.offsets
        self.sequencer.next_offset = max(self.sequencer.next_offset, table_offset)
        self.offsets = Offsets(
            table_offset,
            table_offset,
            table_offset,
            max(known.synced, table_offset),
            max(known.submitted, table_offset),
        )

    def restored(self, head: Head) -> None:
        """Takes as its head what the WAL still had of the partition, before it begins."""
        self.head = head

    def begin(self, next_offset: int, table_offset: int, log_start_offset: int, epoch: int) -> None:
        """Sets the position this process starts from; everything below `next_offset` is durable."""
        self.epoch = epoch
        self.sequencer.next_offset = next_offset
        shown = table_offset if self.hidden else next_offset
        self.offsets = Offsets(log_start_offset, table_offset, shown, next_offset, next_offset)

    def submitted(self, next_offset: int) -> None:
        """Everything below is on its way into the WAL."""
        assert next_offset <= self.sequencer.next_offset, "what is submitted was sequenced"
        now = self.offsets
        self.offsets = Offsets(now.log_start, now.table, now.shown, now.synced, next_offset)

    def state_stored(self, offset: int) -> None:
        """The object beside the table tells of the producers of everything below."""
        self.state_offset = offset

    def add(self, piece: Piece, now_us: int, sent: bytes | None = None) -> int:
        """Sequences a piece and keeps it for the next group commit; its first offset. `sent` is its batch."""
        first = self.sequencer.append(piece.rows, piece.producer, now_us, self.offsets.submitted)
        if not self._pending:
            self._pending_first = first
        self._pending.append(piece)
        if sent is not None:
            # Nobody is given it before it is shown: readers ask for what is below that.
            self.head.keep(SentBatch(first, piece.rows, piece.nbytes, sent))
        return first

    def take_pending(self) -> list[LogBatch]:
        """All that was added since the last call: small pieces joined, large ones as they are."""
        pieces, self._pending = self._pending, []
        return _batches_of(self._pending_first, pieces)

    def frame(self, batch: LogBatch) -> Frame:
        return Frame(
            FrameKind.RECORDS,
            self.topic.id_bytes,
            self.partition,
            self.epoch,
            batch.first_offset,
            batch.rows,
            batch.payload(),
        )

    def synced(self, batch: LogBatch, frame: Location, now_seconds: float) -> None:
        self.head.append(batch, frame, now_seconds)
        before, synced = self.offsets, batch.next_offset
        shown = synced if self.topic.shows_synced else before.shown
        self.offsets = Offsets(before.log_start, before.table, shown, synced, before.submitted)
        self._synced_waiters.reached(synced)
        self.notify()

    def landed(self, next_offset: int) -> None:
        """Everything below is in the journal for good, or was in the table before."""
        before = self.offsets
        if next_offset > before.shown:
            self.offsets = Offsets(before.log_start, before.table, next_offset, before.synced, before.submitted)
            self._shown_waiters.reached(next_offset)
            self.notify()

    def moved(self, table_offset: int, log_start_offset: int) -> None:
        """The table's position became known: a flush of ours landed, or another process moved the log start."""
        before = self.offsets
        if table_offset == before.table and log_start_offset == before.log_start:
            return
        shown = max(before.shown, table_offset)
        self.offsets = Offsets(log_start_offset, table_offset, shown, before.synced, before.submitted)
        self.head.flushed(table_offset)
        self._table_waiters.reached(table_offset)
        self._shown_waiters.reached(shown)
        self.notify()

    def leave_memory(self) -> None:
        """Records are read from the table, or from the WAL where they are not in it yet."""
        self.head.evict(self.head.resident_bytes)

    def reconfigured(self) -> None:
        """Another `acks` of the topic may show more of what is synced; what was shown stays so."""
        before = self.offsets
        if self.topic.shows_synced and before.shown != before.synced:
            self.offsets = Offsets(before.log_start, before.table, before.synced, before.synced, before.submitted)
            self.notify()

    def when_synced(self, offset: int) -> asyncio.Future[None] | None:
        """Done once everything below `offset` is synced; None when it is."""
        return None if offset <= self.offsets.synced else self._synced_waiters.until(offset)

    def when_shown(self, offset: int) -> asyncio.Future[None] | None:
        """Done once readers see everything below `offset`; None when they do."""
        return None if offset <= self.offsets.shown else self._shown_waiters.until(offset)

    def when_in_table(self, offset: int) -> asyncio.Future[None] | None:
        """Done once everything below `offset` is in the table; None when it is."""
        return None if offset <= self.offsets.table else self._table_waiters.until(offset)

    @property
    def awaited(self) -> bool:
        """Somebody waits for the table."""
        return len(self._table_waiters) > 0

    @property
    def hidden(self) -> bool:
        """Readers do not see what is not in the table."""
        return self.topic.hidden

    def fail_waiters(self, error: Exception) -> None:
        self._table_waiters.fail(error)
        self._synced_waiters.fail(error)
        self._shown_waiters.fail(error)

    @property
    def far(self) -> bool:
        """Its head is here."""
        return False

    def bounds(self) -> Bounds:
        """Gives what everybody is told of the offsets."""
        now = self.offsets
        return Bounds(now.log_start, now.table, now.shown)

    def kept(self) -> Kept:
        segments, wal_bytes = self.head.unflushed()
        return Kept(self.head.start, self.head.resident_bytes, len(segments), wal_bytes)

    async def decided(self) -> Bounds:
        """Gives `bounds`: they are decided here."""
        return self.bounds()

    async def reaches(self, offset: int) -> bool:
        """Nobody reads the table before this log knows that it landed."""
        return False

    def sent(self, offset: int, end: int) -> Sequence[SentBatch]:
        """Batches as they were sent, contiguous from `offset`, below `end`; none where the head does not have them."""
        return self.head.sent(offset, end)

    async def read_head(
        self, offset: int, end: int, max_records: int, max_bytes: int, producers: bool = False
    ) -> list[pa.RecordBatch] | None:
        """RECORD_SCHEMA batches, contiguous from `offset`, below `end`; None when the head begins above `offset`.

        With `producers` PRODUCED_SCHEMA, and None also below the table offset: what the head keeps of that has none.
        """
        if offset < self.head.start or (producers and offset < self.offsets.table):
            return None
        chunks: list[tuple[Chunk, int, int]] = []
        nbytes = 0
        for chunk in self.head.between(offset, min(end, offset + max_records)):
            first = max(offset, chunk.first_offset)
            last = min(end, chunk.next_offset, offset + max_records)
            per_record = chunk.nbytes / (chunk.next_offset - chunk.first_offset)
            room = max(1 if not chunks else 0, int((max_bytes - nbytes) / per_record))
            last = min(last, first + room)
            if last <= first:
                break
            chunks.append((chunk, first, last))
            nbytes += int(per_record * (last - first))
            # Records of the next chunk may be small enough for the room that these were too large for.
            if nbytes >= max_bytes or last < chunk.next_offset:
                break
        if all(chunk.batch is not None for chunk, _, _ in chunks):
            return self._record_batches(chunks, producers)
        # Copies: while the thread reads, a flush may let go of a chunk's frames and an eviction of its batch.
        chunks = [(copy(chunk), first, last) for chunk, first, last in chunks]
        try:
            with self.held([chunk for chunk, _, _ in chunks]):
                return await asyncio.to_thread(self._record_batches, chunks, producers)
        except SegmentGone:
            # It was recycled, so by now the table has it.
            return None

    def _record_batches(self, chunks: list[tuple[Chunk, int, int]], producers: bool) -> list[pa.RecordBatch]:
        batches = [load(chunk, self._wal).slice(first, last) for chunk, first, last in chunks]
        columns = produced_columns if producers else record_columns
        return [columns(batch, self.partition) for batch in joined(batches)]

    @contextmanager
    def held(self, chunks: list[Chunk]) -> Iterator[None]:
        """Keeps the segments of the chunks from being recycled."""
        segments = {frame.segment for chunk in chunks for _, frame in chunk.frames}
        there = [segment for segment in segments if self._wal.hold(segment)]
        try:
            yield
        finally:
            for segment in there:
                self._wal.release(segment)

    def subscribe(self, callback: Callable[[], None]) -> None:
        self._subscribers.add(callback)

    def unsubscribe(self, callback: Callable[[], None]) -> None:
        self._subscribers.discard(callback)

    def notify(self) -> None:
        for callback in tuple(self._subscribers):
            callback()


def _batches_of(first_offset: int, pieces: list[Piece]) -> list[LogBatch]:
    batches: list[LogBatch] = []
    at = first_offset
    for small, group in groupby(pieces, lambda piece: isinstance(piece.records, Rows)):
        alike = list(group)
        if small:
            batches.append(_batch_of_rows(at, alike))
            at = batches[-1].next_offset
            continue
        for piece in alike:
            batches.append(LogBatch(at, piece.records, piece.nbytes, _runs([piece])))
            at += piece.rows
    return _joined(batches)


def _joined(batches: list[LogBatch]) -> list[LogBatch]:
    """Neighbours that are small together become one, so that one sync does not write a frame per request."""
    if len(batches) == 1:
        return batches
    out: list[LogBatch] = []
    for small, group in groupby(batches, lambda batch: batch.nbytes <= JOIN_BYTES_MAX):
        alike = list(group)
        out += [concat(alike)] if small else alike
    return out


def _batch_of_rows(first_offset: int, pieces: list[Piece]) -> LogBatch:
    rows = pieces[0].records if len(pieces) == 1 else _rows_of(pieces)
    assert isinstance(rows, Rows)
    nbytes, with_gaps = 0, False
    for piece in pieces:
        nbytes += piece.nbytes
        if piece.producer is not None and piece.producer.skipped:
            with_gaps = True
    columns = record_batch(
        fixed_array(array("q", rows.timestamps), TIMESTAMP),
        binary_array(rows.values),
        binary_array(rows.keys) if rows.keys.count(None) < len(rows.keys) else None,
        headers_array(rows.headers),
        pa.array(rows.sequences, pa.int64()) if with_gaps else None,
    )
    return LogBatch(first_offset, columns, nbytes, _runs(pieces))


def _rows_of(pieces: list[Piece]) -> Rows:
    rows = Rows([], [], [], [], [], [])
    for piece in pieces:
        assert isinstance(piece.records, Rows)
        rows.timestamps += piece.records.timestamps
        rows.keys += piece.records.keys
        rows.values += piece.records.values
        rows.headers += piece.records.headers
        rows.sequences += piece.records.sequences
    return rows


def _runs(pieces: list[Piece]) -> Runs:
    runs = [(piece.rows, _run(piece.producer)) for piece in pieces]
    return tuple(runs) if any(run for _, run in runs) else ()


def _run(producer: ProducerBatch | None) -> ProducerRun | None:
    if producer is None:
        return None
    first = None if producer.skipped else producer.first_sequence
    return ProducerRun(producer.producer_id, producer.producer_epoch, first)
