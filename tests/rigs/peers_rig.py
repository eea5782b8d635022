"""Nodes that call each other: real connections and doors on loopback, over applications and routes of the tests."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from http_rig import Http
from starlette.types import ASGIApp

from siltlog.infra.clock import SystemClock
from siltlog.infra.cluster.router import UNKNOWN, Held, Member, Place, Where, where
from siltlog.infra.http import assembly
from siltlog.infra.http.connection.fast_path import NoFastPath
from siltlog.infra.http.connection.peer import Peers as Ends
from siltlog.infra.http.door import Hops, Identification
from siltlog.infra.http.draining import Draining
from siltlog.infra.http.memory import InFlight
from siltlog.infra.metrics.metrics import Metrics
from siltlog.infra.security.proxies import Proxies
from siltlog.infra.telemetry import logger
from siltlog.server.listener import Listening, listen

MIB = 1024 * 1024


class FakeRoutes:
    """What a test says of topics; `Routes` of the forwarding."""

    def __init__(self, journal: str) -> None:
        self.journal = journal
        self.view = 1
        self.fresh = True
        self.places: dict[str, Place] = {}
        self.held: dict[str, Held] = {}
        self.heard: list[int] = []
        self._news = asyncio.Event()

    def where(self, topic: str, denied: frozenset[str] = frozenset(), *, decides: bool = True) -> Where:
        place = self.places.get(topic)
        if place is None and topic not in self.held:
            return UNKNOWN
        return where(
            place, self.held.get(topic, Held.NOT), self.journal, fresh=not decides or self.fresh, denied=denied
        )

    async def changed(self, seconds: float) -> None:
        try:
            await asyncio.wait_for(self._news.wait(), seconds)
        except TimeoutError:
            return

    def told(self, view: int) -> None:
        self.heard.append(view)

    def set(self, topic: str, place: Place | None = None, held: Held = Held.NOT) -> None:
        if place is not None:
            self.places[topic] = place
        self.held[topic] = held
        self.view += 1
        self._news.set()
        self._news = asyncio.Event()


@dataclass
class Door:
    """A node on loopback."""

    http: Http
    member: Member
    cut: Callable[[], None]
    in_flight: InFlight
    metrics: Metrics = field(repr=False)

    async def call(self, method: str, path: str, body: bytes | None = None, **headers: str) -> "Answer":
        reply = await asyncio.to_thread(self.http.call, method, path, body, **headers)
        return Answer(
            reply.status,
            {name.lower(): value for name, value in reply.headers.items()},
            reply.body,
            reply.json if reply.body[:1] == b"{" else {},
        )


@dataclass
class Answer:
    status: int
    headers: Mapping[str, str]
    body: bytes
    json: dict[str, object]


@asynccontextmanager
async def door(
    name: str,
    app: ASGIApp,
    *,
    hops: Hops | None = None,
    identification: Identification | None = None,
    token: str = "",
    in_flight: InFlight | None = None,
) -> AsyncIterator[Door]:
    clock, metrics = SystemClock(), Metrics()
    listener = listen("127.0.0.1", 0)
    url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    memory = in_flight or InFlight(64 * MIB, clock)
    edge = assembly.assemble(
        app,
        lambda _: NoFastPath(),
        limits=assembly.EdgeLimits(hosts=(), connections_max=100, request_bytes=16 * MIB, request_timeout_ms=2_000),
        peers=Ends(Proxies(()), needs_tls=False),
        in_flight=memory,
        draining=Draining(),
        clock=clock,
        logger=logger("critical", "json"),
        metrics=metrics,
        identification=identification,
        hops=hops,
    )
    server = Listening(edge.door, edge.connections, None)
    serving = asyncio.create_task(server.serve([listener]))
    while not server.started:
        await asyncio.sleep(0.01)

    def cut() -> None:
        for connection in tuple(edge.crowd.open):
            connection.cut()

    try:
        yield Door(Http(url, token=token), Member(name, f"{name}-1", url), cut, memory, metrics)
    finally:
        server.stop_listening()
        cut()
        server.end()
        await serving
