"""What people do on the pages of a topic and of a group, with the mouse and by keyboard alone."""

import re
import subprocess
import sys

import pytest
from browser import Page, needs_chromium
from http_rig import Http
from letters_rig import Member

from siltlog import Consumer

TABS_MAX = 80
PARTITIONS = 5_000
_FOCUSED = """() => {
  const at = document.activeElement;
  const label = at?.labels?.[0]?.textContent ?? at?.getAttribute("aria-label") ?? at?.textContent ?? "";
  return [at?.tagName ?? "", label.trim()];
}"""

pytestmark = [pytest.mark.client, pytest.mark.timeout(180), needs_chromium]


def tab_to(page: Page, name: str, tag: str = "BUTTON") -> None:
    """Presses Tab until what is called `name` has the focus."""
    for _ in range(TABS_MAX):
        found, label = page.at.evaluate(_FOCUSED)
        if found == tag and re.match(name, label):
            return
        page.at.keyboard.press("Tab")
    raise AssertionError(f"no Tab leads to {tag} {name}")


def narrow(page: Page, begins: str, to: str, other: str) -> None:
    """Has a list show only names that begin so: `to`, and no longer `other`."""
    page.at.get_by_role("link", name=other, exact=True).wait_for()
    page.at.keyboard.press("/")
    # All at once: the list goes for each beginning that is asked for, and the focus that is in it with it.
    page.at.keyboard.insert_text(begins)
    page.at.get_by_role("link", name=other, exact=True).wait_for(state="detached")
    page.at.get_by_role("link", name=to, exact=True).wait_for()


def read_all(http: Http, group: str, topic: str) -> None:
    with Consumer(http.url, group=group, topics=[topic], stop_at="latest", auto_offset_reset="earliest") as consumer:
        list(consumer)
        consumer.commit()


def test_records_below_an_offset_are_deleted_once_the_topic_was_named(page: Page, http: Http) -> None:
    http.create("cut")
    http.publish("cut", *({"value": str(number)} for number in range(10)))
    at = page.go("topics/cut/partitions")
    at.get_by_role("button", name="Delete … of partition 0").click()
    at.get_by_label("The first offset to keep").fill("4")
    page.shows("4 offsets")
    at.get_by_role("button", name="Delete them").click()
    assert http.bounds("cut")["log_start_offset"] == 0, "not without the topic's name"
    at.get_by_label("Type cut to go on").fill("cut")
    at.get_by_role("button", name="Delete them").click()
    at.get_by_role("dialog").wait_for(state="detached")
    assert http.bounds("cut")["log_start_offset"] == 4
    at.get_by_role("cell", name="4", exact=True).wait_for()


def test_an_offset_that_is_not_there_is_refused_in_the_servers_words(page: Page, http: Http) -> None:
    http.create("kept")
    http.publish("kept", {"value": "a"})
    at = page.go("topics/kept/partitions")
    at.get_by_role("button", name="Delete … of partition 0").click()
    at.get_by_label("The first offset to keep").fill("7")
    at.get_by_label("Type kept to go on").fill("kept")
    at.get_by_role("button", name="Delete them").click()
    refused = http.call("DELETE", "/v1/topics/kept/partitions/0/records?before_offset=7").json["detail"]
    page.shows(refused)
    assert http.bounds("kept")["log_start_offset"] == 0


def test_a_setting_is_changed_and_put_back_and_partitions_are_added(page: Page, http: Http) -> None:
    http.create("set")
    at = page.go("topics/set/settings")
    page.shows("chosen when the topic is made")
    at.get_by_role("button", name="Change … retention.ms").click()
    at.get_by_label("retention.ms of set").fill("86400000")
    page.shows("24 h")
    at.get_by_role("button", name="Change it").click()
    at.get_by_role("cell", name="this topic").wait_for()
    assert http.get("/v1/topics/set").json["config"]["retention.ms"] == {"value": 86_400_000, "source": "topic"}
    at.get_by_role("button", name="Change … compression").click()
    at.get_by_label("compression of set").select_option("lz4")
    at.get_by_role("button", name="Change it").click()
    at.get_by_role("dialog").wait_for(state="detached")
    assert http.get("/v1/topics/set").json["config"]["compression"]["value"] == "lz4"
    at.get_by_role("button", name="Change … retention.ms").click()
    at.get_by_role("button", name="as curl, as Python of going back").click()
    page.shows('config={"retention.ms": None}')
    at.keyboard.press("Escape")
    at.get_by_role("button", name="Back to what the server says").click()
    at.get_by_role("dialog").wait_for(state="detached")
    assert http.get("/v1/topics/set").json["config"]["retention.ms"]["source"] != "topic"
    at.get_by_role("link", name="Partitions", exact=True).click()
    at.get_by_role("button", name="More partitions …").click()
    at.get_by_role("spinbutton", name="Partitions").fill("3")
    at.get_by_role("button", name="Have them").click()
    at.get_by_role("cell", name="2", exact=True).wait_for()
    assert http.get("/v1/topics/set").json["partitions"] == 3


def test_a_record_is_published_again_as_it_was(page: Page, http: Http) -> None:
    http.create("again")
    number = "12345678901234567890.000"
    headers = '[{"key":"h","value":"1"},{"key":"h","value":"2"}]'
    body = f'{{"records":[{{"key":"k","value":{{"n":{number}}},"headers":{headers}}}]}}'
    http.call("POST", "/v1/topics/again/records", body.encode(), Content_Type="application/json")
    at = page.go("topics/again")
    at.locator("tr[data-row]").click()
    at.get_by_role("link", name="Publish again …").click()
    page.shows("As record 0:0 was")
    at.get_by_role("button", name="Publish", exact=True).click()
    page.shows("Acknowledged at")
    first, second = http.read("again", query="values=text")
    assert {**second, "offset": 0, "timestamp": first["timestamp"]} == first
    assert number in second["value"]


def test_the_python_that_is_shown_sends_the_same_record(page: Page, http: Http) -> None:
    http.create("shown", partitions=2)
    headers = '[{"key":"h","value":"1"},{"key":"h","value_base64":"/w=="},{"key":"n","value":null}]'
    body = f'{{"records":[{{"key_base64":"/w==","value":{{"n":1.000}},"headers":{headers},"partition":0}}]}}'
    assert http.call("POST", "/v1/topics/shown/records", body.encode(), Content_Type="application/json").status == 200
    at = page.go("topics/shown/publish?partition=0&offset=0")
    page.shows("As record 0:0 was")
    at.get_by_role("combobox", name="Partition").select_option("1")
    at.get_by_label("Time", exact=True).fill("2026-11-21T07:36:00Z")
    at.get_by_role("combobox", name="Answered at").select_option("table")
    at.get_by_role("button", name="as curl, as Python").click()
    curl, code = at.get_by_role("dialog").locator("pre").all_inner_texts()
    assert "/records?acks=table" in curl and 'acks="table"' in code
    subprocess.run([sys.executable, "-c", code], check=True)
    [first], [second] = (http.read("shown", partition, query="values=text") for partition in (0, 1))
    assert second == {**first, "partition": 1, "timestamp": second["timestamp"]}
    assert second["value"] == '{"n":1.000}' and second["timestamp"].startswith("2026-11-21T07:36:00")


def test_an_empty_key_goes_along_and_a_line_that_is_no_header_does_not_go(page: Page, http: Http) -> None:
    http.create("empty")
    http.publish("empty", {"key": "", "value": '"a"'})
    at = page.go("topics/empty/publish?partition=0&offset=0")
    page.shows("Its key is the empty text.")
    at.get_by_label("Headers").fill("a: b: c\n\nwrong")
    page.shows("Line 3 of the headers, wrong, is no header")
    publish = at.get_by_role("button", name=re.compile("^Publish"))
    assert publish.get_attribute("aria-disabled") == "true"
    publish.click(force=True)
    at.get_by_label("Headers").fill("a: b: c")
    at.get_by_role("combobox", name="Answered at").select_option("table")
    publish.click()
    page.shows("Acknowledged at")
    page.shows(", as table")
    [_, second] = http.read("empty", query="values=text")
    assert (second["key"], second["value"]) == ("", '"a"'), "a text in quotes is no JSON to be read"
    assert second["headers"] == [{"key": "a", "value": "b: c"}]


def test_enter_sends_a_form_whose_fields_hold_what_they_may(page: Page, http: Http) -> None:
    at = page.go("topics")
    at.get_by_role("link", name="New topic").click()
    name = at.get_by_role("textbox", name="Name", exact=True)
    name.fill("no name")
    name.press("Enter")
    at.locator("input:focus:invalid:not([type])").wait_for()
    name.fill("entered")
    at.get_by_role("spinbutton", name="Partitions").fill("10001")
    name.press("Enter")
    at.locator("input:focus:invalid[type=number]").wait_for()
    assert http.get("/v1/topics/entered").status == 404
    at.get_by_role("spinbutton", name="Partitions").fill("2")
    name.press("Enter")
    at.get_by_role("heading", name="entered").wait_for()
    assert http.get("/v1/topics/entered").json["partitions"] == 2


def test_what_retention_would_remove_is_told_and_a_job_is_begun(page: Page, http: Http) -> None:
    http.create("old", retention_records=1)
    for number in range(3):
        http.publish("old", {"value": str(number)}, query="?acks=table")
    plan = http.get("/v1/topics/old/health").json["retention"]
    at = page.go("topics/old/files")
    page.shows(f"{plan['files']} files with {plan['rows']} records")
    assert plan["files"] == 2
    at.get_by_role("button", name="Compact now …").click()
    at.get_by_label("Type compact to go on").fill("compact")
    with at.expect_response("**/v1/jobs/compact/runs") as answered:
        at.get_by_role("button", name="Run it").click()
    # No schedule runs here: what the server says to that is what is shown.
    assert answered.value.status >= 400
    page.shows(answered.value.json()["detail"])


def test_groups_of_a_topic_and_their_lag_in_it(page: Page, http: Http) -> None:
    http.create("shared")
    http.publish("shared", {"value": "1"})
    read_all(http, "near", "shared")
    http.publish("shared", {"value": "2"}, {"value": "3"})
    at = page.go("topics/shared/groups")
    row = at.get_by_role("row").filter(has=at.get_by_role("link", name="near"))
    row.get_by_role("cell", name="2", exact=True).first.wait_for()
    row.get_by_role("link").click()
    at.get_by_role("heading", name="Groups › near").wait_for()


def test_a_member_is_removed_and_its_group_deleted(page: Page, http: Http) -> None:
    http.create("held")
    http.publish("held", {"value": "1"})
    Member(http, "holders", "held", member="one")
    at = page.go("groups/holders")
    at.get_by_role("button", name="Delete … (It has 1 member: stop them first.)").wait_for()
    at.get_by_role("button", name="Remove … one").click()
    at.get_by_label("Type holders to go on").fill("holders")
    at.get_by_role("button", name="Remove it").click()
    page.shows("Nobody reads in this group now.")
    assert http.get("/v1/groups/holders").json["members"] == []
    at.get_by_role("button", name="Delete …", exact=True).click()
    at.get_by_label("Type holders to go on").fill("holders")
    at.get_by_role("button", name="Delete it").click()
    at.get_by_role("heading", name="Groups", exact=True).wait_for()
    assert http.get("/v1/groups/holders").status == 404


def test_by_keyboard_alone_a_group_is_reset_and_a_topic_deleted(page: Page, http: Http) -> None:
    http.create("typed")
    http.publish("typed", *({"value": str(number)} for number in range(3)))
    for group in ("others", "typists"):
        read_all(http, group, "typed")
    http.create("beside")
    at = page.go("")
    at.get_by_role("heading", name="Overview").wait_for()
    press = at.keyboard.press
    page.go_by_keys("g", "groups")
    at.get_by_role("heading", name="Groups", exact=True).wait_for()
    narrow(page, "typi", to="typists", other="others")
    tab_to(page, "typists", "A")
    press("Enter")
    at.get_by_role("button", name="Preview").wait_for()
    tab_to(page, "Preview")
    press("Enter")
    page.shows("3 again")
    tab_to(page, "Reset …")
    press("Enter")
    tab_to(page, "Type typists", "INPUT")
    at.keyboard.type("typists")
    press("Enter")
    at.get_by_role("dialog").wait_for(state="detached")
    assert http.get("/v1/groups/typists/offsets").json["offsets"][0]["offset"] == 0
    assert at.evaluate(_FOCUSED)[1] != "", "the focus is where it was"
    page.go_by_keys("t", "topics")
    at.get_by_role("heading", name="Topics", exact=True).wait_for()
    narrow(page, "typed", to="typed", other="beside")
    tab_to(page, "typed", "A")
    press("Enter")
    at.get_by_role("button", name="Delete …").wait_for()
    tab_to(page, "Delete …")
    press("Enter")
    tab_to(page, "Type typed", "INPUT")
    at.keyboard.type("typed")
    press("Enter")
    at.get_by_role("heading", name="Topics", exact=True).wait_for()
    assert http.get("/v1/topics/typed").status == 404


def test_thousands_of_partitions_are_shown_fifty_at_a_time(page: Page, http: Http) -> None:
    http.create("broad", partitions=PARTITIONS)
    offsets = [{"topic": "broad", "partition": number, "offset": 0} for number in range(PARTITIONS)]
    assert http.json("PUT", "/v1/groups/broad/offsets", {"offsets": offsets}).status == 204
    http.publish("broad", {"partition": PARTITIONS - 1, "value": "behind"})
    at = page.go("groups/broad")
    rows = at.get_by_role("table", name="Partitions").locator("tbody tr")
    rows.nth(49).wait_for()
    assert rows.count() == 50
    first = rows.first.locator("td").all_inner_texts()
    assert first[1] == str(PARTITIONS - 1), "what is furthest behind comes first"
    asked: list[str] = []
    at.on("request", lambda request: asked.append(request.url))
    at.get_by_role("button", name="Next in Partitions").click()
    page.shows("51 to 100 of 5,000")
    # The page fetches its other modules when it has nothing to do.
    beside = ("broad", "/v1/events", "history", "/ui/")
    assert not [url for url in asked if not any(each in url for each in beside)]
    page.go("topics/broad/partitions")
    # The page of the group has a table of this name too.
    at.get_by_role("heading", name="Topics › broad").wait_for()
    at.get_by_role("table", name="Partitions").locator("tbody tr").nth(49).wait_for()
    assert at.locator("main tbody tr").count() == 50
    page.go("topics/broad/publish")
    at.get_by_label("Partition", exact=True).fill("4999")
    at.get_by_role("button", name="Publish", exact=True).click()
    page.shows("4999:1")


def test_a_range_is_in_the_address(page: Page) -> None:
    at = page.go("")
    with at.expect_response(re.compile(r"metrics/history\?.*silt_records_total.*step_ms=480000")):
        at.get_by_role("link", name="The last 24 hours").click()
    at.get_by_role("heading", name="The last 24 hours").wait_for()
    assert at.url.endswith("#/?range=24h")
    at.reload()
    at.get_by_role("heading", name="The last 24 hours").wait_for()
    assert at.get_by_role("link", name="The last 24 hours").get_attribute("aria-current") == "true"
