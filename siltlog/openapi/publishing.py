"""Publishing: what the document says of it."""

from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, UnsetType

from siltlog.infra import names
from siltlog.infra.http.requests import INTEGER_MAX
from siltlog.ingest.publish.http import ACKS, TIMEOUT_MS, TIMEOUT_MS_MAX
from siltlog.openapi import shapes
from siltlog.openapi.operation import (
    ANYTHING,
    TEXT,
    TIME,
    TOPIC,
    Content,
    Operation,
    choice,
    header,
    json_reply,
    path,
    query,
    whole,
)

PARTITION_MAX = 2**31 - 1
EPOCH_MAX = 2**31 - 1


class GivenHeader(msgspec.Struct, forbid_unknown_fields=True):
    key: str
    value: str | None = None
    value_base64: str | None = None


class GivenRecord(msgspec.Struct, forbid_unknown_fields=True):
    """`value` is required: a string is stored as its text, null (with a key) is a tombstone, anything else is stored as
    its JSON text exactly as sent; `value_base64` takes any bytes. `topic` and `offset` are passed over, so that what
    was read can be published again."""

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


class GivenRecords(msgspec.Struct, forbid_unknown_fields=True):
    records: Annotated[list[GivenRecord], Meta(min_length=1)]


_PRODUCER = path("producer", "The producer's id, which its client chose: a UUID needs nothing more.")
_TEXT_PUBLISH = """\
One request is one unit: refused whole, or appended whole. The reply comes once `acks` is met for every record.

- `application/json`: record objects. `?key_from=` takes each key from the value.
- `application/x-ndjson`: one value a line, stored byte for byte; `?lines=record`: one record object a line.
- `application/octet-stream`: one record, whose value is the body; `?key=`, `?timestamp=`, and `Silt-Header-{name}`
  headers for headers of the record.
- `application/vnd.apache.arrow.stream`: an Arrow IPC stream with the columns `value` and if wanted `key`, `headers`,
  `timestamp`, `partition`, `sequence`.

`Content-Encoding: gzip` or `zstd` is taken with all of them. What was read can be published again as it is.
To publish exactly once, send `Idempotency-Key`, or be a producer: `Silt-Producer-Id`, with a `partition` and a
`sequence` in every record, contiguous per partition from 0."""
_ERRORS = (
    "malformed_body",
    "forbidden",
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
_PRODUCER_TEXT = "It comes with the next sequence of every partition that this producer has published to."

OPERATIONS = (
    Operation(
        "POST",
        "/v1/topics/{topic}/records",
        "publish",
        "Publish",
        "Publish records",
        _TEXT_PUBLISH,
        {
            200: json_reply("`acks` is met.", shapes.Published),
            202: json_reply("`acks=none`: taken, not yet durable; offsets are null.", shapes.Published),
        },
        (
            TOPIC,
            query("acks", "When to answer; the topic's own level if left out.", choice(*ACKS)),
            query("partition", "The partition of every record.", whole(0, PARTITION_MAX)),
            query("timeout_ms", "How long `acks` may take.", whole(1, TIMEOUT_MS_MAX, TIMEOUT_MS)),
            query("key_from", "JSON and NDJSON: a JSON Pointer to the key in each value.", example="/user/id"),
            query("lines", "NDJSON: what a line is.", choice("value", "record", default="value")),
            query("key", "One record: its key."),
            query("key_base64", "One record: its key, base64."),
            query("timestamp", "One record: its time, RFC 3339 or milliseconds.", TIME),
            header("Content-Encoding", "The coding of the body.", choice("gzip", "zstd", "identity")),
            header(names.HEADER_IDEMPOTENCY_KEY, "Makes this request land once, however often it is sent.", TEXT),
            header(names.HEADER_PRODUCER_ID, "Makes this a request of a producer."),
            header(names.HEADER_PRODUCER_EPOCH, "The epoch that it claimed; 0 if none.", whole(0, EPOCH_MAX)),
            header(names.HEADER_SEQUENCE, "The first sequence of a body for one partition.", whole()),
            header(
                names.HEADER_SEQUENCE_MODE,
                "`increasing`: sequences rise, with gaps allowed, and records not above the last one are dropped.",
                choice("increasing"),
            ),
            header(
                names.HEADER_PARTITION_COUNT,
                "The count by which keys were hashed; refused when it is not the topic's.",
                whole(0, PARTITION_MAX),
            ),
            header(
                names.HEADER_TIMESTAMPS,
                "`stored`: the records were stored before; only limits that the topic was given hold for their times.",
                choice(names.TIMESTAMPS_STORED),
            ),
        ),
        {
            names.MEDIA_JSON: Content(
                GivenRecords, {"records": [{"key": "UA", "value": {"flight": 1545}}, {"value": "any text"}]}
            ),
            names.MEDIA_NDJSON: Content(TEXT, '{"flight": 1545}\n{"flight": 1714}\n'),
            names.MEDIA_BYTES: Content(ANYTHING),
            names.MEDIA_ARROW: Content(ANYTHING),
        },
        errors=_ERRORS,
    ),
    Operation(
        "GET",
        "/v1/topics/{topic}/producers/{producer}",
        "describeProducer",
        "Publish",
        "Where a producer stopped",
        f"Changes nothing. {_PRODUCER_TEXT}",
        {200: json_reply("What is known of it.", shapes.ProducerState)},
        (TOPIC, _PRODUCER),
        errors=("unknown_topic", "topic_unavailable", "store_denied"),
    ),
    Operation(
        "POST",
        "/v1/topics/{topic}/producers/{producer}",
        "claimProducer",
        "Publish",
        "Claim a producer's next epoch",
        "The epoch is durable before the reply, and fences requests with an older one, also those still under way. "
        + _PRODUCER_TEXT,
        {200: json_reply("The claimed epoch.", shapes.ProducerState)},
        (TOPIC, _PRODUCER),
        errors=(
            *(
                "unknown_topic",
                "forbidden",
                "fenced_producer",
                "invalid_request",
                "request_timeout",
                "request_too_large",
            ),
            *("wal_full", "shutting_down", "topic_unavailable", "store_denied", "disk_full", "ack_timeout"),
        ),
    ),
)
