"""Builds what answers about the node itself: health, metrics, its jobs, the document of the interface."""

import asyncio
from collections.abc import Callable, Sequence

from siltlog.consumers.assembly import Consumers
from siltlog.infra.http.part import Part
from siltlog.infra.node import Node
from siltlog.infra.store.watch import StoreWatch
from siltlog.ingest.assembly import Ingest
from siltlog.server.api import OPERATIONS
from siltlog.server.document_http import DocumentHttp
from siltlog.server.job_log import JobLog
from siltlog.server.jobs_http import JobsHttp
from siltlog.server.node_http import NodeHttp


def assemble(
    node: Node, url: str, ingest: Ingest, consumers: Consumers, listener_warnings: Callable[[], Sequence[str]]
) -> Part:
    """`url` is where the server is called, unless it is advertised by another."""
    store_watch = StoreWatch(node.store, node.clock)
    jobs = JobLog(ingest.log, consumers.fetcher, ingest.system, node.cluster_id, node.logger)
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
            NodeHttp(node, url, ingest.log, consumers, store_watch, listener_warnings),
            DocumentHttp(OPERATIONS),
        ),
        gauges=jobs.show,
        start=start,
        drain=drain,
        close=close,
    )
