"""`_audit`: who changed what and whom it was refused, as a chain of sealed records that this data directory writes."""

import asyncio
import contextlib
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec

from siltlog.consumers.reading.fetch import Fetcher
from siltlog.consumers.reading.view import LogView, SystemLog
from siltlog.infra import names, producer_names
from siltlog.infra.clock import Clock, format_us
from siltlog.infra.errors import ConfigError, OutcomeUnknown, SiltlogError, UnknownTopic, problem
from siltlog.infra.metrics.metrics import Metrics
from siltlog.infra.records import NewRecord
from siltlog.infra.redaction import redacted
from siltlog.infra.security.audit.chain import Anchor, Audited, Read, opened, sealed, start_of
from siltlog.infra.security.audit.denials import Denials
from siltlog.infra.security.audit.owed import Owed, OwedRecords
from siltlog.infra.security.audit.seen import SeenAnchor
from siltlog.infra.settings.topic_config import Value
from siltlog.infra.telemetry import Logger
from siltlog.server.topic_reading import stored_in

DAY_MS = 86_400_000
CONFIG: Mapping[str, Value] = {"acks": "wal", "retention.ms": 400 * DAY_MS, "flush.ms": 600_000}
BATCH_RECORDS_MAX = 1_000
"""Written by one sync, at most."""
QUEUE_RECORDS_MAX = 10_000
"""What waits to be written while it cannot be; what comes on top is only counted."""
BEGIN_SECONDS_MAX = 10.0
"""How long a change waits for its intent to be written before it is refused."""
END_SECONDS_MAX = 2.0
"""How long an answer waits for the record of how the change ended; it is written later all the same."""
DENIED_SECONDS = 10.0
"""Refusals that are alike are one record in this time."""
ANCHOR_SECONDS = 3_600.0
RETRY_SECONDS = 1.0
LOOK_RECORDS = 500
CHAIN_BYTES = 8


@dataclass(eq=False, slots=True)
class _Waiting:
    audited: Audited
    time_us: int
    written: "asyncio.Future[None]"
    may_be_refused: bool
    """It is the intent of a change that is not made where it cannot be written."""

    def owed(self) -> Owed:
        return Owed(self.time_us, self.audited)


@dataclass(slots=True)
class _Batch:
    """Records whose places in the chain are settled."""

    parts: list[_Waiting]
    records: list[NewRecord]
    sequences: list[int]
    last: Anchor
    may_be_there: bool = False
    """An append of it ended without an answer: it is appended again as it is, until there is one."""


class AuditLog:
    """Used on one event loop, by one writer: whatever arrives while it writes goes into its next sync together."""

    def __init__(
        self,
        log: LogView,
        fetcher: Fetcher,
        system: SystemLog,
        *,
        key: bytes,
        node_id: str,
        seen_file: Path,
        owed_file: Path,
        clock: Clock,
        logger: Logger,
        metrics: Metrics,
    ) -> None:
        """`key` seals the records; `seen_file` keeps the last of them, so that the chain goes on after a restart;
        `owed_file` what waits to be written."""
        self._log = log
        self._fetcher = fetcher
        self._system = system
        self._key = key
        self._node_id = node_id
        self._seen = SeenAnchor(seen_file)
        self._clock = clock
        self._logger = logger
        self._last: Anchor | None = None
        """The last record of the chain; None until it is known."""
        self._noted: Anchor | None = None
        """The last that was told in the server's log."""
        self._batch: _Batch | None = None
        self._owed_records = OwedRecords(owed_file)
        self._owed: list[_Waiting] = []
        """What waits and was done all the same, or is owed by the process before: kept on the disk."""
        self._owing = asyncio.Lock()
        self._queue: list[_Waiting] = []
        self._denials = Denials()
        self._metrics = metrics
        self._failing = ""
        """Why the last write failed; empty once one has not."""
        self._wake = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        self._tasks = [
            asyncio.create_task(self._write()),
            asyncio.create_task(self._record_denials()),
            asyncio.create_task(self._note_anchors()),
        ]

    async def finish(self) -> None:
        """Writes what there is still to say; the drain has ended all requests."""
        self._take_denials()
        try:
            await asyncio.wait_for(self._idle.wait(), END_SECONDS_MAX)
        except TimeoutError:
            waiting = [*(self._batch.parts if self._batch else ()), *self._queue]
            self._owed += [part for part in waiting if not part.may_be_refused and part not in self._owed]
            await self._keep_owed()
        self._note_anchor()

    def stop(self) -> None:
        for task in self._tasks:
            task.cancel()

    @property
    def anchor(self) -> Anchor | None:
        """The last record that this node wrote; None until it is known."""
        return self._last

    @property
    def unwritten(self) -> int:
        """How many records wait to be written."""
        return len(self._queue) + (len(self._batch.parts) if self._batch else 0)

    async def begin(self, intent: Audited) -> None:
        """Returns once it is durable that a change is about to be made.

        Raises Unavailable `audit_unavailable`: the change must not be made.
        """
        waiting = self._put(intent, may_be_refused=True)
        if waiting is None:
            raise _unavailable("too much waits to be recorded")
        try:
            await asyncio.wait_for(asyncio.shield(waiting.written), BEGIN_SECONDS_MAX)
        except TimeoutError:
            self._metrics.audit_failures += 1
            waiting.written.cancel()
            if waiting in self._queue:
                self._queue.remove(waiting)
            else:
                self._put(_given_up(intent))
            raise _unavailable(f"that was not done within {BEGIN_SECONDS_MAX:g} s") from None

    async def owe(self, intent: Audited, seconds_max: float) -> None:
        """Records the intent of a change that is made all the same, as soon as may be."""
        await self._owe(self._put(intent), seconds_max)

    async def end(self, ended: Audited) -> None:
        """Records how a change ended. Never raises: what was done is done, and is recorded as soon as may be."""
        await self._owe(self._put(ended), END_SECONDS_MAX)

    async def _owe(self, waiting: _Waiting | None, seconds_max: float) -> None:
        """Waits for a record to be written; what is not by then is kept on the disk until it is."""
        if waiting is None:
            return
        await asyncio.wait([waiting.written], timeout=seconds_max)
        if not waiting.written.done():
            self._owed.append(waiting)
            await self._keep_owed()

    async def _keep_owed(self) -> None:
        async with self._owing:
            self._owed = [waiting for waiting in self._owed if not waiting.written.done()]
            try:
                await asyncio.to_thread(self._owed_records.keep, [waiting.owed() for waiting in self._owed])
            except (ConfigError, OSError) as error:
                self._metrics.audit_failures += 1
                self._logger.error("what the audit log is owed cannot be kept", reason=str(error))

    def note(self, audited: Audited) -> None:
        """Records what nobody waits for."""
        self._put(audited)

    def denied(self, denied: Audited, reason: str) -> None:
        """Counts what was refused for who sent it; the log gets one record for many."""
        self._metrics.denied[reason] = self._metrics.denied.get(reason, 0) + 1
        self._denials.count(denied)

    def came(self, audited: Audited) -> None:
        """Counts a login, or the end of one, in the same way."""
        self._denials.count(audited)

    def _put(self, audited: Audited, *, may_be_refused: bool = False) -> _Waiting | None:
        if len(self._queue) >= QUEUE_RECORDS_MAX:
            self._metrics.audit_failures += 1
            return None
        # A key that somebody put where a name belongs is not kept for as long as the log is.
        told, request_id = redacted(audited.resource), redacted(audited.request_id)
        detail = redacted(audited.detail) if audited.detail else ""
        if (told, request_id, detail) != (audited.resource, audited.request_id, audited.detail):
            audited = msgspec.structs.replace(audited, resource=told, request_id=request_id, detail=detail)
        waiting = _waiting(audited, self._clock.now_us(), may_be_refused)
        self._queue.append(waiting)
        self._idle.clear()
        self._wake.set()
        return waiting

    # What runs by itself.

    async def _record_denials(self) -> None:
        while True:
            await asyncio.sleep(DENIED_SECONDS)
            self._take_denials()

    def _take_denials(self) -> None:
        for denied in self._denials.take():
            self._put(denied)

    async def _note_anchors(self) -> None:
        while True:
            await asyncio.sleep(ANCHOR_SECONDS)
            self._note_anchor()

    def _note_anchor(self) -> None:
        if self._last is not None and self._last.mac and self._last != self._noted:
            self._noted = self._last
            self._logger.info("anchor of the audit log", anchor=self._last.text())

    async def _write(self) -> None:
        while True:
            try:
                if self._last is None:
                    await self._go_on()
                await self._write_queued()
                self._idle.set()
                await self._wake.wait()
                self._wake.clear()
            except (SiltlogError, OSError) as error:
                self._failed(error)
                if self._owed:
                    await self._keep_owed()
                await asyncio.sleep(RETRY_SECONDS)

    async def _write_queued(self) -> None:
        while self._batch is not None or self._queue:
            batch = self._batch = self._batch or self._next_batch()
            await self._system.ensure(names.AUDIT_TOPIC, 1, CONFIG)
            await self._system.append(
                names.AUDIT_TOPIC,
                0,
                batch.records,
                producer_id=producer_names.audit_producer(batch.last.chain),
                sequences=batch.sequences,
            )
            self._batch, self._last, self._failing = None, batch.last, ""
            for part in batch.parts:
                if not part.written.done():
                    part.written.set_result(None)
            if self._owed:
                # Before the place in the chain is: what is in the log from there on is found by the next start.
                await self._keep_owed()
            await asyncio.to_thread(self._seen.keep, batch.last)

    def _next_batch(self) -> _Batch:
        assert self._last is not None
        parts, self._queue = self._queue[:BATCH_RECORDS_MAX], self._queue[BATCH_RECORDS_MAX:]
        last, records, sequences = self._last, [], []
        for part in parts:
            time = format_us(part.time_us)
            value, last = sealed(part.audited, last, time=time, node=self._node_id, key=self._key)
            records.append(NewRecord(None, value, (), part.time_us))
            sequences.append(last.seq)
        return _Batch(parts, records, sequences, last)

    def _failed(self, error: Exception) -> None:
        """Refuses the changes that wait. What has happened already is written later."""
        self._metrics.audit_failures += 1
        if str(error) != self._failing:
            self._failing = str(error)
            self._logger.error("the audit log cannot be written; changes are refused", reason=self._failing)
        batch, waiting = self._batch, self._queue
        if batch is not None:
            batch.may_be_there |= isinstance(error, OutcomeUnknown)
            if not batch.may_be_there:
                self._batch, waiting = None, batch.parts + waiting
        self._queue = [part for part in waiting if not part.may_be_refused]
        refused = [part for part in waiting if part.may_be_refused]
        if self._batch is not None:
            unknown = [part for part in self._batch.parts if part.may_be_refused and not part.written.done()]
            refused += unknown
            self._queue += [_waiting(_given_up(part.audited), self._clock.now_us()) for part in unknown]
        for part in refused:
            if not part.written.done():
                part.written.set_exception(_unavailable(str(error)))

    # Where the chain goes on.

    async def _go_on(self) -> None:
        """Finds the last record of this chain: the one that was kept, or those that came after it before a crash."""
        seen = await asyncio.to_thread(self._seen.read)
        if seen is None:
            seen = start_of(secrets.token_hex(CHAIN_BYTES))
            # Kept before anything is written: else a crash would leave a chain that nobody goes on with.
            await asyncio.to_thread(self._seen.keep, seen)
        found = await self._of_chain(seen)
        await self._take_owed(found.values())
        last = await self._followed(seen, found)
        if last.seq > seen.seq:
            await asyncio.to_thread(self._seen.keep, last)
        self._last = last

    async def _take_owed(self, written: Iterable[Read]) -> None:
        """Has what the process before still owed be written first, but for what it wrote just before it ended."""
        known = {(read.record.time, read.record.audited()) for read in written}
        async with self._owing:
            owed = [
                _waiting(each.audited, each.time_us)
                for each in await asyncio.to_thread(self._owed_records.take)
                if (format_us(each.time_us), each.audited) not in known
            ]
            # Beside what has come since: the log may have been away from the start.
            self._owed = owed + self._owed
            self._queue = owed + self._queue
            # What is in the log is found there only until the kept place in the chain is behind it.
            await asyncio.to_thread(self._owed_records.keep, [waiting.owed() for waiting in self._owed])

    async def _followed(self, seen: Anchor, found: Mapping[int, Read]) -> Anchor:
        macs = {seq: read.mac for seq, read in found.items()}
        if seen.seq and macs.get(seen.seq) != seen.mac:
            self._metrics.audit_failures += 1
            self._logger.error(
                "the audit log lacks what this node wrote, or has other records in its place: see "
                "`silt access log --verify`",
                chain=seen.chain,
                seq=seen.seq,
            )
        last = max(found, default=0)
        if names.AUDIT_TOPIC in {topic.name for topic in self._log.topics()}:
            # A record that was cut off is not forgotten as a duplicate: what follows it has a number of its own.
            published = await self._system.last_of(names.AUDIT_TOPIC, 0, producer_names.audit_producer(seen.chain))
            last = max(last, published[0] if published else 0)
        return seen if last <= seen.seq else Anchor(seen.chain, last, macs.get(last, seen.mac))

    async def _of_chain(self, seen: Anchor) -> dict[int, Read]:
        """The records of this chain from the one that was kept on, by their numbers."""
        found: dict[int, Read] = {}
        try:
            topic = self._log.topic(names.AUDIT_TOPIC)
        except UnknownTopic:
            return found
        bounds = topic.partitions[0].bounds()
        end = bounds.high_watermark
        while end > bounds.log_start_offset and (not found or min(found) > seen.seq):
            first = max(bounds.log_start_offset, end - LOOK_RECORDS)
            for record in await stored_in(self._fetcher, topic, first, end):
                with contextlib.suppress(ValueError):
                    read = opened(record.value or b"", self._key)
                    if read.record.chain == seen.chain and read.record.seq >= seen.seq:
                        found[read.record.seq] = read
            end = first
        return found


def _waiting(audited: Audited, time_us: int, may_be_refused: bool = False) -> _Waiting:
    return _Waiting(audited, time_us, asyncio.get_running_loop().create_future(), may_be_refused)


def _given_up(intent: Audited) -> Audited:
    """What is recorded of a change that was refused since nobody could say whether its intent is in the log."""
    return msgspec.structs.replace(intent, outcome="refused", status=503, detail="audit_unavailable")


def _unavailable(why: str) -> SiltlogError:
    return problem("audit_unavailable", f"changes are recorded before they are made, and now they cannot be: {why}")
