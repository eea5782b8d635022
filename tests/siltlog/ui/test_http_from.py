"""Records from a place on, and numbers, names and previews that stay what they are, in a real browser."""

import json
import re
from collections.abc import Callable, Iterator

import pytest
from browser import Page, needs_chromium
from http_rig import Http
from waiting import until

from siltlog import Consumer
from siltlog.server_process import ServerProcess
from siltlog.testing import running_server

RECORDS = 250
BIG = 2**53 + 1
"""No double is this number."""

pytestmark = [pytest.mark.client, pytest.mark.timeout(180), needs_chromium]


@pytest.fixture(scope="module")
def server() -> Iterator[ServerProcess]:
    with running_server(flush_ms=200) as server:
        http = Http(server.url)
        http.create("places")
        http.publish("places", *({"value": f"value {number}"} for number in range(RECORDS)))
        yield server


def shown(page: Page, first: int, last: int) -> None:
    """Waits until the records from `first` to `last` are shown, in their order."""
    rows = page.at.locator("tr[data-row]")
    rows.filter(has_text=re.compile(rf"value {first}$")).wait_for()
    rows.filter(has_text=re.compile(rf"value {last}$")).wait_for()
    values = rows.locator("td:last-child").all_inner_texts()
    assert values == [f"value {number}" for number in range(first, last + 1)]


@pytest.mark.parametrize("asked", ["partition=0&offset=120", "offset=120", "offset=-130", "offset=120&contains=value"])
def test_from_an_offset_its_record_is_the_first_and_pages_follow(page: Page, asked: str) -> None:
    at = page.go(f"topics/places/records?{asked}")
    shown(page, 120, 219)
    at.get_by_role("button", name="Next 100").click()
    shown(page, 220, 249)
    at.get_by_role("button", name="First page").click()
    shown(page, 120, 219)
    at.get_by_role("link", name="Back to live").click()
    at.get_by_role("button", name="Pause").wait_for()
    shown_first = at.locator("tr[data-row]").first
    shown_first.filter(has_text="value 249").wait_for()


@pytest.mark.parametrize("asked", ["partition=0&timestamp={}", "timestamp={}"])
def test_from_a_time_the_first_record_at_it_is_the_first(page: Page, http: Http, asked: str) -> None:
    name = "timed" + str(len(asked))
    http.create(name)
    for number in range(3):
        http.publish(name, {"value": f"value {number}"})
    moment = http.read(name)[1]["timestamp"]
    page.go(f"topics/{name}/records?{asked.format(moment)}")
    shown(page, 1, 2)


def test_the_link_of_a_record_leads_to_it(page: Page) -> None:
    at = page.go("topics/places/records?partition=0&offset=7")
    at.locator("tr[data-row]").nth(3).click()
    at.get_by_role("link", name="Link to it").click()
    shown(page, 10, 109)


def test_where_no_record_is_yet_it_is_looked_for_again(page: Page, http: Http) -> None:
    http.create("empty")
    http.publish("empty", {"value": "value 0"})
    at = page.go("topics/empty/records?partition=0&offset=1")
    page.shows("There is no record from there on.")
    http.publish("empty", {"value": "value 1"})
    at.get_by_role("button", name="Look again").click()
    shown(page, 1, 1)


def test_a_place_that_is_none_is_refused_in_the_servers_words(page: Page, http: Http) -> None:
    page.go("topics/places/records?partition=0&offset=100000")
    refused = http.call("GET", "/v1/topics/places/partitions/0/records?offset=100000").json["detail"]
    page.shows(refused)


def test_a_search_goes_on_after_what_it_shows(page: Page, http: Http) -> None:
    http.create("many")
    http.publish("many", *({"value": f"value {number}"} for number in range(620)))
    at = page.go("topics/many/records?search=1&contains=value")
    page.shows("there may be more")
    shown(page, 0, 499)
    at.get_by_role("button", name="Search on").click()
    page.shows("all was looked at")
    shown(page, 500, 619)
    assert at.get_by_role("button", name="Search on").count() == 0
    at.get_by_role("status").filter(has_text="all was looked at").wait_for()


def test_a_number_keeps_its_digits(page: Page, http: Http) -> None:
    http.create("exact")
    values = [f'{{"n":{BIG},"in":{{"d":1.10,"n":{BIG}}}}}', f'{{"n":{BIG - 1}}}', '{"constructor":1}', str(BIG)]
    http.publish("exact", *({"value": value} for value in values))
    at = page.go(f"topics/exact/records?search=1&path=%2Fn&equals={BIG}")
    page.shows("all was looked at")
    assert at.locator("tr[data-row]").count() == 1
    at.locator("tr[data-row]").click()
    written = at.get_by_label("Value", exact=True).inner_text()
    assert written == f'{{\n  "n": {BIG},\n  "in": {{\n    "d": 1.10,\n    "n": {BIG}\n  }}\n}}'
    until(lambda: http.bounds("exact")["table_offset"] == 4)
    page.go("topics/exact/files?partition=0&first=0&last=3")
    rows = at.get_by_role("table", name="Rows").locator("tbody tr")
    rows.nth(3).wait_for()
    titles = [title.lower() for title in at.get_by_role("table", name="Rows").locator("th").all_inner_texts()]
    cells = [dict(zip(titles, row.locator("td").all_inner_texts(), strict=True)) for row in rows.all()]
    assert [cell["n"] for cell in cells] == [str(BIG), str(BIG - 1), "–", ""]
    assert [cell["constructor"] for cell in cells] == ["–", "–", "1", ""]
    assert (cells[0]["in"], cells[3]["value"]) == (f'{{"d":1.10,"n":{BIG}}}', str(BIG))


def test_a_preview_of_other_inputs_is_not_shown(page: Page, http: Http) -> None:
    http.create("late")
    http.publish("late", *({"value": str(number)} for number in range(10)))
    with Consumer(http.url, group="late", topics=["late"], stop_at="latest", auto_offset_reset="earliest") as consumer:
        list(consumer)
        consumer.commit()
    held: list[Callable[[], None]] = []
    page.context.route(
        "**/offsets/reset", lambda route: held.append(route.continue_) if not held else route.continue_()
    )
    at = page.go("groups/late")
    with at.expect_request("**/offsets/reset"):
        at.get_by_role("button", name="Preview").click()
    at.get_by_role("combobox", name="To", exact=True).select_option("offset")
    at.get_by_role("textbox", name="Offset", exact=True).fill("4")
    at.get_by_role("button", name="Preview").click()
    page.shows("6 again")
    with at.expect_response("**/offsets/reset") as first:
        held[0]()
    assert json.loads(first.value.request.post_data)["to"] == "earliest"
    first.value.finished()
    with at.expect_response("**/v1/groups/late"):
        pass
    assert (at.get_by_text("6 again").count(), at.get_by_text("10 again").count()) == (1, 0)
    at.get_by_role("button", name="Reset …").click()
    at.get_by_label("Type late to go on").fill("late")
    at.get_by_role("button", name="Reset it").click()
    at.get_by_role("dialog").wait_for(state="detached")
    assert http.get("/v1/groups/late/offsets").json["offsets"][0]["offset"] == 4


def test_a_server_slower_than_the_interval_is_let_answer(page: Page, http: Http) -> None:
    http.create("slow")
    held: list[Callable[[], None]] = []
    page.context.route("**/v1/topics/slow/health", lambda route: held.append(route.continue_))
    at = page.at
    at.clock.install()
    with at.expect_request("**/v1/topics/slow/health"):
        page.go("topics/slow/files")
    at.clock.run_for(35_000)
    assert len(held) == 1, "the first is neither ended nor asked for again"
    held[0]()
    page.shows("What jobs would do now")
