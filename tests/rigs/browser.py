"""Chromium for tests of pages, where it is installed."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from siltlog.server_process import ServerProcess

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
TIMEOUT_MS = 60_000
needs_chromium = pytest.mark.skipif(
    CHROMIUM is None, reason="no Chromium is installed (Debian: apt-get install chromium)"
)


@contextmanager
def chromium() -> Iterator[Any]:
    """Gives a browser of Playwright."""
    playwright = pytest.importorskip("playwright.sync_api")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        yield browser
        browser.close()


class Page:
    """The page of a server in a context of its own, made with `options`; it hears what goes wrong in it."""

    def __init__(self, browser: Any, url: str, **options: Any) -> None:
        self.url = f"{url}/ui/"
        self.context = browser.new_context(**options)
        self.context.set_default_timeout(TIMEOUT_MS)
        self.at = self.context.new_page()
        self.wrong: list[str] = []
        self.elsewhere: list[str] = []
        self.at.on("pageerror", lambda error: self.wrong.append(str(error)))
        self.at.on("console", lambda said: "Content Security" in said.text and self.wrong.append(said.text))
        self.at.on("request", lambda asked: asked.url.startswith(url) or self._asked(asked.url))

    def _asked(self, url: str) -> None:
        if not url.startswith(("data:", "blob:", "ws://127.0.0.1")):
            self.elsewhere.append(url)

    def go(self, place: str) -> Any:
        self.at.goto(f"{self.url}#/{place}")
        return self.at

    def go_by_keys(self, key: str, place: str) -> None:
        """Goes there by `g` and a key; the page takes them only where they come soon after one another."""
        while self.at.evaluate("location.hash") != f"#/{place}":
            self.at.keyboard.press("g")
            self.at.keyboard.press(key)

    def shows(self, text: str) -> None:
        self.at.get_by_text(text).first.wait_for()


@contextmanager
def opened(browser: Any, server: ServerProcess | str, **options: Any) -> Iterator[Page]:
    """Gives a page on which nothing may go wrong, and which may ask nobody but its server or address."""
    page = Page(browser, server if isinstance(server, str) else server.url, **options)
    try:
        yield page
        assert (page.wrong, page.elsewhere) == ([], [])
    finally:
        page.context.close()
