"""Every place of the page: for everybody, whatever records say, and when its server goes and comes back."""

import json
from collections.abc import Iterator
from importlib.resources import files
from typing import Any
from urllib.parse import quote

import pytest
from browser import needs_chromium, opened
from http_rig import Http
from letters_rig import Member
from page_places import PLACES, TOPIC, furnish, visit
from waiting import until

from siltlog.server_process import ServerProcess
from siltlog.testing import running_server

HOSTILE = '<img src=x onerror="window.hurt = 1">\u202e</script><script>window.hurt = 1</script>\u0000'
LONG = "y" * (8 * 1024 * 1024 - 1_024)
"""Nearly fills a record: its key has the rest."""
DEEP = "[" * 10_000 + "]" * 10_000
RUN = {
    "run_id": "0f9c2a34-1b5d-4e6f-8a7b-9c0d1e2f3a4b",
    "job": "retain",
    "outcome": "failed",
    "started_at": "2026-11-21T07:36:00Z",
    "ended_at": "2026-11-21T07:37:00Z",
    "error": HOSTILE.replace("\u0000", ""),
}
_VIOLATIONS = """
  window.violated = [];
  document.addEventListener("securitypolicyviolation", (event) => window.violated.push(event.violatedDirective));
"""
_AXE = """async (rules) => {
  const found = await axe.run(document, { resultTypes: ["violations"], ...(rules && { runOnly: rules }) });
  return found.violations.map((each) => `${each.id}: ${each.nodes.map((node) => node.target).join(", ")}`);
}"""
_HARM = "[window.violated, window.hurt, document.querySelectorAll('main img, main script').length]"
_NAMED = ("topics?prefix={}", "topics/{}", "groups/{}", "dead_letters/{}", "jobs/{}", "metrics?topic={}", "{}")
"""Places of something that somebody else may have named, by a link."""
ASKED_ONCE = ("settings", "sql", f"topics/{TOPIC}/files", f"topics/{TOPIC}/files?partition=0&first=0&last=99")
"""Places that show something that is not asked for each few seconds."""
WIDE, PHONE = {"width": 1280, "height": 800}, {"width": 360, "height": 740}

CUT = """
const asked = fetch;
window.fetch = async (url, ...more) => {
  const answer = await asked(url, ...more);
  if (window.cut || !String(url).includes("/v1/config")) return answer;
  window.cut = true;
  const cut = new ReadableStream({ start: (end) => end.error(new TypeError("network error")) });
  return new Response(cut, { status: answer.status, headers: answer.headers });
};
"""
"""Has the first answer of the settings end before its body, as where the server is killed meanwhile."""
pytestmark = [pytest.mark.client, pytest.mark.timeout(300), needs_chromium]


@pytest.fixture(scope="module")
def server() -> Iterator[ServerProcess]:
    with running_server(flush_ms=200) as server:
        furnish(server.url, _records())
        http = Http(server.url)
        assert http.publish(TOPIC, {"partition": 1, "key": "long", "value": LONG}).status == 200
        Member(http, "givers", TOPIC).bury(0, error=HOSTILE)
        joined = {"topic_pattern": HOSTILE.replace("\u0000", ""), "session_timeout_ms": 3_600_000}
        http.json("PUT", "/v1/groups/billing/members/patterned", joined)
        assert http.json("POST", "/v1/jobs", RUN).status == 200
        yield server


def _records() -> Iterator[dict[str, Any]]:
    for number in range(20):
        yield {"partition": number % 2, "key": f"k{number}", "value": {"item": "tea", "n": number}}
    yield {"partition": 0, "key": HOSTILE, "value": HOSTILE, "headers": {HOSTILE: HOSTILE}}
    yield {"partition": 0, "key": "deep", "value": DEEP}
    yield {"partition": 0, "key": "members", "value": {HOSTILE: {"__proto__": HOSTILE}}}


@pytest.mark.parametrize("viewport", [WIDE, PHONE], ids=["wide", "phone"])
def test_no_place_keeps_anybody_out(browser: Any, server: ServerProcess, viewport: dict[str, int]) -> None:
    script = (files("axe_playwright_python") / "axe.min.js").read_text("utf-8")
    with opened(browser, server, viewport=viewport, bypass_csp=True, reduced_motion="reduce") as page:
        at = page.go("")
        at.add_script_tag(content=script)
        wrong = {}
        for place in PLACES:
            visit(page, place)
            at.evaluate("document.documentElement.dataset.theme = 'light'")
            wrong[place] = at.evaluate(_AXE, None)
            # Of what axe looks at only colours are others in the dark.
            at.evaluate("document.documentElement.dataset.theme = 'dark'")
            wrong[f"{place} dark"] = at.evaluate(_AXE, ["color-contrast"])
            assert at.evaluate("document.documentElement.scrollWidth <= innerWidth + 1"), f"{place} is too wide"
    assert {place: found for place, found in wrong.items() if found} == {}


def test_no_place_breaks_its_policy_or_runs_what_was_written(browser: Any, server: ServerProcess) -> None:
    with opened(browser, server) as page:
        page.context.add_init_script(_VIOLATIONS)
        at = page.go("")
        for place in (*PLACES, *(place.format(quote(HOSTILE, safe="")) for place in _NAMED)):
            visit(page, place)
            for each in at.locator("main details:not([open]) > summary").all():
                each.click()
        visit(page, f"topics/{TOPIC}")
        rows = at.locator("tr[data-row]")
        rows.nth(23).wait_for()
        for row in range(rows.count()):
            rows.nth(row).click()
            at.get_by_label("hex").check()
            at.get_by_label("raw").check()
            at.get_by_label("pretty").check()
        assert at.evaluate(_HARM) == [[], None, 0]


def test_every_place_goes_on_when_the_server_comes_back(browser: Any) -> None:
    with running_server(flush_ms=200) as server:
        furnish(server.url)
        with opened(browser, server) as page:
            places = [place for place in PLACES if "?" not in place and "where" not in place]
            tabs = [page.at, *(page.context.new_page() for _ in places[1:])]
            for tab, place in zip(tabs, places, strict=True):
                tab.goto(f"{page.url}#/{place}")
                tab.locator("main h1").wait_for()
            server.kill()
            for tab in tabs:
                tab.locator(".reached.lost").wait_for()
            server.start()
            Http(server.url).create("afterwards")
            for tab in tabs:
                tab.locator(".reached.live").wait_for()
                tab.locator("main .failed").first.wait_for(state="detached")
            tabs[places.index("topics")].get_by_role("link", name="afterwards").wait_for()


def test_what_is_opened_while_the_server_is_away_is_shown_when_it_comes_back(browser: Any) -> None:
    with running_server(flush_ms=200) as server:
        furnish(server.url)
        with opened(browser, server) as page:
            tabs = [page.at, *(page.context.new_page() for _ in ASKED_ONCE[1:])]
            for tab, place in zip(tabs, ASKED_ONCE, strict=True):
                tab.goto(f"{page.url}#/{place}")
                tab.locator("main h1").wait_for()
                _go(tab, "")
            server.kill()
            for tab, place in zip(tabs, ASKED_ONCE, strict=True):
                _go(tab, place)
                tab.locator("main .failed").first.wait_for()
            server.start()
            for tab in tabs:
                tab.locator("main .failed").first.wait_for(state="detached")


def test_a_place_whose_code_was_not_fetched_before_the_server_went_is_shown_when_it_comes_back(browser: Any) -> None:
    code = "**/pages/audit.js"
    with running_server() as server, opened(browser, server) as page:
        page.context.route(code, lambda route: route.abort())
        at = page.go("")
        at.locator(".reached.live").wait_for()
        server.kill()
        _go(at, "audit")
        at.locator("main .failed").get_by_text("could not be loaded").wait_for()
        page.context.unroute(code)
        at.locator(".reached.lost").wait_for()
        server.start()
        at.get_by_role("heading", name="Audit").wait_for()


def test_an_answer_that_ends_in_its_middle_is_asked_for_again(browser: Any, server: ServerProcess) -> None:
    with opened(browser, server) as page:
        page.at.add_init_script(CUT)
        at = page.go("settings")
        at.locator("main .failed").get_by_text("The server is not reached.").wait_for()
        at.get_by_role("table", name="Settings").locator("tbody tr").first.wait_for()


@pytest.mark.parametrize("place", ["", "/records?search=1"], ids=["live", "asked for"])
def test_a_search_that_finds_no_place_is_sent_again(browser: Any, server: ServerProcess, place: str) -> None:
    refused: list[str] = []

    def crowded(route: Any) -> None:
        if refused:
            route.continue_()
            return
        refused.append(route.request.url)
        problem = {"error_code": "overloaded", "detail": "2 searches run at this node"}
        route.fulfill(status=503, content_type="application/problem+json", body=json.dumps(problem))

    with opened(browser, server) as page:
        page.context.route("**/search", crowded)
        page.go(f"topics/{TOPIC}{place}").locator("tr[data-row]").first.wait_for()
    assert refused


def _go(tab: Any, place: str) -> None:
    tab.evaluate("(place) => { location.hash = `#/${place}` }", place)


def _bounds(http: Http) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = http.get(f"/v1/topics/{TOPIC}").json["offsets"]
    return found


def test_the_page_shows_what_the_api_says(browser: Any, server: ServerProcess) -> None:
    http = Http(server.url)
    # A flush between what the page is told and what is asked here would make another of it.
    until(lambda: all(each["table_offset"] == each["high_watermark"] for each in _bounds(http)))
    with opened(browser, server) as page:
        at = page.go(f"topics/{TOPIC}/partitions")
        shown = at.get_by_role("table", name="Partitions").locator("tbody tr")
        shown.nth(1).wait_for()
        bounds = _bounds(http)
        cells = [[cell.replace(",", "") for cell in row.locator("td").all_inner_texts()] for row in shown.all()]
        told = ("partition", "log_start_offset", "table_offset", "high_watermark")
        assert [[int(cell) for cell in row[:4]] for row in cells] == [[each[name] for name in told] for each in bounds]
        visit(page, f"topics/{TOPIC}/files")
        listed = http.get(f"/v1/topics/{TOPIC}/files").json["files"]
        assert page.at.get_by_role("table", name="Files").locator("tbody tr").count() == len(listed)
        visit(page, f"topics/{TOPIC}/files?partition=0&first=0&last=9")
        rows = page.at.get_by_role("table", name="Rows").locator("tbody tr")
        rows.first.wait_for()
        read = http.get(f"/v1/topics/{TOPIC}/partitions/0/records?offset=0&max_records=10&values=json").json["records"]
        shown_items = [row.locator("td").nth(4).inner_text() for row in rows.all()]
        assert [json.loads(item) for item in shown_items] == [record["value"]["n"] for record in read]
