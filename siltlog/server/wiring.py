"""The server: the one place where the rooms are wired together."""

import asyncio
import contextlib
import gc
import os
import signal
import socket
import sys
from collections.abc import Iterator, Sequence
from inspect import iscoroutinefunction
from urllib.parse import urlsplit

import uvicorn
import uvloop
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.routing import BaseRoute, Match, Route, Router
from starlette.types import ASGIApp, Receive, Scope, Send

from siltlog.consumers.assembly import Coordination, Push
from siltlog.consumers.dead_letters.http import DeadLettersHttp
from siltlog.consumers.dead_letters.replay import Replay
from siltlog.consumers.groups.saved_offsets import OffsetLog
from siltlog.consumers.reading.fetch import Fetcher
from siltlog.consumers.reading.files import FileLister
from siltlog.consumers.reading.files_http import FilesHttp
from siltlog.consumers.reading.http import ReadLimits, ReadsHttp
from siltlog.consumers.reading.row_groups import RowGroups
from siltlog.infra import names
from siltlog.infra.clock import Clock, SystemClock
from siltlog.infra.errors import ConfigError
from siltlog.infra.http.connection.connections import Connections
from siltlog.infra.http.connection.crowd import Crowd
from siltlog.infra.http.door import Door
from siltlog.infra.http.memory import InFlight
from siltlog.infra.http.operations import routes_of
from siltlog.infra.http.pace import Pace
from siltlog.infra.http.requests import BodyReader
from siltlog.infra.locations import named_hosts, page_origins
from siltlog.infra.settings.settings import ServerSettings
from siltlog.infra.settings.topic_config import Value
from siltlog.infra.store.cluster_id import cluster_id
from siltlog.infra.store.store import open_store
from siltlog.infra.store.watch import StoreWatch
from siltlog.infra.telemetry import Logger, Metrics, logger
from siltlog.ingest.data_dir import DataDir
from siltlog.ingest.flush.flusher import Flusher
from siltlog.ingest.log.log import Log
from siltlog.ingest.opening.opening import start_log
from siltlog.ingest.publish.fast import FastPublishes
from siltlog.ingest.publish.http import Publish
from siltlog.ingest.publish.inside import SystemTopics
from siltlog.ingest.publish.producers_http import ProducersHttp
from siltlog.ingest.publish.publishing import Publishing
from siltlog.ingest.topics.deletion import LogStarts
from siltlog.ingest.topics.http import TopicsHttp
from siltlog.ingest.topics.records_http import RecordsHttp
from siltlog.ingest.topics.topics import AutoCreate, Topics
from siltlog.ingest.wal import Wal
from siltlog.pipelines.schedule.opening import ScheduleThread, scheduler
from siltlog.server.api import OPERATIONS, PARTS
from siltlog.server.document_http import DocumentHttp
from siltlog.server.drain import Drain
from siltlog.server.job_log import JobLog
from siltlog.server.jobs_http import JobsHttp
from siltlog.server.node_http import NodeHttp
from siltlog.server.process import connections_within, raise_file_limit

SWITCH_INTERVAL_SECONDS = 0.0005
"""The WAL's thread needs the interpreter back soon after a sync; the default of 5 ms would be most of an ack."""
GC_THRESHOLDS = (50_000, 50, 1_000)
"""Requests leave no cycles behind; with the defaults the collector would walk the whole heap many times a second."""
EXIT_FATAL = 70
ANSWERS_SECONDS_MAX = 1.0
"""How long clients may take to read the last answers."""
FETCH_BODY_BYTES_MAX = 4 * 1024 * 1024
GROUP_SHARE_OF_SEGMENT = 8
BACKLOG = 2048
DRAIN_POLL_SECONDS = 0.01
STOP_SECONDS_MAX = 2.0
"""How long a flush that is under way may take to end once the drain is over."""


def serve(settings: ServerSettings, *, take_over: bool = False, accept_loss: bool = False) -> int:
    """Runs until SIGTERM or SIGINT; the exit code. Raises SiltlogError when it cannot start."""
    sys.setswitchinterval(SWITCH_INTERVAL_SECONDS)
    code: int = uvloop.run(_Server(settings, SystemClock(), take_over, accept_loss).run())
    return code


class _Uvicorn(uvicorn.Server):
    """Signals are ours: a drain comes before the end."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class _Server:
    def __init__(self, settings: ServerSettings, clock: Clock, take_over: bool, accept_loss: bool) -> None:
        self.settings = settings
        self.clock = clock
        self.logger: Logger = logger(settings.log_level, settings.log_format)
        self.metrics = Metrics()
        self._take_over = take_over
        self._accept_loss = accept_loss
        self._stop = asyncio.Event()
        self._hurry = asyncio.Event()
        self._in_flight = InFlight(settings.in_flight_bytes_max, clock)
        self._pace = Pace()
        self._log: Log
        self._cluster_id = ""
        self._threads_hang = False

    async def run(self) -> int:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._signalled, number)
        listener = _listen(self.settings.host, self.settings.port)
        with contextlib.closing(listener), DataDir(self.settings.data_dir, self.clock) as data_dir:
            url = _url(self.settings, listener)
            log, flusher = await self._open(data_dir)
            topics = Topics(log, self.logger)
            auto_create = None
            if self.settings.auto_create_partitions:
                auto_create = AutoCreate(topics, self.settings.auto_create_partitions)
            publishing = Publishing(log, flusher.wake, auto_create)
            system = SystemTopics(log, topics, publishing)
            row_groups = RowGroups(log.store)
            offsets = OffsetLog(
                log,
                system,
                row_groups,
                cluster_id=self._cluster_id,
                interval_ms=self.settings.offsets_snapshot_ms,
            )
            coordination = await Coordination.start(self.settings, log, offsets, self.clock, self.logger, self.metrics)
            try:
                await self._serve(
                    listener, url, data_dir, topics, publishing, system, log, flusher, coordination, row_groups
                )
            finally:
                if not self._threads_hang:
                    try:
                        await asyncio.wait_for(asyncio.to_thread(row_groups.close), STOP_SECONDS_MAX)
                    except TimeoutError:
                        self._threads_hang = True
                await coordination.stop()
        if self._threads_hang:
            # They wait for an object store that does not answer, and the interpreter would wait for them.
            os._exit(0)
        return 0

    def _published(self, seconds: float) -> None:
        self.metrics.group(seconds)
        self._pace.published()

    def _signalled(self, number: int) -> None:
        """The first signal begins the drain; Ctrl-C during it cuts it short, once more kills.

        SIGTERM again changes nothing: supervisors repeat it.
        """
        if not self._stop.is_set():
            self._stop.set()
        elif number == signal.SIGINT:
            self._hurry.set()
            asyncio.get_running_loop().remove_signal_handler(signal.SIGINT)
            signal.signal(signal.SIGINT, signal.SIG_DFL)

    async def _open(self, data_dir: DataDir) -> tuple[Log, Flusher]:
        settings = self.settings
        store = open_store(settings.root_uri, s3_endpoint=settings.s3_endpoint, s3_region=settings.s3_region)
        self._cluster_id = await asyncio.to_thread(cluster_id, store)
        group_bytes_max = settings.segment_bytes // GROUP_SHARE_OF_SEGMENT
        wal = Wal(
            data_dir.wal_path,
            segment_bytes=settings.segment_bytes,
            bytes_max=settings.wal_bytes_max,
            cluster_id=self._cluster_id,
            on_fatal=self._fatal,
            state=lambda: self._log.state(),
            clock=self.clock,
        )
        self._log = log = Log(
            store,
            wal,
            self.clock,
            server_config=_server_config(settings),
            record_bytes_max=settings.record_bytes_max,
            group_bytes_max=group_bytes_max,
            head_bytes_max=settings.head_bytes_max,
            on_group=self._published,
            in_flight=self._in_flight,
        )
        recovery = await asyncio.to_thread(wal.recover, accept_loss=self._accept_loss)
        await start_log(
            log,
            recovery,
            take_over=self._take_over,
            accept_loss=self._accept_loss,
            stranded_dir=settings.data_dir / names.STRANDED_FOLDER,
            logger=self.logger,
        )
        flusher = Flusher(log, self.logger, self.metrics)
        log.on_due = flusher.wake
        log.flush_retry_ms = flusher.retry_ms
        return log, flusher

    async def _serve(
        self,
        listener: socket.socket,
        url: str,
        data_dir: DataDir,
        topics: Topics,
        publishing: Publishing,
        system: SystemTopics,
        log: Log,
        flusher: Flusher,
        coordination: Coordination,
        row_groups: RowGroups,
    ) -> None:
        settings = self.settings
        fetcher = Fetcher(log, row_groups)
        dead_letters = coordination.dead_letters(fetcher, system, self.metrics)
        push = Push(log, fetcher, coordination.groups, dead_letters, self.logger, self.metrics)
        limits = ReadLimits(request_bytes=min(settings.request_bytes, FETCH_BODY_BYTES_MAX))
        store_watch = StoreWatch(log.store, self.clock)
        jobs = JobLog(log, fetcher, system, self._cluster_id, self.logger, self.metrics)
        node = NodeHttp(log, self.metrics, settings, url, coordination, limits, self._cluster_id, store_watch)
        bodies = BodyReader(settings.request_bytes, settings.request_timeout_ms, self._in_flight)
        publish = Publish(publishing, bodies, settings.request_bytes)
        handlers = [
            ReadsHttp(log, fetcher, limits),
            FilesHttp(FileLister(log, fetcher.waits, self._cluster_id), limits),
            TopicsHttp(log, topics),
            ProducersHttp(log, flusher.states),
            RecordsHttp(log, LogStarts(log, flusher.states, flusher.wake, self.logger)),
            coordination.http(fetcher, limits),
            DeadLettersHttp(dead_letters, Replay(log, fetcher, system, self.clock)),
            push.tails,
            push.sockets,
            JobsHttp(jobs, log.store, self.clock),
            node,
            DocumentHttp(OPERATIONS),
        ]
        assert {type(publish), *map(type, handlers)} == set(PARTS), "what the document tells of is served"
        router = _without_matching(publish, routes_of(*handlers), self._pace)
        crowd = self._crowd()
        door = Door(
            router,
            hosts=_hosts(settings),
            origins=_origins(settings),
            overload=crowd.full,
            bodies=BodyReader(settings.request_bytes, settings.request_timeout_ms, self._in_flight),
            in_flight=self._in_flight,
            logger=self.logger,
            metrics=self.metrics,
        )
        connections = Connections(
            crowd,
            door,
            FastPublishes(publishing, door, self._in_flight, settings.request_bytes),
            stall_seconds=settings.request_timeout_ms / 1000,
            in_flight=self._in_flight,
            clock=self.clock,
            logger=self.logger,
        )
        self.metrics.gauge(names.METRIC_CONNECTIONS, "Open connections", lambda: len(crowd.open))
        self.metrics.gauge(
            names.METRIC_IN_FLIGHT_BYTES, "Memory of requests under way", lambda: self._in_flight.used_bytes
        )
        server = _Uvicorn(_uvicorn_config(door, connections))
        watching_connections = asyncio.create_task(connections.watch())
        serving = asyncio.create_task(server.serve([listener]))
        watching = asyncio.create_task(self._announce(server, data_dir, url))
        restoring = asyncio.create_task(jobs.restore())
        schedule = self._run_schedule(log, url) if settings.schedule == "on" else None
        stopping = asyncio.create_task(self._stop.wait())
        await asyncio.wait((serving, stopping), return_when=asyncio.FIRST_COMPLETED)
        watching.cancel()
        watching_connections.cancel()
        restoring.cancel()
        jobs_end = asyncio.create_task(asyncio.to_thread(schedule.stop)) if schedule is not None else None
        wakes = [fetcher.wake, coordination.groups.wake, push.streams.drain, connections.end_streams]
        drain = Drain(log, flusher, door, bodies, wakes, self.logger, jobs_end)
        drained = await drain.run(settings.drain_ms / 1000, self._hurry)
        if jobs_end is not None:
            await jobs_end
        _stop_listening(server)
        await connections.end(ANSWERS_SECONDS_MAX)
        server.should_exit = True
        await serving
        store_watch.stop()
        stopped = await flusher.stop(STOP_SECONDS_MAX)
        log.wal.close()
        self._threads_hang = not (drained and stopped)

    def _run_schedule(self, log: Log, url: str) -> ScheduleThread:
        settings = self.settings
        runner = scheduler(
            settings,
            url,
            self.clock,
            self.logger,
            live_files=lambda: _live_files(log),
            # The data dir is locked: whoever ran its schedule before is gone.
            holder_file=settings.data_dir / names.SCHEDULE_HOLDER_FILE,
        )
        return ScheduleThread(runner)

    async def _announce(self, server: _Uvicorn, data_dir: DataDir, url: str) -> None:
        while not server.started:  # noqa: ASYNC110 (uvicorn has no event for it)
            await asyncio.sleep(DRAIN_POLL_SECONDS)
        gc.collect()
        gc.freeze()
        gc.set_threshold(*GC_THRESHOLDS)
        data_dir.announce(url)
        print(f"listening on {url}", flush=True)  # noqa: T201 (the one line that is the command's result)

    def _crowd(self) -> Crowd:
        settings = self.settings
        segments = settings.wal_bytes_max // settings.segment_bytes
        connections_max = connections_within(raise_file_limit(), settings.connections_max, segments=segments)
        if connections_max < settings.connections_max:
            self.logger.warning(
                "fewer connections than SILT_CONNECTIONS_MAX: the limit of open files (ulimit -n) allows no more",
                connections_max=connections_max,
            )
        return Crowd(connections_max, self.clock)

    def _fatal(self, error: BaseException) -> None:
        """The page cache can no longer be trusted: only a new process may say what is on the disk."""
        self.logger.critical("the write-ahead log failed; stopping", reason=str(error))
        os._exit(EXIT_FATAL)


def _live_files(log: Log) -> dict[str, int]:
    return {topic.name: len(topic.snapshot.files) for topic in log.topics()}


def _stop_listening(server: uvicorn.Server) -> None:
    for listening in server.servers:
        listening.close()


def _listen(host: str, port: int) -> socket.socket:
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except OSError as error:
        raise ConfigError(f"SILT_HOST={host} cannot be resolved: {error.strerror}") from None
    listener = socket.socket(family, kind, protocol)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind(address)
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        raise ConfigError(
            f"cannot listen on {host}:{port}: {error.strerror}. Stop what uses it, or choose another --port (0: any)"
        ) from None
    listener.setblocking(False)
    return listener


def _url(settings: ServerSettings, listener: socket.socket) -> str:
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    return f"http://{host}:{listener.getsockname()[1]}"


def _server_config(settings: ServerSettings) -> dict[str, Value]:
    """Returns the server's settings for topics that do not say it themselves; only those that were really set."""
    given = {
        "acks": settings.acks,
        "flush.ms": settings.flush_ms,
        "flush.bytes": settings.flush_bytes,
        "flush.files.per.hour": settings.flush_files_per_hour,
        "removed.files.retention.ms": settings.removed_files_retention_ms,
    }
    return {name: value for name, value in given.items() if name.replace(".", "_") in settings.model_fields_set}


def _hosts(settings: ServerSettings) -> list[str]:
    advertised = urlsplit(settings.advertise_url).hostname if settings.advertise_url else None
    return [settings.host, *([advertised] if advertised else []), *named_hosts(settings.hosts)]


def _origins(settings: ServerSettings) -> list[str]:
    """Lists the origins of pages that may call it, besides the pages of its own host."""
    parts = urlsplit(settings.advertise_url)
    own = [f"{parts.scheme}://{parts.netloc}".lower()] if parts.netloc else []
    return [*own, *page_origins(settings.cors_origins)]


def _uvicorn_config(app: Door, connections: Connections) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        loop="uvloop",
        http=connections.protocol,  # type: ignore[arg-type]
        ws="none",
        lifespan="off",
        interface="asgi3",
        access_log=False,
        log_config=None,
        server_header=False,
        proxy_headers=False,
        backlog=BACKLOG,
        timeout_graceful_shutdown=1,
    )


def _without_matching(publish: Publish, routes: Sequence[Route], pace: Pace) -> ASGIApp:
    """Sends publishes, and what has a path without parameters, past the router: matching, and what a framework wraps
    around a function, would be a good part of their time."""
    router = Router(routes, redirect_slashes=False, default=_not_found)
    endpoints = {
        (method, route.path): route.endpoint
        for route in reversed(routes)
        if "{" not in route.path and iscoroutinefunction(route.endpoint)
        for method in route.methods or ()
    }

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        path = scope["path"]
        if path.endswith("/records") and path.startswith("/v1/topics/"):
            topic = path[len("/v1/topics/") : -len("/records")]
            if "/" not in topic:
                if scope["method"] != "POST":
                    raise HTTPException(405, headers={"Allow": "POST"})
                scope["path_params"] = {"topic": topic}
                await publish(scope, receive, send)
                return
        pace.give(scope)
        endpoint = endpoints.get((scope["method"], path))
        if endpoint is not None:
            response = await endpoint(Request(scope, receive, send))
            await response(scope, receive, send)
            return
        try:
            await router(scope, receive, send)
        except HTTPException as error:
            if error.status_code != 405:
                raise
            # The router names the methods of the first route of that path only.
            raise HTTPException(405, headers={"Allow": ", ".join(_methods(routes, scope))}) from None

    return app


def _methods(routes: Sequence[BaseRoute], scope: Scope) -> list[str]:
    """Lists the methods that are allowed at the path of `scope`."""
    found: set[str] = set()
    for route in routes:
        if isinstance(route, Route) and route.matches(scope)[0] != Match.NONE:
            found |= route.methods or set()
    return sorted(found)


async def _not_found(scope: Scope, receive: Receive, send: Send) -> None:
    raise HTTPException(404)
