"""Appending from inside the server, and the topics of the system that are appended to."""

from collections.abc import Mapping, Sequence

from siltlog.infra import names
from siltlog.infra.errors import SiltlogError, problem
from siltlog.infra.limits import INTEGER_MAX
from siltlog.infra.records import NewRecord
from siltlog.infra.settings.topic_config import UNLIMITED, Value
from siltlog.ingest.log.log import Log
from siltlog.ingest.log.topic import TopicLog
from siltlog.ingest.producers.check import Producer
from siltlog.ingest.publish.publishing import Publisher, Publishing
from siltlog.ingest.records.body import Body, Rows, from_rows, record_bytes
from siltlog.ingest.topics.deletion import LogStarts
from siltlog.ingest.topics.topics import Topics

APPEND_MS_MAX = 10_000


class SystemTopics:
    """Satisfies `SystemLog` of the consumers. Used on the log's event loop."""

    def __init__(self, log: Log, topics: Topics, publishing: Publishing, log_starts: LogStarts) -> None:
        self._log = log
        self._topics = topics
        self._publishing = publishing
        self._log_starts = log_starts

    async def ensure(self, name: str, partitions: int, config: Mapping[str, Value]) -> TopicLog:
        return await self._topics.ensure_system(name, partitions, config)

    async def dead_letters(self, topic: str) -> TopicLog:
        source = self._log.topic(topic)
        config: dict[str, Value] = {"acks": "object"} if source.journaled else {}
        config |= {
            # Every record of the topic fits, whatever its limit becomes, and stays until somebody has looked at it.
            "max.record.bytes": INTEGER_MAX,
            "retention.ms": UNLIMITED,
        }
        return await self.ensure(names.dead_letter_topic(topic), len(source.partitions), config)

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
        if not records:
            return []
        target = self._log.topic(topic)
        target.partition(partition)
        if epoch and self.epoch_of(topic) != epoch:
            raise problem("not_owner", f"this node does not own the topic {topic} as it did", topic=topic)
        by = Publisher(Producer(producer_id, 0, increasing=True) if producer_id else None)
        body = _body(partition, records, sequences)
        published = await self._publishing.publish(target, body, by, "wal", APPEND_MS_MAX)
        return [offset for _, offset in published.appended.positions()]

    async def delete_records(self, topic: str, partition: int, before_offset: int) -> int:
        bounds = await self._log_starts.delete_records(self._log.topic(topic), partition, before_offset)
        return bounds.log_start_offset

    def epoch_of(self, topic: str) -> int:
        try:
            return max(log.epoch for log in self._log.topic(topic).partitions)
        except SiltlogError:
            return 0

    async def last_of(self, topic: str, partition: int, producer_id: str) -> tuple[int, int] | None:
        sequencer = self._log.topic(topic).partition(partition).sequencer
        end = sequencer.end_of(producer_id)
        return None if end is None else (sequencer.next_sequence(producer_id) - 1, end - 1)

    async def producers_of(self, topic: str, prefix: str) -> set[str]:
        partitions = self._log.topic(topic).partitions
        return {known for log in partitions for known in log.sequencer.producers if known.startswith(prefix)}


def _body(partition: int, records: Sequence[NewRecord], sequences: Sequence[int]) -> Body:
    assert not sequences or len(sequences) == len(records), "one sequence for each record"
    rows = Rows(
        [record.timestamp_us for record in records],
        [record.key for record in records],
        [record.value for record in records],
        [list(record.headers) or None for record in records],
        [partition] * len(records),
        list(sequences) or [None] * len(records),
    )
    nbytes = sum(record_bytes(record.value, record.key, list(record.headers)) for record in records)
    body = from_rows(rows, nbytes)
    body.stored = True
    return body
