"""The owners of settings that change while the server runs: one list, from settings to their owner's transition."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from siltlog.consumers.assembly import Consumers
from siltlog.consumers.reading.http import ReadLimits
from siltlog.infra.http.assembly import Edge, EdgeLimits
from siltlog.infra.node import Node
from siltlog.infra.settings.settings import ServerSettings
from siltlog.infra.telemetry import LogOutput
from siltlog.ingest.assembly import Ingest
from siltlog.pipelines.assembly import Pipelines
from siltlog.server.listener import connections_max, hosts, origins
from siltlog.server.watching.metrics_port import MetricsPort

FETCH_BODY_BYTES_MAX = 4 * 1024 * 1024
ASKED_FOR = frozenset(("drain_ms",))
"""What nobody has: it is asked for when it is needed."""
_JOBS = ("schedule", "schedule_compact", "schedule_retain", "schedule_vacuum", "schedule_audit", "schedule_catalog")
_FLUSH = ("flush_ms", "flush_bytes", "flush_files_per_hour", "burst_ms", "requests_budget")
_OF_EDGE = ("hosts", "cors_origins", "connections_max", "connections_per_ip_max", "access_log")
_REQUESTS = ("request_bytes_max", "request_timeout_ms")


class Owner(NamedTuple):
    """Hears of all settings when one of `names` is another. It never fails, and nothing of it takes long."""

    names: Sequence[str]
    reconfigure: Callable[[ServerSettings], None]


def owners_of(
    node: Node,
    output: LogOutput,
    ingest: Ingest,
    consumers: Consumers,
    pipelines: Pipelines,
    edge: Edge,
    metrics_port: MetricsPort | None,
) -> tuple[Owner, ...]:
    """Lists them in the order in which they hear of a change."""
    of_port = () if metrics_port is None else (Owner(("hosts", *_REQUESTS), metrics_port.reconfigure),)
    return (
        Owner(
            ("log_level", "log_format"), lambda settings: output.reconfigure(settings.log_level, settings.log_format)
        ),
        Owner(
            ("head_bytes_max", "request_bytes_max"),
            lambda settings: node.in_flight.reconfigure(settings.in_flight_bytes_max),
        ),
        Owner(("wal_bytes_max", "record_bytes_max", "head_bytes_max", *_FLUSH, *_REQUESTS), ingest.reconfigure),
        Owner(("request_bytes_max",), lambda settings: consumers.reconfigure(read_limits(settings))),
        Owner(("tails_max",), lambda settings: consumers.streams.reconfigure(settings.tails_max)),
        Owner(_JOBS, pipelines.schedule.reconfigure),
        Owner(
            # The files of the log take some of the descriptors that connections want.
            (*_OF_EDGE, "wal_bytes_max", *_REQUESTS),
            lambda settings: edge.reconfigure(edge_limits(settings, node)),
        ),
        *of_port,
    )


def read_limits(settings: ServerSettings) -> ReadLimits:
    return ReadLimits(request_bytes=min(settings.request_bytes, FETCH_BODY_BYTES_MAX))


def edge_limits(settings: ServerSettings, node: Node) -> EdgeLimits:
    return EdgeLimits(
        hosts=hosts(settings),
        origins=origins(settings),
        connections_max=connections_max(settings, node.logger),
        connections_per_ip_max=settings.connections_per_ip_max,
        request_bytes=settings.request_bytes,
        request_timeout_ms=settings.request_timeout_ms,
        access_log=settings.access_log,
    )
