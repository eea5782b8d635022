"""uvicorn's HTTP protocol with one write per reply, head and body together, and no copies of what it reads."""

import asyncio
from typing import Any

import httptools
from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

PASSED_BYTES_MIN = 64 * 1024
"""Larger pieces go out as they are: joining them would copy them."""


class OneWriteProtocol(HttpToolsProtocol):
    body_came = False
    """A piece of a body was among what was read last."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(self.gathering(transport))  # type: ignore[arg-type]

    def gathering(self, transport: asyncio.Transport) -> "Gathering":
        return Gathering(transport)

    def data_received(self, data: bytes) -> None:
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            if self._upgrade_offered:
                self._decline_upgrade(data[upgrade.args[0] :])
        except httptools.HttpParserCallbackError as error:
            self.send_400_response(str(error.__context__))
        except httptools.HttpParserError as error:
            self.send_400_response(str(error))

    @property
    def _upgrade_offered(self) -> bool:
        """The client could go on in another protocol, as HTTP clients that know HTTP/2 say with their first request."""
        return bool(self.parser.should_upgrade()) and self.parser.get_method() != b"CONNECT"

    def _decline_upgrade(self, rest: bytes) -> None:
        """Reads the request again, without its offer: the parser has stopped before its body."""
        version = self.parser.get_http_version().encode()
        head = b"%b %b HTTP/%b\r\n" % (self.parser.get_method(), self.url, version)
        lines = b"".join(b"%b: %b\r\n" % field for field in self.headers if field[0] != b"upgrade")
        self.parser = httptools.HttpRequestParser(self)
        self.parser.set_dangerous_leniencies(lenient_data_after_close=True)
        # Not what inherits: that has seen these bytes.
        OneWriteProtocol.data_received(self, b"".join((head, lines, b"\r\n", rest)))

    def on_headers_complete(self) -> None:
        if not self._upgrade_offered:
            super().on_headers_complete()
            # The request's are complete. Fields that follow a chunked body are none of them (RFC 9110, section 6.5).
            self.headers = []

    def on_message_complete(self) -> None:
        if not self._upgrade_offered:
            # A field behind the body may have said so: the parser reads nothing more of this connection.
            self.cycle.keep_alive = self.cycle.keep_alive and self.parser.should_keep_alive()
            super().on_message_complete()

    def on_body(self, body: bytes) -> None:
        self.body_came = True
        cycle = self.cycle
        if cycle.body or cycle.response_complete:
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
        held, self._held = self._held, []
        # Whoever is gone gets nothing.
        if held and not self._transport.is_closing():
            self._transport.write(held[0] if len(held) == 1 else b"".join(held))
