"""Replay: records of a range are published again, into another topic or the same, once each whatever is killed.

The plan of a run is written beside the tables before anything is published. It names a version of the source's table,
so that whoever goes on with the run reads the same records; the target's server knows which of them have arrived,
because each partition is published by a producer whose sequences are the offsets.
"""

from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field
from uuid import uuid4

from siltlog.infra.client.admin import Admin
from siltlog.infra.client.bodies.arrow_body import compression_for, placed_by
from siltlog.infra.client.credentials.authorized import open_transport
from siltlog.infra.client.credentials.credentials import Credentials
from siltlog.infra.client.endpoints import Endpoints
from siltlog.infra.client.rate import Pace
from siltlog.infra.client.transport import Caller
from siltlog.infra.clock import Clock, SystemClock
from siltlog.infra.errors import UnknownTopic, problem
from siltlog.infra.settings.settings import ServerSettings
from siltlog.infra.settings.topic_config import FLUSH_WAIT_MS_MAX
from siltlog.infra.store.cluster_id import cluster_id
from siltlog.infra.store.store import ObjectStore
from siltlog.infra.table.opening import snapshot_at
from siltlog.infra.table.snapshot import TableSnapshot
from siltlog.infra.table.table import TopicTable
from siltlog.pipelines.replay.plan import ReplayPlan, Target, checked_run, plan, read_plan, write_plan
from siltlog.pipelines.replay.publish import Sending
from siltlog.pipelines.replay.range import Selection, plan_slices, totals
from siltlog.pipelines.replay.run import ReplayRun
from siltlog.pipelines.topics import opened, store_of

RETRY_MS = 120_000
"""How long a server may be away before a run fails."""
SETTLE_MS = 60_000
"""How long what is in the head may take to come into the table, beyond what the server keeps it back for."""
SETTLE_POLL_S = 0.1
_MS = 1_000

Advance = Callable[[int, int], None]
"""Called with the records done and the records planned at most."""


@dataclass(frozen=True, slots=True)
class Request:
    """A request for a replay. `run` alone goes on with that run; fields beside it must be what the run began with."""

    topic: str | None = None
    into: str | None = None
    selection: Selection = field(default_factory=Selection)
    version: int | None = None
    run: str | None = None
    rate: float | None = None


@dataclass(slots=True)
class ReplayReport:
    """The result of one run; a dry run has what would be read, at most."""

    run: str | None
    """None for a dry run that goes on with none."""
    topic: str
    version: int
    into: str
    dry_run: bool
    files: int = 0
    rows: int = 0
    """Rows of the files that have the range, before the records are looked at."""
    size_bytes: int = 0
    records: int = 0
    """Published by this process."""
    resumed: bool = False
    """An earlier process had begun it."""
    seconds: float = 0.0


def replay(
    settings: ServerSettings,
    url: str,
    asked: Request,
    *,
    dry_run: bool = False,
    begun: Callable[[str], None] | None = None,
    advance: Advance | None = None,
    clock: Clock | None = None,
    credentials: Credentials | None = None,
) -> ReplayReport:
    """Runs to the end, or goes on where an earlier process stopped. `begun` is told the run before it publishes.

    Raises UnknownTopic, Refused, ConfigError for what is asked, Fenced when another process goes on with the run, and
    what reading and publishing raise.
    """
    clock = clock or SystemClock()
    started = clock.monotonic()
    store = store_of(settings)
    run = checked_run(asked.run or uuid4().hex)
    with closing(open_transport(Endpoints(url), clock, credentials)) as transport:
        admin = Admin(url, clock=clock, transport=transport)
        made = read_plan(store, run) if asked.run else None
        resumed = made is not None
        if made is None:
            snapshot, made = _planned(store, admin, asked, clock)
            if not dry_run and not write_plan(store, run, made):
                raise problem("invalid_request", f"run {run} has just been begun by another process")
        else:
            _check_same(run, made, asked)
            _check_target(admin, made)
            snapshot = snapshot_at(store, made.topic, made.version)
        slices = plan_slices(made.topic, snapshot, made.selection)
        files, rows, size = totals(slices)
        told = None if dry_run and not resumed else run
        report = ReplayReport(told, made.topic, made.version, made.into.topic, dry_run, files, rows, size)
        report.resumed = resumed
        if not dry_run:
            if begun is not None:
                begun(run)
            limits = admin.cluster()["limits"]
            endpoints = Endpoints(url)
            sending = Sending(
                Caller(endpoints, transport, clock, retry_timeout_ms=RETRY_MS),
                compression_for(endpoints, "auto"),
                request_bytes=int(limits["request_bytes"] * 0.9),
                pace=Pace(asked.rate, clock),
            )
            ReplayRun(store, run, made, snapshot, sending, clock, lambda more: _took(report, more, advance)).go(slices)
    report.seconds = clock.monotonic() - started
    return report


def _took(report: ReplayReport, records: int, advance: Advance | None) -> None:
    report.records += records
    if advance is not None:
        advance(report.records, report.rows)


def _planned(store: ObjectStore, admin: Admin, asked: Request, clock: Clock) -> tuple[TableSnapshot, ReplayPlan]:
    if asked.topic is None or asked.into is None:
        missing = f"there is no run {asked.run} at {store.root_uri}; " if asked.run else ""
        raise problem("invalid_request", f"{missing}a new run needs the topics to replay and to publish to")
    document = admin.topic(asked.into)
    into = Target(asked.into, document["topic_id"], *placed_by(document))
    table = opened(store, asked.topic, clock)
    if asked.version is None:
        if table.snapshot.deleted:
            raise problem(
                "unknown_topic",
                f"topic {asked.topic!r} was deleted; --version names a version that its table had before, which can be "
                "replayed until vacuum has removed its files",
                topic=asked.topic,
            )
        snapshot = _settled(store, admin, table, asked.selection, clock)
    else:
        snapshot = snapshot_at(store, asked.topic, asked.version)
    return snapshot, plan(asked.topic, snapshot, asked.selection, into)


def _settled(store: ObjectStore, admin: Admin, table: TopicTable, selection: Selection, clock: Clock) -> TableSnapshot:
    """The table once it has what was in the log when this began, if the server is the one that fills it."""
    if admin.cluster()["cluster_id"] != cluster_id(store):
        return table.snapshot
    try:
        marks = {entry["partition"]: entry["high_watermark"] for entry in admin.offsets(table.topic)}
    except UnknownTopic:
        return table.snapshot
    if selection.end_offset is not None and selection.end_offset >= 0:
        marks = {partition: min(mark, selection.end_offset) for partition, mark in marks.items()}
    wait_ms = max(table.snapshot.config.integer("flush.ms"), FLUSH_WAIT_MS_MAX) + SETTLE_MS
    deadline = clock.monotonic() + wait_ms / _MS
    while any(table.snapshot.offsets.get(partition, 0) < mark for partition, mark in marks.items()):
        if clock.monotonic() > deadline:
            raise problem(
                "topic_unavailable",
                f"the server has not written all of topic {table.topic} to its table within {wait_ms // _MS} s; see "
                "its log, or replay what there is with --version",
                topic=table.topic,
            )
        clock.sleep(SETTLE_POLL_S)
        table.refresh()
    return table.snapshot


def _check_same(run: str, made: ReplayPlan, asked: Request) -> None:
    """Checks that every field of `asked` is left out, or is what the run was begun with."""
    for what, is_same in (
        ("topic", asked.topic in (None, made.topic)),
        ("into", asked.into in (None, made.into.topic)),
        ("version", asked.version in (None, made.version)),
        ("range", asked.selection == Selection() or asked.selection.is_same(made.selection)),
    ):
        if not is_same:
            raise problem(
                "invalid_request",
                f"run {run} was begun with another {what}; go on with `silt replay --run {run}` alone, or begin a "
                "new run",
            )


def _check_target(admin: Admin, made: ReplayPlan) -> None:
    if admin.topic(made.into.topic)["topic_id"] != made.into.topic_id:
        raise problem(
            "unknown_topic",
            f"topic {made.into.topic} was deleted and created again since the run began; begin a new run",
            topic=made.into.topic,
        )
