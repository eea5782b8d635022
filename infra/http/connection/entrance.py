"""The entrance of a listener beside HTTP's: accepts connections, with TLS where HTTP has it."""

import asyncio
import socket
from collections.abc import Callable

from siltlog.infra.http.connection.handshakes import Handshakes

BACKLOG = 2048


class Entrance:
    """Used on one event loop."""

    def __init__(self, handshakes: Handshakes | None, made: Callable[[], asyncio.BaseProtocol]) -> None:
        """`handshakes` are there where it speaks TLS; `made()` gives each connection its protocol."""
        self._handshakes = handshakes
        self._made = made
        self._server: asyncio.Server | None = None
        self._accepting: asyncio.Task[None] | None = None

    async def open(self, listener: socket.socket) -> None:
        """Accepts connections from now on."""
        loop = asyncio.get_running_loop()
        if self._handshakes is None:
            self._server = await loop.create_server(self._made, sock=listener, backlog=BACKLOG)
        else:
            self._accepting = loop.create_task(self._handshakes.accept(listener, self._made))

    def close(self) -> None:
        """Accepts no more; those that came stay."""
        if self._server is not None:
            self._server.close()
        if self._accepting is not None:
            self._accepting.cancel()
