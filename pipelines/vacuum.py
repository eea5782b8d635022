"""Vacuum over many topics; it moves no rows, so it needs neither Spark nor Java."""

from collections.abc import Sequence
from dataclasses import dataclass

from siltlog.infra.clock import Clock, SystemClock
from siltlog.infra.errors import Refused, SiltlogError, UnknownTopic
from siltlog.infra.settings import ServerSettings
from siltlog.infra.vacuum import PERIOD_MS_MAX, vacuum
from siltlog.pipelines.topics import chosen_topics, store_of


@dataclass(slots=True)
class VacuumReport:
    """What was deleted of one topic; of a dry run what would be. `error` ended it early."""

    topic: str
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
    clock: Clock | None = None,
) -> list[VacuumReport]:
    """Vacuums `topics`, or every topic when empty, deleted ones included.

    A topic that fails has its `error` in its report and the others go on. Raises UnknownTopic for a name that is none,
    Refused when the period is not one that is safe.
    """
    clock = clock or SystemClock()
    store = store_of(settings)
    reports = []
    for topic in chosen_topics(store, topics):
        report = VacuumReport(topic, dry_run, [])
        started = clock.monotonic()
        try:
            removed = vacuum(
                store, topic, retention_ms=retention_ms, now_ms=clock.now_us() // 1000, dry_run=dry_run, clock=clock
            )
            report.paths = [info.path for info in removed]
            report.size_bytes = sum(info.size for info in removed)
        except UnknownTopic as error:
            # Its creation was cut short before its first commit.
            if not topics:
                continue
            report.error = error
        except Refused:
            raise
        except SiltlogError as error:
            report.error = error
        report.seconds = clock.monotonic() - started
        reports.append(report)
    return reports
