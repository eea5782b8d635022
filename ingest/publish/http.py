"""`POST /v1/topics/{topic}/records`: a body becomes columns, an append, an acknowledgement."""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, cast

import msgspec
from msgspec import UNSET, Meta, UnsetType
from starlette.requests import Request
from starlette.types import Receive, Scope, Send

from siltlog.infra import names
from siltlog.infra.arrow.partitioner import PARTITIONERS
from siltlog.infra.errors import SiltlogError
from siltlog.infra.http.coding import CODINGS
from siltlog.infra.http.connection.hang_up import HANG_UP
from siltlog.infra.http.memory import held_of
from siltlog.infra.http.operations import (
    ANYTHING,
    TEXT,
    TIME,
    TOPIC,
    Content,
    choice,
    in_header,
    in_query,
    json_answer,
    on_topic,
    operation,
    recorded_making,
    whole,
)
from siltlog.infra.http.query import Query
from siltlog.infra.http.requests import APPENDED, BodyReader, JsonReply
from siltlog.infra.limits import EPOCH_MAX, INTEGER_MAX, PARTITION_MAX
from siltlog.infra.security.grant import grant_of
from siltlog.ingest.producers.headers import are_stored, placed_by, publisher
from siltlog.ingest.publish.answers import Published
from siltlog.ingest.publish.publishing import ACKS, Absent, Acks, Publisher, Publishing
from siltlog.ingest.publish.reply import publish_reply
from siltlog.ingest.records.body import fix_partition
from siltlog.ingest.records.formats import PARAMETERS, BodyParser, checked_coding, checked_media

if TYPE_CHECKING:
    from siltlog.infra.tracing.serving import Serving

TIMEOUT_MS = 10_000
TIMEOUT_MS_MAX = 60_000
_QUERY = frozenset(("acks", "partition", "timeout_ms"))
_QUERY_BY_MEDIA = {media: _QUERY | own for media, own in PARAMETERS.items()}


class GivenHeader(msgspec.Struct, forbid_unknown_fields=True):
    key: str
    value: str | None = None
    value_base64: str | None = None


class GivenRecord(msgspec.Struct, forbid_unknown_fields=True):
    """`value` is required: a string is stored as its text, null (with a key) is a tombstone, anything else is stored as
    its JSON text exactly as sent; `value_base64` takes any bytes. `topic`, `offset` and `producer` are passed over, so
    that what was read can be published again."""

    value: Any | UnsetType = UNSET
    value_base64: str | None = None
    key: str | None = None
    key_base64: str | None = None
    headers: dict[str, str | None] | list[GivenHeader] | None = None
    timestamp: Annotated[int | str | None, Meta(description="RFC 3339 or milliseconds")] = None
    partition: Annotated[int, Meta(ge=0, le=PARTITION_MAX)] | None = None
    sequence: Annotated[int, Meta(ge=0, le=INTEGER_MAX)] | None = None
    topic: Any | UnsetType = UNSET
    offset: Any | UnsetType = UNSET
    producer: Any | UnsetType = UNSET


class GivenRecords(msgspec.Struct, forbid_unknown_fields=True):
    records: Annotated[list[GivenRecord], Meta(min_length=1)]


_TEXT_PUBLISH = """\
One request is one unit: refused whole, or appended whole. The reply comes once `acks` is met for every record.

- `application/json`: record objects. `?key_from=` takes each key from the value.
- `application/x-ndjson`: one value a line, stored byte for byte; `?lines=record`: one record object a line.
- `application/octet-stream`: one record, whose value is the body; `?key=`, `?timestamp=`, and `Silt-Header-{name}`
  headers for headers of the record.
- `application/vnd.apache.arrow.stream`: an Arrow IPC stream with the columns `value` and if wanted `key`, `headers`,
  `timestamp`, `partition`, `sequence`.

`Content-Encoding: gzip`, `zstd` or `deflate` is taken with all of them. What was read can be published again as it is.
To publish exactly once, send `Idempotency-Key`, or be a producer: `Silt-Producer-Id`, with a `partition` and a
`sequence` in every record, contiguous per partition from 0."""
_ERRORS = (
    "malformed_body",
    "forbidden",
    "cap_reached",
    "unknown_topic",
    "unknown_partition",
    "request_timeout",
    "fenced_producer",
    "unknown_producer",
    "out_of_order_sequence",
    "partition_count_changed",
    "request_too_large",
    "record_too_large",
    "unsupported_media_type",
    "unsupported_encoding",
    "invalid_record",
    "invalid_request",
    "unsupported_acks",
    "idempotency_key_reused",
    "wal_full",
    "shutting_down",
    "topic_unavailable",
    "store_denied",
    "disk_full",
    "ack_timeout",
)


class Publish:
    """An ASGI application; `path_params` of its scope has the `topic`.

    Not a route like others: what Starlette wraps around a function costs as much as a small publish itself.
    """

    def __init__(
        self,
        publishing: Publishing,
        bodies: BodyReader,
        request_bytes_max: int,
        serving: "Serving | None" = None,
    ) -> None:
        self._publishing = publishing
        self._parser = BodyParser(request_bytes_max)
        self._bodies = bodies
        self._serving = serving

    def reconfigure(self, request_bytes_max: int, timeout_ms: int) -> None:
        """The next body may be so large, and take so long to arrive."""
        self._parser.reconfigure(request_bytes_max)
        self._bodies.reconfigure(request_bytes_max, timeout_ms)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._serving is not None:
            await self._traced(self._serving, scope, receive, send)
            return
        reply = await self._publish(Request(scope, receive))
        await reply(scope, receive, send)

    async def _traced(self, serving: "Serving", scope: Scope, receive: Receive, send: Send) -> None:
        span = serving.begin_publish(scope["path_params"]["topic"], scope["headers"])
        status = 500
        try:
            with serving.during(span):
                reply = await self._publish(Request(scope, receive))
            status = reply.status
            await reply(scope, receive, send)
        except Exception as error:
            if isinstance(error, SiltlogError):
                status = error.status or status
            serving.refused(span, error)
            raise
        finally:
            serving.end_publish(span, scope["state"]["request_id"], status)

    @operation(
        "POST",
        "/v1/topics/{topic}/records",
        "publish",
        "Publish",
        "Publish records",
        _TEXT_PUBLISH,
        access=on_topic("write"),
        at_owner="yes",
        needs="for a topic that this makes `create` too",
        replies={
            200: json_answer("`acks` is met.", Published),
            202: json_answer("`acks=none`: taken, not yet durable; offsets are null.", Published),
        },
        parameters=(
            TOPIC,
            in_query(
                "acks",
                "When to answer; the topic's own level if left out. `written`: the server's operating system has the "
                "records, their sync is under way.",
                choice(*ACKS),
            ),
            in_query("partition", "The partition of every record.", whole(0, PARTITION_MAX)),
            in_query("timeout_ms", "How long `acks` may take.", whole(1, TIMEOUT_MS_MAX, TIMEOUT_MS)),
            in_query("key_from", "JSON and NDJSON: a JSON Pointer to the key in each value.", example="/user/id"),
            in_query("lines", "NDJSON: what a line is.", choice("value", "record", default="value")),
            in_query("key", "One record: its key."),
            in_query("key_base64", "One record: its key, base64."),
            in_query("timestamp", "One record: its time, RFC 3339 or milliseconds.", TIME),
            in_header("Content-Encoding", "The coding of the body.", choice(*CODINGS, "identity")),
            in_header(names.HEADER_IDEMPOTENCY_KEY, "Makes this request land once, however often it is sent.", TEXT),
            in_header(names.HEADER_PRODUCER_ID, "Makes this a request of a producer."),
            in_header(names.HEADER_PRODUCER_EPOCH, "The epoch that it claimed; 0 if none.", whole(0, EPOCH_MAX)),
            in_header(names.HEADER_SEQUENCE, "The first sequence of a body for one partition.", whole()),
            in_header(
                names.HEADER_SEQUENCE_MODE,
                "`increasing`: sequences rise, with gaps allowed, and records not above the last one are dropped.",
                choice("increasing"),
            ),
            in_header(
                names.HEADER_PARTITION_COUNT,
                "The count by which keys were hashed; refused when it is not the topic's.",
                whole(0, PARTITION_MAX),
            ),
            in_header(
                names.HEADER_PARTITIONER,
                "By what they were, `xxhash64` if it does not say; refused when it is not the topic's.",
                choice(*PARTITIONERS),
            ),
            in_header(
                names.HEADER_TIMESTAMPS,
                "`stored`: the records were stored before; only limits that the topic was given hold for their times.",
                choice(names.TIMESTAMPS_STORED),
            ),
        ),
        body={
            names.MEDIA_JSON: Content(
                GivenRecords, {"records": [{"key": "UA", "value": {"flight": 1545}}, {"value": "any text"}]}
            ),
            names.MEDIA_NDJSON: Content(TEXT, '{"flight": 1545}\n{"flight": 1714}\n'),
            names.MEDIA_BYTES: Content(ANYTHING),
            names.MEDIA_ARROW: Content(ANYTHING),
        },
        errors=_ERRORS,
    )
    async def _publish(self, request: Request) -> JsonReply:
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in request.scope["headers"]}
        media = checked_media(headers)
        coding = checked_coding(headers)
        query = Query(request, _QUERY_BY_MEDIA[media])
        asked = _acks(query)
        timeout_ms = query.integer("timeout_ms", TIMEOUT_MS, minimum=1, maximum=TIMEOUT_MS_MAX)
        grant = grant_of(request)
        topic = self._publishing.topic(request.path_params["topic"])
        if isinstance(topic, Absent):
            grant.require("create", "topic", topic.name)
            topic = Absent(topic.name, partial(recorded_making, request, "topic", topic.name), grant)
        held = held_of(request.scope)
        content = await self._bodies.read(request.receive, headers.get("content-length", ""), held)
        # It may have been on its way for long.
        grant.require("write", "topic", topic.name)
        if isinstance(topic, Absent):
            grant.require("create", "topic", topic.name)
        if coding:
            content = await self._bodies.inflated(content, coding, held)
        body = await self._parser.parsed(media, content, request.scope["headers"], query)
        if "partition" in query:
            fix_partition(body, query.integer("partition", 0, maximum=PARTITION_MAX))
        body.stored = are_stored(headers)
        by = Publisher(
            publisher(headers, body, content, media, query.items(), grant.principal if grant.identity else ""),
            placed_by(headers),
        )
        published = await self._publishing.append(topic, body, by, asked, timeout_ms)
        appended: Callable[[], None] | None = request.scope.get("extensions", {}).get(APPENDED)
        if appended is not None:
            appended()
        if held is not None:
            # What it read is no longer needed, or counted with its group commit.
            held.release()
        hang_up = request.scope["state"].get(HANG_UP)
        return publish_reply(await self._publishing.acknowledged(published, timeout_ms, hang_up))


def _acks(query: Query) -> Acks | None:
    if "acks" not in query:
        return None
    return cast(Acks, query.choice("acks", ACKS, ""))
