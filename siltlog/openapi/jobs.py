"""Runs of jobs and their schedule: what the document says of them."""

from siltlog.openapi import shapes
from siltlog.openapi.operation import Operation, choice, cut, json_body, json_reply, query
from siltlog.pipelines.schedule.runs import JOBS, JobRunRequest

_EXAMPLE = {
    "run_id": "0b9f6c1e-6a43-4c62-9a53-0e6f8f7f4c11",
    "job": "retain",
    "outcome": "succeeded",
    "started_at": "2026-11-21T07:36:00.000000Z",
    "ended_at": "2026-11-21T07:36:01.250000Z",
    "done": {"files": 12, "rows": 34_567, "size_bytes": 8_901_234},
    "results": [{"topic": "flights", "done": {"files": 12, "rows": 34_567, "size_bytes": 8_901_234}}],
}

OPERATIONS = (
    Operation(
        "GET",
        "/v1/jobs",
        "listJobRuns",
        "Jobs",
        "List runs of jobs, the newest first",
        "What is in the topic `_jobs`. A page may have fewer runs than `limit` and be followed by others.",
        {200: json_reply("Runs.", shapes.JobRuns)},
        (
            query("job", "Only runs of this job.", choice(*JOBS)),
            query(
                "after",
                "Only what follows this place: the last reply's `next`.",
                {"type": "string", "pattern": "^[0-9]+$"},
            ),
            query("limit", "How many at most; more than 1,000 is cut.", cut(1, 100)),
        ),
        errors=("not_acceptable", "corrupt_data", "topic_unavailable", "store_denied"),
    ),
    Operation(
        "POST",
        "/v1/jobs",
        "recordJobRun",
        "Jobs",
        "Tell of a run of a job that has ended",
        "What `silt compact` and the other jobs do at their end. Appended to the topic `_jobs`, once for a `run_id` "
        "however often it is sent.",
        {200: json_reply("It is durable.", shapes.JobRecorded)},
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
    ),
    Operation(
        "GET",
        "/v1/schedule",
        "describeSchedule",
        "Jobs",
        "When jobs run next",
        "As the process that runs the schedule of this log last said: this server, another one, or `silt schedule`.",
        {200: json_reply("The schedule.", shapes.Schedule)},
        errors=("not_acceptable", "topic_unavailable", "store_denied"),
    ),
)
