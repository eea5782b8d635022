"""The pictures of the documentation can be taken anew, and show something."""

from pathlib import Path

import pytest
from browser import needs_chromium
from page_pictures import PICTURES, take
from PIL import Image

BYTES_MAX = 150_000
PICTURES_MAX = 8
COLOURS_MIN = 12
SOME = ("overview", "records-dark", "phone")
"""One of each kind: charts, records, cards."""
DOCS = Path(__file__).parents[3] / "docs"

pytestmark = [pytest.mark.client, pytest.mark.timeout(180), needs_chromium]


def test_pictures_are_taken_of_pages_that_show_something(tmp_path: Path) -> None:
    take(tmp_path, SOME)
    assert sorted(path.stem for path in tmp_path.iterdir()) == sorted(SOME)
    for path in tmp_path.iterdir():
        with Image.open(path) as picture:
            assert picture.mode == "P"
            used = picture.getcolors()
            assert used is not None
            # A page that is blank, or says only that it loads, has one ground and few other points.
            assert len(used) >= COLOURS_MIN, path.name
            assert max(count for count, _ in used) < picture.width * picture.height * 0.95, path.name
        assert path.stat().st_size < BYTES_MAX, path.name


def test_the_pictures_that_are_shown_are_there_and_all_of_them() -> None:
    shown = sorted(path.stem for path in (DOCS / "pictures").glob("*.png"))
    assert shown == sorted(PICTURES)
    assert len(shown) <= PICTURES_MAX
    text = (DOCS / "page.md").read_text("utf-8")
    assert [name for name in shown if f"pictures/{name}.png" not in text] == []
    assert all((DOCS / "pictures" / f"{name}.png").stat().st_size < BYTES_MAX for name in shown)
