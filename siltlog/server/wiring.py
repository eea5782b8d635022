"""The server: the one place where the rooms are wired together."""

import asyncio
import os
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import uvloop

from siltlog.consumers import assembly as consumers_assembly
from siltlog.consumers.assembly import Consumers
from siltlog.consumers.groups.groups import Groups
from siltlog.consumers.keeping.calls import ServedKeeper
from siltlog.consumers.reading.http import ReadLimits
from siltlog.consumers.view import LogView, SystemLog
from siltlog.infra.clock import Clock, SystemClock
from siltlog.infra.http import assembly as edge_assembly
from siltlog.infra.http.assembly import Edge
from siltlog.infra.http.connection.handshakes import Handshakes
from siltlog.infra.http.draining import Draining
from siltlog.infra.http.memory import InFlight
from siltlog.infra.http.operations import routes_of
from siltlog.infra.http.pace import Pace
from siltlog.infra.node import Node
from siltlog.infra.peers.calls import with_calls
from siltlog.infra.redaction import Redaction, hide_in_others
from siltlog.infra.security.guard import Guard
from siltlog.infra.settings.settings import ServerSettings
from siltlog.infra.store.cluster_id import cluster_id
from siltlog.infra.store.store import open_store
from siltlog.infra.telemetry import Logger, Metrics, logger
from siltlog.ingest import assembly as ingest_assembly
from siltlog.ingest.assembly import Ingest
from siltlog.ingest.data_dir import DataDir
from siltlog.pipelines import assembly as pipelines_assembly
from siltlog.server import assembly as server_assembly
from siltlog.server.access.book import Security, open_security
from siltlog.server.api import HANDLERS
from siltlog.server.cluster.joining import LEAVING_PART, Joined, joined, leave, reported, settings_of
from siltlog.server.cluster.nodes import News, Nodes
from siltlog.server.drain import Drain
from siltlog.server.listener import (
    Listeners,
    Listening,
    connections_max,
    hosts,
    listeners,
    local_socket,
    origins,
    peers,
)
from siltlog.server.oversight import oversee
from siltlog.server.process import Signals, settle, switch_soon
from siltlog.server.routing import routing

EXIT_FATAL = 70
FETCH_BODY_BYTES_MAX = 4 * 1024 * 1024
START_POLL_SECONDS = 0.01


def serve(settings: ServerSettings, *, take_over: bool = False, accept_loss: bool = False) -> int:
    """Runs until SIGTERM or SIGINT; the exit code. Raises SiltlogError when it cannot start."""
    switch_soon()
    hide_in_others(Redaction(settings.secret_values()))
    uvloop.run(_Server(settings, SystemClock(), take_over, accept_loss).run())
    return 0


class _Server:
    def __init__(self, settings: ServerSettings, clock: Clock, take_over: bool, accept_loss: bool) -> None:
        self._settings = settings
        self._clock = clock
        self._take_over = take_over
        self._accept_loss = accept_loss
        self._logger: Logger = logger(settings.log_level, settings.log_format, Redaction(settings.secret_values()))
        self._pace = Pace()

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
            node = await self._node()
            cluster = await joined(
                node, data_dir.path, take_over=self._take_over, on_fatal=lambda _: os._exit(EXIT_FATAL)
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
        security = await open_security(node, self._logger.warning)
        news = News()
        shared = None if cluster is None else news.shared(cluster.membership)
        ingest = await ingest_assembly.assemble(
            node,
            data_dir,
            take_over=self._take_over,
            accept_loss=self._accept_loss,
            on_group=partial(self._committed, node.metrics),
            on_fatal=self._fatal,
            shared=shared,
        )
        nodes = None if cluster is None else Nodes(node, cluster, ingest, security)
        log: LogView = ingest.log
        system: SystemLog = ingest.system
        if nodes is not None:
            news.hear(nodes)
            log, system = nodes.log, nodes.system
            await nodes.ready()
        limits = ReadLimits(request_bytes=min(self._settings.request_bytes, FETCH_BODY_BYTES_MAX))
        consumers = await consumers_assembly.assemble(
            node,
            log,
            system,
            limits,
            security.book.access if security else None,
            elsewhere=None if nodes is None else nodes.keepers,
            fresh=(lambda: True) if nodes is None else nodes.fresh,
            controllers_redis=None if nodes is None else nodes.controllers_redis,
        )
        if nodes is not None:
            nodes.told_keeping(consumers.keep, consumers.redis_value)
        ended = True
        try:
            ended = await self._serve(
                node, listening, data_dir, ingest, consumers, log, system, security, cluster, nodes, signals
            )
        finally:
            ended = await consumers.part.close(ended) and ended
        return ended

    async def _node(self) -> Node:
        settings = self._settings
        store = open_store(settings.root_uri, **settings.s3_options())
        return Node(
            settings=settings,
            cluster_id=await asyncio.to_thread(cluster_id, store),
            store=store,
            clock=self._clock,
            in_flight=InFlight(settings.in_flight_bytes_max, self._clock),
            draining=Draining(),
            metrics=Metrics(),
            logger=self._logger,
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
        signals: Signals,
    ) -> bool:
        """Serves until a signal, then drains; whether all threads have ended."""
        url = listening.url
        pipelines = pipelines_assembly.assemble(node, url, ingest.log.topic_logs.live_files)
        membership = cluster.membership if cluster else None
        if cluster is not None:
            cluster.reports.add(partial(reported, ingest.log))
            cluster.membership.beat_soon()
        about_node = server_assembly.assemble(
            node, url, ingest, consumers, log, system, security, membership, listening.warnings
        )
        watching = oversee(node, log, system, consumers, security)
        rooms = (
            *(ingest.part, consumers.part, pipelines.part, about_node, watching.part),
            *([nodes.part] if nodes else []),
        )
        edge = self._edge(
            node,
            ingest,
            [handler for part in rooms for handler in part.handlers],
            security,
            watching.guard,
            nodes,
            consumers.groups,
        )
        parts = (*rooms, edge.part, listening.part(edge.connections.withdraw), *([security.part] if security else []))
        handshakes = None
        if (tls := listening.tls) is not None:
            signals.on_hangup(tls.look_now)
            handshakes = Handshakes(lambda: tls.context, edge.crowd, self._logger)
        for part in parts:
            part.gauges(node.metrics)
        server = Listening(edge.door, edge.connections, handshakes)
        if nodes is not None:
            nodes.told_views(server.tell_view)
        serving = asyncio.create_task(server.serve([*listening.sockets]))
        announcing = asyncio.create_task(_announce(server, data_dir, url))
        for part in parts:
            part.start()
        await signals.stopped(serving)
        announcing.cancel()
        if membership is not None:
            await leave(membership, self._settings.drain_ms / 1000 * LEAVING_PART, signals.hurry)
        drain = Drain(
            node.draining,
            ingest.log,
            ingest.flusher,
            ingest.bodies,
            [part.drain for part in parts],
            requests=edge.requests,
            refused=node.metrics.refused,
            stop_jobs=pipelines.stop,
            last_words=None if watching.audit is None else watching.audit.finish,
            logger=self._logger,
        )
        drained = await drain.run(self._settings.drain_ms / 1000, signals.hurry)
        server.stop_listening()
        await edge.part.close(drained)
        server.end()
        await serving
        await about_node.close(drained)
        await watching.part.close(drained)
        if nodes is not None:
            await nodes.part.close(drained)
        if security is not None:
            drained = await security.part.close(drained) and drained
        return await ingest.part.close(drained) and drained

    def _edge(
        self,
        node: Node,
        ingest: Ingest,
        handlers: Sequence[object],
        security: Security | None,
        guard: Guard | None,
        nodes: Nodes | None,
        groups: Groups,
    ) -> Edge:
        settings = self._settings
        to_owner = None if nodes is None else nodes.forwarding
        routes = routes_of(*handlers, guard=guard, to_owner=to_owner)
        app = routing(ingest.publish, routes, self._pace, guard, to_owner)
        if nodes is not None:
            app = with_calls(ServedKeeper(groups, app), nodes.calls)
        assert {type(ingest.publish), *map(type, handlers)} == set(HANDLERS), "what the document tells of is served"
        return edge_assembly.assemble(
            app,
            ingest.fast_path,
            hosts=hosts(settings),
            origins=origins(settings),
            peers=peers(settings),
            connections_max=connections_max(settings, self._logger),
            connections_per_ip_max=settings.connections_per_ip_max,
            request_bytes=settings.request_bytes,
            request_timeout_ms=settings.request_timeout_ms,
            in_flight=node.in_flight,
            draining=node.draining,
            clock=self._clock,
            logger=self._logger,
            metrics=node.metrics,
            identification=security.identification if security else None,
            guard=guard,
            hops=None if nodes is None else nodes.hops,
        )

    def _committed(self, metrics: Metrics, seconds: float) -> None:
        metrics.group(seconds)
        self._pace.published()

    def _fatal(self, error: BaseException) -> None:
        """The page cache can no longer be trusted: only a new process may say what is on the disk."""
        self._logger.critical("the write-ahead log failed; stopping", reason=str(error))
        os._exit(EXIT_FATAL)


async def _announce(server: Listening, data_dir: DataDir, url: str) -> None:
    while not server.started:  # noqa: ASYNC110 (uvicorn has no event for it)
        await asyncio.sleep(START_POLL_SECONDS)
    settle()
    data_dir.announce(url)
    print(f"listening on {url}", flush=True)  # noqa: T201 (the one line that is the command's result)
