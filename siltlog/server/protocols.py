"""How a server is reached: its handlers over HTTP, and the same by gRPC and Kafka's protocol where they are wanted."""

from collections.abc import Callable, Mapping, Sequence

from siltlog.consumers.assembly import Consumers
from siltlog.consumers.keeping.calls import ServedKeeper
from siltlog.infra.http import assembly as edge_assembly
from siltlog.infra.http.assembly import Edge
from siltlog.infra.http.connection.crowd import Crowd
from siltlog.infra.http.connection.handshakes import Handshakes
from siltlog.infra.http.pace import Pace
from siltlog.infra.http.part import Part, together
from siltlog.infra.http.routes import routes_of
from siltlog.infra.node import Node
from siltlog.infra.peers.calls import PeerCall, with_calls
from siltlog.infra.security.guard import Guard
from siltlog.infra.telemetry import Logger
from siltlog.ingest.assembly import Ingest
from siltlog.server.access.security import Security
from siltlog.server.api import HANDLERS
from siltlog.server.cluster.nodes import Nodes
from siltlog.server.listener import Listeners, peers
from siltlog.server.routing import routing
from siltlog.server.settings.owners import edge_limits


def open_edge(
    node: Node,
    ingest: Ingest,
    consumers: Consumers,
    handlers: Sequence[object],
    pace: Pace,
    security: Security | None,
    guard: Guard | None,
    nodes: Nodes | None,
    calls: Mapping[str, PeerCall],
) -> Edge:
    """Builds what is before the handlers: the door, and the connections of HTTP before it."""
    to_owner = None if nodes is None else nodes.forwarding
    routes = routes_of(*handlers, guard=guard, to_owner=to_owner)
    app = routing(ingest.publish, routes, pace, guard, to_owner)
    if nodes is not None:
        app = with_calls(ServedKeeper(consumers.groups.as_keeper, app), {**nodes.calls, **calls})
    assert {type(ingest.publish), *map(type, handlers)} == set(HANDLERS), "what the document tells of is served"
    return edge_assembly.assemble(
        app,
        ingest.fast_path,
        limits=edge_limits(node.settings, node),
        peers=peers(node.settings),
        in_flight=node.in_flight,
        draining=node.draining,
        clock=node.clock,
        logger=node.logger,
        metrics=node.metrics,
        identification=security.identification if security else None,
        guard=guard,
        hops=None if nodes is None else nodes.hops,
        path_prefix=node.settings.path_prefix,
    )


def handshakes_of(listening: Listeners, crowd: Crowd, logger: Logger) -> Handshakes | None:
    """What shakes hands with connections that speak no HTTP/2; None where the server speaks no TLS."""
    tls = listening.tls
    return None if tls is None else Handshakes(lambda: tls.context, crowd, logger)


async def edge_part(node: Node, listening: Listeners, edge: Edge, is_ready: Callable[[], bool]) -> Part:
    """Joins what is before the door. Where gRPC is wanted that begins here; where it is not, nothing of it is
    imported."""
    parts = (edge.part, listening.part(edge.connections.withdraw))
    if listening.grpc is None:
        return together(*parts)
    from siltlog.server.grpc.assembly import open_grpc

    tls = listening.tls
    handshakes = None if tls is None else Handshakes(lambda: tls.h2_context, edge.crowd, node.logger)
    grpc = await open_grpc(node, listening.grpc, handshakes, edge, peers(node.settings), ready=is_ready)
    return together(grpc, *parts)


async def kafka_part(
    node: Node,
    listening: Listeners,
    edge: Edge,
    ingest: Ingest,
    consumers: Consumers,
    nodes: Nodes | None,
    security: Security | None,
    guard: Guard | None,
) -> tuple[Part, Callable[[], int]]:
    """Begins to speak Kafka's protocol where that is wanted; where it is not, nothing of it is imported.

    Gives what counts the requests that are under way, those of HTTP too.
    """
    if listening.kafka is None:
        return Part(), edge.requests
    from siltlog.server.kafka.assembly import open_kafka

    return await open_kafka(
        node,
        listening.kafka,
        handshakes_of(listening, edge.crowd, node.logger),
        edge,
        ingest,
        consumers,
        nodes,
        security,
        guard,
    )
