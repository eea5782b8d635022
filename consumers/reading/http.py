"""Reading over HTTP: records of one partition, fetches over many, and offsets."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from siltlog.consumers.reading import render
from siltlog.consumers.reading.answers import Fetched, PartitionRecords, TopicOffsets
from siltlog.consumers.reading.arrow_stream import record_stream
from siltlog.consumers.reading.fetch import (
    Fetcher,
    FetchPosition,
    PartitionFetch,
    find_partition,
    find_topic,
    require_read,
    sources,
)
from siltlog.consumers.reading.parameters import (
    ISOLATION_PARAMETER,
    PRODUCERS_PARAMETER,
    VALUES_PARAMETER,
    isolation_of,
    producers_of,
    values_of,
)
from siltlog.consumers.reading.reader import Isolation, visible_end
from siltlog.consumers.reading.requests import FetchRequest, check_once
from siltlog.consumers.reading.view import LogView, PartitionView, TopicView
from siltlog.infra import names
from siltlog.infra.arrow.pieces import Piece
from siltlog.infra.columns import PRODUCED_SCHEMA, RECORD_SCHEMA
from siltlog.infra.errors import OffsetOutOfRange, Unavailable, UnknownTopic, problem
from siltlog.infra.http.media import chosen_media
from siltlog.infra.http.memory import Held, held_of
from siltlog.infra.http.operations import (
    ANYTHING,
    IN_BODY,
    PARTITION,
    TEXT,
    TIME,
    TOPIC,
    TOPIC_ID,
    Content,
    Parameter,
    Reply,
    choice,
    cut,
    in_query,
    json_answer,
    json_body,
    on_topic,
    operation,
    whole,
)
from siltlog.infra.http.query import Query
from siltlog.infra.http.replies import read_reply
from siltlog.infra.http.requests import body_of, decode, waits_for
from siltlog.infra.limits import PARTITION_MAX, TURN_ITEMS, whole_number
from siltlog.infra.security.grant import Grant, grant_of
from siltlog.infra.security.guard import METERED

T = TypeVar("T")

MIB = 1024 * 1024
INLINE_RECORDS_MAX = 1_000
INLINE_BYTES_MAX = 256 * 1024
"""Replies of more records or bytes are rendered on a thread."""

EARLIEST_TRIES_MAX = 5
"""How often a read from `earliest` follows a log start that moves away under it."""

SEEN_AT_ONCE_MAX = 100
"""How many topics that it does not know a fetch waits for."""

PARTITION_DIGITS_MAX = len(str(PARTITION_MAX))
_BOUND_HEADERS = {
    "next_offset": names.HEADER_NEXT_OFFSET,
    "log_start_offset": names.HEADER_LOG_START_OFFSET,
    "table_offset": names.HEADER_TABLE_OFFSET,
    "high_watermark": names.HEADER_HIGH_WATERMARK,
}
_JSON = msgspec.json.Encoder()
_RECORDS_QUERY = (
    *("offset", "timestamp", "isolation", "values", "producers", "lines", "topic_id"),
    *("wait_ms", "max_records", "max_bytes", "min_bytes"),
)


@dataclass(frozen=True, slots=True)
class ReadLimits:
    """The most that a read may ask for; more is cut, not refused. `request_bytes` bounds the body of a fetch."""

    wait_ms: int = 30_000
    records: int = 1_000_000
    bytes: int = 64 * MIB
    request_bytes: int = 4 * MIB


Seen = Callable[[str], Awaitable[None]]
"""Returns once this node knows a topic, or soon: another may have made it just now."""


@dataclass(frozen=True, slots=True)
class _Defaults:
    max_records: int
    max_bytes: int


_BY_MEDIA = {
    names.MEDIA_JSON: _Defaults(500, MIB),
    names.MEDIA_NDJSON: _Defaults(500, MIB),
    names.MEDIA_ARROW: _Defaults(100_000, 16 * MIB),
}

_decoder = msgspec.json.Decoder(FetchRequest)


EACH_READ = "`read` of each topic; where that is missing, the partition's `error` is `forbidden`"
DEAD_LETTERS_READ = "for dead letters `read` of their topic too"
_LIMITS = ReadLimits()
_BOUNDS = (
    names.HEADER_NEXT_OFFSET,
    names.HEADER_LOG_START_OFFSET,
    names.HEADER_TABLE_OFFSET,
    names.HEADER_HIGH_WATERMARK,
)
_ERRORS = ("unknown_topic", "unknown_partition", "not_acceptable", "corrupt_data", "topic_unavailable", "store_denied")


def _cut(name: str, text: str, default: int, minimum: int, maximum: int) -> Parameter:
    return in_query(name, f"{text}; more than {maximum:,} is cut.", cut(minimum, default))


class ReadsHttp:
    def __init__(self, log: LogView, fetcher: Fetcher, limits: ReadLimits, seen: Seen | None = None) -> None:
        """`seen` is there where other nodes make topics, too."""
        self._log = log
        self._fetcher = fetcher
        self._limits = limits
        self._seen = seen

    def reconfigure(self, limits: ReadLimits) -> None:
        """The next read may ask for so much."""
        self._limits = limits

    @operation(
        "GET",
        "/v1/topics/{topic}/partitions/{partition}/records",
        "readRecords",
        "Read",
        "Read one partition",
        "Reads on from `offset` or `timestamp`, with `wait_ms` as a long poll. Read on from `next_offset`; every read "
        "has at least one whole record if there is one. An empty wait is 200 without records.",
        access=on_topic("read"),
        needs=DEAD_LETTERS_READ,
        reads=True,
        replies={
            200: Reply(
                "The records; in NDJSON and Arrow the bounds are headers.",
                {
                    names.MEDIA_JSON: Content(PartitionRecords),
                    names.MEDIA_NDJSON: Content(TEXT),
                    names.MEDIA_ARROW: Content(ANYTHING),
                },
                _BOUNDS,
            )
        },
        parameters=(
            TOPIC,
            PARTITION,
            in_query(
                "offset",
                "An offset, `earliest` or `latest`.",
                {"anyOf": [whole(), choice("earliest", "latest")], "default": "earliest"},
            ),
            in_query("timestamp", "Instead of `offset`: the first record at or after this time.", TIME),
            ISOLATION_PARAMETER,
            VALUES_PARAMETER,
            PRODUCERS_PARAMETER,
            in_query("lines", "NDJSON: records, or bare values.", choice("record", "value", default="record")),
            TOPIC_ID,
            _cut("wait_ms", "How long to wait for `min_bytes`", 0, 0, _LIMITS.wait_ms),
            _cut("max_records", "How many at most (Arrow: 100,000 if left out)", 500, 1, _LIMITS.records),
            _cut("max_bytes", "How many bytes at most (Arrow: 16 MiB if left out)", 1_048_576, 1, _LIMITS.bytes),
            in_query("min_bytes", "Answer once so many are there; more than `max_bytes` is cut.", cut(0, 1)),
        ),
        errors=(*_ERRORS, "offset_out_of_range", "invalid_request"),
    )
    async def records(self, request: Request) -> Response:
        query = Query(request, _RECORDS_QUERY)
        media = chosen_media(request.headers.get("accept", ""), _offered(query))
        isolation, values, producers = isolation_of(query), values_of(query), producers_of(query)
        lines = query.choice("lines", ("record", "value"), "record")
        if producers and lines == "value":
            raise problem(
                "invalid_parameter", "lines=value gives bare values, which say no producers", parameter="producers"
            )
        grant = grant_of(request)
        require_read(grant, request.path_params["topic"])
        topic, view = self._find(request, query)
        wait_ms = query.integer("wait_ms", 0, maximum=self._limits.wait_ms, cut=True)
        waits_for(request, wait_ms)
        held = held_of(request.scope)
        part = await self._read(query, media, topic, view, isolation, wait_ms, held, grant, producers)
        bounds = {"next_offset": part.next_offset, **(part.bounds._asdict() if part.bounds else {})}
        headers = {} if media == names.MEDIA_JSON else {_BOUND_HEADERS[name]: str(at) for name, at in bounds.items()}

        def rendered() -> Sequence[Piece]:
            if media == names.MEDIA_ARROW:
                return record_stream(part.batches, PRODUCED_SCHEMA if producers else RECORD_SCHEMA)
            if lines == "value":
                return [render.value_lines(part.batches)]
            records = render.records(part.batches, values)
            if media == names.MEDIA_NDJSON:
                return [render.ndjson(records)]
            identity = {"topic": topic.name, "partition": view.partition}
            return [_JSON.encode({**identity, "records": records, **bounds})]

        return await read_reply(request, await _maybe_on_thread([part], rendered), media, headers)

    async def _read(
        self,
        query: Query,
        media: str,
        topic: TopicView,
        view: PartitionView,
        isolation: Isolation,
        wait_ms: int,
        held: Held | None,
        grant: Grant,
        producers: bool,
    ) -> PartitionFetch:
        limits = self._limits
        defaults = _BY_MEDIA[media]
        max_records = query.integer("max_records", defaults.max_records, minimum=1, maximum=limits.records, cut=True)
        max_bytes = query.integer("max_bytes", defaults.max_bytes, minimum=1, maximum=limits.bytes, cut=True)
        min_bytes = query.integer("min_bytes", 1, maximum=max_bytes, cut=True)
        for _ in range(EARLIEST_TRIES_MAX):
            offset = await self._offset(query, topic, view, isolation)
            result = await self._fetcher.fetch(
                [FetchPosition(topic.name, view.partition, offset, topic_id=topic.topic_id)],
                max_records=max_records,
                max_bytes=max_bytes,
                min_bytes=min_bytes,
                wait_ms=wait_ms,
                isolation=isolation,
                held=held,
                grant=grant,
                producers=producers,
            )
            part = result.partitions[0]
            asked = query.text("offset", "earliest")
            if part.error is None or asked.isdigit() or not isinstance(part.error, OffsetOutOfRange):
                break
        if part.error is not None:
            raise part.error
        return part

    async def _offset(self, query: Query, topic: TopicView, view: PartitionView, isolation: Isolation) -> int:
        timestamp_us = query.time_us("timestamp")
        if timestamp_us is not None:
            if "offset" in query:
                raise problem(
                    "invalid_parameter", "offset and timestamp are both given; send one", parameter="timestamp"
                )
            return await self._fetcher.lookup.offset_at(topic, view, timestamp_us)
        match query.text("offset", "earliest"):
            case "earliest":
                return view.bounds().log_start_offset
            case "latest":
                return visible_end(await view.decided() or view.bounds(), isolation)
            case asked if whole_number(asked) is None:
                raise problem(
                    "invalid_parameter",
                    f"offset must be a whole number, earliest or latest, not {asked[:80]!r}",
                    parameter="offset",
                )
        return query.integer("offset", 0)

    @operation(
        "POST",
        "/v1/fetch",
        "fetch",
        "Read",
        "Read many partitions",
        "One long poll over many partitions, whose order rotates. A problem of one partition is its `error`: the call "
        "stays 200 and the wait ends. In Arrow the columns `topic` and `partition` are added, and `partitions` is JSON "
        f"in the schema's metadata under `{names.ARROW_METADATA_KEY}`.",
        access=IN_BODY,
        needs=EACH_READ,
        reads=True,
        replies={
            200: Reply(
                "What was found.",
                {names.MEDIA_JSON: Content(Fetched), names.MEDIA_ARROW: Content(ANYTHING)},
            )
        },
        body=json_body(
            FetchRequest, {"partitions": [{"topic": "flights", "partition": 0, "offset": 0}], "wait_ms": 1000}
        ),
        errors=("malformed_body", "request_timeout", "not_acceptable", "request_too_large", "invalid_request"),
    )
    async def fetch(self, request: Request) -> Response:
        Query(request, ())
        media = chosen_media(request.headers.get("accept", ""), (names.MEDIA_JSON, names.MEDIA_ARROW))
        body = decode(await body_of(request, self._limits.request_bytes), _decoder)
        check_once(body.partitions)
        limits, defaults = self._limits, _BY_MEDIA[media]
        max_bytes = min(body.max_bytes or defaults.max_bytes, limits.bytes)
        wait_ms = min(body.wait_ms, limits.wait_ms)
        waits_for(request, wait_ms)
        if self._seen is not None:
            await self._see(self._seen, grant_of(request), {at.topic for at in body.partitions})
        result = await self._fetcher.fetch(
            [FetchPosition(at.topic, at.partition, at.offset, at.max_bytes, at.topic_id) for at in body.partitions],
            max_records=min(body.max_records or defaults.max_records, limits.records),
            max_bytes=max_bytes,
            min_bytes=min(body.min_bytes, max_bytes),
            wait_ms=wait_ms,
            isolation=body.isolation,
            values=body.values,
            held=held_of(request.scope),
            grant=grant_of(request),
            meter=request.scope["state"].get(METERED),
        )

        def rendered() -> Sequence[Piece]:
            return result.arrow_buffers() if media == names.MEDIA_ARROW else [result.json_bytes()]

        return await read_reply(request, await _maybe_on_thread(result.partitions, rendered), media, {})

    async def _see(self, seen: Seen, grant: Grant, topics: Iterable[str]) -> None:
        """Returns once those that this node does not know, and the caller may read, are seen."""
        unknown: list[str] = []
        for number, topic in enumerate(topics, 1):
            if number % TURN_ITEMS == 0:
                await asyncio.sleep(0)
            if len(unknown) == SEEN_AT_ONCE_MAX:
                break
            if all(grant.may("read", "topic", name) for name in sources(topic)):
                try:
                    self._log.topic(topic)
                except (UnknownTopic, Unavailable):
                    unknown.append(topic)
        # One look for any of them finds all that there are by now.
        await asyncio.gather(*map(seen, unknown))

    @operation(
        "GET",
        "/v1/topics/{topic}/offsets",
        "listOffsets",
        "Read",
        "The bounds of every partition",
        "With `timestamp` also the lowest offset at or after it.",
        access=on_topic("describe"),
        at_owner="or_here",
        replies={200: json_answer("The bounds.", TopicOffsets)},
        parameters=(TOPIC, in_query("timestamp", "RFC 3339 or milliseconds.", TIME), TOPIC_ID),
        errors=(*_ERRORS, "invalid_request"),
    )
    async def offsets(self, request: Request) -> Response:
        query = Query(request, ("timestamp", "topic_id"))
        chosen_media(request.headers.get("accept", ""), (names.MEDIA_JSON,))
        topic = find_topic(self._log, request.path_params["topic"], query.text("topic_id") or None)
        timestamp_us = query.time_us("timestamp")
        partitions: list[dict[str, Any]] = []
        for view in topic.partitions:
            entry: dict[str, Any] = {"partition": view.partition, **view.bounds()._asdict()}
            if gaps := topic.snapshot.gaps(view.partition):
                entry["gaps"] = gaps
            if timestamp_us is not None:
                entry["offset"] = await self._fetcher.lookup.offset_at(topic, view, timestamp_us)
            partitions.append(entry)
        document = {"topic": topic.name, "topic_id": topic.topic_id, "partitions": partitions}
        return await read_reply(request, [_JSON.encode(document)], names.MEDIA_JSON, {})

    def _find(self, request: Request, query: Query) -> tuple[TopicView, PartitionView]:
        topic = find_topic(self._log, request.path_params["topic"], query.text("topic_id") or None)
        text = request.path_params["partition"]
        if not text.isascii() or not text.isdigit() or len(text) > PARTITION_DIGITS_MAX:
            raise problem("unknown_partition", f"{text[:80]!r} is not the number of a partition", topic=topic.name)
        return topic, find_partition(topic, int(text))


def _offered(query: Query) -> Sequence[str]:
    """Lines are NDJSON: bare values come as nothing else, records as lines where the client leaves it open."""
    if query.text("lines") == "value":
        return (names.MEDIA_NDJSON,)
    if "lines" in query:
        return (names.MEDIA_NDJSON, names.MEDIA_JSON, names.MEDIA_ARROW)
    return (names.MEDIA_JSON, names.MEDIA_NDJSON, names.MEDIA_ARROW)


async def _maybe_on_thread(parts: Sequence[PartitionFetch], rendered: Callable[[], T]) -> T:
    records = sum(part.count for part in parts)
    nbytes = sum(part.share.bytes_taken for part in parts)
    if records <= INLINE_RECORDS_MAX and nbytes <= INLINE_BYTES_MAX:
        return rendered()
    return await asyncio.to_thread(rendered)
