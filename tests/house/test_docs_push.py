"""Every command of docs/push.md, against a real server; tests/siltlog/test_browser.py opens its page."""

from pathlib import Path

import doc_page
import pytest

from siltlog.testing import running_server

PAGE = Path(__file__).parents[2] / "docs" / "push.md"


@pytest.mark.timeout(900)
@pytest.mark.slow
def test_the_page_does_what_it_says(tmp_path: Path) -> None:
    with running_server(flush_ms=100) as server:
        assert doc_page.run(PAGE.read_text("utf-8"), server.url, tmp_path) == 5
