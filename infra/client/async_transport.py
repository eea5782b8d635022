"""The asynchronous transport: aiohttp under the client core. It comes with `siltlog[async]`."""

from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from siltlog.infra.client.core import CONNECT_TIMEOUT_MS, Buffer, ConnectionFailed, Request, Response
from siltlog.infra.client.transport import USER_AGENT
from siltlog.infra.errors import ConfigError

if TYPE_CHECKING:
    import aiohttp

ONE_PIECE_BYTES_MAX = 1024 * 1024
"""Bodies up to this go to the socket as one; larger ones piece by piece, so that the event loop goes on between."""


class AsyncTransport(Protocol):
    async def send(self, url: str, request: Request) -> Response:
        """One attempt. Raises ConnectionFailed."""

    async def close(self) -> None: ...


class AsyncHttpTransport:
    """Belongs to the event loop it first sends in."""

    def __init__(self) -> None:
        """Raises ConfigError where aiohttp is not installed."""
        try:
            import aiohttp
        except ImportError:
            raise ConfigError("the asynchronous client needs aiohttp: pip install 'siltlog[async]'") from None
        self._aiohttp = aiohttp
        self._session: aiohttp.ClientSession | None = None

    async def send(self, url: str, request: Request) -> Response:
        aiohttp = self._aiohttp
        headers = {"User-Agent": USER_AGENT, **request.headers}
        timeout = aiohttp.ClientTimeout(total=request.read_timeout_ms / 1000, sock_connect=CONNECT_TIMEOUT_MS / 1000)
        data = _data(request.body, headers)
        try:
            async with self._opened().request(
                request.method, url + request.path, data=data, headers=headers, allow_redirects=False, timeout=timeout
            ) as reply:
                body = await reply.read()
                return Response(reply.status, {name.lower(): value for name, value in reply.headers.items()}, body)
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
            raise ConnectionFailed(str(error), sent=False) from None
        except (TimeoutError, aiohttp.ClientError, OSError) as error:
            raise ConnectionFailed(str(error) or type(error).__name__, sent=True) from None

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()

    def _opened(self) -> "aiohttp.ClientSession":
        if self._session is None:
            aiohttp = self._aiohttp
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0), cookie_jar=aiohttp.DummyCookieJar()
            )
        return self._session


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
