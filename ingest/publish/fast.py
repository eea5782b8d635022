"""A publish of one small body: checked, appended and answered without a task that waits for it."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass

from siltlog.infra import names
from siltlog.infra.errors import SiltlogError, UnknownTopic
from siltlog.infra.limits import PARTITION_MAX
from siltlog.ingest.log.log import Appended, Log
from siltlog.ingest.log.topic import TopicLog
from siltlog.ingest.producers import headers as producer_headers
from siltlog.ingest.producers.check import Producer
from siltlog.ingest.producers.idempotency import IdempotencyKey
from siltlog.ingest.publish.acknowledgement import late
from siltlog.ingest.publish.reply import count, publish_reply
from siltlog.ingest.records.arrow import parse_arrow
from siltlog.ingest.records.arrow_messages import inflated_within
from siltlog.ingest.records.body import Body, fix_partition, one_record
from siltlog.ingest.records.json import parse_json

MEDIA = (names.MEDIA_JSON, names.MEDIA_BYTES, names.MEDIA_ARROW)
HEADERS = producer_headers.NAMES
"""Those it acts on, in lower case."""
INFLATED_BYTES_MAX = 256 * 1024
_ACKS = "wal"


@dataclass(slots=True)
class Published:
    topic: TopicLog
    body: Body
    by: Producer | IdempotencyKey | None
    appended: Appended

    def waits_for(self) -> asyncio.Future[None] | None:
        """A sync of another request that had these records first; None once all are durable."""
        if self.by is None:
            return None
        ends = self.appended.ends
        return next((wait for log, end in ends if (wait := log.when_synced(end)) is not None), None)


class SmallPublish:
    """One for the server. What it refuses, and how it answers, is what `Publish` does with the same request."""

    def __init__(self, log: Log, request_bytes_max: int) -> None:
        self._log = log
        self._bytes_max = request_bytes_max

    def topic(self, name: str) -> TopicLog | None:
        """The topic, when a publish to it needs no more than a sync."""
        if self._log.draining:
            return None
        try:
            topic = self._log.topic(name)
        except UnknownTopic:
            return None
        plain = topic.state == "open" and topic.paused is None and topic.config["acks"] == _ACKS and not topic.system
        return topic if plain else None

    def suits(self, media: str, content: bytes) -> bool:
        """Whether so few bytes are really few."""
        return media != names.MEDIA_ARROW or inflated_within(content, INFLATED_BYTES_MAX)

    def append(
        self, topic: TopicLog, media: str, content: bytes, headers: Mapping[str, str], partition: str = ""
    ) -> Published:
        """`partition` is what the query says. Raises SiltlogError; then nothing was appended."""
        if media == names.MEDIA_JSON:
            body = parse_json(content)
        elif media == names.MEDIA_BYTES:
            body = one_record(content, None, None, None)
        else:
            body = parse_arrow(content, self._bytes_max)
        asked: tuple[tuple[str, str], ...] = ()
        if partition:
            fix_partition(body, int(partition))
            asked = (("partition", partition),)
        if not headers:
            return Published(topic, body, None, self._log.append(topic, body, None))
        by = producer_headers.publisher(headers, body, content, media, asked)
        partition_count = producer_headers.header_integer(headers, names.HEADER_PARTITION_COUNT, PARTITION_MAX)
        return Published(topic, body, by, self._log.append(topic, body, by, partition_count))

    def told_once(self, error: Exception) -> asyncio.Future[None] | None:
        """What the answer that refuses waits for; None when it need not wait."""
        return self._log.told_once(error)

    def reply(self, published: Published) -> bytes:
        """The document for records that are durable. Raises when the topic has ended, or is another node's."""
        topic = published.topic
        if topic.state in ("fenced", "deleted"):
            raise topic.gone()
        count(topic, published.body, published.appended, published.by)
        return publish_reply(topic, published.appended, _ACKS, positions=published.body.positions).body

    def late(self, topic: TopicLog) -> SiltlogError:
        return late(topic, _ACKS, "none")
