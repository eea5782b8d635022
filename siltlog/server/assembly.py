"""Builds what answers about the node itself: health, metrics, its jobs, the document of the interface."""

import asyncio
from collections.abc import Callable, Sequence

from siltlog.consumers.assembly import Consumers
from siltlog.consumers.view import LogView, SystemLog
from siltlog.infra.cluster.membership import Membership
from siltlog.infra.http.part import Part
from siltlog.infra.node import Node
from siltlog.infra.store.watch import StoreWatch
from siltlog.infra.telemetry import Metrics
from siltlog.ingest.assembly import Ingest
from siltlog.server.access.book import Security
from siltlog.server.access.http import AccessHttp
from siltlog.server.api import OPERATIONS
from siltlog.server.cluster.http import NodesHttp
from siltlog.server.cluster.joining import show
from siltlog.server.document_http import DocumentHttp
from siltlog.server.job_log import JobLog
from siltlog.server.jobs_http import JobsHttp
from siltlog.server.node_http import NodeHttp


def assemble(
    node: Node,
    url: str,
    ingest: Ingest,
    consumers: Consumers,
    log: LogView,
    system: SystemLog,
    security: Security | None,
    membership: Membership | None,
    listener_warnings: Callable[[], Sequence[str]],
) -> Part:
    """`url` is where the server is called, unless it is advertised by another."""
    store_watch = StoreWatch(node.store, node.clock)
    jobs = JobLog(log, consumers.fetcher, system, node.cluster_id, node.logger)

    def warnings() -> list[str]:
        about_nodes = membership.warnings() if membership else ()
        return [*listener_warnings(), *store_watch.warnings(), *about_nodes, *(security.warnings() if security else ())]

    def gauges(metrics: Metrics) -> None:
        jobs.show(metrics)
        if membership is not None:
            show(membership, metrics)

    restoring: list[asyncio.Task[None]] = []

    def start() -> None:
        restoring.append(asyncio.create_task(jobs.restore()))

    def drain() -> None:
        for task in restoring:
            task.cancel()

    async def close(patient: bool) -> bool:
        store_watch.stop()
        return True

    return Part(
        handlers=(
            JobsHttp(jobs, node.store, node.clock),
            NodeHttp(node, url, ingest.log, consumers, membership, warnings),
            NodesHttp(node, url, membership),
            AccessHttp(security, node.clock),
            DocumentHttp(OPERATIONS),
        ),
        gauges=gauges,
        start=start,
        drain=drain,
        close=close,
    )
