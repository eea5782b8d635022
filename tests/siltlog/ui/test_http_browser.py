"""The page in a real browser, at a real server with a real Redis."""

import json
from typing import Any

import pytest
from browser import Page, needs_chromium, opened
from http_rig import Http

from siltlog import Consumer
from siltlog.server_process import ServerProcess
from siltlog.testing import running_server

HOSTILE = '<img src=x onerror="window.hurt = 1">\u202e</script>\u0000'
DEEP = "[" * 10_000

pytestmark = [
    pytest.mark.client,
    pytest.mark.timeout(180),
    needs_chromium,
]


def test_from_nothing_to_the_first_record(page: Page, server: ServerProcess) -> None:
    at = page.go("topics")
    at.get_by_role("link", name="New topic").click()
    at.get_by_role("textbox", name="Name", exact=True).fill("first")
    at.get_by_role("button", name="Make it").click()
    at.get_by_role("heading", name="first").wait_for()
    at.get_by_role("link", name="Publish", exact=True).click()
    # The tab of the records has a field for a key too: JSON is asked for only where a record is published.
    at.get_by_role("textbox", name="JSON").fill('{"item": "tea"}')
    assert at.get_by_role("textbox", name="JSON").get_attribute("spellcheck") == "false"
    at.get_by_role("textbox", name="Key").fill("ada")
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
    rows = at.locator("tr[data-row]")
    rows.filter(has_text="one").wait_for()
    at.get_by_role("button", name="Pause").click()
    at.get_by_role("button", name="Go on").wait_for()
    http.publish("live", {"value": "two"})
    at.wait_for_timeout(500)
    assert rows.count() == 1
    at.get_by_role("button", name="Go on").click()
    rows.filter(has_text="two").wait_for()
    assert rows.count() == 2


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
    kinds = {0: "a", 50: "b"}
    headers = {number: [{"key": "kind", "value": kind}] for number, kind in kinds.items()}
    http.publish("sought", *({"value": {"n": number}, "headers": headers.get(number, [])} for number in range(100)))
    at = page.go("topics/sought/records?search=1&path=%2Fn&equals=42")
    page.shows("all was looked at")
    rows = at.locator("tr[data-row]")
    assert rows.count() == 1
    page.shows('{"n":42}' if at.get_by_text('{"n":42}').count() else '{"n": 42}')
    at = page.go("topics/sought/records?offset=earliest")
    rows.nth(99).wait_for()
    at.get_by_label("Header").fill("kind")
    # What was shown before is taken away a moment later: each number of rows is another than the one before.
    for value, found in (("", 2), ("b", 1)):
        at.get_by_label("with the value").fill(value)
        rows.nth(found).wait_for(state="detached")
        rows.nth(found - 1).wait_for()
        assert rows.count() == found
    at.get_by_label("with the value").fill("c")
    page.shows("No record yet")


def test_a_record_in_full_says_who_published_it_and_leads_to_the_others(page: Page, server: ServerProcess) -> None:
    http = Http(server.url)
    http.create("produced")
    http.publish("produced", {"value": "by nobody"})
    for sequence, id_ in ((0, "etl"), (1, "etl"), (0, "app")):
        own = {"Silt_Producer_Id": id_, "Silt_Sequence": str(sequence)}
        assert http.publish("produced", {"value": f"{id_} {sequence}", "partition": 0}, **own).status == 200
    at = page.go("topics/produced/records?offset=earliest")
    at.locator("tr[data-row]").nth(3).wait_for()
    at.locator("tr[data-row]").filter(has_text="by nobody").click()
    page.shows("Published without a producer id")
    at.locator("tr[data-row]").filter(has_text="etl 1").click()
    page.shows("epoch 0, sequence 1")
    at.get_by_role("link", name="etl", exact=True).click()
    at.locator("tr[data-row]").nth(2).wait_for(state="detached")
    page.shows("found 2; all was looked at")
    assert at.get_by_label("Producer id").input_value() == "etl"
    at.get_by_role("button", name="Back to live").click()
    at.locator(".quiet[role=status]").filter(has_text="live").wait_for()
    assert at.get_by_label("Producer id").input_value() == "etl", "what is followed is narrowed too"


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
        page.shows("The group must be empty: it has 1 member. Stop them first.")
        assert at.get_by_role("button", name="Preview").get_attribute("aria-disabled") == "true"
    at.locator("button:text-is('Preview')").click()
    page.shows("10 again")
    assert http.call("GET", "/v1/groups/readers/offsets").json["offsets"][0]["offset"] == 10, "a preview moves nothing"
    at.get_by_role("button", name="Reset …").click()
    at.get_by_label("Type readers to go on").fill("reader")
    at.get_by_role("button", name="Reset it").click()
    assert http.call("GET", "/v1/groups/readers/offsets").json["offsets"][0]["offset"] == 10, "nor does another word"
    at.get_by_label("Type readers to go on").fill("readers")
    at.get_by_role("button", name="Reset it").click()
    page.shows("10 records behind")
    assert http.call("GET", "/v1/groups/readers/offsets").json["offsets"][0]["offset"] == 0


def test_the_page_goes_on_when_the_server_comes_back(browser: Any) -> None:
    with running_server(flush_ms=200) as server, opened(browser, server) as page:
        page.go("")
        page.at.locator(".reached.live").wait_for()
        server.kill()
        page.shows("not reached")
        server.start()
        page.at.locator(".reached.live").wait_for()
        Http(server.url).create("afterwards")
        page.go("topics")
        page.at.get_by_role("link", name="afterwards").wait_for()


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
    page.go_by_keys("t", "topics")
    at.get_by_role("heading", name="Topics").wait_for()
    # With its title a page gets the focus, a moment after it is there.
    at.wait_for_function("() => document.title.startsWith('Topics')")
    at.locator("[data-search]").wait_for()
    at.keyboard.press("/")
    assert at.evaluate("document.activeElement.matches('[data-search]')")
    at.locator("h1").focus()
    at.keyboard.press("?")
    at.get_by_role("dialog", name="Keys").wait_for()
    at.keyboard.press("Escape")
    at.get_by_role("dialog").wait_for(state="detached")
    assert at.evaluate("document.activeElement.matches('h1')"), "the focus is where it was"
