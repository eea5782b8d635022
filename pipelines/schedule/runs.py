"""Runs of jobs, as the records of `_jobs` keep them."""

from collections.abc import Mapping
from typing import Annotated, Literal, get_args

import msgspec

from siltlog.infra.clock import parse_us

Job = Literal[
    "compact", "retain", "vacuum", "audit", "replay", "export", "import", "backup", "restore", "erase", "catalog"
]
JOBS: tuple[str, ...] = get_args(Job)
CATALOG = "catalog"
SCHEDULED = ("compact", "retain", "vacuum", "audit", CATALOG)
"""The jobs that a schedule may have."""
Outcome = Literal["succeeded", "failed", "found_wrong", "interrupted"]
"""`found_wrong`: the job did its work, and that is what it found (audit)."""
Trigger = Literal["hand", "schedule"]
"""What began a run: somebody, by a command or by asking the schedule for it, or a time of the schedule."""
COMPACT = "compact"
LANES = {COMPACT: "Spark", "audit": "everything is read", CATALOG: "a catalog is asked"}
"""The lanes of the long jobs: one job of each lane runs at a time. A job without a lane is quick, and waits for none of
them."""
COMMANDS = {CATALOG: ("catalog", "register")}
"""The commands of jobs that are not called as the job is."""
NICENESS_MAX = 10
"""Each of a job's threads has a tenth of the share of one of a server where processors are short. With 19 it would be a
seventieth: then a start takes minutes, and files come faster than they are merged."""
TOPICS_MAX = 1_000
COUNTS_MAX = 32
ERROR_CHARS_MAX = 2_000
Text = Annotated[str, msgspec.Meta(max_length=ERROR_CHARS_MAX)]
Topic = Annotated[str, msgspec.Meta(max_length=196)]
Counts = Annotated[
    dict[Annotated[str, msgspec.Meta(min_length=1, max_length=64)], Annotated[int, msgspec.Meta(ge=0)]],
    msgspec.Meta(max_length=COUNTS_MAX),
]
"""Counts of what was done (of a dry run: would be), such as `files`, `rows`, `size_bytes`."""


class TopicRun(msgspec.Struct, forbid_unknown_fields=True):
    """What a run did to one topic."""

    topic: Topic
    done: Counts = {}
    error: Text | None = None


class JobRunRequest(msgspec.Struct, forbid_unknown_fields=True):
    """One run of a job that has ended. Times are RFC 3339 or milliseconds; `topics` empty: every topic."""

    run_id: Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$")]
    job: Job
    outcome: Outcome
    started_at: str | int
    ended_at: str | int
    topics: Annotated[list[Topic], msgspec.Meta(max_length=TOPICS_MAX)] = []
    dry_run: bool = False
    trigger: Trigger = "hand"
    done: Counts = {}
    """Counts over all topics."""
    results: Annotated[list[TopicRun], msgspec.Meta(max_length=TOPICS_MAX)] = []
    """One for each topic where something was done, or failed."""
    error: Text | None = None
    cluster_id: str = ""
    """Id of the log that the job worked on, where it knows it: a server of another one refuses the run."""


def times_of(run: JobRunRequest) -> tuple[int, int]:
    """Reads when it began and ended, in microseconds. Raises ValueError with a sentence for the caller."""
    started_us, ended_us = parse_us(str(run.started_at)), parse_us(str(run.ended_at))
    if ended_us < started_us:
        raise ValueError("ended_at is before started_at")
    return started_us, ended_us


def summed(results: "list[TopicRun]") -> dict[str, int]:
    """Adds up what was done over all topics."""
    done: dict[str, int] = {}
    for result in results:
        for name, count in result.done.items():
            done[name] = done.get(name, 0) + count
    return done


def topic_run(topic: str, done: Mapping[str, int], error: str | None) -> TopicRun:
    """Makes a TopicRun, without counts that are 0."""
    return TopicRun(
        topic,
        {name: count for name, count in done.items() if count},
        None if error is None else error[:ERROR_CHARS_MAX],
    )


def command_of(job: str) -> tuple[str, ...]:
    """The words of the command that does a job, without `silt`."""
    return COMMANDS.get(job, (job,))
