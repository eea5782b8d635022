"""Connections: how many there may be, how long one may stand still, and what those hear that are too many."""

import asyncio
from collections import deque
from typing import Any

from starlette.types import ASGIApp
from uvicorn.protocols.http.httptools_impl import STATUS_LINE

from siltlog.infra import names
from siltlog.infra.clock import Clock
from siltlog.infra.errors import SiltlogError, problem, problem_document
from siltlog.infra.http.drain_rate import DrainRate
from siltlog.infra.http.memory import STALL_SECONDS, InFlight
from siltlog.infra.http.requests import encode_json, problem_headers
from siltlog.infra.http.streams import STREAM, Stream
from siltlog.infra.telemetry import Logger
from siltlog.server.one_write import Gathering
from siltlog.server.small_publishes import SmallPublishes
from siltlog.server.upgrades import UpgradeProtocol

KEEP_ALIVE_SECONDS = 75.0
HEAD_BYTES_MAX = 64 * 1024
"""Of a request's line and header fields together, and of what there is in a chunked body before its next bytes, or
behind its last."""
PIPELINE_MAX = 128
"""Requests of a connection that may wait for the answer to an earlier one; with more it ends after these."""
EXCESS_MAX = 128
"""So many connections above the limit are kept long enough to answer one request of each; more are cut off."""
EXCESS_SECONDS = 5.0
STREAM_END_SECONDS = 1.0
"""How long a client may take to read the end of a stream when the server goes away."""
DISCARD_SECONDS = 5.0
"""How long the rest of a body is still read, and thrown away, after its request was refused."""
LOOK_SECONDS = 0.5
END_LOOK_SECONDS = 0.01
LOOK_TURN = 500
"""So many connections are looked at before others get their turn."""
TAKEN_BYTES = 64 * 1024


class Connections:
    """All connections of the server; one task looks after their time limits, so that a request pays nothing for them.

    A client that does not take TAKEN_BYTES of its reply within `stall_seconds` is cut off, as is one whose request
    head takes longer than that.
    """

    def __init__(
        self, *, connections_max: int, stall_seconds: float, in_flight: InFlight, clock: Clock, logger: Logger
    ) -> None:
        self.open: set[Any] = set()
        self.excess = 0
        self.connections_max = connections_max
        self.small: SmallPublishes
        """Answers what needs no application."""
        self.refusing: ASGIApp
        """Answers the requests of those that are too many."""
        self._stall_seconds = stall_seconds
        self._pressed = False
        self._logger = logger
        self._clock = clock
        self._closed = DrainRate(clock.monotonic())
        self._soonest_seconds = KEEP_ALIVE_SECONDS
        in_flight.on_full.append(self._press)

    def protocol(self, **kwargs: Any) -> "Connection":
        """What uvicorn makes of each connection."""
        return Connection(self, **kwargs)

    def full(self) -> SiltlogError:
        """The refusal for a connection that is one too many."""
        retry_ms = self._closed.retry_ms(1, self._clock.monotonic())
        return problem(
            "overloaded",
            f"{self.connections_max} connections are open, which is the limit (SILT_CONNECTIONS_MAX); use one "
            "connection for many requests, or try again later",
            retry_after_ms=retry_ms or max(int(self._soonest_seconds * 1000), 1),
        )

    def made(self, connection: "Connection") -> None:
        self.open.add(connection)
        if len(self.open) - self.excess <= self.connections_max:
            return
        self.excess += 1
        connection.excess = True
        connection.small = None
        connection.app = self.refusing
        if self.excess > EXCESS_MAX:
            connection.refuse(self.full())

    def lost(self, connection: "Connection") -> None:
        self.open.discard(connection)
        self.excess -= connection.excess
        self._closed.left(1, self._clock.monotonic())

    async def watch(self) -> None:
        """Closes what stands still; runs until cancelled."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            try:
                await self._look()
            except Exception:
                # Whatever it was, the next look must come.
                self._logger.exception("looking after connections failed")

    async def end(self, seconds_max: float) -> None:
        """Closes all: at once where nothing is under way, else when the answer is read, or after `seconds_max`."""
        for connection in tuple(self.open):
            connection.shutdown()
        end = self._clock.monotonic() + seconds_max
        while self.open and self._clock.monotonic() < end:  # noqa: ASYNC110 (at the end only)
            await asyncio.sleep(END_LOOK_SECONDS)
        for connection in tuple(self.open):
            connection.transport.abort()

    def end_streams(self) -> None:
        """Those of clients that do not take even the end of a stream are cut off in a moment."""
        asyncio.get_running_loop().call_later(STREAM_END_SECONDS, self._cut_streams)

    def _cut_streams(self) -> None:
        for connection in tuple(self.open):
            if connection.stream is not None and not connection.is_web_socket:
                connection.transport.abort()

    async def _look(self) -> None:
        stall_seconds = min(self._stall_seconds, STALL_SECONDS) if self._pressed else self._stall_seconds
        self._pressed = False
        soonest = KEEP_ALIVE_SECONDS
        for number, connection in enumerate(tuple(self.open)):
            if number % LOOK_TURN == LOOK_TURN - 1:
                await asyncio.sleep(0)
            left = connection.look(asyncio.get_running_loop().time(), stall_seconds)
            soonest = min(soonest, left)
        self._soonest_seconds = soonest

    def _press(self) -> None:
        self._pressed = True


class Connection(UpgradeProtocol):
    """uvicorn's protocol with limits. `cycle`, `flow`, `pipeline`, ... are uvicorn's."""

    def __init__(self, connections: Connections, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.excess = False
        self.small = connections.small
        self._all = connections
        self._quiet_since = self.loop.time()
        self._head_bytes = 0
        self._head: Any = None
        self._head_since = 0.0
        self._taken_bytes = 0
        self._taken_at = 0.0
        self.pipeline = _Pipeline()
        self._deaf = False
        """Refused for good: what still comes is thrown away."""

    # --- as asyncio and the parser call it ----------------------------------------------------------------
    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._all.made(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._all.lost(self)
        super().connection_lost(exc)

    def gathering(self, transport: asyncio.Transport) -> Gathering:
        return _Lingering(transport, self)

    def data_received(self, data: bytes) -> None:
        if self._deaf:
            return
        super().data_received(data)
        if self._in_head or (self.cycle is not None and self.cycle.more_body and not self.body_came):
            self._head_bytes += len(data)
            if self._head_bytes > HEAD_BYTES_MAX:
                self.refuse(
                    problem(
                        "request_too_large",
                        f"the line and fields of a request are above the limit of {HEAD_BYTES_MAX} bytes",
                        limit=HEAD_BYTES_MAX,
                    )
                )
        else:
            self._head_bytes = 0
        self.body_came = False

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

    # --- limits -------------------------------------------------------------------------------------------
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
        door = self._all.small.door
        request_id = door.next_request_id()
        status = door.refusal(error, "", "", request_id).status or 500
        door.replies[status] = door.replies.get(status, 0) + 1
        body = encode_json(problem_document(error, request_id))
        headers = {**problem_headers(error), "Content-Type": names.MEDIA_PROBLEM, "Connection": "close"}
        headers[names.HEADER_REQUEST_ID] = request_id
        lines = [f"{name}: {value}\r\n".encode() for name, value in headers.items()]
        length = b"Content-Length: %d\r\n\r\n" % len(body)
        self.transport.write(b"".join((STATUS_LINE[status], *lines, length, body)))
        self.transport.close()

    def linger(self) -> None:
        """The reply is out, and no other will be: closing now, with something unread, would reset it away."""
        self._deaf = True
        self._quiet_since = self.loop.time()

    def look(self, now: float, stall_seconds: float) -> float:
        """Closes the connection when its time is up; seconds until it is closed if it stays quiet."""
        if self.is_web_socket:
            if not self.flow.write_paused:
                self._taken_at = 0.0
            self.look_at_web_socket(now, self.flow.write_paused and self._is_stuck(now, stall_seconds))
            return KEEP_ALIVE_SECONDS
        if self.flow.write_paused:
            if self._is_stuck(now, stall_seconds):
                self._cut()
            return KEEP_ALIVE_SECONDS
        self._taken_at = 0.0
        cycle = self.cycle
        if cycle is not None and not cycle.response_complete:
            self._head = None
            return KEEP_ALIVE_SECONDS
        quiet = now - self._quiet_since
        limit = EXCESS_SECONDS if self.excess else KEEP_ALIVE_SECONDS
        if self.unread:
            limit = DISCARD_SECONDS
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

    def _cut(self) -> None:
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


class _Lingering(Gathering):
    """Closes once the client has had time to read what it was told."""

    def __init__(self, transport: asyncio.Transport, connection: Connection) -> None:
        super().__init__(transport)
        self._connection = connection

    def close(self) -> None:
        if self._connection.unread and not self.is_closing():
            self.flush()
            self._transport.write_eof()
            self._connection.linger()
        else:
            super().close()
