"""Reading: what the document says of it."""

from siltlog.consumers.file_list import FileLists
from siltlog.consumers.reading.files_http import FILES_MAX, FilesRequest
from siltlog.consumers.reading.http import FetchRequest, ReadLimits
from siltlog.consumers.reading.reader import ISOLATIONS
from siltlog.consumers.reading.render import VALUES
from siltlog.infra import names
from siltlog.openapi import shapes
from siltlog.openapi.operation import (
    ANYTHING,
    TEXT,
    TIME,
    TOPIC,
    Content,
    Operation,
    Parameter,
    Reply,
    choice,
    cut,
    json_body,
    json_reply,
    path,
    query,
    whole,
)

_LIMITS = ReadLimits()
_PARTITION = path("partition", "The partition's number.", whole(0, 2**31 - 1), 0)
_TOPIC_ID = query("topic_id", "Refused as unknown when the topic of that name is another than this.")
_BOUNDS = (
    names.HEADER_NEXT_OFFSET,
    names.HEADER_LOG_START_OFFSET,
    names.HEADER_TABLE_OFFSET,
    names.HEADER_HIGH_WATERMARK,
)
_WRITE_ERRORS = ("topic_unavailable", "store_denied", "disk_full", "corrupt_data", "internal")
_ERRORS = ("unknown_topic", "unknown_partition", "not_acceptable", "corrupt_data", "topic_unavailable", "store_denied")


def _cut(name: str, text: str, default: int, minimum: int, maximum: int) -> Parameter:
    return query(name, f"{text}; more than {maximum:,} is cut.", cut(minimum, default))


OPERATIONS = (
    Operation(
        "GET",
        "/v1/topics/{topic}/partitions/{partition}/records",
        "readRecords",
        "Read",
        "Read one partition",
        "Reads on from `offset` or `timestamp`, with `wait_ms` as a long poll. Read on from `next_offset`; every read "
        "has at least one whole record if there is one. An empty wait is 200 without records.",
        {
            200: Reply(
                "The records; in NDJSON and Arrow the bounds are headers.",
                {
                    names.MEDIA_JSON: Content(shapes.PartitionRecords),
                    names.MEDIA_NDJSON: Content(TEXT),
                    names.MEDIA_ARROW: Content(ANYTHING),
                },
                _BOUNDS,
            )
        },
        (
            TOPIC,
            _PARTITION,
            query(
                "offset",
                "An offset, `earliest` or `latest`.",
                {"anyOf": [whole(), choice("earliest", "latest")], "default": "earliest"},
            ),
            query("timestamp", "Instead of `offset`: the first record at or after this time.", TIME),
            query("isolation", "`table`: only what is in the Delta table.", choice(*ISOLATIONS, default="wal")),
            query(
                "values",
                "How values are written: `text`, or base64 where they are none; `json`: embedded where they are JSON.",
                choice(*VALUES, default="text"),
            ),
            query("lines", "NDJSON: records, or bare values.", choice("record", "value", default="record")),
            _TOPIC_ID,
            _cut("wait_ms", "How long to wait for `min_bytes`", 0, 0, _LIMITS.wait_ms),
            _cut("max_records", "How many at most (Arrow: 100,000 if left out)", 500, 1, _LIMITS.records),
            _cut("max_bytes", "How many bytes at most (Arrow: 16 MiB if left out)", 1_048_576, 1, _LIMITS.bytes),
            query("min_bytes", "Answer once so many are there; more than `max_bytes` is cut.", cut(0, 1)),
        ),
        errors=(*_ERRORS, "offset_out_of_range", "invalid_request"),
    ),
    Operation(
        "DELETE",
        "/v1/topics/{topic}/partitions/{partition}/records",
        "deleteRecords",
        "Read",
        "Delete the records below an offset",
        "Moves the log start, for good. What is below `before_offset` and not in the table yet is flushed first. A log "
        "start that is there already stays, so a repeat changes nothing. Groups below it follow their reset policy.",
        {200: json_reply("The bounds, as they are now.", shapes.DeletedRecords)},
        (
            TOPIC,
            _PARTITION,
            query(
                "before_offset",
                "The first offset to keep, at most the high watermark; `latest`: delete all there is.",
                {"anyOf": [whole(), choice("latest")]},
                required=True,
            ),
            _TOPIC_ID,
        ),
        errors=("unknown_topic", "unknown_partition", "forbidden", "offset_out_of_range", *_WRITE_ERRORS),
    ),
    Operation(
        "POST",
        "/v1/fetch",
        "fetch",
        "Read",
        "Read many partitions",
        "One long poll over many partitions, whose order rotates. A problem of one partition is its `error`: the call "
        "stays 200 and the wait ends. In Arrow the columns `topic` and `partition` are added, and `partitions` is JSON "
        f"in the schema's metadata under `{names.ARROW_METADATA_KEY}`.",
        {
            200: Reply(
                "What was found.",
                {names.MEDIA_JSON: Content(shapes.Fetched), names.MEDIA_ARROW: Content(ANYTHING)},
            )
        },
        body=json_body(
            FetchRequest, {"partitions": [{"topic": "flights", "partition": 0, "offset": 0}], "wait_ms": 1000}
        ),
        errors=("malformed_body", "request_timeout", "not_acceptable", "request_too_large", "invalid_request"),
    ),
    Operation(
        "POST",
        "/v1/files",
        "listFiles",
        "Read",
        "Where in the table's files records are",
        "For readers far behind that read the Delta table's Parquet files by themselves: the files, of one version of "
        "the table, that hold every record in [`offset`, `next_offset`). A file that is gone was replaced: ask again "
        "from where you are, also every few seconds. With `wait_ms` it waits until the table holds something at or "
        f"above one of the offsets. `max_files` is for all partitions together; more than {FILES_MAX:,} is cut.",
        {200: json_reply("The files.", FileLists)},
        body=json_body(FilesRequest, {"partitions": [{"topic": "flights", "partition": 0, "offset": 0}]}),
        errors=("malformed_body", "request_timeout", "not_acceptable", "request_too_large", "invalid_request"),
    ),
    Operation(
        "GET",
        "/v1/topics/{topic}/offsets",
        "listOffsets",
        "Read",
        "The bounds of every partition",
        "With `timestamp` also the lowest offset at or after it.",
        {200: json_reply("The bounds.", shapes.TopicOffsets)},
        (TOPIC, query("timestamp", "RFC 3339 or milliseconds.", TIME), _TOPIC_ID),
        errors=(*_ERRORS, "invalid_request"),
    ),
)
