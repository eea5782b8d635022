"""The page below a path of a real proxy, which takes it off or leaves it."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from browser import needs_chromium, opened
from http_rig import Http
from nginx_path import below, needs_nginx
from page_places import PLACES, TOPIC, furnish, visit

from siltlog.server_process import ServerProcess
from siltlog.testing import running_server

PATH = "/a/b"

pytestmark = [pytest.mark.client, pytest.mark.timeout(180), needs_chromium, needs_nginx]


@pytest.fixture(scope="module")
def server() -> Iterator[ServerProcess]:
    with running_server(flush_ms=200, path_prefix=PATH) as server:
        furnish(server.url)
        yield server


CROWDED = re.compile("503 .*/search")


@pytest.mark.parametrize("stripped", [True, False], ids=["stripped", "left"])
def test_every_place_is_there_below_a_path(browser: Any, server: ServerProcess, tmp_path: Path, stripped: bool) -> None:
    with below(PATH, server.url, tmp_path, stripped=stripped) as url:
        assert Http(url).call("GET", "/", Accept="text/html").headers["location"] == "ui/"
        failed: list[str] = []
        with opened(browser, url) as page:
            page.at.on("response", lambda got: got.status >= 400 and failed.append(f"{got.status} {got.url}"))
            page.go("")
            page.at.locator(".reached.live").wait_for()
            for place in PLACES:
                visit(page, place)
            # Of searches that were left the last ones may still have their places: then it is sent again.
            assert [said for said in failed if "nowhere" not in said and not CROWDED.fullmatch(said)] == []
            visit(page, f"topics/{TOPIC}")
            page.at.get_by_text("live", exact=True).last.wait_for()
            # Those that were there before come all at once, after the stream has begun.
            page.at.locator("tr[data-row]").first.wait_for()
            before = page.at.locator("tr[data-row]").count()
            Http(url).publish(TOPIC, {"value": f"through the proxy {stripped}"})
            page.shows(f"through the proxy {stripped}")
            assert page.at.locator("tr[data-row]").count() == before + 1
