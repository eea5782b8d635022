"""Runs that are under way: which of them is in the way of another, when one is ended, and what its end tells."""

from collections.abc import Collection
from dataclasses import dataclass

import msgspec

from siltlog.infra.clock import Clock, format_us
from siltlog.infra.telemetry import Logger
from siltlog.pipelines.schedule.lease import OpenRun
from siltlog.pipelines.schedule.plan import DueRun
from siltlog.pipelines.schedule.process import STOP_SECONDS, JobProcess
from siltlog.pipelines.schedule.runs import ERROR_CHARS_MAX, LANES, JobRunRequest, Outcome, Trigger

JOB_SECONDS_MAX = 6 * 3600.0
"""A job that takes longer is ended: no plan and no open commit of it would be safe any more."""
RETAIN_SECONDS_MAX = 3600.0
"""Minutes are much for it, and each of its commits stays: while it hangs the disk fills."""
EXIT_FOUND_WRONG = 3
QUICK = "quick"
"""The lane of the jobs that have no other."""


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

    def end(self) -> None:
        """Ends its process, and waits for that."""
        self.process.stop()
        self.process.join()


class UnderWay:
    """One run of a job at most. `stop` may be called from any thread."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._runs: dict[str, Run] = {}

    def jobs(self) -> Collection[str]:
        return self._runs.keys()

    def of(self, job: str) -> Run | None:
        return self._runs.get(job)

    def open_runs(self) -> dict[str, OpenRun]:
        """Gives what the lease says of them."""
        return {job: OpenRun(run.started_us, run.run_id, run.trigger) for job, run in self._runs.items()}

    def in_the_way(self, job: str) -> Run | None:
        """The run that has the lane of a job."""
        lane = LANES.get(job, QUICK)
        return next((run for other, run in self._runs.items() if LANES.get(other, QUICK) == lane), None)

    def add(self, run: Run) -> None:
        self._runs[run.due.job] = run

    def too_long(self) -> list[Run]:
        """The runs that take longer than they may, and are not noted as such yet."""
        now = self._clock.monotonic()
        return [
            run
            for run in self._runs.values()
            if run.process.running and not run.too_long and now - run.started > seconds_max(run.due.job)
        ]

    def take_ended(self) -> list[Run]:
        """Forgets the runs whose processes have ended, and gives them."""
        ended = [run for run in self._runs.values() if not run.process.running]
        for run in ended:
            del self._runs[run.due.job]
        return ended

    def stop(self) -> None:
        """Tells all processes to end."""
        for run in list(self._runs.values()):
            run.process.stop()

    def end(self) -> None:
        """Ends all processes, and waits until they have ended, or should have."""
        self.stop()
        until = self._clock.monotonic() + STOP_SECONDS
        for run in self._runs.values():
            run.process.join(max(until - self._clock.monotonic(), 0))


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


def log_end(logger: Logger, run: Run, result: JobRunRequest, seconds: float) -> None:
    """Logs how a run ended."""
    said = {"job": result.job, "run_id": run.run_id, "outcome": result.outcome, "seconds": round(seconds, 3)}
    if result.outcome != "interrupted":
        if result.error is None:
            logger.info("job ended", **said)
        else:
            logger.warning("job ended", **said, error=result.error)
    elif run.unwanted:
        logger.info("job was stopped, as it was asked", **said)
    elif run.trigger == "schedule":
        logger.info("job was stopped; it is due again", **said)
    else:
        logger.info("job was stopped", **said)
