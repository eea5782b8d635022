"""Event streams and WebSockets in a real browser: Chromium, by Playwright."""

import http.server
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from browser import chromium, needs_chromium
from http_rig import NO_REDIS, Http

from siltlog.server_process import ServerProcess
from siltlog.testing import running_server

TIMEOUT_MS = 30_000
PAGE = Path(__file__).parents[3] / "docs" / "push.md"

pytestmark = [
    pytest.mark.client,
    needs_chromium,
]


class Pages(http.server.ThreadingHTTPServer):
    """Serves empty pages: what runs in one is the test's."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Page)
        self.content = b"<!doctype html><title>page</title>"

    @property
    def origin(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class _Page(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        assert isinstance(self.server, Pages)
        self.send_response(200)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.end_headers()
        self.wfile.write(self.server.content)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(scope="module")
def pages() -> Iterator[list[Pages]]:
    """Two origins: the first one may call the server, the second may not."""
    servers = [Pages(), Pages()]
    threads = [threading.Thread(target=each.serve_forever, daemon=True) for each in servers]
    for thread in threads:
        thread.start()
    yield servers
    for server, thread in zip(servers, threads, strict=True):
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture(scope="module")
def server(pages: list[Pages]) -> Iterator[ServerProcess]:
    with running_server(flush_ms=50, redis_url=NO_REDIS, cors_origins=pages[0].origin) as server:
        yield server


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as browser:
        yield browser


@pytest.fixture
def page(browser: Any) -> Iterator[Any]:
    page = browser.new_page()
    page.set_default_timeout(TIMEOUT_MS)
    yield page
    page.close()


LISTEN = """url => {
  window.seen = []; window.problems = []; window.opened = 0; window.state = () => window.source.readyState
  window.source = new EventSource(url)
  window.source.onopen = () => window.opened++
  window.source.addEventListener("record", event => window.seen.push(JSON.parse(event.data).value))
  window.source.addEventListener("problem", event => window.problems.push(JSON.parse(event.data).error_code))
}"""


def seen(page: Any, count: int) -> list[str]:
    page.wait_for_function(f"window.seen.length >= {count}")
    values: list[str] = page.evaluate("window.seen")
    return values


def test_an_event_source_goes_on_over_a_restart_and_skips_nothing(
    page: Any, pages: list[Pages], server: ServerProcess
) -> None:
    http = Http(server.url)
    http.create("restarted", 2)
    page.goto(pages[0].origin)
    page.evaluate(LISTEN, f"{server.url}/v1/topics/restarted/tail")
    page.wait_for_function("window.opened == 1")
    # Before the first record: the browser has the id that came alone.
    server.kill()
    server.restart()
    Http(server.url).publish("restarted", {"value": "while it was away", "partition": 0})
    assert seen(page, 1) == ["while it was away"]
    for number in range(20):
        Http(server.url).publish("restarted", {"value": f"{number}", "partition": number % 2})
    seen(page, 21)
    server.restart()
    Http(server.url).publish("restarted", {"value": "last", "partition": 1})
    page.wait_for_function("window.seen.includes('last')")
    values = page.evaluate("window.seen")
    assert set(values) == {"while it was away", *map(str, range(20)), "last"}
    assert page.evaluate("window.opened") >= 3


def test_a_page_of_another_origin_hears_nothing(page: Any, pages: list[Pages], server: ServerProcess) -> None:
    http = Http(server.url)
    http.create("private")
    http.publish("private", {"value": "secret"})
    page.goto(pages[1].origin)
    page.evaluate(LISTEN, f"{server.url}/v1/topics/private/tail?offset=earliest")
    page.wait_for_function("window.state() == EventSource.CLOSED")
    assert page.evaluate("window.seen") == []
    closed = page.evaluate(
        """url => new Promise(done => { const socket = new WebSocket(url, "silt.v1")
           socket.onopen = () => done("open"); socket.onclose = event => done(event.code) })""",
        server.url.replace("http", "ws") + "/v1/topics/private/ws",
    )
    assert closed == 1006


def test_a_topic_that_ends_is_a_problem_and_the_browser_gives_up(
    page: Any, pages: list[Pages], server: ServerProcess
) -> None:
    http = Http(server.url)
    http.create("ending")
    page.goto(pages[0].origin)
    page.evaluate(LISTEN, f"{server.url}/v1/topics/ending/tail")
    page.wait_for_function("window.opened == 1")
    http.call("DELETE", "/v1/topics/ending")
    page.wait_for_function("window.problems.length == 1")
    assert page.evaluate("window.problems") == ["unknown_topic"]
    # It comes back once, and 404 is for good.
    page.wait_for_function("window.state() == EventSource.CLOSED")


def test_a_web_socket_of_a_page(page: Any, pages: list[Pages], server: ServerProcess) -> None:
    http = Http(server.url)
    http.create("talk")
    http.publish("talk", {"value": "one"}, {"value": "two"}, {"value": "three"})
    page.goto(pages[0].origin)
    page.evaluate(
        """url => {
          window.said = []; window.ended = null
          window.socket = new WebSocket(url, "silt.v1")
          window.socket.onopen = () => window.socket.send(JSON.stringify({type: "credit", records: 2}))
          window.socket.onmessage = event => window.said.push(JSON.parse(event.data))
          window.socket.onclose = event => window.ended = [event.code, event.wasClean]
        }""",
        server.url.replace("http", "ws") + "/v1/topics/talk/ws?offset=earliest",
    )
    page.wait_for_function("window.said.flatMap(message => message.records).length == 2")
    assert page.evaluate("window.socket.protocol") == "silt.v1"
    page.evaluate("window.socket.send(JSON.stringify({type: 'credit', records: 'many'}))")
    page.wait_for_function("window.ended !== null")
    assert page.evaluate("window.ended") == [1008, True]
    said = page.evaluate("window.said")
    assert said[-1]["type"] == "problem"
    assert [record["value"] for message in said[:-1] for record in message["records"]] == ["one", "two"]


def test_the_page_of_the_documentation_shows_what_comes(page: Any, pages: list[Pages], server: ServerProcess) -> None:
    http = Http(server.url)
    http.create("orders")
    text = PAGE.read_text("utf-8")
    [html] = [block.split("```")[0] for block in text.split("```html\n")[1:]]
    pages[0].content = html.replace("http://localhost:7070", server.url).encode()
    page.goto(pages[0].origin)
    page.wait_for_function("document.body.innerText.includes('connected')")
    http.publish("orders", {"value": json.dumps({"item": "tea"})})
    page.wait_for_function("document.body.innerText.includes('tea')")
    server.restart()
    Http(server.url).publish("orders", {"value": "after the restart"})
    page.wait_for_function("document.body.innerText.includes('after the restart')")
