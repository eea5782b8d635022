"""The server: the one place where the rooms are wired together."""

import asyncio
import os
from dataclasses import replace
from functools import partial

import uvloop

from siltlog.consumers import assembly as consumers_assembly
from siltlog.consumers.assembly import Consumers
from siltlog.consumers.reading.view import LogView, SystemLog
from siltlog.infra.clock import Clock, SystemClock
from siltlog.infra.cluster.membership import Membership
from siltlog.infra.http.draining import Draining
from siltlog.infra.http.memory import InFlight
from siltlog.infra.http.pace import Pace
from siltlog.infra.http.part import together
from siltlog.infra.metrics.metrics import Metrics
from siltlog.infra.node import Node
from siltlog.infra.redaction import Redaction
from siltlog.infra.settings.loading import LoadedSettings
from siltlog.infra.store.cluster_id import cluster_id
from siltlog.infra.store.store import open_store
from siltlog.infra.telemetry import Logger, LogOutput, hear_others
from siltlog.infra.tracing.opening import current_trace_id, open_serving
from siltlog.ingest import assembly as ingest_assembly
from siltlog.ingest.assembly import Ingest
from siltlog.ingest.data_dir import DataDir
from siltlog.ingest.log.group_commit import Times
from siltlog.ingest.log.log import Log
from siltlog.pipelines import assembly as pipelines_assembly
from siltlog.server import assembly as server_assembly
from siltlog.server.access.security import Security, open_security
from siltlog.server.cluster.joining import LEAVING_PART, Joined, joined, leave, reported, settings_of
from siltlog.server.cluster.nodes import News, Nodes
from siltlog.server.control.job_runs import JobRuns, OtherNodes
from siltlog.server.drain import Drain
from siltlog.server.history.history import History
from siltlog.server.history.others import Histories, Others
from siltlog.server.listener import Listeners, Listening, kafka_address, listeners, local_socket
from siltlog.server.live.gathering import OtherParts
from siltlog.server.live.ranks import Ranks
from siltlog.server.node_http import not_ready
from siltlog.server.oversight import oversee
from siltlog.server.process import Signals, settle, switch_soon
from siltlog.server.protocols import edge_part, handshakes_of, kafka_part, open_edge
from siltlog.server.settings.configuration import Configuration
from siltlog.server.settings.owners import owners_of, read_limits
from siltlog.server.settings.reloading import Reloading
from siltlog.server.watching.metrics_port import MetricsPort
from siltlog.server.watching.supervisor import supervisor_of

EXIT_FATAL = 70
START_POLL_SECONDS = 0.01


def serve(loaded: LoadedSettings, *, take_over: bool = False, accept_loss: bool = False) -> int:
    """Runs until SIGTERM or SIGINT; the exit code. Raises SiltlogError when it cannot start."""
    switch_soon()
    uvloop.run(_Server(loaded, SystemClock(), take_over, accept_loss).run())
    return 0


class _Server:
    def __init__(self, loaded: LoadedSettings, clock: Clock, take_over: bool, accept_loss: bool) -> None:
        settings = loaded.settings
        self._loaded = loaded
        self._settings = settings
        self._clock = clock
        self._take_over = take_over
        self._accept_loss = accept_loss
        self._output = LogOutput(
            settings.log_level,
            settings.log_format,
            Redaction(settings.secret_values()),
            node=settings.node_id,
            trace_id=current_trace_id,
        )
        hear_others(self._output)
        self._logger: Logger = self._output.logger()
        self._pace = Pace()
        self._supervisor = supervisor_of(clock, self._logger)

    async def run(self) -> None:
        """Runs until a signal has ended it; where a thread hangs then, this is the end of the process."""
        signals = Signals()
        with (
            listeners(self._settings, self._clock, self._logger) as listening,
            DataDir(self._settings.data_dir, self._clock) as data_dir,
            local_socket(data_dir.path, self._logger) as local,
        ):
            if local is not None:
                listening = replace(listening, sockets=[*listening.sockets, local])
            self._settings = settings_of(self._settings, data_dir.path)
            # A node of a cluster that was given no name has that of its data directory.
            self._output.speaks_for(self._settings.node_id)
            node = await self._node()
            cluster = await joined(
                node,
                data_dir.path,
                kafka=kafka_address(self._settings, listening.kafka),
                take_over=self._take_over,
                on_fatal=lambda _: os._exit(EXIT_FATAL),
            )
            ended = False
            try:
                ended = await self._open(node, listening, data_dir, cluster, signals)
            finally:
                if cluster is not None:
                    ended = await cluster.membership.end() and ended
        if not ended:
            # Threads wait for an object store that does not answer, and the loop and the interpreter would for them.
            os._exit(0)

    async def _open(
        self, node: Node, listening: Listeners, data_dir: DataDir, cluster: Joined | None, signals: Signals
    ) -> bool:
        """Opens the log, and serves until a signal; whether all threads have ended."""
        news, ranks = News(), Ranks()
        security = await open_security(node, news.changed_access, news.ended_sessions)
        shared = None if cluster is None else news.shared(cluster.membership)
        ingest = await ingest_assembly.assemble(
            node,
            data_dir,
            take_over=self._take_over,
            accept_loss=self._accept_loss,
            on_group=partial(self._committed, node.metrics),
            on_fatal=self._fatal,
            ranks=ranks,
            shared=shared,
        )
        nodes = None if cluster is None else Nodes(node, cluster, ingest, security)
        log: LogView = ingest.log
        system: SystemLog = ingest.system
        if nodes is not None:
            news.hear(nodes)
            log, system = nodes.log, nodes.system
            await nodes.ready()
        consumers = await consumers_assembly.assemble(
            node,
            log,
            system,
            read_limits(self._settings),
            ranks,
            security.book.access if security else None,
            elsewhere=None if nodes is None else nodes.keepers,
            fresh=(lambda: True) if nodes is None else nodes.fresh,
            controllers_redis=None if nodes is None else nodes.controllers_redis,
            seen=None if nodes is None else nodes.forwarding.seen,
        )
        if nodes is not None:
            nodes.told_keeping(consumers.keep, consumers.reported)
        ended = True
        try:
            ended = await self._serve(
                node, listening, data_dir, ingest, consumers, log, system, security, cluster, nodes, ranks, signals
            )
        finally:
            ended = await consumers.part.close(ended) and ended
        return ended

    async def _node(self) -> Node:
        settings = self._settings
        metrics = Metrics()
        store = open_store(settings.root_uri, **settings.s3_options(), observe=metrics.asked_store)
        journals = store
        if settings.journal_root_uri != settings.root_uri:
            journals = open_store(settings.journal_root_uri, **settings.s3_options(), observe=metrics.asked_store)
        return Node(
            settings=settings,
            cluster_id=await asyncio.to_thread(cluster_id, store),
            store=store,
            journals=journals,
            clock=self._clock,
            in_flight=InFlight(settings.in_flight_bytes_max, self._clock),
            draining=Draining(),
            metrics=metrics,
            logger=self._logger,
            serving=open_serving(settings.traces, settings.node_id, self._clock, self._logger),
        )

    async def _serve(
        self,
        node: Node,
        listening: Listeners,
        data_dir: DataDir,
        ingest: Ingest,
        consumers: Consumers,
        log: LogView,
        system: SystemLog,
        security: Security | None,
        cluster: Joined | None,
        nodes: Nodes | None,
        ranks: Ranks,
        signals: Signals,
    ) -> bool:
        """Serves until a signal, then drains; whether all threads have ended."""
        url = listening.url
        configuration = Configuration(self._loaded, node)
        pipelines = pipelines_assembly.assemble(node, url, ingest.log.topic_logs.live_files)
        job_runs = JobRuns(node, pipelines.schedule, None if nodes is None else OtherNodes(nodes.peers, nodes.member))
        membership = cluster.membership if cluster else None
        histories = _histories(node, nodes, membership)
        if cluster is not None:
            cluster.reports.add(partial(reported, ingest.log))
            cluster.membership.beat_soon()
        about_node = server_assembly.assemble(
            node,
            url,
            ingest,
            consumers,
            log,
            system,
            security,
            membership,
            nodes.log.see_tables if nodes else None,
            listening.warnings,
            configuration,
            job_runs,
            histories,
            None if nodes is None or membership is None else OtherParts(nodes.peers, nodes.member, membership),
            tuple if nodes is None else nodes.warnings,
        )
        ranks.hear(about_node.live)
        watching = oversee(node, log, system, consumers, security)
        rooms = [ingest.part, consumers.part, pipelines.part, about_node.part, watching.part]
        rooms += [nodes.part] if nodes else []
        handlers = [handler for part in rooms for handler in part.handlers]
        calls = {**job_runs.calls, **histories.calls, **about_node.calls}
        edge = open_edge(node, ingest, consumers, handlers, self._pace, security, watching.guard, nodes, calls)
        at_edge = await edge_part(node, listening, edge, lambda: not not_ready(ingest.log, membership))
        kafka, requests = await kafka_part(node, listening, edge, ingest, consumers, nodes, security, watching.guard)
        parts = (*rooms, kafka, at_edge, *([security.part] if security else []))
        for part in parts:
            part.gauges(node.metrics)
        server = Listening(edge.door, edge.connections, handshakes_of(listening, edge.crowd, self._logger))
        if nodes is not None:
            nodes.told_views(server.tell_view)
        serving = asyncio.create_task(server.serve([*listening.sockets]))
        watched = None if listening.metrics is None else MetricsPort(node, listening.metrics, about_node.part)
        configuration.start(owners_of(node, self._output, ingest, consumers, pipelines, edge, watched))
        signals.on_hangup(Reloading(configuration, listening.tls, watching.audit, node, self._supervisor))
        announcing = asyncio.create_task(self._announce(server, data_dir, url, ingest.log, membership))
        for part in parts:
            part.start()
        await signals.stopped(serving)
        announcing.cancel()
        self._supervisor.stopping()
        if membership is not None:
            await leave(membership, configuration.settings.drain_ms / 1000 * LEAVING_PART, signals.hurry)
        drain = Drain(
            node.draining,
            ingest.log,
            ingest.flusher,
            ingest.bodies,
            [part.drain for part in parts],
            requests=requests,
            refused=node.metrics.refused,
            stop_jobs=pipelines.schedule.stopping(),
            last_words=None if watching.audit is None else watching.audit.finish,
            logger=self._logger,
        )
        drained = await drain.run(configuration.settings.drain_ms / 1000, signals.hurry)
        server.stop_listening()
        await together(kafka, at_edge).close(drained)
        server.end()
        await serving
        await about_node.part.close(drained)
        await watching.part.close(drained)
        if nodes is not None:
            await nodes.part.close(drained)
        if security is not None:
            drained = await security.part.close(drained) and drained
        drained = await ingest.part.close(drained) and drained
        if node.serving is not None:
            await node.serving.close()
        if watched is not None:
            # The last to go: who watches sees the whole of a drain.
            await watched.close(drained)
        return drained

    def _committed(self, metrics: Metrics, times: Times) -> None:
        metrics.acknowledged(times.waited)
        metrics.wal_committed(times.committed)
        self._pace.published()

    def _fatal(self, error: BaseException) -> None:
        """The page cache can no longer be trusted: only a new process may say what is on the disk."""
        self._logger.critical("the write-ahead log failed; stopping", reason=str(error))
        os._exit(EXIT_FATAL)

    async def _announce(
        self, server: Listening, data_dir: DataDir, url: str, log: Log, membership: Membership | None
    ) -> None:
        while not server.started:  # noqa: ASYNC110 (uvicorn has no event for it)
            await asyncio.sleep(START_POLL_SECONDS)
        settle()
        data_dir.announce(url)
        print(f"listening on {url}", flush=True)  # noqa: T201 (the one line that is the command's result)
        await self._supervisor.watch(partial(not_ready, log, membership))


def _histories(node: Node, nodes: Nodes | None, membership: Membership | None) -> Histories:
    kept = None if node.settings.metrics_history == "off" else History(node.metrics, node.clock)
    others = None
    if nodes is not None and membership is not None:
        others = Others(nodes.peers, nodes.member, lambda: membership.view.nodes)
    return Histories(kept, node.settings.node_id, others)
