"""Vacuum: removes the files of one topic, or of all, that no snapshot of the period names, and older leftovers of
crashes.

It needs no Spark. What a running flush or rewrite has written and not yet committed looks like an orphan; only its age
tells them apart, so the period must exceed the longest job and the longest outage together.
"""

import re
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

from siltlog.infra import names
from siltlog.infra.clock import Clock, SystemClock
from siltlog.infra.errors import SiltlogError, UnknownTopic, problem
from siltlog.infra.settings.settings import ServerSettings
from siltlog.infra.settings.topic_config import REMOVED_FILES_MS_MAX, REMOVED_FILES_MS_MIN
from siltlog.infra.store.store import REQUESTS_AT_ONCE, ObjectInfo, ObjectStore, delete_all
from siltlog.infra.table.entries import (
    HOUR_MS,
    JOB_MS_MAX,
    OUTAGE_MS_MAX,
    RETENTION_MS,
    Torn,
    cleaned_below,
    damaged,
    entry_path,
    log_folder,
    read_entry,
)
from siltlog.infra.table.producer_objects import superseded_objects
from siltlog.infra.table.table import TopicTable
from siltlog.pipelines.retention.journals import left_journals
from siltlog.pipelines.retention.leftovers import leftovers
from siltlog.pipelines.topics import chosen_topics, journals_store, store_of

PERIOD_MS_MIN = JOB_MS_MAX + OUTAGE_MS_MAX
PERIOD_MS_MAX = RETENTION_MS
"""The log forgets then which files it removed when."""
assert PERIOD_MS_MIN <= PERIOD_MS_MAX
assert JOB_MS_MAX <= REMOVED_FILES_MS_MIN, "a job reads the files of the version it began with"
assert REMOVED_FILES_MS_MAX <= RETENTION_MS, "which file was removed when is in the log"
_ENTRY = re.compile(r"(\d{20})\.json")
Progress = Callable[[str, int, int], None]
"""Called with the topic, the files deleted and the files to delete."""
BESIDE_TOPICS = ""


def check_period(retention_ms: int) -> None:
    """Raises Refused when it is not between PERIOD_MS_MIN and PERIOD_MS_MAX."""
    if not PERIOD_MS_MIN <= retention_ms <= PERIOD_MS_MAX:
        raise problem(
            "invalid_parameter",
            f"vacuum keeps removed files for {PERIOD_MS_MIN / HOUR_MS:g} to {PERIOD_MS_MAX / HOUR_MS:g} hours, not "
            f"{retention_ms / HOUR_MS:g}: less could delete files that a job or a server after an outage still needs, "
            "and for longer the log does not know them",
        )


def vacuum(
    store: ObjectStore,
    topic: str,
    *,
    retention_ms: int,
    now_ms: int,
    dry_run: bool,
    clock: Clock,
    progress: Callable[[int, int], None] | None = None,
) -> list[ObjectInfo]:
    """Deletes what nobody can need, and says what it was; with `dry_run` only says it.

    `now_ms` is no later than the clock of the store says; `progress` is called with the files deleted and to delete.
    Raises Refused when `retention_ms` is not between PERIOD_MS_MIN and PERIOD_MS_MAX, UnknownTopic, CorruptData when
    the log cannot be read: then nothing is deleted.
    """
    check_period(retention_ms)
    cutoff_ms = now_ms - retention_ms
    # The snapshot comes before the listing: what is removed from the log after it is still live here, and what is
    # added after it is younger than the period.
    table = TopicTable.open(store, topic, clock)
    snapshot = table.snapshot
    topic_path = names.topic_path(topic)
    listed = store.list(topic_path)
    # Of a file that was removed the log says when. What it never had may be on its way into it: that has longer.
    removed_cutoff_ms = now_ms - min(retention_ms, snapshot.removed_files_ms)
    young, old = _removed(store, topic, listed, (now_ms - RETENTION_MS, removed_cutoff_ms))
    kept = snapshot.files.keys() | young
    beside = {
        info
        for info in listed
        if not (path := info.path.removeprefix(f"{topic_path}/")).startswith("_") and path not in kept
    }
    needless = {info for info in beside if info.path.removeprefix(f"{topic_path}/") not in old}
    needless.update(superseded_objects(listed, topic, snapshot), store.unfinished(topic_path))
    doomed = sorted((beside - needless) | {info for info in needless if info.modified_ms < cutoff_ms})
    if not dry_run:
        delete_all(store, doomed, progress)
        for folder in dict.fromkeys(info.path.rpartition("/")[0] for info in doomed):
            if folder.startswith((f"{topic_path}/{names.REWRITE_PREFIX}", f"{topic_path}/{names.STATE_FOLDER}/")):
                store.prune(folder)
        # Spark leaves one where a disk was full, or where it was killed before it wrote.
        for name in store.folders(topic_path):
            if name.startswith(names.REWRITE_PREFIX):
                store.prune_below(f"{topic_path}/{name}", cutoff_ms)
        # The server does so as it commits: a topic that was busy and is not any more would keep a long log.
        table.clean_log(now_ms)
    return doomed


def _removed(
    store: ObjectStore, topic: str, listed: list[ObjectInfo], times_ms: tuple[int, int]
) -> tuple[set[str], set[str]]:
    """Paths, relative to the topic's, of files that commits removed since the later of `times_ms`, and of those that
    they removed before it, since the earlier one."""
    floor = cleaned_below(store, topic)
    found = [
        (int(entry[1]), info.modified_ms)
        for info in listed
        if info.modified_ms >= times_ms[0]
        and (entry := _ENTRY.fullmatch(info.path.removeprefix(f"{log_folder(topic)}/"))) is not None
        and int(entry[1]) >= floor
    ]

    def removes(entry: tuple[int, int]) -> tuple[str, ...]:
        version, modified_ms = entry
        try:
            return read_entry(store, topic, version).removes
        except (FileNotFoundError, Torn) as error:
            if modified_ms < times_ms[1] and version < cleaned_below(store, topic):
                return ()  # cleaned since it was listed
            raise damaged(topic, entry_path(topic, version), "it is cut short or gone") from error

    young: set[str] = set()
    old: set[str] = set()
    # A topic that is flushed each second has 86,400 of them, and on S3 each is a request.
    with ThreadPoolExecutor(REQUESTS_AT_ONCE) as pool:
        for (_, modified_ms), paths in zip(found, pool.map(removes, found), strict=True):
            (young if modified_ms >= times_ms[1] else old).update(paths)
    return young, old - young


@dataclass(slots=True)
class VacuumReport:
    """The files deleted of one topic; a dry run has those that would be. `error` ended it early."""

    topic: str
    """A topic's name, or BESIDE_TOPICS for files that belong to none."""
    dry_run: bool
    paths: list[str]
    """Relative to the root."""
    size_bytes: int = 0
    seconds: float = 0.0
    error: SiltlogError | None = None


def vacuum_topics(
    settings: ServerSettings,
    topics: Sequence[str] = (),
    *,
    retention_ms: int = PERIOD_MS_MAX,
    dry_run: bool = False,
    progress: Progress | None = None,
    clock: Clock | None = None,
) -> list[VacuumReport]:
    """Vacuums `topics`, or every topic when empty, deleted ones included, and what jobs and writers left beside them.

    A topic that fails has its `error` in its report and the others go on. Raises UnknownTopic for a name that is none,
    Refused when the period is not one that is safe.
    """
    check_period(retention_ms)
    clock = clock or SystemClock()
    store = store_of(settings)
    # Ages are told by two clocks; with the later one what is still needed would seem to be old.
    now_ms = min(clock.now_us() // 1000, store.clock_ms())

    def vacuumed(topic: str) -> list[ObjectInfo]:
        advance = None if progress is None else partial(progress, topic)
        return vacuum(
            store, topic, retention_ms=retention_ms, now_ms=now_ms, dry_run=dry_run, clock=clock, progress=advance
        )

    reports = []
    for topic in chosen_topics(store, topics):
        report = _report(topic, dry_run, clock, partial(vacuumed, topic))
        # Without names: its creation was cut short before its first commit.
        if topics or not isinstance(report.error, UnknownTopic):
            reports.append(report)
    if not topics:
        beside = partial(_vacuum_beside, settings, store, now_ms - retention_ms, now_ms, dry_run=dry_run)
        report = _report(BESIDE_TOPICS, dry_run, clock, beside)
        if report.paths or report.error is not None:
            reports.append(report)
    return reports


def _report(topic: str, dry_run: bool, clock: Clock, remove: Callable[[], list[ObjectInfo]]) -> VacuumReport:
    report = VacuumReport(topic, dry_run, [])
    started = clock.monotonic()
    try:
        removed = remove()
        report.paths = [info.path for info in removed]
        report.size_bytes = sum(info.size for info in removed)
    except SiltlogError as error:
        report.error = error
    report.seconds = clock.monotonic() - started
    return report


def _vacuum_beside(
    settings: ServerSettings, store: ObjectStore, cutoff_ms: int, now_ms: int, *, dry_run: bool
) -> list[ObjectInfo]:
    journals = journals_store(settings, store)
    half_written = [info for info in journals.unfinished(names.JOURNALS_FOLDER) if info.modified_ms < cutoff_ms]
    left = [*half_written, *left_journals(store, journals, now_ms)]
    found = leftovers(store, cutoff_ms=cutoff_ms, now_ms=now_ms)
    for place, gone in () if dry_run else ((store, found), (journals, left)):
        for info in gone:
            place.delete(info.path)
        for folder in dict.fromkeys(info.path.rpartition("/")[0] for info in gone):
            place.prune(folder)
    return [*found, *left]
