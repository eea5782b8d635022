"""`/v1/jobs` and `/v1/schedule`: what jobs did, and when they run next."""

import asyncio
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from siltlog.infra import names
from siltlog.infra.clock import Clock, format_us
from siltlog.infra.cron import Cron
from siltlog.infra.errors import problem
from siltlog.infra.http.media import chosen_media
from siltlog.infra.http.requests import Query, body_of, decode, json_reply, whole_number
from siltlog.infra.store.store import ObjectStore
from siltlog.pipelines.schedule.lease import JobState, LeaseEntry, newest_entry
from siltlog.pipelines.schedule.runs import JOBS, JobRunRequest
from siltlog.server.job_log import JobLog

BODY_BYTES_MAX = 4 * 1024 * 1024
LIMIT_DEFAULT = 100
LIMIT_MAX = 1_000
LEASES_SILENT_MAX = 2
"""A runner that has said nothing for so many of its leases is gone; the clock of an object store may be another."""
_decoder = msgspec.json.Decoder(JobRunRequest)


class JobsHttp:
    def __init__(self, jobs: JobLog, store: ObjectStore, clock: Clock) -> None:
        self._jobs = jobs
        self._store = store
        self._clock = clock

    def routes(self) -> list[Route]:
        return [
            Route("/v1/jobs", self.list, methods=["GET"]),
            Route("/v1/jobs", self.record, methods=["POST"]),
            Route("/v1/schedule", self.schedule, methods=["GET"]),
        ]

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

    async def record(self, request: Request) -> Response:
        Query(request, ())
        chosen_media(request.headers.get("accept", ""), (names.MEDIA_JSON,))
        run = decode(await body_of(request, BODY_BYTES_MAX), _decoder)
        recorded = await self._jobs.record(run)
        return json_reply({"run_id": run.run_id, "offset": recorded.offset, "duplicate": recorded.duplicate})

    async def schedule(self, request: Request) -> Response:
        """What the newest runner says of itself, wherever it runs."""
        Query(request, ())
        chosen_media(request.headers.get("accept", ""), (names.MEDIA_JSON,))
        newest = await asyncio.to_thread(newest_entry, self._store)
        now_us = self._clock.now_us()
        if newest is None:
            return json_reply({"runner": None, "jobs": []})
        _, entry, written_ms = newest
        alive = now_us // 1000 - written_ms < LEASES_SILENT_MAX * entry.lease_ms
        return json_reply(schedule_document(entry, alive=alive, now_us=now_us))


def schedule_document(entry: LeaseEntry, *, alive: bool, now_us: int) -> dict[str, Any]:
    """`next_at` is null where nobody is there to run it."""
    runner = entry.runner if alive and entry.holder else None
    return {
        "runner": runner,
        "jobs": [_job(job, state, runner is not None, now_us) for job, state in entry.jobs.items()],
    }


def _job(job: str, state: JobState, alive: bool, now_us: int) -> dict[str, Any]:
    next_us = Cron(state.cron).next_us(now_us) if alive else None
    running = alive and state.running_since_us is not None
    return {
        "job": job,
        "cron": state.cron,
        "next_at": None if next_us is None else format_us(next_us),
        "running_since": format_us(state.running_since_us) if running and state.running_since_us else None,
        "unavailable": state.unavailable,
    }
