"""Builds the edge of a server: the door, and the connections before it."""

import asyncio
from collections.abc import Callable, Collection
from dataclasses import dataclass

from starlette.types import ASGIApp

from siltlog.infra.clock import Clock
from siltlog.infra.http.connection.connections import Connections
from siltlog.infra.http.connection.crowd import Crowd
from siltlog.infra.http.connection.fast_path import FastPath
from siltlog.infra.http.connection.peer import Peers
from siltlog.infra.http.door import Door, Hops, Identification
from siltlog.infra.http.draining import Draining
from siltlog.infra.http.log.access_log import AccessLog, AccessLogMode
from siltlog.infra.http.memory import InFlight
from siltlog.infra.http.part import Part
from siltlog.infra.http.requests import BodyReader
from siltlog.infra.metrics import catalogue
from siltlog.infra.metrics.metrics import Metrics
from siltlog.infra.security.guard import Guard
from siltlog.infra.security.origins import Origins
from siltlog.infra.telemetry import Logger

ANSWERS_SECONDS_MAX = 1.0
"""How long clients may take to read the last answers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EdgeLimits:
    """What may change while the edge is there: who may call by which names, how much at once, what is told of it."""

    hosts: Collection[str]
    origins: Collection[str] = ()
    connections_max: int
    connections_per_ip_max: int = 0
    request_bytes: int
    request_timeout_ms: int
    access_log: AccessLogMode = "off"


@dataclass(frozen=True, slots=True, kw_only=True)
class Edge:
    part: Part
    door: Door
    connections: Connections
    crowd: Crowd
    requests: Callable[[], int]
    """How many are under way."""
    reconfigure: Callable[[EdgeLimits], None]


def assemble(
    app: ASGIApp,
    fast_path: Callable[[Door], FastPath],
    *,
    limits: EdgeLimits,
    peers: Peers,
    in_flight: InFlight,
    draining: Draining,
    clock: Clock,
    logger: Logger,
    metrics: Metrics,
    identification: Identification | None = None,
    guard: Guard | None = None,
    hops: Hops | None = None,
    path_prefix: str = "",
) -> Edge:
    """`fast_path(door)` makes what is offered each request before `app` is; without `identification` everybody may do
    everything."""

    def strangers_max(limits: EdgeLimits) -> int | None:
        return None if identification is None else max(limits.connections_max // 2, 1)

    crowd = Crowd(
        limits.connections_max,
        clock,
        per_address_max=limits.connections_per_ip_max,
        stands_for_many=peers.proxies.trusts,
        strangers_max=strangers_max(limits),
    )
    access_log = AccessLog(limits.access_log, logger, clock.monotonic)
    bodies = BodyReader(limits.request_bytes, limits.request_timeout_ms, in_flight)
    origins = Origins(limits.hosts, limits.origins)
    door = Door(
        app,
        origins=origins,
        overload=crowd.full,
        bodies=bodies,
        proxies=peers.proxies,
        in_flight=in_flight,
        draining=draining,
        logger=logger,
        metrics=metrics,
        access_log=access_log,
        identification=identification,
        guard=guard,
        hops=hops,
    )
    fast = fast_path(door)
    connections = Connections(
        crowd,
        door,
        fast,
        peers,
        stall_seconds=limits.request_timeout_ms / 1000,
        in_flight=in_flight,
        clock=clock,
        logger=logger,
        path_prefix=path_prefix,
    )

    def requests() -> int:
        return door.requests + fast.requests

    draining.counted(requests)
    watching: list[asyncio.Task[None]] = []

    def reconfigure(limits: EdgeLimits) -> None:
        crowd.reconfigure(limits.connections_max, limits.connections_per_ip_max, strangers_max(limits))
        bodies.reconfigure(limits.request_bytes, limits.request_timeout_ms)
        access_log.reconfigure(limits.access_log)
        origins.reconfigure(limits.hosts, limits.origins)
        door.reconfigure(access_log)
        fast.reconfigure(limits.request_bytes)
        connections.reconfigure(limits.request_timeout_ms / 1000)

    def show(metrics: Metrics) -> None:
        metrics.gauge(catalogue.CONNECTIONS, lambda: len(crowd.open))
        metrics.gauge(catalogue.IN_FLIGHT_BYTES, lambda: in_flight.used_bytes)

    def start() -> None:
        watching.append(asyncio.create_task(connections.watch()))

    def drain() -> None:
        for task in watching:
            task.cancel()
        connections.end_streams()

    async def close(patient: bool) -> bool:
        await connections.end(ANSWERS_SECONDS_MAX)
        access_log.tell_left_out()
        return True

    return Edge(
        part=Part(gauges=show, start=start, drain=drain, close=close),
        door=door,
        connections=connections,
        crowd=crowd,
        reconfigure=reconfigure,
        requests=requests,
    )
