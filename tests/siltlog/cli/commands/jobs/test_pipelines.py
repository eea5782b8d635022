"""`silt compact`, `silt vacuum` and `silt query` on the tables of a server that is stopped."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark import SparkContext

from siltlog.cli.commands.jobs import pipelines
from siltlog.cli.commands.jobs.pipelines import ENGINES, jsonable
from siltlog.cli.main import run
from siltlog.infra import names
from siltlog.infra.client.admin import Admin
from siltlog.infra.clock import SystemClock
from siltlog.ingest.library.producer import Producer
from siltlog.pipelines.compaction import compact as job
from siltlog.testing import running_server

Capture = pytest.CaptureFixture[str]
FLUSHES = 6


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a server left: two topics, one of which has a file for each of its flushes."""
    folder = tmp_path_factory.mktemp("pipelines") / "data"
    with running_server(data_dir=folder, flush_ms=1) as server, Admin(server.url) as admin:
        admin.create_topic("events", partitions=1)
        admin.create_topic("empty", partitions=1)
        with Producer(server.url, acks="table") as producer:
            for number in range(FLUSHES):
                producer.send("events", {"n": number}, key=f"k{number % 2}").result()
        assert admin.topic("events")["files"] == FLUSHES
    return folder


def document(arguments: list[str], data_dir: Path, capsys: Capture) -> dict[str, list[dict[str, object]]]:
    assert run([*arguments, "--data-dir", str(data_dir), "--output", "json"]) == 0, capsys.readouterr().err
    found: dict[str, list[dict[str, object]]] = json.loads(capsys.readouterr().out)
    return found


def test_a_dry_run_says_what_would_be_done(data_dir: Path, capsys: Capture) -> None:
    before = sorted(data_dir.rglob("*"))
    by_topic = {entry["topic"]: entry for entry in document(["compact", "--dry-run"], data_dir, capsys)["compacted"]}
    assert set(by_topic) == {"empty", "events"}
    assert (by_topic["events"]["files_before"], by_topic["events"]["files_after"]) == (FLUSHES, 1)
    assert by_topic["events"]["dry_run"] is True
    vacuumed = document(["vacuum", "--dry-run", "--topic", "events"], data_dir, capsys)["vacuumed"]
    assert [(entry["topic"], entry["files"]) for entry in vacuumed] == [("events", 0)]
    assert sorted(data_dir.rglob("*")) == before
    assert run(["compact", "--dry-run", "--data-dir", str(data_dir)]) == 0
    assert capsys.readouterr().out.split()[:2] == ["TOPIC", "FILES"]


def test_a_data_directory_that_is_named_is_meant(
    data_dir: Path, tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SILT_ROOT", tmp_path.as_uri())
    found = document(["vacuum", "--dry-run", "--topic", "events"], data_dir, capsys)
    assert [entry["topic"] for entry in found["vacuumed"]] == ["events"]
    root = f"{data_dir.as_uri()}/lake"
    assert run(["vacuum", "--dry-run", "--topic", "events", "--root", root, "--data-dir", str(tmp_path)]) == 0


@pytest.mark.rule("H7")
@pytest.mark.parametrize(
    ("run_id", "trigger", "files_min"),
    [("", "", 1), ("a-run", "hand", 1), ("a-run", "schedule", 20), ("a-run", "", 20)],
    ids=["by hand", "asked of the schedule", "by the schedule", "by an older schedule"],
)
def test_only_a_run_of_the_schedule_waits_for_files(
    run_id: str, trigger: str, files_min: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[object] = []

    def compacted(*_: object, **options: object) -> list[object]:
        asked.append(options["files_min"])
        return []

    monkeypatch.setattr(job, "compact_topics", compacted)
    monkeypatch.setenv(names.ENV_RUN_ID, run_id)
    monkeypatch.setenv(names.ENV_RUN_TRIGGER, trigger)
    assert run(["compact", "--root", tmp_path.as_uri()]) == 0
    assert asked == [files_min]


@pytest.mark.parametrize("command", ["compact", "vacuum"])
def test_a_topic_that_is_not_there(command: str, data_dir: Path, capsys: Capture) -> None:
    assert run([command, "--topic", "absent", "--dry-run", "--data-dir", str(data_dir)]) == 1
    assert "absent" in capsys.readouterr().err


@pytest.mark.parametrize("command", [["compact"], ["vacuum"], ["query", "select 1"]])
def test_a_folder_without_tables_is_named_and_not_made(command: list[str], tmp_path: Path, capsys: Capture) -> None:
    assert run([*command, "--data-dir", str(tmp_path / "absent")]) == 1
    said = capsys.readouterr().err
    assert ("absent" in said, "--data-dir" in said, "--root" in said) == (True, True, True)
    assert list(tmp_path.iterdir()) == []


def test_a_period_that_is_not_safe_is_refused(data_dir: Path, capsys: Capture) -> None:
    assert run(["vacuum", "--retention-hours", "0.1", "--data-dir", str(data_dir)]) == 1
    assert "hours" in capsys.readouterr().err


def test_without_java_one_line_says_what_to_install(
    data_dir: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setattr(SparkContext, "_active_spark_context", None)
    assert run(["query", "--engine", "spark", "select 1", "--data-dir", str(data_dir)]) == 1
    said = capsys.readouterr().err
    assert "Spark needs Java 17 or newer" in said
    assert said.count("\n") == 1


@pytest.mark.spark
@pytest.mark.slow
def test_compact_and_query(spark: Any, data_dir: Path, capsys: Capture) -> None:
    sql = "select string(key) as key, count(*) as n, max(timestamp) > '2020-01-01' as new, first(headers) as h, value "
    sql += "from events where cast(get_json_object(string(value), '$.n') as int) < 4 group by key, value order by value"
    place = ["--data-dir", str(data_dir)]
    [compacted] = document(["compact", "--topic", "events"], data_dir, capsys)["compacted"]
    assert (compacted["files_before"], compacted["files_after"], compacted["error"]) == (FLUSHES, 1, None)
    for engine in ENGINES:
        query = ["query", "--engine", engine]
        assert run([*query, sql, *place, "--output", "json"]) == 0
        rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        assert rows == [
            {"key": f"k{n % 2}", "n": 1, "new": True, "h": None, "value": json.dumps({"n": n}).replace(" ", "")}
            for n in range(4)
        ]
        assert run([*query, "select partition, count(*) as n from events group by 1", *place]) == 0
        printed = capsys.readouterr()
        assert [line.split() for line in printed.out.splitlines()] == [["partition", "n"], ["0", str(FLUSHES)]]
        assert f"answered by {engine}" in printed.err.lower()
        assert run([*query, "select no_such_column from events", *place]) == 1
        assert "no_such_column" in capsys.readouterr().err
        assert run([*query, "drop table events", *place]) == 1
        assert "queries only read" in capsys.readouterr().err


def test_what_is_installed_answers(data_dir: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    place = ["--data-dir", str(data_dir)]
    assert run(["query", "select count(*) as n from events", *place, "--output", "json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"n": FLUSHES}
    monkeypatch.setattr(pipelines, "find_spec", lambda name: None if name == "duckdb" else name)
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setattr(SparkContext, "_active_spark_context", None)
    assert run(["query", "select 1", *place]) == 1
    assert "Spark needs Java" in capsys.readouterr().err


@pytest.mark.slow
def test_a_server_answers_with_what_is_in_no_table_yet(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    with running_server(flush_ms=600_000, auto_create_partitions=1) as server, Producer(server.url) as producer:
        producer.send("events", {"n": 1}, key=b"\xff").result()
        producer.send("events", {"n": 2}, key=b"k").result()
        sql = "select key, string(value) as value from events order by offset"
        for arguments in (["--url", server.url], ["--engine", "server"]):
            monkeypatch.setenv("SILT_URL", server.url)
            assert run(["query", sql, *arguments, "--output", "json"]) == 0
            rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
            assert rows == [{"key": "/w==", "value": '{"n":1}'}, {"key": "k", "value": '{"n":2}'}]
        assert run(["query", "select count(*) as n from events", "--engine", "server"]) == 0
        printed = capsys.readouterr()
        assert [line.split() for line in printed.out.splitlines()] == [["n"], ["2"]]
        assert "answered by the server" in printed.err
        assert run(["query", "select a.offset from events a, range(20000)", "--engine", "server", "-o", "value"]) == 0
        printed = capsys.readouterr()
        assert len(printed.out.splitlines()) == 10_000
        assert "only the first 10,000 rows" in printed.err
        assert run(["query", "select * from nothing", "--engine", "server"]) == 1
        assert "there is no topic 'nothing'" in capsys.readouterr().err
    for wrong in (["--engine", "server", "--root", "file:///tmp"], ["--engine", "duckdb", "--url", "http://a:1"]):
        assert run(["query", "select 1", *wrong]) == 2
        assert "--url" in capsys.readouterr().err


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.parametrize(
    ("module", "number"),
    [("siltlog.cli", signal.SIGINT), ("siltlog.cli.job_process 10", signal.SIGTERM)],
    ids=["by hand", "of the schedule"],
)
def test_an_interrupt_while_spark_starts_leaves_no_jvm(
    data_dir: Path, tmp_path: Path, processes_in: Callable[[Path], list[str]], module: str, number: signal.Signals
) -> None:
    command = [
        sys.executable,
        "-m",
        *module.split(),
        "query",
        "--engine",
        "spark",
        "select 1",
        "--data-dir",
        str(data_dir),
    ]
    with subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True, start_new_session=True) as query:
        assert query.stderr is not None
        while query.poll() is None and not any("SparkSubmit" in line for line in processes_in(tmp_path)):
            SystemClock().sleep(0.01)
        # A JVM of the shell's group has the key press, too, and lets it be; a schedule that is gone tells only its job.
        (os.killpg if number == signal.SIGINT else os.kill)(query.pid, number)
        said = query.stderr.read()
        assert (query.wait(), "Traceback" in said) == (130, False)
    assert processes_in(tmp_path) == []


def test_what_spark_gives_becomes_json() -> None:
    assert jsonable({"a": [bytearray(b"x"), b"\xff", float("nan"), None, 1.5]}) == {
        "a": ["x", "/w==", "nan", None, 1.5]
    }
