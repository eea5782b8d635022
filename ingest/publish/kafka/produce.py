"""Publishing what producers of Kafka send: batches of many partitions, each of which succeeds or fails alone.

All that a request has is appended in one turn of the event loop, and so shares one group commit. Only one of very many
batches takes several: it would hold up all others.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from siltlog.infra import producer_names
from siltlog.infra.arrow.partitioner import PARTITIONERS
from siltlog.infra.errors import SiltlogError, problem
from siltlog.infra.http.connection.hang_up import HangUp
from siltlog.infra.kafka.batch import ATTRIBUTES, BatchHead, Rejected, check, numbering
from siltlog.infra.kafka.columns import US_PER_MS, Columns
from siltlog.infra.kafka.errors import KafkaError
from siltlog.infra.limits import TURN_ITEMS
from siltlog.ingest.log.topic import TopicLog
from siltlog.ingest.producers.check import Producer
from siltlog.ingest.publish.kafka.body import body_of, check_tombstones
from siltlog.ingest.publish.kafka.refused import RefusedBatches, Sender
from siltlog.ingest.publish.kafka.sequences import own_sequence
from siltlog.ingest.publish.publishing import ANYBODY, Absent, Acks, Published, Publisher, Publishing
from siltlog.ingest.records.body import ROWS_MAX, Body

INLINE_BYTES_MAX = 256 * 1024
"""What is larger is read on a thread."""
SENT_BYTES_MAX = 4 * 1024
"""Larger batches are not kept as they were sent: for a reader they are soon made, and copies of them cost memory."""


@dataclass(slots=True)
class PartitionBatch:
    """What a request has for one partition, and how far that has come. `error` says why it ends here."""

    topic: str
    partition: int
    records: memoryview | None
    error: Exception | None = None
    head: BatchHead | None = None
    columns: Columns | None = None
    published: Published | None = None
    told: "tuple[TopicLog, asyncio.Future[None]] | None" = None
    """What is waited for before `error` may be told."""
    base_offset: int = -1
    log_start_offset: int = -1


class Produce:
    """Used on the log's event loop."""

    def __init__(self, publishing: Publishing, now: Callable[[], float]) -> None:
        """`now` gives the seconds of a clock that never goes back."""
        self._publishing = publishing
        self._now = now
        self._refused = RefusedBatches()
        self.misplaced: dict[str, int] = {}
        """Batches whose first key belongs elsewhere, by topic; they are taken, for clients place keys themselves."""

    async def read(self, batches: Sequence[PartitionBatch], inflated_bytes_max: int) -> int:
        """Checks the batches and makes columns of them; gives the bytes of their records, inflated.

        All together may inflate to `inflated_bytes_max`.
        """
        nbytes = sum(len(batch.records or b"") for batch in batches)
        if nbytes > INLINE_BYTES_MAX or len(batches) > TURN_ITEMS:
            return await asyncio.to_thread(_read, batches, inflated_bytes_max)
        return _read(batches, inflated_bytes_max)

    async def append(self, batches: Sequence[PartitionBatch], acks: Acks | None) -> None:
        """Appends what was read, in one turn of the event loop up to TURN_ITEMS batches. Afterwards nothing of the
        request's bytes is needed."""
        for number, batch in enumerate(batches):
            if number and number % TURN_ITEMS == 0:
                await asyncio.sleep(0)
            if batch.error is None:
                try:
                    self._append(batch, acks)
                except (SiltlogError, Rejected) as error:
                    batch.error = error
            if batch.error is not None:
                said = numbering(batch.records)
                if said is not None:
                    self._refused.add(_sender(batch, *said[:2]), said.first_sequence, self._now())
            batch.records = batch.head = batch.columns = None

    async def acknowledged(
        self, batches: Sequence[PartitionBatch], timeout_ms: int, hang_up: HangUp | None = None
    ) -> None:
        """Returns once each of the batches has reached its acks, or has failed; one that waits for more than the WAL
        fails once its client has hung up."""
        deadline = self._now() + timeout_ms / 1000
        for number, batch in enumerate(batches, 1):
            if number % TURN_ITEMS == 0:
                await asyncio.sleep(0)
            left_ms = max(int((deadline - self._now()) * 1000), 1)
            try:
                if batch.told is not None:
                    await self._publishing.kept(*batch.told, left_ms)
                elif batch.published is not None:
                    _tell_offsets(batch, await self._publishing.acknowledged(batch.published, left_ms, hang_up))
            except SiltlogError as error:
                batch.error = error

    def _append(self, batch: PartitionBatch, acks: Acks | None) -> None:
        topic = self._publishing.topic(batch.topic)
        if isinstance(topic, Absent):
            raise problem("unknown_topic", f"there is no topic {batch.topic[:200]!r}")
        if topic.paused is not None:
            raise problem("topic_unavailable", f"the topic {topic.name} takes no records for a moment")
        self._publishing.check_room(topic)
        log = topic.partition(batch.partition)
        head = batch.head
        assert head is not None, "what has no error was read"
        by, first = ANYBODY, None
        sender: Sender | None = None
        if head.producer_id >= 0:
            who = Producer(producer_names.kafka_producer(head.producer_id), head.producer_epoch, restarts=True)
            by = Publisher(who)
            place = log.sequencer.place_of(who.producer_id)
            first = own_sequence(head.first_sequence, head.producer_epoch, place)
            sender = _sender(batch, head.producer_id, head.producer_epoch)
            if place is None and self._refused.has_before(sender, head.first_sequence, self._now()):
                first = None
            if first is None:
                raise Rejected(
                    KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER,
                    f"producer {head.producer_id}, topic {topic.name}, partition {batch.partition}: sequence "
                    f"{head.first_sequence} of epoch {head.producer_epoch} is not next in line",
                )
        body = body_of(batch.partition, head, batch.columns, first)
        if log.head.keeps_sent and _is_as_sent(batch, head, body, topic):
            body.sent = bytes(batch.records or b"")
        if "compact" in str(topic.config["cleanup.policy"]):
            check_tombstones(body)
        try:
            # Who can repeat a batch is told how far it came.
            level = "wal" if acks == "none" and by.who is not None else acks
            batch.published = self._publishing.append_now(topic, body, by, level)
            if sender is not None:
                self._refused.taken(sender)
            if len(topic.partitions) > 1 and not _is_placed(body, batch.partition, topic):
                self.misplaced[topic.name] = self.misplaced.get(topic.name, 0) + 1
        except SiltlogError as error:
            wait = self._publishing.told_once(error)
            if wait is not None:
                batch.told = (topic, wait)
            raise


def _is_as_sent(batch: PartitionBatch, head: BatchHead, body: Body, topic: TopicLog) -> bool:
    """Whether a batch is small, and a reader may have it as it was sent: the log has just what it says."""
    raw, rows = batch.records, body.rows
    if raw is None or rows is None or len(raw) > SENT_BYTES_MAX or topic.config["timestamp.type"] == "append":
        return False
    # Any attribute says that something is special, a codec foremost; records without a time get that of the append.
    times = [time for time in rows.timestamps if time is not None]
    return (
        bytes(raw[ATTRIBUTES]) == b"\0\0"
        and len(times) == body.count
        and max(times) == head.max_timestamp_ms * US_PER_MS
    )


def _is_placed(body: Body, partition: int, topic: TopicLog) -> bool:
    """Whether the first record of a batch is where its key belongs, if it has one."""
    key = body.rows.keys[0] if body.rows is not None else body.key[0].as_py() if body.key is not None else None
    if key is None:
        return True
    by = PARTITIONERS[str(topic.config["partitioner"])]
    return by.partition_of(key, len(topic.partitions)) == partition


def _sender(batch: PartitionBatch, producer_id: int, epoch: int) -> Sender:
    return Sender(batch.topic, batch.partition, producer_id, epoch)


def _read(batches: Sequence[PartitionBatch], inflated_bytes_max: int) -> int:
    taken = 0
    for batch in batches:
        if batch.error is not None:
            continue
        try:
            if batch.records is None:
                raise Rejected(KafkaError.INVALID_RECORD, "there is no record batch")
            batch.head = check(batch.records, inflated_bytes_max - taken)
            if batch.head.rows > ROWS_MAX:
                batch.columns = batch.head.content.columns()
        except Rejected as error:
            batch.error = error
        else:
            taken += len(batch.head.records)
    return taken


def _tell_offsets(batch: PartitionBatch, published: Published) -> None:
    [ack] = published.appended.acks
    batch.log_start_offset = published.topic.partition(ack.partition).bounds().log_start_offset
    if ack.first_offset is None:
        batch.error = Rejected(
            KafkaError.DUPLICATE_SEQUENCE_NUMBER,
            "the records were seen before, and where they are is not known any more",
        )
    else:
        batch.base_offset = ack.first_offset
