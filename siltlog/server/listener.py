"""The socket that the server listens on, and the names by which it may be called there."""

import contextlib
import socket
from collections.abc import Iterator
from urllib.parse import urlsplit

import uvicorn
from starlette.types import ASGIApp

from siltlog.infra.errors import ConfigError
from siltlog.infra.http.connection.connections import Connections
from siltlog.infra.http.peer import Peers
from siltlog.infra.locations import named_hosts, networks, page_origins
from siltlog.infra.security.exposure import NO_TLS, insecure_words
from siltlog.infra.security.proxies import Proxies
from siltlog.infra.settings.settings import ServerSettings
from siltlog.infra.telemetry import Logger
from siltlog.server.process import connections_within, raise_file_limit

BACKLOG = 2048


class Listening(uvicorn.Server):
    """Answers on a socket until it is told to end; signals are not its business, as a drain comes before the end."""

    def __init__(self, app: ASGIApp, connections: Connections) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                loop="uvloop",
                http=connections.protocol,  # type: ignore[arg-type]
                ws="none",
                lifespan="off",
                interface="asgi3",
                access_log=False,
                log_config=None,
                server_header=False,
                proxy_headers=False,
                backlog=BACKLOG,
                timeout_graceful_shutdown=1,
            )
        )

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    def stop_listening(self) -> None:
        for listening in self.servers:
            listening.close()

    def end(self) -> None:
        """Has `serve` return."""
        self.should_exit = True


def listen(host: str, port: int) -> socket.socket:
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except OSError as error:
        raise ConfigError(f"SILT_HOST={host} cannot be resolved: {error.strerror}") from None
    listener = socket.socket(family, kind, protocol)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind(address)
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        raise ConfigError(
            f"cannot listen on {host}:{port}: {error.strerror}. Stop what uses it, or choose another --port (0: any)"
        ) from None
    listener.setblocking(False)
    return listener


def url_of(settings: ServerSettings, listener: socket.socket) -> str:
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    return f"http://{host}:{listener.getsockname()[1]}"


def hosts(settings: ServerSettings) -> list[str]:
    advertised = urlsplit(settings.advertise_url).hostname if settings.advertise_url else None
    return [settings.host, *([advertised] if advertised else []), *named_hosts(settings.hosts)]


def origins(settings: ServerSettings) -> list[str]:
    """Lists the origins of pages that may call it, besides the pages of its own host."""
    parts = urlsplit(settings.advertise_url)
    own = [f"{parts.scheme}://{parts.netloc}".lower()] if parts.netloc else []
    return [*own, *page_origins(settings.cors_origins)]


def peers(settings: ServerSettings) -> Peers:
    """Tells callers apart. Where TLS ends at proxies, what goes past them is refused, unless that was waived."""
    proxies = Proxies(networks(settings.trusted_proxies))
    waived = NO_TLS in insecure_words(settings.insecure)
    return Peers(proxies, needs_tls=bool(proxies) and not settings.tls_cert and not waived)


def connections_max(settings: ServerSettings, logger: Logger) -> int:
    """The number of connections that may be open, so that the files of the log still have their place."""
    segments = settings.wal_bytes_max // settings.segment_bytes
    possible = connections_within(raise_file_limit(), settings.connections_max, segments=segments)
    if possible < settings.connections_max:
        logger.warning(
            "fewer connections than SILT_CONNECTIONS_MAX: the limit of open files (ulimit -n) allows no more",
            connections_max=possible,
        )
    return possible
