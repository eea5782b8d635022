"""`_jobs`: what runs of jobs did, as records of a topic, and what of it metrics show."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from siltlog.consumers.dead_letters.record import Stored
from siltlog.consumers.reading.fetch import Fetcher
from siltlog.consumers.reading.view import LogView, SystemLog
from siltlog.infra import names, producer_names
from siltlog.infra.clock import MICROS_PER_SECOND, format_us, parse_us
from siltlog.infra.errors import SiltlogError, UnknownTopic, problem
from siltlog.infra.metrics import catalogue
from siltlog.infra.metrics.metrics import Metrics
from siltlog.infra.records import NewRecord
from siltlog.infra.settings.topic_config import Value
from siltlog.infra.telemetry import Logger
from siltlog.pipelines.schedule.runs import JobRunRequest, TopicRun, times_of
from siltlog.server.topic_reading import stored_in

DAY_MS = 86_400_000
CONFIG: Mapping[str, Value] = {
    "acks": "wal",
    "retention.ms": 90 * DAY_MS,
    # A few records an hour: a file for each would be work for the jobs that it tells of.
    "flush.ms": 600_000,
}
LOOK_RECORDS = 500
"""Read at once, from the newest back."""
LOOK_RECORDS_MAX = 10_000
"""Runs that are looked through for those of one job, before the list goes on with the next page."""
RESTORED_RUNS = 10_000
"""At a start: jobs that run every few minutes have thousands of runs since the last of one that runs each week."""


class StoredRun(msgspec.Struct):
    """The value of a record; times are RFC 3339. Open: records outlive versions."""

    run_id: str
    job: str
    outcome: str
    started_at: str
    ended_at: str
    trigger: str = "hand"
    dry_run: bool = False
    topics: list[str] = []
    """The topics that the job was given; empty: every topic."""
    done: dict[str, int] = {}
    """Counts over all topics: `files`, `rows`, `size_bytes` and what else a job counts."""
    results: list[TopicRun] = []
    """One for each topic where something was done, or failed."""
    error: str | None = None


class JobRun(StoredRun, kw_only=True):
    """A run, and where it is in `_jobs`."""

    offset: int


_decoder = msgspec.json.Decoder(StoredRun)


@dataclass(frozen=True, slots=True)
class Recorded:
    """Where a run is; `offset` is None where it was there before."""

    offset: int | None
    duplicate: bool


class JobLog:
    """Used on one event loop."""

    def __init__(self, log: LogView, fetcher: Fetcher, system: SystemLog, cluster_id: str, logger: Logger) -> None:
        """`fetcher` reads for this server itself."""
        self._log = log
        self._fetcher = fetcher
        self._system = system
        self._cluster_id = cluster_id
        self._logger = logger
        self._runs: Counter[tuple[str, str]] = Counter()
        self._success_us: dict[str, int] = {}
        self._took_us: dict[str, int] = {}

    def show(self, metrics: Metrics) -> None:
        """Registers what metrics show of the runs."""
        metrics.counts(
            catalogue.JOB_RUNS,
            lambda: list(self._runs.items()),
        )
        metrics.gauges(
            catalogue.JOB_SUCCESS,
            lambda: [((job,), micros / MICROS_PER_SECOND) for job, micros in list(self._success_us.items())],
        )
        metrics.gauges(
            catalogue.JOB_SECONDS,
            lambda: [((job,), micros / MICROS_PER_SECOND) for job, micros in list(self._took_us.items())],
        )

    async def record(self, run: JobRunRequest) -> Recorded:
        """Appends it to `_jobs`, once however often it is called with the same `run_id`.

        Raises Refused `invalid_request` for times that are none and for a run on another log, and what a publish does.
        """
        if run.cluster_id and run.cluster_id != self._cluster_id:
            raise problem(
                "invalid_request",
                f"the run worked on the tables of the log {run.cluster_id[:80]}, and this server serves "
                f"{self._cluster_id}: tell it to the server of that log",
                cluster_id=self._cluster_id,
            )
        try:
            started_us, ended_us = times_of(run)
        except ValueError as error:
            raise problem("invalid_request", str(error)) from None
        stored = StoredRun(
            run.run_id,
            run.job,
            run.outcome,
            format_us(started_us),
            format_us(ended_us),
            run.trigger,
            run.dry_run,
            run.topics,
            run.done,
            run.results,
            run.error,
        )
        await self._system.ensure(names.JOBS_TOPIC, 1, CONFIG)
        record = NewRecord(run.job.encode(), msgspec.json.encode(stored))
        producer_id = producer_names.job_producer(run.run_id)
        [offset] = await self._system.append(names.JOBS_TOPIC, 0, [record], producer_id=producer_id, sequences=[0])
        if offset is not None and not run.dry_run:
            self._runs[run.job, run.outcome] += 1
            self._show(stored.job, stored.outcome, started_us, ended_us)
        return Recorded(offset, offset is None)

    async def runs(self, *, job: str | None, before: int | None, limit: int) -> tuple[list[JobRun], int | None]:
        """Runs below the offset `before`, newest first, and where the next page begins (None: there is none).

        A page may have fewer than `limit`, or none, and be followed by others. Raises what a read raises.
        """
        try:
            topic = self._log.topic(names.JOBS_TOPIC)
        except UnknownTopic:
            return [], None
        bounds = topic.partitions[0].bounds()
        end = bounds.high_watermark if before is None else min(before, bounds.high_watermark)
        found: list[JobRun] = []
        looked = 0
        while end > bounds.log_start_offset and looked < LOOK_RECORDS_MAX:
            first = max(bounds.log_start_offset, end - (LOOK_RECORDS if job else min(limit, LOOK_RECORDS)))
            read = [_run(record) for record in await stored_in(self._fetcher, topic, first, end)]
            looked += end - first
            for run in reversed(read):
                if job in (None, run.job):
                    found.append(run)
                    if len(found) == limit:
                        return found, run.offset if run.offset > bounds.log_start_offset else None
            end = first
        return found, end if end > bounds.log_start_offset else None

    async def find(self, job: str, run_id: str) -> JobRun | None:
        """Finds a run among the newest; None where it is not there, or none of the last RESTORED_RUNS of all jobs.
        Raises what a read raises."""
        before: int | None = None
        looked = 0
        while looked < RESTORED_RUNS:
            runs, following = await self.runs(job=job, before=before, limit=LOOK_RECORDS)
            found = next((run for run in runs if run.run_id == run_id), None)
            if found is not None or following is None:
                return found
            looked += LOOK_RECORDS if before is None else before - following
            before = following
        return None

    async def restore(self) -> None:
        """Learns from what is in `_jobs` when each job last succeeded, for metrics; without it they show less."""
        try:
            before: int | None = None
            looked = 0
            while looked < RESTORED_RUNS:
                runs, before = await self.runs(job=None, before=before, limit=LOOK_RECORDS)
                looked += len(runs)
                for run in runs:
                    self._restore(run)
                if before is None:
                    return
        except SiltlogError as error:
            self._logger.warning("runs of jobs before this start are not in the metrics", reason=error.detail)

    def _restore(self, run: JobRun) -> None:
        if run.dry_run:
            return
        started_us, ended_us = parse_us(run.started_at), parse_us(run.ended_at)
        if run.outcome != "interrupted":
            self._took_us.setdefault(run.job, ended_us - started_us)
        if run.outcome in ("succeeded", "found_wrong"):
            self._success_us.setdefault(run.job, ended_us)

    def _show(self, job: str, outcome: str, started_us: int, ended_us: int) -> None:
        if outcome != "interrupted":
            self._took_us[job] = ended_us - started_us
        if outcome in ("succeeded", "found_wrong"):
            self._success_us[job] = max(ended_us, self._success_us.get(job, 0))


def _run(record: Stored) -> JobRun:
    try:
        run = _decoder.decode(record.value or b"")
    except msgspec.DecodeError as error:
        raise problem(
            "corrupt_data",
            f"the record at offset {record.offset} of {names.JOBS_TOPIC} is no run of a job: {error}",
            topic=names.JOBS_TOPIC,
            partition=0,
            first_offset=record.offset,
            last_offset=record.offset,
        ) from error
    return JobRun(**msgspec.structs.asdict(run), offset=record.offset)
