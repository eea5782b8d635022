"""A port of its own for who watches: metrics, health and readiness, without authentication, and nothing else."""

import asyncio
import socket

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from siltlog.infra.errors import problem
from siltlog.infra.http import assembly as edge_assembly
from siltlog.infra.http.assembly import Edge, EdgeLimits
from siltlog.infra.http.connection.fast_path import NoFastPath
from siltlog.infra.http.connection.peer import Peers
from siltlog.infra.http.part import Part
from siltlog.infra.http.routes import routes_of
from siltlog.infra.locations import named_hosts
from siltlog.infra.node import Node
from siltlog.infra.security.proxies import Proxies
from siltlog.infra.settings.settings import ServerSettings
from siltlog.server.listener import Listening

PATHS = ("/metrics", "/healthz", "/readyz")
CONNECTIONS_MAX = 64
"""They are few who watch, and whoever else comes takes none of the connections of those who publish."""


class MetricsPort:
    """Answers from the start of the server until all else of it has ended, through a door of its own."""

    def __init__(self, node: Node, listener: socket.socket, about_node: Part) -> None:
        self._edge = _edge(node, about_node)
        self._server = Listening(self._edge.door, self._edge.connections, None)
        self._serving = asyncio.create_task(self._server.serve([listener]))
        self._edge.part.start()
        host, port = node.settings.metrics_host, listener.getsockname()[1]
        url = f"http://{f'[{host}]' if ':' in host else host}:{port}"
        node.logger.info("metrics have a port of their own, without authentication", url=f"{url}/metrics")

    def reconfigure(self, settings: ServerSettings) -> None:
        """Takes the settings of it that may change while it runs."""
        self._edge.reconfigure(_limits(settings))

    async def close(self, patient: bool) -> None:
        self._server.stop_listening()
        self._edge.part.drain()
        await self._edge.part.close(patient)
        self._server.end()
        await self._serving


def _limits(settings: ServerSettings) -> EdgeLimits:
    return EdgeLimits(
        hosts=[settings.metrics_host, *named_hosts(settings.hosts)],
        connections_max=CONNECTIONS_MAX,
        request_bytes=settings.request_bytes,
        request_timeout_ms=settings.request_timeout_ms,
    )


def _edge(node: Node, about_node: Part) -> Edge:
    return edge_assembly.assemble(
        _app(about_node),
        lambda door: NoFastPath(),
        limits=_limits(node.settings),
        peers=Peers(Proxies([]), needs_tls=False),
        in_flight=node.in_flight,
        draining=node.draining,
        clock=node.clock,
        logger=node.logger,
        metrics=node.metrics,
    )


def _app(about_node: Part) -> ASGIApp:
    routes = {route.path: route for route in routes_of(*about_node.handlers) if route.path in PATHS}
    assert routes.keys() == set(PATHS)

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        route = routes.get(scope["path"])
        if route is None:
            raise problem("not_found", f"this port of the server answers {', '.join(PATHS)}, and nothing else")
        methods = sorted(route.methods or ())
        if scope["method"] not in methods:
            raise HTTPException(405, headers={"Allow": ", ".join(methods)})
        response = await route.endpoint(Request(scope, receive, send))
        await response(scope, receive, send)

    return app
