"""The log of a node: its topics, appending to them, and the order of what must happen before an acknowledgement.

Lives on the event loop. Satisfies what readers need of a log (LogView).
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from siltlog.infra.clock import Clock
from siltlog.infra.errors import SiltlogError, problem
from siltlog.infra.http import too_large
from siltlog.infra.store import ObjectStore
from siltlog.infra.table_snapshot import TableSnapshot
from siltlog.infra.topic_config import TopicConfig, Value
from siltlog.ingest import wal_state
from siltlog.ingest.body import Body
from siltlog.ingest.group_commit import GroupCommit
from siltlog.ingest.partition_log import PartitionLog, Piece
from siltlog.ingest.sequencer import APPEND, Duplicate, ProducerBatch, Refusal, Sequencer, Verdict
from siltlog.ingest.split import Slice, Split, split
from siltlog.ingest.topic_log import TopicLog
from siltlog.ingest.wal import Wal

FRAME_OVERHEAD_BYTES = 1024
"""Reserved per partition of a request beside its records: a frame's header, its Arrow metadata, padding."""
RECORD_OVERHEAD_BYTES = 24
"""Reserved per record beside its bytes: its timestamp, its ends in the columns, their validity."""
WAL_FULL_RETRY_MS = 1_000
HEAD_CHECKS_PER_BUDGET = 16
"""The head may go above its budget by this fraction of it."""


class Producer(NamedTuple):
    """Who publishes exactly once (`Silt-Producer-Id`, `Silt-Producer-Epoch`)."""

    producer_id: str
    epoch: int


@dataclass(frozen=True, slots=True)
class PartitionAck:
    partition: int
    first_offset: int | None
    count: int
    duplicate: bool


@dataclass(frozen=True, slots=True)
class Appended:
    """What `append` did, and what to wait for before it may be acknowledged."""

    acks: list[PartitionAck]
    split: Split
    durable: "asyncio.Future[None]"
    ends: list[tuple[PartitionLog, int]]
    """Per partition the offset below which everything must be durable, or in the table, for this request."""


class _Blank:
    """A partition nobody published to."""

    def __init__(self) -> None:
        self.sequencer = Sequencer()


class Unmade:
    """A topic that is not there yet, as a publish would find it."""

    def __init__(self, name: str, partitions: int, config: TopicConfig) -> None:
        self.name = name
        self.config = config
        self.partitions = [_Blank()] * partitions

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
        self.draining = False
        self.on_due: Callable[[], None] = lambda: None
        """Called when a partition has enough for a flush."""
        self.wal_refused_seconds = 0.0
        """When a request was last refused because the WAL is full, on the monotonic clock."""
        self._head_bytes_max = head_bytes_max
        self._observe_group = on_group
        self._head_bytes_since_check = 0
        self._topics: dict[str, TopicLog] = {}
        self._by_id: dict[bytes, TopicLog] = {}
        self.group_commit = GroupCommit(wal, clock, group_bytes_max, self._on_group)

    # --- topics -----------------------------------------------------------------------------------------
    def topic(self, name: str) -> TopicLog:
        """Raises UnknownTopic."""
        topic = self._topics.get(name)
        if topic is None:
            raise problem(
                "unknown_topic", f"there is no topic {name[:200]!r}; create it with POST /v1/topics", topic=name[:200]
            )
        return topic

    def topics(self) -> Sequence[TopicLog]:
        return sorted(self._topics.values(), key=lambda topic: topic.name)

    def add_topic(self, topic: TopicLog) -> None:
        self._topics[topic.name] = topic
        self._by_id[topic.id_bytes] = topic

    def remove_topic(self, topic: TopicLog) -> None:
        if self._topics.get(topic.name) is topic:
            del self._topics[topic.name]
            del self._by_id[topic.id_bytes]

    def see_table(self, topic: TopicLog, snapshot: TableSnapshot) -> None:
        """Takes in what was committed to the topic's table, by this process or another."""
        moved = topic.moved_by(snapshot)
        if moved:
            self.group_commit.add_control(wal_state.encode(wal_state.Flushed(topic.topic_id, snapshot.version, moved)))

    def table_offset(self, topic_id: bytes, partition: int) -> int:
        """For recycling: the table offset of a partition; of a topic that is gone everything may go."""
        topic = self._by_id.get(topic_id)
        if topic is None or partition >= len(topic.partitions):
            return 2**63 - 1
        return topic.partitions[partition].table_offset

    # --- appending --------------------------------------------------------------------------------------
    def append(
        self, topic: TopicLog, body: Body, producer: Producer | None, partition_count: int | None = None
    ) -> Appended:
        """Checks the whole request, then sequences it; nothing is appended when anything of it is refused.

        `partition_count` is what a client that hashes keys itself went by.
        """
        topic.check_open()
        now_us = self.clock.now_us()
        parts, verdicts, reserved = self._checked(topic, body, producer, partition_count, now_us)
        if reserved and not self.wal.reserve(reserved):
            raise self._wal_full()
        acks: list[PartitionAck] = []
        ends: list[tuple[PartitionLog, int]] = []
        share = reserved // len(parts.slices)
        for slice_, (batch, verdict) in zip(parts.slices, verdicts, strict=True):
            log = topic.partitions[slice_.partition]
            if isinstance(verdict, Duplicate):
                acks.append(PartitionAck(slice_.partition, verdict.first_offset, slice_.count, True))
                ends.append((log, _end(log, verdict.first_offset, slice_.count)))
                continue
            first = log.add(
                Piece(slice_.count, slice_.records, body.nbytes * slice_.count // body.count, batch), now_us
            )
            self.group_commit.add(log, share)
            acks.append(PartitionAck(slice_.partition, first, slice_.count, False))
            ends.append((log, first + slice_.count))
        return Appended(acks, parts, self.group_commit.commit(reserved), ends)

    def rehearse(
        self, topic: Unmade, body: Body, producer: Producer | None, partition_count: int | None = None
    ) -> None:
        """Raises what `append` would once the topic was made: what is refused must not make it."""
        if partition_count not in (None, len(topic.partitions)):
            raise _partition_count_changed(topic)
        _, _, reserved = self._checked(topic, body, producer, partition_count, self.clock.now_us())
        if reserved > self.wal.free_bytes:
            raise self._wal_full()

    def _checked(
        self, topic: Target, body: Body, producer: Producer | None, partition_count: int | None, now_us: int
    ) -> tuple[Split, list[tuple[ProducerBatch | None, Verdict]], int]:
        """The request by partition, what is to become of each part, and the bytes of the WAL that takes."""
        if self.draining:
            raise problem("shutting_down", "the server is shutting down; publish to another, or again in a moment")
        parts = split(
            body, len(topic.partitions), topic.sticky_partition(), topic.config, self.record_bytes_max, now_us
        )
        verdicts = self._verdicts(topic, parts, producer)
        # A request that was seen before, all of it, is answered however little room there is.
        if producer is not None and all(verdict is not APPEND for _, verdict in verdicts):
            return parts, verdicts, 0
        if partition_count not in (None, len(topic.partitions)):
            raise _partition_count_changed(topic)
        reserved = body.nbytes + RECORD_OVERHEAD_BYTES * body.count + FRAME_OVERHEAD_BYTES * len(parts.slices)
        if reserved > self.append_bytes_max:
            raise too_large(self.append_bytes_max)
        return parts, verdicts, reserved

    def _verdicts(
        self, topic: Target, parts: Split, producer: Producer | None
    ) -> list[tuple[ProducerBatch | None, Verdict]]:
        if producer is None:
            _refuse_sequences(parts)
            return [(None, APPEND)] * len(parts.slices)
        verdicts: list[tuple[ProducerBatch | None, Verdict]] = []
        refusals: list[tuple[int, Refusal]] = []
        for slice_ in parts.slices:
            batch = _producer_batch(slice_, producer)
            sequencer = topic.partitions[slice_.partition].sequencer
            verdict = sequencer.check(batch)
            if not isinstance(verdict, Refusal) and not _rise_by_one(slice_):
                verdict = Refusal(
                    "out_of_order_sequence", sequencer.next_sequence(producer.producer_id), producer.epoch
                )
            if isinstance(verdict, Refusal):
                refusals.append((slice_.partition, verdict))
            verdicts.append((batch, verdict))
        if refusals:
            raise _refused(topic, producer, refusals)
        return verdicts

    def wal_is_tight(self) -> bool:
        """More than half of its budget is used: what pins the oldest segment must go."""
        return self.wal.used_bytes > self.wal.free_bytes

    def _wal_full(self) -> SiltlogError:
        self.wal_refused_seconds = self.clock.monotonic()
        if self.wal.disk_full:
            return problem(
                "disk_full", "the disk of the write-ahead log is full; free some space", retry_after_ms=5_000
            )
        return problem(
            "wal_full",
            "the write-ahead log's budget (SILT_WAL_BYTES_MAX) is used: tables take records more slowly than they "
            "come, or cannot be written; try again later",
            retry_after_ms=WAL_FULL_RETRY_MS,
        )

    # --- memory -----------------------------------------------------------------------------------------
    def head_bytes(self) -> int:
        return sum(log.head.resident_bytes for topic in self._topics.values() for log in topic.partitions)

    def unflushed_bytes(self) -> int:
        return sum(log.head.unflushed_bytes for topic in self._topics.values() for log in topic.partitions)

    def _on_group(self, partitions: Sequence[PartitionLog], nbytes: int, seconds: float) -> None:
        self._observe_group(seconds)
        self._head_bytes_since_check += nbytes
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
        reasons += [f"topic {t.name} fenced: {t.state_reason}" for t in self._topics.values() if t.state == "fenced"]
        return reasons

    # --- what the WAL keeps at the head of each segment -------------------------------------------------
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
                    log.submitted_offset, log.table_offset, log.sequencer.dump(log.submitted_offset)
                )
                for log in topic.partitions
            }
            topics[topic.topic_id] = wal_state.TopicState(
                topic.name, topic.snapshot.version, topic.epochs, topic.open_commit, partitions
            )
        return wal_state.WalState(topics)


def _partition_count_changed(topic: Target) -> SiltlogError:
    return problem(
        "partition_count_changed",
        f"topic {topic.name} has {len(topic.partitions)} partitions now; hash the keys again",
        partitions=len(topic.partitions),
    )


def _producer_batch(slice_: Slice, producer: Producer) -> ProducerBatch:
    if slice_.sequences is None:
        raise problem("invalid_record", "with Silt-Producer-Id every record needs its partition and sequence", index=0)
    return ProducerBatch(producer.producer_id, producer.epoch, int(slice_.sequences[0]), slice_.count)


def _rise_by_one(slice_: Slice) -> bool:
    sequences = slice_.sequences
    assert sequences is not None
    return bool((sequences == np.arange(sequences[0], sequences[0] + slice_.count)).all())


def _refuse_sequences(parts: Split) -> None:
    if any(slice_.sequences is not None for slice_ in parts.slices):
        raise problem("invalid_record", "sequence needs the header Silt-Producer-Id; without it leave it out", index=0)


def _refused(topic: Target, producer: Producer, refusals: list[tuple[int, Refusal]]) -> SiltlogError:
    order = ("fenced_producer", "unknown_producer", "out_of_order_sequence")
    partition, first = min(refusals, key=lambda item: order.index(item[1].error_code))
    what = {
        "fenced_producer": f"epoch {first.producer_epoch} of it was claimed; this one has {producer.epoch}",
        "unknown_producer": "it is not known (any more) and does not start at 0; claim it and go on from next_sequence",
        "out_of_order_sequence": f"the next sequence is {first.next_sequence}",
    }[first.error_code]
    return problem(
        first.error_code,
        f"producer {producer.producer_id}, topic {topic.name}, partition {partition}: {what}",
        partition=partition,
        next_sequence=first.next_sequence,
        producer_epoch=first.producer_epoch,
        partitions=[{"partition": p, "next_sequence": refusal.next_sequence} for p, refusal in refusals],
    )


def _end(log: PartitionLog, first_offset: int | None, count: int) -> int:
    # Where the original is no longer remembered it is older than 100 requests, and those before the last are durable.
    return log.sequencer.next_offset if first_offset is None else first_offset + count
