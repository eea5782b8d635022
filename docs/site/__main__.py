"""`make docs`: writes the pages that are made of the code, gathers all others, and builds the site of them."""

import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

from docs.site import command_page, http_page, python_page, settings_page
from docs.site.gathered import Gathered

TOP = Path(__file__).parents[2]
CONFIGURATION = Path(__file__).with_name("zensical.toml")
STYLE = Path(__file__).with_name("style.css")
MADE = {
    "reference/http.md": http_page.page,
    "reference/python.md": python_page.page,
    "reference/commands.md": command_page.page,
    "reference/settings.md": settings_page.page,
}


def build(folder: Path) -> Path:
    """Builds into `folder`/site and returns that; fails when a link leads nowhere."""
    shutil.rmtree(folder, ignore_errors=True)
    pages = folder / "docs"
    Gathered(TOP, pages, set(MADE)).gather(named())
    for name, page in MADE.items():
        file = pages / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(page(), encoding="utf-8")
    shutil.copy(STYLE, pages)
    shutil.copy(CONFIGURATION, folder)
    program = [Path(sys.executable).with_name("zensical"), "build", "--strict", "--config-file", CONFIGURATION.name]
    subprocess.run(program, cwd=folder, check=True)
    return folder / "site"


def named() -> list[str]:
    """The pages that the navigation names, by their paths in the tree of pages."""
    return _pages(tomllib.loads(CONFIGURATION.read_text(encoding="utf-8"))["project"]["nav"])


def _pages(entries: list[dict[str, Any]]) -> list[str]:
    """Entries are one name and what it leads to: a page, or more entries."""
    found = []
    for entry in entries:
        for place in entry.values():
            found += _pages(place) if isinstance(place, list) else [place]
    return found


if __name__ == "__main__":
    site = build(Path(sys.argv[1]).resolve() if len(sys.argv) > 1 else TOP / "build" / "docs")
    print(f"Open {site / 'index.html'}, or: python3 -m http.server --bind 127.0.0.1 --directory {site}")
