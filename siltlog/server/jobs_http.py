"""`/v1/jobs` and `/v1/schedule`: what jobs did, and when they run next."""

import asyncio
from typing import Annotated, get_args

import msgspec
from msgspec import Meta
from starlette.requests import Request
from starlette.responses import Response

from siltlog.infra import names
from siltlog.infra.clock import Clock, format_us
from siltlog.infra.errors import problem
from siltlog.infra.http.answers import Time, Whole
from siltlog.infra.http.media import chosen_media
from siltlog.infra.http.operations import choice, cut, in_query, json_answer, json_body, on_cluster, operation
from siltlog.infra.http.query import Query
from siltlog.infra.http.requests import body_of, decode, json_reply
from siltlog.infra.limits import whole_number
from siltlog.infra.settings.cron import Cron
from siltlog.infra.store.store import ObjectStore
from siltlog.pipelines.schedule.lease import JobState, LeaseEntry, newest_entry
from siltlog.pipelines.schedule.runs import JOBS, JobRunRequest, Outcome, Trigger
from siltlog.server.job_log import JobLog

BODY_BYTES_MAX = 4 * 1024 * 1024
LIMIT_DEFAULT = 100
LIMIT_MAX = 1_000
_decoder = msgspec.json.Decoder(JobRunRequest)


class JobTopic(msgspec.Struct):
    """What a run did to one topic."""

    topic: str
    done: dict[str, Whole]
    error: str | None


class JobRun(msgspec.Struct):
    """A run of a job that has ended. `topics` empty: every topic; `results` are of those where something was done."""

    offset: Annotated[int, Meta(ge=0, description="Where it is in the topic `_jobs`")]
    run_id: str
    job: str
    outcome: Annotated[str, Meta(extra_json_schema={"x-extensible-enum": list(get_args(Outcome))})]
    started_at: Time
    ended_at: Time
    trigger: Annotated[str, Meta(extra_json_schema={"x-extensible-enum": list(get_args(Trigger))})]
    dry_run: bool
    topics: list[str]
    done: dict[str, Whole]
    results: list[JobTopic]
    error: str | None


class JobRuns(msgspec.Struct):
    jobs: list[JobRun]
    next: str | None


class JobRecorded(msgspec.Struct):
    """`offset` is null where the run was there before."""

    run_id: str
    offset: Whole | None
    duplicate: bool


class ScheduledJob(msgspec.Struct):
    """`next_at` is null where nobody is there to run it; `unavailable` says why its last time passed without a run."""

    job: str
    cron: Annotated[str, Meta(description="In UTC")]
    next_at: Time | None
    running_since: Time | None
    run_id: Annotated[str | None, Meta(description="Of the run that is under way")]
    unavailable: str | None


class Schedule(msgspec.Struct):
    """`runner` is null where nobody runs it."""

    runner: str | None
    jobs: list[ScheduledJob]


_EXAMPLE = {
    "run_id": "0b9f6c1e-6a43-4c62-9a53-0e6f8f7f4c11",
    "job": "retain",
    "outcome": "succeeded",
    "started_at": "2026-11-21T07:36:00.000000Z",
    "ended_at": "2026-11-21T07:36:01.250000Z",
    "done": {"files": 12, "rows": 34_567, "size_bytes": 8_901_234},
    "results": [{"topic": "flights", "done": {"files": 12, "rows": 34_567, "size_bytes": 8_901_234}}],
}


class JobsHttp:
    def __init__(self, jobs: JobLog, store: ObjectStore, clock: Clock) -> None:
        self._jobs = jobs
        self._store = store
        self._clock = clock

    @operation(
        "GET",
        "/v1/jobs",
        "listJobRuns",
        "Jobs",
        "List runs of jobs, the newest first",
        "What is in the topic `_jobs`. A page may have fewer runs than `limit` and be followed by others.",
        access=on_cluster("describe"),
        replies={200: json_answer("Runs.", JobRuns)},
        parameters=(
            in_query("job", "Only runs of this job.", choice(*JOBS)),
            in_query(
                "after",
                "Only what follows this place: the last reply's `next`.",
                {"type": "string", "pattern": "^[0-9]+$"},
            ),
            in_query("limit", "How many at most; more than 1,000 is cut.", cut(1, 100)),
        ),
        errors=("not_acceptable", "corrupt_data", "topic_unavailable", "store_denied"),
    )
    async def list(self, request: Request) -> Response:
        query = Query(request, ("job", "after", "limit"))
        chosen_media(request.headers.get("accept", ""), (names.MEDIA_JSON,))
        limit = query.integer("limit", LIMIT_DEFAULT, minimum=1, maximum=LIMIT_MAX, cut=True)
        job = query.choice("job", JOBS, "") if "job" in query else None
        before = None
        if "after" in query and (before := whole_number(query.text("after"))) is None:
            raise problem(
                "invalid_parameter", "after is not what the last reply gave as its next; send that", parameter="after"
            )
        runs, following = await self._jobs.runs(job=job, before=before, limit=limit)
        return json_reply({"jobs": runs, "next": None if following is None else str(following)})

    @operation(
        "POST",
        "/v1/jobs",
        "recordJobRun",
        "Jobs",
        "Tell of a run of a job that has ended",
        "What `silt compact` and the other jobs do at their end. Appended to the topic `_jobs`, once for a `run_id` "
        "however often it is sent.",
        access=on_cluster("write"),
        replies={200: json_answer("It is durable.", JobRecorded)},
        body=json_body(JobRunRequest, _EXAMPLE),
        errors=(
            *("malformed_body", "request_timeout", "request_too_large", "invalid_request", "not_acceptable"),
            *(
                "shutting_down",
                "topic_unavailable",
                "store_denied",
                "overloaded",
                "wal_full",
                "disk_full",
                "ack_timeout",
            ),
        ),
    )
    async def record(self, request: Request) -> Response:
        Query(request, ())
        chosen_media(request.headers.get("accept", ""), (names.MEDIA_JSON,))
        run = decode(await body_of(request, BODY_BYTES_MAX), _decoder)
        recorded = await self._jobs.record(run)
        return json_reply(JobRecorded(run.run_id, recorded.offset, recorded.duplicate))

    @operation(
        "GET",
        "/v1/schedule",
        "describeSchedule",
        "Jobs",
        "When jobs run next",
        "As the process that runs the schedule of this log last said: this server, another one, or `silt schedule`.",
        access=on_cluster("describe"),
        replies={200: json_answer("The schedule.", Schedule)},
        errors=("not_acceptable", "topic_unavailable", "store_denied"),
    )
    async def schedule(self, request: Request) -> Response:
        """Answers what the newest runner says of itself, wherever it runs."""
        Query(request, ())
        chosen_media(request.headers.get("accept", ""), (names.MEDIA_JSON,))
        newest = await asyncio.to_thread(newest_entry, self._store)
        now_us = self._clock.now_us()
        if newest is None:
            return json_reply(Schedule(None, []))
        _, entry, written_ms = newest
        return json_reply(_schedule(entry, held=entry.is_held(written_ms, now_us), now_us=now_us))


def _schedule(entry: LeaseEntry, *, held: bool, now_us: int) -> Schedule:
    """`next_at` is null where nobody is there to run it."""
    runner = entry.runner if held else None
    return Schedule(runner, [_job(job, state, runner is not None, now_us) for job, state in entry.jobs.items()])


def _job(job: str, state: JobState, alive: bool, now_us: int) -> ScheduledJob:
    next_us = Cron(state.cron).next_us(now_us) if alive else None
    running = alive and state.running_since_us is not None
    return ScheduledJob(
        job=job,
        cron=state.cron,
        next_at=None if next_us is None else format_us(next_us),
        running_since=format_us(state.running_since_us) if running and state.running_since_us else None,
        run_id=state.run_id if running else None,
        unavailable=state.unavailable,
    )
