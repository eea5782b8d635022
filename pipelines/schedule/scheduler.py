"""Runs jobs by their cron expressions, for as long as it holds the right to.

One thread looks what is due, starts each job as a child process, and notes in the lease what was run. A long one holds
up none that is quick. A job that was stopped halfway is due again, unless somebody asked for that.
"""

import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from functools import partial

from siltlog.infra.clock import MICROS_PER_SECOND, Clock, format_us, parse_us
from siltlog.infra.errors import SiltlogError, problem
from siltlog.infra.settings.cron import Cron
from siltlog.infra.telemetry import Logger
from siltlog.pipelines.schedule.asked import Asked, in_the_way, not_run_here, off, shutting_down
from siltlog.pipelines.schedule.crowded import CrowdedTables, LiveFiles
from siltlog.pipelines.schedule.lease import JobState, OpenRun, ScheduleLease, states
from siltlog.pipelines.schedule.plan import DueRun, carried_on, due_runs, next_us
from siltlog.pipelines.schedule.process import JobProcess
from siltlog.pipelines.schedule.runs import COMPACT, NICENESS_MAX, JobRunRequest, Outcome, Trigger
from siltlog.pipelines.schedule.under_way import Run, UnderWay, log_end, request_of, result_of
from siltlog.pipelines.schedule.untold import Untold

VACUUM = "vacuum"
SPARK_JOBS = frozenset((COMPACT,))
SETTLE_SECONDS = 60.0
"""How long jobs wait that were missed while no runner was there: a server that starts has better things to do."""
LOOK_SECONDS_MAX = 30.0
"""The wall clock may have been set meanwhile."""
FULL_SECONDS = 600.0
"""How often vacuum runs while the disk is full."""
LOOK_FILES_SECONDS = 5.0
"""How often live files are counted: a busy server adds some hundreds meanwhile."""
RENEWALS_PER_LEASE = 3
ABANDONED = "what ran the schedule was gone before this run ended"

Start = Callable[[str, str, Trigger, int, Callable[[], None]], JobProcess]
"""Starts a job: its name, the id of the run, what it is begun by, its niceness, what to call on its thread when it has
ended."""


class Scheduler:
    """`run` is for one thread of its own; `stop`, `reconfigure` and what is asked of it may be called from any."""

    def __init__(
        self,
        crons: Mapping[str, Cron],
        lease: ScheduleLease,
        start: Start,
        clock: Clock,
        logger: Logger,
        *,
        new_run_id: Callable[[], str],
        unavailable: Callable[[str], str | None],
        record: Callable[[JobRunRequest], bool],
        live_files: Callable[[], LiveFiles] = dict,
        settle_seconds: float = SETTLE_SECONDS,
    ) -> None:
        """`unavailable` says why a job cannot be run here, if it cannot; `record` is told of each run that ended, and
        again later where it says False; `live_files` counts the files of the tables, for compaction that cannot wait
        for its time."""
        self._crons = dict(crons)
        self._wanted: Mapping[str, Cron] | None = None
        """The times that hold from the next step on; None where they are those that hold."""
        self._lease = lease
        self._start = start
        self._clock = clock
        self._logger = logger
        self._new_run_id = new_run_id
        self._unavailable = unavailable
        self._live_files = live_files
        self._tables = CrowdedTables()
        self._settle_seconds = settle_seconds
        self._handled: dict[str, int] = {}
        self._missing: dict[str, str] = {}
        """Why jobs that were due were not run."""
        self._running = UnderWay(clock)
        self._missed_before_us = 0
        """Jobs that were due before this time were missed, and wait until `_settled_at`."""
        self._settled_at = 0.0
        self._renew_at = 0.0
        self._stopping = threading.Event()
        self._wake = threading.Event()
        self._asked = Asked(self._wake.set)
        self._opening: dict[str, OpenRun] = {}
        """Runs that are about to begin."""
        self._failing = False
        self._disk_full = False
        self._vacuum_at = 0.0
        """When it runs again on a full disk."""
        self._untold = Untold(record, clock)
        """Runs that are still to be recorded; those of a runner that is gone are among them."""

    def run(self) -> None:
        """Returns after `stop`, when no job runs any more and the right was given back."""
        self._begin_anew()
        while not self._stopping.is_set():
            try:
                self._take_wanted()
                seconds = self.step() if self._crons else self._refuse()
            except Exception as error:  # a defect must not end the schedule in silence
                self._logger.error("the schedule failed and goes on", reason=f"{type(error).__name__}: {error}")
                seconds = LOOK_SECONDS_MAX
            self._wake.wait(seconds)
            self._wake.clear()
        self._rest()
        self._asked.close()

    @property
    def holds(self) -> bool:
        """Whether it runs the jobs: it has the right to, or the disk is full and nobody can be given it. For any
        thread."""
        return self._lease.held or self._disk_full

    def is_ours(self, holder: str) -> bool:
        """Whether the holder of a lease is this runner, or the one before it here. For any thread."""
        return self._lease.is_ours(holder)

    def begin_now(self, job: str) -> Future[str]:
        """Begins a job at once, whatever its times are; gives the id of the run, which the lease has by then. For any
        thread.

        The future raises Refused `job_running` where it, or one that it waits for, runs already, and `job_unavailable`
        where it cannot be run here; Unavailable, and then nothing was begun.
        """
        return self._asked.put(partial(self._begin_asked, job))

    def end_now(self, job: str, run_id: str) -> Future[Outcome | None]:
        """Ends a run, and waits until it has ended; its outcome, or None where no such run is under way here. For any
        thread. The future raises OutcomeUnknown where it does not end."""
        return self._asked.put(partial(self._end_asked, job, run_id))

    def _refuse(self) -> float | None:
        """Tells who asks that nothing is run; for as long as there is no job to run."""
        self._asked.do()
        return None

    def _begin_anew(self) -> None:
        self._missed_before_us = self._clock.now_us()
        self._settled_at = self._clock.monotonic() + self._settle_seconds

    def _rest(self) -> None:
        """Ends the jobs, and gives the right to run the schedule back where it was held."""
        self._end_jobs()
        if self._crons:
            try:
                self._lease.release(self._states())
            except SiltlogError as error:
                self._logger.warning("the right to run the schedule could not be given back", reason=error.detail)

    def reconfigure(self, crons: Mapping[str, Cron]) -> None:
        """Jobs run at these times from now on. One that is not among them is left to end where it runs; where there is
        none all end, and the right to run them is given back. For any thread."""
        self._wanted = dict(crons)
        self._wake.set()

    def _take_wanted(self) -> None:
        wanted, self._wanted = self._wanted, None
        if wanted is None:
            return
        if not wanted:
            self._rest()
        elif not self._crons:
            self._begin_anew()
        self._crons = dict(wanted)
        self._renew_at = self._clock.monotonic()
        said = {job: cron.expression for job, cron in wanted.items()}
        self._logger.info("the schedule is another", **said, times="UTC")

    def stop(self) -> None:
        """Jobs end at once; `run` returns soon after."""
        self._stopping.set()
        self._running.stop()
        self._wake.set()

    def step(self) -> float:
        """Does what there is to do now; the seconds until it should be called again."""
        changed = self._ended()
        held = self._hold(changed)
        self._tell()
        self._asked.do()
        if not (held and self._lease.held):
            if self._disk_full:
                self._make_room()
            return self._lease.lease_ms / 1000 / RENEWALS_PER_LEASE
        self._hurry()
        now_us = self._clock.now_us()
        self._handled = carried_on(self._crons, self._handled, now_us)
        began = False
        for due in [*due_runs(self._crons, self._handled, now_us), *self._pressing(now_us)]:
            if self._may_begin(due):
                began = self._begin(due) or began
        if began:
            self._hold(began)
        soonest = next_us(self._crons, now_us)
        until_due = LOOK_SECONDS_MAX if soonest is None else (soonest - now_us) / MICROS_PER_SECOND
        now = self._clock.monotonic()
        waits = [until_due, LOOK_SECONDS_MAX, self._renew_at - now]
        if COMPACT in self._crons:
            waits.append(LOOK_FILES_SECONDS)
        if now < self._settled_at:
            waits.append(self._settled_at - now)
        return max(0.0, min(waits))

    def _hold(self, changed: bool) -> bool:
        """Whether the lease is held: taken, renewed, or said what changed. Without it no job runs on."""
        lease = self._lease
        try:
            if not lease.held:
                before = lease.number
                taken = lease.take()
                if lease.number != before + 1:
                    self._running_not_ours()
                if taken:
                    self._took_over()
            elif changed or self._clock.monotonic() >= self._renew_at:
                lease.renew(self._states())
                self._renew_at = self._clock.monotonic() + lease.lease_ms / 1000 / RENEWALS_PER_LEASE
            self._failing = self._disk_full = False
        except SiltlogError as error:
            if not self._failing:
                self._logger.warning("the schedule waits: its lease cannot be read or written", reason=error.detail)
            self._failing = True
            self._disk_full = error.error_code == "disk_full"
            self._renew_at = self._clock.monotonic() + lease.lease_ms / 1000 / RENEWALS_PER_LEASE / 10
        # Nobody else can have written that it has the right, either, where the disk is full.
        if not lease.held and not self._disk_full:
            self._running_not_ours()
        return lease.held

    def _took_over(self) -> None:
        # What ended here while the lease could not be written counts, too.
        now_us = self._clock.now_us()
        for job, state in self._lease.jobs.items():
            self._handled[job] = max(state.handled_us, self._handled.get(job, 0))
            if job in self._crons and self._running.of(job) is None and state.run_id and state.running_since_us:
                trigger: Trigger = "hand" if state.by_hand else "schedule"
                cut_short = request_of(
                    job, state.run_id, trigger, "interrupted", state.running_since_us, now_us, ABANDONED
                )
                self._untold.add(cut_short)
        self._handled = carried_on(self._crons, self._handled, now_us)
        # The first runner of all says since when there is a schedule: what comes due from now on can be missed.
        self._lease.renew(self._states())
        self._renew_at = self._clock.monotonic() + self._lease.lease_ms / 1000 / RENEWALS_PER_LEASE
        self._logger.info(
            "running the schedule", **{job: cron.expression for job, cron in self._crons.items()}, times="UTC"
        )

    def _running_not_ours(self) -> None:
        """Somebody else may be running them, or has."""
        if self._running.jobs():
            self._logger.warning(
                "the right to run the schedule is gone; its jobs end", jobs=sorted(self._running.jobs())
            )
            self._end_jobs()

    def _states(self) -> dict[str, JobState]:
        # The next runner tells of what is under way, and of what was stopped, if this one does not come to it.
        open_runs: dict[str, OpenRun] = {
            run.job: OpenRun(parse_us(str(run.started_at)), run.run_id, run.trigger)
            for run in self._untold.interrupted()
        }
        open_runs |= self._running.open_runs() | self._opening
        return states(self._crons, self._handled, self._missing, open_runs, self._clock.now_us())

    def _pressing(self, now_us: int) -> list[DueRun]:
        """Compaction, where a table has too many files to wait for its time."""
        if COMPACT not in self._crons or self._running.of(COMPACT) is not None:
            return []
        return [DueRun(COMPACT, now_us)] if self._tables.crowded(self._live_files()) else []

    def _hurry(self) -> None:
        """Begins a compaction anew that gave way too much: a process may give more away, and take nothing back."""
        run = self._running.of(COMPACT)
        if run is not None and COMPACT in self._crons and self._tables.outgrown(self._live_files()):
            self._logger.info("a table became crowded: compaction begins anew and gives way less", run_id=run.run_id)
            run.end()
            self._ended()

    def _make_room(self) -> None:
        """Vacuum writes nothing, and may delete something; no other job gets on."""
        now = self._clock.monotonic()
        due = DueRun(VACUUM, self._clock.now_us())
        if VACUUM in self._crons and now >= self._vacuum_at and self._may_begin(due):
            self._vacuum_at = now + FULL_SECONDS
            self._begin(due)

    def _may_begin(self, due: DueRun) -> bool:
        if self._stopping.is_set() or self._running.in_the_way(due.job) is not None:
            return False
        return due.due_us >= self._missed_before_us or self._clock.monotonic() >= self._settled_at

    def _begin(self, due: DueRun) -> bool:
        """Begins a job that is due. Returns True when what the lease should say has changed."""
        missing = self._unavailable(due.job)
        if missing is not None:
            if self._missing.get(due.job) != missing:
                self._logger.warning("a job of the schedule is not run", job=due.job, reason=missing)
            self._missing[due.job] = missing
            if due.job == COMPACT:
                self._tables.ended("failed")
            self._handled[due.job] = due.due_us
            return True
        self._launch(due, self._new_run_id(), "schedule", self._clock.now_us())
        return True

    def _launch(self, due: DueRun, run_id: str, trigger: Trigger, started_us: int) -> None:
        self._missing.pop(due.job, None)
        niceness = self._tables.began(self._live_files()) if due.job == COMPACT else NICENESS_MAX
        said = {"job": due.job, "run_id": run_id, "trigger": trigger}
        self._logger.info("job begins", **said, due_at=format_us(due.due_us), niceness=niceness)
        process = self._start(due.job, run_id, trigger, niceness, self._wake.set)
        self._running.add(Run(due, run_id, started_us, self._clock.monotonic(), process, trigger))

    def _begin_asked(self, job: str) -> str:
        if self._stopping.is_set():
            raise shutting_down()
        on_full_disk = self._disk_full and job == VACUUM
        if not (self._crons and (self._lease.held or on_full_disk)):
            raise not_run_here(job)
        if job not in self._crons:
            raise off(job)
        other = self._running.in_the_way(job)
        if other is not None:
            raise in_the_way(job, other)
        missing = self._unavailable(job)
        if missing is not None:
            raise problem("job_unavailable", f"{job} cannot be run where the schedule is run: {missing}", job=job)
        run_id, now_us = self._new_run_id(), self._clock.now_us()
        self._opening[job] = OpenRun(now_us, run_id, "hand")
        try:
            # Before it begins: whoever is told of the run finds it, also where this process is killed meanwhile.
            if not self._lease.renew(self._states()):
                raise not_run_here(job)
        except SiltlogError as error:
            if not (job == VACUUM and error.error_code == "disk_full"):
                raise
        finally:
            del self._opening[job]
        # Its times up to now come to this run.
        self._launch(DueRun(job, now_us), run_id, "hand", now_us)
        return run_id

    def _end_asked(self, job: str, run_id: str) -> Outcome | None:
        run = self._running.of(job)
        if run is None or run.run_id != run_id:
            return None
        run.unwanted = True
        run.end()
        if run.process.running:
            raise problem(
                "ack_timeout", f"the run {run_id} of {job} was killed, and has not ended yet", job=job, run_id=run_id
            )
        outcome = result_of(run, self._clock.now_us()).outcome
        self._ended()
        self._tell()
        self._hold(changed=True)
        return outcome

    def _ended(self) -> bool:
        """Takes note of jobs that have ended; True when there were some."""
        ended = self._running.take_ended()
        for run in self._running.too_long():
            run.too_long = True
            # Before the job itself says that it was interrupted: what is told first stays.
            self._untold.add(result_of(run, self._clock.now_us()))
            self._tell()
            run.end()
        for run in ended:
            self._note(run)
        return bool(ended)

    def _note(self, run: Run) -> None:
        result = result_of(run, self._clock.now_us())
        stopped = result.outcome == "interrupted"
        if result.job == COMPACT:
            # One that nobody wants is not begun anew for the files that it left.
            self._tables.ended("failed" if stopped and run.unwanted else result.outcome)
        if not stopped or run.unwanted:
            self._handled[run.due.job] = run.due.due_us
        log_end(self._logger, run, result, self._clock.monotonic() - run.started)
        if not run.too_long:
            self._untold.add(result)

    def _tell(self) -> None:
        if self._untold.tell():
            # The lease need not have it any more.
            self._renew_at = self._clock.monotonic()

    def _end_jobs(self) -> None:
        self._running.end()
        self._ended()
        self._tell()
