"""Every command of docs/jobs.md, spark-submit among them, against a real server and its tables."""

import re
from pathlib import Path

import doc_page
import pytest

from siltlog.infra.settings.settings import SCHEDULE_PREFIX, ServerSettings
from siltlog.testing import running_server

PAGE = (Path(__file__).parents[2] / "docs" / "jobs.md").read_text("utf-8")


@pytest.mark.timeout(900)
@pytest.mark.spark
@pytest.mark.slow
def test_the_page_does_what_it_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data_dir = tmp_path / "silt-data"
    with running_server(data_dir=data_dir, flush_ms=100) as server:
        monkeypatch.setenv("SILT_DATA_DIR", str(data_dir))
        assert doc_page.run(PAGE, server.url, tmp_path, change=_soon_started, seconds_max=250) == 2


def _soon_started(commands: str) -> str:
    """Seconds of work need no optimising compiler."""
    options = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
    return commands.replace("spark-submit ", f"spark-submit --driver-java-options '{options}' ")


def test_the_page_tells_the_times_that_are_the_default() -> None:
    told = dict(re.findall(r"^\| `(\w+)` \| `([^`]+)`", PAGE, re.MULTILINE))
    fields = ServerSettings.model_fields
    assert told == {
        name.removeprefix(SCHEDULE_PREFIX): fields[name].get_default()
        for name in fields
        if name.startswith(SCHEDULE_PREFIX)
    }
