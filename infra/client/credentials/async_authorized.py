"""The same for asyncio: a transport whose requests say who sends them, and how the transport of a client is chosen."""

import asyncio
import inspect
from collections.abc import Awaitable, Callable

from siltlog.infra.client.async_transport import AsyncHttpTransport, AsyncTransport, thread_transport
from siltlog.infra.client.core import CONNECT_TIMEOUT_MS, UNAUTHENTICATED, ConnectionFailed, Request, Response
from siltlog.infra.client.credentials.authorized import AuthorizedTransport, authorized, no_token, tls_of
from siltlog.infra.client.credentials.bearer import Bearer
from siltlog.infra.client.credentials.choice import chosen
from siltlog.infra.client.credentials.credentials import Credentials, Token, check_may_carry
from siltlog.infra.client.endpoints import Endpoints
from siltlog.infra.client.transport import Transport
from siltlog.infra.clock import MICROS_PER_SECOND, Clock


def async_open_transport(
    endpoints: Endpoints,
    clock: Clock,
    given: Credentials | None = None,
    transport: AsyncTransport | None = None,
    connect_timeout_ms: int = CONNECT_TIMEOUT_MS,
) -> AsyncTransport:
    """Chooses as `open_transport` does, and raises what that raises."""
    credentials = chosen(endpoints, given or Credentials(), found=transport is None)
    if transport is None:
        transport = AsyncHttpTransport(tls_of(endpoints, credentials), connect_timeout_ms)
    if not credentials.token:
        return transport
    return AsyncAuthorizedTransport(transport, endpoints, credentials.token, clock)


class AsyncAuthorizedTransport:
    """Sends a token as `AuthorizedTransport` does. A function that gives it is called on a thread, or awaited."""

    def __init__(self, transport: AsyncTransport, endpoints: Endpoints, token: Token, clock: Clock) -> None:
        """Raises ConfigError where it would go to another machine in plain text."""
        check_may_carry(endpoints.urls)
        self._transport = transport
        self._endpoints = endpoints
        self._source = token
        self._clock = clock
        self._bearer = Bearer()
        self._renewing = asyncio.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None

    async def send(self, url: str, request: Request) -> Response:
        if not self._endpoints.knows(url):
            return await self._transport.send(url, request)
        header = await self._header()
        response = await self._transport.send(url, authorized(request, header))
        if response.status == UNAUTHENTICATED and callable(self._source):
            async with self._renewing:
                # Another task may have been told the same.
                newer = self._bearer.header if self._bearer.header != header else await self._renewed()
            if newer != header:
                response = await self._transport.send(url, authorized(request, newer))
        return response

    async def close(self) -> None:
        await self._transport.close()

    def on_threads(self) -> Transport:
        """A transport to the same servers, by the same credentials, for threads."""
        below = thread_transport(self._transport)
        source = self._source
        token = self._called_from_thread if callable(source) else source
        return AuthorizedTransport(below, self._endpoints, token, self._clock)

    async def _header(self) -> str:
        header = self._bearer.header
        if not header:
            async with self._renewing:
                return self._bearer.header or await self._renewed()
        if self._bearer.is_due(self._now()) and not self._renewing.locked():
            async with self._renewing:
                try:
                    return await self._renewed() if self._bearer.is_due(self._now()) else self._bearer.header
                except ConnectionFailed:
                    if not self._bearer.holds(self._now()):
                        raise
        return header

    async def _renewed(self) -> str:
        """The lock is held. Raises ConnectionFailed."""
        self._loop = asyncio.get_running_loop()
        source = self._source
        try:
            token = await _given(source) if callable(source) else source
            self._bearer.take(token, self._now())
        except Exception as error:
            raise no_token(error) from None
        return self._bearer.header

    def _called_from_thread(self) -> str:
        """Asks the source in its own event loop; once that has ended, in a short one."""
        source, loop = self._source, self._loop
        assert callable(source)
        if loop is not None and loop.is_running():
            return asyncio.run_coroutine_threadsafe(_given(source), loop).result()
        return asyncio.run(_given(source))

    def _now(self) -> float:
        return self._clock.now_us() / MICROS_PER_SECOND


async def _given(source: Callable[[], str | Awaitable[str]]) -> str:
    if inspect.iscoroutinefunction(source):
        found: str | Awaitable[str] = source()
    else:
        found = await asyncio.to_thread(source)
    return found if isinstance(found, str) else await found
