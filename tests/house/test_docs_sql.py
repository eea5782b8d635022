"""Every command of docs/sql.md, against a real server and its tables: what it prints is what the page says."""

from pathlib import Path

import doc_page
import pytest

from siltlog.testing import running_server

PAGE = Path(__file__).parents[2] / "docs" / "sql.md"


@pytest.mark.timeout(900)
@pytest.mark.slow
def test_the_page_does_what_it_says(tmp_path: Path) -> None:
    with running_server(data_dir=tmp_path / "data", flush_ms=100) as server:
        assert doc_page.run(PAGE.read_text("utf-8"), server.url, tmp_path) == 4
