"""The page of dead letters in a real browser, at a real server with a real Redis."""

import csv
import json
import re
from pathlib import Path
from typing import Any

import pytest
from access_rig import as_caller, secured_server
from browser import Page, needs_chromium, opened
from groups_rig import embedded
from http_rig import Http
from letters_rig import Member, filled

from siltlog.server_process import ServerProcess
from siltlog.testing import running_server

HOSTILE = '<img src=x onerror="window.hurt = 1">\u202e</script>'
STEPS_MAX = 80

pytestmark = [pytest.mark.client, pytest.mark.timeout(240), needs_chromium]


def given_up(http: Http, topic: str, group: str, errors: list[str], records: int = 0) -> None:
    """Makes a topic whose first records a group gave up on, each with an error."""
    filled(http, topic, records=max(len(errors), records))
    member = Member(http, group, topic, f"of-{topic}")
    for offset, error in enumerate(errors):
        member.attempt(offset)
        member.bury(offset, error=error)
    member.leave()


def letters(http: Http, topic: str, query: str = "") -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = http.get(f"/v1/topics/{topic}/dlq{query}").json["dead_letters"]
    return found


def shown(at: Any) -> list[list[str]]:
    """The cells of the rows that can be opened."""
    rows: list[list[str]] = at.evaluate(
        "[...document.querySelectorAll('main tr[data-row]')]"
        ".map((row) => [...row.cells].map((cell) => cell.innerText.trim()))"
    )
    return rows


def reach(at: Any, name: str) -> None:
    """Presses Tab until what is named has the focus."""
    for _ in range(STEPS_MAX):
        at.keyboard.press("Tab")
        said = at.evaluate(
            "(() => { const one = document.activeElement; return (one.getAttribute('aria-label')"
            " ?? one.closest('label')?.innerText ?? one.innerText ?? '').trim(); })()"
        )
        if re.fullmatch(name, said):
            return
    raise AssertionError(f"Tab never came to {name}")


def test_topics_are_ranked_by_their_newest_letter(page: Page, server: ServerProcess) -> None:
    http = Http(server.url)
    given_up(http, "first", "readers", ["ValueError: one", "ValueError: two"])
    given_up(http, "second", "readers", ["KeyError: three"])
    given_up(http, "none-left", "readers", ["KeyError: four"])
    http.json("POST", "/v1/topics/none-left/dlq/discard", {"offsets": [{"partition": 0, "offset": 0}]})
    http.create("without")
    at = page.go("dead_letters")
    at.get_by_role("link", name="second").wait_for()
    rows = [row for row in shown(at) if row[0] in ("first", "second", "none-left", "without")]
    assert [(row[0], row[1], row[3], row[4]) for row in rows] == [
        ("second", "1", "readers", "KeyError: three"),
        ("first", "2", "readers", "ValueError: two"),
    ]
    member = Member(http, "others", "first")
    member.bury(0, error="OSError: newest")
    page.shows("OSError: newest")
    assert [row[0] for row in shown(at) if row[0] in ("first", "second")] == ["first", "second"]
    at.get_by_role("link", name="first").click()
    at.get_by_role("heading", name="first").wait_for()


def test_letters_are_shown_as_the_server_lists_them(page: Page, server: ServerProcess, tmp_path: Path) -> None:
    http = Http(server.url)
    given_up(http, "listed", "ledger", ["ValueError: a", "=1+1", HOSTILE])
    Member(http, "audit", "listed").bury(1, error="KeyError: d")
    at = page.go("dead_letters/listed")
    at.locator("tr[data-row]").nth(3).wait_for()
    listed = letters(http, "listed")
    assert [[row[0], row[2], row[3], row[4], row[5]] for row in shown(at)] == [
        [
            f"{letter['partition']}:{letter['offset']}",
            letter["dead_letter"]["group"],
            str(letter["dead_letter"]["attempts"]),
            letter["dead_letter"]["error"],
            letter["value"],
        ]
        for letter in listed
    ]
    with at.expect_download() as told:
        at.get_by_role("button", name="CSV").click()
    told.value.save_as(tmp_path / "letters.csv")
    with (tmp_path / "letters.csv").open(newline="") as file:
        kept = list(csv.DictReader(file))
    assert [row["offset"] for row in kept] == [str(letter["offset"]) for letter in listed]
    assert [row["error"] for row in kept if "1+1" in row["error"]] == ["'=1+1"]
    with at.expect_download() as told:
        at.get_by_role("button", name="NDJSON").click()
    told.value.save_as(tmp_path / "letters.ndjson")
    assert [json.loads(line) for line in (tmp_path / "letters.ndjson").read_text().splitlines()] == listed
    at.get_by_label("Text in the error").fill("keyerror")
    at.locator("tr[data-row]").nth(1).wait_for(state="detached")
    assert [row[4] for row in shown(at)] == ["KeyError: d"]
    at.get_by_label("Text in the error").fill("")
    at.get_by_label("Given up by the group").fill("ledger")
    at.get_by_role("cell", name="KeyError: d").wait_for(state="detached")
    at.locator("tr[data-row]").nth(2).wait_for()
    assert [row[0] for row in shown(at)] == [f"0:{each['offset']}" for each in letters(http, "listed", "?group=ledger")]
    at.locator("tr[data-row]").first.press("Enter")
    beside = at.get_by_label("One record")
    assert beside.get_by_label("Error").inner_text() == HOSTILE
    assert at.evaluate("window.hurt") is None
    assert at.locator("main img").count() == 0


def test_letters_go_back_by_the_keyboard_alone(page: Page, server: ServerProcess) -> None:
    http = Http(server.url)
    given_up(http, "mended", "ledger", ["ValueError: a", "ValueError: b", "ValueError: c"], records=4)
    at = page.go("dead_letters/mended")
    at.locator("tr[data-row]").nth(2).wait_for()
    at.locator("h1").focus()
    for letter in ("0:2", "0:0"):
        reach(at, letter)
        at.keyboard.press("Space")
    at.locator("h1").focus()
    reach(at, "Send back 2 …")
    at.keyboard.press("Enter")
    at.get_by_role("dialog").wait_for()
    reach(at, "Send back 2")
    at.keyboard.press("Enter")
    page.shows("went back to mended")
    at.get_by_role("dialog").wait_for(state="detached")
    assert at.get_by_text("sent back").count() == 2
    records = http.read("mended", query="values=text")
    assert [record["value"] for record in records] == ["0:0", "0:1", "0:2", "0:3", "0:0", "0:2"]
    assert len(letters(http, "mended")) == 3, "they stay until they are discarded"


def test_letters_are_discarded_by_the_keyboard_alone(page: Page, server: ServerProcess) -> None:
    http = Http(server.url)
    given_up(http, "unwanted", "ledger", ["ValueError: a", "ValueError: b", "ValueError: c"])
    at = page.go("dead_letters/unwanted")
    at.locator("tr[data-row]").nth(2).wait_for()
    at.locator("h1").focus()
    reach(at, "0:1")
    at.keyboard.press("Space")
    at.locator("h1").focus()
    reach(at, "Discard 1 …")
    at.keyboard.press("Enter")
    at.get_by_role("dialog").wait_for()
    reach(at, "Reason")
    at.keyboard.type("a test")
    reach(at, "Type\\s+discard\\s+to go on")
    at.keyboard.type("discard")
    at.keyboard.press("Enter")
    at.get_by_role("dialog").wait_for(state="detached")
    at.get_by_label("0:1").wait_for(state="detached")
    assert [letter["offset"] for letter in letters(http, "unwanted")] == [2, 0]
    marker = http.read("unwanted.dlq", query="values=text")[-1]
    assert {header["key"]: header["value"] for header in marker["headers"]}["silt.reason"] == "a test"


def test_all_go_back_or_are_purged(page: Page, server: ServerProcess) -> None:
    http = Http(server.url)
    given_up(http, "whole", "ledger", ["ValueError: a", "ValueError: b"])
    at = page.go("dead_letters/whole")
    at.get_by_role("button", name="Send back all 2 …").click()
    at.get_by_role("button", name="as curl, as Python").click()
    assert "admin.replay_dead_letters(" in at.get_by_role("dialog", name="The same without this page").inner_text()
    at.keyboard.press("Escape")
    at.get_by_role("button", name="Send back all 2", exact=True).click()
    page.shows("2 records")
    assert [record["value"] for record in http.read("whole", query="values=text")][-2:] == ["0:0", "0:1"]
    at.get_by_role("button", name="Purge …").click()
    at.get_by_label("Type whole.dlq to go on").fill("whole")
    at.get_by_role("button", name="Purge", exact=True).click()
    assert len(letters(http, "whole")) == 2, "another word purges nothing"
    at.get_by_label("Type whole.dlq to go on").fill("whole.dlq")
    at.get_by_role("button", name="Purge", exact=True).click()
    page.shows("There is no dead letter")
    assert letters(http, "whole") == []
    assert http.bounds("whole.dlq")["log_start_offset"] == 2


def test_there_is_a_page_at_a_time(page: Page, server: ServerProcess) -> None:
    http = Http(server.url)
    given_up(http, "many", "ledger", [f"ValueError: {number}" for number in range(52)])
    at = page.go("dead_letters/many")
    at.locator("tr[data-row]").nth(49).wait_for()
    page.shows("52 dead letters in all")
    at.get_by_label("Choose all 50 below").check()
    at.get_by_role("button", name="Discard 50 …").wait_for()
    at.get_by_role("link", name="Next 50").click()
    at.get_by_role("cell", name="ValueError: 0", exact=True).wait_for()
    assert [row[0] for row in shown(at)] == ["0:1", "0:0"]
    at.get_by_role("link", name="First page").click()
    at.locator("tr[data-row]").nth(49).wait_for()


def test_what_one_may_not_do_is_not_offered_and_says_why(browser: Any, tmp_path: Path) -> None:
    valkey = embedded(tmp_path / "redis")
    try:
        with secured_server(redis_url=valkey.start(), flush_ms=200) as secured:
            given_up(secured.admin, "kept", "ledger", ["ValueError: a"])
            _, reader = secured.key("reader", ("consumer", ""), ("viewer", ""))
            with as_caller(browser, secured, reader) as page:
                at = page.go("dead_letters/kept")
                at.get_by_label("0:0").check()
                for name, right in (("Send back 1", "write topic kept"), ("Discard 1", "delete topic kept")):
                    button = at.get_by_role("button", name=re.compile(f"^{name} …"))
                    assert button.get_attribute("aria-disabled") == "true"
                    assert f"the right to {right}" in button.inner_text()
                    button.click(force=True)
                assert at.get_by_role("dialog").count() == 0
            _, viewer = secured.key("viewer", ("viewer", ""))
            with as_caller(browser, secured, viewer) as page:
                page.go("dead_letters")
                page.shows("This needs the right to read topic kept.")
            _, operator = secured.key("operator", ("operator", ""))
            with as_caller(browser, secured, operator) as page:
                at = page.go("dead_letters/kept")
                page.shows("This needs the right to read topic kept.")
                at.get_by_role("button", name="Purge …").click()
                at.get_by_label("Type kept.dlq to go on").fill("kept.dlq")
                at.get_by_role("button", name="Purge", exact=True).click()
                page.shows("0 records are in kept.dlq")
                assert secured.admin.bounds("kept.dlq")["log_start_offset"] == 1
    finally:
        valkey.stop()


def test_it_goes_on_when_the_server_comes_back(browser: Any) -> None:
    with running_server(flush_ms=200) as server, opened(browser, server) as page:
        http = Http(server.url)
        given_up(http, "lasting", "ledger", ["ValueError: before"], records=2)
        at = page.go("dead_letters/lasting")
        page.shows("ValueError: before")
        server.kill()
        page.shows("The server is not reached.")
        server.start()
        at.get_by_text("The server is not reached.").wait_for(state="detached")
        Member(http, "ledger", "lasting", "b").bury(1, error="ValueError: after")
        page.shows("ValueError: after")
        assert at.locator("tr[data-row]").count() == 2
