"""A publish of one small body that asks for nothing special: checked, appended and answered without waiting for it."""

from siltlog.infra import names
from siltlog.infra.errors import SiltlogError, UnknownTopic
from siltlog.ingest.acknowledgement import late
from siltlog.ingest.body import Body, one_record
from siltlog.ingest.json_body import parse_json
from siltlog.ingest.log import Appended, Log
from siltlog.ingest.publish_reply import publish_reply
from siltlog.ingest.topic_log import TopicLog

MEDIA = (names.MEDIA_JSON, names.MEDIA_BYTES)
_ACKS = "wal"


class SmallPublish:
    """One for the server. What it refuses, and how it answers, is what `Publish` does with the same request."""

    def __init__(self, log: Log) -> None:
        self._log = log

    def topic(self, name: str) -> TopicLog | None:
        """The topic, when a publish to it needs no more than a sync."""
        if self._log.draining:
            return None
        try:
            topic = self._log.topic(name)
        except UnknownTopic:
            return None
        plain = topic.state == "open" and topic.paused is None and topic.config["acks"] == _ACKS
        return topic if plain else None

    def append(self, topic: TopicLog, media: str, content: bytes) -> tuple[Body, Appended]:
        """Raises SiltlogError; then nothing was appended."""
        body = parse_json(content) if media == names.MEDIA_JSON else one_record(content, None, None, None)
        return body, self._log.append(topic, body, None)

    def reply(self, topic: TopicLog, body: Body, appended: Appended) -> bytes:
        """The document for records that are durable. Raises Unavailable when the topic is another node's by now."""
        if topic.state == "fenced":
            raise topic.gone()
        topic.records_total += body.count
        topic.bytes_total += body.nbytes
        return publish_reply(topic, appended, _ACKS, positions=body.positions).body

    def late(self, topic: TopicLog) -> SiltlogError:
        return late(topic, _ACKS, "none")
