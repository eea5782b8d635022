"""Admission, before anything of a request is appended: the drain, the budgets, what its producer sent before.

Lives on the log's event loop. A check changes nothing.
"""

from collections.abc import Callable

from siltlog.infra.arrow.partitioner import PlacedBy
from siltlog.infra.clock import AgingTime, Clock
from siltlog.infra.errors import SiltlogError, problem
from siltlog.infra.http.drain_rate import DrainRate
from siltlog.infra.http.draining import Draining
from siltlog.infra.limits import too_large
from siltlog.infra.settings.topic_config import TopicConfig
from siltlog.ingest.log.topic import TopicLog
from siltlog.ingest.log.topic_logs import TopicLogs
from siltlog.ingest.producers.check import Part, Producer, checked, checked_keyed, refuse_sequences
from siltlog.ingest.producers.idempotency import IdempotencyKey
from siltlog.ingest.producers.known import TopicProducers
from siltlog.ingest.producers.sequencer import Sequencer
from siltlog.ingest.records.body import Body
from siltlog.ingest.records.split import Split, is_placed, partition_count_changed, split
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

Checked = tuple[Split, list[Part], int, str]
"""A request that may be appended: by partition, what becomes of each part, the bytes of the WAL that takes, as whom."""


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


class Admission:
    def __init__(
        self,
        topic_logs: TopicLogs,
        wal: Wal,
        clock: Clock,
        draining: Draining,
        *,
        record_bytes_max: int,
        group_bytes_max: int,
        flush_retry_ms: Callable[[], int | None],
    ) -> None:
        """A group commit takes `group_bytes_max`, or one request that is larger. `flush_retry_ms()` is when a flush may
        succeed again; None while they do."""
        self.draining = draining
        self.append_bytes_max = wal.submit_bytes_max - group_bytes_max
        self.wal_refused_seconds = 0.0
        """When a request was last refused because the WAL is full, on the monotonic clock."""
        self._topic_logs = topic_logs
        self._wal = wal
        self._clock = clock
        self.aging = AgingTime(clock)
        """By which producers and idempotency keys age."""
        self.reconfigure(record_bytes_max)
        self.producers_bytes_max = wal.state_bytes_max * PRODUCERS_STATE_PART
        """What producers of all topics may take of the WAL's state."""
        self._keys_bytes_max = wal.state_bytes_max * KEYS_STATE_PART
        self.topics_bytes_max = int(wal.state_room - self.producers_bytes_max - self._keys_bytes_max)
        """What topics may take of the WAL's state: beside all of that any submit has room in a segment."""
        self._wal_drained = DrainRate(clock.monotonic())
        """The rate at which bytes of the WAL are recycled."""
        self._flush_retry_ms = flush_retry_ms

    def reconfigure(self, record_bytes_max: int) -> None:
        """Records that come from now on may be so large."""
        self._record_bytes_max = record_bytes_max

    def rehearse(
        self,
        topic: Unmade,
        body: Body,
        publisher: Producer | IdempotencyKey | None,
        placed_by: PlacedBy | None = None,
    ) -> None:
        """Raises what appending would once the topic was made: what is refused must not make it."""
        _, _, reserved, _ = self.checked(topic, body, publisher, placed_by, self._clock.now_us())
        if reserved > self._wal.free_bytes:
            raise self.wal_full()

    def checked(
        self,
        topic: Target,
        body: Body,
        publisher: Producer | IdempotencyKey | None,
        placed_by: PlacedBy | None,
        now_us: int,
    ) -> Checked:
        """Raises what there is against the request; afterwards the WAL may still be full."""
        if self.draining.stops and self.draining.refuses(topic.name):
            doing = "is shutting down" if self.draining.begun else "is drained by an operator (see `silt drain`)"
            raise problem("shutting_down", f"the server {doing}; publish to another, or again in a moment")
        recounted = not is_placed(placed_by, len(topic.partitions), topic.config)
        if publisher is None:
            if recounted:
                raise partition_count_changed(topic.name, len(topic.partitions), topic.config)
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
                    raise partition_count_changed(topic.name, len(topic.partitions), topic.config) from None
                raise
            # A request that was seen before, all of it, is answered however little room there is.
            if all(part.new is None for part in checks):
                return parts, checks, 0, producer_id
            if isinstance(publisher, IdempotencyKey) and self._topic_logs.producer_bytes.keys > self._keys_bytes_max:
                raise _too_many_keys()
            overhead = RECORD_OVERHEAD_BYTES + SEQUENCE_OVERHEAD_BYTES
        if recounted:
            raise partition_count_changed(topic.name, len(topic.partitions), topic.config)
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
        found = topic.producers.find_key(publisher, partitions, sequencers, topic.config, self.aging.now_us())
        producer_id, partitions, keyless = found
        parts = split(body, partitions, keyless, topic.config, self._record_bytes(topic), now_us)
        return parts, checked_keyed(topic, parts, producer_id), producer_id

    def _record_bytes(self, topic: Target) -> int:
        return self._record_bytes_max + SYSTEM_RECORD_BYTES_EXTRA * topic.system

    def bound_producers(self) -> None:
        """Forgets producers unused for longest where there are more than the WAL's state has room for."""
        self._topic_logs.forget_producers(self.producers_bytes_max)

    def recycled(self, nbytes: int) -> None:
        """Takes note that `nbytes` of the WAL are free again."""
        self._wal_drained.left(nbytes, self._clock.monotonic())

    def wal_is_tight(self) -> bool:
        """More than half of its budget is used: what pins the oldest segment must go."""
        return self._wal.used_bytes > self._wal.free_bytes

    def wal_holds_much(self) -> bool:
        """A quarter of its budget is used: what pins the oldest segment no longer waits for company."""
        return self._wal.used_bytes > self._wal.free_bytes / WAL_HOLDS_FREE_PARTS

    def wal_full(self) -> SiltlogError:
        """The refusal of a request that the WAL has no room for."""
        now = self.wal_refused_seconds = self._clock.monotonic()
        # Room comes by segments: the next one at the rate of late, or when a flush that failed is tried again.
        retry_ms = (
            self._flush_retry_ms() or self._wal_drained.retry_ms(self._wal.segment_bytes, now) or WAL_FULL_RETRY_MS
        )
        if self._wal.disk_full:
            return problem(
                "disk_full", "the disk of the write-ahead log is full; free some space", retry_after_ms=retry_ms
            )
        return problem(
            "wal_full",
            "the write-ahead log's budget (SILT_WAL_BYTES_MAX) is used: tables take records more slowly than they "
            "come, or cannot be written; try again later",
            retry_after_ms=retry_ms,
        )

    def not_ready(self) -> list[str]:
        """Why publishes cannot be acknowledged now; empty when they can."""
        reasons = ["draining"] if self.draining.stops else []
        if self._wal.free_bytes < FRAME_OVERHEAD_BYTES:
            reasons.append("disk_full" if self._wal.disk_full else "wal_full")
        fenced = (topic for topic in self._topic_logs.all() if topic.state == "fenced")
        reasons += [f"topic {topic.name} fenced: {topic.availability.reason}" for topic in fenced]
        return reasons

    def degraded(self) -> list[str]:
        """Lists what does not work as it should while publishes can be acknowledged."""
        found = []
        for topic in self._topic_logs.all():
            if topic.state == "unavailable":
                found.append(f"topic {topic.name} takes no records: {topic.availability.reason}")
            elif topic.flush_error:
                found.append(f"topic {topic.name} cannot be flushed for now: {topic.flush_error}")
        if len(found) > DEGRADED_MAX:
            found[DEGRADED_MAX:] = [f"and {len(found) - DEGRADED_MAX} topics more"]
        if self.wal_is_tight():
            found.insert(0, "more than half of the write-ahead log is used")
        return found


def _too_many_keys() -> SiltlogError:
    return problem(
        "overloaded",
        "more idempotency keys are remembered than there is room for; publish with Silt-Producer-Id, which needs one "
        "entry for all its requests, or again once some have expired (idempotency.expiration.ms)",
        retry_after_ms=KEYS_FULL_RETRY_MS,
    )
