"""Requests that go on as a WebSocket. Offers of anything else, and anywhere else, are declined.

Such a request takes the way of any other, through the door and the router, with its WebSocket in the scope. What
refuses it is an answer of HTTP; only the answer 101 turns the connection into frames.
"""

import re
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from siltlog.infra.http.web_socket import UPGRADE, WebSocket
from siltlog.server.small_publishes import SmallPublishProtocol

CLOSE_SECONDS_MAX = 5.0
"""How long a client may take to answer a close, or to take what is left."""
_PATHS = re.compile(rb"/v1/(?:topics|groups)/[^/?]+/ws(?:\?.*)?", re.DOTALL)


class UpgradeProtocol(SmallPublishProtocol):
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.web_socket: WebSocket | None = None
        self._ended_at: float | None = None

    @property
    def is_web_socket(self) -> bool:
        return self.web_socket is not None and self.web_socket.opened

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        if self.web_socket is not None:
            self.web_socket.lost()

    def data_received(self, data: bytes) -> None:
        if self.web_socket is not None:
            self.web_socket.data_received(data)
        else:
            super().data_received(data)

    def pause_writing(self) -> None:
        super().pause_writing()
        if self.web_socket is not None:
            self.web_socket.pause_writing()

    def resume_writing(self) -> None:
        super().resume_writing()
        if self.web_socket is not None:
            self.web_socket.resume_writing()

    def _decline_upgrade(self, rest: bytes) -> None:
        if self._wants_web_socket:
            self._offer_web_socket(rest)
        else:
            super()._decline_upgrade(rest)

    @property
    def _wants_web_socket(self) -> bool:
        return (
            self.parser.get_method() == b"GET"
            and self.parser.get_http_version() == "1.1"
            and _PATHS.fullmatch(self.url) is not None
            and any(name == b"upgrade" and value.lower() == b"websocket" for name, value in self.headers)
            and not any(name in (b"content-length", b"transfer-encoding") for name, _ in self.headers)
        )

    def _offer_web_socket(self, rest: bytes) -> None:
        try:
            # Not what inherits: that has seen this head.
            HttpToolsProtocol.on_headers_complete(self)
        except OverflowError:
            self.send_400_response("too many requests without waiting for an answer")
            return
        cycle = self.cycle
        cycle.more_body = False
        cycle.message_event.set()
        # Refused, there is nothing more to read: the parser has stopped.
        cycle.keep_alive = False
        target = self.url.decode("latin-1")
        socket = WebSocket(self.transport, target, self.headers, opening=self._opening, opened=self._opened)
        cycle.scope["extensions"] = {UPGRADE: {"socket": socket}}
        self.web_socket = socket
        if rest:
            socket.data_received(rest)

    def _opening(self) -> None:
        """The next answer has no body, and the connection stays."""
        self.cycle.keep_alive = True
        self.cycle.chunked_encoding = False

    def _opened(self) -> None:
        """To uvicorn the request is over, without an end of its answer."""
        self.cycle.disconnected = True

    def look_at_web_socket(self, now: float, is_stuck: bool) -> None:
        """Ends what does not take what it is sent, and what does not answer a close."""
        socket = self.web_socket
        assert socket is not None
        if socket.ended:
            if self._ended_at is None:
                self._ended_at = now
            elif now - self._ended_at > CLOSE_SECONDS_MAX:
                self.transport.abort()
        elif is_stuck:
            socket.too_slow()
