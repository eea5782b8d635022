"""What a topic's former owners shipped: their journals are ended and read before it is claimed.

In this order: the end of a journal is for good, and what its owner trims afterwards was in a table before that. What is
found goes into the WAL and the journal of this start before anything is appended.
"""

import asyncio
import uuid
from collections.abc import AsyncIterator, Collection, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from siltlog.infra.errors import SiltlogError, problem
from siltlog.infra.telemetry import Logger
from siltlog.ingest.journal.journal import Shipped
from siltlog.ingest.journal.reader import Kept, controls, frames_of, kept, read
from siltlog.ingest.journal.seal import Sealed, seal
from siltlog.ingest.log import state as wal_state
from siltlog.ingest.log.log import Log
from siltlog.ingest.log.topic import TopicLog
from siltlog.ingest.ownership.found import FoundFrame, replay_batch
from siltlog.ingest.producers.epochs import EpochState, KnownEpoch
from siltlog.ingest.records.batch import LogBatch
from siltlog.ingest.wal import Frame, FrameKind, Location

SUBMIT_BYTES = 256 * 1024
"""Recovered frames go into the WAL so many bytes at a time, or one that is larger."""

RETRY_SECONDS = 1.0


class Ended(NamedTuple):
    """A journal of the chain that has ended, and the epoch under which the topic's records in it were appended."""

    epoch: int
    journal: str
    frames: Mapping[bytes, Sequence[Frame]]
    """All frames that the journal has, by topic id."""


@dataclass(slots=True)
class _Reading:
    """A journal that is ended and read once for all topics that are taken at the same time."""

    frames: asyncio.Task[Mapping[bytes, Sequence[Frame]]]
    users: int = 0


class Shipping:
    """Used on the log's event loop."""

    def __init__(self, log: Log, logger: Logger) -> None:
        self._log = log
        self._logger = logger
        self._tasks: set[asyncio.Task[None]] = set()
        self._readings: dict[str, _Reading] = {}

    @asynccontextmanager
    async def ended(self, topic: TopicLog) -> AsyncIterator[list[Ended]]:
        """Ends the journals of the topic's chain, before it is claimed. Raises CorruptData, Unavailable.

        They are read at once, too: once a journal has ended, what is trimmed of it was in a table before.
        """
        snapshot = topic.table.snapshot
        owned = {snapshot.epochs[partition] for partition in range(snapshot.partitions)}
        chain = snapshot.journals
        if owned != {epoch for epoch, _ in chain[-1:]}:
            raise problem(
                "topic_unavailable",
                f"topic {topic.name} was taken under epochs {sorted(owned)}, and its table names no journal that has "
                "what was acknowledged under them",
                topic=topic.name,
            )
        used: list[str] = []
        try:
            ended = []
            for epoch, journal in chain:
                if self._log.journal.is_open and journal == self._log.journal.name:
                    # Nobody seals a journal that goes on.
                    frames = await asyncio.to_thread(self._read, await self._log.journal.so_far())
                else:
                    used.append(journal)
                    # Another topic may wait for it, too.
                    frames = await asyncio.shield(self._begin(journal))
                ended.append(Ended(epoch, journal, frames))
            yield ended
        finally:
            for journal in used:
                self._let_go(journal)

    @contextmanager
    def ending(self, journals: Collection[str]) -> Iterator[None]:
        """Has journals that are lost ended and read, while what else a claim needs is looked for."""
        for journal in journals:
            self._begin(journal)
        try:
            yield
        finally:
            for journal in journals:
                self._let_go(journal)

    def _begin(self, journal: str) -> asyncio.Task[Mapping[bytes, Sequence[Frame]]]:
        reading = self._readings.get(journal)
        if reading is None or (reading.frames.done() and reading.frames.exception() is not None):
            former = reading
            reading = _Reading(asyncio.create_task(asyncio.to_thread(self._end, journal)))
            # Whoever asks for it hears of a failure; there may be nobody.
            reading.frames.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
            reading.users = 0 if former is None else former.users
            self._readings[journal] = reading
        reading.users += 1
        return reading.frames

    def _let_go(self, journal: str) -> None:
        reading = self._readings[journal]
        reading.users -= 1
        if reading.users == 0:
            del self._readings[journal]

    def _end(self, journal: str) -> Mapping[bytes, Sequence[Frame]]:
        return self._read(seal(self._log.journal.store, self._log.cluster_id, journal, uuid.uuid4().bytes))

    def _read(self, sealed: Sealed) -> Mapping[bytes, Sequence[Frame]]:
        found: dict[bytes, list[Frame]] = {}
        for frame in frames_of(read(self._log.journal.store, self._log.cluster_id, sealed)):
            found.setdefault(frame.topic_id, []).append(frame)
        return found

    async def recover(self, topic: TopicLog, ended: Sequence[Ended]) -> dict[int, list[FoundFrame]]:
        """Takes in what the journals have beyond the table that the claim was made on, by partition.

        Raises CorruptData where something is missing; Unavailable.
        """
        frames = [
            frame
            for one in ended
            for frame in one.frames.get(topic.id_bytes, ())
            if frame.kind is FrameKind.CONTROL or frame.epoch == one.epoch
        ]
        self._know_claims(topic, controls(frames, topic.id_bytes))
        found: dict[int, list[FoundFrame]] = {}
        for partition in range(len(topic.partitions)):
            epochs, offset = [one.epoch for one in ended], topic.snapshot.offsets[partition]
            records = kept(frames, topic.name, topic.id_bytes, partition, epochs, offset)
            if records:
                found[partition] = await self._take_in(topic, partition, records)
        topic.producers.loaded((one.sequencer for one in topic.partitions), self._log.aging.now_us())
        topic.recovered()
        self._settle_later(topic)
        taken = {partition: new[-1].next_offset for partition, new in found.items()}
        self._logger.info(
            "took over what was shipped", topic=topic.name, journals=[one.journal for one in ended], next=taken
        )
        return found

    def _know_claims(self, topic: TopicLog, payloads: Sequence[bytes]) -> None:
        """Learns the claims that may not be beside the table yet; until they are, this start's journal has them."""
        now_us = self._log.aging.now_us()
        for payload in payloads:
            event = wal_state.decode_event(payload)
            if isinstance(event, wal_state.ProducerClaimed):
                known = {event.producer_id: KnownEpoch(event.epoch, event.now_us, event.epoch)}
                topic.producers.epochs.load(EpochState(0, known), now_us)
        if payloads:
            topic.producers.epochs_changed()
            frames = [Frame(FrameKind.CONTROL, topic.id_bytes, 0, 0, 0, 0, payload) for payload in payloads]
            self._log.journal.ship(Shipped(frames, sum(map(len, payloads)), _nothing))
            epochs = topic.producers.epochs.dump()
            self._log.group_commit.add_control(wal_state.encode(wal_state.Inherited(topic.topic_id, {}, epochs)))

    async def _take_in(self, topic: TopicLog, number: int, records: Sequence[Kept]) -> list[FoundFrame]:
        partition, now_us = topic.partitions[number], self._log.aging.now_us()
        batches = [
            LogBatch.from_payload(one.begin, one.payload).slice(one.first_offset, one.next_offset) for one in records
        ]
        for batch in batches:
            replay_batch(partition.sequencer, batch, now_us)
        partition.remembered(records[-1].next_offset, topic.snapshot.offsets[number])
        frames = [
            Frame(
                FrameKind.RECORDS,
                topic.id_bytes,
                number,
                topic.epochs[-1],
                batch.first_offset,
                batch.rows,
                batch.payload(),
            )
            for batch in batches
        ]
        locations = await self._into_wal(frames)
        self._log.journal.ship(Shipped(frames, sum(frame.payload_bytes for frame in frames), _nothing))
        return [
            FoundFrame(
                frame.first_offset,
                frame.first_offset + frame.count,
                frame.epoch,
                location,
                partial(self._log.wal.read, location),
            )
            for frame, location in zip(frames, locations, strict=True)
        ]

    async def _into_wal(self, frames: Sequence[Frame]) -> list[Location]:
        loop = asyncio.get_running_loop()
        locations: list[Location] = []
        at = 0
        while at < len(frames):
            end, nbytes = at + 1, frames[at].payload_bytes
            while end < len(frames) and nbytes + frames[end].payload_bytes <= SUBMIT_BYTES:
                nbytes += frames[end].payload_bytes
                end += 1
            written: asyncio.Future[list[Location]] = loop.create_future()

            def durable(places: list[Location], written: asyncio.Future[list[Location]] = written) -> None:
                loop.call_soon_threadsafe(written.set_result, places)

            self._log.wal.submit(frames[at:end], durable)
            locations += await written
            at = end
        return locations

    def _settle_later(self, topic: TopicLog) -> None:
        task = asyncio.create_task(self._settle(topic))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _settle(self, topic: TopicLog) -> None:
        """Cuts the chain once all that was taken in has landed: until then a successor needs the former journals."""
        own = [(topic.epochs[-1], self._log.journal.name)]
        told = ""
        while not topic.settled and not topic.availability.lasting:
            try:
                await self._log.landed(topic)
                async with topic.table_lock:
                    await self._cut(topic, own)
            except SiltlogError as error:
                # Until then who takes it over reads more journals than it needs to.
                if error.detail != told:
                    self._logger.warning("a topic's chain is not cut yet", topic=topic.name, reason=error.detail)
                told = error.detail
                await asyncio.sleep(RETRY_SECONDS)

    async def _cut(self, topic: TopicLog, chain: Sequence[tuple[int, str]]) -> None:
        if topic.availability.lasting:
            return
        epochs = {one.partition: topic.epochs[-1] for one in topic.partitions}
        topic.see(await asyncio.to_thread(topic.table.mark, epochs, {}, str(uuid.uuid4()), journals=chain))
        topic.chain_cut()


def _nothing() -> None:
    """What is taken over was durable before: nobody waits for it."""
