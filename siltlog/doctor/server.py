"""The server that runs, and who runs the jobs."""

from collections.abc import Iterator
from contextlib import closing
from typing import TYPE_CHECKING, Any

from siltlog.doctor.credentials import check_certificate, seconds_ahead
from siltlog.doctor.finding import Finding
from siltlog.doctor.readiness import readiness
from siltlog.infra.client import calls, job_calls
from siltlog.infra.client.core import ConnectionFailed
from siltlog.infra.client.credentials.authorized import open_transport
from siltlog.infra.client.credentials.credentials import Credentials
from siltlog.infra.client.endpoints import Endpoints
from siltlog.infra.client.transport import Caller, Transport
from siltlog.infra.clock import Clock, parse_us, stopwatch
from siltlog.infra.errors import Forbidden, SiltlogError, Unauthenticated
from siltlog.infra.store.costs import Requests, asked, month_of, stored_month
from siltlog.ingest.data_dir import holder_of

if TYPE_CHECKING:
    from siltlog.infra.settings.settings import ServerSettings

UPKEEP = ("compact", "retain", "vacuum", "audit", "backup", "catalog")
NEEDED = ("compact", "retain")
CLOCKS_SECONDS_MAX = 30.0
"""How far apart clocks may be for tokens to be judged as they were meant."""
BY_HAND_US = 24 * 3_600 * 1_000_000
"""How recently jobs must have run, without a schedule, to be somebody's: cron's."""
RUNS_LOOKED_AT = 10


def check_server(
    settings: "ServerSettings | None", url: str, clock: Clock, credentials: Credentials | None = None
) -> Iterator[Finding]:
    """Those at `url`, which may name several: each that does not answer is a finding, and one that does is asked about
    the rest. Where one is named alone and does not answer, the finding is whoever holds the data dir."""
    endpoints = Endpoints(url)
    answering: list[str] = []
    try:
        with closing(open_transport(endpoints, clock, credentials)) as transport:
            for one in endpoints.urls:
                try:
                    findings = list(_server(transport, endpoints, one, credentials, clock))
                except (ConnectionFailed, SiltlogError, ValueError) as error:
                    yield _unasked(settings, one, error, alone=len(endpoints.urls) == 1)
                    continue
                yield from findings
                answering.append(one)
            if answering:
                yield from _cluster(Caller(Endpoints(answering), transport, clock, retry_timeout_ms=0), clock)
    except (ConnectionFailed, SiltlogError, ValueError) as error:
        yield _unasked(settings, answering[0] if answering else url, error, alone=True)


def _server(
    transport: Transport, endpoints: Endpoints, url: str, credentials: Credentials | None, clock: Clock
) -> Iterator[Finding]:
    """What one server says of itself. Raises ConnectionFailed, SiltlogError or ValueError."""
    with stopwatch(clock) as seconds:
        _, reasons, warnings, date = readiness(transport, url)
    apart = seconds_ahead(date, clock.now_us())
    yield from check_certificate(endpoints, url, credentials, clock)
    yield _clocks(apart, url)
    yield from (Finding("server", "wrong", f"{url}: {reason}", "silt health") for reason in reasons)
    yield from (Finding("server", "warning", f"{url}: {warning}", "silt health") for warning in warnings)
    if not reasons and not warnings:
        yield Finding("server", "ok", f"{url} takes records; it answered in {seconds[0] * 1000:.0f} ms")


def _cluster(caller: Caller, clock: Clock) -> Iterator[Finding]:
    """What any server can tell: jobs, their schedule, costs. Raises ConnectionFailed, SiltlogError or ValueError."""
    schedule = caller.run(job_calls.schedule())
    latest = _latest(caller)
    cost = _cost(caller, clock)
    if isinstance(latest, SiltlogError):
        yield Finding("jobs", "wrong", f"what they did cannot be told: {latest}", "silt jobs")
        latest = {}
    yield cost
    yield from _schedule(schedule, latest, clock.now_us())


def _unasked(settings: "ServerSettings | None", url: str, error: Exception, *, alone: bool) -> Finding:
    """Why a server was not asked, or did not say; `alone`: no other was named."""
    if isinstance(error, Unauthenticated):
        return Finding("server", "wrong", f"{url}: {error.detail}", "silt login, or export SILT_TOKEN_FILE=…")
    if isinstance(error, Forbidden):
        return Finding("server", "warning", f"{url}: {error.detail}", "ask for the right to describe the cluster")
    if isinstance(error, ConnectionFailed) and error.error_code is not None:
        return Finding("server", "wrong", f"{url}: {error}", "silt health")
    if alone:
        return _away(settings, url, error)
    return Finding("server", "wrong", f"none answers at {url}: {error}", "silt serve, or leave it out of SILT_URL")


def _cost(caller: Caller, clock: Clock) -> Finding:
    """What the requests of the server, as often as it made them since its start, and all tables cost a month on S3."""
    told = asked(caller.run(calls.metrics()))
    rate = told.per_second(None, clock.now_us() / 1_000_000 - told.started_seconds) or Requests()
    stored = sum(topic["bytes"] for topic in caller.run(calls.topics(None)))
    said = f"on S3 a month takes ${month_of(rate):,.2f} for requests, as often as this server made them since its start"
    return Finding("cost", "ok", f"{said}, and ${stored_month(stored):,.2f} for what the tables have")


def _clocks(ahead: float | None, url: str) -> Finding:
    if ahead is None:
        return Finding("clock", "ok", f"{url} does not say its time")
    said = f"that of {url} is {abs(ahead):.0f} s {'ahead of' if ahead > 0 else 'behind'} ours"
    if abs(ahead) > CLOCKS_SECONDS_MAX:
        return Finding("clock", "warning", f"{said}: tokens seem expired, or not valid yet", "timedatectl set-ntp true")
    return Finding("clock", "ok", said)


def _away(settings: "ServerSettings | None", url: str, error: Exception) -> Finding:
    if settings is None:
        return Finding("server", "wrong", f"none answers at {url}", "export SILT_URL=…")
    holder = holder_of(settings.data_dir)
    if holder is None:
        return Finding("server", "warning", f"none answers at {url}", "silt serve")
    said = f"process {holder.pid} uses {settings.data_dir}, and {url} does not answer: {error}"
    elsewhere = holder.url and holder.url != url
    return Finding("server", "wrong", said, f"silt doctor --url {holder.url}" if elsewhere else f"kill {holder.pid}")


def _latest(caller: Caller) -> dict[str, Any] | SiltlogError:
    """Finds the last run of each job over all topics that came to an end; or the error that kept it from asking."""
    latest = {}
    try:
        for job in UPKEEP:
            runs = caller.run(job_calls.jobs(job, RUNS_LOOKED_AT))  # newest first
            ended = (
                run for run in runs if not run["dry_run"] and not run["topics"] and run["outcome"] != "interrupted"
            )
            if (run := next(ended, None)) is not None:
                latest[job] = run
    except SiltlogError as error:
        return error
    return latest


def _schedule(told: Any, latest: dict[str, Any], now_us: int) -> Iterator[Finding]:
    away = [f"{job['job']}: {job['unavailable']}" for job in told["jobs"] if job["unavailable"]]
    yield from (Finding("schedule", "warning", said, "silt jobs") for said in away)
    if told["runner"] is None:
        yield _without_schedule(latest, now_us)
    elif not away:
        yield Finding("schedule", "ok", f"run by {told['runner']}: {', '.join(job['job'] for job in told['jobs'])}")
    for job, run in latest.items():
        if run["outcome"] != "succeeded":
            found_wrong = run["outcome"] == "found_wrong"
            said = f"{job} {'found something wrong' if found_wrong else 'failed'} at {run['ended_at']}: {run['error']}"
            yield Finding("jobs", "wrong", said, f"silt {job}" if found_wrong else f"silt jobs --job {job} --failed")


def _without_schedule(latest: dict[str, Any], now_us: int) -> Finding:
    """Cron may run them: what counts is that they do."""
    absent = [job for job in NEEDED if job not in latest or now_us - parse_us(latest[job]["ended_at"]) > BY_HAND_US]
    if not absent:
        return Finding("schedule", "ok", f"nobody runs it; {' and '.join(NEEDED)} were run within a day all the same")
    said = f"nobody runs {' or '.join(absent)}: tables get more and more files, and nothing expires"
    return Finding("schedule", "warning", said, "silt schedule")
