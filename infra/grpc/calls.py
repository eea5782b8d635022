"""A call on its way through the door, like any request: told who calls, let in, counted, charged and answered.

What a call asks for is an operation of the HTTP API. It is written as the request that a client of HTTP would send, and
takes the same way: the door, the router, the owner of a topic where that is another node. So nothing of who may do
what, and of what is said, is there twice.
"""

import asyncio
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import quote, unquote, urlencode

import msgspec
from starlette.types import ASGIApp, Message

from siltlog.infra import names
from siltlog.infra.errors import from_problem, problem
from siltlog.infra.grpc.relay import Relay, Relayed
from siltlog.infra.grpc.status import Context
from siltlog.infra.http.connection.hang_up import HANG_UP, HangUp
from siltlog.infra.http.connection.peer import KNOWN, PEER
from siltlog.infra.http.requests import APPENDED
from siltlog.infra.security.grant import Grant, grant_of

_TAKEN = frozenset(
    name.lower()
    for name in (
        names.HEADER_REQUEST_ID,
        names.HEADER_GIVEN_REQUEST_ID,
        names.HEADER_ROUTE,
        names.HEADER_TRACEPARENT,
        names.HEADER_TRACESTATE,
        *("authorization", "origin", "x-forwarded-for", "x-forwarded-proto"),
    )
)
"""Metadata that count as header fields; all else is in messages."""
_REQUEST_ID = names.HEADER_REQUEST_ID.lower().encode()
_REFUSED = 400
_FIELD_VALUE = re.compile(r"[\t\x20-\x7e\x80-\xff]*")
"""A value of a header field (RFC 9110, section 5.5). HTTP lets no other in; a message may have any text."""
_problems = msgspec.json.Decoder(dict[str, Any])


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """An operation of the HTTP API. `path` is not quoted; `extensions` are its scope's."""

    method: str
    path: str
    query: Mapping[str, str | int] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    extensions: Mapping[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class Answer:
    status: int = 0
    request_id: str = ""
    body: bytes = b""
    grant: Grant | None = None
    """What the caller may do; None until the door has told, and where the answer is a problem."""


class Calls:
    """Used on one event loop."""

    def __init__(self, door: ASGIApp, relay: Relay) -> None:
        self._door = door
        self._relay = relay
        self._under_way: set[asyncio.Task[None]] = set()

    def connection(self, context: Context) -> Relayed:
        """The connection that a call came by. Raises Refused where it came by none of ours."""
        connection = self._relay.connection(unquote(context.peer()))
        if connection is None:
            raise problem("forbidden", "this socket is the server's own: call the address of SILT_GRPC_LISTEN")
        return connection

    def taken(self, context: Context, nbytes: int) -> None:
        """Says that somebody has taken a message of a call. Raises Refused where it came by none of our connections."""
        self.connection(context).told(nbytes)

    async def ask(self, context: Context, asked: Asked, appended: Callable[[], None] | None = None) -> Answer:
        """Gives the answer; `appended` is called before, once the records of a publish have their place in the log.

        Raises SiltlogError where the answer is a problem, with the request's id.
        """
        answer = Answer()
        if appended is not None:
            asked = replace(asked, extensions={**asked.extensions, APPENDED: appended})
        task = self.begin(context, asked, answer, gone := HangUp())
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError:
            # Whoever has called is gone. What was begun ends as it would where a client of HTTP hangs up.
            gone.told()
            raise
        return checked(answer)

    def begin(
        self,
        context: Context,
        asked: Asked,
        answer: Answer,
        gone: HangUp,
    ) -> "asyncio.Task[None]":
        """Asks, and has what is said written to `answer` until the task ends; `gone` is told once the caller is."""
        task = asyncio.get_running_loop().create_task(
            self._serve(self.connection(context), context, asked, answer, gone)
        )
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)
        return task

    async def _serve(
        self,
        connection: Relayed,
        context: Context,
        asked: Asked,
        answer: Answer,
        gone: HangUp,
    ) -> None:
        body: list[bytes] = []
        read = False
        over = asyncio.Event()
        gone.when(over.set)

        async def receive() -> Message:
            nonlocal read
            if not read:
                read = True
                return {"type": "http.request", "body": asked.body, "more_body": False}
            await over.wait()
            return {"type": "http.disconnect"}

        async def send(message: Message) -> None:
            if message["type"] == "http.response.start":
                answer.status = message["status"]
                for name, value in message["headers"]:
                    if name == _REQUEST_ID:
                        answer.request_id = value.decode()
            else:
                body.append(message.get("body", b""))

        scope = _scope(connection, context, asked, gone)
        with connection.called():
            await self._door(scope, receive, send)
        if answer.status < _REFUSED:
            answer.grant = grant_of(scope)
        answer.body = body[0] if len(body) == 1 else b"".join(body)


def checked(answer: Answer) -> Answer:
    """Raises SiltlogError where the answer is a problem."""
    if answer.status >= _REFUSED:
        error = from_problem(_problems.decode(answer.body), answer.status)
        error.request_id = answer.request_id
        raise error
    return answer


def segment(kind: str, name: str) -> str:
    """A name as a part of a path. Raises Refused where it would be several, or none."""
    if "/" in name or name in ("", ".", ".."):
        wrong = names.name_problem(name)
        raise problem("invalid_parameter", f"{kind}: {wrong}", parameter=kind)
    return name


def _scope(connection: Relayed, context: Context, asked: Asked, gone: HangUp) -> dict[str, Any]:
    return {
        "type": "http",
        "http_version": "2",
        "method": asked.method,
        "path": asked.path,
        "raw_path": quote(asked.path).encode(),
        "root_path": "",
        "query_string": urlencode(asked.query).encode(),
        "headers": _fields(context, asked),
        "scheme": connection.peer.scheme,
        "client": (connection.peer.address, 0),
        "server": None,
        "state": {PEER: connection.peer, KNOWN: connection.known, HANG_UP: gone},
        "extensions": dict(asked.extensions),
    }


def _fields(context: Context, asked: Asked) -> Sequence[tuple[bytes, bytes]]:
    fields = [
        (name.encode(), value.encode("latin-1", "replace") if isinstance(value, str) else value)
        for name, value in context.invocation_metadata() or ()
        if name in _TAKEN
    ]
    for name, value in asked.headers.items():
        if not _FIELD_VALUE.fullmatch(value):
            raise problem(
                "invalid_parameter",
                f"{name} has a control character, or one that is not of ISO 8859-1: no header field can have it",
                parameter=name,
            )
        fields.append((name.lower().encode(), value.encode("latin-1")))
    return [*fields, (b"content-length", b"%d" % len(asked.body))]
