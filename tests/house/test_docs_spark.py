"""The program of docs/spark.md, against a real server."""

from pathlib import Path

import doc_page
import pytest
from spark_python import fast_workers

from siltlog.testing import running_server

PAGE = Path(__file__).parents[2] / "docs" / "spark.md"


@pytest.mark.timeout(900)
@pytest.mark.spark
@pytest.mark.slow
def test_the_page_does_what_it_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
    # Seconds of work need no optimising compiler.
    monkeypatch.setenv("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
    with running_server(redis_url="redis://127.0.0.1:1/0") as server, fast_workers():
        assert doc_page.run(PAGE.read_text("utf-8"), server.url, tmp_path, seconds_max=250) == 1
