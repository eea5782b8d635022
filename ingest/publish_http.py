"""`POST /v1/topics/{topic}/records`: a body becomes columns, an append, an acknowledgement."""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
from starlette.requests import Request
from starlette.types import Receive, Scope, Send

from siltlog.infra import names
from siltlog.infra.errors import UnknownTopic, problem
from siltlog.infra.http import INTEGER_MAX, BodyReader, JsonReply, Query, whole_number
from siltlog.ingest.arrow_body import parse_arrow
from siltlog.ingest.body import Body, HeaderList, decode_base64, one_record, parse_json, timestamp_us
from siltlog.ingest.log import Appended, Log, Producer
from siltlog.ingest.topic_log import TopicLog
from siltlog.ingest.topics import AutoCreate

ACKS = ("none", "wal", "table")
_ACKS_LATER = ("object",)
TIMEOUT_MS = 10_000
TIMEOUT_MS_MAX = 60_000
FORM_MEDIA = "application/x-www-form-urlencoded"
Headers = Mapping[str, str]
"""Names are in lower case; of a header given twice the last counts."""
_PRODUCER_ID = names.HEADER_PRODUCER_ID.lower()
_PRODUCER_EPOCH = names.HEADER_PRODUCER_EPOCH.lower()
_SEQUENCE = names.HEADER_SEQUENCE.lower()
_RECORD_PREFIX = names.HEADER_RECORD_PREFIX.lower().encode()
_RECORD_HEADER = names.HEADER_RECORD_PREFIX.lower()
_NOT_OFFERED = ("idempotency-key", names.HEADER_SEQUENCE_MODE.lower())
_QUERY = ("acks", "partition", "timeout_ms")
_ONE_RECORD_QUERY = (*_QUERY, "key", "key_base64", "timestamp")


class Publish:
    """An ASGI application; `path_params` of its scope has the `topic`.

    Not a route like others: what Starlette wraps around a function costs as much as a small publish itself.
    """

    def __init__(
        self,
        log: Log,
        *,
        request_bytes_max: int,
        request_timeout_ms: int,
        wake_flusher: Callable[[], None],
        auto_create: AutoCreate | None,
    ) -> None:
        """`auto_create` makes a topic that is not there; None where publishing creates none."""
        self._log = log
        self._request_bytes_max = request_bytes_max
        self._bodies = BodyReader(request_bytes_max, request_timeout_ms)
        self._wake_flusher = wake_flusher
        self._auto_create = auto_create

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        reply = await self._publish(Request(scope, receive))
        await reply(scope, receive, send)

    async def _publish(self, request: Request) -> JsonReply:
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in request.scope["headers"]}
        media = headers.get("content-type", "").partition(";")[0].strip().lower()
        query = Query(request, _ONE_RECORD_QUERY if media == names.MEDIA_BYTES else _QUERY)
        asked = _acks(query)
        timeout_ms = query.integer("timeout_ms", TIMEOUT_MS, minimum=1, maximum=TIMEOUT_MS_MAX)
        name = request.path_params["topic"]
        topic = self._known(name)
        _check_encoding(headers)
        _check_media(media)
        _check_record_headers(media, headers)
        content = await self._bodies.read(request.receive, headers.get("content-length", ""))
        body = self._parse(media, content, request, query)
        if "partition" in query:
            _fix_partition(body, query.integer("partition", 0, maximum=2**31 - 1))
        producer = _producer(headers, body)
        partition_count = _header_integer(headers, names.HEADER_PARTITION_COUNT, 2**31 - 1)
        if asked == "none" and producer is not None:
            raise problem(
                "unsupported_acks", "acks=none gives no answer to retry on: leave out Silt-Producer-Id or ask for wal"
            )
        if topic is None:
            assert self._auto_create is not None
            # Made only now: a request that is refused has no effect.
            self._log.rehearse(self._auto_create.unmade(name), body, producer, partition_count)
            topic = await self._auto_create.make(name)
        acks = asked or str(topic.config["acks"])
        if topic.paused is not None:
            await topic.resumed(timeout_ms / 1000)
        appended = self._log.append(topic, body, producer, partition_count)
        if acks != "none":
            await self._acknowledged(topic, appended, acks, timeout_ms / 1000)
        new = body.count if producer is None else sum(ack.count for ack in appended.acks if not ack.duplicate)
        topic.records_total += new
        topic.bytes_total += body.nbytes * new // body.count
        return _reply(topic, appended, acks, positions=body.positions)

    def _known(self, name: str) -> TopicLog | None:
        """None where publishing may create it, or end its creation."""
        try:
            topic = self._log.topic(name)
        except UnknownTopic:
            if self._auto_create is None:
                raise
            return None
        return None if topic.state == "creating" and self._auto_create is not None else topic

    def _parse(self, media: str, content: bytes, request: Request, query: Query) -> Body:
        if media == names.MEDIA_JSON:
            return parse_json(content)
        if media == names.MEDIA_ARROW:
            return parse_arrow(content, self._request_bytes_max)
        return _parse_one(content, request.scope["headers"], query)

    async def _acknowledged(self, topic: TopicLog, appended: Appended, acks: str, timeout_seconds: float) -> None:
        """Returns once `acks` is met for every record. Raises OutcomeUnknown `ack_timeout` with what was reached."""
        loop = asyncio.get_running_loop()
        reached = "none"
        future = appended.durable
        timer = loop.call_later(timeout_seconds, lambda: _expire(future, topic, acks, reached))

        def in_time(future: "asyncio.Future[None]") -> "asyncio.Future[None]":
            # The timer may have fired between one wait and the next.
            if loop.time() >= timer.when():
                _expire(future, topic, acks, reached)
            return future

        try:
            await future
            if topic.state == "fenced":
                # It is on this disk, but another node owns the topic by now: nobody may rely on it.
                raise topic.gone()
            waits = [wait for log, end in appended.ends if (wait := log.when_synced(end)) is not None]
            for future in waits:
                await in_time(future)
            reached = "wal"
            if acks == "table":
                waits = [wait for log, end in appended.ends if (wait := log.when_in_table(end)) is not None]
                self._wake_flusher()
                for future in waits:
                    await in_time(future)
        finally:
            timer.cancel()


def _expire(future: "asyncio.Future[None]", topic: TopicLog, acks: str, reached: str) -> None:
    if not future.done():
        future.set_exception(
            problem(
                "ack_timeout",
                f"acks={acks} was not reached in time for topic {topic.name}; the records may still land. Repeat the "
                "request only with a producer id or an idempotency key",
                acks=reached,
            )
        )


def _acks(query: Query) -> str | None:
    if "acks" not in query:
        return None
    if query.text("acks") in _ACKS_LATER:
        raise problem(
            "unsupported_acks", f"acks={query.text('acks')} is not offered by this server; ask for wal or table"
        )
    return query.choice("acks", ACKS, "")


def _check_media(media: str) -> None:
    if media in (names.MEDIA_JSON, names.MEDIA_BYTES, names.MEDIA_ARROW):
        return
    offered = f"{names.MEDIA_JSON}, {names.MEDIA_BYTES} or {names.MEDIA_ARROW}"
    if media in ("", FORM_MEDIA):
        detail = (
            f"say what the body is: {offered}. With curl add -H 'Content-Type: {names.MEDIA_JSON}', "
            "and send files with --data-binary"
        )
    else:
        detail = f"{media[:80]} is not taken here; send {offered}"
    raise problem("unsupported_media_type", detail)


def _check_record_headers(media: str, headers: Headers) -> None:
    if media != names.MEDIA_BYTES and any(name.startswith(_RECORD_HEADER) for name in headers):
        raise problem(
            "invalid_request",
            f"{names.HEADER_RECORD_PREFIX}… is for a body of one record; give each record its headers",
        )


def _check_encoding(headers: Headers) -> None:
    encoding = headers.get("content-encoding", "identity").strip().lower()
    if encoding not in ("", "identity"):
        raise problem(
            "unsupported_encoding",
            f"the content encoding {encoding[:40]} is not taken; send the body as it is, or Arrow with lz4 or zstd",
        )


def _parse_one(content: bytes, fields: Iterable[tuple[bytes, bytes]], query: Query) -> Body:
    if "key" in query and "key_base64" in query:
        raise problem("invalid_parameter", "key and key_base64 are both given; send one", parameter="key_base64")
    key = query.text("key").encode() if "key" in query else None
    try:
        if "key_base64" in query:
            key = decode_base64(query.text("key_base64"), "key_base64")
        timestamp = timestamp_us(query.text("timestamp")) if "timestamp" in query else None
    except ValueError as error:
        name = "key_base64" if "key_base64" in str(error) else "timestamp"
        raise problem("invalid_parameter" if name == "key_base64" else "invalid_request", str(error)) from None
    own: HeaderList = [
        (name.removeprefix(_RECORD_PREFIX).decode("latin-1"), value)
        for name, value in fields
        if name.startswith(_RECORD_PREFIX)
    ]
    return one_record(content, key, own or None, timestamp)


def _fix_partition(body: Body, partition: int) -> None:
    """`?partition=` is for the whole body; a record that names another one is an error, not a tie to break."""
    if body.rows is not None:
        named = body.rows.partitions
        wrong = next((index for index, given in enumerate(named) if given not in (-1, partition)), None)
        body.rows.partitions = [partition] * body.count
    else:
        explicit = body.partition
        clash = None if explicit is None else (explicit != -1) & (explicit != partition)
        wrong = int(np.argmax(clash)) if clash is not None and clash.any() else None
        body.partition = np.full(body.count, partition, np.int32)
    if wrong is not None:
        raise problem(
            "invalid_record", f"record {wrong} names another partition than ?partition={partition}", index=wrong
        )


def _producer(headers: Headers, body: Body) -> Producer | None:
    producer_id = headers.get(_PRODUCER_ID)
    for name in _NOT_OFFERED:
        if name in headers:
            raise problem("invalid_request", f"the header {name} is not offered by this server; use Silt-Producer-Id")
    if producer_id is None:
        if _SEQUENCE in headers or _PRODUCER_EPOCH in headers:
            raise problem("invalid_request", "Silt-Sequence and Silt-Producer-Epoch need Silt-Producer-Id")
        return None
    wrong = names.name_problem(producer_id)
    if wrong is not None:
        raise problem("invalid_parameter", f"{names.HEADER_PRODUCER_ID}: {wrong}", parameter=names.HEADER_PRODUCER_ID)
    epoch = _header_integer(headers, names.HEADER_PRODUCER_EPOCH, 2**31 - 1)
    first = _header_integer(headers, names.HEADER_SEQUENCE, INTEGER_MAX - body.count)
    if first is not None:
        _give_sequences(body, first)
    _check_named(body)
    return Producer(producer_id, epoch or 0)


def _give_sequences(body: Body, first: int) -> None:
    """Silt-Sequence: the first sequence of a body for one partition."""
    if body.rows is not None:
        several = len(set(body.rows.partitions)) > 1
        body.rows.sequences = list(range(first, first + body.count))
    else:
        several = body.partition is not None and bool((body.partition != body.partition[0]).any())
        body.sequence = np.arange(first, first + body.count, dtype=np.int64)
    if several:
        raise problem("invalid_request", "Silt-Sequence is for a body of one partition; give each record its sequence")


def _check_named(body: Body) -> None:
    if body.rows is not None:
        missing: Any = [p < 0 or s is None for p, s in zip(body.rows.partitions, body.rows.sequences, strict=True)]
    elif body.partition is None or body.sequence is None:
        missing = [True]
    else:
        missing = body.partition < 0
    if any(missing) if isinstance(missing, list) else missing.any():
        index = int(np.argmax(missing))
        raise problem(
            "invalid_record",
            f"record {index}: with Silt-Producer-Id every record names its partition and its sequence",
            index=index,
        )


def _header_integer(headers: Headers, name: str, maximum: int) -> int | None:
    text = headers.get(name.lower())
    if text is None:
        return None
    number = whole_number(text)
    if number is None or number > maximum:
        raise problem(
            "invalid_parameter", f"{name} must be a whole number from 0 to {maximum}, not {text[:40]!r}", parameter=name
        )
    return number


def _reply(topic: TopicLog, appended: Appended, acks: str, *, positions: bool) -> JsonReply:
    given = acks != "none"
    partitions = [
        {
            "partition": ack.partition,
            "first_offset": ack.first_offset if given else None,
            "last_offset": ack.first_offset + ack.count - 1 if given and ack.first_offset is not None else None,
            "count": ack.count,
            "duplicate": ack.duplicate,
        }
        for ack in appended.acks
    ]
    document: dict[str, Any] = {"topic": topic.name, "acks": acks, "partitions": partitions}
    if positions:
        firsts = {ack.partition: ack.first_offset if given else None for ack in appended.acks}
        document["records"] = appended.split.positions(firsts)
    return JsonReply(document, 200 if given else 202)
