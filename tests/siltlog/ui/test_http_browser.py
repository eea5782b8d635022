"""The page in a real browser, at a real server with a real Redis."""

import json
import shutil
from collections.abc import Iterator
from typing import Any

import pytest
from http_rig import Http

from siltlog import Consumer
from siltlog.server_process import ServerProcess
from siltlog.testing import running_server

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
TIMEOUT_MS = 30_000
HOSTILE = '<img src=x onerror="window.hurt = 1">\u202e</script>\u0000'
DEEP = "[" * 10_000

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(180),
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed (Debian: apt-get install chromium)"),
]
playwright = pytest.importorskip("playwright.sync_api")


@pytest.fixture(scope="module")
def server() -> Iterator[ServerProcess]:
    with running_server(flush_ms=200) as server:
        yield server


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        yield browser
        browser.close()


class Page:
    """A page of the browser that hears what goes wrong in it."""

    def __init__(self, browser: Any, server: ServerProcess) -> None:
        self.url = f"{server.url}/ui/"
        self.context = browser.new_context()
        self.context.set_default_timeout(TIMEOUT_MS)
        self.at = self.context.new_page()
        self.wrong: list[str] = []
        self.elsewhere: list[str] = []
        self.at.on("pageerror", lambda error: self.wrong.append(str(error)))
        self.at.on("console", lambda said: "Content Security" in said.text and self.wrong.append(said.text))
        self.at.on("request", lambda asked: asked.url.startswith(server.url) or self._asked(asked.url))

    def _asked(self, url: str) -> None:
        if not url.startswith(("data:", "blob:", "ws://127.0.0.1")):
            self.elsewhere.append(url)

    def go(self, place: str) -> Any:
        self.at.goto(f"{self.url}#/{place}")
        return self.at

    def shows(self, text: str) -> None:
        self.at.get_by_text(text).first.wait_for()


@pytest.fixture
def page(browser: Any, server: ServerProcess) -> Iterator[Page]:
    page = Page(browser, server)
    yield page
    assert (page.wrong, page.elsewhere) == ([], [])
    page.context.close()


def test_from_nothing_to_the_first_record(page: Page, server: ServerProcess) -> None:
    at = page.go("topics")
    at.get_by_role("link", name="New topic").click()
    at.get_by_role("textbox", name="Name", exact=True).fill("first")
    at.get_by_role("button", name="Make it").click()
    at.get_by_role("heading", name="first").wait_for()
    at.get_by_role("link", name="Publish", exact=True).click()
    at.get_by_role("textbox", name="Key").fill("ada")
    at.get_by_role("textbox", name="JSON").fill('{"item": "tea"}')
    at.get_by_role("button", name="Publish").click()
    at.get_by_text("Acknowledged at").wait_for()
    at.get_by_role("link", name="Records", exact=True).click()
    at.locator("tr[data-row]").first.press("Enter")
    assert json.loads(at.get_by_label("Value", exact=True).inner_text()) == {"item": "tea"}
    (record,) = Http(server.url).read("first", query="values=json")
    assert (record["key"], record["value"]) == ("ada", {"item": "tea"})


def test_records_come_as_they_are_published_and_not_while_it_is_paused(page: Page, server: ServerProcess) -> None:
    http = Http(server.url)
    http.create("live")
    at = page.go("topics/live")
    page.shows("No record yet")
    http.publish("live", {"value": "one"})
    page.shows("one")
    at.get_by_role("button", name="Pause").click()
    at.get_by_role("button", name="Go on").wait_for()
    at.get_by_role("button", name="Go on").click()
    http.publish("live", {"value": "two"})
    page.shows("two")
    assert at.locator("tr[data-row]").count() == 2


def test_what_records_say_is_text(page: Page, server: ServerProcess) -> None:
    http = Http(server.url)
    http.create("hostile")
    http.publish("hostile", {"key": HOSTILE, "value": HOSTILE, "headers": {HOSTILE: HOSTILE}}, {"value": DEEP})
    at = page.go("topics/hostile")
    at.locator("tr[data-row]").nth(1).wait_for()
    for row in range(2):
        at.locator("tr[data-row]").nth(row).click()
        at.get_by_label("hex").check()
        at.get_by_label("raw").check()
        at.get_by_label("pretty").check()
    assert at.evaluate("window.hurt") is None
    assert at.locator("main img").count() == 0


def test_a_search_finds_what_the_server_finds(page: Page, server: ServerProcess) -> None:
    http = Http(server.url)
    http.create("sought")
    http.publish("sought", *({"value": {"n": number}} for number in range(100)))
    at = page.go("topics/sought/records?search=1&path=%2Fn&equals=42")
    page.shows("all was looked at")
    assert at.locator("tr[data-row]").count() == 1
    page.shows('{"n":42}' if at.get_by_text('{"n":42}').count() else '{"n": 42}')


def test_a_group_is_reset_as_its_preview_said(page: Page, server: ServerProcess) -> None:
    http = Http(server.url)
    http.create("read")
    http.publish("read", *({"value": str(number)} for number in range(10)))
    with Consumer(
        server.url, group="readers", topics=["read"], stop_at="latest", auto_offset_reset="earliest"
    ) as consumer:
        assert len(list(consumer)) == 10
        consumer.commit()
    at = page.go("groups/readers")
    at.get_by_role("button", name="Preview").click()
    page.shows("10 again")
    assert http.call("GET", "/v1/groups/readers/offsets").json["offsets"][0]["offset"] == 10, "a preview moves nothing"
    at.get_by_role("button", name="Reset …").click()
    at.get_by_label("Type readers to go on").fill("reader")
    at.get_by_role("button", name="Reset it").click()
    assert http.call("GET", "/v1/groups/readers/offsets").json["offsets"][0]["offset"] == 10, "nor does another word"
    at.get_by_label("Type readers to go on").fill("readers")
    at.get_by_role("button", name="Reset it").click()
    at.get_by_role("cell", name="10", exact=True).first.wait_for()
    assert http.call("GET", "/v1/groups/readers/offsets").json["offsets"][0]["offset"] == 0


def test_the_page_goes_on_when_the_server_comes_back(browser: Any) -> None:
    with running_server(flush_ms=200) as server:
        page = Page(browser, server)
        page.go("")
        page.shows("live")
        server.kill()
        page.shows("not reached")
        server.start()
        page.at.locator(".reached.live").wait_for()
        Http(server.url).create("afterwards")
        page.go("topics")
        page.at.get_by_role("link", name="afterwards").wait_for()
        assert page.wrong == []
        page.context.close()


def test_ten_tabs_share_one_stream(page: Page, server: ServerProcess) -> None:
    tabs = [page.at, *(page.context.new_page() for _ in range(9))]
    for tab in tabs:
        tab.goto(page.url)
        tab.locator(".reached.live").wait_for()
    eleventh = page.context.new_page()
    eleventh.goto(f"{page.url}#/topics")
    eleventh.get_by_role("heading", name="Topics").wait_for()


def test_keys_lead_through_the_page(page: Page) -> None:
    at = page.go("")
    at.get_by_role("heading", name="Overview").wait_for()
    at.keyboard.press("g")
    at.keyboard.press("t")
    at.get_by_role("heading", name="Topics").wait_for()
    at.locator("[data-search]").wait_for()
    at.keyboard.press("/")
    assert at.evaluate("document.activeElement.matches('[data-search]')")
    at.locator("h1").focus()
    at.keyboard.press("?")
    at.get_by_role("dialog", name="Keys").wait_for()
    at.keyboard.press("Escape")
    at.get_by_role("dialog").wait_for(state="detached")
