"""A log in memory: topics and partitions with the server's own sequencing and checks, and nothing behind them.

It is a `LogView` to those who read and a `SystemLog` to those who bury, so groups, reads and dead letters are the
server's own code over it. There is no table: what is acknowledged counts as in it.
"""

import uuid
from bisect import bisect_right
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from siltlog.infra import delta_names, names
from siltlog.infra.arrow.partitioner import PlacedBy
from siltlog.infra.clock import Clock
from siltlog.infra.columns import RECORD_SCHEMA, TIMESTAMP, nulls
from siltlog.infra.errors import OffsetOutOfRange, SiltlogError, TopicExists, problem
from siltlog.infra.limits import INTEGER_MAX
from siltlog.infra.records import Bounds, NewRecord, SentBatch
from siltlog.infra.settings.topic_config import UNLIMITED, TopicConfig, Value, validated_partitions
from siltlog.infra.table.snapshot import TableSnapshot
from siltlog.ingest.producers.check import Part, Producer, checked, refuse_sequences
from siltlog.ingest.producers.known import TopicProducers
from siltlog.ingest.producers.sequencer import Sequencer
from siltlog.ingest.publish.answers import PublishedPartition
from siltlog.ingest.records.batch import record_batch
from siltlog.ingest.records.body import Body, Rows, from_rows, headers_array, record_bytes
from siltlog.ingest.records.split import Slice, is_placed, partition_count_changed, split
from siltlog.testing.call import RECORD_BYTES_MAX

_PLACED_BEFORE = frozenset(("unknown_partition", "unknown_producer", "out_of_order_sequence"))
"""Refusals of a request that was placed, or follows one that was placed, by another partition count."""


class MemoryPartition:
    """One partition. Its records are batches of RECORD_SCHEMA, contiguous from offset 0."""

    def __init__(self, partition: int) -> None:
        self.partition = partition
        self.sequencer = Sequencer()
        self.log_start_offset = 0
        self._batches: list[pa.RecordBatch] = []
        self._firsts: list[int] = []

    @property
    def far(self) -> bool:
        return False

    def bounds(self) -> Bounds:
        end = self.sequencer.next_offset
        return Bounds(self.log_start_offset, end, end)

    async def reaches(self, offset: int) -> bool:
        return False

    async def decided(self) -> Bounds:
        return self.bounds()

    def sent(self, offset: int, end: int) -> Sequence[SentBatch]:
        return ()

    async def read_head(
        self, offset: int, end: int, max_records: int, max_bytes: int, producers: bool = False
    ) -> list[pa.RecordBatch]:
        assert not producers, "none of its routes asks for them"
        return self.between(offset, end, max_records, max_bytes)

    def between(
        self, offset: int, end: int, max_records: int = INTEGER_MAX, max_bytes: int = INTEGER_MAX
    ) -> list[pa.RecordBatch]:
        """The records in [offset, end) as far as the limits go, at least one."""
        found: list[pa.RecordBatch] = []
        at = max(bisect_right(self._firsts, offset) - 1, 0)
        for first, batch in zip(self._firsts[at:], self._batches[at:], strict=True):
            skip = max(offset - first, 0)
            part = batch.slice(skip, max(min(max_records, end - first - skip), 0))
            if part.num_rows == 0 or (found and max_bytes <= 0):
                break
            found.append(part)
            max_records -= part.num_rows
            max_bytes -= part.nbytes
        return found

    def append(self, part: Slice, by: Part, now_us: int) -> int:
        """The first offset of the new records."""
        first = self.sequencer.append(part.count, by.batch, now_us, 0)
        self._firsts.append(first)
        self._batches.append(_stored(part, self.partition, first))
        return first

    def subscribe(self, callback: Callable[[], None]) -> None:
        """Does nothing: requests that wait are begun anew after every change."""

    def unsubscribe(self, callback: Callable[[], None]) -> None:
        """Does nothing: nobody is subscribed."""


class MemoryTopic:
    """A topic: what the checks of publishing and all readers need of one."""

    def __init__(self, name: str, partitions: int, config: TopicConfig, created_us: int) -> None:
        self.name = name
        self.topic_id = str(uuid.uuid4())
        self.created_us = created_us
        self.config = config
        self.system = names.is_system_topic(name)
        self.producers = TopicProducers()
        self.partitions = [MemoryPartition(partition) for partition in range(partitions)]
        self._keyless = 0

    @property
    def snapshot(self) -> TableSnapshot:
        """An empty table: readers find everything in the head."""
        named = {
            delta_names.PROPERTY_TOPIC_ID: self.topic_id,
            delta_names.PROPERTY_PARTITIONS: str(len(self.partitions)),
        }
        return TableSnapshot.build(0, named, {}, [])

    def altered(self, partitions: int | None, config: TopicConfig) -> None:
        """Takes other settings, and more partitions."""
        count = len(self.partitions)
        wanted = partitions or count
        if wanted < count:
            raise problem("invalid_request", f"topic {self.name} has {count} partitions, and partitions only grow")
        if wanted > count and "compact" in f"{self.config['cleanup.policy']} {config['cleanup.policy']}":
            raise problem("invalid_request", f"topic {self.name} keeps the last record of each key: it does not grow")
        self.config = config
        self.partitions += [MemoryPartition(partition) for partition in range(count, partitions or count)]

    def keyless_partition(self) -> int:
        """The partition for the keyless records of one request."""
        self._keyless = (self._keyless + 1) % len(self.partitions)
        return self._keyless

    def partition(self, number: int) -> MemoryPartition:
        if not 0 <= number < len(self.partitions):
            raise problem("unknown_partition", f"topic {self.name} has no partition {number}", partition=number)
        return self.partitions[number]


class MemoryLog:
    """All topics. Used by one thread at a time."""

    store: Any = None
    draining = False

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self._topics: dict[str, MemoryTopic] = {}

    def topic(self, name: str) -> MemoryTopic:
        if name not in self._topics:
            raise problem("unknown_topic", f"there is no topic {name[:200]!r}; create it first", topic=name[:200])
        return self._topics[name]

    def topics(self) -> Sequence[MemoryTopic]:
        return [self._topics[name] for name in sorted(self._topics)]

    @property
    def view(self) -> int:
        return 0

    def opening(self) -> Collection[str]:
        return ()

    def create(self, name: str, partitions: int, config: Mapping[str, Value]) -> MemoryTopic:
        """Raises TopicExists, Refused `invalid_request` or `invalid_config`."""
        wrong = names.topic_name_problem(name)
        if wrong is not None:
            raise problem("invalid_request", wrong)
        return self._create(name, partitions, config)

    def _create(self, name: str, partitions: int, config: Mapping[str, Value]) -> MemoryTopic:
        validated_partitions(partitions)
        if any(there.lower() == name.lower() for there in self._topics):
            raise _exists(name)
        topic = self._topics[name] = MemoryTopic(name, partitions, TopicConfig(config), self.clock.now_us())
        return topic

    def find_or_create(
        self, name: str, partitions: int | None, config: Mapping[str, Value]
    ) -> tuple[MemoryTopic, bool]:
        """The topic and whether it is new. Raises TopicExists where it is not as asked for."""
        try:
            return self.create(name, 1 if partitions is None else partitions, config), True
        except TopicExists:
            topic = self._topics.get(name)
            if topic is None:
                raise
        if partitions not in (None, len(topic.partitions)):
            raise _exists(name, f" with {len(topic.partitions)} partitions, not {partitions}")
        for setting, value in config.items():
            if topic.config.own.get(setting) != value:
                raise _exists(name, f" with another {setting} than {value!r}")
        return topic, False

    def alter(self, name: str, partitions: int | None, changes: Mapping[str, Any]) -> MemoryTopic:
        topic = self._users(name, "changed")
        if partitions is not None:
            validated_partitions(partitions)
        topic.altered(partitions, topic.config.patched(changes))
        return topic

    def delete(self, name: str) -> None:
        """The topic goes, and its dead letters with it."""
        self._users(name, "deleted")
        gone: str | None = name
        while gone in self._topics:
            del self._topics[gone]
            gone = names.dead_letter_topic(gone)

    def _users(self, name: str, done: str) -> MemoryTopic:
        topic = self.topic(name)
        if topic.system:
            raise problem("forbidden", f"the topic {name} is the system's: it can be read, and is not {done} by users")
        return topic

    def move_log_start(self, topic: MemoryTopic, partition: int, before_offset: int | None) -> Bounds:
        """Deletes what is below an offset, None: all there is."""
        log = topic.partition(partition)
        bounds = log.bounds()
        before = bounds.high_watermark if before_offset is None else before_offset
        if before > bounds.high_watermark:
            raise OffsetOutOfRange(
                f"offset {before} is above the high watermark of topic {topic.name}, partition {partition}, which is "
                f"{bounds.high_watermark}; `latest` deletes all there is",
                status=416,
                members={"log_start_offset": bounds.log_start_offset, "high_watermark": bounds.high_watermark},
            )
        log.log_start_offset = max(log.log_start_offset, before)
        return log.bounds()

    def publish(
        self, topic: MemoryTopic, body: Body, by: Producer | None = None, placed_by: PlacedBy | None = None
    ) -> list[PublishedPartition]:
        """Appends all of a request, or raises and appends nothing. `placed_by`: how its keys were placed."""
        now_us = self.clock.now_us()
        recounted = not is_placed(placed_by, len(topic.partitions), topic.config)
        try:
            parts = split(
                body, len(topic.partitions), topic.keyless_partition(), topic.config, RECORD_BYTES_MAX, now_us
            )
            if by is None:
                refuse_sequences(parts, "there is no header Silt-Producer-Id")
                checks = [Part(each.partition, each, None) for each in parts.slices]
            else:
                checks = checked(topic, parts, by)
        except SiltlogError as error:
            if recounted and error.error_code in _PLACED_BEFORE:
                raise partition_count_changed(topic.name, len(topic.partitions), topic.config) from None
            raise
        if recounted and any(part.new is not None for part in checks):
            raise partition_count_changed(topic.name, len(topic.partitions), topic.config)
        if by is not None and by.epoch > 0:
            topic.producers.epochs.use(by.producer_id, by.epoch, now_us)
        return [_appended(topic.partitions[part.partition], part, now_us) for part in checks]

    def claim(self, topic: MemoryTopic, producer_id: str) -> int:
        """The next epoch of a producer; older ones are fenced from now on."""
        used = max(log.sequencer.epoch_of(producer_id) for log in topic.partitions)
        epoch = topic.producers.epochs.claim(producer_id, used, self.clock.now_us())
        if epoch is None:
            raise problem("invalid_request", f"producer {producer_id} has no epoch left; go on under a new id")
        return epoch

    async def ensure(self, name: str, partitions: int, config: Mapping[str, Value]) -> MemoryTopic:
        topic = self._topics.get(name) or self._create(name, partitions, config)
        topic.altered(max(partitions, len(topic.partitions)), topic.config)
        return topic

    async def dead_letters(self, topic: str) -> MemoryTopic:
        config: dict[str, Value] = {"max.record.bytes": INTEGER_MAX, "retention.ms": UNLIMITED}
        return await self.ensure(names.dead_letter_topic(topic), len(self.topic(topic).partitions), config)

    async def append(
        self,
        topic: str,
        partition: int,
        records: Sequence[NewRecord],
        *,
        producer_id: str = "",
        sequences: Sequence[int] = (),
        epoch: int = 0,
    ) -> list[int | None]:
        """The offsets of the records; None of one that its producer has published before."""
        body = body_of(records, partition, sequences)
        body.stored = True
        [done] = self.publish(
            self.topic(topic), body, Producer(producer_id, 0, increasing=True) if producer_id else None
        )
        if done.duplicate or done.first_offset is None or done.last_offset is None:
            return [None] * len(records)
        new = range(done.first_offset, done.last_offset + 1)
        return [*[None] * (len(records) - len(new)), *new]

    async def delete_records(self, topic: str, partition: int, before_offset: int) -> int:
        return self.move_log_start(self.topic(topic), partition, before_offset).log_start_offset

    def epoch_of(self, topic: str) -> int:
        return int(topic in self._topics)

    async def last_of(self, topic: str, partition: int, producer_id: str) -> tuple[int, int] | None:
        sequencer = self.topic(topic).partition(partition).sequencer
        end = sequencer.end_of(producer_id)
        return None if end is None else (sequencer.next_sequence(producer_id) - 1, end - 1)

    async def producers_of(self, topic: str, prefix: str) -> set[str]:
        logs = self.topic(topic).partitions
        return {known for log in logs for known in log.sequencer.producers if known.startswith(prefix)}


def body_of(records: Sequence[NewRecord], partition: int | None = None, sequences: Sequence[int] = ()) -> Body:
    """Records as a parsed request."""
    rows = Rows(
        [record.timestamp_us for record in records],
        [record.key for record in records],
        [record.value for record in records],
        [list(record.headers) or None for record in records],
        [-1 if partition is None else partition] * len(records),
        list(sequences) or [None] * len(records),
    )
    nbytes = sum(record_bytes(record.value, record.key, list(record.headers)) for record in records)
    return from_rows(rows, nbytes)


def _appended(log: MemoryPartition, part: Part, now_us: int) -> PublishedPartition:
    if part.new is not None:
        first = log.append(part.new, part, now_us)
        return PublishedPartition(part.partition, first, first + part.new.count - 1, part.new.count, False)
    assert part.duplicate is not None
    places = part.duplicate.places
    if places is None:
        return PublishedPartition(part.partition, None, None, part.seen, True)
    return PublishedPartition(part.partition, places[0][0], sum(places[-1]) - 1, part.seen, True)


def _stored(part: Slice, partition: int, first: int) -> pa.RecordBatch:
    """RECORD_SCHEMA of a slice whose records begin at offset `first`."""
    records = part.records
    if isinstance(records, Rows):
        records = record_batch(
            pa.array(records.timestamps, pa.int64()).cast(TIMESTAMP),
            pa.array(records.values, pa.binary()),
            pa.array(records.keys, pa.binary()),
            headers_array(records.headers),
        )
    there = dict(zip(records.schema.names, records.columns, strict=True)) | {
        "partition": pa.array(np.full(part.count, partition, np.int32)),
        "offset": pa.array(np.arange(first, first + part.count, dtype=np.int64)),
    }
    columns = [there.get(field.name, nulls(part.count, field.type)) for field in RECORD_SCHEMA]
    return pa.RecordBatch.from_arrays(columns, schema=RECORD_SCHEMA)


def _exists(name: str, how: str = "") -> SiltlogError:
    return problem("topic_exists", f"there is a topic {name} already{how}", topic=name)
