"""Clients of event streams and of WebSockets, as plain as they can be."""

import http.client
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect

from siltlog.infra import names

TIMEOUT_S = 30.0
SILENCE_MAX = 2
"""Comments, which come every 15 s, in a row."""


@dataclass
class Event:
    """One block of lines; `data` is None where it has none, which no page is shown."""

    id: str | None = None
    kind: str = "message"
    data: Any = None
    retry: int | None = None
    comments: int = 0


@dataclass
class EventStream:
    reply: http.client.HTTPResponse
    cursor: str | None = None
    events: list[Event] = field(default_factory=list)
    silence: int = 0

    @property
    def status(self) -> int:
        return self.reply.status

    def next(self) -> Event | None:
        """The next block; None at the end."""
        event, lines = Event(), 0
        while True:
            line = self.reply.readline()
            if not line:
                assert lines == 0, "it ended within an event"
                return None
            lines += 1
            text = line.decode().removesuffix("\n")
            if not text:
                self.events.append(event)
                self.silence = self.silence + 1 if event.comments else 0
                assert self.silence < SILENCE_MAX, "nothing comes but comments"
                return event
            name, _, value = text.partition(": ")
            if name == "id":
                event.id = self.cursor = value
            elif name == "event":
                event.kind = value
            elif name == "data":
                event.data = json.loads(value)
            elif name == "retry":
                event.retry = int(value)
            else:
                assert text.startswith(":"), text
                event.comments += 1

    def records(self, count: int) -> list[dict[str, Any]]:
        """The next so many records, up to a cursor."""
        out: list[dict[str, Any]] = []
        while len(out) < count:
            event = self.next()
            assert event is not None, "the stream ended"
            if event.kind == "record":
                out.append(event.data)
            else:
                assert event.kind == "message", event
        return out


@contextmanager
def tailing(url: str, path: str, **headers: str) -> Iterator[EventStream]:
    """A tail from its answer on; header names are written with underscores."""
    parts = urlsplit(url)
    assert parts.hostname
    connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=TIMEOUT_S)
    named = {"Accept": names.MEDIA_EVENTS} | {name.replace("_", "-"): value for name, value in headers.items()}
    connection.request("GET", path, headers=named)
    reply = connection.getresponse()
    try:
        yield EventStream(reply)
    finally:
        reply.close()
        connection.close()


class Socket:
    """Messages as documents."""

    def __init__(self, connection: ClientConnection) -> None:
        self.connection = connection

    def say(self, kind: str, **members: Any) -> None:
        self.connection.send(json.dumps({"type": kind, **members}))

    def hear(self, *kinds: str) -> dict[str, Any]:
        """The next message, which has one of these types."""
        message: dict[str, Any] = json.loads(self.connection.recv(timeout=TIMEOUT_S))
        assert not kinds or message["type"] in kinds, message
        return message

    def until(self, kind: str) -> dict[str, Any]:
        """The next message of this type; others are passed over."""
        while True:
            message = self.hear()
            if message["type"] == kind:
                return message

    def records(self, count: int) -> list[dict[str, Any]]:
        out: list[dict[str, Any]] = []
        while len(out) < count:
            out += self.hear("records")["records"]
        return out

    def closed(self) -> tuple[int, list[dict[str, Any]]]:
        """The code it is closed with, and what was said before."""
        said: list[dict[str, Any]] = []
        with suppress(ConnectionClosed):
            while True:
                said.append(self.hear())
        code = self.connection.protocol.close_rcvd
        assert code is not None, "it was not closed, it broke"
        return code.code, said


@contextmanager
def talking(url: str, path: str, **options: Any) -> Iterator[Socket]:
    target = re.sub("^http", "ws", url) + path
    with connect(target, subprotocols=[names.SUBPROTOCOL], open_timeout=TIMEOUT_S, **options) as connection:
        yield Socket(connection)
