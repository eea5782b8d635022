"""The asynchronous transport: aiohttp under the client core; and calls made over it. It comes with `siltlog[async]`."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from siltlog.infra.client.calls import Call
from siltlog.infra.client.connection import USER_AGENT, Address
from siltlog.infra.client.core import (
    CONNECT_TIMEOUT_MS,
    LEFT,
    READ_TIMEOUT_MS,
    TLS_FAILED,
    Buffer,
    ConnectionFailed,
    Request,
    Response,
)
from siltlog.infra.client.credentials.tls import ALERT, TLS_SERVER, TlsFiles, tls_failure, why_silent
from siltlog.infra.client.endpoints import UNIX, Endpoints, Send
from siltlog.infra.client.retries import Reply, Retries, only
from siltlog.infra.client.transport import Caller, HttpTransport, Transport
from siltlog.infra.clock import Clock
from siltlog.infra.errors import ConfigError, SiltlogError
from siltlog.infra.socket_path import short_path

if TYPE_CHECKING:
    import aiohttp

T = TypeVar("T")

ONE_PIECE_BYTES_MAX = 1024 * 1024
"""Bodies up to this go to the socket as one; larger ones piece by piece, so that the event loop goes on between."""
_ALERT_SHOWN = repr(ALERT)[2:-1]
"""How aiohttp shows ALERT in an error."""


class AsyncTransport(Protocol):
    async def send(self, url: str, request: Request) -> Response:
        """One attempt. Raises ConnectionFailed."""

    async def close(self) -> None: ...


class AsyncHttpTransport:
    """Belongs to the event loop it first sends in."""

    def __init__(self, tls: TlsFiles | None = None, connect_timeout_ms: int = CONNECT_TIMEOUT_MS) -> None:
        """Raises ConfigError where aiohttp is not installed."""
        try:
            import aiohttp
        except ImportError:
            raise ConfigError("the asynchronous client needs aiohttp: pip install 'siltlog[async]'") from None
        self._aiohttp = aiohttp
        self._tls = tls or TlsFiles()
        self._connect_timeout_ms = connect_timeout_ms
        self._session: aiohttp.ClientSession | None = None
        self._sockets: dict[str, aiohttp.ClientSession] = {}
        """Sessions by the URL of each socket."""
        self._short_paths = ExitStack()
        self._addresses: dict[str, Address] = {}
        self._heard: set[str] = set()
        """The servers that have said anything."""

    async def send(self, url: str, request: Request) -> Response:
        if request.cut is None:
            return await self._send(url, request)
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(None) as scope:

                def leave() -> None:
                    with suppress(RuntimeError):  # the answer came meanwhile
                        scope.reschedule(loop.time())

                def cut() -> None:
                    loop.call_soon_threadsafe(leave)

                with request.cut.ending(cut):
                    return await self._send(url, request)
        except TimeoutError:
            raise ConnectionFailed(LEFT, sent=True) from None

    async def _send(self, url: str, request: Request) -> Response:
        aiohttp = self._aiohttp
        headers = {"User-Agent": USER_AGENT, **request.headers}
        data = _data(request.body, headers)
        seconds = request.answer_timeout_ms / 1000
        # A large reply over a slow line comes for as long as it comes; a large body has to be taken in time.
        timeout = aiohttp.ClientTimeout(
            total=None if data is None or isinstance(data, bytes) else seconds,
            sock_read=seconds,
            sock_connect=self._connect_timeout_ms / 1000,
        )
        host = self._address(url)
        try:
            async with self._opened(url).request(
                request.method,
                ("http://localhost" if host.is_socket else url) + request.path,
                data=data,
                headers=headers,
                allow_redirects=False,
                timeout=timeout,
                ssl=self._tls.context() if host.is_tls else True,
            ) as reply:
                self._heard.add(url)
                body = await reply.read()
                return Response(reply.status, {name.lower(): value for name, value in reply.headers.items()}, body)
        except aiohttp.ConnectionTimeoutError:
            raise ConnectionFailed(f"it was not there within {self._connect_timeout_ms} ms", sent=False) from None
        except aiohttp.ClientConnectorError as error:
            raise _failure(error, host.host, sent=False) from None
        except (TimeoutError, aiohttp.ClientError, OSError) as error:
            closed = isinstance(error, aiohttp.ServerDisconnectedError)
            silent = "" if url in self._heard else why_silent(ConnectionError() if closed else error, url)
            raise _failure(error, host.host, sent=True, silent=silent) from None

    async def close(self) -> None:
        for session in (self._session, *self._sockets.values()):
            if session is not None:
                await session.close()
        self._short_paths.close()

    def on_threads(self) -> Transport:
        """A transport to the same servers for threads."""
        return HttpTransport(self._tls, self._connect_timeout_ms)

    def _address(self, url: str) -> Address:
        address = self._addresses.get(url)
        if address is None:
            address = self._addresses[url] = Address.of(url)
        return address

    def _opened(self, url: str) -> "aiohttp.ClientSession":
        aiohttp = self._aiohttp
        if url.startswith(UNIX):
            session = self._sockets.get(url)
            if session is None:
                path = self._short_paths.enter_context(short_path(Path(url.removeprefix(UNIX))))
                session = aiohttp.ClientSession(
                    connector=aiohttp.UnixConnector(str(path), limit=0), cookie_jar=aiohttp.DummyCookieJar()
                )
                self._sockets[url] = session
            return session
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0), cookie_jar=aiohttp.DummyCookieJar()
            )
        return self._session


def thread_transport(transport: AsyncTransport) -> Transport:
    """A transport for threads beside that of an asynchronous client: by the same credentials, where it has any."""
    on_threads: Callable[[], Transport] = getattr(transport, "on_threads", HttpTransport)
    return on_threads()


def _failure(error: Exception, host: str, *, sent: bool, silent: str = "") -> ConnectionFailed:
    causes = (getattr(error, "certificate_error", None), getattr(error, "os_error", None), error.__cause__, error)
    told = next((said for cause in causes if cause is not None and (said := tls_failure(cause, host))), None)
    if told is not None:
        return ConnectionFailed(told, sent=sent, error_code=TLS_FAILED)
    if _ALERT_SHOWN in str(error):
        return ConnectionFailed(TLS_SERVER, sent=sent)
    return ConnectionFailed((str(error) or type(error).__name__) + silent, sent=sent)


def _data(body: Sequence[Buffer], headers: dict[str, str]) -> Any:
    """The body as aiohttp takes it."""
    sizes = [memoryview(piece).nbytes for piece in body]
    if sum(sizes) <= ONE_PIECE_BYTES_MAX:
        return b"".join(body) if body else None
    headers["Content-Length"] = str(sum(sizes))
    return _pieces(body)


async def _pieces(body: Sequence[Buffer]) -> AsyncIterator[memoryview]:
    for piece in body:
        left = memoryview(piece).cast("B")
        for start in range(0, len(left), ONE_PIECE_BYTES_MAX):
            yield left[start : start + ONE_PIECE_BYTES_MAX]


class AsyncCaller(Retries):
    """Makes requests with their retries, as `Caller` does."""

    def __init__(
        self,
        endpoints: Endpoints,
        transport: AsyncTransport,
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
        self.interrupted = asyncio.Event()
        """Once set, no retry is waited for: the call in flight raises its last error."""

    async def call(self, request: Request) -> Response:
        """Raises the SiltlogError of the last attempt."""
        return await self.run(only(request))

    async def run(self, call: Call[T]) -> T:
        """Makes the requests of a call, with their retries, and gives its result."""
        steps = self.steps(call)
        try:
            step = next(steps)
            while True:
                if isinstance(step, Send):
                    step = steps.send(await self._attempt(step))
                elif await self._interrupted_within(step.seconds):
                    step = steps.throw(step.error)
                else:
                    step = next(steps)
        except StopIteration as done:
            result: T = done.value
            return result

    def on_threads(self, transport: Transport) -> Caller:
        """A caller of the same servers for what runs on threads."""
        return Caller(
            self._endpoints,
            transport,
            self._clock,
            retry_timeout_ms=self._retry_timeout_ms,
            request_timeout_ms=self._request_timeout_ms,
        )

    def thread_transport(self) -> Transport:
        """What `on_threads` takes; who asks closes it."""
        return thread_transport(self._transport)

    async def _attempt(self, step: Send) -> Reply:
        result: Response | ConnectionFailed
        try:
            result = await self._transport.send(step.url, step.request)
        except ConnectionFailed as failed:
            result = failed
        return Reply(result, self._clock.monotonic())

    async def _interrupted_within(self, seconds: float) -> bool:
        try:
            async with asyncio.timeout(seconds):
                return await self.interrupted.wait()
        except TimeoutError:
            return False
