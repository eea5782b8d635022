"""Builds the edge of a server: the door, and the connections before it."""

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from starlette.types import ASGIApp

from siltlog.infra import names
from siltlog.infra.clock import Clock
from siltlog.infra.http.connection.connections import Connections
from siltlog.infra.http.connection.crowd import Crowd
from siltlog.infra.http.connection.fast_path import FastPath
from siltlog.infra.http.door import Door, Hops, Identification
from siltlog.infra.http.draining import Draining
from siltlog.infra.http.memory import InFlight
from siltlog.infra.http.part import Part
from siltlog.infra.http.peer import Peers
from siltlog.infra.http.requests import BodyReader
from siltlog.infra.security.guard import Guard
from siltlog.infra.telemetry import Logger, Metrics

ANSWERS_SECONDS_MAX = 1.0
"""How long clients may take to read the last answers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Edge:
    part: Part
    door: Door
    connections: Connections
    crowd: Crowd
    requests: Callable[[], int]
    """How many are under way."""


def assemble(
    app: ASGIApp,
    fast_path: Callable[[Door], FastPath],
    *,
    hosts: Iterable[str],
    origins: Iterable[str],
    peers: Peers,
    connections_max: int,
    connections_per_ip_max: int,
    request_bytes: int,
    request_timeout_ms: int,
    in_flight: InFlight,
    draining: Draining,
    clock: Clock,
    logger: Logger,
    metrics: Metrics,
    identification: Identification | None = None,
    guard: Guard | None = None,
    hops: Hops | None = None,
) -> Edge:
    """`fast_path(door)` makes what is offered each request before `app` is; without `identification` everybody may do
    everything."""
    crowd = Crowd(
        connections_max,
        clock,
        per_address_max=connections_per_ip_max,
        stands_for_many=peers.proxies.trusts,
        strangers_max=None if identification is None else max(connections_max // 2, 1),
    )
    door = Door(
        app,
        hosts=hosts,
        origins=origins,
        overload=crowd.full,
        bodies=BodyReader(request_bytes, request_timeout_ms, in_flight),
        proxies=peers.proxies,
        in_flight=in_flight,
        draining=draining,
        logger=logger,
        metrics=metrics,
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
        stall_seconds=request_timeout_ms / 1000,
        in_flight=in_flight,
        clock=clock,
        logger=logger,
    )
    watching: list[asyncio.Task[None]] = []

    def show(metrics: Metrics) -> None:
        metrics.gauge(names.METRIC_CONNECTIONS, "Open connections", lambda: len(crowd.open))
        metrics.gauge(names.METRIC_IN_FLIGHT_BYTES, "Memory of requests under way", lambda: in_flight.used_bytes)

    def start() -> None:
        watching.append(asyncio.create_task(connections.watch()))

    def drain() -> None:
        for task in watching:
            task.cancel()
        connections.end_streams()

    async def close(patient: bool) -> bool:
        await connections.end(ANSWERS_SECONDS_MAX)
        return True

    return Edge(
        part=Part(gauges=show, start=start, drain=drain, close=close),
        door=door,
        connections=connections,
        crowd=crowd,
        requests=lambda: door.requests + fast.requests,
    )
