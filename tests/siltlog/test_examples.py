"""Every program of examples/ runs, and prints what its page says."""

import re
from pathlib import Path

import doc_page
import pytest

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
def test_every_example_prints_what_the_page_says(tmp_path: Path) -> None:
    (tmp_path / "examples").symlink_to(FOLDER)

    with running_server(flush_ms=100) as server:

        def addressed(commands: str) -> str:
            return re.sub(
                r"^((?:python )?examples/[^|\n]*?)\s*(\||$)", rf"\1 {server.url} \2", commands, flags=re.MULTILINE
            )

        assert doc_page.run(PAGE, server.url, tmp_path, change=addressed) >= 4
