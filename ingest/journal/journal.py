"""The journal of this start of a node: it ships group commits to the object store and says when they have landed.

stage()              on the event loop; has an object written beside the sync of what it has (`staging.py`)
ship()               on the event loop; gathers, and decides when an object goes (`writer.py`)
  -> threads         make the object once, and put it until it is known what stands under its number
trim()               on the event loop, when something has come into a table (`pins.py`)
  -> a thread        deletes the objects that nobody needs, in rising order
"""

import asyncio
import uuid
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from threading import Event
from typing import NamedTuple

from siltlog.infra.clock import Clock
from siltlog.infra.errors import CorruptData, SiltlogError, problem
from siltlog.infra.store.store import ObjectStore, Put
from siltlog.infra.telemetry import Logger
from siltlog.ingest.journal.codec import Header, Object, decode_header, encode_groups, folder_of, journal_name, path_of
from siltlog.ingest.journal.pins import ClaimsStored, Partition, Pins, TableOffsets
from siltlog.ingest.journal.seal import Sealed
from siltlog.ingest.journal.staging import Stage, Staging, Written, written_of
from siltlog.ingest.journal.writer import (
    IN_FLIGHT_LOCAL_MAX,
    IN_FLIGHT_MAX,
    Foretold,
    Landing,
    Shipment,
    Writer,
    landing,
)
from siltlog.ingest.wal.codec import Frame

OPEN_ATTEMPTS_MAX = 5
RETRY_SECONDS_MIN = 0.05
RETRY_SECONDS_MAX = 2.0
BACKLOG_BYTES_MAX = 64 * 1024 * 1024
"""What has not landed is kept in memory: past so much, nothing more is taken in."""
TRIM_OBJECTS = 64
"""How many objects nobody may need before an empty one is put to tell of them, where no other comes that would."""


@dataclass(slots=True)
class Shipped:
    """One group commit's part that goes into the journal; `landed` is called on the event loop."""

    frames: Sequence[Frame]
    nbytes: int
    landed: Callable[[], None]


class _Landed(NamedTuple):
    landing: Landing
    number: int
    seconds: float


class Journal:
    """Used on the log's event loop. It is opened by the first topic that is shipped."""

    def __init__(
        self,
        store: ObjectStore,
        clock: Clock,
        logger: Logger,
        *,
        cluster_id: str,
        node_id: str,
        interval_ms: int,
        start: Callable[[], str],
        on_fatal: Callable[[BaseException], None],
        on_sealed: Callable[[], None],
        on_landed: Callable[[float], None],
        stage: Stage | None = None,
    ) -> None:
        """`start()` names the start of the node that a journal which is opened is of, never the same after its end.
        `on_sealed()` hears that another took over: nothing more may be acknowledged of what is shipped.
        `on_fatal(error)` ends the process: another writes this journal, too. `on_landed(seconds)` hears of each object.
        `stage` writes an object of `store` that is put later, where the store can do that: a disk of this machine.
        """
        self.store = store
        """Where this and all journals are."""
        self._clock = clock
        self._logger = logger
        self.cluster_id = cluster_id
        self._node_id = node_id
        self._interval_seconds = interval_ms / 1000
        self._start = start
        self._on_fatal = on_fatal
        self._on_sealed = on_sealed
        self._on_landed = on_landed
        self._loop = asyncio.get_running_loop()
        self._puts = ThreadPoolExecutor(IN_FLIGHT_MAX, "silt-journal")
        self._deletes = ThreadPoolExecutor(1, "silt-journal-trim")
        self._in_flight_max = IN_FLIGHT_MAX if stage is None else IN_FLIGHT_LOCAL_MAX
        self._staging = None if stage is None else Staging(stage, self._puts)
        self._stopping = Event()
        self._opening = asyncio.Lock()
        self._name: str | None = None
        self._writer: Writer[Shipped] | None = None
        self._pins = Pins()
        self._timer: asyncio.TimerHandle | None = None
        self._shipped = 0
        self._landed = 0
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()
        self._trimming = False
        self._told_of_stall = False
        self._reason = "another has written it"
        """Why the last attempt came to nothing."""
        self.backlog_bytes = 0
        """What was shipped and has not landed."""
        self.puts_total = 0
        self._oldest: deque[float] = deque()
        """When each group commit that has not landed was shipped."""

    @property
    def name(self) -> str:
        """The journal that is open."""
        assert self._name is not None, "open() first"
        return self._name

    @property
    def is_open(self) -> bool:
        return self._writer is not None

    @property
    def objects(self) -> int:
        """How many objects a successor would have to read."""
        return len(self._pins)

    @property
    def stalled_seconds(self) -> float:
        """How long the oldest group commit that has not landed has waited."""
        return self._clock.monotonic() - self._oldest[0] if self._oldest else 0.0

    async def open(self) -> str:
        """Its name, once its first object has landed: whoever takes over must find something to seal.

        After a seal it is another journal. Raises Unavailable.
        """
        async with self._opening:
            if self._writer is None:
                name = journal_name(self._node_id, self._start())
                await self._loop.run_in_executor(self._puts, self._put_first, name)
                self._name, self._writer, self._pins = name, Writer(self._interval_seconds, self._in_flight_max), Pins()
                self._shipped = self._landed = self.backlog_bytes = 0
                self._oldest.clear()
                self._logger.info("journal opened", journal=name)
        return self.name

    def _put_first(self, name: str) -> None:
        made = self._object(name, Shipment(0, 0, ()))
        for attempt in range(OPEN_ATTEMPTS_MAX):
            came = self._attempt(name, made)
            if came is Landing.LANDED:
                return
            self._clock.sleep(RETRY_SECONDS_MIN * 2**attempt)
        raise problem("topic_unavailable", f"the journal {folder_of(name)} cannot be begun: {self._reason}")

    def stage(self, frames: Sequence[Frame]) -> None:
        """Begins to write the object of a group commit that the WAL syncs now. `ship` puts it, if it still is that."""
        foretold = None if self._writer is None else self._writer.foretold()
        if self._staging is not None and frames and foretold is not None:
            shipment = Shipment(*foretold, (Shipped(frames, 0, _nothing),))
            self._staging.begin(self.name, foretold, frames, partial(self._object, self.name, shipment))

    def ship(self, shipped: Shipped) -> None:
        """Takes what is synced in the WAL; in the order of calls. Nothing, once another has sealed the journal."""
        if self._writer is None:
            return
        self._shipped += 1
        self.backlog_bytes += shipped.nbytes
        self._oldest.append(self._clock.monotonic())
        self._writer.add(shipped, shipped.nbytes)
        self._pump()

    def all_landed(self) -> "asyncio.Future[None] | None":
        """Done once all that was shipped so far has landed; None when it has."""
        if self._landed == self._shipped:
            return None
        future = self._loop.create_future()
        self._waiting.append((self._shipped, future))
        return future

    @property
    def is_full(self) -> bool:
        """Whether too much has not landed."""
        return self.backlog_bytes > BACKLOG_BYTES_MAX

    def check_room(self) -> None:
        """Raises Unavailable while it is full."""
        if self.is_full:
            raise problem(
                "overloaded",
                f"{self.backlog_bytes} bytes wait to reach the object store, the oldest for "
                f"{self.stalled_seconds:.1f} s; publish more slowly, or see why the store is slow",
            )

    def _pump(self) -> None:
        writer = self._writer
        if writer is None:
            return
        now = self._clock.monotonic()
        while (shipment := writer.take(now)) is not None:
            self._pins.add(shipment.number, (frame for group in shipment.groups for frame in group.frames))
            self.puts_total += 1
            frames = shipment.groups[0].frames if len(shipment.groups) == 1 else ()
            foretold = Foretold(shipment.number, shipment.first)
            made = None if self._staging is None else self._staging.taken(self.name, foretold, frames)
            put = self._loop.run_in_executor(self._puts, self._put, self.name, shipment, made)
            put.add_done_callback(lambda put: self._answered(writer, put))
        due_at = writer.due_at()
        if due_at is not None and self._timer is None:
            self._timer = self._loop.call_later(max(due_at - now, 0.0), self._due)

    def _due(self) -> None:
        self._timer = None
        self._pump()

    def _put(self, name: str, shipment: Shipment[Shipped], staged: "Future[Written] | None") -> _Landed:
        """Runs on a thread: puts one object, always the same, until it is known what came of it."""
        began = self._clock.monotonic()
        written = None if staged is None else written_of(staged)
        made = self._object(name, shipment) if written is None else written.made
        came = self._attempt(name, made, None if written is None else written.staged.put)
        pause = RETRY_SECONDS_MIN
        while came is Landing.AGAIN and not self._stopping.is_set():
            self._clock.sleep(pause)
            pause = min(2 * pause, RETRY_SECONDS_MAX)
            came = self._attempt(name, made)
        return _Landed(came, shipment.number, self._clock.monotonic() - began)

    def _object(self, name: str, shipment: Shipment[Shipped]) -> Object:
        return encode_groups(
            [group.frames for group in shipment.groups if group.frames],
            cluster_id=self.cluster_id,
            journal=name,
            number=shipment.number,
            first=shipment.first,
            nonce=uuid.uuid4().bytes,
        )

    def _attempt(self, name: str, made: Object, staged: Callable[[], Put] | None = None) -> Landing:
        number = made.header.number
        path = path_of(name, number)
        found: Header | None = None
        try:
            put = self.store.put_if_absent(path, made.data) if staged is None else staged()
            if put is not Put.WRITTEN:
                found = decode_header(self.store.get(path), cluster_id=self.cluster_id, journal=name, number=number)
        except FileNotFoundError:
            found = None
        except CorruptData:
            return Landing.FOREIGN
        except SiltlogError as error:
            self._reason = error.detail
            if not self._told_of_stall:
                self._told_of_stall = True
                self._logger.warning("the journal does not reach the object store", object=path, reason=error.detail)
            return Landing.AGAIN
        return landing(made.header, put, found)

    def _answered(self, writer: Writer[Shipped], put: "asyncio.Future[_Landed]") -> None:
        if put.cancelled() or writer is not self._writer or self._stopping.is_set():
            return
        error = put.exception()
        if error is not None:
            self._on_fatal(error)
            return
        came = put.result()
        if came.landing is Landing.LANDED:
            self._on_landed(came.seconds)
            self._took(writer.landed_one(came.number))
            self._pump()
        elif came.landing is Landing.SEALED:
            self._met_seal(came.number)
        elif came.landing is Landing.FOREIGN:
            path = path_of(self.name, came.number)
            self._on_fatal(problem("corrupt_data", f"another process writes this journal too: {path} is not ours"))

    def _took(self, landed: Sequence[Shipment[Shipped]]) -> None:
        if landed and self._told_of_stall:
            self._told_of_stall = False
            self._logger.info("the journal reaches the object store again")
        for shipment in landed:
            for group in shipment.groups:
                self._landed += 1
                self.backlog_bytes -= group.nbytes
                self._oldest.popleft()
                group.landed()
        while self._waiting and self._waiting[0][0] <= self._landed:
            future = self._waiting.popleft()[1]
            if not future.done():
                future.set_result(None)

    def _met_seal(self, number: int) -> None:
        self._logger.warning("the journal was sealed: another took over", journal=self.name, number=number)
        self.end()

    def end(self) -> None:
        """Ends the journal that is open: nothing of it that has not landed is acknowledged. Another may be opened."""
        if self._writer is None:
            return
        self._writer.met_seal()
        self._writer = None
        self._landed = self._shipped
        self.backlog_bytes = 0
        self._oldest.clear()
        self._on_sealed()
        waiting, self._waiting = self._waiting, deque()
        for _, future in waiting:
            if not future.done():
                future.set_exception(
                    problem("ack_timeout", "another node took over before this was in the object store; it may be lost")
                )

    @property
    def next_number(self) -> int:
        """The number of the object that comes next; 0 where no journal is open."""
        return 0 if self._writer is None else self._writer.next_number

    def has_below(self, number: int) -> bool:
        """Whether the journal that is open still has an object below `number`."""
        return self._writer is not None and self._writer.has_below(number)

    def trim(self, table_offset: TableOffsets, claims_stored: ClaimsStored, *, objects_min: int = TRIM_OBJECTS) -> None:
        """Lets objects go whose records are in tables and whose claims are beside them.

        Where nothing is shipped an object without records says so, once `objects_min` may go.
        """
        writer = self._writer
        if writer is None:
            return
        writer.flushed_below(self._pins.flushed_below(writer.next_number, table_offset, claims_stored))
        if writer.idle and writer.first - writer.first_told >= objects_min:
            self.ship(Shipped((), 0, _nothing))
        if writer.deletable() and not self._trimming:
            self._trimming = True
            trimmed = self._loop.run_in_executor(self._deletes, self._delete, self.name, list(writer.deletable()))
            trimmed.add_done_callback(lambda done: self._trimmed(writer, done))

    def _delete(self, name: str, numbers: Sequence[int]) -> int:
        """Runs on a thread: how many of `numbers` are gone."""
        for done, number in enumerate(numbers):
            if self._stopping.is_set():
                return done
            try:
                self.store.delete(path_of(name, number))
            except SiltlogError:
                return done
        return len(numbers)

    def _trimmed(self, writer: Writer[Shipped], done: "asyncio.Future[int]") -> None:
        self._trimming = False
        if done.cancelled() or done.exception() is not None or writer is not self._writer:
            return
        for number in list(writer.deletable())[: done.result()]:
            writer.deleted(number)

    async def so_far(self) -> Sealed:
        """What has landed of the journal that is open, to be read as one that has ended."""
        landed = self.all_landed()
        if landed is not None:
            await landed
        assert self._writer is not None
        return Sealed(self.name, self._writer.first, self._writer.landed)

    def pressing(self, table_offset: TableOffsets) -> set[Partition]:
        """The partitions to be flushed first, so that a successor need not read too much."""
        return self._pins.pressing(table_offset)

    def close(self) -> None:
        """Stops the threads; what has not landed is left alone."""
        self._stopping.set()
        if self._timer is not None:
            self._timer.cancel()
        self._puts.shutdown(wait=False, cancel_futures=True)
        self._deletes.shutdown(wait=False, cancel_futures=True)


def _nothing() -> None:
    """Does nothing: nobody waits for an empty object."""
