"""Every program of examples/ runs, and prints what its page says."""

import re
import shutil
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import doc_page
import pytest
from playwright.sync_api import sync_playwright

from siltlog import Admin, Producer
from siltlog.testing import running_server

TOP = Path(__file__).parents[2]
FOLDER = TOP / "examples"
PAGE = (FOLDER / "README.md").read_text("utf-8")


def test_the_page_names_every_example() -> None:
    programs = {path.name for path in FOLDER.iterdir() if path.is_file()} - {"README.md"}
    assert programs == set(re.findall(r"^\[[^]]+]\(([^)]+)\)", PAGE, re.MULTILINE))
    run = set(re.findall(r"^(?:python )?examples/(\S+)", PAGE, re.MULTILINE))
    assert run == {name for name in programs if not name.endswith(".html")}


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_every_example_prints_what_the_page_says(tmp_path: Path) -> None:
    (tmp_path / "examples").symlink_to(FOLDER)

    quiet = {f"schedule_{job}": "off" for job in ("compact", "vacuum", "audit", "catalog")}
    # Retention is asked for by an example, which sees what there is before it.
    with running_server(flush_ms=100, schedule="on", schedule_retain="0 0 1 1 *", **quiet) as server:

        def addressed(commands: str) -> str:
            return re.sub(
                r"^((?:python )?examples/[^|\n]*?)\s*(\||$)", rf"\1 {server.url} \2", commands, flags=re.MULTILINE
            )

        assert doc_page.run(PAGE, server.url, tmp_path, change=addressed) >= 9


@pytest.mark.client
def test_the_page_shows_records_as_they_come_and_after_a_restart() -> None:
    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.skip("there is no Chromium: apt-get install chromium")
    handler = partial(SimpleHTTPRequestHandler, directory=str(FOLDER))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as pages:
        Thread(target=pages.serve_forever, daemon=True).start()
        origin = f"http://localhost:{pages.server_port}"
        try:
            with running_server(flush_ms=100, cors_origins=origin) as server, Producer(server.url) as producer:
                Admin(server.url).create_topic("orders")
                producer.send("orders", "<b>tea</b>", key="ada").result(30)
                with sync_playwright() as playwright:
                    browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
                    page = browser.new_page()
                    page.goto(f"{origin}/tail.html?topic=orders&offset=earliest&server={server.url}")
                    page.get_by_text("0:0  ada  <b>tea</b>", exact=True).wait_for()
                    server.restart()
                    producer.send("orders", "cup").result(30)
                    page.get_by_text("0:1    cup", exact=True).wait_for()
                    assert page.locator("li").count() == 2
                    browser.close()
        finally:
            pages.shutdown()
