"""The documentation site: built, every link of it followed, and looked at in a browser."""

import json
import re
import shutil
from collections.abc import Iterator, Sequence
from functools import partial
from html.parser import HTMLParser
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import unquote, urlsplit

import click
import pytest
from playwright.sync_api import Page, sync_playwright

import siltlog
from docs.site import command_page
from docs.site.__main__ import build, named
from siltlog.cli.main import COMMANDS
from siltlog.infra.settings.settings import ServerSettings
from siltlog.infra.settings.topic_config import SETTINGS

TOP = Path(__file__).parents[2]
DOCS = TOP / "docs"
WIDTHS = (1280, 390)
LOOKED_AT = ("index.html", "comparison.html", "reference/http.html", "reference/python.html", "reference/settings.html")
IN_THE_DARK = ("index.html", "reference/settings.html")
"""How wide a page is does not hang on its colours."""


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


class Html(HTMLParser):
    """What a page links to, what it loads, and which anchors it has."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given: dict[str, Any] = dict(attrs)
        self.ids |= {given[name] for name in ("id", "name") if given.get(name)}
        if tag == "a" and given.get("href"):
            self.links.append(given["href"])
        elif tag in ("script", "img", "source", "iframe") and given.get("src"):
            self.loaded.append(given["src"])
        elif tag == "link" and given.get("href") and given.get("rel") not in ("canonical", "next", "prev", "alternate"):
            self.loaded.append(given["href"])


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("docs"))


def test_every_link_leads_to_what_is_there(site: Path) -> None:
    pages = {file: Html(file.read_text("utf-8")) for file in site.rglob("*.html") if file.name != "404.html"}
    assert len(pages) > 40
    assert [each for file, page in pages.items() for each in dead(file, page, pages)] == []


def dead(file: Path, page: Html, pages: dict[Path, Html]) -> Iterator[str]:
    for link in page.links:
        url = urlsplit(link)
        if url.scheme or url.netloc:
            continue
        target = (file.parent / unquote(url.path)).resolve() if url.path else file
        target = target / "index.html" if target.is_dir() else target
        if not target.exists():
            yield f"{file.name}: {link}"
        elif url.fragment and target in pages and unquote(url.fragment) not in pages[target].ids:
            yield f"{file.name}: {link} has no such anchor"


def test_a_dead_link_is_found(tmp_path: Path) -> None:
    file, other = tmp_path / "a.html", tmp_path / "b.html"
    file.write_text('<a href="b.html#there">1</a><a href="b.html#gone">2</a><a href="c.html">3</a>')
    other.write_text('<h2 id="there">x</h2>')
    pages = {each: Html(each.read_text()) for each in (file, other)}
    assert list(dead(file, pages[file], pages)) == ["a.html: b.html#gone has no such anchor", "a.html: c.html"]


def test_nothing_is_loaded_from_elsewhere(site: Path) -> None:
    for file in site.rglob("*.html"):
        foreign = [one for one in Html(file.read_text("utf-8")).loaded if urlsplit(one).netloc]
        assert foreign == [], file


def test_every_page_of_docs_is_in_the_navigation() -> None:
    assert {page.relative_to(DOCS).as_posix() for page in DOCS.rglob("*.md")} - set(named()) == set()


def test_references_are_whole(site: Path) -> None:
    pages = {name: (site / "reference" / f"{name}.html").read_text("utf-8") for name in ("http", "python", "settings")}
    document = json.loads((DOCS / "openapi.json").read_text("utf-8"))
    operations = {each["operationId"] for path in document["paths"].values() for each in path.values()}
    assert {name for name in operations if f'id="{name}"' not in pages["http"]} == set()
    public = {name for name in siltlog.__all__ if not name.startswith("_")}
    assert {name for name in public if f'id="{name.lower()}"' not in pages["python"]} == set()
    variables = {f"SILT_{name.upper()}" for name in ServerSettings.model_fields}
    assert {name for name in variables | set(SETTINGS) if f">{name}<" not in pages["settings"]} == set()
    commands = (site / "reference" / "commands.html").read_text("utf-8")
    assert {name for name in COMMANDS if f'id="silt-{name}"' not in commands} == set()


def test_help_stands_as_it_is_printed() -> None:
    page = command_page.page()
    assert "### silt topic create\n" in page
    assert "Usage: silt topic create [OPTIONS] NAME" in click.unstyle(page)


@pytest.mark.client
def test_it_reads_well_in_both_themes_wide_and_narrow(site: Path) -> None:
    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.skip("there is no Chromium: apt-get install chromium")
    handler = partial(Quiet, directory=str(site))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as pages:
        Thread(target=pages.serve_forever, daemon=True).start()
        origin = f"http://127.0.0.1:{pages.server_port}"
        try:
            with sync_playwright() as playwright:
                browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
                backgrounds = {
                    scheme: browsed(browser.new_page(color_scheme=scheme), origin, pages_of)
                    for scheme, pages_of in (("light", LOOKED_AT), ("dark", IN_THE_DARK))
                }
                browser.close()
        finally:
            pages.shutdown()
    assert backgrounds["light"] != backgrounds["dark"]


def browsed(page: Page, origin: str, looked_at: Sequence[str]) -> str:
    """Looks at pages of the site with this one, finds a word, and returns the colour that they stand on."""
    wrong: list[str] = []
    page.on("console", lambda message: wrong.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("request", lambda asked: wrong.append(asked.url) if not asked.url.startswith((origin, "data:")) else None)
    for name in looked_at:
        page.goto(f"{origin}/{name}")
        page.locator("h1").first.wait_for()
        for width in WIDTHS:
            page.set_viewport_size({"width": width, "height": 900})
            beyond = page.evaluate("document.documentElement.scrollWidth - window.innerWidth")
            assert beyond <= 0, f"{name} is {beyond} pixels wider than a window of {width}"
    page.set_viewport_size({"width": WIDTHS[0], "height": 900})
    page.goto(f"{origin}/index.html")
    page.get_by_role("button", name="Search").first.click()
    page.get_by_role("combobox").or_(page.get_by_role("textbox")).first.fill("tombstone")
    page.get_by_text(re.compile(r"^\d+ results$")).wait_for()
    assert wrong == []
    colour: str = page.evaluate("getComputedStyle(document.body).backgroundColor")
    return colour
