"""Publishing, reading and topics over a log in memory."""

from collections.abc import Mapping
from typing import Any

import msgspec

from siltlog.consumers.reading.fetch import Fetcher, FetchPosition, FetchResult, find_topic
from siltlog.infra import names
from siltlog.infra.client.core import Response
from siltlog.infra.clock import Clock, format_us, parse_us
from siltlog.infra.errors import SiltlogError, problem
from siltlog.infra.listing.ranking import NAME, TOPIC_SORTS
from siltlog.infra.settings.topic_config import answered_at
from siltlog.ingest.producers.check import Producer
from siltlog.ingest.producers.headers import are_stored, placed_by, publisher
from siltlog.ingest.publish.answers import ProducerPartition, ProducerState
from siltlog.ingest.records.arrow import parse_arrow
from siltlog.ingest.records.body import fix_partition
from siltlog.testing.call import LIMITS, MIB, NOTHING, Call, Steps, page, ranked_page, reply, settled
from siltlog.testing.log import MemoryLog, MemoryTopic

FETCH_RECORDS = 100_000
FETCH_BYTES = 16 * MIB


class TopicRequest(msgspec.Struct, forbid_unknown_fields=True):
    name: str | None = None
    partitions: int | None = None
    config: dict[str, Any] = {}


class WantedPartition(msgspec.Struct, forbid_unknown_fields=True):
    topic: str
    partition: int
    offset: int
    max_bytes: int | None = None
    topic_id: str | None = None


class Wanted(msgspec.Struct, forbid_unknown_fields=True):
    partitions: list[WantedPartition]
    max_records: int = FETCH_RECORDS
    max_bytes: int = FETCH_BYTES
    wait_ms: int = 0
    isolation: str = "wal"


class TopicCalls:
    """Used by one thread at a time."""

    def __init__(self, log: MemoryLog, fetcher: Fetcher, clock: Clock, auto_create_partitions: int) -> None:
        self._log = log
        self._fetcher = fetcher
        self._clock = clock
        self._auto_create_partitions = auto_create_partitions

    def publish(self, call: Call) -> Response:
        [name] = call.names
        if names.is_system_topic(name):
            raise problem("forbidden", f"the topic {name!r} is the system's: it can be read, not published to")
        limit = LIMITS["request_bytes"]
        if len(call.body) > limit:
            raise problem("request_too_large", f"the body is above the limit of {limit} bytes", limit=limit)
        body = parse_arrow(call.body, limit)
        if "partition" in call.query:
            fix_partition(body, int(call.query["partition"]))
        body.stored = are_stored(call.headers)
        by = publisher(call.headers, body, call.body, names.MEDIA_ARROW, call.query.items())
        assert by is None or isinstance(by, Producer), "the Python client sends no idempotency key"
        counted = placed_by(call.headers)
        topic, new = self._target(name)
        # Whoever can repeat a request is told how far it came, also where the topic's own level is `none`.
        own = str(topic.config["acks"]).replace("none", "wal")
        try:
            acks = answered_at(own, call.query.get("acks") or own)
            parts = self._log.publish(topic, body, by, counted)
        except SiltlogError:
            if new:
                self._log.delete(name)
            raise
        return reply({"topic": name, "acks": acks, "partitions": parts})

    def _target(self, name: str) -> tuple[MemoryTopic, bool]:
        """The topic, and whether it was made for this request."""
        try:
            return self._log.topic(name), False
        except SiltlogError:
            if not self._auto_create_partitions:
                raise
        return self._log.create(name, self._auto_create_partitions, {}), True

    def claim(self, call: Call) -> Response:
        topic, producer_id = self._log.topic(call.names[0]), call.names[1]
        epoch = self._log.claim(topic, producer_id)
        parts = [
            ProducerPartition(log.partition, log.sequencer.next_sequence(producer_id), end - 1)
            for log in topic.partitions
            if (end := log.sequencer.end_of(producer_id)) is not None
        ]
        return reply(ProducerState(producer_id, epoch, parts))

    def fetch(self, call: Call) -> Steps:
        wanted = call.document(Wanted)
        ends = self._clock.monotonic() + min(wanted.wait_ms, LIMITS["wait_ms"]) / 1000
        while True:
            result = self._read(wanted)
            left = ends - self._clock.monotonic()
            if result.count or any(part.error for part in result.partitions) or left <= 0:
                body = b"".join(bytes(piece) for piece in result.arrow_buffers())
                return Response(200, {"content-type": names.MEDIA_ARROW}, body)
            yield left

    def _read(self, wanted: Wanted) -> FetchResult:
        positions = [
            FetchPosition(at.topic, at.partition, at.offset, at.max_bytes, at.topic_id) for at in wanted.partitions
        ]
        return settled(
            self._fetcher.fetch(
                positions,
                max_records=min(wanted.max_records, LIMITS["records"]),
                max_bytes=min(wanted.max_bytes, LIMITS["fetch_bytes"]),
                min_bytes=0,
                wait_ms=0,
                isolation=wanted.isolation,
            )
        )

    def offsets(self, call: Call) -> Response:
        topic = find_topic(self._log, call.names[0], call.query.get("topic_id"))
        asked = call.query.get("timestamp")
        partitions: list[dict[str, Any]] = []
        for log in topic.partitions:
            entry: dict[str, Any] = {"partition": log.partition, **log.bounds()._asdict()}
            if asked is not None:
                entry["offset"] = settled(self._fetcher.lookup.offset_at(topic, log, parse_us(asked)))
            partitions.append(entry)
        return reply({"topic": topic.name, "topic_id": topic.topic_id, "partitions": partitions})

    def list_topics(self, call: Call) -> Response:
        topics = self._log.topics()
        if "sort" not in call.query and "order" not in call.query:
            found, after = page(call, [topic.name for topic in topics])
            return reply({"topics": [_described(self._log.topic(name)) for name in found], "next": after})
        sort = call.query.get("sort", NAME)
        described = {topic.name: _described(topic) for topic in topics}
        # A log in memory has no tables and no rates: by those all of its topics are alike.
        values = {name: float(topic["records"]) if sort == "records" else 0.0 for name, topic in described.items()}
        found, after = ranked_page(call, values, tuple(one for one in TOPIC_SORTS if one != "lag"))
        more = {name: {} if sort == NAME else {"sort_value": values[name]} for name in found}
        return reply({"topics": [{**described[name], **more[name]} for name in found], "next": after})

    def create_topic(self, call: Call) -> Response:
        wanted = call.document(TopicRequest)
        topic = self._log.create(wanted.name or "", _count(wanted), wanted.config)
        return reply(_whole(topic), 201)

    def put_topic(self, call: Call) -> Response:
        wanted = call.document(TopicRequest)
        topic, new = self._log.find_or_create(call.names[0], wanted.partitions, wanted.config)
        return reply(_whole(topic), 201 if new else 200)

    def describe_topic(self, call: Call) -> Response:
        return reply(_whole(self._log.topic(call.names[0])))

    def alter_topic(self, call: Call) -> Response:
        wanted = call.document(TopicRequest)
        return reply(_whole(self._log.alter(call.names[0], wanted.partitions, wanted.config)))

    def delete_topic(self, call: Call) -> Response:
        self._log.delete(call.names[0])
        return NOTHING

    def delete_records(self, call: Call) -> Response:
        topic, partition = self._log.topic(call.names[0]), int(call.names[1])
        asked = call.query.get("before_offset", "")
        if asked != "latest" and not asked.isdigit():
            raise problem("invalid_parameter", f"before_offset must be a whole number or latest, not {asked!r}")
        bounds = self._log.move_log_start(topic, partition, None if asked == "latest" else int(asked))
        return reply({"topic": topic.name, "partition": partition, **bounds._asdict()})


def _count(wanted: TopicRequest) -> int:
    return 1 if wanted.partitions is None else wanted.partitions


def _whole(topic: MemoryTopic) -> Mapping[str, Any]:
    """The document of a topic that is told of alone. A log in memory has no table, no head and no write-ahead log."""
    described = _described(topic)
    return {**described, "offsets": [{**bounds, "bytes": 0, "files": 0} for bounds in described["offsets"]]}


def _described(topic: MemoryTopic) -> Mapping[str, Any]:
    bounds = [(log.partition, log.bounds()) for log in topic.partitions]
    return {
        "name": topic.name,
        "topic_id": topic.topic_id,
        "partitions": len(topic.partitions),
        "created_at": format_us(topic.created_us),
        "table_uri": f"memory:/{names.topic_path(topic.name)}",
        "config": topic.config.describe(),
        "records": sum(it.high_watermark - it.log_start_offset for _, it in bounds),
        "bytes": 0,
        "files": 0,
        "offsets": [{"partition": partition, **it._asdict()} for partition, it in bounds],
    }
