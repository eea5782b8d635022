"""How the page is kept current: by a stream, by single calls where there is none, not at all where nobody looks."""

from collections.abc import Iterator
from typing import Any

import pytest
from browser import Page, needs_chromium, opened
from http_rig import Http
from page_places import visit

from siltlog.server_process import ServerProcess
from siltlog.testing import running_server

LONG_MS = 120_000
QUIET_TURNS_MAX = 10
CREDIT = 200
"""So many records a page asks for before it shows them."""
HIDE = """(hidden) => {
  Object.defineProperty(document, "hidden", { configurable: true, get: () => hidden });
  document.dispatchEvent(new Event("visibilitychange"));
}"""

pytestmark = [pytest.mark.client, pytest.mark.timeout(180), needs_chromium]


@pytest.fixture(scope="module")
def server() -> Iterator[ServerProcess]:
    with running_server(flush_ms=200, ui_viewers_max=1) as server:
        Http(server.url).create("first")
        yield server


def heard(page: Page) -> list[str]:
    asked: list[str] = []
    page.at.on("request", lambda request: asked.append(request.url.removeprefix(page.url.removesuffix("ui/"))))
    return asked


def until_quiet(page: Page, asked: list[str]) -> None:
    """What a page had begun to ask while it was seen comes later, and may lead to more; what never ends is noticed."""
    for _ in range(QUIET_TURNS_MAX):
        asked.clear()
        page.at.clock.run_for(LONG_MS // 10)
        page.at.wait_for_load_state("networkidle")
        page.at.evaluate("() => fetch('../readyz').then((answer) => answer.text())")
        if [path for path in asked if not path.startswith("ui/")] == ["readyz"]:
            return
    raise AssertionError(f"it goes on asking: {asked}")


def streams(server: ServerProcess) -> float:
    return Http(server.url).metrics()["silt_streams"]


@pytest.mark.parametrize("place", ["", "topics", "groups", "topics/first/files", "metrics", "jobs", "cluster"])
def test_a_hidden_tab_asks_for_nothing(browser: Any, server: ServerProcess, place: str) -> None:
    with opened(browser, server) as page:
        page.at.clock.install()
        page.go(place)
        page.at.locator(".reached.live").wait_for()
        visit(page, place)
        page.at.evaluate(HIDE, True)
        while streams(server):
            page.at.clock.run_for(1_000)
        asked = heard(page)
        until_quiet(page, asked)
        asked.clear()
        page.at.clock.run_for(LONG_MS)
        assert [path for path in asked if not path.startswith("ui/")] == [], "but for files of the page itself"
        with page.at.expect_request("**/v1/events?*"):
            page.at.evaluate(HIDE, False)
            page.at.clock.run_for(LONG_MS // 10)


def test_records_rest_while_nobody_sees_them(browser: Any, server: ServerProcess) -> None:
    http = Http(server.url)
    with opened(browser, server) as page:
        # What was there before is looked for, once: later it would find some of what is published here.
        with page.at.expect_response(lambda answer: answer.url.endswith("/search") and answer.ok):
            page.go("topics/first")
        page.shows("No record yet")
        http.publish("first", *({"value": "seen"} for _ in range(3)))
        page.at.locator("tr[data-row]").nth(2).wait_for()
        page.at.evaluate(HIDE, True)
        for _ in range(5):
            http.publish("first", *({"value": "later"} for _ in range(CREDIT)))
        page.at.locator("tr[data-row]").nth(CREDIT + 2).wait_for()
        http.get("/v1/topics/first")
        assert page.at.locator("tr[data-row]").count() == CREDIT + 3, "what it had asked for, and no more"
        page.at.evaluate(HIDE, False)
        page.at.get_by_text("the newest 500 are shown").wait_for()


def test_without_locks_each_tab_polls(browser: Any, server: ServerProcess) -> None:
    with opened(browser, server) as page:
        page.context.add_init_script("delete Navigator.prototype.locks")
        page.at.clock.install()
        asked = heard(page)
        page.go("topics")
        page.at.locator(".reached.polling").wait_for()
        page.at.get_by_role("link", name="first", exact=True).wait_for()
        assert not [path for path in asked if path.startswith("v1/events")]
        Http(server.url).create("second")
        page.at.clock.run_for(11_000)
        page.at.get_by_role("link", name="second", exact=True).wait_for()


def test_a_snapshot_that_was_polled_says_nothing_of_the_clock(browser: Any, server: ServerProcess) -> None:
    with opened(browser, server) as page:
        page.context.add_init_script("delete Navigator.prototype.locks")
        page.at.clock.install()
        page.go("cluster")
        page.at.locator(".reached.polling").wait_for()
        page.at.clock.run_for(9_000)
        clock = page.at.locator("dt", has_text="Clock").locator("xpath=following-sibling::dd[1]")
        clock.wait_for()
        assert clock.inner_text() == "–"


def test_one_viewer_too_many_polls_until_there_is_room(browser: Any, server: ServerProcess) -> None:
    with opened(browser, server) as watching:
        watching.go("")
        watching.at.locator(".reached.live").wait_for()
        with opened(browser, server) as page:
            page.at.clock.install()
            page.go("topics")
            page.at.locator(".reached.polling").wait_for()
            page.at.get_by_role("link", name="first", exact=True).wait_for()
            watching.at.goto("about:blank")
            # Its clock goes on: the page may have the stream by then.
            while streams(server) and not page.at.locator(".reached.live").count():
                pass
            page.at.clock.run_for(11_000)
            page.at.locator(".reached.live").wait_for()
