"""Gathers what many requests append while one sync runs, and gives it to the WAL as one entry.

Lives on the event loop. One group is under way at a time; the next gathers meanwhile, and small requests of it
become one frame per partition.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from siltlog.infra.clock import Clock
from siltlog.infra.errors import SiltlogError
from siltlog.infra.http.memory import Held, InFlight
from siltlog.ingest.journal.journal import Journal, Shipped
from siltlog.ingest.log.partition import PartitionLog
from siltlog.ingest.records.batch import LogBatch
from siltlog.ingest.wal import Frame, FrameKind, Location, Wal

if TYPE_CHECKING:
    from opentelemetry.trace import SpanContext

    from siltlog.infra.tracing.serving import Serving
    from siltlog.ingest.log.topic import TopicLog

CONTROL_TOPIC = bytes(16)


class Times(NamedTuple):
    """How long a group commit took, in seconds."""

    waited: float
    """Since its oldest request came."""
    committed: float
    """Since it went to the WAL."""


@dataclass(slots=True)
class Group:
    held: Held
    partitions: dict[PartitionLog, None] = field(default_factory=dict)
    controls: list[bytes] = field(default_factory=list)
    shipped_controls: list[Frame] = field(default_factory=list)
    """The frames of `controls` that go into the journal too, each under its topic."""
    done: list[asyncio.Future[None]] = field(default_factory=list)
    written: list[asyncio.Future[None]] = field(default_factory=list)
    """Done before the sync, for those that do not wait for it."""
    nbytes: int = 0
    reserved: int = 0
    since_seconds: float = 0.0
    """When the oldest request came that waits for it."""
    batches: list[tuple[PartitionLog, LogBatch]] = field(default_factory=list)
    frames: list[Frame] = field(default_factory=list)
    spans: "list[SpanContext]" = field(default_factory=list)
    """Some of the requests that are traced."""


class GroupCommit:
    def __init__(
        self,
        wal: Wal,
        clock: Clock,
        group_bytes_max: int,
        on_group: Callable[[Sequence[PartitionLog], int, Times], None],
        in_flight: InFlight,
        journal: Journal,
        serving: "Serving | None" = None,
    ) -> None:
        """A group that has `group_bytes_max` goes as it is; `on_group(partitions, bytes, times)` hears
        of every one that became durable. What it has of topics that are journaled is shipped then. Each is a span,
        linked to those of its requests, where `serving` traces them."""
        self._wal = wal
        self._group_bytes_max = group_bytes_max
        self._clock = clock
        self._on_group = on_group
        self._in_flight = in_flight
        self._journal = journal
        self._serving = serving
        self._loop = asyncio.get_running_loop()
        self._open = Group(in_flight.hold())
        self._sealed: deque[Group] = deque()
        self._under_way: Group | None = None
        self._scheduled = False
        self._started_seconds = 0.0

    def add(self, partition: PartitionLog, nbytes: int) -> None:
        """Says that `partition` has pending records of about `nbytes`."""
        self._open.partitions[partition] = None
        self._open.nbytes += nbytes
        self._open.held.add(nbytes)

    def add_control(self, payload: bytes) -> None:
        """Adds an entry for the recovery to read: a claim, a flush."""
        self._open.controls.append(payload)

    def add_shipped_control(self, topic: "TopicLog", payload: bytes) -> None:
        """Adds an entry that who takes the topic over must read, too."""
        self._open.controls.append(payload)
        if topic.journaled:
            frame = Frame(FrameKind.CONTROL, topic.id_bytes, 0, topic.epochs[-1], 0, 0, payload)
            self._open.shipped_controls.append(frame)

    def commit(self, reserved: int = 0) -> "asyncio.Future[None]":
        """Done once everything added so far is durable; many calls share one sync.

        `reserved` bytes of the WAL's budget are given back when the group is submitted: it counts as used from there.
        """
        group = self._open
        group.reserved += reserved
        if not group.done:
            group.since_seconds = self._clock.monotonic()
        if self._serving is not None:
            self._serving.join(group.spans)
        future = self._loop.create_future()
        group.done.append(future)
        if group.nbytes >= self._group_bytes_max:
            self._seal()
        if self._under_way is None and not self._scheduled:
            # Not at once: the requests that this turn of the loop still brings come into the same group.
            self._scheduled = True
            self._loop.call_soon(self._submit)
        return future

    def written(self) -> "asyncio.Future[None]":
        """Done once the operating system has everything added so far, which then survives the end of the process, not
        that of the machine. Only asks: what sends it there is the `commit` that follows."""
        future = self._loop.create_future()
        self._open.written.append(future)
        return future

    def _seal(self) -> None:
        group, self._open = self._open, Group(self._in_flight.hold())
        for topic in {partition.topic: None for partition in group.partitions}:
            topic.move_sticky()
        for partition in group.partitions:
            for batch in partition.take_pending():
                group.batches.append((partition, batch))
                group.frames.append(partition.frame(batch))
        # After the records, so that the frames of batches keep their places.
        group.frames += [Frame(FrameKind.CONTROL, CONTROL_TOPIC, 0, 0, 0, 0, payload) for payload in group.controls]
        self._sealed.append(group)

    def _submit(self) -> None:
        self._scheduled = False
        if self._under_way is not None:
            return
        try:
            self._submit_next()
        except SiltlogError:
            # The log has ended already, and the process with it: nobody is answered.
            return
        except Exception as error:
            # Offsets are given out and cannot be taken back: going on would leave a hole in the log.
            self._wal.fail(error)
            raise

    def _submit_next(self) -> None:
        if not self._sealed:
            if not self._open.done:
                return
            self._seal()
        group = self._under_way = self._sealed.popleft()
        self._started_seconds = self._clock.monotonic()
        for partition, batch in group.batches:
            partition.submitted(batch.next_offset)
        if group.frames:
            if self._journal.is_open:
                self._journal.stage(_shipped(group)[0])
            self._wal.submit(group.frames, self._on_durable, self._on_written if group.written else None)
        else:
            self._loop.call_soon(self._durable, [])
        if group.reserved:
            self._wal.unreserve(group.reserved)

    def _on_written(self) -> None:
        """Runs on the WAL's thread."""
        self._loop.call_soon_threadsafe(self._written)

    def _written(self) -> None:
        group = self._under_way
        assert group is not None, "what is written is synced later"
        _finish(group.written)

    def _on_durable(self, locations: list[Location]) -> None:
        """Runs on the WAL's thread."""
        self._loop.call_soon_threadsafe(self._durable, locations)

    def _durable(self, locations: list[Location]) -> None:
        group, self._under_way = self._under_way, None
        assert group is not None
        now = self._clock.monotonic()
        group.held.release()
        # In this order: the high watermark moves, waiting fetches wake, the acks go out.
        for (partition, batch), frame in zip(group.batches, locations, strict=False):
            partition.synced(batch, frame, now)
        if self._journal.is_open:
            self._ship(group)
        if group.written:
            # Had the group no frames, nobody has told them.
            _finish(group.written)
        _finish(group.done)
        times = Times(now - group.since_seconds, now - self._started_seconds)
        self._on_group([partition for partition, _ in group.batches], group.nbytes, times)
        if group.spans and self._serving is not None:
            self._serving.committed(group.spans, times.committed, group.nbytes)
        self._submit()

    def _ship(self, group: Group) -> None:
        """Sends on what is synced; what was another's by then has met its seal, or will."""
        frames, ends = _shipped(group)
        if frames:
            nbytes = sum(frame.payload_bytes for frame in frames)
            self._journal.ship(Shipped(frames, nbytes, partial(_landed, ends)))


def _finish(futures: Sequence["asyncio.Future[None]"]) -> None:
    for future in futures:
        if not future.done():
            future.set_result(None)


def _shipped(group: Group) -> tuple[list[Frame], list[tuple[PartitionLog, int]]]:
    """What of a group goes into the journal now, and up to where that has its partitions."""
    ends: list[tuple[PartitionLog, int]] = []
    frames: list[Frame] = []
    for (partition, batch), frame in zip(group.batches, group.frames, strict=False):
        if partition.topic.journaled and not partition.topic.availability.lasting:
            frames.append(frame)
            ends.append((partition, batch.next_offset))
    return frames + group.shipped_controls, ends


def _landed(ends: Sequence[tuple[PartitionLog, int]]) -> None:
    for partition, end in ends:
        partition.landed(end)
