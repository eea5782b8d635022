"""The server that runs, and who runs the jobs."""

from collections.abc import Iterator
from typing import Any

from siltlog.doctor.finding import Finding
from siltlog.infra.client import calls
from siltlog.infra.client.core import ConnectionFailed, Endpoints, json_request
from siltlog.infra.client.transport import Caller, HttpTransport
from siltlog.infra.clock import Clock, stopwatch
from siltlog.infra.errors import SiltlogError
from siltlog.infra.settings import ServerSettings
from siltlog.ingest.data_dir import holder_of


def check_server(settings: ServerSettings, url: str, clock: Clock) -> Iterator[Finding]:
    """The one at `url`; where none answers, whoever holds the data dir."""
    transport = HttpTransport()
    try:
        with stopwatch(clock) as seconds:
            told = transport.send(Endpoints(url).current, json_request("GET", "/readyz")).json()
        caller = Caller(Endpoints(url), transport, clock, retry_timeout_ms=0)
        schedule = caller.run(calls.schedule())
    except (ConnectionFailed, SiltlogError, ValueError) as error:
        yield _away(settings, url, error)
        return
    finally:
        transport.close()
    reasons, warnings = told.get("reasons", []), told.get("warnings", [])
    yield from (Finding("server", "wrong", f"{url}: {reason}", "silt health") for reason in reasons)
    yield from (Finding("server", "warning", f"{url}: {warning}", "silt health") for warning in warnings)
    if not reasons and not warnings:
        yield Finding("server", "ok", f"{url} takes records; it answered in {seconds[0] * 1000:.0f} ms")
    yield from _schedule(schedule)


def _away(settings: ServerSettings, url: str, error: Exception) -> Finding:
    holder = holder_of(settings.data_dir)
    if holder is None:
        return Finding("server", "warning", f"none answers at {url}", "silt serve")
    said = f"process {holder.pid} uses {settings.data_dir}, and {url} does not answer: {error}"
    elsewhere = holder.url and holder.url != url
    return Finding("server", "wrong", said, f"silt doctor --url {holder.url}" if elsewhere else f"kill {holder.pid}")


def _schedule(told: Any) -> Iterator[Finding]:
    if told["runner"] is None:
        said = "nobody runs the jobs: tables get more and more files, and nothing expires"
        yield Finding("schedule", "warning", said, "silt schedule")
        return
    away = [f"{job['job']}: {job['unavailable']}" for job in told["jobs"] if job["unavailable"]]
    yield from (Finding("schedule", "warning", said, "silt jobs") for said in away)
    if not away:
        yield Finding("schedule", "ok", f"run by {told['runner']}: {', '.join(job['job'] for job in told['jobs'])}")
