"""A connection to another node: one request at a time, and its reply (RFC 9112, which httptools reads)."""

import asyncio
import re
import ssl
from collections.abc import Callable, Sequence
from typing import NamedTuple

import httptools

from siltlog.infra.client.connection import Address
from siltlog.infra.client.core import CONNECT_TIMEOUT_MS, ConnectionFailed
from siltlog.infra.errors import problem
from siltlog.infra.peers.tls import said_of

PIECE_BYTES = 256 * 1024
"""How many bytes are handed to the socket at once before others have their turn on the event loop."""
JOINED_BYTES_MAX = 64 * 1024
_ENDS_LINE = re.compile(rb"[\r\n\0]")
REPLY_BYTES_MAX = 256 * 1024 * 1024
Field = tuple[bytes, bytes]


class PeerReply(NamedTuple):
    status: int
    fields: Sequence[Field]
    """Names are in lower case."""
    body: bytes

    def field(self, name: str) -> str:
        """Its value, empty where it is not there."""
        wanted = name.lower().encode()
        return next((value.decode("latin-1") for found, value in self.fields if found == wanted), "")


class PeerConnection(asyncio.Protocol):
    """Used on one event loop."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._transport: asyncio.Transport | None = None
        self._reply: asyncio.Future[PeerReply] | None = None
        self._writable: asyncio.Future[None] | None = None
        self._paused = False
        self._took: Callable[[int], None] | None = None
        self._heard = False
        self.idle_since = 0.0
        self.is_open = False
        """Another request may follow."""
        self._begin()

    @classmethod
    async def opened(cls, address: Address, context: ssl.SSLContext | None) -> "PeerConnection":
        """Raises ConnectionFailed, of which nothing was sent."""
        made = cls(address)
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_MS / 1000):
                await loop.create_connection(
                    lambda: made,
                    address.host,
                    address.port,
                    ssl=context,
                    server_hostname=address.host if context else None,
                )
        except TimeoutError:
            raise ConnectionFailed(f"no connection within {CONNECT_TIMEOUT_MS} ms", sent=False) from None
        except ssl.SSLCertVerificationError as error:
            raise ConnectionFailed(said_of(error, address.host), sent=False) from None
        except OSError as error:
            raise ConnectionFailed(str(error) or type(error).__name__, sent=False) from None
        return made

    async def ask(
        self,
        method: str,
        target: bytes,
        fields: Sequence[Field],
        body: bytes,
        *,
        seconds: float,
        took: Callable[[int], None] | None = None,
    ) -> PeerReply:
        """Sends a request and gives its reply; `took(bytes)` hears what comes of it, and may refuse by raising.

        Raises ConnectionFailed, and what `took` does. Cancelled or failed, the connection is of no more use.
        """
        assert self._reply is None, "one request at a time"
        self._heard, self._took = False, took
        if not self.is_open or self._transport is None:
            raise ConnectionFailed("it was closed", sent=False)
        self.is_open = False
        reply = self._reply = asyncio.get_running_loop().create_future()
        try:
            async with asyncio.timeout(seconds):
                await self._send(self._head(method, target, fields, len(body)), body)
                answer: PeerReply = await reply
                return answer
        except TimeoutError:
            self.close()
            raise ConnectionFailed(f"no answer within {seconds:.1f} s", sent=True) from None
        except BaseException:
            self.close()
            raise
        finally:
            self._reply = self._took = None

    def close(self) -> None:
        self.is_open = False
        if self._transport is not None:
            self._transport.abort()

    def _head(self, method: str, target: bytes, fields: Sequence[Field], length: int) -> bytes:
        """Raises Refused `invalid_request` for what would be several lines, and so other requests, for the node that
        reads it."""
        for part in (target, *(part for field in fields for part in field)):
            if _ENDS_LINE.search(part):
                raise problem(
                    "invalid_request", "a field of the request has a line break or a NUL in it, which none can have"
                )
        lines = [b"%b %b HTTP/1.1\r\nhost: %b\r\n" % (method.encode(), target, self._address.authority.encode())]
        lines += [b"%b: %b\r\n" % field for field in fields]
        if length or method in ("POST", "PUT", "PATCH"):
            lines.append(b"content-length: %d\r\n" % length)
        return b"".join((*lines, b"\r\n"))

    async def _send(self, head: bytes, body: bytes) -> None:
        assert self._transport is not None
        if len(body) <= JOINED_BYTES_MAX:
            self._transport.write(head + body)
            return
        self._transport.write(head)
        view = memoryview(body)
        for at in range(0, len(view), PIECE_BYTES):
            if self._paused:
                self._writable = asyncio.get_running_loop().create_future()
                await self._writable
            if self._transport.is_closing():
                return  # the reply, or its absence, says why
            self._transport.write(view[at : at + PIECE_BYTES])

    # What the event loop says.

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self._transport = transport
        self.is_open = True

    def data_received(self, data: bytes) -> None:
        if self._reply is None or self._reply.done():
            self.close()  # nobody asked
            return
        self._heard = True
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self._fail(ConnectionFailed(f"its reply cannot be read: {error}", sent=True))

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_open = False
        self._resume()
        said = "it was closed before the reply was whole" if self._heard else "it was closed before a reply came"
        self._fail(ConnectionFailed(str(exc) if exc is not None and str(exc) else said, sent=True))

    def pause_writing(self) -> None:
        self._paused = True

    def resume_writing(self) -> None:
        self._paused = False
        self._resume()

    def _resume(self) -> None:
        writable, self._writable = self._writable, None
        if writable is not None and not writable.done():
            writable.set_result(None)

    def _fail(self, error: Exception) -> None:
        if self._reply is not None and not self._reply.done():
            self._reply.set_exception(error)

    # What the parser says.

    def _begin(self) -> None:
        self._parser = httptools.HttpResponseParser(self)
        self._fields: list[Field] = []
        self._pieces: list[bytes] = []
        self._nbytes = 0

    def on_message_begin(self) -> None:
        self._fields = []

    def on_header(self, name: bytes, value: bytes) -> None:
        self._fields.append((name.lower(), value))

    def on_body(self, body: bytes) -> None:
        self._nbytes += len(body)
        if self._nbytes > REPLY_BYTES_MAX:
            self._fail(ConnectionFailed(f"its reply is above {REPLY_BYTES_MAX} bytes", sent=True))
            return
        if self._took is not None:
            try:
                self._took(len(body))
            except Exception as error:
                self._fail(error)
                return
        self._pieces.append(body)

    def on_message_complete(self) -> None:
        status = self._parser.get_status_code()
        if status < 200:
            return
        keeps = self._parser.should_keep_alive()
        reply = PeerReply(status, self._fields, b"".join(self._pieces))
        self._begin()
        if self._reply is not None and not self._reply.done():
            self.is_open = keeps
            self.idle_since = asyncio.get_running_loop().time()
            self._reply.set_result(reply)
