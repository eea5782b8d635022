"""Each call that is one request and one answer: as an operation of the HTTP API, and its answer as a message. Pure."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple, TypeVar

import msgspec
from google.protobuf.message import DecodeError, Message

from siltlog.consumers.groups.answers import Assignment
from siltlog.consumers.reading.answers import TopicOffsets
from siltlog.infra import names
from siltlog.infra.clock import TIME_MAX_US, TIME_MIN_US, format_us
from siltlog.infra.errors import problem
from siltlog.infra.grpc.calls import Asked, segment
from siltlog.infra.grpc.made import silt_pb2 as pb
from siltlog.infra.grpc.records import add_records, fetched, few_published, published_stream
from siltlog.infra.grpc.status import problem_of
from siltlog.infra.http.requests import encode_json
from siltlog.ingest.publish.answers import Published
from siltlog.ingest.topics import answers as topics

M = TypeVar("M", bound=Message)
ACKS = {
    pb.ACKS_NONE: "none",
    pb.ACKS_WRITTEN: "written",
    pb.ACKS_WAL: "wal",
    pb.ACKS_OBJECT: "object",
    pb.ACKS_TABLE: "table",
}
ISOLATIONS = {pb.ISOLATION_WAL: "wal", pb.ISOLATION_TABLE: "table"}
RESETS = {pb.OFFSET_RESET_EARLIEST: "earliest", pb.OFFSET_RESET_LATEST: "latest", pb.OFFSET_RESET_ERROR: "error"}
_ACKS_OF = {name: number for number, name in ACKS.items()}
_MAX_RECORDS, _MAX_BYTES = 500, 1024 * 1024
"""What a fetch of messages gives, as one of JSON does; an Arrow stream has defaults of its own."""
_published = msgspec.json.Decoder(Published)
_topic = msgspec.json.Decoder(topics.Topic)
_topics = msgspec.json.Decoder(topics.Topics)
_offsets = msgspec.json.Decoder(TopicOffsets)
_assignment = msgspec.json.Decoder(Assignment)


class Method(NamedTuple):
    """A method of one request and one answer. `answered` gets the request, and the body of the answer."""

    request: type[Message]
    asked: Callable[[Any], Asked]
    answered: Callable[[Any, bytes], Message]
    carrying: Callable[[Any, bytes], Asked] | None = None
    """What a request asks for whose Arrow stream was taken out of it."""


def parsed(kind: type[M], data: bytes) -> M:
    """Raises Refused `malformed_body`."""
    try:
        message: M = kind.FromString(data)
    except DecodeError:
        raise problem("malformed_body", f"what was sent is no {kind.DESCRIPTOR.full_name} in protobuf") from None
    return message


# Publishing.


def publish(message: pb.PublishRequest, stream: bytes | None = None) -> Asked:
    """`stream` is the message's Arrow stream, where that was taken out of it."""
    if stream is None and message.HasField("arrow_stream"):
        stream = message.arrow_stream
    if stream is not None and message.records:
        raise problem("invalid_request", "records and arrow_stream are both given; send one")
    query: dict[str, str | int] = {}
    if message.acks:
        query["acks"] = _named("acks", message.acks, ACKS)
    for name in ("timeout_ms", "partition"):
        if message.HasField(name):
            query[name] = getattr(message, name)
    media, body = (names.MEDIA_ARROW, stream) if stream is not None else _records(message)
    headers = {"Content-Type": media}
    if message.HasField("idempotency_key"):
        headers[names.HEADER_IDEMPOTENCY_KEY] = message.idempotency_key
    if message.HasField("producer"):
        headers |= _producer(message.producer)
    return Asked(
        method="POST",
        path=f"/v1/topics/{segment('topic', message.topic)}/records",
        query=query,
        headers=headers,
        body=body,
    )


def _records(message: pb.PublishRequest) -> tuple[str, bytes]:
    """The media type and the body of a publish of records."""
    # A key of idempotency knows its request by the bytes of the body: they stay what former releases made them.
    few = None if message.HasField("idempotency_key") else few_published(message.records)
    return (names.MEDIA_ARROW, published_stream(message.records)) if few is None else (names.MEDIA_JSON, few)


def _producer(producer: pb.Producer) -> dict[str, str]:
    headers = {names.HEADER_PRODUCER_ID: producer.id, names.HEADER_PRODUCER_EPOCH: str(producer.epoch)}
    if producer.HasField("first_sequence"):
        headers[names.HEADER_SEQUENCE] = str(producer.first_sequence)
    if producer.increasing:
        headers[names.HEADER_SEQUENCE_MODE] = "increasing"
    return headers


def published(message: pb.PublishRequest, body: bytes) -> pb.PublishResponse:
    told = _published.decode(body)
    return pb.PublishResponse(
        topic=told.topic,
        acks=_ACKS_OF[told.acks],
        partitions=[
            pb.PublishedPartition(
                partition=part.partition,
                first_offset=part.first_offset,
                last_offset=part.last_offset,
                count=part.count,
                duplicate=part.duplicate,
            )
            for part in told.partitions
        ],
    )


# Reading.


def fetch(message: pb.FetchRequest) -> Asked:
    partitions = []
    for at in message.partitions:
        one: dict[str, Any] = {"topic": at.topic, "partition": at.partition, "offset": at.offset}
        partitions.append(one | _those_given(at, "max_bytes", "topic_id"))
    body: dict[str, Any] = {"partitions": partitions, "wait_ms": message.wait_ms}
    if not message.arrow:
        body |= {"max_records": _MAX_RECORDS, "max_bytes": _MAX_BYTES}
    body |= _those_given(message, "max_records", "max_bytes", "min_bytes")
    if message.isolation:
        body["isolation"] = _named("isolation", message.isolation, ISOLATIONS)
    return _with_body("POST", "/v1/fetch", body, {"Accept": names.MEDIA_ARROW})


def fetch_answered(message: pb.FetchRequest, body: bytes) -> pb.FetchResponse:
    partitions, batches = fetched(body)
    told = pb.FetchResponse()
    for part in partitions:
        told.partitions.append(
            pb.FetchedPartition(
                topic=part["topic"],
                partition=part["partition"],
                next_offset=part["next_offset"],
                log_start_offset=part["log_start_offset"],
                table_offset=part["table_offset"],
                high_watermark=part["high_watermark"],
                error=None if part["error"] is None else problem_of(part["error"]),
            )
        )
    if message.arrow:
        told.arrow_stream = body
    else:
        add_records(told.records, batches)
    return told


def list_offsets(message: pb.ListOffsetsRequest) -> Asked:
    query: dict[str, str | int] = {}
    if message.HasField("timestamp_us"):
        if not TIME_MIN_US <= message.timestamp_us <= TIME_MAX_US:
            raise problem(
                "invalid_parameter", "timestamp_us is beyond the years 1 to 9999: send microseconds since 1970",
                parameter="timestamp_us",
            )  # fmt: skip
        query["timestamp"] = format_us(message.timestamp_us)
    if message.HasField("topic_id"):
        query["topic_id"] = message.topic_id
    return Asked(method="GET", path=f"/v1/topics/{segment('topic', message.topic)}/offsets", query=query)


def offsets(message: pb.ListOffsetsRequest, body: bytes) -> pb.ListOffsetsResponse:
    told = _offsets.decode(body)
    return pb.ListOffsetsResponse(topic=told.topic, topic_id=told.topic_id, partitions=_bounds(told.partitions))


def _bounds(partitions: Iterable[Any]) -> list[pb.PartitionOffsets]:
    return [
        pb.PartitionOffsets(
            partition=part.partition,
            log_start_offset=part.log_start_offset,
            table_offset=part.table_offset,
            high_watermark=part.high_watermark,
            offset=None if (offset := getattr(part, "offset", msgspec.UNSET)) is msgspec.UNSET else offset,
        )
        for part in partitions
    ]


# Topics.


def create_topic(message: pb.CreateTopicRequest) -> Asked:
    body: dict[str, Any] = {"name": message.name} | _those_given(message, "partitions")
    if message.config:
        body["config"] = {name: _config_value(value) for name, value in message.config.items()}
    return _with_body("POST", "/v1/topics", body)


def describe_topic(message: pb.DescribeTopicRequest) -> Asked:
    return Asked(method="GET", path=f"/v1/topics/{segment('topic', message.topic)}")


def delete_topic(message: pb.DeleteTopicRequest) -> Asked:
    return Asked(method="DELETE", path=f"/v1/topics/{segment('topic', message.topic)}")


def list_topics(message: pb.ListTopicsRequest) -> Asked:
    query = {name: value for name, value in (("prefix", message.prefix), ("after", message.after)) if value}
    return Asked(method="GET", path="/v1/topics", query={**query, **_those_given(message, "limit")})


def topic(message: Message, body: bytes) -> pb.Topic:
    return _topic_message(_topic.decode(body))


def topics_answered(message: pb.ListTopicsRequest, body: bytes) -> pb.ListTopicsResponse:
    page = _topics.decode(body)
    return pb.ListTopicsResponse(topics=[_topic_message(one) for one in page.topics], next=page.next)


def _topic_message(found: topics.Topic) -> pb.Topic:
    return pb.Topic(
        name=found.name,
        topic_id=found.topic_id,
        partitions=found.partitions,
        created_at=found.created_at,
        table_uri=found.table_uri,
        config={
            name: pb.ConfigValue(text=entry.value)
            if isinstance(entry.value, str)
            else pb.ConfigValue(number=entry.value)
            for name, entry in found.config.items()
        },
        records=found.records,
        bytes=found.bytes,
        files=found.files,
        offsets=_bounds(found.offsets),
    )


def _config_value(value: pb.ConfigValue) -> int | str | None:
    which = value.WhichOneof("value")
    return None if which is None else getattr(value, which)


# Groups.


def member_settings(settings: pb.MemberSettings) -> dict[str, Any]:
    """The settings of a member that were given, as the HTTP API calls them."""
    found = _those_given(
        settings, "topic_pattern", "client_id", "instance_id", "session_timeout_ms", "rebalance_timeout_ms"
    )
    if settings.topics:
        found["topics"] = list(settings.topics)
    if settings.auto_offset_reset:
        found["auto_offset_reset"] = _named("auto_offset_reset", settings.auto_offset_reset, RESETS)
    return found


def join(message: pb.JoinRequest) -> Asked:
    return _with_body("PUT", _member_path(message), {"generation": 0, **member_settings(message.settings)})


def heartbeat(message: pb.HeartbeatRequest) -> Asked:
    if not message.generation:
        raise problem("invalid_request", "a heartbeat has the generation of the last reply; Join gives the first")
    body: dict[str, Any] = {"generation": message.generation, "wait_ms": message.wait_ms}
    if message.HasField("settings"):
        body |= member_settings(message.settings)
    if message.HasField("owned"):
        body["owned"] = [{"topic": at.topic, "partition": at.partition} for at in message.owned.partitions]
    return _with_body("PUT", _member_path(message), body)


def membership(message: Message, body: bytes) -> pb.Membership:
    told = _assignment.decode(body)
    found = pb.Membership(generation=told.generation, heartbeat_interval_ms=told.heartbeat_interval_ms)
    if told.assignment is not None:
        # Also where it is empty.
        found.assignment.SetInParent()
        for at in told.assignment:
            delivered = None if at.delivered is msgspec.UNSET else at.delivered
            found.assignment.partitions.add(
                topic=at.topic, partition=at.partition, topic_id=at.topic_id, offset=at.offset, delivered=delivered
            )
    return found


def leave(message: pb.LeaveRequest) -> Asked:
    return Asked(method="DELETE", path=_member_path(message))


def commit(message: pb.CommitRequest) -> Asked:
    body: dict[str, Any] = {"offsets": [committed_offset(at) for at in message.offsets]}
    body |= _those_given(message, "member_id", "generation")
    return _with_body("PUT", f"/v1/groups/{segment('group', message.group)}/offsets", body)


def committed_offset(at: pb.CommittedOffset) -> dict[str, Any]:
    found: dict[str, Any] = {"topic": at.topic, "partition": at.partition, "offset": at.offset}
    if at.metadata:
        found["metadata"] = at.metadata
    return found | _those_given(at, "delivered")


def _member_path(message: Any) -> str:
    return f"/v1/groups/{segment('group', message.group)}/members/{segment('member', message.member_id)}"


# What all have.


def _with_body(method: str, path: str, body: Mapping[str, Any], headers: Mapping[str, str] | None = None) -> Asked:
    return Asked(
        method=method,
        path=path,
        headers={"Content-Type": names.MEDIA_JSON, **(headers or {})},
        body=encode_json(body),
    )


def _those_given(message: Any, *fields: str) -> dict[str, Any]:
    return {name: getattr(message, name) for name in fields if message.HasField(name)}


def _named(field: str, number: Any, known: Mapping[Any, str]) -> str:
    name = known.get(number)
    if name is None:
        raise problem(
            "invalid_parameter", f"{field} is {number}, which stands for nothing here: {', '.join(known.values())}",
            parameter=field,
        )  # fmt: skip
    return name


METHODS: Mapping[str, Method] = {
    "Publish": Method(pb.PublishRequest, publish, published, carrying=publish),
    "Fetch": Method(pb.FetchRequest, fetch, fetch_answered),
    "ListOffsets": Method(pb.ListOffsetsRequest, list_offsets, offsets),
    "CreateTopic": Method(pb.CreateTopicRequest, create_topic, topic),
    "DescribeTopic": Method(pb.DescribeTopicRequest, describe_topic, topic),
    "ListTopics": Method(pb.ListTopicsRequest, list_topics, topics_answered),
    "DeleteTopic": Method(pb.DeleteTopicRequest, delete_topic, lambda _, __: pb.DeleteTopicResponse()),
    "Join": Method(pb.JoinRequest, join, membership),
    "Heartbeat": Method(pb.HeartbeatRequest, heartbeat, membership),
    "Leave": Method(pb.LeaveRequest, leave, lambda _, __: pb.LeaveResponse()),
    "Commit": Method(pb.CommitRequest, commit, lambda _, __: pb.CommitResponse()),
}
