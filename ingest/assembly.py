"""Builds this room on a node: the WAL, the log on it, what flushes it into tables, what publishes to it."""

import asyncio
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from siltlog.infra.cluster.view import TermEntry
from siltlog.infra.http.door import Door
from siltlog.infra.http.part import Part
from siltlog.infra.http.requests import BodyReader
from siltlog.infra.node import Node
from siltlog.infra.settings.settings import ServerSettings
from siltlog.infra.settings.topic_config import Value
from siltlog.infra.store.local import LocalStore
from siltlog.ingest.data_dir import DataDir
from siltlog.ingest.flush.burst import Burst
from siltlog.ingest.flush.flusher import Flusher
from siltlog.ingest.flush.request_budget import RequestBudget
from siltlog.ingest.flush.retries import Retries
from siltlog.ingest.journal.codec import journal_name
from siltlog.ingest.journal.journal import Journal
from siltlog.ingest.log.admission import Admission
from siltlog.ingest.log.group_commit import Times
from siltlog.ingest.log.log import Log
from siltlog.ingest.log.topic_logs import TopicLogs
from siltlog.ingest.metrics import show
from siltlog.ingest.ownership.opening import start_log, start_member
from siltlog.ingest.ownership.ownership import Ownership
from siltlog.ingest.ownership.stranded import Stranded
from siltlog.ingest.ownership.take import Taking
from siltlog.ingest.publish.fast import FastPublishes
from siltlog.ingest.publish.http import Publish
from siltlog.ingest.publish.inside import SystemTopics
from siltlog.ingest.publish.producers_http import ProducersHttp
from siltlog.ingest.publish.publishing import Publishing
from siltlog.ingest.publish.traced import traced
from siltlog.ingest.topics.deletion import LogStarts
from siltlog.ingest.topics.http import SeenTopics, TopicRanks, TopicsHttp
from siltlog.ingest.topics.records_http import RecordsHttp
from siltlog.ingest.topics.state_room import StateRoom
from siltlog.ingest.topics.topics import AutoCreate, Placing, Topics
from siltlog.ingest.wal import Wal

GROUP_SHARE_OF_SEGMENT = 8
OBJECT_INTERVAL_MS = 200
"""How often an object goes to S3: each is paid for, and what is sent at once waits for each other no longer."""
STOP_SECONDS_MAX = 2.0
"""How long a flush that is under way may take to end once the drain is over."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ingest:
    part: Part
    log: Log
    flusher: Flusher
    system: SystemTopics
    publish: Publish
    publishing: Publishing
    topics: Topics
    log_starts: LogStarts
    auto_create: AutoCreate | None
    """None where publishing makes no topics."""
    bodies: BodyReader
    """Reads what is published."""
    fast_path: Callable[[Door], FastPublishes]
    ownership: Ownership | None
    """Where the root is shared with others."""
    reconfigure: Callable[[ServerSettings], None]
    """Takes the settings of this room that may change while it runs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shared:
    """What a node is given that shares its root with others."""

    placing: Placing
    changed: Callable[[], None]
    """Hears that what it owns, or waits for, is another."""
    released: Callable[[str, TermEntry | None], None]
    """Hears that a topic was handed over, and to whom."""
    seen: Callable[[], SeenTopics]
    """The topics of the whole cluster."""
    owner: Callable[[str], str]
    """Names the node that owns a topic; empty where none does."""
    journal: Callable[[], str]
    """Names the start of this node by which views know it."""
    sealed: Callable[[], None]
    """Hears that this start was taken over from: it is to have another name."""


async def assemble(
    node: Node,
    data_dir: DataDir,
    *,
    take_over: bool,
    accept_loss: bool,
    on_group: Callable[[Times], None],
    on_fatal: Callable[[BaseException], None],
    ranks: TopicRanks,
    shared: Shared | None = None,
) -> Ingest:
    """Opens the log and all its topics; where the root is `shared` a view says later which are this node's. Raises
    ConfigError for what does not fit together.

    `on_group(times)` hears of each group commit, `on_fatal(error)` when the WAL can no longer be trusted.
    """
    settings = node.settings
    retries = Retries(node.clock)
    log = _log(node, data_dir, retries, on_group, on_fatal, shared)
    recovery = await asyncio.to_thread(log.wal.recover, accept_loss=accept_loss)
    taking: Taking | None = None
    if shared is None:
        await start_log(
            log,
            recovery,
            take_over=take_over,
            accept_loss=accept_loss,
            stranded=Stranded.beside(settings.data_dir),
            logger=node.logger,
        )
    else:
        taking = await start_member(log, recovery, Stranded.shared(node.store), node.logger)
    requests, burst = RequestBudget(settings.requests_budget), Burst(settings.burst_ms)
    flusher = Flusher(log, retries, node.logger, node.metrics, node.serving, requests, burst)
    ownership: Ownership | None = None
    if shared is not None and taking is not None:
        ownership = _ownership(node, log, taking, flusher, shared)
    own = {"acks": "object"} if settings.acks == "object" else None
    seen: Callable[[], SeenTopics] = shared.seen if shared else lambda: log
    state_room = StateRoom(seen, log.admission.topics_bytes_max, settings.segment_bytes)
    topics = Topics(log, node.logger, own, shared.placing if shared else None, settings.default_partitions, state_room)
    partitions = settings.auto_create_partitions
    auto_create = AutoCreate(topics, partitions, seen) if partitions else None
    publishing = Publishing(log, log.flush_due.set, auto_create)
    bodies = BodyReader(settings.request_bytes, settings.request_timeout_ms, node.in_flight)
    log_starts = LogStarts(log, flusher.states, log.flush_due.set, node.logger)

    async def close(patient: bool) -> bool:
        if ownership is not None:
            await ownership.stop()
        stopped = await flusher.stop(STOP_SECONDS_MAX)
        log.journal.close()
        log.wal.close()
        return stopped

    publish = Publish(publishing, bodies, settings.request_bytes, node.serving)

    def reconfigure(changed: ServerSettings) -> None:
        log.wal.reconfigure(changed.wal_bytes_max)
        log.admission.reconfigure(changed.record_bytes_max)
        requests.reconfigure(changed.requests_budget)
        burst.reconfigure(changed.burst_ms)
        log.reconfigure(_server_config(changed), head_bytes_max=changed.head_bytes_max)
        publish.reconfigure(changed.request_bytes, changed.request_timeout_ms)

    return Ingest(
        part=Part(
            handlers=(
                TopicsHttp(seen, topics, ranks, shared.owner if shared else None),
                ProducersHttp(log, flusher.states),
                RecordsHttp(log, log_starts),
            ),
            gauges=partial(show, node, log, burst),
            close=close,
        ),
        log=log,
        flusher=flusher,
        system=SystemTopics(log, topics, publishing, log_starts),
        publish=publish,
        publishing=publishing,
        topics=topics,
        log_starts=log_starts,
        auto_create=auto_create,
        bodies=bodies,
        fast_path=lambda door: FastPublishes(
            publishing,
            door,
            node.in_flight,
            node.draining,
            settings.request_bytes,
            None if node.serving is None else traced(node.serving),
        ),
        ownership=ownership,
        reconfigure=reconfigure,
    )


def _ownership(node: Node, log: Log, taking: Taking, flusher: Flusher, shared: Shared) -> Ownership:
    return Ownership(
        log,
        taking,
        flusher.releases,
        node.logger,
        changed=shared.changed,
        released=shared.released,
        missing=shared.placing.forget,
        wanted=shared.placing.want,
    )


def _log(
    node: Node,
    data_dir: DataDir,
    retries: Retries,
    on_group: Callable[[Times], None],
    on_fatal: Callable[[BaseException], None],
    shared: Shared | None,
) -> Log:
    settings = node.settings
    topic_logs = TopicLogs()
    wal = Wal(
        data_dir.wal_path,
        segment_bytes=settings.segment_bytes,
        bytes_max=settings.wal_bytes_max,
        cluster_id=node.cluster_id,
        on_fatal=on_fatal,
        state=topic_logs.state,
        clock=node.clock,
    )
    group_bytes_max = settings.segment_bytes // GROUP_SHARE_OF_SEGMENT
    admission = Admission(
        topic_logs,
        wal,
        node.clock,
        node.draining,
        record_bytes_max=settings.record_bytes_max,
        group_bytes_max=group_bytes_max,
        flush_retry_ms=retries.retry_ms,
    )
    return Log(
        node.store,
        wal,
        node.clock,
        topic_logs,
        admission,
        server_config=_server_config(settings),
        group_bytes_max=group_bytes_max,
        head_bytes_max=settings.head_bytes_max,
        on_group=on_group,
        in_flight=node.in_flight,
        journal=_journal(node, topic_logs, on_fatal, shared),
        serving=node.serving,
    )


def _journal(
    node: Node, topic_logs: TopicLogs, on_fatal: Callable[[BaseException], None], shared: Shared | None
) -> Journal:
    settings = node.settings
    interval_ms = settings.object_interval_ms
    if interval_ms < 0:
        interval_ms = OBJECT_INTERVAL_MS if settings.journal_root_uri.startswith("s3:") else 0

    def sealed() -> None:
        for topic in topic_logs.all():
            if topic.journaled and not topic.availability.lasting:
                topic.close("fenced", "its journal was sealed: another node takes it over")
        # Where the node goes on under another name already, that was told to the journal.
        if shared is not None and journal.name == journal_name(settings.node_id, shared.journal()):
            shared.sealed()

    journal = Journal(
        node.journals,
        node.clock,
        node.logger,
        cluster_id=node.cluster_id,
        node_id=settings.node_id,
        interval_ms=interval_ms,
        start=shared.journal if shared is not None else lambda: uuid.uuid4().hex,
        on_fatal=on_fatal,
        on_sealed=sealed,
        on_landed=node.metrics.object_landed,
        stage=node.journals.stage if isinstance(node.journals, LocalStore) else None,
    )
    return journal


def _server_config(settings: ServerSettings) -> dict[str, Value]:
    """Returns the server's settings for topics that do not say it themselves; only those that were really set."""
    given = {
        "acks": settings.acks,
        "flush.ms": settings.flush_ms,
        "flush.bytes": settings.flush_bytes,
        "flush.files.per.hour": settings.flush_files_per_hour,
        "removed.files.retention.ms": settings.removed_files_retention_ms,
    }
    if settings.acks == "object":
        # Only of topics that are made from now on: what others acknowledged before is on this disk alone.
        del given["acks"]
    return {name: value for name, value in given.items() if name.replace(".", "_") in settings.model_fields_set}
