"""A WebSocket of the server (RFC 6455): frames come from `websockets`, bytes and time from the connection it is on.

It buffers no more than a few messages and what a read brought: while messages wait, or the client does not take what it
is sent, nothing is read from it.
"""

from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, Protocol

from websockets.datastructures import Headers
from websockets.exceptions import NegotiationError
from websockets.frames import Frame, Opcode
from websockets.http11 import Request
from websockets.protocol import State
from websockets.server import ServerProtocol
from websockets.typing import Subprotocol

from siltlog.infra import names
from siltlog.infra.errors import SiltlogError, problem, problem_document
from siltlog.infra.http.connection.share import Share
from siltlog.infra.http.requests import encode_json

MESSAGE_BYTES_MAX = 64 * 1024
"""The largest message to the server; those it sends have the limits of reads."""
MESSAGES_WAITING_MAX = 16
SLICE_BYTES = 16 * 1024
"""Received bytes are looked at in pieces of this size, until enough messages wait."""
FRAME_STEPS = 16
"""So many times what a frame of gRPC takes is what one of these does, and the message in it."""
REASON_BYTES_MAX = 120
DONE, AWAY, REFUSED, TOO_LARGE, TOO_SLOW = 1000, 1001, 1008, 1009, 1013
"""Close codes: done, the server goes away, refused, the message is too large, come again later."""

UPGRADE = "silt.web_socket"
"""The extension of a request's scope that has its WebSocket as `socket`, where the client asked for one."""


class Line(Protocol):
    """The connection beneath, once the upgrade is through."""

    def write(self, data: bytes) -> None: ...
    def close(self) -> None: ...
    def abort(self) -> None: ...
    def pause_reading(self) -> None: ...
    def resume_reading(self) -> None: ...


class WebSocket:
    """Used on one event loop: by one task above, and by the connection beneath."""

    def __init__(
        self,
        line: Line,
        target: str,
        headers: Iterable[tuple[bytes, bytes]],
        *,
        opening: Callable[[], None],
        opened: Callable[[], None],
        share: Share,
    ) -> None:
        """`target` and `headers` are the request's; `opening` is called before the answer that opens it, `opened` after
        it."""
        self._share = share
        self._resting = False
        """Others have their turn before more of it is looked at."""
        self.request_id = ""
        self.opened = False
        self.is_slow = False
        self._wake: Callable[[], None] = lambda: None
        self._line = line
        self._on_opening = opening
        self._on_opened = opened
        fields = Headers((name.decode("latin-1"), value.decode("latin-1")) for name, value in headers)
        self._request = Request(target, fields)
        # Not the one that accepts the handshake: that would go on to read it.
        self._frames = _Frames(self, State.OPEN)
        self._messages: deque[bytes] = deque()
        self._messages_bytes = 0
        self._begun: bytearray | None = None
        self._unread = bytearray()
        """Came, and waits for its turn."""
        self._lost = False
        self._writable = True
        self._reading = True
        self._answered = True

    def accepted(self) -> list[tuple[bytes, bytes]]:
        """The header fields of the answer that opens it. Raises Refused `invalid_parameter`."""
        handshake = ServerProtocol(select_subprotocol=_chosen)
        response = handshake.accept(self._request)
        if response.status_code != 101:
            reason = str(handshake.handshake_exc)
            if "Sec-WebSocket-Protocol" in reason:
                # It quotes what was offered, and a token is never told back.
                reason = "the header field Sec-WebSocket-Protocol is not a list of names"
            raise problem(
                "invalid_parameter", f"the handshake of the WebSocket is not valid: {reason}", parameter="Upgrade"
            )
        # The connection has the date of its own.
        fields = response.headers.raw_items()
        return [(name.encode(), value.encode()) for name, value in fields if name != "Date"]

    def begin(self, request_id: str, wake: Callable[[], None]) -> None:
        """The answer that opens it follows. `wake` is called when there is a message, room to send, or the end."""
        self.request_id = request_id
        self._wake = wake
        self._on_opening()

    def open(self) -> None:
        """The answer is sent: frames follow."""
        self.opened = True
        self._on_opened()
        self._read_on()

    def message(self) -> bytes | None:
        """The next message of the client, its text as UTF-8; None while there is none."""
        if not self._messages:
            return None
        message = self._messages.popleft()
        self._messages_bytes -= len(message)
        self._read_on()
        return message

    @property
    def ended(self) -> bool:
        """Nothing can be sent any more."""
        return self._lost or self._frames.state is not State.OPEN

    @property
    def left(self) -> bool:
        """The client closed it, in words."""
        closed = self._frames.close_rcvd
        return closed is not None and self._frames.close_rcvd_then_sent is True

    def send(self, text: bytes) -> None:
        """One text message; thrown away when the WebSocket has ended. `takes` says when there is room for more."""
        if not self.ended:
            self._frames.send_text(text)
            self._flush()

    @property
    def takes(self) -> bool:
        """Whether the client has taken about all of what was sent, as far as the loop's last turn shows."""
        return self._writable

    def close(self, code: int, error: SiltlogError | None = None) -> None:
        """Says why, where that is a problem, and closes."""
        if self.ended:
            return
        reason = ""
        if error is not None:
            self.send(problem_message(error, self.request_id))
            reason = error.detail.encode()[:REASON_BYTES_MAX].decode("utf-8", "ignore")
        self._frames.send_close(code, reason)
        self._flush()

    def beat(self) -> None:
        """Pings; a client that has been silent since the last one is given up."""
        if self.ended or not self._writable:
            return
        if not self._answered and self._reading:
            self._line.abort()
            return
        self._answered = False
        self._frames.send_ping(b"")
        self._flush()

    def data_received(self, data: bytes) -> None:
        self._answered = True
        self._unread += data
        self._read_on()

    def pause_writing(self) -> None:
        self._writable = False
        self._read_on()

    def resume_writing(self) -> None:
        self._writable = True
        self._read_on()
        self._wake()

    def lost(self) -> None:
        self._lost = True
        self._wake()

    def too_slow(self) -> None:
        """The client does not take what it gave credit for: it is told, should it ever read again."""
        self.is_slow = True
        self.close(
            TOO_SLOW,
            problem(
                "overloaded",
                "what was sent was not taken for too long; come back with the last cursor, and give less credit",
            ),
        )
        self._wake()

    def _read_on(self) -> None:
        at = 0
        while self.opened and at < len(self._unread) and self._may_read:
            began = self._share.now()
            self._frames.receive_data(bytes(self._unread[at : at + SLICE_BYTES]))
            at += SLICE_BYTES
            frames = self._frames.events_received()
            for frame in frames:
                self._take(frame)
            self._flush()
            self._share.took(len(frames) * FRAME_STEPS, began, self._rest, self._go_on)
        del self._unread[:at]
        reading = len(self._unread) == 0 and (not self.opened or self._may_read)
        if reading != self._reading and not self._lost:
            self._reading = reading
            if reading:
                self._line.resume_reading()
            else:
                self._line.pause_reading()
        if self._messages or self.ended:
            self._wake()

    def _rest(self) -> None:
        self._resting = True

    def _go_on(self) -> None:
        self._resting = False
        self._read_on()

    @property
    def _may_read(self) -> bool:
        # Whoever sends and takes nothing would have its pongs pile up.
        few = len(self._messages) < MESSAGES_WAITING_MAX and self._messages_bytes < MESSAGE_BYTES_MAX
        return few and self._writable and not self._resting

    def _take(self, frame: Any) -> None:
        if not isinstance(frame, Frame) or frame.opcode in (Opcode.PING, Opcode.PONG, Opcode.CLOSE):
            return
        if frame.opcode is Opcode.BINARY:
            self.close(REFUSED, problem("malformed_body", "a message is a JSON text, not binary"))
            return
        if self._begun is None:
            self._begun = bytearray()
        self._begun += frame.data
        if frame.fin:
            self._messages.append(bytes(self._begun))
            self._messages_bytes += len(self._begun)
            self._begun = None

    def _flush(self) -> None:
        for data in self._frames.data_to_send():
            if data:
                self._line.write(data)
            else:
                self._line.close()


class _Frames(ServerProtocol):
    """The protocol without compression, which would let little stand for much."""

    def __init__(self, owner: WebSocket, state: State) -> None:
        super().__init__(state=state, max_size=MESSAGE_BYTES_MAX)
        self._owner = owner

    def fail(self, code: int, reason: str = "") -> None:
        """Says what was wrong as a problem, then closes."""
        if self.state is State.OPEN and code != 1006:
            self.send_text(problem_message(_failure(code, reason), self._owner.request_id))
        super().fail(code, reason)


def problem_message(error: SiltlogError, request_id: str) -> bytes:
    return encode_json({"type": "problem"} | _without_type(problem_document(error, request_id or None)))


def _without_type(document: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in document.items() if name != "type"}


def _failure(code: int, reason: str) -> SiltlogError:
    if code == TOO_LARGE:
        return problem(
            "request_too_large",
            f"the message is above the limit of {MESSAGE_BYTES_MAX} bytes; send several",
            limit=MESSAGE_BYTES_MAX,
        )
    return problem("malformed_body", f"what came is no WebSocket frame: {reason[:200]}")


def _chosen(_: ServerProtocol, offered: Iterable[Subprotocol]) -> Subprotocol | None:
    """Chooses the subprotocol; a client that names none is taken to speak this one."""
    names_offered = list(offered)
    if not names_offered:
        return None
    if names.SUBPROTOCOL in names_offered:
        return Subprotocol(names.SUBPROTOCOL)
    raise NegotiationError(f"the subprotocol here is {names.SUBPROTOCOL}")
