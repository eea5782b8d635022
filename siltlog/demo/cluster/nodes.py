"""Three nodes over one root, each a process with a disk of its own, and the Valkey that they share."""

import os
import shutil
import socket
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

from siltlog.infra import names
from siltlog.infra.clock import Clock
from siltlog.infra.errors import ConfigError
from siltlog.infra.redis.embedded import EmbeddedValkey
from siltlog.infra.telemetry import logger
from siltlog.server_process import ServerProcess

NODE_IDS = ("n1", "n2", "n3")
HOST = "127.0.0.1"
PORT_MIN = 20_000
PORTS = 12_000
"""Below those that systems give to outgoing connections: the port of a node that is away stays its own."""
PORT_MAX = 65_535


class Nodes:
    """`folder` gets a data directory for each node, their logs beside them, the root, and Valkey's folder."""

    def __init__(self, folder: Path, port: int, lease_ms: int, heartbeat_ms: int, clock: Clock) -> None:
        """`port` is the first node's, the next two follow it; 0 takes free ones. Raises ConfigError."""
        self._folder = folder
        self._valkey = EmbeddedValkey(folder, clock, logger("error", "console"))
        self._ports = _ports(port)
        self._lease = {"lease_ms": lease_ms, "heartbeat_ms": heartbeat_ms}
        self._servers: dict[str, ServerProcess] = {}

    @property
    def root(self) -> Path:
        return self._folder / names.LAKE_FOLDER

    @property
    def urls(self) -> list[str]:
        """Where clients call them, those too that are away."""
        return [f"http://{HOST}:{port}" for port in self._ports]

    def pid(self, node: str) -> int:
        return self._servers[node].pid

    def start(self) -> None:
        """Returns once all can acknowledge. Raises ConfigError with the words of one that does not start."""
        redis_url = self._valkey.start()
        for node, port, url in zip(NODE_IDS, self._ports, self.urls, strict=True):
            settings = {
                **self._lease,
                "cluster": "on",
                "root": self.root.as_uri(),
                "redis_url": redis_url,
                "node_id": node,
                "advertise_url": url,
                "port": port,
            }
            log = self._folder / f"{node}-{names.SERVER_LOG_FILE}"
            self._servers[node] = ServerProcess(self._folder / node, settings, log=log)
        _at_once(ServerProcess.start, list(self._servers.values()))

    def lose(self, node: str) -> None:
        """Kills the node by its pid, at once, and removes its disk."""
        server = self._servers[node]
        server.kill()
        shutil.rmtree(server.data_dir)

    def replace(self, nodes: Sequence[str]) -> None:
        """Starts nodes that were lost on empty disks, at their addresses."""
        _at_once(ServerProcess.start, [self._servers[node] for node in nodes])

    def stop(self) -> list[int]:
        """Stops one node after the other by SIGTERM; their exit statuses."""
        return [server.stop() for server in self._servers.values()]

    def end(self) -> None:
        """Leaves no process, whatever state they are in."""
        for server in self._servers.values():
            if server.running:
                server.kill()
        with suppress(ConfigError):
            self._valkey.stop()


def _at_once(act: Callable[[ServerProcess], None], servers: Sequence[ServerProcess]) -> None:
    with ThreadPoolExecutor(len(servers), thread_name_prefix="demo-start") as pool:
        list(pool.map(act, servers))


def _ports(first: int) -> list[int]:
    """One for each node."""
    if first:
        if first + len(NODE_IDS) - 1 > PORT_MAX:
            raise ConfigError(f"--port {first} leaves no room for {len(NODE_IDS)} nodes; choose a lower one, or 0")
        return list(range(first, first + len(NODE_IDS)))
    return [port for port, _ in zip(_free_ports(), NODE_IDS, strict=False)]


def _free_ports() -> Iterator[int]:
    """Yields free ports. Each process begins at another, so that two demos do not meet. Raises ConfigError."""
    for step in range(PORTS):
        port = PORT_MIN + (os.getpid() * 8 + step) % PORTS
        with socket.socket() as probe:
            # As a server would: what another that is gone has left in TIME_WAIT is no hindrance.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            with suppress(OSError):
                probe.bind((HOST, port))
                yield port
    raise ConfigError("no three ports are free on this machine; name the first of three by --port")
