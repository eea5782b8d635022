"""Server-Sent Events: a topic as it comes, for browsers and curl (WHATWG HTML, section 9.2)."""

import asyncio
from functools import partial

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from siltlog.consumers.push.feed import Found
from siltlog.consumers.push.tail import (
    PARAMETERS,
    TAIL_ERRORS,
    TAIL_PARAMETERS,
    Tail,
    TailRequest,
    tail_request,
)
from siltlog.consumers.reading import render
from siltlog.consumers.reading.budget import READ_BYTES_MAX, READ_RECORDS_MAX
from siltlog.consumers.reading.fetch import Fetcher, require_read
from siltlog.consumers.reading.http import DEAD_LETTERS_READ
from siltlog.consumers.reading.view import LogView
from siltlog.infra import names
from siltlog.infra.errors import SiltlogError, problem, problem_document
from siltlog.infra.http.media import chosen_media
from siltlog.infra.http.memory import Held, held_of
from siltlog.infra.http.operations import (
    TEXT,
    TOPIC,
    Content,
    Reply,
    in_header,
    on_topic,
    operation,
)
from siltlog.infra.http.query import Query
from siltlog.infra.http.requests import EVENTS_HEADERS, retry_field
from siltlog.infra.http.streams import (
    CROWDED_RETRY_SECONDS,
    STREAM,
    Stream,
    Streams,
    asked_again,
    body_part,
    until_gone,
)
from siltlog.infra.security.grant import grant_of
from siltlog.infra.telemetry import Logger

RETRY_MS = 1_000
_COMMENT = b": \n\n"
_RECORD = b"event: record\ndata: "
_JSON = msgspec.json.Encoder()


_EVENTS = """\
retry: 1000

id: AQ

event: record
data: {"partition":0,"offset":0,"timestamp":"2026-11-21T07:36:00.123456Z","key":null,"value":"hello","headers":[]}
id: AQ

"""


class Tails:
    def __init__(self, log: LogView, fetcher: Fetcher, streams: Streams, logger: Logger) -> None:
        self.log = log
        self.fetcher = fetcher
        self.streams = streams
        self.logger = logger

    @operation(
        "GET",
        "/v1/topics/{topic}/tail",
        "tailTopic",
        "Push",
        "A topic as it comes, as Server-Sent Events",
        "Events `record`, and `problem` before a close. The first event is an `id:` alone; the last of each write has "
        "one, and a browser that comes back sends it as `Last-Event-ID`. A comment comes every 15 seconds. To "
        f"`Accept: {names.MEDIA_EVENTS}` what passes by itself (429, 503) is 200 with `retry:` and an end.",
        access=on_topic("read"),
        needs=DEAD_LETTERS_READ,
        reads=True,
        replies={200: Reply("The stream.", {names.MEDIA_EVENTS: Content(TEXT, _EVENTS)})},
        parameters=(
            *(TOPIC, *TAIL_PARAMETERS),
            in_header("Last-Event-ID", "A cursor; it wins over every place in the query."),
        ),
        errors=(*TAIL_ERRORS, "not_acceptable"),
    )
    async def tail(self, request: Request) -> Response:
        query = Query(request, PARAMETERS)
        chosen_media(request.headers.get("accept", ""), (names.MEDIA_EVENTS,))
        if self.streams.draining:
            raise problem("shutting_down", "the server is shutting down; connect again in a moment")
        self.streams.check_room("events")
        require_read(grant_of(request), request.path_params["topic"])
        last_event_id = request.headers.get("last-event-id", "")
        asked = await tail_request(self.log, self.fetcher, request.path_params["topic"], query, last_event_id)
        return _Events(self, asked)


class _Events(Response):
    def __init__(self, tails: Tails, asked: TailRequest) -> None:
        super().__init__(headers=EVENTS_HEADERS, media_type=names.MEDIA_EVENTS)
        del self.headers["content-length"]
        self._tails = tails
        self._asked = asked

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        start = {"type": "http.response.start", "status": 200, "headers": self.raw_headers}
        if scope["method"] == "HEAD":
            await send(start)
            await send(body_part(b"", more=False))
            return
        tails = self._tails
        grant, topic = grant_of(scope), self._asked.topic.name
        with (
            tails.streams.opened("events") as stream,
            asked_again(stream, grant, partial(require_read, grant, topic)),
        ):
            scope["state"][STREAM] = stream
            held = held_of(scope)
            tail = Tail(tails.log, tails.fetcher, self._asked, stream.wake, held)
            listening = asyncio.create_task(until_gone(receive, stream))
            try:
                await send(start)
                await send(body_part(b"%b\n%b" % (retry_field(RETRY_MS), _id_alone(tail))))
                await self._run(tail, stream, held, send, scope["state"].get("request_id"))
                await send(body_part(b"", more=False))
            finally:
                tail.feed.close()
                listening.cancel()

    async def _run(self, tail: Tail, stream: Stream, held: Held | None, send: Send, request_id: str | None) -> None:
        """Sends records until the stream ends, or one of its partitions has a problem."""
        while not stream.ended:
            try:
                if stream.refusal is not None:
                    raise stream.refusal
                if stream.beat:
                    tail.grow()
                found = await tail.feed.read(READ_RECORDS_MAX) if tail.feed.ready and not stream.resting else []
                text = await self._events(found, tail)
            except SiltlogError as error:
                if error.error_code == "overloaded":
                    asyncio.get_running_loop().call_later(CROWDED_RETRY_SECONDS, stream.wake)
                    await stream.sleep()
                    continue
                await send(body_part(_ending(error, request_id)))
                return
            if stream.beat:
                stream.beat = False
                text += _id_alone(tail) if tail.is_ahead else _COMMENT
            if text:
                await send(body_part(text))
                # Once more, with nothing: what was sent may be forgotten when this returns.
                await send(body_part(b""))
                stream.sent(sum(part.records for part in found))
            if held is not None:
                held.release()
            if tail.feed.ready and not stream.resting:
                # Looking for some among many must not keep others waiting.
                await asyncio.sleep(0)
            else:
                await stream.sleep()

    async def _events(self, found: list[Found], tail: Tail) -> bytes:
        if not found:
            return b""
        if sum(batch.nbytes for part in found for batch in part.batches) > READ_BYTES_MAX:
            records = await asyncio.to_thread(_lines, found, tail)
        else:
            records = _lines(found, tail)
        # JSON has no line ends within: those there are stand between records.
        events = _RECORD + records[:-1].replace(b"\n", b"\n\n" + _RECORD)
        return b"%b\nid: %b\n\n" % (events, tail.cursor().encode())


def _lines(found: list[Found], tail: Tail) -> bytes:
    return b"".join(render.ndjson(render.records(part.batches, tail.request.values)) for part in found)


def _id_alone(tail: Tail) -> bytes:
    """An event without data: it is not shown to a page, but a browser that comes back sends its id."""
    return b"id: %b\n\n" % tail.cursor().encode()


def _ending(error: SiltlogError, request_id: str | None) -> bytes:
    """The last of a stream: what passes by itself only says when to come back."""
    if error.retry_after_ms is not None:
        return retry_field(error.retry_after_ms) + b"\n"
    return b"event: problem\ndata: %b\n\n" % _JSON.encode(problem_document(error, request_id))
