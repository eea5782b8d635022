"""A request that goes on as a WebSocket. Offers of anything else, and anywhere else, are declined.

Such a request takes the way of any other, through the door and the router, with its WebSocket in the scope. What
refuses it is an answer of HTTP; only the answer 101 turns the connection into frames.
"""

import re
from typing import Any

from siltlog.infra.http.connection.share import Share
from siltlog.infra.http.connection.web_socket import UPGRADE, WebSocket

CLOSE_SECONDS_MAX = 5.0
"""How long a client may take to answer a close, or to take what is left."""
_PATHS = re.compile(rb"/v1/(?:topics|groups)/[^/?]+/ws(?:\?.*)?", re.DOTALL)


def wants_web_socket(method: bytes, version: str, url: bytes, headers: list[tuple[bytes, bytes]]) -> bool:
    return (
        method == b"GET"
        and version == "1.1"
        and _PATHS.fullmatch(url) is not None
        and any(name == b"upgrade" and value.lower() == b"websocket" for name, value in headers)
        and not any(name in (b"content-length", b"transfer-encoding") for name, _ in headers)
    )


class Upgrade:
    """The WebSocket of a connection, from its offer on: what the connection reads is its."""

    def __init__(
        self, transport: Any, cycle: Any, url: bytes, headers: list[tuple[bytes, bytes]], share: Share
    ) -> None:
        """`cycle` is uvicorn's of the request that offers it."""
        self._transport = transport
        self._cycle = cycle
        self._ended_at: float | None = None
        cycle.more_body = False
        cycle.message_event.set()
        # Refused, there is nothing more to read: the parser has stopped.
        cycle.keep_alive = False
        target = url.decode("latin-1")
        self.socket = WebSocket(transport, target, headers, opening=self._opening, opened=self._opened, share=share)
        cycle.scope["extensions"] = {UPGRADE: {"socket": self.socket}}

    @property
    def opened(self) -> bool:
        return self.socket.opened

    def look(self, now: float, is_stuck: bool) -> None:
        """Ends what does not take what it is sent, and what does not answer a close."""
        if self.socket.ended:
            if self._ended_at is None:
                self._ended_at = now
            elif now - self._ended_at > CLOSE_SECONDS_MAX:
                self._transport.abort()
        elif is_stuck:
            self.socket.too_slow()

    def _opening(self) -> None:
        """The next answer has no body, and the connection stays."""
        self._cycle.keep_alive = True
        self._cycle.chunked_encoding = False

    def _opened(self) -> None:
        """To uvicorn the request is over, without an end of its answer."""
        self._cycle.disconnected = True
