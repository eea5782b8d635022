"""The page of metrics in a real browser, at a real server with a real Redis."""

import csv
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from browser import Page, needs_chromium, opened
from http_rig import Http
from schedule_rig import wait_for

from siltlog import Consumer
from siltlog.server_process import ServerProcess
from siltlog.testing import running_server

WAIT_SECONDS = 60.0

pytestmark = [pytest.mark.client, pytest.mark.timeout(240), needs_chromium]


@pytest.fixture(scope="module")
def server() -> Iterator[ServerProcess]:
    with running_server(flush_ms=200) as server:
        http = Http(server.url)
        http.create("orders")
        http.create("quiet")
        http.publish("orders", {"value": "v"})
        with Consumer(
            server.url, group="billing", topics=["orders"], stop_at="latest", auto_offset_reset="earliest"
        ) as consumer:
            list(consumer)
            consumer.commit()

        def measured() -> bool:
            http.publish("orders", {"value": "v"}, {"value": "w"})
            return bool(
                series(http, "silt_records_total", "&topic=orders")
                and series(http, "silt_group_lag_records", "&group=billing")
            )

        assert wait_for(measured, WAIT_SECONDS)
        yield server


@pytest.fixture
def page(browser: Any, server: ServerProcess) -> Iterator[Page]:
    with opened(browser, server, timezone_id="UTC") as page:
        yield page


def series(http: Http, names: str, more: str = "") -> dict[tuple[str, ...], dict[str, float]]:
    """The values that were measured, by when, of each series."""
    found = http.get(f"/v1/metrics/history?series={names}{more}").json
    return {
        (one["name"], *one["labels"].values()): {
            at[:19]: value for at, value in zip(found["times"], one["values"], strict=True) if value is not None
        }
        for one in found["series"]
    }


def kept(at: Any, folder: Path) -> list[dict[str, str]]:
    with at.expect_download() as told:
        at.get_by_role("button", name="CSV").click()
    told.value.save_as(folder / "metrics.csv")
    with (folder / "metrics.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def test_what_is_shown_is_what_the_server_says(page: Page, server: ServerProcess, tmp_path: Path) -> None:
    asked: list[Any] = []

    def once(route: Any) -> None:
        """Answers no more: what came later would be of other times than what was kept."""
        asked.append(route)
        if len(asked) == 1:
            route.continue_()

    page.context.route("**/v1/metrics/history?*", once)
    at = page.go("metrics?range=15m")
    at.get_by_role("figure").first.wait_for()
    rows = kept(at, tmp_path)
    said = series(
        Http(server.url), "silt_records_total,silt_wal_used_bytes,silt_group_lag_records,process_resident_memory_bytes"
    )
    for column, name in (
        ("Records per second: published", ("silt_records_total",)),
        ("Write-ahead log: used", ("silt_wal_used_bytes",)),
        ("Records that groups are behind: billing", ("silt_group_lag_records", "billing")),
        ("Memory: the server", ("process_resident_memory_bytes",)),
    ):
        shown = {row["time"][:19]: float(row[column]) for row in rows if row[column] != ""}
        assert shown, column
        both = shown.keys() & said[name].keys()
        assert both and {when: shown[when] for when in both} == {when: said[name][when] for when in both}, column
    at.get_by_role("figure").filter(has_text="Records per second").get_by_role("button", name="as a table").click()
    table = at.get_by_role("region", name="Records per second")
    assert table.locator("tbody tr").count() == len(rows)
    assert table.locator("tbody tr").first.locator("td").first.inner_text()[:16] == rows[-1]["time"][:16].replace(
        "T", " "
    )


def test_ranges_topics_and_groups_are_in_the_address(page: Page, server: ServerProcess, tmp_path: Path) -> None:
    at = page.go("topics/orders")
    at.get_by_role("link", name="metrics").click()
    at.get_by_text("of the topic orders").wait_for()
    assert at.url.endswith("#/metrics?topic=orders")
    for name, begins in (("5 min", timedelta(minutes=5)), ("30 d", timedelta(days=30))):
        at.get_by_role("link", name=name, exact=True).click()
        at.get_by_text(f"The last {name}, of the topic orders").wait_for()
        at.get_by_role("figure").first.wait_for()
        times = [datetime.fromisoformat(row["time"]) for row in kept(at, tmp_path)]
        assert begins * 0.9 <= times[-1] - times[0] <= begins * 1.1
    at.get_by_label("Topic", exact=True).fill("quiet")
    at.keyboard.press("Enter")
    at.get_by_text("of the topic quiet").wait_for()
    at.go_back()
    page.go("groups/billing")
    at.get_by_role("link", name="metrics").click()
    at.get_by_text("of the group billing").wait_for()
    at.get_by_role("link", name="5 min", exact=True).click()
    at.get_by_text("The last 5 min, of the group billing").wait_for()
    at.get_by_role("figure").filter(has_text="Records behind").wait_for()
    rows = kept(at, tmp_path)
    said = series(Http(server.url), "silt_group_lag_records", "&group=billing")["silt_group_lag_records", "billing"]
    shown = {
        row["time"][:19]: float(row["Records behind: behind"]) for row in rows if row["Records behind: behind"] != ""
    }
    both = shown.keys() & said.keys()
    assert both and {when: shown[when] for when in both} == {when: said[when] for when in both}


def test_it_goes_on_when_the_server_comes_back(browser: Any) -> None:
    with running_server(flush_ms=200) as server, opened(browser, server) as page:
        at = page.go("metrics?range=5m")
        at.get_by_role("figure").first.wait_for()
        server.kill()
        page.shows("The server is not reached.")
        server.start()
        at.get_by_text("The server is not reached.").wait_for(state="detached")
        at.get_by_role("figure").first.wait_for()
