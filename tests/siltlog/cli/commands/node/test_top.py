"""`silt top` and `silt bench` against a real server; the sums of `silt top` without one."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from siltlog import Consumer, Producer
from siltlog.cli.activity import Look, group_rows, topic_rows
from siltlog.cli.main import run
from siltlog.server_process import ServerProcess
from siltlog.testing import running_server

Capture = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with running_server(data_dir=tmp_path_factory.mktemp("watched"), flush_ms=600_000) as server:
        yield server


@pytest.fixture(autouse=True)
def _here(server: ServerProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SILT_URL", server.url)


def topic(name: str, topic_id: str, *ends: int, table: int = 0) -> dict[str, Any]:
    offsets = [{"high_watermark": end, "table_offset": table} for end in ends]
    return {"name": name, "topic_id": topic_id, "records": sum(ends), "bytes": 1, "files": 2, "offsets": offsets}


def group(name: str, *offsets: int | None, lag: int = 0, seconds: float | None = None) -> dict[str, Any]:
    parts = [{"offset": offset, "lag": lag, "lag_seconds": seconds} for offset in offsets]
    return {"group": name, "state": "stable", "members": [{}], "partitions": parts}


def test_rates_are_between_two_looks_and_the_busiest_is_first() -> None:
    before = Look(10.0, [topic("a", "1", 5, 5), topic("b", "2", 0), topic("old", "3", 9)], [group("g", 3, None)])
    now = Look(
        12.0,
        [topic("a", "1", 5, 6, table=4), topic("b", "2", 8), topic("old", "4", 9)],
        [group("g", 9, 2, lag=7, seconds=1.5), group("ahead", 1)],
    )
    rows = topic_rows(before, now)
    assert [(row["topic"], row["records_per_second"], row["behind_table"]) for row in rows] == [
        ("b", 4.0, 8), ("a", 0.5, 3), ("old", None, 9)
    ]  # fmt: skip
    groups = group_rows(before, now)
    assert [(row["group"], row["records_per_second"], row["lag"], row["lag_seconds"]) for row in groups] == [
        ("g", 4.0, 14, 1.5), ("ahead", None, 0, 0)
    ]  # fmt: skip
    assert {row["records_per_second"] for row in topic_rows(None, now) + group_rows(None, now)} == {None}


def test_top_shows_topics_and_groups(server: ServerProcess, capsys: Capture) -> None:
    assert run(["topic", "create", "seen"]) == 0
    with Producer(server.url) as producer:
        for number in range(5):
            producer.send("seen", number)
    with Consumer(server.url, group="watchers", topics=["seen"]) as consumer:
        assert len(consumer.poll(max_records=3, timeout_ms=60_000)) == 3
        consumer.commit()
    capsys.readouterr()
    assert run(["top", "--interval", "0.1", "--output", "json"]) == 0
    looks = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert len(looks) == 2
    seen = next(row for row in looks[1]["topics"] if row["topic"] == "seen")
    assert (seen["records"], seen["behind_table"], seen["records_per_second"]) == (5, 5, 0.0)
    assert looks[1]["groups"][0]["group"] == "watchers" and looks[1]["groups"][0]["lag"] == 2
    assert looks[0]["cost"]["requests_dollars_per_month"] is None
    assert looks[1]["cost"]["reads_per_second"] >= 0 and looks[1]["cost"]["storage_dollars_per_month"] == 0.0
    assert run(["top", "--count", "1"]) == 0
    assert "watchers" in capsys.readouterr().out


def test_bench_measures_and_leaves_nothing(server: ServerProcess, capsys: Capture) -> None:
    assert run(["bench", "--records", "300", "--record-bytes", "16", "--output", "json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert len(told["measured"]) == 5 and all(row["records_per_second"] > 0 for row in told["measured"])
    assert told["measured"][-1]["p99_ms"] >= told["measured"][-1]["p50_ms"] > 0
    assert run(["topic", "list", "--output", "value"]) == 0
    assert "bench-" not in capsys.readouterr().out


def test_records_that_do_not_come_back_are_no_figure(
    server: ServerProcess, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.setattr("siltlog.cli.trial.SILENT_SECONDS_MAX", 0.5)
    monkeypatch.setattr("siltlog.cli.trial.Producer.send_batch", lambda *_: None)
    assert run(["bench", "--records", "100", "--record-bytes", "16"]) == 1
    assert "of 200 records published to topic bench-" in capsys.readouterr().err
    assert run(["topic", "list", "--output", "value"]) == 0
    assert "bench-" not in capsys.readouterr().out


def test_top_of_a_data_dir_nobody_serves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    monkeypatch.setenv("SILT_URL", "http://127.0.0.1:1")
    assert run(["top"]) == 1
    assert "silt serve" in capsys.readouterr().err
