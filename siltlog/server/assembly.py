"""Builds what answers about the node itself: health, metrics, its jobs, the document of the interface."""

import asyncio
import platform
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from functools import partial
from importlib.metadata import version
from typing import Any, NamedTuple

from siltlog.consumers.assembly import Consumers
from siltlog.consumers.reading.view import LogView, SystemLog
from siltlog.infra.clock import MICROS_PER_SECOND
from siltlog.infra.cluster.membership import Membership
from siltlog.infra.http.part import Part
from siltlog.infra.metrics import catalogue
from siltlog.infra.metrics.metrics import Metrics
from siltlog.infra.node import Node
from siltlog.infra.peers.calls import PeerCall
from siltlog.infra.store.watch import StoreWatch
from siltlog.ingest.assembly import Ingest
from siltlog.server.access.http import AccessHttp
from siltlog.server.access.keys_http import KeysHttp
from siltlog.server.access.security import Security
from siltlog.server.api import OPERATIONS
from siltlog.server.cluster.http import NodesHttp
from siltlog.server.cluster.joining import show
from siltlog.server.control.drain_http import DrainHttp
from siltlog.server.control.job_runs import JobRuns
from siltlog.server.control.job_runs_http import JobRunsHttp
from siltlog.server.control.profile_http import ProfileHttp
from siltlog.server.control.settle_http import SettleHttp
from siltlog.server.document_http import DocumentHttp
from siltlog.server.history.history import History
from siltlog.server.history.http import HistoryHttp
from siltlog.server.history.metrics_log import MetricsLog
from siltlog.server.history.others import Histories
from siltlog.server.job_log import JobLog
from siltlog.server.jobs_http import JobsHttp
from siltlog.server.live.gathering import OtherParts, live_calls
from siltlog.server.live.http import LiveHttp
from siltlog.server.live.live import Live
from siltlog.server.live.measuring import Measuring
from siltlog.server.live.runs import LiveRuns
from siltlog.server.live.viewers import Viewers
from siltlog.server.node_http import NodeHttp
from siltlog.server.settings.configuration import Configuration
from siltlog.server.settings.http import ConfigHttp
from siltlog.server.tables.flushing import flushing_of
from siltlog.server.tables.http import TablesHttp
from siltlog.server.tables.log_look import LogLooks
from siltlog.server.watching.loop_lag import watch_loop
from siltlog.ui.http import PageHttp


class AboutNode(NamedTuple):
    part: Part
    calls: Mapping[str, PeerCall]
    """What other nodes ask of it."""
    live: Live


def assemble(
    node: Node,
    url: str,
    ingest: Ingest,
    consumers: Consumers,
    log: LogView,
    system: SystemLog,
    security: Security | None,
    membership: Membership | None,
    see_others: Callable[[], Awaitable[None]] | None,
    listener_warnings: Callable[[], Sequence[str]],
    configuration: Configuration,
    job_runs: JobRuns,
    histories: Histories,
    other_parts: OtherParts | None,
    about_others: Callable[[], Sequence[str]] = tuple,
) -> AboutNode:
    """`url` is where the server is called, unless it is advertised by another; `see_others()` looks at the tables of
    topics that other nodes own; `about_others()` are sentences about how those are set."""
    store_watch = StoreWatch(node.store, node.clock)
    jobs = JobLog(log, consumers.fetcher, system, node.cluster_id, node.logger)

    def warnings() -> list[str]:
        about_nodes = [*(membership.warnings() if membership else ()), *about_others()]
        return [*listener_warnings(), *store_watch.warnings(), *about_nodes, *(security.warnings() if security else ())]

    about_node = NodeHttp(node, url, ingest.log, consumers, membership, warnings, lambda: configuration.settings)
    tables = TablesHttp(log, LogLooks(node.store, node.clock), node.clock, partial(flushing_of, ingest.log, node.clock))
    measuring = Measuring(node, version("siltlog"), ingest.log, consumers, about_node.reasons, warnings)
    runs = LiveRuns(jobs, log, node.store, node.clock)
    live = Live(measuring, other_parts, consumers.groups, runs, node.clock)
    viewers = Viewers(
        live.snapshot,
        live.states,
        security.book.access if security else None,
        node.clock,
        node.logger,
        viewers_max=node.settings.ui_viewers_max,
    )
    drains = DrainHttp(node, ingest.log, consumers.groups, consumers.streams, membership)
    started_seconds = node.clock.now_us() / MICROS_PER_SECOND
    build = (version("siltlog"), platform.python_version())

    def gauges(metrics: Metrics) -> None:
        metrics.gauges(catalogue.BUILD_INFO, lambda: [(build, 1)])
        metrics.gauge(catalogue.START_TIME, lambda: started_seconds)
        metrics.gauge(catalogue.READY, lambda: not about_node.reasons())
        metrics.gauge(catalogue.DRAINING, lambda: drains.draining)
        jobs.show(metrics)
        viewers.show(metrics)
        if membership is not None:
            show(membership, metrics)

    running: list[asyncio.Task[None]] = []

    def start() -> None:
        running.append(asyncio.create_task(jobs.restore()))
        running.append(asyncio.create_task(measuring.run()))
        running.append(asyncio.create_task(watch_loop(node.clock, node.metrics.loop_late)))
        running.extend(asyncio.create_task(each) for each in _keeping(histories.history, node, log, consumers, system))

    def drain() -> None:
        for task in running:
            task.cancel()
        viewers.stop()

    async def close(patient: bool) -> bool:
        store_watch.stop()
        tables.close()
        return True

    part = Part(
        handlers=(
            JobsHttp(jobs, node.store, node.clock),
            JobRunsHttp(job_runs, jobs),
            about_node,
            tables,
            HistoryHttp(histories, node.clock),
            LiveHttp(viewers, consumers.streams),
            ConfigHttp(configuration, node.settings.node_id),
            drains,
            SettleHttp(ingest.flusher.settling, see_others),
            ProfileHttp(node),
            NodesHttp(node, url, membership),
            AccessHttp(security, node.settings.ui, node.clock),
            KeysHttp(security, node.clock),
            DocumentHttp(OPERATIONS),
            PageHttp(node.settings.ui != "off"),
        ),
        gauges=gauges,
        start=start,
        drain=drain,
        close=close,
    )
    return AboutNode(part, live_calls(measuring.part), live)


def _keeping(
    history: History | None, node: Node, log: LogView, consumers: Consumers, system: SystemLog
) -> Iterator[Coroutine[Any, Any, None]]:
    """Yields what keeps the history of metrics, for ever."""
    if history is None:
        return
    yield history.run()
    if node.settings.metrics_history == "topic":
        recorded = MetricsLog(history, log, consumers.fetcher, system, node.settings.node_id, node.clock, node.logger)
        yield recorded.run()
