"""uvicorn's HTTP protocol with one write per reply, head and body in one system call, and no copies of what it reads."""

import asyncio
from typing import Any

from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

PASSED_BYTES_MIN = 64 * 1024
"""Larger pieces go out as they are: joining them would copy them."""


class OneWriteProtocol(HttpToolsProtocol):
    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(self.gathering(transport))  # type: ignore[arg-type]

    def gathering(self, transport: asyncio.Transport) -> "Gathering":
        return Gathering(transport)

    def on_body(self, body: bytes) -> None:
        cycle = self.cycle
        if cycle.body or cycle.response_complete or self.parser.should_upgrade():
            super().on_body(body)
            return
        # uvicorn would copy it into a buffer of its own, and out of that again.
        cycle.body = body  # type: ignore[assignment]
        if len(body) > HIGH_WATER_LIMIT:
            self.flow.pause_reading()
        cycle.message_event.set()


class Gathering:
    """A transport that keeps what is written until the loop's next turn. What it does not have is the real one's."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self.written_bytes = 0
        self._held: list[bytes] = []
        self._loop = asyncio.get_running_loop()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
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
        if self._held:
            held, self._held = self._held, []
            self._transport.write(held[0] if len(held) == 1 else b"".join(held))
