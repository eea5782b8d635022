"""Transports that send a reply in one piece, head and body together."""

import asyncio
from typing import Any, Protocol

PASSED_BYTES_MIN = 64 * 1024
"""Larger pieces go out as they are: joining them would copy them."""


class Gathering:
    """A transport that keeps what is written until the loop's next turn. What it does not have is the real one's."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self.written_bytes = 0
        self._held: list[bytes] = []
        self._said_all = False
        """What is written from now on goes nowhere."""
        self._loop = asyncio.get_running_loop()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        if self._said_all:
            return
        self.written_bytes += len(data)
        if len(data) >= PASSED_BYTES_MIN:
            self.flush()
            self._transport.write(data)
            return
        if not self._held:
            self._loop.call_soon(self.flush)
        self._held.append(data)

    def close(self) -> None:
        self.flush()
        self._transport.close()

    def flush(self) -> None:
        held, self._held = self._held, []
        # Whoever is gone gets nothing.
        if held and not self._transport.is_closing():
            self._transport.write(held[0] if len(held) == 1 else b"".join(held))


class Lingering(Protocol):
    """A connection as its transport sees it."""

    @property
    def unread(self) -> bool:
        """More of what was refused is still to come."""

    def linger(self) -> None:
        """The reply is out, and no other will be."""


class LingeringTransport(Gathering):
    """Closes once the client has had time to read what it was told."""

    def __init__(self, transport: asyncio.Transport, connection: Lingering) -> None:
        super().__init__(transport)
        self._connection = connection

    def close(self) -> None:
        if self._connection.unread and not self.is_closing():
            self.flush()
            # The answer to an earlier request may come after the connection was refused for good.
            self._said_all = True
            # TLS has no end of one direction alone: its client sees where the reply ends by its length.
            if self._transport.can_write_eof():
                self._transport.write_eof()
            self._connection.linger()
        else:
            super().close()

    def end(self) -> None:
        """Says that there is no more, for good: what still comes resets the connection."""
        self._transport.close()
