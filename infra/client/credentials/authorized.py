"""A transport whose requests say who sends them; and how the transport of a client is chosen."""

import threading
from dataclasses import replace

from siltlog.infra.client.core import CONNECT_TIMEOUT_MS, NO_TOKEN, UNAUTHENTICATED, ConnectionFailed, Request, Response
from siltlog.infra.client.credentials.bearer import Bearer
from siltlog.infra.client.credentials.choice import chosen
from siltlog.infra.client.credentials.credentials import Credentials, Token, check_blocking, check_may_carry
from siltlog.infra.client.credentials.tls import TlsFiles
from siltlog.infra.client.endpoints import Endpoints
from siltlog.infra.client.transport import HttpTransport, Transport
from siltlog.infra.clock import MICROS_PER_SECOND, Clock
from siltlog.infra.errors import ConfigError


def open_transport(
    endpoints: Endpoints,
    clock: Clock,
    given: Credentials | None = None,
    transport: Transport | None = None,
    connect_timeout_ms: int = CONNECT_TIMEOUT_MS,
) -> Transport:
    """The transport of a client: `transport` where there is one, which the environment then says nothing of.

    Raises ConfigError for credentials that cannot be used, or may not be sent to these servers.
    """
    credentials = chosen(endpoints, given or Credentials(), found=transport is None)
    check_blocking(credentials.token)
    if transport is None:
        transport = HttpTransport(tls_of(endpoints, credentials), connect_timeout_ms)
    return transport if not credentials.token else AuthorizedTransport(transport, endpoints, credentials.token, clock)


def tls_of(endpoints: Endpoints, credentials: Credentials) -> TlsFiles:
    """Looks at the files at once where a server will be called by them."""
    tls = TlsFiles(credentials.ca, credentials.cert)
    if (credentials.ca or credentials.cert) and any(url.startswith("https:") for url in endpoints.urls):
        tls.context()
    return tls


class AuthorizedTransport:
    """Sends a token to the servers that were named, to nodes that those name, and to no other.

    A function that gives it is called for the first request, once when the server does not take it, and before it
    expires.
    """

    def __init__(self, transport: Transport, endpoints: Endpoints, token: Token, clock: Clock) -> None:
        """Raises ConfigError where it would go to another machine in plain text."""
        check_may_carry(endpoints.urls)
        self._transport = transport
        self._endpoints = endpoints
        self._source = token
        self._clock = clock
        self._bearer = Bearer()
        self._renewing = threading.Lock()

    def send(self, url: str, request: Request) -> Response:
        if not self._endpoints.knows(url):
            return self._transport.send(url, request)
        header = self._header()
        response = self._transport.send(url, authorized(request, header))
        if response.status == UNAUTHENTICATED and callable(self._source):
            with self._renewing:
                # Another thread may have been told the same.
                newer = self._bearer.header if self._bearer.header != header else self._renewed()
            if newer != header:
                response = self._transport.send(url, authorized(request, newer))
        return response

    def close(self) -> None:
        self._transport.close()

    def _header(self) -> str:
        header = self._bearer.header
        if not header:
            with self._renewing:
                return self._bearer.header or self._renewed()
        if self._bearer.is_due(self._now()) and self._renewing.acquire(blocking=False):
            try:
                return self._renewed() if self._bearer.is_due(self._now()) else self._bearer.header
            except ConnectionFailed:
                if not self._bearer.holds(self._now()):
                    raise
            finally:
                self._renewing.release()
        return header

    def _renewed(self) -> str:
        """The lock is held. Raises ConnectionFailed."""
        try:
            self._bearer.take(self._source() if callable(self._source) else self._source, self._now())
        except Exception as error:
            raise no_token(error) from None
        return self._bearer.header

    def _now(self) -> float:
        return self._clock.now_us() / MICROS_PER_SECOND


def authorized(request: Request, header: str) -> Request:
    return replace(request, headers={**request.headers, "Authorization": header})


def no_token(error: Exception) -> ConnectionFailed:
    """Says no more of a stranger's error than its name: its text may have the secret that a token was asked for by."""
    why = error.detail if isinstance(error, ConfigError) else f"the function of token= raised {type(error).__name__}"
    return ConnectionFailed(f"there is no token: {why}", sent=False, error_code=NO_TOKEN)
