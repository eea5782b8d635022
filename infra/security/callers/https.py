"""Small documents of other servers, read by https on the event loop: whole within a few seconds, or not at all."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple
from urllib.parse import SplitResult, urljoin, urlsplit

import httptools

from siltlog.infra.errors import ConfigError
from siltlog.infra.security.exposure import is_loopback

FETCH_SECONDS = 5.0
"""One document may take so long, redirects included."""
DOCUMENT_BYTES_MAX = 1024 * 1024
HEAD_BYTES_MAX = 64 * 1024
REDIRECTS_MAX = 3
_PIECE_BYTES = 64 * 1024
_NO_FIELDS: Mapping[str, str] = {}
_OK = 200
_REDIRECTS = frozenset({301, 302, 303, 307, 308})


class FetchFailed(Exception):
    """The document could not be had; the message says why."""


class Reply(NamedTuple):
    status: int
    location: str
    body: bytes


class Https:
    """Fetches documents from servers whose certificate a known authority signed."""

    def __init__(self, authorities: Path | None = None) -> None:
        """`authorities` is a file in PEM, which then counts instead of those of the system. Raises ConfigError."""
        try:
            self._context = ssl.create_default_context(cafile=authorities)
        except OSError as error:
            reason = getattr(error, "reason", None) or error.strerror
            raise ConfigError(f"{authorities} does not hold certificates of authorities in PEM: {reason}") from None
        self._context.minimum_version = ssl.TLSVersion.TLSv1_2

    async def get(self, url: str) -> bytes:
        """Follows redirects that stay on the host. Raises FetchFailed."""
        async with self._told(url):
            return await self._get(url)

    @staticmethod
    @asynccontextmanager
    async def _told(url: str) -> AsyncIterator[None]:
        """Has what is asked end in time, and makes FetchFailed of its errors."""
        try:
            async with asyncio.timeout(FETCH_SECONDS):
                yield
        except TimeoutError:
            raise FetchFailed(f"{url} gave no whole answer within {FETCH_SECONDS:g} s") from None
        except httptools.HttpParserError:
            raise FetchFailed(f"{url} does not answer in HTTP") from None
        except (OSError, ValueError) as error:
            reason = getattr(error, "verify_message", None) or getattr(error, "strerror", None) or str(error)
            raise FetchFailed(f"{url} cannot be read: {reason}") from None

    async def ask(self, method: str, url: str, fields: Mapping[str, str], body: bytes = b"") -> Reply:
        """Sends one request and gives its answer, whatever its status. Raises FetchFailed."""
        async with self._told(url):
            return await self._exchange(checked_url(url), method, fields, body)

    async def _get(self, url: str) -> bytes:
        first = checked_url(url)
        target = first
        for _ in range(REDIRECTS_MAX + 1):
            reply = await self._exchange(target)
            if reply.status == _OK:
                return reply.body
            if reply.status not in _REDIRECTS:
                raise FetchFailed(f"{url} answers {reply.status}")
            target = urlsplit(urljoin(target.geturl(), reply.location))
            if (target.scheme, target.netloc) != (first.scheme, first.netloc):
                raise FetchFailed(f"{url} leads to another server; it must answer itself")
        raise FetchFailed(f"{url} leads on more than {REDIRECTS_MAX} times")

    async def _exchange(
        self, url: SplitResult, method: str = "GET", fields: Mapping[str, str] = _NO_FIELDS, body: bytes = b""
    ) -> Reply:
        is_tls = url.scheme == "https"
        host, port = url.hostname or "", url.port or (443 if is_tls else 80)
        reader, writer = await asyncio.open_connection(host, port, ssl=self._context if is_tls else None)
        try:
            path = (url.path or "/") + (f"?{url.query}" if url.query else "")
            head = f"{method} {path} HTTP/1.1\r\nHost: {url.netloc}\r\nUser-Agent: siltlog\r\n"
            more = {**fields, **({"Content-Length": str(len(body))} if body else {})}
            lines = "".join(f"{name}: {value}\r\n" for name, value in more.items())
            writer.write(f"{head}{lines}Accept: application/json\r\nConnection: close\r\n\r\n".encode("latin-1") + body)
            return await _read_reply(reader)
        finally:
            # To take leave would be to wait for the other side.
            writer.transport.abort()


class _Reading:
    """The callbacks of the parser, and what they have told."""

    def __init__(self) -> None:
        self.fields: dict[bytes, bytes] = {}
        self.body = bytearray()
        self.head_is_whole = False
        self.is_whole = False

    def on_header(self, name: bytes, value: bytes) -> None:
        self.fields.setdefault(name.lower(), value)

    def on_headers_complete(self) -> None:
        self.head_is_whole = True

    def on_body(self, body: bytes) -> None:
        self.body += body

    def on_message_complete(self) -> None:
        self.is_whole = True


async def _read_reply(reader: asyncio.StreamReader) -> Reply:
    reading = _Reading()
    parser = httptools.HttpResponseParser(reading)
    received = 0
    while not reading.is_whole:
        piece = await reader.read(_PIECE_BYTES)
        if not piece:
            if not reading.head_is_whole or {b"content-length", b"transfer-encoding"} & reading.fields.keys():
                raise ConnectionError("it was closed before the answer was whole")
            break
        received += len(piece)
        parser.feed_data(piece)
        if received > HEAD_BYTES_MAX + DOCUMENT_BYTES_MAX or len(reading.body) > DOCUMENT_BYTES_MAX:
            raise ValueError(f"it has more than {DOCUMENT_BYTES_MAX} bytes")
    return Reply(parser.get_status_code(), reading.fields.get(b"location", b"").decode("latin-1"), bytes(reading.body))


def checked_url(url: str) -> SplitResult:
    """Raises ValueError for what must not be asked: only this machine is asked without TLS."""
    parts = urlsplit(url)
    if not url.isascii() or not url.isprintable() or " " in url:
        raise ValueError("it is no URL")
    if not parts.hostname or "@" in parts.netloc or parts.fragment:
        raise ValueError("it is no URL of a document: write it as https://host/path")
    _ = parts.port
    if parts.scheme != "https" and not (parts.scheme == "http" and is_loopback(parts.hostname)):
        raise ValueError("it must begin with https://")
    return parts
