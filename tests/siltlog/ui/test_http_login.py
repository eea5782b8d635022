"""The login of the page in a real browser."""

import http.server
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from access_rig import Secured, secured_server
from browser import Page, needs_chromium, opened
from session_rig import Visitor

pytestmark = [
    pytest.mark.client,
    pytest.mark.timeout(240),
    needs_chromium,
]


@pytest.fixture(scope="module")
def secured() -> Iterator[Secured]:
    with secured_server(flush_ms=200) as secured:
        secured.admin.create("orders")
        secured.admin.publish("orders", {"key": "ada", "value": {"item": "tea"}})
        yield secured


@pytest.fixture
def page(browser: Any, secured: Secured) -> Iterator[Page]:
    with opened(browser, secured.server) as page:
        yield page


def key_of(secured: Secured, name: str, *roles: tuple[str, str]) -> tuple[str, str]:
    key_id, caller = secured.key(name, *roles)
    assert caller.token is not None
    return key_id, caller.token


def log_in(at: Any, key: str) -> None:
    at.get_by_role("dialog", name="Log in").wait_for()
    at.get_by_label("API key").fill(key)
    at.get_by_role("button", name="Log in", exact=True).click()
    at.get_by_role("dialog", name="Log in").wait_for(state="detached")


def end_session(secured: Secured, page: Page) -> None:
    """Ends the session of a page elsewhere than in its browser."""
    visitor = Visitor(secured.server.url)
    visitor.cookies = {cookie["name"]: cookie["value"] for cookie in page.context.cookies()}
    assert visitor.log_out().status == 204


def test_a_key_lets_in_and_a_reload_asks_for_none(page: Page, secured: Secured) -> None:
    _, key = key_of(secured, "ana", ("admin", ""))
    at = page.go("topics")
    at.get_by_role("dialog", name="Log in").wait_for()
    field = at.get_by_label("API key")
    assert (field.get_attribute("type"), field.get_attribute("autocomplete")) == ("password", "current-password")
    field.fill(key[:-1])
    at.get_by_role("button", name="Log in", exact=True).click()
    at.get_by_text("is not whole").wait_for()
    log_in(at, key)
    at.get_by_role("link", name="orders", exact=True).first.wait_for()
    at.locator("summary", has_text="key:ana").wait_for()
    at.locator(".reached.live").wait_for()
    (cookie,) = page.context.cookies()
    assert (cookie["httpOnly"], cookie["sameSite"]) == (True, "Strict")
    seen = at.evaluate("document.cookie + JSON.stringify([localStorage, sessionStorage])")
    assert key not in seen
    assert "silt_session" not in seen
    at.reload()
    at.locator("summary", has_text="key:ana").wait_for()
    at.get_by_role("link", name="orders", exact=True).first.wait_for()
    assert at.get_by_role("dialog").count() == 0


@pytest.mark.parametrize(
    ("role", "reads", "publishes", "deletes"),
    [
        ("admin", True, True, True),
        ("operator", False, False, True),
        ("viewer", False, False, False),
        ("consumer", True, False, False),
    ],
)
def test_each_role_is_offered_what_it_may_and_told_what_is_missing(
    page: Page, secured: Secured, role: str, reads: bool, publishes: bool, deletes: bool
) -> None:
    _, key = key_of(secured, f"role-{role}", (role, ""))
    at = page.go("topics/orders")
    log_in(at, key)
    at.get_by_role("heading", name="orders").wait_for()
    (at.get_by_text("ada").first if reads else at.get_by_text("This needs the right to read topic orders.")).wait_for()
    assert at.get_by_text("ada").count() == reads
    page.go("topics/orders/publish")
    button = at.get_by_role("button", name="Publish")
    button.wait_for()
    assert (button.get_attribute("aria-disabled") is None) == publishes
    page.go("topics/orders/settings")
    button = at.get_by_role("button", name="Delete …")
    button.wait_for()
    assert (button.get_attribute("aria-disabled") is None) == deletes


def test_a_refusal_in_the_middle_keeps_the_page_and_what_was_refused_is_done_after_the_login(
    page: Page, secured: Secured
) -> None:
    _, key = key_of(secured, "middle", ("admin", ""))
    secured.admin.create("middle")
    at = page.go("topics/middle/publish")
    log_in(at, key)
    at.get_by_role("textbox", name="Key").fill("eve")
    at.get_by_role("textbox", name="JSON").fill('{"item": "cup"}')
    statuses: list[int] = []

    def ends_before_it_arrives(route: Any) -> None:
        end_session(secured, page)
        route.continue_()

    at.route("**/v1/topics/middle/records", ends_before_it_arrives, times=1)
    at.on("response", lambda reply: reply.url.endswith("/middle/records") and statuses.append(reply.status))
    at.get_by_role("button", name="Publish").click()
    at.get_by_text("Your session has ended").wait_for()
    assert at.get_by_role("textbox", name="Key", exact=True, include_hidden=True).input_value() == "eve"
    assert secured.admin.read("middle") == []
    log_in(at, key)
    at.get_by_text("Acknowledged at").wait_for()
    assert statuses == [401, 200]
    assert [record["key"] for record in secured.admin.read("middle", query="values=json")] == ["eve"]


def test_who_does_not_want_to_log_in_is_left_alone_until_he_does(page: Page, secured: Secured) -> None:
    _, key = key_of(secured, "later", ("admin", ""))
    at = page.go("topics")
    at.get_by_role("button", name="Not now").click()
    at.get_by_role("dialog").wait_for(state="detached")
    at.get_by_text("this server asks who calls").first.wait_for()
    at.get_by_role("button", name="Try again").first.click()
    assert at.get_by_role("dialog").count() == 0
    at.locator("summary", has_text="not logged in").click()
    at.get_by_role("button", name="Log in …").click()
    log_in(at, key)
    at.locator("summary", has_text="key:later").wait_for()


def test_all_tabs_follow_a_login_and_a_logout(page: Page, secured: Secured) -> None:
    _, key = key_of(secured, "tabs", ("admin", ""))
    at = page.go("topics")
    other = page.context.new_page()
    other.goto(f"{page.url}#/topics/orders")
    other.get_by_role("dialog", name="Log in").wait_for()
    log_in(at, key)
    for tab in (at, other):
        tab.locator("summary", has_text="key:tabs").wait_for()
    other.get_by_text("ada").first.wait_for()
    at.locator("summary", has_text="key:tabs").click()
    at.get_by_role("button", name="Log out").click()
    for tab in (at, other):
        # The end of its stream may ask for a login, over what is shown, before a tab hears of the logout.
        tab.get_by_text("ada").first.wait_for(state="detached")
        tab.get_by_role("dialog", name="Log in").wait_for()
        assert tab.get_by_text("ada").count() == 0, "what was shown is gone"
    assert page.context.cookies() == []
    other.close()


def test_another_who_logs_in_sees_nothing_of_the_one_before(page: Page, secured: Secured) -> None:
    _, first = key_of(secured, "first", ("admin", ""))
    _, second = key_of(secured, "second", ("viewer", ""))
    secured.admin.create("another")
    at = page.go("topics/another/publish")
    log_in(at, first)
    at.get_by_role("textbox", name="JSON").fill('{"item": "first"}')
    at.route("**/v1/topics/another/records", lambda route: (end_session(secured, page), route.continue_()), times=1)
    at.get_by_role("button", name="Publish").click()
    at.get_by_text("Your session has ended").wait_for()
    log_in(at, second)
    at.locator("summary", has_text="key:second").wait_for()
    assert at.get_by_role("textbox", name="JSON").input_value() != '{"item": "first"}'
    assert secured.admin.read("another") == []


@pytest.mark.rule("A56")
def test_what_is_open_ends_with_the_key_and_goes_on_after_a_login(page: Page, secured: Secured) -> None:
    key_id, key = key_of(secured, "gone", ("admin", ""))
    at = page.go("")
    log_in(at, key)
    at.locator(".reached.live").wait_for()
    tab = page.context.new_page()
    tab.goto(f"{page.url}#/topics/orders")
    tab.get_by_text("ada").first.wait_for()
    assert secured.admin.call("DELETE", f"/v1/access/keys/{key_id}").status in (202, 204)
    # Nobody touches the page: its streams end, and what it asks next is refused.
    for each in (at, tab):
        each.get_by_role("dialog", name="Log in").wait_for()
    tab.get_by_text("ada").first.wait_for()
    _, again = key_of(secured, "gone", ("admin", ""))
    log_in(at, again)
    at.locator(".reached.live").wait_for()
    tab.get_by_role("dialog").wait_for(state="detached")
    secured.admin.publish("orders", {"key": "after", "value": "the login"})
    tab.get_by_text("after", exact=True).first.wait_for()
    tab.close()


def test_a_page_that_only_shows_says_so(browser: Any) -> None:
    with secured_server(ui="read") as secured:
        secured.admin.create("orders")
        secured.admin.publish("orders", {"key": "ada", "value": 1})
        with opened(browser, secured.server) as page:
            at = page.go("topics/orders")
            log_in(at, str(secured.admin.token))
            at.get_by_text("ada").first.wait_for()
            page.go("topics/orders/settings")
            button = at.get_by_role("button", name="Delete …")
            button.wait_for()
            assert "only shows" in button.get_attribute("title")
            assert button.get_attribute("aria-disabled") == "true"
            page.go("access/keys")
            button = at.get_by_role("button", name="New key")
            button.wait_for()
            assert "only shows" in button.get_attribute("title")


FOREIGN = """<!doctype html><title>another</title>
<form id=form method=post action="%(url)s/ui/logout"></form>
<script>
const said = [];
async function tried(what, act) { try { said.push([what, await act()]); } catch { said.push([what, "failed"]); } }
async function all() {
  const own = { credentials: "include", headers: { "Silt-Csrf": "1", "Content-Type": "application/json" } };
  const read = async (path, more) => (await fetch("%(url)s" + path, { credentials: "include", ...more })).status;
  await tried("simple", () => read("/v1/access/whoami"));
  await tried("image", () => read("/v1/access/whoami", { mode: "no-cors" }));
  await tried("opaque", () => read("/v1/topics/forged", { method: "POST", mode: "no-cors", body: "{}" }));
  await tried("put", () => read("/v1/topics/forged", { ...own, method: "PUT", body: "{}" }));
  await tried("delete", () => read("/v1/topics/orders", { ...own, method: "DELETE" }));
  await tried("login", () => read("/ui/login", { ...own, method: "POST", body: JSON.stringify({ key: "%(key)s" }) }));
  await tried("socket", () => new Promise((resolve) => {
    const socket = new WebSocket("%(socket)s/v1/topics/orders/ws?offset=0", ["silt.v1"]);
    socket.onopen = () => resolve("opened");
    socket.onclose = () => resolve("closed");
  }));
  await tried("events", () => new Promise((resolve) => {
    const events = new EventSource("%(url)s/v1/events", { withCredentials: true });
    events.onopen = () => resolve("opened");
    events.onerror = () => resolve("closed");
  }));
  return said;
}
</script>"""


@contextmanager
def another_origin(pages: dict[str, str]) -> Iterator[str]:
    class Pages(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = pages.get(self.path, "").encode()
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *said: Any) -> None:
            return

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Pages)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


@pytest.mark.rule("A58", "A59")
@pytest.mark.parametrize("may_call", [False, True])
def test_a_page_of_another_origin_gets_nothing_by_the_login(browser: Any, may_call: bool) -> None:
    """Its origin is another port of the same host, so that the browser sends it the cookie for every request."""
    pages: dict[str, str] = {}
    with (
        another_origin(pages) as origin,
        secured_server(cors_origins=origin if may_call else "") as secured,
    ):
        secured.admin.create("orders")
        _, key = key_of(secured, "ana", ("admin", ""))
        url = secured.server.url
        filled = {"url": url, "key": key, "socket": url.replace("http", "ws")}
        pages["/"] = FOREIGN % filled
        context = browser.new_context()
        try:
            at = context.new_page()
            at.goto(f"{url}/ui/")
            log_in(at, key)
            at.locator("summary", has_text="key:ana").wait_for()
            before = context.cookies()
            foreign = context.new_page()
            foreign.goto(f"{origin}/")
            said = dict(foreign.evaluate("all()"))
            assert set(said) == {"simple", "image", "opaque", "put", "delete", "login", "socket", "events"}
            assert set(said.values()) <= {"failed", "closed", 0, 401, 403}, said
            assert secured.admin.metrics()['silt_denied_total{reason="csrf"}'] >= 1, "the browser sends the cookie"
            foreign.evaluate("document.getElementById('form').submit()")
            foreign.wait_for_url(f"{url}/ui/logout")
            assert context.cookies() == before
            at.reload()
            at.locator("summary", has_text="key:ana").wait_for()
        finally:
            context.close()
        assert secured.admin.get("/v1/topics/forged").status == 404
        assert secured.admin.get("/v1/topics/orders").status == 200
