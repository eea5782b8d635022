"""`/v1/jobs/{job}/runs`: a job of the schedule begins now, or a run of it ends."""

from typing import Annotated, NoReturn, get_args

import msgspec
from msgspec import Meta
from starlette.requests import Request
from starlette.responses import Response

from siltlog.infra import names
from siltlog.infra.errors import SiltlogError, problem
from siltlog.infra.http.media import chosen_media
from siltlog.infra.http.operations import choice, in_path, json_answer, on_cluster, operation
from siltlog.infra.http.query import Query
from siltlog.infra.http.requests import json_reply
from siltlog.pipelines.schedule.runs import SCHEDULED, Outcome
from siltlog.server.control.job_runs import JobRuns
from siltlog.server.job_log import JobLog

RUN_CHARS_MAX = 200
"""How many characters are repeated of an id that is no run's."""
_JOB = in_path("job", "A job of the schedule.", choice(*SCHEDULED), "retain")
_RUN = in_path("run_id", "The id of the run.", example="0b9f6c1e-6a43-4c62-9a53-0e6f8f7f4c11")
_AWAY = ("schedule_unavailable", "shutting_down", "topic_unavailable", "store_denied", "ack_timeout")
"""Errors of asking the server that runs the schedule."""


class JobBegun(msgspec.Struct):
    run_id: Annotated[str, Meta(description="Of the run in `GET /v1/schedule` while it lasts, then in `GET /v1/jobs`")]
    job: str


class JobStopped(msgspec.Struct):
    run_id: str
    job: str
    outcome: Annotated[
        str,
        Meta(
            description="`interrupted`, unless it came to its end meanwhile",
            extra_json_schema={"x-extensible-enum": list(get_args(Outcome))},
        ),
    ]


class JobRunsHttp:
    def __init__(self, runs: JobRuns, log: JobLog) -> None:
        self._runs = runs
        self._log = log

    @operation(
        "POST",
        "/v1/jobs/{job}/runs",
        "beginJobRun",
        "Jobs",
        "Run a job of the schedule now",
        "Where the schedule is run, as at its time: the same process, limits and log. Answered once it is written down "
        "that it begins, so the run is in `_jobs` however it ends; its `trigger` is `hand`. The times of its schedule "
        "up to now come to this run. Refused while the job runs already, or one that it waits for.",
        access=on_cluster("alter"),
        replies={202: json_answer("It begins.", JobBegun)},
        parameters=(_JOB,),
        errors=("not_found", "not_acceptable", "job_running", "job_unavailable", "disk_full", *_AWAY),
        changes="in_path",
    )
    async def begin(self, request: Request) -> Response:
        job = _asked(request)
        run_id = await self._runs.begin(job)
        return json_reply(JobBegun(run_id, job), status=202)

    @operation(
        "DELETE",
        "/v1/jobs/{job}/runs/{run_id}",
        "stopJobRun",
        "Jobs",
        "Stop a run of a job of the schedule",
        "One that a time of the schedule began, too. Answered once it has ended: it gets five seconds, then it is "
        "killed. What it committed stays, and the job is not run again before its next time.",
        access=on_cluster("alter"),
        replies={200: json_answer("It has ended.", JobStopped)},
        parameters=(_JOB, _RUN),
        errors=("not_found", "not_acceptable", "unknown_run", "run_ended", "job_unavailable", "corrupt_data", *_AWAY),
        changes="in_path",
    )
    async def stop(self, request: Request) -> Response:
        job, run_id = _asked(request), request.path_params["run_id"]
        away: SiltlogError | None = None
        try:
            outcome = await self._runs.end(job, run_id)
        except SiltlogError as error:
            if error.error_code != "schedule_unavailable":
                raise
            # What has ended has, whoever runs the schedule.
            outcome, away = None, error
        if outcome is None:
            await self._tell_of(job, run_id, away)
        return json_reply(JobStopped(run_id, job, outcome))

    async def _tell_of(self, job: str, run_id: str, away: SiltlogError | None) -> NoReturn:
        """Says why there is nothing to stop."""
        ended = await self._log.find(job, run_id)
        if ended is not None:
            raise problem(
                "run_ended",
                f"the run {run_id} of {job} ended at {ended.ended_at}: {ended.outcome}",
                job=job,
                run_id=run_id,
                outcome=ended.outcome,
                ended_at=ended.ended_at,
            )
        if away is not None:
            raise away
        raise problem(
            "unknown_run",
            f"no run {run_id[:RUN_CHARS_MAX]} of {job} is under way in the schedule, nor in {names.JOBS_TOPIC}: GET "
            "/v1/schedule has those under way; one that was begun by a command is stopped where that runs",
            job=job,
        )


def _asked(request: Request) -> str:
    """The job that a path names. Raises Refused `not_found`."""
    Query(request, ())
    chosen_media(request.headers.get("accept", ""), (names.MEDIA_JSON,))
    job: str = request.path_params["job"]
    if job not in SCHEDULED:
        raise problem("not_found", f"{job[:RUN_CHARS_MAX]} is no job of the schedule; it has {', '.join(SCHEDULED)}")
    return job
