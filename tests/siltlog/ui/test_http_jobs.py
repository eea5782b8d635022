"""The page of jobs in a real browser, at a real server that runs its schedule."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from browser import needs_chromium, opened
from http_rig import NO_REDIS, Http
from schedule_rig import wait_for
from stuck_table import stuck_in

from siltlog.server_process import ServerProcess
from siltlog.testing import running_server

HOSTILE = '<img src=x onerror="window.hurt = 1">\u202e</script>'
NEW_YEAR = "0 0 1 1 *"
SELDOM = {"schedule": "on", **dict.fromkeys(("schedule_retain", "schedule_vacuum", "schedule_compact"), NEW_YEAR)}
SELDOM |= {"schedule_audit": "off"}
WAIT_SECONDS = 60.0
FAILED = {
    "run_id": "0b9f6c1e-6a43-4c62-9a53-0e6f8f7f4c11",
    "job": "audit",
    "outcome": "found_wrong",
    "started_at": "2026-11-21T07:36:00.000000Z",
    "ended_at": "2026-11-21T07:36:01.250000Z",
    "done": {"files": 12, "size_bytes": 2048},
    "results": [{"topic": "flights", "done": {"files": 12, "size_bytes": 2048}, "error": HOSTILE}],
    "error": HOSTILE,
}

pytestmark = [pytest.mark.client, pytest.mark.timeout(240), needs_chromium]


@contextmanager
def seldom(folder: Path, **settings: Any) -> Iterator[tuple[ServerProcess, Http]]:
    """A server whose schedule has no time for years."""
    given = {"redis_url": NO_REDIS, "flush_ms": 20, **SELDOM, **settings}
    with running_server(data_dir=folder / "data", **given) as server:
        http = Http(server.url)
        until(lambda: schedule(http)["runner"], "nobody ever ran the schedule")
        yield server, http


def until(condition: Callable[[], Any], what: str) -> None:
    assert wait_for(lambda: bool(condition()), WAIT_SECONDS), what


def schedule(http: Http) -> dict[str, Any]:
    found: dict[str, Any] = http.get("/v1/schedule").json
    return found


def runs(http: Http) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = http.get("/v1/jobs").json["jobs"]
    return found


def row_of(at: Any, job: str) -> Any:
    return at.get_by_role("region", name="Schedule").locator("tr", has=at.get_by_role("link", name=job, exact=True))


def test_the_schedule_is_shown_as_the_server_has_it(browser: Any, tmp_path: Path) -> None:
    with seldom(tmp_path) as (server, http), opened(browser, server, timezone_id="UTC") as page:
        at = page.go("jobs")
        for job in schedule(http)["jobs"]:
            said = row_of(at, job["job"]).inner_text()
            assert job["next_at"][:16].replace("T", " ") in said
            assert job["cron"] in said
            assert "none yet" in said
        untold = row_of(at, "catalog").inner_text()
        assert "off" in untold and "SILT_CATALOG_UNITY" in untold and "SILT_SCHEDULE_CATALOG" in untold
        off = row_of(at, "audit")
        assert "off" in off.inner_text() and "SILT_SCHEDULE_AUDIT" in off.inner_text()
        # Before the page knows who looks at it, it says that a right is missing.
        button = off.get_by_role("button", name="Run now (The job is off")
        assert button.get_attribute("aria-disabled") == "true" and "The job is off" in button.inner_text()


def test_a_job_is_run_and_what_it_did_is_shown(browser: Any, tmp_path: Path) -> None:
    with seldom(tmp_path) as (server, http), opened(browser, server, timezone_id="UTC") as page:
        http.create("counted", retention_records=4)
        for _ in range(4):
            http.publish("counted", {"value": "a"}, {"value": "b"}, query="?acks=table")
        at = page.go("jobs")
        row_of(at, "retain").get_by_role("button", name="Run now").click()
        row_of(at, "retain").get_by_text("succeeded").wait_for()
        row_of(at, "retain").get_by_role("button", name="Run now").wait_for()
        [run] = runs(http)
        assert (run["job"], run["trigger"], run["outcome"]) == ("retain", "hand", "succeeded")
        at.get_by_role("region", name="Runs").locator("tr[data-row]").first.press("Enter")
        beside = at.get_by_label("One run")
        beside.get_by_role("link", name="counted").wait_for()
        said = beside.inner_text()
        assert run["run_id"] in said and "somebody" in said
        assert run["started_at"][:23].replace("T", " ") in said
        assert f"files {run['done']['files']}, rows {run['done']['rows']}" in said
        assert beside.locator("tbody tr").count() == len(run["results"])


def test_a_catalog_is_told_now_and_what_failed_names_its_command(browser: Any, tmp_path: Path) -> None:
    told = {"catalog_unity": "http://127.0.0.1:9", "catalog_schema": "main.logs", "schedule_catalog": NEW_YEAR}
    with seldom(tmp_path, **told) as (server, http), opened(browser, server) as page:
        http.create("named")
        at = page.go("jobs")
        row_of(at, "catalog").get_by_text(NEW_YEAR).wait_for()
        row_of(at, "catalog").get_by_role("button", name="Run now").click()
        row_of(at, "catalog").get_by_text("failed").wait_for()
        [run] = runs(http)
        assert (run["job"], run["trigger"], run["outcome"]) == ("catalog", "hand", "failed")
        at.get_by_role("region", name="Runs").locator("tr[data-row]").first.press("Enter")
        at.get_by_label("One run").get_by_text("silt catalog register").wait_for()


def test_a_run_that_goes_on_is_stopped(browser: Any, tmp_path: Path) -> None:
    with (
        seldom(tmp_path) as (server, http),
        stuck_in(tmp_path / "data" / "lake") as stuck,
        opened(browser, server) as page,
    ):
        at = page.go("jobs/retain")
        at.get_by_role("button", name="Run now").click()
        at.get_by_text("running for").wait_for()
        until(stuck.reached, "the job never came to the table")
        at.get_by_role("button", name="Stop …").click()
        at.get_by_role("dialog").get_by_role("button", name="Stop", exact=True).click()
        at.get_by_role("button", name="Run now").wait_for()
        at.get_by_role("region", name="Runs").get_by_text("interrupted").wait_for()
        [run] = runs(http)
        assert (run["outcome"], run["trigger"]) == ("interrupted", "hand")


def test_what_failed_says_so_and_what_to_do(browser: Any, tmp_path: Path) -> None:
    with seldom(tmp_path) as (server, http), opened(browser, server) as page:
        assert http.json("POST", "/v1/jobs", FAILED).status == 200
        at = page.go("jobs")
        row_of(at, "audit").get_by_text("found wrong").wait_for()
        http.json(
            "POST",
            "/v1/jobs",
            {**FAILED, "run_id": FAILED["run_id"][:-1] + "2", "job": "vacuum", "outcome": "succeeded", "error": None},
        )
        row_of(at, "vacuum").get_by_text("succeeded").wait_for()
        listed = at.get_by_role("region", name="Runs").locator("tr[data-row]")
        listed.nth(1).wait_for()
        at.get_by_label("Only runs below that failed").check()
        listed.nth(1).wait_for(state="detached")
        listed.first.click()
        beside = at.get_by_label("One run")
        assert beside.get_by_label("Error").inner_text() == HOSTILE
        beside.get_by_text("What to do.").wait_for()
        assert "2 KiB" in beside.inner_text()
        assert at.evaluate("window.hurt") is None
        assert at.locator("main img").count() == 0


def test_it_goes_on_when_the_server_comes_back(browser: Any, tmp_path: Path) -> None:
    with seldom(tmp_path) as (server, http), opened(browser, server) as page:
        at = page.go("jobs")
        row_of(at, "retain").get_by_role("button", name="Run now").wait_for()
        server.kill()
        page.shows("The server is not reached.")
        server.start()
        at.get_by_text("The server is not reached.").first.wait_for(state="detached")
        # The schedule may still name the runner that was killed; only one that is there says that a run is none.
        none = "/v1/jobs/retain/runs/none"
        until(lambda: http.call("DELETE", none).error_code == "unknown_run", "nobody ever ran the schedule")
        row_of(at, "retain").get_by_role("button", name="Run now").click()
        row_of(at, "retain").get_by_text("succeeded").wait_for()
        assert [run["job"] for run in runs(http)] == ["retain"]


def test_where_nobody_runs_the_schedule_it_says_so(browser: Any) -> None:
    with running_server(redis_url=NO_REDIS) as server, opened(browser, server) as page:
        page.go("jobs")
        page.shows("Nobody runs the schedule now.")
