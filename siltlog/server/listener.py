"""The socket that the server listens on, and the names by which it may be called there."""

import asyncio
import contextlib
import ipaddress
import os
import socket
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import urlsplit

import uvicorn
from starlette.types import ASGIApp

from siltlog.infra import names
from siltlog.infra.clock import Clock
from siltlog.infra.errors import ConfigError
from siltlog.infra.http.connection.connection import Connection
from siltlog.infra.http.connection.connections import Connections
from siltlog.infra.http.connection.entrance import BACKLOG
from siltlog.infra.http.connection.handshakes import Handshakes
from siltlog.infra.http.connection.peer import Peers
from siltlog.infra.http.part import Part
from siltlog.infra.locations import listening_at, named_hosts, networks, page_origins
from siltlog.infra.metrics import catalogue
from siltlog.infra.metrics.metrics import Metrics
from siltlog.infra.security.certificates import load_identity
from siltlog.infra.security.exposure import NO_TLS, check_exposure, insecure_words, missing
from siltlog.infra.security.proxies import Proxies
from siltlog.infra.settings.settings import ServerSettings
from siltlog.infra.socket_path import short_path
from siltlog.infra.telemetry import Logger
from siltlog.server.process import connections_within, raise_file_limit
from siltlog.server.tls import Tls, Withdraw, tls_files

GRPC_PACKAGES = ("grpc", "grpc_health", "grpc_reflection", "google.rpc")
_OWNER_ALONE = 0o600


class Listening(uvicorn.Server):
    """Answers on sockets until it is told to end; signals are not its business, as a drain comes before the end.

    What comes by the network shakes hands first where there is TLS. Each connection gets the certificate that there is
    when it begins, so that a new one needs no new socket.
    """

    def __init__(self, app: ASGIApp, connections: Connections, handshakes: Handshakes | None) -> None:
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
        self._connections = connections
        self._handshakes = handshakes
        self._accepting: list[asyncio.Task[None]] = []

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        assert sockets is not None
        loop = asyncio.get_running_loop()
        self.servers = []
        for listener in sockets:
            if listener.family == socket.AF_UNIX:
                self.servers.append(await loop.create_unix_server(self._connection, sock=listener, backlog=BACKLOG))
            elif self._handshakes is None:
                self.servers.append(await loop.create_server(self._connection, sock=listener, backlog=BACKLOG))
            else:
                accepting = self._handshakes.accept(listener, self._connection)
                self._accepting.append(loop.create_task(accepting))
        self.started = True

    def _connection(self) -> Connection:
        return self._connections.protocol(config=self.config, server_state=self.server_state, app_state={})

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    def tell_view(self, number: int) -> None:
        """Every reply says from now on that this node knows that view."""
        field = (names.HEADER_VIEW.lower().encode(), b"%d" % number)
        # The first is what the second is made of once it begins to listen.
        self.config.headers = [(names.HEADER_VIEW, str(number))]
        self.config.encoded_headers = [field]
        dated = [each for each in self.server_state.default_headers if each[0] == b"date"]
        self.server_state.default_headers = [*dated, field]

    def stop_listening(self) -> None:
        for listening in self.servers:
            listening.close()
        for accepting in self._accepting:
            accepting.cancel()

    def end(self) -> None:
        """Has `serve` return."""
        self.should_exit = True


def listen(
    host: str, port: int, *, host_name: str = "SILT_HOST", choose: str = "another --port (0: any)"
) -> socket.socket:
    """Takes a port. Raises ConfigError: `host_name` is the setting that says where, `choose` what mends it."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except OSError as error:
        raise ConfigError(f"{host_name}={host} cannot be resolved: {error.strerror}") from None
    listener = socket.socket(family, kind, protocol)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind(address)
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        raise ConfigError(
            f"cannot listen on {host}:{port}: {error.strerror}. Stop what uses it, or choose {choose}"
        ) from None
    listener.setblocking(False)
    return listener


@contextlib.contextmanager
def local_socket(data_dir: Path, logger: Logger) -> Iterator[socket.socket | None]:
    """Yields the socket in the data directory, which its owner alone can use and whose lock this process has.

    None where the file system has no sockets.
    """
    path = data_dir / names.SOCKET_FILE
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
        try:
            # That of a server that was killed.
            path.unlink(missing_ok=True)
            with short_path(path) as short:
                listener.bind(os.fspath(short))
            stack.callback(path.unlink, missing_ok=True)
            # Nobody gets in before it listens.
            path.chmod(_OWNER_ALONE)
            listener.listen(BACKLOG)
            listener.setblocking(False)
        except OSError as error:
            logger.warning("there is no socket in the data directory", path=str(path), reason=error.strerror)
            yield None
        else:
            yield listener


def url_of(settings: ServerSettings, listener: socket.socket) -> str:
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    scheme = "https" if settings.tls_cert else "http"
    return f"{scheme}://{host}:{listener.getsockname()[1]}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Listeners:
    """Where it listens, and what others should know of that."""

    sockets: Sequence[socket.socket]
    url: str
    tls: Tls | None
    insecure: Sequence[str]
    metrics: socket.socket | None
    """The socket of a port for metrics alone."""
    grpc: socket.socket | None = None
    """The socket of gRPC."""
    kafka: socket.socket | None = None
    """The socket of Kafka's protocol."""

    def warnings(self) -> Sequence[str]:
        return [*self.insecure, *(self.tls.warnings() if self.tls is not None else ())]

    def part(self, withdraw: Withdraw) -> Part:
        watching: list[asyncio.Task[None]] = []

        def not_after() -> list[tuple[tuple[str, ...], float]]:
            return [] if self.tls is None else [((), self.tls.not_after.timestamp())]

        def show(metrics: Metrics) -> None:
            metrics.gauges(catalogue.TLS_NOT_AFTER, not_after)

        def start() -> None:
            if self.tls is not None:
                watching.append(asyncio.create_task(self.tls.watch(withdraw)))

        def drain() -> None:
            for task in watching:
                task.cancel()

        return Part(gauges=show, start=start, drain=drain)


@contextlib.contextmanager
def listeners(settings: ServerSettings, clock: Clock, logger: Logger) -> Iterator[Listeners]:
    """Takes the port. Raises ConfigError where it cannot, or may not with these settings."""
    insecure = check_reach(settings)
    check_grpc(settings)
    for warning in insecure:
        logger.warning("other machines reach the server without protection", reason=warning)
    files = tls_files(settings)
    tls = None if files is None else Tls(files, clock, logger)
    with (
        contextlib.closing(listen(settings.host, settings.port)) as listener,
        _metrics_socket(settings) as metrics,
        _protocol_socket(settings.grpc_listen, "SILT_GRPC_LISTEN") as grpc,
        _protocol_socket(settings.kafka_listen, "SILT_KAFKA_LISTEN") as kafka,
    ):
        url = url_of(settings, listener)
        yield Listeners(
            sockets=[listener], url=url, tls=tls, insecure=insecure, metrics=metrics, grpc=grpc, kafka=kafka
        )


@contextlib.contextmanager
def _metrics_socket(settings: ServerSettings) -> Iterator[socket.socket | None]:
    if not settings.metrics_port:
        yield None
        return
    choose = "another SILT_METRICS_PORT (0: metrics are with the rest)"
    listener = listen(settings.metrics_host, settings.metrics_port, host_name="SILT_METRICS_HOST", choose=choose)
    with contextlib.closing(listener):
        yield listener


@contextlib.contextmanager
def _protocol_socket(address: str, setting: str) -> Iterator[socket.socket | None]:
    """Yields the socket of a protocol beside HTTP, at the `address` that `setting` has; None where it has none."""
    if not address:
        yield None
        return
    host, port = listening_at(address)
    with contextlib.closing(listen(host, port, host_name=setting, choose=f"another port in {setting} (0: any)")) as at:
        yield at


def kafka_address(settings: ServerSettings, listener: socket.socket | None) -> str:
    """Where Kafka's clients call a node of a cluster, as `host:port`; empty where nothing listens for them.

    That of SILT_KAFKA_ADVERTISE; else where it listens, and where that is every address of its machine, its port at the
    host of SILT_ADVERTISE_URL.
    """
    if listener is None or settings.kafka_advertise:
        return settings.kafka_advertise
    host, _ = listening_at(settings.kafka_listen)
    if _is_every_address(host):
        host = urlsplit(settings.advertise_url).hostname or host
    port = listener.getsockname()[1]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _is_every_address(host: str) -> bool:
    with contextlib.suppress(ValueError):
        return ipaddress.ip_address(host).is_unspecified
    return False


def check_grpc(settings: ServerSettings) -> None:
    """Raises ConfigError where gRPC is asked for and its packages are not there."""
    if settings.grpc_listen and any(find_spec(package) is None for package in GRPC_PACKAGES):
        raise ConfigError("SILT_GRPC_LISTEN is set, and gRPC is not installed: pip install 'siltlog[grpc]'")


def listening_problems(settings: ServerSettings) -> list[str]:
    """Tells why a server with these settings would not listen, as far as that shows before it does."""
    found = []
    try:
        check_reach(settings)
    except ConfigError as error:
        found.append(error.detail)
    try:
        check_grpc(settings)
    except ConfigError as error:
        found.append(error.detail)
    try:
        files = tls_files(settings)
        if files is not None:
            load_identity(files)
    except ConfigError as error:
        found.append(error.detail)
    return found


def hosts(settings: ServerSettings) -> list[str]:
    advertised = urlsplit(settings.advertise_url).hostname if settings.advertise_url else None
    return [settings.host, *([advertised] if advertised else []), *named_hosts(settings.hosts)]


def origins(settings: ServerSettings) -> list[str]:
    """Lists the origins of pages that may call it, besides the pages of its own host."""
    parts = urlsplit(settings.advertise_url)
    own = [f"{parts.scheme}://{parts.netloc}".lower()] if parts.netloc else []
    return [*own, *page_origins(settings.cors_origins)]


def check_reach(settings: ServerSettings) -> list[str]:
    """Tells what others should know of a server that they reach without TLS or authentication.

    Raises ConfigError where its owner did not say that it does without them.
    """
    tls = bool(settings.tls_cert or settings.trusted_proxies)
    reached = [(settings.host, tls), *((listening_at(at)[0], tls) for at in [settings.grpc_listen] if at)]
    # Kafka's protocol has no way for a proxy to say for whom it calls.
    reached += [(listening_at(at)[0], bool(settings.tls_cert)) for at in [settings.kafka_listen] if at]
    found = []
    for host, has_tls in dict.fromkeys(reached):
        lacking = missing(host, tls=has_tls, auth=settings.auth == "on")
        check_exposure(host, lacking, insecure_words(settings.insecure))
        if lacking:
            waived = ",".join(lacking)
            found.append(f"insecure: {host} can be reached from other machines; SILT_INSECURE waives {waived}")
    return found


def peers(settings: ServerSettings) -> Peers:
    """Tells callers apart. Where TLS ends at proxies, what goes past them is refused, unless that was waived."""
    proxies = Proxies(networks(settings.trusted_proxies), settings.path_prefix)
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
