"""Tells the server what a job did, which keeps it in `_jobs`; without a server the job is done all the same."""

import sys
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from siltlog.cli.session import Session, needs
from siltlog.infra import names
from siltlog.infra.client import job_calls
from siltlog.infra.client.address import run_trigger, scheduled_run
from siltlog.infra.client.endpoints import Endpoints
from siltlog.infra.client.transport import Caller
from siltlog.infra.clock import Clock, SystemClock, format_us
from siltlog.infra.errors import SiltlogError
from siltlog.infra.redaction import redacted

if TYPE_CHECKING:
    from siltlog.infra.settings.settings import ServerSettings
    from siltlog.pipelines.schedule.runs import Outcome, TopicRun

TELL_MS = 5_000
"""How long a server that was named, and is away, is waited for."""
UNREACHABLE = "unreachable"


class Recording:
    """One run of a job, while it lasts. `took` and `found_wrong` say how it went."""

    def __init__(self) -> None:
        self.results: list[TopicRun] = []
        self.outcome: Outcome = "succeeded"
        self.error: str | None = None

    def took(self, topic: str, error: SiltlogError | None = None, /, **done: int) -> None:
        """Notes what was done to a topic: `files`, `rows`, `size_bytes` and other counts; `error` is why it failed."""
        from siltlog.pipelines.schedule.runs import topic_run

        self.results.append(topic_run(topic, done, None if error is None else redacted(error.detail)))
        if error is not None:
            self.outcome = "failed"
            self.error = self.error or f"{topic}: {error.detail}"

    def found_wrong(self, what: str) -> None:
        """The job did its work, and found that something is wrong."""
        self.outcome, self.error = "found_wrong", what


@contextmanager
def recorded(
    session: Session,
    settings: "ServerSettings | None",
    job: str,
    topics: Sequence[str],
    dry_run: bool,
    clock: Clock | None = None,
) -> Iterator[Recording]:
    """Around the work of a job: when it ends, however it does, its run is told to the server.

    `topics` are read when it ends. `settings` say which tables it works on; None where it knows them only through that
    server. Where none answers that is said once on standard error.
    """
    clock = clock or SystemClock()
    recording = Recording()
    started_us = clock.now_us()
    reached = True
    ended = False
    try:
        yield recording
        ended = True
    except Exception as error:
        recording.outcome, ended = "failed", True
        if isinstance(error, SiltlogError):
            recording.error = error.detail
            reached = error.error_code != UNREACHABLE
        else:
            recording.error = f"{type(error).__name__}: {error}"
        raise
    finally:
        # Not by a handler: another Ctrl-C may come before it has noted the first.
        if not ended:
            recording.outcome = "interrupted"
        # What failed for want of a server says so itself.
        if reached:
            run = _run_of(recording, job, topics, dry_run, started_us, max(started_us, clock.now_us()))
            _tell(session, settings, run, clock)


def _run_of(
    recording: Recording, job: str, topics: Sequence[str], dry_run: bool, started_us: int, ended_us: int
) -> dict[str, Any]:
    with needs("server", f"silt {job}"):
        from siltlog.pipelines.schedule.runs import ERROR_CHARS_MAX, TOPICS_MAX, summed
    said = [result for result in recording.results if result.done or result.error is not None]
    return {
        "run_id": scheduled_run() or str(uuid.uuid4()),
        "job": job,
        "outcome": recording.outcome,
        "started_at": format_us(started_us),
        "ended_at": format_us(ended_us),
        "topics": list(topics)[:TOPICS_MAX],
        "dry_run": dry_run,
        "trigger": run_trigger(),
        "done": summed(said),
        "results": sorted(said, key=lambda result: result.error is None)[:TOPICS_MAX],
        "error": None if recording.error is None else redacted(recording.error)[:ERROR_CHARS_MAX],
    }


def _tell(session: Session, settings: "ServerSettings | None", run: dict[str, Any], clock: Clock) -> None:
    run["cluster_id"] = "" if settings is None else cluster_id_of(settings)
    if settings is not None and run["cluster_id"] is None:
        _not_kept(f"no server has served {settings.root_uri} yet")
        return
    waited_ms = 0 if session.url == names.DEFAULT_URL or run["outcome"] == "interrupted" else TELL_MS
    transport = None
    try:
        transport = session.transport()
        Caller(Endpoints(session.url), transport, clock, retry_timeout_ms=waited_ms).run(job_calls.record_job(run))
    except SiltlogError as error:
        why = f"no server answers at {session.url}" if error.error_code == UNREACHABLE else error.detail
        _not_kept(f"{why}; --url or {names.ENV_URL} says where the server of these tables is")
    finally:
        if transport is not None:
            transport.close()


def _not_kept(why: str) -> None:
    print(f"silt: this run is not kept in {names.JOBS_TOPIC}: {why}", file=sys.stderr)


def cluster_id_of(settings: "ServerSettings") -> str | None:
    """Reads the id of the log whose tables these are; None where no server made one yet, empty where it is unknown."""
    from siltlog.pipelines.topics import other_store

    try:
        store = other_store(settings, settings.root_uri, make=False)
        return None if store is None else _first_line(store.get(names.CLUSTER_ID_OBJECT))
    except FileNotFoundError:
        return None
    except SiltlogError:
        return ""


def _first_line(content: bytes) -> str:
    return content.decode("utf-8", "replace").partition("\n")[0]
