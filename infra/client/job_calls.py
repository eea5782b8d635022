"""A client's calls about jobs, their runs and their schedule, without IO; driven as those of `calls.py` are."""

from collections.abc import Mapping
from typing import Any

from siltlog.infra.client.calls import PAGE, Call, Document, document_of, path_part
from siltlog.infra.client.core import json_request

RUN_TIMEOUT_MS = 40_000
"""What runs the schedule may be waiting for the object store, or for a job to end."""


def jobs(job: str | None, limit: int) -> Call[list[Document]]:
    """The newest `limit` runs, of one job or of all, newest first."""
    found: list[Document] = []
    after = None
    while len(found) < limit:
        query = {"job": job, "after": after, "limit": min(limit - len(found), PAGE)}
        page = yield from document_of("GET", "/v1/jobs", query=query)
        found += page["jobs"]
        after = page["next"]
        if after is None:
            break
    return found


def record_job(run: Mapping[str, Any]) -> Call[Document]:
    """Tells of a run that has ended; it is there once, however often it is told."""
    reply = yield json_request("POST", "/v1/jobs", dict(run), repeatable=True)
    found: Document = reply.json()
    return found


def schedule() -> Call[Document]:
    return document_of("GET", "/v1/schedule")


def begin_job(job: str) -> Call[Document]:
    reply = yield json_request("POST", runs_path(job), read_timeout_ms=RUN_TIMEOUT_MS)
    document: Document = reply.json()
    return document


def stop_job(job: str, run_id: str) -> Call[Document]:
    # Not sent again after it may have arrived: a run that it stopped would be told of as one that had ended before.
    reply = yield json_request(
        "DELETE", f"{runs_path(job)}/{path_part(run_id)}", read_timeout_ms=RUN_TIMEOUT_MS, repeatable=False
    )
    document: Document = reply.json()
    return document


def runs_path(job: str) -> str:
    return f"/v1/jobs/{path_part(job)}/runs"
