"""Plans which jobs of a schedule are due, without IO: the times that were missed come to one run."""

from collections.abc import Mapping
from typing import NamedTuple

from siltlog.infra.settings.cron import Cron


class DueRun(NamedTuple):
    """A run that is to begin; `due_us` is the last time of its expression that has come."""

    job: str
    due_us: int


Handled = Mapping[str, int]
"""The time up to which the runs of each job are done; microseconds."""


def carried_on(crons: Mapping[str, Cron], handled: Handled, now_us: int) -> dict[str, int]:
    """`handled` for exactly the jobs of the schedule.

    One that is new has missed nothing. What lies in the future, because the clock was wrong, would keep a job from
    running until then: it counts as now.
    """
    return {job: min(handled.get(job, now_us), now_us) for job in crons}


def due_runs(crons: Mapping[str, Cron], handled: Handled, now_us: int) -> list[DueRun]:
    """Lists the jobs that became due since, the longest due first; each once, however often it became due."""
    found = []
    for job, cron in crons.items():
        latest_us = cron.latest_us(now_us)
        if latest_us is not None and latest_us > handled.get(job, now_us):
            found.append(DueRun(job, latest_us))
    return sorted(found, key=lambda run: (run.due_us, run.job))


def next_us(crons: Mapping[str, Cron], now_us: int) -> int | None:
    """Finds when something becomes due again; None for never. In microseconds."""
    return min((found for cron in crons.values() if (found := cron.next_us(now_us)) is not None), default=None)
