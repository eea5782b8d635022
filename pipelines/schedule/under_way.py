"""A run that is under way: when it is ended, and what its end tells."""

from dataclasses import dataclass

import msgspec

from siltlog.infra.clock import format_us
from siltlog.pipelines.schedule.plan import DueRun
from siltlog.pipelines.schedule.process import JobProcess
from siltlog.pipelines.schedule.runs import ERROR_CHARS_MAX, JobRunRequest, Outcome, Trigger

JOB_SECONDS_MAX = 6 * 3600.0
"""A job that takes longer is ended: no plan and no open commit of it would be safe any more."""
RETAIN_SECONDS_MAX = 3600.0
"""Minutes are much for it, and each of its commits stays: while it hangs the disk fills."""
EXIT_FOUND_WRONG = 3


@dataclass(slots=True)
class Run:
    """`due` is what it does; `started` is on the monotonic clock, `process` its child."""

    due: DueRun
    run_id: str
    started_us: int
    started: float
    process: JobProcess
    trigger: Trigger
    too_long: bool = False
    unwanted: bool = False
    """Somebody asked that it ends: so it is not due again."""


def seconds_max(job: str) -> float:
    """How long a run of a job may take."""
    return RETAIN_SECONDS_MAX if job == "retain" else JOB_SECONDS_MAX


def result_of(run: Run, now_us: int) -> JobRunRequest:
    """Makes the record of a run from what is known from outside: how its process ended."""
    status = run.process.status
    error: str | None = None
    outcome: Outcome = "succeeded"
    if run.too_long:
        outcome, error = "failed", f"it was ended after {seconds_max(run.due.job) / 60:g} minutes"
    elif run.process.told_to_stop and status != 0:
        outcome = "interrupted"
    elif status == EXIT_FOUND_WRONG:
        outcome = "found_wrong"
    elif status != 0:
        how = f"signal {-status}" if status is not None and status < 0 else f"exit status {status}"
        said = f": {run.process.last_line}" if run.process.last_line else ""
        outcome, error = "failed", f"{how}{said}"[:ERROR_CHARS_MAX]
    return request_of(run.due.job, run.run_id, run.trigger, outcome, run.started_us, now_us, error)


def request_of(
    job: str, run_id: str, trigger: Trigger, outcome: Outcome, started_us: int, ended_us: int, error: str | None
) -> JobRunRequest:
    """Makes the record of a run of the schedule."""
    return msgspec.convert(
        {
            "run_id": run_id,
            "job": job,
            "outcome": outcome,
            "started_at": format_us(started_us),
            "ended_at": format_us(max(ended_us, started_us)),
            "trigger": trigger,
            "error": error,
        },
        JobRunRequest,
    )
