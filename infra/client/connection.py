"""A connection of the synchronous client: one request at a time, and its reply.

httptools reads the replies (RFC 9112). For the small requests of a reader that keeps up urllib3 takes several times as
long, which is most of what such a request costs in the client.
"""

import select
import socket
import ssl
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

import httptools

from siltlog.infra.client.core import CONNECT_TIMEOUT_MS, LEFT, TLS_FAILED, Buffer, ConnectionFailed, Request, Response
from siltlog.infra.client.credentials.tls import ALERT, TLS_SERVER, tls_failure, why_silent
from siltlog.infra.client.endpoints import UNIX
from siltlog.infra.socket_path import short_path

USER_AGENT = "siltlog-python"
JOINED_BYTES_MAX = 64 * 1024
"""A larger piece of a body goes to the socket as it is, without a copy."""
RECEIVE_BYTES = 64 * 1024
OK = 200
"""Below it are replies that announce another."""
HEAD_BYTES_MAX = 256 * 1024
"""The most that is read of a reply before its header fields are complete."""


class Address(NamedTuple):
    """A server's URL, taken apart. `prefix` stands before every path; `host` is a path where it is a socket's."""

    host: str
    port: int
    is_tls: bool
    prefix: str

    @classmethod
    def of(cls, url: str) -> "Address":
        if url.startswith(UNIX):
            return cls(url.removeprefix(UNIX), 0, False, "")
        parts = urlsplit(url)
        assert parts.hostname is not None
        is_tls = parts.scheme == "https"
        return cls(parts.hostname, parts.port or (443 if is_tls else 80), is_tls, parts.path)

    @property
    def is_socket(self) -> bool:
        return self.host.startswith("/")

    @property
    def authority(self) -> str:
        """The value of `Host`."""
        if self.is_socket:
            return "localhost"
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == (443 if self.is_tls else 80) else f"{host}:{self.port}"


class _Reading:
    """The callbacks of the parser, and what they have told of the reply so far.

    A reply of 1xx announces another. What comes after the reply is nothing that was asked for.
    """

    def __init__(self) -> None:
        self.parser = httptools.HttpResponseParser(self)
        self.is_whole = False
        self.has_more = False
        self.keeps_alive = False
        self.on_message_begin()

    def on_message_begin(self) -> None:
        if self.is_whole:
            self.has_more = True
            return
        self.headers: dict[str, str] = {}
        self.pieces: list[bytes] = []
        self.head_is_whole = False

    def on_header(self, name: bytes, value: bytes) -> None:
        if self.head_is_whole:
            return  # what follows a chunked body is no field of the reply
        key, text = name.decode("latin-1").lower(), value.decode("latin-1")
        self.headers[key] = f"{self.headers[key]}, {text}" if key in self.headers else text

    def on_headers_complete(self) -> None:
        self.keeps_alive = self.parser.should_keep_alive()
        self.head_is_whole = self.parser.get_status_code() >= OK

    def on_body(self, body: bytes) -> None:
        if not self.is_whole:
            self.pieces.append(body)

    def on_message_complete(self) -> None:
        if not self.is_whole:
            self.is_whole = self.head_is_whole

    def response(self, body: bytes | bytearray) -> Response:
        return Response(self.parser.get_status_code(), self.headers, body)

    @property
    def rest(self) -> int | None:
        """The bytes of the body that are still to come; None where only the parser can tell."""
        length = self.headers.get("content-length", "")
        if "transfer-encoding" in self.headers or not length.isdigit():
            return None
        return int(length) - sum(map(len, self.pieces))

    @property
    def ends_with_connection(self) -> bool:
        return self.head_is_whole and not {"content-length", "transfer-encoding"} & self.headers.keys()


class Connection:
    """One connection to one server; it is not for two threads at once."""

    def __init__(
        self, address: Address, context: ssl.SSLContext | None, connect_timeout_ms: int = CONNECT_TIMEOUT_MS
    ) -> None:
        """Connects. Raises ConnectionFailed, of which nothing was sent."""
        self._head_end = f"HTTP/1.1\r\nHost: {address.authority}\r\nUser-Agent: {USER_AGENT}\r\n"
        self._host = address.host
        self._scheme = "unix" if address.is_socket else "https" if address.is_tls else "http"
        self._has_heard = False
        try:
            self._socket = _connected(address, connect_timeout_ms / 1000)
            try:
                if context is not None:
                    self._socket = context.wrap_socket(self._socket, server_hostname=address.host)
            except BaseException:
                self._socket.close()
                raise
        except TimeoutError:
            raise ConnectionFailed(f"it was not there within {connect_timeout_ms} ms", sent=False) from None
        except OSError as error:
            raise self._failure(error, sent=False) from None
        self._quiet = select.poll()
        self._quiet.register(self._socket, select.POLLIN)
        self.is_reusable = True

    @property
    def is_stale(self) -> bool:
        """Whether the server has closed it, or says something that nobody asked for."""
        return bool(self._quiet.poll(0))

    @property
    def certificate_ends(self) -> float | None:
        """When the server's certificate does, in seconds since 1970; None without TLS."""
        shown = self._socket.getpeercert() if isinstance(self._socket, ssl.SSLSocket) else None
        return ssl.cert_time_to_seconds(str(shown["notAfter"])) if shown else None

    def close(self) -> None:
        self._socket.close()

    def exchange(self, path: str, request: Request) -> Response:
        """Sends a request and reads its reply. Raises ConnectionFailed. Where it `is_reusable` another may follow."""
        if request.cut is None:
            return self._exchange(path, request)
        with request.cut.ending(self._shut_down):
            try:
                return self._exchange(path, request)
            except ConnectionFailed:
                if request.cut.is_made:
                    raise ConnectionFailed(LEFT, sent=True) from None
                raise

    def _shut_down(self) -> None:
        """Has the thread that reads find the end of the connection."""
        with suppress(OSError):
            # Not that of an SSLSocket, which takes the session from the thread that reads.
            socket.socket.shutdown(self._socket, socket.SHUT_RDWR)

    def _exchange(self, path: str, request: Request) -> Response:
        self.is_reusable = False
        self._socket.settimeout(request.answer_timeout_ms / 1000)
        try:
            refused = self._send(self._head(path, request), request.body)
            return self._receive(request.method, refused)
        except TimeoutError:
            reason = f"no answer within {request.answer_timeout_ms} ms"
            raise ConnectionFailed(reason, sent=True) from None
        except (OSError, httptools.HttpParserError) as error:
            raise self._failure(error, sent=True) from None

    def _failure(self, error: Exception, *, sent: bool) -> ConnectionFailed:
        told = tls_failure(error, self._host)
        if told is None:
            silent = "" if self._has_heard or not sent else why_silent(error, self._scheme)
            return ConnectionFailed(_reason(error) + silent, sent=sent)
        return ConnectionFailed(told, sent=sent, error_code=TLS_FAILED)

    def _head(self, path: str, request: Request) -> bytes:
        if not path.isprintable() or " " in path:
            raise ValueError(f"{path!r} is not a path of a URL")
        lines = [f"{request.method} {path} {self._head_end}"]
        for name, value in request.headers.items():
            if "\r" in value or "\n" in value:
                raise ValueError(f"the field {name} has a line end in it")
            lines.append(f"{name}: {value}\r\n")
        if request.body or request.method in ("POST", "PUT", "PATCH"):
            size = sum(memoryview(piece).nbytes for piece in request.body)
            lines.append(f"Content-Length: {size}\r\n")
        lines.append("\r\n")
        return "".join(lines).encode("latin-1")

    def _send(self, head: bytes, body: Sequence[Buffer]) -> OSError | None:
        """Sends all, a small body with its head: two pieces would wake the server twice.

        A server that refuses a large body answers and closes while it is sent: gives that error, as the reply may be
        there to read.
        """
        waiting = head
        try:
            for piece in body:
                if len(waiting) + memoryview(piece).nbytes <= JOINED_BYTES_MAX:
                    waiting = b"".join((waiting, piece))
                    continue
                if waiting:
                    self._socket.sendall(waiting)
                    waiting = b""
                self._socket.sendall(piece)
            if waiting:
                self._socket.sendall(waiting)
        except (BrokenPipeError, ConnectionResetError) as error:
            return error
        return None

    def _receive(self, method: str, refused: OSError | None) -> Response:
        reading = _Reading()
        received = 0
        while True:
            data = self._socket.recv(RECEIVE_BYTES)
            if not data:
                if refused is None and reading.ends_with_connection:
                    return reading.response(b"".join(reading.pieces))
                raise refused or ConnectionError("it was closed before the reply was whole")
            if not self._has_heard:
                self._has_heard = True
                if data.startswith(ALERT):
                    raise ConnectionError(TLS_SERVER)
            reading.parser.feed_data(data)
            if reading.is_whole:
                self._keep(reading, refused)
                return reading.response(b"".join(reading.pieces))
            if not reading.head_is_whole:
                received += len(data)
                if received > HEAD_BYTES_MAX:
                    raise ConnectionError("the header fields of the reply do not end")
            elif method == "HEAD":
                return reading.response(b"")
            elif (rest := reading.rest) is not None:
                body = self._receive_rest(reading.pieces, rest)
                self._keep(reading, refused)
                return reading.response(body)

    def _keep(self, reading: _Reading, refused: OSError | None) -> None:
        """Decides whether another request may follow."""
        self.is_reusable = refused is None and not reading.has_more and reading.keeps_alive

    def _receive_rest(self, pieces: Sequence[bytes], rest: int) -> bytearray:
        """Reads what is left of a body of known length, past the parser: large ones are not copied then."""
        begun = b"".join(pieces)
        body = bytearray(len(begun) + rest)
        body[: len(begun)] = begun
        with memoryview(body) as view:
            left = view[len(begun) :]
            while left:
                count = self._socket.recv_into(left)
                if not count:
                    raise ConnectionError("it was closed before the reply was whole")
                left = left[count:]
        return body


def _connected(address: Address, seconds: float) -> socket.socket:
    if not address.is_socket:
        made = socket.create_connection((address.host, address.port), seconds)
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return made
    made = socket.socket(socket.AF_UNIX)
    try:
        made.settimeout(seconds)
        with short_path(Path(address.host)) as path:
            made.connect(str(path))
    except BaseException:
        made.close()
        raise
    return made


def _reason(error: BaseException) -> str:
    return getattr(error, "strerror", None) or str(error) or type(error).__name__
