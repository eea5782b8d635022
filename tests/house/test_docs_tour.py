"""What docs/tour.md has a reader type, against a real server: each command, and the form of what it answers."""

import gzip
import re
import subprocess
from pathlib import Path

import doc_page
import pytest
from http_rig import Http
from waiting import until

from siltlog.testing import running_server

PAGE = Path(__file__).parents[2] / "docs" / "tour.md"
_CONSOLE = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_TYPED = re.compile(r"^\$ (.*?[^\\])\n(.*?)(?=^\$ |\Z)", re.MULTILINE | re.DOTALL)
_ENDLESS = re.compile(r"silt serve|curl -N")
_VARIES = re.compile(r"file:\S+|\d+(?:\.\d+)?")


def form(printed: str) -> list[list[str]]:
    """The words of each line; numbers, times and places are any."""
    return [_VARIES.sub("N", line).split() for line in printed.splitlines() if line.strip()]


def settled(http: Http) -> bool:
    """What was published is in the tables."""
    rows = http.get("/v1/topics/orders/offsets").json["partitions"]
    return all(row["table_offset"] == row["high_watermark"] for row in rows)


@pytest.mark.timeout(300)
@pytest.mark.slow
def test_what_is_typed_is_answered_as_the_page_shows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "events.ndjson").write_text('{"user": {"id": "ada"}}\n')
    (tmp_path / "2013.csv.gz").write_bytes(gzip.compress(b"carrier,minutes\nAA,2\n"))
    page = PAGE.read_text("utf-8").replace("s3://bucket/2013.csv.gz", "2013.csv.gz")
    data_dir = tmp_path / "silt-data"
    with running_server(data_dir=data_dir, schedule="off", flush_ms=50) as server:
        monkeypatch.setenv("SILT_DATA_DIR", str(data_dir))
        environment = doc_page.environment_of(server.url)
        typed = [pair for block in _CONSOLE.findall(page) for pair in _TYPED.findall(block)]
        ran = [pair for pair in typed if not _ENDLESS.match(pair[0])]
        assert len(typed) - len(ran) == 2
        for command, shown in ran:
            if command.startswith(("silt query", "silt topic list")):
                until(lambda: settled(Http(server.url)))
            done = subprocess.run(
                ["bash", "-euo", "pipefail", "-c", command.replace("localhost:7070", server.url)],
                cwd=tmp_path,
                env=environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                check=False,
                timeout=60,
            )
            assert done.returncode == 0, (command, done.stdout)
            if shown.strip():
                assert form(done.stdout) == form(shown), (command, done.stdout)
        assert doc_page.run(_first_program(page), server.url, tmp_path) == 1


def _first_program(page: str) -> str:
    found = re.search(r"^```python\n.*?^```$", page, re.MULTILINE | re.DOTALL)
    assert found is not None
    return found[0]
