"""The synchronous transport: connections under the client core; and calls made over it."""

import threading
from collections import deque
from collections.abc import Callable, Mapping
from typing import Protocol, TypeVar

from siltlog.infra.client.calls import Call
from siltlog.infra.client.connection import Address, Connection
from siltlog.infra.client.core import CONNECT_TIMEOUT_MS, READ_TIMEOUT_MS, ConnectionFailed, Request, Response
from siltlog.infra.client.credentials.tls import TlsFiles
from siltlog.infra.client.endpoints import Endpoints, Send
from siltlog.infra.client.retries import Reply, Retries, only
from siltlog.infra.clock import Clock
from siltlog.infra.errors import SiltlogError

T = TypeVar("T")

IDLE_CONNECTIONS_MAX = 16
"""Kept for each server."""


class Transport(Protocol):
    def send(self, url: str, request: Request) -> Response:
        """One attempt. Raises ConnectionFailed. Safe from several threads."""

    def close(self) -> None: ...


class HttpTransport:
    def __init__(self, tls: TlsFiles | None = None, connect_timeout_ms: int = CONNECT_TIMEOUT_MS) -> None:
        self._tls = tls or TlsFiles()
        self._connect_timeout_ms = connect_timeout_ms
        self._servers: Mapping[str, _Server] = {}

    def send(self, url: str, request: Request) -> Response:
        server = self._servers.get(url)
        if server is None:
            server = _Server(url, self._tls, self._connect_timeout_ms)
            self._servers = {**self._servers, url: server}
        connection = server.take()
        try:
            return connection.exchange(server.address.prefix + request.path, request)
        finally:
            server.give_back(connection)

    def close(self) -> None:
        servers, self._servers = self._servers, {}
        for server in servers.values():
            server.close()


class _Server:
    """The connections to one server that nobody uses now, the last used first."""

    def __init__(self, url: str, tls: TlsFiles, connect_timeout_ms: int) -> None:
        self.address = Address.of(url)
        self._tls = tls
        self._connect_timeout_ms = connect_timeout_ms
        self._idle: deque[Connection] = deque()
        self._closed = False

    def take(self) -> Connection:
        while self._idle:
            try:
                connection = self._idle.pop()
            except IndexError:
                break  # another thread was quicker
            if not connection.is_stale:
                return connection
            connection.close()
        context = self._tls.context() if self.address.is_tls else None
        return Connection(self.address, context, self._connect_timeout_ms)

    def give_back(self, connection: Connection) -> None:
        if connection.is_reusable and not self._closed and len(self._idle) < IDLE_CONNECTIONS_MAX:
            self._idle.append(connection)
        else:
            connection.close()

    def close(self) -> None:
        self._closed = True
        while self._idle:
            self._idle.pop().close()


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
        request_timeout_ms: int = READ_TIMEOUT_MS,
    ) -> None:
        super().__init__(
            endpoints,
            clock,
            retry_timeout_ms=retry_timeout_ms,
            jitter=jitter,
            told=told,
            request_timeout_ms=request_timeout_ms,
        )
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
