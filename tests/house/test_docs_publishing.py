"""Every command of docs/publishing.md, against a real server: what it prints is what the page says."""

from pathlib import Path

import doc_page
import pytest
from doc_page import Step

from siltlog.testing import running_server

PAGE = Path(__file__).parents[2] / "docs" / "publishing.md"


def test_a_page_is_read_as_it_is_meant() -> None:
    page = "```sh\na\n```\n```text\nb\n```\n\nx\n\n```python\nc\n```\nd\n```text\ne\n```\n```html\nf\n```\n"
    assert list(doc_page.steps(page)) == [Step("sh", "a\n", "b\n"), Step("python", "c\n", None)]


def test_what_a_page_prints_is_compared(tmp_path: Path) -> None:
    with pytest.raises(AssertionError):
        doc_page.run("```sh\necho one\n```\n```text\ntwo\n```\n", "", tmp_path)


@pytest.mark.timeout(900)
@pytest.mark.slow
def test_the_page_does_what_it_says(tmp_path: Path) -> None:
    with running_server(flush_ms=100) as server:
        assert doc_page.run(PAGE.read_text("utf-8"), server.url, tmp_path) > 12
