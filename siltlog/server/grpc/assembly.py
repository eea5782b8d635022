"""Builds the gRPC of a server: its own server behind a socket of this process, and the relay before that."""

import asyncio
import contextlib
import socket
from collections.abc import Callable

import grpc
from grpc_health.v1 import health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from siltlog.infra.grpc.calls import Calls
from siltlog.infra.grpc.relay import Relay
from siltlog.infra.http.assembly import Edge
from siltlog.infra.http.connection.handshakes import Handshakes
from siltlog.infra.http.connection.peer import Peers
from siltlog.infra.http.part import Part
from siltlog.infra.node import Node
from siltlog.infra.socket_path import short_folder
from siltlog.server.grpc.health import Health
from siltlog.server.grpc.service import NAME, Service

MESSAGE_ROOM_BYTES = 1024 * 1024
"""A message that is above the limit of requests by less than this is refused in our words; gRPC refuses larger ones
before they are read."""
METADATA_BYTES_MAX = 32 * 1024
STREAMS_MAX = 1_000
"""So many calls may be under way on a connection."""
IDLE_MS_MAX = 10 * 60_000
KEEP_ALIVE_MS, KEEP_ALIVE_TIMEOUT_MS = 30_000, 20_000
PING_MS_MIN = 10_000
"""Whoever asks more often whether the server is there is sent away."""
END_SECONDS = 1.0
"""How long clients may take to read the end of their streams."""
_HEALTH = "grpc.health.v1.Health"


async def open_grpc(
    node: Node,
    listener: socket.socket,
    handshakes: Handshakes | None,
    edge: Edge,
    peers: Peers,
    ready: Callable[[], bool],
) -> Part:
    """Serves on `listener` until the part is closed; calls are answered behind the door of `edge`."""
    settings = node.settings
    stack = contextlib.ExitStack()
    # Of mode 700: nobody else calls past the relay.
    folder = stack.enter_context(short_folder("grpc"))
    relay = Relay(
        folder,
        crowd=edge.crowd,
        peers=peers,
        handshakes=handshakes,
        in_flight=node.in_flight,
        logger=node.logger,
    )
    draining = asyncio.Event()
    server = grpc.aio.server(options=_options(settings.request_bytes))
    calls = Calls(edge.door, relay)
    service = Service(calls, node.logger, draining, lambda: edge.connections.stall_seconds)
    server.add_generic_rpc_handlers((service.handlers(),))
    health = Health(ready, frozenset((NAME, _HEALTH)), draining, calls.taken)
    health_pb2_grpc.add_HealthServicer_to_server(health, server)
    reflection.enable_server_reflection((NAME, _HEALTH, reflection.SERVICE_NAME), server)
    server.add_insecure_port(f"unix:{relay.inner_path}")
    await server.start()
    await relay.listen(listener)
    host, port = listener.getsockname()[:2]
    node.logger.info("gRPC is served", address=f"[{host}]:{port}" if ":" in host else f"{host}:{port}")

    async def close(patient: bool) -> bool:
        relay.stop_listening()
        await server.stop(END_SECONDS)
        stack.close()
        return True

    return Part(drain=draining.set, close=close)


def _options(request_bytes: int) -> list[tuple[str, int]]:
    return [
        ("grpc.max_receive_message_length", request_bytes + MESSAGE_ROOM_BYTES),
        ("grpc.max_send_message_length", -1),
        ("grpc.max_metadata_size", METADATA_BYTES_MAX),
        ("grpc.absolute_max_metadata_size", METADATA_BYTES_MAX),
        ("grpc.max_concurrent_streams", STREAMS_MAX),
        ("grpc.max_connection_idle_ms", IDLE_MS_MAX),
        ("grpc.keepalive_time_ms", KEEP_ALIVE_MS),
        ("grpc.keepalive_timeout_ms", KEEP_ALIVE_TIMEOUT_MS),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.min_ping_interval_without_data_ms", PING_MS_MIN),
    ]
