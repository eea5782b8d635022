"""Vacuum over many topics, and beside them; it moves no rows, so it needs neither Spark nor Java."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from siltlog.infra.clock import Clock, SystemClock
from siltlog.infra.errors import SiltlogError, UnknownTopic
from siltlog.infra.settings import ServerSettings
from siltlog.infra.store import ObjectInfo, ObjectStore
from siltlog.infra.vacuum import PERIOD_MS_MAX, check_period, vacuum
from siltlog.pipelines.leftovers import leftovers
from siltlog.pipelines.topics import chosen_topics, store_of

Progress = Callable[[str, int, int], None]
"""Called with the topic, the files deleted and the files to delete."""
BESIDE_TOPICS = ""


@dataclass(slots=True)
class VacuumReport:
    """What was deleted of one topic; of a dry run what would be. `error` ended it early."""

    topic: str
    """BESIDE_TOPICS: what belongs to none."""
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
        beside = partial(_vacuum_beside, store, now_ms - retention_ms, now_ms, dry_run=dry_run)
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


def _vacuum_beside(store: ObjectStore, cutoff_ms: int, now_ms: int, *, dry_run: bool) -> list[ObjectInfo]:
    found = leftovers(store, cutoff_ms=cutoff_ms, now_ms=now_ms)
    if not dry_run:
        for info in found:
            store.delete(info.path)
        for folder in dict.fromkeys(info.path.rpartition("/")[0] for info in found):
            store.prune(folder)
    return found
