"""Every command of docs/replay.md, against a real server and its tables."""

from pathlib import Path

import doc_page
import pytest

from siltlog.testing import running_server

PAGE = Path(__file__).parents[2] / "docs" / "replay.md"


@pytest.mark.timeout(900)
@pytest.mark.slow
def test_the_page_does_what_it_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data_dir = tmp_path / "silt-data"
    with running_server(data_dir=data_dir, flush_ms=50) as server:
        monkeypatch.setenv("SILT_DATA_DIR", str(data_dir))
        assert doc_page.run(PAGE.read_text("utf-8"), server.url, tmp_path) == 5
