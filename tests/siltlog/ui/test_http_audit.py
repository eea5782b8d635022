"""The page Audit in a real browser: what it shows is what the topic has, as it comes."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from access_rig import Secured, as_caller
from browser import Page, needs_chromium, opened
from http_rig import NO_REDIS

from siltlog.infra import names
from siltlog.testing import running_server

HOSTILE = 'user:<img src=x onerror="window.hurt = 1">'
pytestmark = [pytest.mark.client, pytest.mark.timeout(300), needs_chromium]


@pytest.fixture
def page(browser: Any, secured: Secured) -> Iterator[Page]:
    with as_caller(browser, secured, secured.admin) as page:
        yield page


def events(secured: Secured) -> list[dict[str, Any]]:
    """All that was recorded, the newest first."""
    return [json.loads(record["value"]) for record in secured.admin.read(names.AUDIT_TOPIC, query="values=text")][::-1]


def shown(at: Any) -> list[tuple[str, str, str]]:
    at.locator("tr[data-row]").first.wait_for()
    columns = [at.locator(f'td[data-title="{title}"]').all_inner_texts() for title in ("Who", "Operation", "Of what")]
    return list(zip(*columns, strict=True))


def test_events_are_shown_as_they_come_and_as_they_were(page: Page, secured: Secured) -> None:
    for topic in ("one", "two"):
        secured.admin.json("POST", "/v1/topics", {"name": topic})
    at = page.go("audit")
    # It is begun, and done.
    at.get_by_role("cell", name="topic/two").nth(1).wait_for()
    assert shown(at) == [(each["principal"], each["operation"], each["resource"]) for each in events(secured)]
    secured.admin.call("DELETE", "/v1/topics/one")
    at.get_by_role("cell", name="deleteTopic").nth(1).wait_for()
    assert shown(at) == [(each["principal"], each["operation"], each["resource"]) for each in events(secured)]
    with at.expect_download() as download:
        at.get_by_role("button", name="NDJSON").click()
    saved = [json.loads(line) for line in Path(download.value.path()).read_text().splitlines()]
    assert [line["mac"] for line in saved] == [each["mac"] for each in events(secured)]


def test_events_are_filtered_and_told_in_full(page: Page, secured: Secured) -> None:
    secured.allow("hostile", HOSTILE, "topic", "three", "read")
    at = page.go("audit?operation=putAcl&outcome=begun")
    at.locator("tr[data-row]").first.press("Enter")
    [event] = [each for each in events(secured) if (each["operation"], each["outcome"]) == ("putAcl", "begun")]
    aside = at.get_by_role("complementary", name="One event")
    for value in (event["mac"], event["request_id"], event["detail"]):
        aside.get_by_text(value, exact=True).wait_for()
    assert HOSTILE.partition('"')[0] in event["detail"]
    assert (at.locator("main img").count(), at.evaluate("window.hurt")) == (0, None)
    at.get_by_label("Who").fill("nobody at all")
    page.shows("No event fits.")
    assert "principal=nobody" in at.url


def test_the_end_of_the_chain_is_that_of_the_server(page: Page, secured: Secured) -> None:
    secured.admin.json("POST", "/v1/topics", {"name": "chained"})
    at = page.go("audit")
    at.get_by_text("Is it whole?").click()
    page.shows(f"silt access log --verify --anchor {secured.admin.get('/v1/access/audit').json['anchor']}")


def test_who_may_not_read_it_is_told_so_and_refused(browser: Any, secured: Secured) -> None:
    _, viewer = secured.key("viewer", ("viewer", ""), ("consumer", ""))
    with as_caller(browser, secured, viewer) as page:
        at = page.go("audit")
        page.shows("This needs the right to read topic _audit.")
        assert at.locator("tr[data-row]").count() == 0
    assert viewer.get(f"/v1/topics/{names.AUDIT_TOPIC}/partitions/0/records").status == 403


def test_without_authentication_nothing_is_recorded(browser: Any) -> None:
    with running_server(redis_url=NO_REDIS) as server, opened(browser, server) as page:
        page.go("audit")
        page.shows("Nothing is recorded:")


def test_it_goes_on_when_the_server_comes_back(page: Page, secured: Secured) -> None:
    at = page.go("audit")
    at.get_by_role("button", name="Pause").wait_for()
    secured.server.kill()
    page.shows("The server is not reached.")
    secured.server.start()
    secured.again()
    assert secured.admin.json("POST", "/v1/topics", {"name": "afterwards"}).status == 201
    at.get_by_role("cell", name="topic/afterwards").first.wait_for()
    # The end of the chain, which is asked for less often, may say it too.
    at.get_by_text("The server is not reached.").first.wait_for(state="detached")
