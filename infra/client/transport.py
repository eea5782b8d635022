"""The synchronous transport: urllib3 under the client core; and calls made over it."""

import threading
from collections.abc import Callable
from typing import Any, Protocol, TypeVar
from urllib.parse import urlsplit

import urllib3
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool
from urllib3.exceptions import ConnectTimeoutError, HTTPError, NewConnectionError

from siltlog.infra.client.calls import Call
from siltlog.infra.client.core import (
    CONNECT_TIMEOUT_MS,
    ConnectionFailed,
    Endpoints,
    Reply,
    Request,
    Response,
    Retries,
    Send,
    only,
)
from siltlog.infra.clock import Clock
from siltlog.infra.errors import SiltlogError

T = TypeVar("T")

CONNECTIONS_PER_HOST = 16
USER_AGENT = "siltlog-python"
JOINED_BYTES_MAX = 64 * 1024
"""A larger body goes to the socket as it is, without a copy."""


class Transport(Protocol):
    def send(self, url: str, request: Request) -> Response:
        """One attempt. Raises ConnectionFailed. Safe from several threads."""

    def close(self) -> None: ...


class HttpTransport:
    def __init__(self) -> None:
        self._pools: dict[str, tuple[HTTPConnectionPool, str]] = {}
        """By server URL, with what that has before every path."""

    def send(self, url: str, request: Request) -> Response:
        headers = {"User-Agent": USER_AGENT, **request.headers}
        if request.body or request.method in ("POST", "PUT", "PATCH"):
            headers["Content-Length"] = str(sum(memoryview(piece).nbytes for piece in request.body))
        pool, prefix = self._pools.get(url) or self._pools.setdefault(url, _pool_of(url))
        try:
            reply = pool.urlopen(
                request.method,
                prefix + request.path,
                body=list(request.body) or None,
                headers=headers,
                redirect=False,
                assert_same_host=False,
                timeout=urllib3.Timeout(connect=CONNECT_TIMEOUT_MS / 1000, read=request.read_timeout_ms / 1000),
            )
        except (NewConnectionError, ConnectTimeoutError) as error:
            raise ConnectionFailed(_reason(error), sent=False) from None
        except (HTTPError, OSError) as error:
            raise ConnectionFailed(_reason(error), sent=True) from None
        return Response(reply.status, {name.lower(): value for name, value in reply.headers.items()}, reply.data)

    def close(self) -> None:
        pools, self._pools = self._pools, {}
        for pool, _ in pools.values():
            pool.close()


def _pool_of(url: str) -> tuple[HTTPConnectionPool, str]:
    parts = urlsplit(url)
    pool_of_scheme = _HttpsPool if parts.scheme == "https" else _HttpPool
    assert parts.hostname is not None
    return pool_of_scheme(parts.hostname, parts.port, maxsize=CONNECTIONS_PER_HOST, retries=False), parts.path


class _OneWrite(HTTPConnection):
    """Sends a small body with its head: two pieces would wake the server twice."""

    _held: bytes | None = None
    """The bytes not sent yet; None when all goes out as it comes."""

    def request(self, method: str, url: str, body: Any = None, headers: Any = None, **options: Any) -> None:
        self._held = b"" if body else None
        try:
            super().request(method, url, body, headers, **options)
            self._flush()
        finally:
            self._held = None

    def send(self, data: Any) -> None:
        if self._held is not None:
            piece = memoryview(data)
            if len(self._held) + piece.nbytes <= JOINED_BYTES_MAX:
                self._held += piece
                return
            self._flush()
        super().send(data)

    def _flush(self) -> None:
        held, self._held = self._held, None
        if held:
            super().send(held)


class _OneWriteTls(_OneWrite, HTTPSConnection):
    pass


class _HttpPool(HTTPConnectionPool):
    ConnectionCls = _OneWrite


class _HttpsPool(HTTPSConnectionPool):
    ConnectionCls = _OneWriteTls


def _reason(error: BaseException) -> str:
    text = str(error)
    return text.rsplit(": ", 1)[-1] if isinstance(error, NewConnectionError) else text or type(error).__name__


class Caller(Retries):
    """Makes requests with their retries, for what is not on the publish path."""

    def __init__(
        self,
        endpoints: Endpoints,
        transport: Transport,
        clock: Clock,
        *,
        retry_timeout_ms: int,
        jitter: Callable[[], float] | None = None,
        told: Callable[[SiltlogError], None] | None = None,
    ) -> None:
        super().__init__(endpoints, clock, retry_timeout_ms=retry_timeout_ms, jitter=jitter, told=told)
        self._transport = transport
        self.interrupted = threading.Event()
        """Once set, no retry is waited for: the call in flight raises its last error."""

    def call(self, request: Request) -> Response:
        """Raises the SiltlogError of the last attempt."""
        return self.run(only(request))

    def run(self, call: Call[T]) -> T:
        """Makes the requests of a call, with their retries, and gives its result."""
        steps = self.steps(call)
        try:
            step = next(steps)
            while True:
                if isinstance(step, Send):
                    step = steps.send(self._attempt(step))
                elif self.interrupted.wait(step.seconds):
                    step = steps.throw(step.error)
                else:
                    step = next(steps)
        except StopIteration as done:
            result: T = done.value
            return result

    def _attempt(self, step: Send) -> Reply:
        result: Response | ConnectionFailed
        try:
            result = self._transport.send(step.url, step.request)
        except ConnectionFailed as failed:
            result = failed
        return Reply(result, self._clock.monotonic())
