"""Runs of jobs as live events tell of them: those under way, and the latest of each job."""

import asyncio
from collections.abc import Sequence

from siltlog.consumers.reading.view import LogView
from siltlog.infra import names
from siltlog.infra.clock import Clock, format_us
from siltlog.infra.errors import SiltlogError, UnknownTopic
from siltlog.infra.store.store import ObjectStore
from siltlog.pipelines.schedule.lease import newest_entry
from siltlog.server.job_log import JobLog, JobRun
from siltlog.server.live.answers import RunningJob

RUNS_LOOKED_AT = 500
"""How many of the newest runs are looked at for the latest of each job; one that ran before them is shown no more."""
SCHEDULE_SECONDS = 5.0
"""How often the object store is asked who runs what."""


class LiveRuns:
    """Used on one event loop."""

    def __init__(self, jobs: JobLog, log: LogView, store: ObjectStore, clock: Clock) -> None:
        self._jobs = jobs
        self._log = log
        self._store = store
        self._clock = clock
        self._latest: list[JobRun] = []
        self._end = -1
        """Where `_jobs` ended when it was read."""
        self._running: list[RunningJob] = []
        self._asked_at = float("-inf")

    async def latest(self) -> Sequence[JobRun]:
        """Gives the latest run of each job; read again once there are others. What cannot be read now is as before."""
        try:
            end = self._log.topic(names.JOBS_TOPIC).partitions[0].bounds().high_watermark
            if end != self._end:
                runs, _ = await self._jobs.runs(job=None, before=end, limit=RUNS_LOOKED_AT)
                found: dict[str, JobRun] = {}
                for run in runs:
                    if not run.dry_run:
                        found.setdefault(run.job, run)
                self._latest, self._end = [found[job] for job in sorted(found)], end
        except UnknownTopic:
            self._latest = []
        except SiltlogError:
            return self._latest
        return self._latest

    async def running(self) -> Sequence[RunningJob]:
        """Gives the runs of the schedule that are under way, as of some seconds ago."""
        now = self._clock.monotonic()
        if now - self._asked_at >= SCHEDULE_SECONDS:
            self._asked_at = now
            try:
                self._running = await asyncio.to_thread(self._read)
            except SiltlogError:
                return self._running
        return self._running

    def _read(self) -> list[RunningJob]:
        newest = newest_entry(self._store)
        if newest is None:
            return []
        _, entry, written_ms = newest
        if not entry.is_held(written_ms, self._clock.now_us()):
            return []
        return [
            RunningJob(
                job,
                state.run_id,
                format_us(state.running_since_us),
                "hand" if state.by_hand else "schedule",
                entry.runner,
            )
            for job, state in sorted(entry.jobs.items())
            if state.running_since_us is not None
        ]
