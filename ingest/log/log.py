"""The log of a node: its topics, appending to them, and the order of what must happen before an acknowledgement.

Lives on the event loop. Satisfies what readers need of a log (LogView).
"""

import asyncio
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import repeat

import numpy as np

from siltlog.infra import names
from siltlog.infra.clock import Clock
from siltlog.infra.errors import SiltlogError, problem
from siltlog.infra.http.drain_rate import DrainRate
from siltlog.infra.http.memory import InFlight
from siltlog.infra.limits import too_large
from siltlog.infra.settings.topic_config import TopicConfig, Value
from siltlog.infra.store.store import ObjectStore
from siltlog.infra.table.snapshot import TableSnapshot
from siltlog.ingest.log import state as wal_state
from siltlog.ingest.log.group_commit import GroupCommit
from siltlog.ingest.log.head import CHUNK_OVERHEAD_BYTES
from siltlog.ingest.log.partition import PartitionLog, Piece
from siltlog.ingest.log.topic import TopicLog
from siltlog.ingest.producers.check import Part, Producer, checked, checked_keyed, refuse_sequences
from siltlog.ingest.producers.idempotency import IdempotencyKey
from siltlog.ingest.producers.known import TopicProducers
from siltlog.ingest.producers.sequencer import Places, Sequencer, StateBytes
from siltlog.ingest.records.body import Body
from siltlog.ingest.records.split import Split, split
from siltlog.ingest.wal import Wal

FRAME_OVERHEAD_BYTES = 1024
"""Reserved per partition of a request beside its records: a frame's header, its Arrow metadata, padding."""
RECORD_OVERHEAD_BYTES = 24
"""Reserved per record beside its bytes: its timestamp, its ends in the columns, their validity."""
SEQUENCE_OVERHEAD_BYTES = 8
"""And for a sequence, where those of a producer have gaps."""
_BY_ANOTHER_COUNT = frozenset(("unknown_partition", "unknown_producer", "out_of_order_sequence"))
"""Refusals of a request that was placed, or follows one that was placed, by another partition count."""
SYSTEM_RECORD_BYTES_EXTRA = 64 * 1024
"""A record of a system topic may be so much larger: a dead letter is a user's record and what is said about it."""
WAL_FULL_RETRY_MS = 1_000
DEGRADED_MAX = 20
KEYS_FULL_RETRY_MS = 10_000
PRODUCERS_STATE_PART = 1 / 4
KEYS_STATE_PART = 2 / 3
"""The part of the WAL's state that producers may take, and the part that idempotency keys may take."""
WAL_HOLDS_FREE_PARTS = 3
"""The log holds much once what is used is more than such a part of what is free."""
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


_Checked = tuple[Split, list[Part], int, str]
"""A request that may be appended: by partition, what becomes of each part, the bytes of the WAL that takes, as whom."""


@dataclass(slots=True)
class Appended:
    """The result of `append`, and what to wait for before it may be acknowledged."""

    acks: list[PartitionAck]
    split: Split
    durable: "asyncio.Future[None]"
    ends: list[tuple[PartitionLog, int]]
    """Per partition the offset below which everything must be durable, or in the table, for this request."""

    def positions(self) -> list[tuple[int, int | None]]:
        """(partition, offset) of every record in the request's order; None for an offset not known any more."""
        if any(ack.places is not None for ack in self.acks):
            offsets = {ack.partition: ack.offsets() for ack in self.acks}
            targets = np.asarray(self.split.partition_of_record).tolist()
            return [(partition, next(offsets[partition])) for partition in targets]
        return self.split.positions({ack.partition: ack.first_offset for ack in self.acks})


class _Blank:
    """A partition nobody published to."""

    def __init__(self) -> None:
        self.sequencer = Sequencer()


class Unmade:
    """A topic that is not there yet, as a publish would find it."""

    system = False

    def __init__(self, name: str, partitions: int, config: TopicConfig) -> None:
        self.name = name
        self.config = config
        self.partitions = [_Blank()] * partitions
        self.producers = TopicProducers()

    def sticky_partition(self) -> int:
        return 0


Target = TopicLog | Unmade


class Log:
    def __init__(
        self,
        store: ObjectStore,
        wal: Wal,
        clock: Clock,
        *,
        server_config: dict[str, Value],
        record_bytes_max: int,
        group_bytes_max: int,
        head_bytes_max: int,
        on_group: Callable[[float], None],
        in_flight: InFlight,
    ) -> None:
        """A group commit takes `group_bytes_max`, or one request that is larger; `on_group(seconds)` hears of each.

        `head_bytes_max` is what the newest records of all partitions may take in memory.
        """
        self.store = store
        self.wal = wal
        self.clock = clock
        self.server_config = server_config
        """Settings of the server that stand in for a topic's own."""
        self.record_bytes_max = record_bytes_max
        self.append_bytes_max = wal.submit_bytes_max - group_bytes_max
        self._state_bytes_max = wal.submit_bytes_max // 4
        self.producer_bytes = StateBytes()
        """The bytes of the WAL's state that producers and keys of all topics take."""
        self._producers_bytes_max = self._state_bytes_max * PRODUCERS_STATE_PART
        self._keys_bytes_max = self._state_bytes_max * KEYS_STATE_PART
        self.start_mark = str(uuid.uuid4()).encode()
        """Identifies this start of the server."""
        self.draining = False
        self.taking_runs = False
        """While it drains: what is told of jobs, which the drain itself interrupts, is still appended."""
        self.on_due: Callable[[], None] = lambda: None
        """Called when a partition has enough for a flush."""
        self.wal_refused_seconds = 0.0
        """When a request was last refused because the WAL is full, on the monotonic clock."""
        self.wal_drained = DrainRate(clock.monotonic())
        """The rate at which bytes of the WAL are recycled."""
        self.flush_retry_ms: Callable[[], int | None] = lambda: None
        """When a flush may succeed again; None while they do."""
        self._head_bytes_max = head_bytes_max
        self._observe_group = on_group
        self._head_bytes_since_check = 0
        self._topics: dict[str, TopicLog] = {}
        self._sorted: tuple[TopicLog, ...] | None = ()
        self._by_id: dict[bytes, TopicLog] = {}
        self.group_commit = GroupCommit(wal, clock, group_bytes_max, self._on_group, in_flight)

    def topic(self, name: str) -> TopicLog:
        """Raises UnknownTopic."""
        topic = self._topics.get(name)
        if topic is None:
            system = names.is_system_topic(name)
            made = "the server makes it when it is needed" if system else "create it with POST /v1/topics"
            raise problem("unknown_topic", f"there is no topic {name[:200]!r}; {made}", topic=name[:200])
        return topic

    def topics(self) -> Sequence[TopicLog]:
        if self._sorted is None:
            self._sorted = tuple(sorted(self._topics.values(), key=lambda topic: topic.name))
        return self._sorted

    def add_topic(self, topic: TopicLog) -> None:
        self._sorted = None
        self._topics[topic.name] = topic
        self._by_id[topic.id_bytes] = topic
        topic.producers.bytes.join(self.producer_bytes)

    def remove_topic(self, topic: TopicLog) -> None:
        if self._topics.get(topic.name) is topic:
            self._sorted = None
            del self._topics[topic.name]
            del self._by_id[topic.id_bytes]
            topic.producers.bytes.leave()

    def see_table(self, topic: TopicLog, snapshot: TableSnapshot) -> None:
        """Takes in what was committed to the topic's table, by this process or another. Raises Fenced when the table is
        no more this node's: whose offsets it has then is not to be asked of it."""
        topic.check_owned(snapshot)
        moved = topic.moved_by(snapshot)
        if moved:
            self.group_commit.add_control(wal_state.encode(wal_state.Flushed(topic.topic_id, snapshot.version, moved)))

    def table_offset(self, topic_id: bytes, partition: int) -> int:
        """The table offset of a partition, for recycling: of a topic that is gone everything may go."""
        topic = self._by_id.get(topic_id)
        if topic is None or partition >= len(topic.partitions):
            return 2**63 - 1
        return topic.partitions[partition].offsets.table

    def append(
        self,
        topic: TopicLog,
        body: Body,
        publisher: Producer | IdempotencyKey | None,
        partition_count: int | None = None,
    ) -> Appended:
        """Checks the whole request, then sequences it; nothing is appended when anything of it is refused.

        `partition_count` is what a client that hashes keys itself went by.
        """
        topic.check_open()
        now_us = self.clock.now_us()
        parts, checks, reserved, producer_id = self._checked(topic, body, publisher, partition_count, now_us)
        if reserved and not self.wal.reserve(reserved):
            raise self._wal_full()
        acks: list[PartitionAck] = []
        ends: list[tuple[PartitionLog, int]] = []
        share = reserved // len(parts.slices)
        for part in checks:
            log = topic.partitions[part.partition]
            new = part.new
            if new is None:
                ack, end = _seen_before(part, log.sequencer)
            else:
                piece = Piece(new.count, new.records, body.nbytes * new.count // body.count, part.batch)
                first = log.add(piece, now_us)
                self.group_commit.add(log, share)
                end = first + new.count
                places = ((None, part.seen), (first, new.count)) if part.seen else None
                ack = PartitionAck(part.partition, first, new.count, False, places)
            acks.append(ack)
            ends.append((log, end))
        if publisher is not None:
            self._note_producer(topic, publisher, producer_id, now_us)
        return Appended(acks, parts, self.group_commit.commit(reserved), ends)

    def told_once(self, error: Exception) -> "asyncio.Future[None] | None":
        """Done once a refusal may be told; None when it may be now.

        One that says how far a producer came waits for a sync: who goes on from there goes on behind records that a
        crash must not take away.
        """
        says_so = isinstance(error, SiltlogError) and "next_sequence" in error.members
        return self.group_commit.commit() if says_so else None

    def rehearse(
        self,
        topic: Unmade,
        body: Body,
        publisher: Producer | IdempotencyKey | None,
        partition_count: int | None = None,
    ) -> None:
        """Raises what `append` would once the topic was made: what is refused must not make it."""
        _, _, reserved, _ = self._checked(topic, body, publisher, partition_count, self.clock.now_us())
        if reserved > self.wal.free_bytes:
            raise self._wal_full()

    def _checked(
        self,
        topic: Target,
        body: Body,
        publisher: Producer | IdempotencyKey | None,
        partition_count: int | None,
        now_us: int,
    ) -> _Checked:
        if self.draining and not (self.taking_runs and topic.name == names.JOBS_TOPIC):
            raise problem("shutting_down", "the server is shutting down; publish to another, or again in a moment")
        recounted = partition_count is not None and partition_count != len(topic.partitions)
        if publisher is None:
            if recounted:
                raise _partition_count_changed(topic)
            parts = split(
                body, len(topic.partitions), topic.sticky_partition(), topic.config, self._record_bytes(topic), now_us
            )
            refuse_sequences(parts, "there is no header Silt-Producer-Id")
            checks = [Part(slice_.partition, slice_, None) for slice_ in parts.slices]
            producer_id, overhead = "", RECORD_OVERHEAD_BYTES
        else:
            try:
                parts, checks, producer_id = self._checked_of(publisher, topic, body, now_us)
            except SiltlogError as error:
                if recounted and error.error_code in _BY_ANOTHER_COUNT:
                    raise _partition_count_changed(topic) from None
                raise
            # A request that was seen before, all of it, is answered however little room there is.
            if all(part.new is None for part in checks):
                return parts, checks, 0, producer_id
            if isinstance(publisher, IdempotencyKey) and self.producer_bytes.keys > self._keys_bytes_max:
                raise _too_many_keys()
            overhead = RECORD_OVERHEAD_BYTES + SEQUENCE_OVERHEAD_BYTES
        if recounted:
            raise _partition_count_changed(topic)
        reserved = body.nbytes + overhead * body.count + FRAME_OVERHEAD_BYTES * len(parts.slices)
        if reserved > self.append_bytes_max:
            raise too_large(self.append_bytes_max)
        return parts, checks, reserved, producer_id

    def _checked_of(
        self, publisher: Producer | IdempotencyKey, topic: Target, body: Body, now_us: int
    ) -> tuple[Split, list[Part], str]:
        partitions, keyless = len(topic.partitions), topic.sticky_partition()
        if isinstance(publisher, Producer):
            parts = split(body, partitions, keyless, topic.config, self._record_bytes(topic), now_us)
            return parts, checked(topic, parts, publisher), publisher.producer_id
        sequencers = (log.sequencer for log in topic.partitions)
        found = topic.producers.find_key(publisher, partitions, sequencers, topic.config, now_us)
        producer_id, partitions, keyless = found
        parts = split(body, partitions, keyless, topic.config, self._record_bytes(topic), now_us)
        return parts, checked_keyed(topic, parts, producer_id), producer_id

    def _record_bytes(self, topic: Target) -> int:
        return self.record_bytes_max + SYSTEM_RECORD_BYTES_EXTRA * topic.system

    def _note_producer(
        self, topic: TopicLog, publisher: Producer | IdempotencyKey, producer_id: str, now_us: int
    ) -> None:
        if isinstance(publisher, IdempotencyKey):
            topic.producers.keys.remember(producer_id, now_us)
        elif publisher.epoch > 0:
            topic.producers.claims.use(producer_id, publisher.epoch, now_us)
        self.bound_producers()

    def bound_producers(self) -> None:
        """Forgets producers unused for longest where there are more than the WAL's state has room for."""
        while self.producer_bytes.producers > self._producers_bytes_max:
            largest = max(self._topics.values(), key=lambda other: other.producers.bytes.producers)
            largest.producers.forget_oldest(log.sequencer for log in largest.partitions)

    def producers(self) -> int:
        """The number of producers remembered, counted in each partition they published to."""
        return sum(len(log.sequencer.producers) for topic in self._topics.values() for log in topic.partitions)

    def idempotency_keys(self) -> int:
        return sum(len(topic.producers.keys) for topic in self._topics.values())

    async def claim_producer(self, topic: TopicLog, producer_id: str) -> int:
        """Takes the next epoch of a producer, durably; older ones are fenced from now on."""
        if self.draining:
            raise problem("shutting_down", "the server is shutting down; claim at another, or again in a moment")
        topic.check_open()
        now_us = self.clock.now_us()
        used = max(log.sequencer.epoch_of(producer_id) for log in topic.partitions)
        if not self.wal.reserve(FRAME_OVERHEAD_BYTES):
            raise self._wal_full()
        epoch = topic.producers.claims.claim(producer_id, used, now_us)
        if epoch is None:
            self.wal.unreserve(FRAME_OVERHEAD_BYTES)
            raise problem("invalid_request", f"producer {producer_id} has no epoch left; go on under a new id")
        topic.producers.claims_stored = False
        for log in topic.partitions:
            log.sequencer.touch(producer_id, now_us)
        event = wal_state.ProducerClaimed(topic.topic_id, producer_id, epoch, now_us)
        self.group_commit.add_control(wal_state.encode(event))
        await self.group_commit.commit(FRAME_OVERHEAD_BYTES)
        return epoch

    def wal_is_tight(self) -> bool:
        """More than half of its budget is used: what pins the oldest segment must go."""
        return self.wal.used_bytes > self.wal.free_bytes

    def wal_holds_much(self) -> bool:
        """A quarter of its budget is used: what pins the oldest segment no longer waits for company."""
        return self.wal.used_bytes > self.wal.free_bytes / WAL_HOLDS_FREE_PARTS

    def _wal_full(self) -> SiltlogError:
        now = self.wal_refused_seconds = self.clock.monotonic()
        # Room comes by segments: the next one at the rate of late, or when a flush that failed is tried again.
        retry_ms = self.flush_retry_ms() or self.wal_drained.retry_ms(self.wal.segment_bytes, now) or WAL_FULL_RETRY_MS
        if self.wal.disk_full:
            return problem(
                "disk_full", "the disk of the write-ahead log is full; free some space", retry_after_ms=retry_ms
            )
        return problem(
            "wal_full",
            "the write-ahead log's budget (SILT_WAL_BYTES_MAX) is used: tables take records more slowly than they "
            "come, or cannot be written; try again later",
            retry_after_ms=retry_ms,
        )

    def head_bytes(self) -> int:
        return sum(log.head.resident_bytes for topic in self._topics.values() for log in topic.partitions)

    def head_is_tight(self, unflushed_bytes: int) -> bool:
        """So much that is not in a table takes more than half of the head's memory, which is there for readers."""
        return unflushed_bytes > self._head_bytes_max / 2

    def unflushed_bytes(self) -> int:
        return sum(log.head.unflushed_bytes for topic in self._topics.values() for log in topic.partitions)

    def _on_group(self, partitions: Sequence[PartitionLog], nbytes: int, seconds: float) -> None:
        self._observe_group(seconds)
        self._head_bytes_since_check += nbytes + CHUNK_OVERHEAD_BYTES * len(partitions)
        if self._head_bytes_since_check > self._head_bytes_max // HEAD_CHECKS_PER_BUDGET:
            self._head_bytes_since_check = 0
            self._evict()
        if any(log.head.unflushed_bytes >= log.topic.config.integer("flush.bytes") for log in partitions):
            self.on_due()

    def _evict(self) -> None:
        """Brings the head back below its budget: the oldest of the partitions that hold the most goes first."""
        logs = [log for topic in self._topics.values() for log in topic.partitions]
        excess = self.head_bytes() - self._head_bytes_max
        while excess > 0:
            largest = max(logs, key=lambda log: log.head.resident_bytes)
            freed = largest.head.evict(max(excess // 4, largest.head.resident_bytes // 4, 1))
            if freed == 0:
                return
            excess -= freed

    def not_ready(self) -> list[str]:
        """Why publishes cannot be acknowledged now; empty when they can."""
        reasons = ["draining"] if self.draining else []
        if self.wal.free_bytes < FRAME_OVERHEAD_BYTES:
            reasons.append("disk_full" if self.wal.disk_full else "wal_full")
        reasons += [
            f"topic {t.name} fenced: {t.availability.reason}" for t in self._topics.values() if t.state == "fenced"
        ]
        return reasons

    def degraded(self) -> list[str]:
        """Lists what does not work as it should while publishes can be acknowledged."""
        found = []
        for topic in self.topics():
            if topic.state == "unavailable":
                found.append(f"topic {topic.name} takes no records: {topic.availability.reason}")
            elif topic.flush_error:
                found.append(f"topic {topic.name} cannot be flushed for now: {topic.flush_error}")
        if len(found) > DEGRADED_MAX:
            found[DEGRADED_MAX:] = [f"and {len(found) - DEGRADED_MAX} topics more"]
        if self.wal_is_tight():
            found.insert(0, "more than half of the write-ahead log is used")
        return found

    def state(self) -> bytes:
        """Everything that was submitted to the WAL so far, and nothing that still gathers.

        It must leave the segment it begins room for records: where it would take too much of that, of each producer's
        requests only the last is remembered across a restart. That is enough to tell a duplicate.
        """
        state = self._state()
        encoded = wal_state.encode(state)
        if len(encoded) > self._state_bytes_max:
            encoded = wal_state.encode(wal_state.shortened(state))
        return encoded

    def _state(self) -> wal_state.WalState:
        topics = {}
        for topic in self._topics.values():
            partitions = {
                log.partition: wal_state.PartitionState(
                    log.offsets.submitted, log.offsets.table, log.sequencer.dump(log.offsets.submitted)
                )
                for log in topic.partitions
            }
            topics[topic.topic_id] = wal_state.TopicState(
                topic.name,
                topic.snapshot.version,
                topic.epochs,
                topic.open_commit,
                partitions,
                topic.producers.claims.dump(),
                topic.open_version,
                topic.claiming,
            )
        return wal_state.WalState(topics, wal_state.VERSION)


def _partition_count_changed(topic: Target) -> SiltlogError:
    return problem(
        "partition_count_changed",
        f"topic {topic.name} has {len(topic.partitions)} partitions now; hash the keys again",
        partitions=len(topic.partitions),
    )


def _too_many_keys() -> SiltlogError:
    return problem(
        "overloaded",
        "more idempotency keys are remembered than there is room for; publish with Silt-Producer-Id, which needs one "
        "entry for all its requests, or again once some have expired (idempotency.expiration.ms)",
        retry_after_ms=KEYS_FULL_RETRY_MS,
    )


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
