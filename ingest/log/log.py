"""The log of a node: its topics, appending to them, and the order of what must happen before an acknowledgement.

Lives on the event loop. Satisfies what readers need of a log (LogView).
"""

import asyncio
import uuid
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import TYPE_CHECKING

from siltlog.infra.arrow.partitioner import PlacedBy
from siltlog.infra.clock import Clock
from siltlog.infra.errors import SiltlogError, problem
from siltlog.infra.http.memory import InFlight
from siltlog.infra.settings.topic_config import Value
from siltlog.infra.store.store import ObjectStore
from siltlog.infra.table.snapshot import TableSnapshot
from siltlog.ingest.journal.journal import Journal
from siltlog.ingest.log import state as wal_state
from siltlog.ingest.log.admission import FRAME_OVERHEAD_BYTES, Admission
from siltlog.ingest.log.group_commit import GroupCommit, Times
from siltlog.ingest.log.head import CHUNK_OVERHEAD_BYTES
from siltlog.ingest.log.partition import PartitionLog, Piece
from siltlog.ingest.log.topic import TopicLog
from siltlog.ingest.log.topic_logs import TopicLogs
from siltlog.ingest.producers.check import Part, Producer
from siltlog.ingest.producers.idempotency import IdempotencyKey
from siltlog.ingest.producers.sequencer import Places, Sequencer
from siltlog.ingest.records.body import Body
from siltlog.ingest.records.split import Split
from siltlog.ingest.wal import Wal

if TYPE_CHECKING:
    from siltlog.infra.tracing.serving import Serving

LANDED_SECONDS_MAX = 30.0
"""How long it may take until something has landed that no request's own time bounds."""
HEAD_CHECKS_PER_BUDGET = 16
"""The head may go above its budget by this fraction of it."""


# Not frozen: that would be a good part of a small publish's time.
@dataclass(slots=True)
class PartitionAck:
    """`count` new records from `first_offset` on, or as many that were seen before."""

    partition: int
    first_offset: int | None
    count: int
    duplicate: bool
    places: tuple[tuple[int | None, int], ...] | None = None
    """(first offset, rows) of the partition's records in the request's order, where that is more than one run."""

    @property
    def last_offset(self) -> int | None:
        if self.places is not None:
            first, rows = self.places[-1]
        else:
            first, rows = self.first_offset, self.count
        return None if first is None else first + rows - 1

    def offsets(self) -> Iterator[int | None]:
        """Yields the offsets of the partition's records in the request's order."""
        for first, rows in self.places or ((self.first_offset, self.count),):
            yield from repeat(None, rows) if first is None else range(first, first + rows)


@dataclass(slots=True)
class Appended:
    """The result of `append`, and what to wait for before it may be acknowledged."""

    acks: list[PartitionAck]
    split: Split
    durable: "asyncio.Future[None]"
    ends: list[tuple[PartitionLog, int]]
    """Per partition the offset below which everything must be durable, or in the table, for this request."""
    written: "asyncio.Future[None] | None" = None
    """Done once the operating system has the records, where that was asked for."""

    @property
    def is_synced(self) -> bool:
        """Whether there is no sync left to wait for: that of another batch of the same request was the same."""
        return self.durable.done() and all(end <= log.offsets.synced for log, end in self.ends)

    def positions(self) -> list[tuple[int, int | None]]:
        """(partition, offset) of every record in the request's order; None for an offset not known any more."""
        if any(ack.places is not None for ack in self.acks):
            offsets = {ack.partition: ack.offsets() for ack in self.acks}
            return [(partition, next(offsets[partition])) for partition in self.split.partitions()]
        return self.split.positions({ack.partition: ack.first_offset for ack in self.acks})


class Log:
    def __init__(
        self,
        store: ObjectStore,
        wal: Wal,
        clock: Clock,
        topic_logs: TopicLogs,
        admission: Admission,
        *,
        server_config: dict[str, Value],
        group_bytes_max: int,
        head_bytes_max: int,
        on_group: Callable[[Times], None],
        in_flight: InFlight,
        journal: Journal,
        serving: "Serving | None" = None,
    ) -> None:
        """A group commit takes `group_bytes_max`, or one request that is larger; `on_group(times)` hears of each.

        `head_bytes_max` is what the newest records of all partitions may take in memory.
        """
        self.store = store
        self.wal = wal
        self.clock = clock
        self.aging = admission.aging
        self.topic_logs = topic_logs
        self.admission = admission
        self.journal = journal
        self.cluster_id = journal.cluster_id
        self.server_config = server_config
        """Settings of the server that stand in for a topic's own."""
        self.start_mark = str(uuid.uuid4()).encode()
        """Identifies this start of the server."""
        self.flush_due = asyncio.Event()
        """Set when something may be due for a flush before the next look."""
        self._head_bytes_max = head_bytes_max
        self._observe_group = on_group
        self._head_bytes_since_check = 0
        self.committed_bytes = 0
        """The bytes of all group commits of this start."""
        self.group_commit = GroupCommit(wal, clock, group_bytes_max, self._on_group, in_flight, journal, serving)

    def reconfigure(self, server_config: dict[str, Value], *, head_bytes_max: int) -> None:
        """Takes other settings that stand in for topics' own; what is due by them is looked for at once."""
        self._head_bytes_max = head_bytes_max
        if server_config != self.server_config:
            self.server_config = server_config
            for topic in self.topic_logs.all():
                topic.reconfigure(server_config)
        self._evict()
        self.flush_due.set()

    @property
    def draining(self) -> bool:
        return self.admission.draining.begun

    def topic(self, name: str) -> TopicLog:
        """Raises UnknownTopic."""
        return self.topic_logs.find(name)

    def topics(self) -> Sequence[TopicLog]:
        """Lists them sorted by name."""
        return self.topic_logs.all()

    @property
    def view(self) -> int:
        return 0

    def opening(self) -> Collection[str]:
        return ()

    def see_table(self, topic: TopicLog, snapshot: TableSnapshot) -> None:
        """Takes in what was committed to the topic's table, by this process or another. Raises Fenced when the table is
        no more this node's: whose offsets it has then is not to be asked of it."""
        topic.check_owned(snapshot)
        moved = topic.moved_by(snapshot)
        if moved:
            self.group_commit.add_control(wal_state.encode(wal_state.Flushed(topic.topic_id, snapshot.version, moved)))

    def append(
        self,
        topic: TopicLog,
        body: Body,
        publisher: Producer | IdempotencyKey | None,
        placed_by: PlacedBy | None = None,
        *,
        written: bool = False,
    ) -> Appended:
        """Checks the whole request, then sequences it; nothing is appended when anything of it is refused.

        `placed_by` is what a client that hashes keys itself went by; `written` asks for that future.
        """
        topic.check_open()
        parts, checks, reserved, producer_id = self.admission.checked(
            topic, body, publisher, placed_by, self.clock.now_us()
        )
        if reserved and not self.wal.reserve(reserved):
            raise self.admission.wal_full()
        acks: list[PartitionAck] = []
        ends: list[tuple[PartitionLog, int]] = []
        share = reserved // len(parts.slices)
        now_us = self.aging.now_us()
        for part in checks:
            log = topic.partitions[part.partition]
            new = part.new
            if new is None:
                ack, end = _seen_before(part, log.sequencer)
            else:
                sent = body.sent if new.count == body.count else None
                piece = Piece(new.count, new.records, body.nbytes * new.count // body.count, part.batch)
                first = log.add(piece, now_us, sent)
                self.group_commit.add(log, share)
                end = first + new.count
                places = ((None, part.seen), (first, new.count)) if part.seen else None
                ack = PartitionAck(part.partition, first, new.count, False, places)
            acks.append(ack)
            ends.append((log, end))
        if publisher is not None:
            self._note_producer(topic, publisher, producer_id, now_us)
        early = self.group_commit.written() if written else None
        return Appended(acks, parts, self.group_commit.commit(reserved), ends, early)

    def told_once(self, error: Exception) -> "asyncio.Future[None] | None":
        """Done once a refusal may be told; None when it may be now.

        One that says how far a producer came waits for a sync: who goes on from there goes on behind records that a
        crash must not take away.
        """
        says_so = isinstance(error, SiltlogError) and "next_sequence" in error.members
        return self.group_commit.commit() if says_so else None

    async def in_table(self, topic: TopicLog, seconds_max: float) -> None:
        """Returns once all that was sequenced is in the topic's table.

        Raises Unavailable `topic_unavailable` where that takes longer, and what fails those who wait for the table.
        """
        ends = [(log, log.sequencer.next_offset) for log in topic.partitions]
        try:
            async with asyncio.timeout(seconds_max):
                await self.group_commit.commit()
                waits = [wait for log, end in ends if (wait := log.when_in_table(end)) is not None]
                self.flush_due.set()
                await asyncio.gather(*waits)
        except TimeoutError:
            reason = topic.flush_error or "its flush takes long"
            raise problem(
                "topic_unavailable", f"the records of topic {topic.name} are not in its table yet: {reason}"
            ) from None

    def _note_producer(
        self, topic: TopicLog, publisher: Producer | IdempotencyKey, producer_id: str, now_us: int
    ) -> None:
        if isinstance(publisher, IdempotencyKey):
            topic.producers.keys.remember(producer_id, now_us)
        elif publisher.epoch > 0 and not publisher.restarts:
            topic.producers.epochs.use(producer_id, publisher.epoch, now_us)
        self.admission.bound_producers()

    async def claim_producer(self, topic: TopicLog, producer_id: str) -> int:
        """Takes the next epoch of a producer, durably; older ones are fenced from now on."""
        if self.draining:
            raise problem("shutting_down", "the server is shutting down; claim at another, or again in a moment")
        topic.check_open()
        now_us = self.aging.now_us()
        used = max(log.sequencer.epoch_of(producer_id) for log in topic.partitions)
        if not self.wal.reserve(FRAME_OVERHEAD_BYTES):
            raise self.admission.wal_full()
        epoch = topic.producers.epochs.claim(producer_id, used, now_us)
        if epoch is None:
            self.wal.unreserve(FRAME_OVERHEAD_BYTES)
            raise problem("invalid_request", f"producer {producer_id} has no epoch left; go on under a new id")
        topic.producers.epochs_changed()
        for log in topic.partitions:
            log.sequencer.touch(producer_id, now_us)
        self.admission.bound_producers()
        event = wal_state.ProducerClaimed(topic.topic_id, producer_id, epoch, now_us)
        self.group_commit.add_shipped_control(topic, wal_state.encode(event))
        await self.group_commit.commit(FRAME_OVERHEAD_BYTES)
        await self.landed(topic)
        return epoch

    async def landed(self, topic: TopicLog) -> None:
        """Returns once all of the topic that is synced by now has landed, where it is journaled.

        Raises OutcomeUnknown where the object store does not take it, or another took over.
        """
        if not topic.journaled:
            return
        if topic.availability.lasting:
            raise topic.gone()
        landed = self.journal.all_landed()
        if landed is not None:
            try:
                await asyncio.wait_for(landed, LANDED_SECONDS_MAX)
            except TimeoutError:
                raise problem(
                    "ack_timeout", f"topic {topic.name}: the object store does not take what was asked for; try again"
                ) from None

    def head_bytes(self) -> int:
        return sum(log.head.resident_bytes for log in self.topic_logs.partitions())

    def head_is_tight(self, unflushed_bytes: int) -> bool:
        """Tells whether what is in no table takes more than half of the head's memory, which is there for readers."""
        return unflushed_bytes > self._head_bytes_max / 2

    def _on_group(self, partitions: Sequence[PartitionLog], nbytes: int, times: Times) -> None:
        self._observe_group(times)
        self.committed_bytes += nbytes
        self._head_bytes_since_check += nbytes + CHUNK_OVERHEAD_BYTES * len(partitions)
        if self._head_bytes_since_check > self._head_bytes_max // HEAD_CHECKS_PER_BUDGET:
            self._head_bytes_since_check = 0
            self._evict()
        if any(log.head.unflushed_bytes >= log.topic.config.integer("flush.bytes") for log in partitions):
            self.flush_due.set()

    def _evict(self) -> None:
        """Brings the head back below its budget: the oldest of the partitions that hold the most goes first."""
        logs = list(self.topic_logs.partitions())
        excess = self.head_bytes() - self._head_bytes_max
        while excess > 0:
            largest = max(logs, key=lambda log: log.head.resident_bytes)
            freed = largest.head.evict(max(excess // 4, largest.head.resident_bytes // 4, 1))
            if freed == 0:
                return
            excess -= freed


def _seen_before(part: Part, sequencer: Sequencer) -> tuple[PartitionAck, int]:
    """The answer to a duplicate, and the offset below which its originals are."""
    assert part.duplicate is not None and part.batch is not None
    places: Places | None = part.duplicate.places
    if places is None:
        # Its originals are not remembered one by one, but lie before the last of what is.
        end = sequencer.end_of(part.batch.producer_id)
        assert end is not None
        return PartitionAck(part.partition, None, part.seen, True), end
    several = places if len(places) > 1 else None
    return PartitionAck(part.partition, places[0][0], part.seen, True, several), sum(places[-1])
