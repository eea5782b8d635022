"""`/v1/events`: a snapshot of the server each second, as Server-Sent Events (WHATWG HTML, section 9.2)."""

import asyncio
from collections.abc import Sequence

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from siltlog.infra import names
from siltlog.infra.errors import SiltlogError, problem, problem_document
from siltlog.infra.http.media import chosen_media
from siltlog.infra.http.operations import FILTERED, TEXT, Content, Reply, in_query, operation
from siltlog.infra.http.query import Query
from siltlog.infra.http.requests import EVENTS_HEADERS, retry_field
from siltlog.infra.http.streams import STREAM, Stream, Streams, asked_again, body_part, until_gone
from siltlog.infra.security.grant import grant_of
from siltlog.server.live.answers import KINDS, Kind
from siltlog.server.live.viewers import Viewer, Viewers

RETRY_MS = 1_000
_KIND = f"({'|'.join(KINDS)})"
_COMMENT = b": \n\n"
_JSON = msgspec.json.Encoder()
_EXAMPLE = """\
retry: 1000

event: groups
data: {"time":"2026-11-21T07:36:00.123456Z","groups":[{"group":"reporting","state":"stable","members":2,"topics":\
["flights"],"lag":4120,"lag_seconds":42.0}],"of":1,"cut":false}

"""


class LiveHttp:
    def __init__(self, viewers: Viewers, streams: Streams) -> None:
        self.viewers = viewers
        self.streams = streams

    @operation(
        "GET",
        "/v1/events",
        "watchServer",
        "Node",
        "The server as it is, each second, as Server-Sent Events",
        "Events `overview`, `topics`, `groups` and `jobs`, each with one JSON object: the whole of what there is to "
        "see now, so one that was missed is no loss, and who reads slowly gets the newest alone, behind an event "
        "`missed` that says how many `snapshots` before it were replaced. Of the topics those 200 are told that are "
        "busiest, of the groups the 200 that are furthest behind. An event `problem` comes before a close; a comment "
        "every 15 seconds where nothing else does. In a cluster all nodes are told of, and those named as `silent` "
        "that do not answer within a second. At most SILT_UI_VIEWERS_MAX may watch a node.",
        access=FILTERED,
        needs="topics and groups without `describe` are left out; for what is of a node, and for jobs, cluster "
        "`describe`",
        replies={200: Reply("The stream.", {names.MEDIA_EVENTS: Content(TEXT, _EXAMPLE)})},
        parameters=(
            in_query(
                "kinds",
                f"Which events, with commas between them: {', '.join(KINDS)}. Left out: all.",
                {"type": "string", "pattern": f"^{_KIND}(,{_KIND})*$"},
                "overview,topics",
            ),
        ),
        errors=("overloaded", "not_acceptable", "shutting_down"),
    )
    async def events(self, request: Request) -> Response:
        query = Query(request, ("kinds",))
        chosen_media(request.headers.get("accept", ""), (names.MEDIA_EVENTS,))
        kinds = _kinds(query)
        if self.streams.draining:
            raise problem("shutting_down", "the server is shutting down; connect again in a moment")
        # What each event has is asked for when it is made, by the policy of that moment.
        grant_of(request).may("describe", "cluster")
        self.viewers.check_room()
        return _Events(self, kinds)


def _kinds(query: Query) -> Sequence[Kind]:
    if "kinds" not in query:
        return KINDS
    asked = query.text("kinds").split(",")
    unknown = next((one for one in asked if one not in KINDS), None)
    if unknown is not None:
        raise problem(
            "invalid_parameter",
            f"kinds: there is no {unknown[:80]!r}; there are: {', '.join(KINDS)}",
            parameter="kinds",
        )
    return tuple(kind for kind in KINDS if kind in asked)


class _Events(Response):
    def __init__(self, live: LiveHttp, kinds: Sequence[Kind]) -> None:
        super().__init__(headers=EVENTS_HEADERS, media_type=names.MEDIA_EVENTS)
        del self.headers["content-length"]
        self._live = live
        self._kinds = kinds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        start = {"type": "http.response.start", "status": 200, "headers": self.raw_headers}
        if scope["method"] == "HEAD":
            await send(start)
            await send(body_part(b"", more=False))
            return
        grant = grant_of(scope)
        with (
            self._live.streams.opened("live") as stream,
            self._live.viewers.watching(self._kinds, grant, stream.wake) as viewer,
            asked_again(stream, grant),
        ):
            scope["state"][STREAM] = stream
            listening = asyncio.create_task(until_gone(receive, stream))
            try:
                await send(start)
                await send(body_part(retry_field(RETRY_MS) + b"\n"))
                await send_newest(viewer, stream, send, scope["state"].get("request_id"))
                await send(body_part(b"", more=False))
            finally:
                listening.cancel()


async def send_newest(viewer: Viewer, stream: Stream, send: Send, request_id: str | None) -> None:
    """Sends what is newest until the stream ends; what comes while the client takes nothing is left out."""
    while not stream.ended:
        if stream.refusal is not None:
            await send(body_part(_ending(stream.refusal, request_id)))
            return
        text = viewer.take() or b""
        if stream.beat:
            stream.beat = False
            text = text or _COMMENT
        if text:
            await send(body_part(text))
            # Once more, with nothing: what was sent may be forgotten when this returns.
            await send(body_part(b""))
        else:
            await stream.sleep()


def _ending(error: SiltlogError, request_id: str | None) -> bytes:
    if error.retry_after_ms is not None:
        return retry_field(error.retry_after_ms) + b"\n"
    return b"event: problem\ndata: %b\n\n" % _JSON.encode(problem_document(error, request_id))
