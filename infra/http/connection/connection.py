"""A connection: uvicorn's protocol, composed of the limits it keeps, an upgrade it may take, and a fast path."""

import asyncio
from collections import deque
from typing import Any, NamedTuple

import httptools
from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from siltlog.infra import names
from siltlog.infra.errors import SiltlogError, problem, problem_document
from siltlog.infra.http.connection.crowd import KEEP_ALIVE_SECONDS, Crowd
from siltlog.infra.http.connection.fast_path import Exchange, FastPath, NoFastPath
from siltlog.infra.http.connection.gathering import LingeringTransport
from siltlog.infra.http.connection.hang_up import HANG_UP, HangUp
from siltlog.infra.http.connection.peer import KNOWN, PEER, Peer, Peers
from siltlog.infra.http.connection.upgrade import Upgrade, wants_web_socket
from siltlog.infra.http.door import HOP_SESSION, Door
from siltlog.infra.http.header_fields import check_head
from siltlog.infra.http.log.access_log import LOCAL_ADDRESS
from siltlog.infra.http.requests import NO_OPERATION, encode_json, problem_headers
from siltlog.infra.http.streams import STREAM, Stream

HEAD_BYTES_MAX = 64 * 1024
"""The most that a request's line and header fields take together, and also the most that a chunked body has before its
next bytes or behind its last."""
PIPELINE_MAX = 128
"""Requests of a connection that may wait for the answer to an earlier one; with more it ends after these."""
EXCESS_MAX = 128
"""So many connections above the limit are kept long enough to answer one request of each; more are cut off."""
EXCESS_SECONDS = 5.0
STRANGER_SECONDS = 10.0
"""How long a connection stays on which nobody says who they are, where one must, once nothing is under way on it."""
DISCARD_SECONDS = 5.0
"""How long the rest of a body is still read, and thrown away, after its request was refused."""
LULL_SECONDS = 1.0
"""When nothing came for so long after a refusal, a client of TLS is told that this was all."""
TAKEN_BYTES = 64 * 1024


class Served(NamedTuple):
    """The parts that all connections share."""

    crowd: Crowd
    door: Door
    fast_path: FastPath
    peers: Peers
    path_prefix: bytes = b""
    """What a proxy leaves before the path of a request."""


class Connection(HttpToolsProtocol):
    """Offers what it reads in one order: to the WebSocket, to the fast path, and to uvicorn's way.

    `app`, `cycle`, `flow`, `headers`, `parser`, `pipeline`, `scope`, `url`, ... are uvicorn's.
    """

    def __init__(self, served: Served, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.excess = False
        """It is one too many."""
        self.peer = Peer()
        self.remembered: Any = None
        """The fast path's memory of who called last."""
        self._served = served
        self._hang_up = HangUp()
        self._fast_path = served.fast_path
        self._taken: Exchange | None = None
        """The exchange that the fast path has taken, while it is not known yet whether the request comes whole."""
        self._content = b""
        self._upgrade: Upgrade | None = None
        self._pieces = 0
        """How many pieces of bodies were in what was read last."""
        self._made_at = self._quiet_since = self.loop.time()
        self._head_bytes = 0
        self._head: Any = None
        self._head_since = 0.0
        self._taken_bytes = 0
        self._taken_at = 0.0
        self.pipeline = _Pipeline()
        self._deaf = False
        """Refused for good: what still comes is thrown away."""
        self._lulled_since = 0.0
        """When something came last after the last answer; 0.0 while there may be others."""

    @property
    def is_web_socket(self) -> bool:
        return self._upgrade is not None and self._upgrade.opened

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(LingeringTransport(transport, self))  # type: ignore[arg-type]
        crowd, door, peers = self._served.crowd, self._served.door, self._served.peers
        refusal: SiltlogError | None = None
        try:
            self.peer = peers.of(transport)
        except SiltlogError as error:
            refusal = error
        self.app_state = {PEER: self.peer, KNOWN: self.known, HANG_UP: self._hang_up}
        if door.hops is not None:
            self.app_state[HOP_SESSION] = door.hops.session()
        self.excess = crowd.joined(self, self.peer.address)
        if self.excess:
            self.app = door.refuse
            if crowd.excess > EXCESS_MAX:
                refusal = refusal or crowd.full()
        if self.excess or self.peer.in_clear:
            # Whether the request came by https says a field that only the long way reads.
            self._fast_path = NoFastPath()
        if refusal is not None:
            self.refuse(refusal)

    def known(self) -> None:
        """Somebody has said on it who they are."""
        self._served.crowd.known(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._served.crowd.left(self, self.peer.address, excess=self.excess)
        super().connection_lost(exc)
        self._hang_up.told()
        if self._upgrade is not None:
            self._upgrade.socket.lost()

    def pause_writing(self) -> None:
        super().pause_writing()
        if self._upgrade is not None:
            self._upgrade.socket.pause_writing()

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._upgrade is not None:
            self._upgrade.socket.resume_writing()

    # What was read.

    def data_received(self, data: bytes) -> None:
        if self._deaf:
            if self._lulled_since:
                self._lulled_since = self.loop.time()
            return
        began, self._pieces = self.loop.time(), 0
        if self._upgrade is not None:
            self._upgrade.socket.data_received(data)
        else:
            self._parse(data)
            if self._taken is not None:
                # Not all of a request came at once.
                self._taken = None
                self._take_long_way()
        if self._in_head or (self.cycle is not None and self.cycle.more_body and not self._pieces):
            self._bound_head(len(data))
        else:
            self._head_bytes = 0
        self._served.crowd.share.took(self._pieces, began, self.transport.pause_reading, self._read_on)

    def _read_on(self) -> None:
        if not self.flow.read_paused and not self.transport.is_closing():
            self.transport.resume_reading()

    def _parse(self, data: bytes) -> None:
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            if self._upgrade_offered:
                self._take_or_decline_upgrade(data[upgrade.args[0] :])
        except httptools.HttpParserCallbackError as error:
            self.send_400_response(str(error.__context__))
        except httptools.HttpParserError as error:
            self.send_400_response(str(error))

    def _bound_head(self, nbytes: int) -> None:
        self._head_bytes += nbytes
        if self._head_bytes > HEAD_BYTES_MAX:
            self.refuse(
                problem(
                    "request_too_large",
                    f"the line and fields of a request are above the limit of {HEAD_BYTES_MAX} bytes",
                    limit=HEAD_BYTES_MAX,
                )
            )

    def on_headers_complete(self) -> None:
        prefix = self._served.path_prefix
        if prefix and self.url.startswith(prefix + b"/"):
            # Before anything reads it: rights, limits and logs go by the path that is left.
            self.url = self.url[len(prefix) :]
        if self.cycle is None or self.cycle.response_complete:
            self._taken = self._fast_path.taken(self)
            if self._taken is not None:
                return
        check_head(self.parser.get_http_version(), self.url, self.headers)
        if not self._upgrade_offered:
            super().on_headers_complete()
            # The request's are complete. Fields that follow a chunked body are none of them (RFC 9110, section 6.5).
            self.headers = []

    def on_body(self, body: bytes) -> None:
        if self._taken is not None:
            self._content = self._content + body if self._content else body
            return
        self._pieces += 1
        cycle = self.cycle
        if cycle.body or cycle.response_complete:
            super().on_body(body)
            return
        # uvicorn would copy it into a buffer of its own, and out of that again.
        cycle.body = body  # type: ignore[assignment]
        if len(body) > HIGH_WATER_LIMIT:
            self.flow.pause_reading()
        cycle.message_event.set()

    def on_message_complete(self) -> None:
        exchange = self._taken
        if exchange is not None:
            self._taken = None
            if exchange.suits(self._content):
                content, self._content = self._content, b""
                self.cycle = exchange  # type: ignore[assignment]
                exchange.begin(content)
                return
            self._take_long_way()
        if not self._upgrade_offered:
            # A field behind the body may have said so: the parser reads nothing more of this connection.
            self.cycle.keep_alive = self.cycle.keep_alive and self.parser.should_keep_alive()
            super().on_message_complete()

    def _take_long_way(self) -> None:
        """Hands what the fast path had taken to the application, with what has come of its body."""
        content, self._content = self._content, b""
        if not self._upgrade_offered:
            super().on_headers_complete()
            self.headers = []
        if content:
            self.on_body(content)

    @property
    def _upgrade_offered(self) -> bool:
        """The client could go on in another protocol, as HTTP clients that know HTTP/2 say with their first request."""
        return bool(self.parser.should_upgrade()) and self.parser.get_method() != b"CONNECT"

    def _take_or_decline_upgrade(self, rest: bytes) -> None:
        parser = self.parser
        if not wants_web_socket(parser.get_method(), parser.get_http_version(), self.url, self.headers):
            self._decline_upgrade(rest)
            return
        try:
            super().on_headers_complete()
        except OverflowError:
            self.send_400_response("too many requests without waiting for an answer")
            return
        self._upgrade = Upgrade(self.transport, self.cycle, self.url, self.headers, self._served.crowd.share)
        if rest:
            self._upgrade.socket.data_received(rest)

    def _decline_upgrade(self, rest: bytes) -> None:
        """Reads the request again, without its offer: the parser has stopped before its body."""
        version = self.parser.get_http_version().encode()
        # The prefix is taken off once more.
        url = self._served.path_prefix + self.url if self.url.startswith(b"/") else self.url
        head = b"%b %b HTTP/%b\r\n" % (self.parser.get_method(), url, version)
        lines = b"".join(b"%b: %b\r\n" % field for field in self.headers if field[0] != b"upgrade")
        self.parser = httptools.HttpRequestParser(self)
        self.parser.set_dangerous_leniencies(lenient_data_after_close=True)
        self._parse(b"".join((head, lines, b"\r\n", rest)))

    # Answers, and how long they take.

    def on_response_complete(self) -> None:
        """Without uvicorn's timer for each reply: `look` knows when the connection became quiet."""
        self.server_state.total_requests += 1
        if self.transport.is_closing():
            return
        self._quiet_since = self.loop.time()
        self.flow.resume_reading()
        if self.pipeline:
            self._start_asgi_task(*self.pipeline.pop())

    def send_400_response(self, msg: str) -> None:
        under_way = self.cycle is not None and not self.cycle.response_complete and not self.cycle.more_body
        if under_way or self.pipeline:
            # What came before is whole and gets its own answers; the connection ends with the last of them.
            last = self.pipeline[0][0] if self.pipeline else self.cycle
            last.keep_alive = False
            # Not one that was read and found no room: it will never be complete.
            self.cycle = last
            self._deaf = True
            return
        self.refuse(
            problem(
                "malformed_body",
                f"what was sent is not a request of HTTP/1.1, or not where one had to begin: {msg or 'unreadable'}",
            )
        )

    @property
    def _in_head(self) -> bool:
        """A request has begun whose header fields are not complete."""
        return self.scope is not None and (self.cycle is None or self.cycle.scope is not self.scope)

    @property
    def unread(self) -> bool:
        """More of what was refused is still to come."""
        return self._deaf or self.is_web_socket or (self.cycle is not None and self.cycle.more_body)

    def refuse(self, error: SiltlogError) -> None:
        """Answers without a request to answer, and closes."""
        if self._deaf:
            return
        self._deaf = True
        door = self._served.door
        request_id = door.next_request_id()
        status = door.refusal(error, "", "", request_id).status or 500
        door.count_reply(NO_OPERATION, status)
        body = encode_json(problem_document(error, request_id))
        headers = {**problem_headers(error), "Content-Type": names.MEDIA_PROBLEM, "Connection": "close"}
        headers[names.HEADER_REQUEST_ID] = request_id
        lines = [f"{name}: {value}\r\n".encode() for name, value in headers.items()]
        length = b"Content-Length: %d\r\n\r\n" % len(body)
        self.transport.write(b"".join((STATUS_LINE[status], *lines, length, body)))
        self.transport.close()
        if door.access_log is not None and door.access_log.wants(status, 0.0):
            # Nothing of what was sent is told: it was no request.
            door.access_log.tell(
                status,
                b"",
                0.0,
                request_id=request_id,
                bytes_out=len(body),
                address=self.peer.address or LOCAL_ADDRESS,
                error_code=error.error_code,
            )

    def linger(self) -> None:
        """The reply is out, and no other will be: closing now, with something unread, would reset it away."""
        self._deaf = True
        self._quiet_since = self._lulled_since = self.loop.time()

    def look(self, now: float, stall_seconds: float) -> float:
        """Closes the connection when its time is up; seconds until it is closed if it stays quiet."""
        upgrade = self._upgrade
        if upgrade is not None and upgrade.opened:
            if not self.flow.write_paused:
                self._taken_at = 0.0
            upgrade.look(now, self.flow.write_paused and self._is_stuck(now, stall_seconds))
            return KEEP_ALIVE_SECONDS
        if self.flow.write_paused:
            if self._is_stuck(now, stall_seconds):
                self.cut()
            return KEEP_ALIVE_SECONDS
        self._taken_at = 0.0
        cycle = self.cycle
        if cycle is not None and not cycle.response_complete:
            self._head = None
            return KEEP_ALIVE_SECONDS
        if now - self._made_at > STRANGER_SECONDS and not self._deaf and self._served.crowd.is_stranger(self):
            self.transport.close()
        quiet = now - self._quiet_since
        limit = EXCESS_SECONDS if self.excess else KEEP_ALIVE_SECONDS
        if self.unread:
            limit = DISCARD_SECONDS
            if self._lulled_since and now - self._lulled_since >= LULL_SECONDS and not self.transport.can_write_eof():
                # Of TLS no direction ends by itself: a client that goes by the end, and not by the length, would wait.
                self.transport.end()  # type: ignore[attr-defined]
        elif self._in_head:
            if self._head is not self.scope:
                self._head, self._head_since = self.scope, now
            if now - self._head_since > stall_seconds:
                self.refuse(problem("request_timeout", "the header fields of the request did not arrive in time"))
            return KEEP_ALIVE_SECONDS
        if quiet > limit:
            transport = self.transport
            if transport.is_closing() or transport.get_write_buffer_size() or self._deaf:
                transport.abort()
            else:
                transport.close()
        return max(limit - quiet, 0.0)

    @property
    def stream(self) -> Stream | None:
        """The stream that is its answer, while that goes on."""
        if self.cycle is None or self.cycle.response_complete:
            return None
        stream: Stream | None = self.cycle.scope["state"].get(STREAM)
        return stream

    def cut(self) -> None:
        """Ends it at once, whatever is under way."""
        stream = self.stream
        if stream is not None:
            stream.cut()
        self.transport.abort()

    def _is_stuck(self, now: float, stall_seconds: float) -> bool:
        """The client does not take its reply."""
        taken = self.transport.written_bytes - self.transport.get_write_buffer_size()  # type: ignore[attr-defined]
        if taken - self._taken_bytes >= TAKEN_BYTES or not self._taken_at:
            self._taken_bytes, self._taken_at = taken, now
        return now - self._taken_at > stall_seconds


class _Pipeline(deque[Any]):
    """Requests that came before the answer to an earlier one; the one that is too many ends the parsing."""

    def appendleft(self, request: Any) -> None:
        if len(self) >= PIPELINE_MAX:
            raise OverflowError("too many requests without waiting for an answer")
        super().appendleft(request)
