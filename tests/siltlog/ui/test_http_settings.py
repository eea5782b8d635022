"""The page Settings in a real browser: what it shows is what /v1/config says, and what it changes acts."""

from collections.abc import Iterator
from typing import Any

import pytest
from access_rig import as_caller, secured_server
from browser import Page, needs_chromium, opened
from http_rig import NO_REDIS, Http

from siltlog.server.settings.configuration import CHANGES_A_MINUTE_MAX
from siltlog.server_process import ServerProcess
from siltlog.testing import running_server

PASSWORD = "hunter22-hunter22"
pytestmark = [pytest.mark.client, pytest.mark.timeout(300), needs_chromium]


@pytest.fixture(scope="module")
def server() -> Iterator[ServerProcess]:
    with running_server(redis_url=NO_REDIS, redis_password=PASSWORD, drain_ms=700) as server:
        yield server


def config(http: Http) -> dict[str, Any]:
    found: dict[str, Any] = http.get("/v1/config").json
    return found


def shown(at: Any) -> list[str]:
    at.get_by_role("region", name="Settings").wait_for()
    found: list[str] = at.locator('td[data-title="Setting"] strong').all_inner_texts()
    return found


def test_each_setting_is_shown_and_no_secret(page: Page, server: ServerProcess) -> None:
    settings = config(Http(server.url))["settings"]
    at = page.go("settings")
    assert shown(at) == list(settings)
    assert PASSWORD not in at.content()
    secret = at.locator("tr", has=at.get_by_text("redis_password", exact=True))
    assert secret.locator("td").nth(1).inner_text() == settings["redis_password"]["value"] == "***"
    at.get_by_label("Show").select_option("set")
    at.get_by_text(f"of {len(settings)}.").wait_for()
    assert shown(at) == [name for name, each in settings.items() if each["origin"] != "default"]
    at.get_by_label("Text in a name").fill("how long a stop waits")
    at.get_by_text("1 setting of").wait_for()
    assert shown(at) == ["drain_ms"]
    change = at.get_by_role("button", name="Change drain_ms")
    assert change.get_attribute("aria-disabled") == "true"
    page.shows(f"{settings['drain_ms']['place']} sets it")


def test_a_hot_setting_is_changed_acts_and_is_taken_back(browser: Any) -> None:
    with running_server(redis_url=NO_REDIS) as server, opened(browser, server) as page:
        http = Http(server.url)
        http.create("small")
        large = {"value": "x" * 4096}
        assert http.publish("small", large).status == 200
        at = page.go("settings?show=hot")
        changed = at.get_by_role("cell", name="changed while it ran")
        at.get_by_role("button", name="Change record_bytes_max").click()
        at.get_by_label("To", exact=True).fill("2KiB")
        assert at.locator("dialog dd").all_inner_texts() == ["8 MiB 8388608", "2KiB"]
        at.get_by_role("button", name="Save").click()
        page.shows("record_bytes_max is 2 KiB now; it was 8 MiB.")
        assert config(http)["settings"]["record_bytes_max"]["value"] == 2048
        assert http.publish("small", large).status >= 400
        at.get_by_role("button", name="Change record_bytes_max").click()
        at.get_by_role("button", name="as curl, as Python of taking it back").click()
        page.shows('change_config({"record_bytes_max": None}')
        at.keyboard.press("Escape")
        at.get_by_role("button", name="Take the change back").click()
        page.shows("record_bytes_max is 8 MiB now")
        assert http.publish("small", large).status == 200

        # Loaded by now: what is loaded later would know of what somebody else changes.
        changed.wait_for(state="detached")
        at.get_by_role("button", name="Change record_bytes_max").click()
        at.get_by_label("To", exact=True).fill("3KiB")
        assert http.json("PATCH", "/v1/config", {"changes": {"log_level": "error"}}).status == 200
        at.get_by_role("button", name="Save").click()
        page.shows("Somebody else changed a setting")
        at.get_by_role("dialog").get_by_role("button", name="Load them again").click()
        changed.wait_for()
        for _ in range(CHANGES_A_MINUTE_MAX):
            http.json("PATCH", "/v1/config", {"changes": {"log_level": "error"}})
        at.get_by_role("dialog").get_by_role("button", name="Load them again").click()
        at.get_by_role("button", name="Save").click()
        page.shows("times within a minute")
        assert config(http)["settings"]["record_bytes_max"]["value"] == 8 << 20


def test_who_may_look_and_not_change_is_told_so_and_refused(browser: Any) -> None:
    with secured_server() as secured:
        _, viewer = secured.key("viewer", ("viewer", ""))
        _, producer = secured.key("producer", ("producer", ""))
        for caller, says in (
            (viewer, "This needs the right to alter the cluster."),
            (producer, "This needs the right to describe the cluster."),
        ):
            with as_caller(browser, secured, caller) as page:
                at = page.go("settings?filter=flush_bytes")
                if caller is viewer:
                    change = at.get_by_role("button", name="Change flush_bytes")
                    assert change.get_attribute("title") == says
                else:
                    page.shows(says)
            assert caller.json("PATCH", "/v1/config", {"changes": {"flush_bytes": 1}}).status == 403
