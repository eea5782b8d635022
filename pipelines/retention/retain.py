"""Retention: records that have expired go, whole files of them, and the log start moves past them.

It moves no rows, so it needs neither Spark nor Java. Killed at any point and run again, the result is the same: each
commit is whole, and what it leaves to do is planned anew. The files themselves are vacuum's to delete.
"""

import uuid
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from siltlog.infra.clock import Clock, SystemClock
from siltlog.infra.errors import Fenced, SiltlogError, problem
from siltlog.infra.settings.settings import ServerSettings
from siltlog.infra.store.store import ObjectStore
from siltlog.infra.table.log_start import StartMove, move_starts
from siltlog.infra.table.producer_objects import covered_offsets
from siltlog.infra.table.snapshot import TableSnapshot
from siltlog.infra.table.table import TopicTable
from siltlog.pipelines.producer_rows import READS_AT_ONCE, has_producers, known_for_ms
from siltlog.pipelines.retention.plan import RetentionPlan, plan
from siltlog.pipelines.topics import open_each, store_of

Progress = Callable[[str, int, int], None]
"""Called with the topic, the files done and the files planned."""

COMMIT_FILES_MAX = 25_000
"""One commit removes at most so many files: each is an entry in the log that every reader of it takes in."""
RACES_MAX = 5
"""How many plans in a row may be overtaken by others before a topic is left for the next run."""


@dataclass(slots=True)
class MovedStart:
    """The log start of one partition before and now, and what was removed."""

    partition: int
    before: int
    log_start_offset: int
    files: int
    rows: int
    size_bytes: int


@dataclass(slots=True)
class RetentionReport:
    """The retention of one topic; a dry run has what would be removed. `error` ended it early."""

    topic: str
    dry_run: bool
    files: int = 0
    rows: int = 0
    size_bytes: int = 0
    partitions: list[MovedStart] = field(default_factory=list)
    """The partitions whose log start moved."""
    waiting_files: int = 0
    """Expired, and kept until what they say of producers is beside the table."""
    raced: int = 0
    """Commits given up because somebody else changed the topic first."""
    seconds: float = 0.0
    error: SiltlogError | None = None


def retain_topics(
    settings: ServerSettings,
    topics: Sequence[str] = (),
    *,
    dry_run: bool = False,
    progress: Progress | None = None,
    clock: Clock | None = None,
) -> list[RetentionReport]:
    """Removes what has expired from `topics`, or from every topic when empty.

    A topic that fails has its `error` in its report and the others go on. Raises UnknownTopic for a name that is none.
    """
    clock = clock or SystemClock()
    store = store_of(settings)
    reports = []
    for topic, table in open_each(store, topics, clock):
        report = RetentionReport(topic, dry_run)
        started = clock.monotonic()
        try:
            if isinstance(table, SiltlogError):
                raise table
            retain(store, table, clock, report, progress)
        except SiltlogError as error:
            report.error = error
        report.seconds = clock.monotonic() - started
        reports.append(report)
    return reports


def retain(
    store: ObjectStore, table: TopicTable, clock: Clock, report: RetentionReport, progress: Progress | None = None
) -> None:
    """Plans and commits until nothing that has expired is left; of a dry run only plans."""
    now_ms = clock.now_us() // 1000
    snapshot = table.snapshot
    expired = plan(snapshot, snapshot.config, now_ms)
    # Fixed now: what expires while this runs was not looked at.
    until = _until(store, table.topic, snapshot, expired, now_ms)
    whole = plan(snapshot, snapshot.config, now_ms, until=until)
    report.waiting_files = expired.files - whole.files
    if report.dry_run:
        _count(report, whole.moves)
        return
    races = 0
    while races < RACES_MAX:
        snapshot = table.refresh()
        made = plan(snapshot, snapshot.config, now_ms, until=until, files_max=COMMIT_FILES_MAX)
        if not made.moves:
            return
        moves = {move.partition: move for move in made.moves}
        try:
            move_starts(table, made.version, moves, str(uuid.uuid4()), now_ms=now_ms)
        except Fenced:
            races += 1
            report.raced += 1
            continue
        races = 0
        _count(report, made.moves)
        if progress is not None:
            progress(table.topic, report.files, max(whole.files, report.files))
    raise problem(
        "topic_unavailable",
        f"topic {table.topic} is being rewritten by others all the time; what has expired is left for the next run",
        topic=table.topic,
    )


def _until(
    store: ObjectStore, topic: str, snapshot: TableSnapshot, expired: RetentionPlan, now_ms: int
) -> dict[int, int]:
    """Finds, by partition, how far the log start may move.

    A server without this log's WAL learns of producers from objects beside the table and from the rows they do not
    cover. Those rows stay, until their producers would be forgotten anyway.
    """
    until = {move.partition: move.start for move in expired.moves}
    if not until:
        return until
    covered = covered_offsets(store, topic, snapshot.topic_id, snapshot.offsets)
    known_since_ms = now_ms - known_for_ms(snapshot)
    doubtful = [
        file
        for move in expired.moves
        for file in move.files
        if file.last_offset >= covered.get(move.partition, 0) and file.modified_ms > known_since_ms
    ]
    with ThreadPoolExecutor(READS_AT_ONCE) as pool:
        needed = pool.map(lambda file: has_producers(store, topic, file.path), doubtful)
        for file, keep in zip(doubtful, needed, strict=True):
            if keep:
                until[file.partition] = min(until[file.partition], file.first_offset)
    return until


def _count(report: RetentionReport, moves: Sequence[StartMove]) -> None:
    known: Mapping[int, MovedStart] = {moved.partition: moved for moved in report.partitions}
    for move in moves:
        moved = known.get(move.partition)
        if moved is None:
            moved = MovedStart(move.partition, move.before, move.start, 0, 0, 0)
            report.partitions.append(moved)
        moved.log_start_offset = move.start
        moved.files += len(move.files)
        moved.rows += move.rows
        moved.size_bytes += move.size_bytes
        report.files += len(move.files)
        report.rows += move.rows
        report.size_bytes += move.size_bytes
