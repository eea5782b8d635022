"""`silt retain` and `silt topic delete-records` beside a running server; neither needs Spark."""

import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from http_rig import NO_REDIS, Http

from siltlog.cli.main import run
from siltlog.infra import names
from siltlog.infra.clock import SystemClock
from siltlog.infra.store.store import open_store
from siltlog.infra.table.table import TopicTable
from siltlog.server_process import ServerProcess
from siltlog.testing import running_server

Capture = pytest.CaptureFixture[str]
WITHOUT_SPARK = """
import sys
sys.modules["pyspark"] = None
from siltlog.cli.main import run
code = run(sys.argv[1:])
assert "pandas" not in sys.modules, "pyarrow imports it where it can do without: half a second of every job"
sys.exit(code)
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with running_server(data_dir=tmp_path_factory.mktemp("retain") / "data", redis_url=NO_REDIS, flush_ms=20) as server:
        yield server


def filled(server: ServerProcess, topic: str, files: int = 4, **config: Any) -> None:
    http = Http(server.url)
    http.create(topic, **config)
    for _ in range(files):
        assert http.publish(topic, {"value": "a"}, {"value": "b"}, query="?acks=table").status == 200


def retained(server: ServerProcess, capsys: Capture, *arguments: str, code: int = 0) -> list[dict[str, Any]]:
    command = ["retain", "--data-dir", str(server.data_dir), "--output", "json", *arguments]
    assert run(command) == code, capsys.readouterr().err
    found: list[dict[str, Any]] = json.loads(capsys.readouterr().out)["retained"]
    return found


def test_what_would_go_and_what_went(server: ServerProcess, capsys: Capture) -> None:
    filled(server, "counted", retention_records=4)
    filled(server, "kept")
    for arguments in (["--dry-run"], []):
        (found,) = retained(server, capsys, "--topic", "counted", *arguments)
        assert (found["files"], found["rows"], found["error"]) == (2, 4, None)
        assert found["size_bytes"] > 0 and found["dry_run"] is bool(arguments)
        (moved,) = found["partitions"]
        assert (moved["partition"], moved["before"], moved["log_start_offset"], moved["files"]) == (0, 0, 4, 2)
    both = retained(server, capsys, "--topic", "counted", "--topic", "kept")
    assert [(entry["topic"], entry["files"]) for entry in both] == [("counted", 0), ("kept", 0)]
    assert {entry["topic"] for entry in retained(server, capsys)} >= {"counted", "kept"}
    assert run(["retain", "--data-dir", str(server.data_dir), "--topic", "kept"]) == 0
    assert capsys.readouterr().out.split()[:5] == ["TOPIC", "FILES", "ROWS", "SIZE", "BYTES"]


def test_a_topic_that_fails_is_named_and_the_others_are_done(server: ServerProcess, capsys: Capture) -> None:
    filled(server, "broken", retention_records=2)
    filled(server, "whole", retention_records=2)
    store = open_store(server.root)
    lost = next(iter(TopicTable.open(store, "broken", SystemClock()).snapshot.files))
    store.delete(f"{names.topic_path('broken')}/{lost}")
    found = {entry["topic"]: entry for entry in retained(server, capsys, code=1)}
    assert found["broken"]["error"]["error_code"] == "corrupt_data" and lost in found["broken"]["error"]["detail"]
    assert found["whole"]["files"] == 3 and found["whole"]["error"] is None


def test_misuse(server: ServerProcess, capsys: Capture) -> None:
    assert run(["retain", "--data-dir", str(server.data_dir), "--topic", "absent"]) == 1
    assert "absent" in capsys.readouterr().err
    assert run(["retain", "--for-ever"]) == 2


def test_it_needs_no_spark(server: ServerProcess) -> None:
    command = ["retain", "--data-dir", str(server.data_dir), "--topic", "spare", "--output", "value"]
    filled(server, "spare", 0)
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_SPARK, *command], capture_output=True, text=True, timeout=240, check=False
    )
    assert (done.returncode, done.stdout.strip()) == (0, "spare"), done.stderr


def test_records_are_deleted_by_hand(server: ServerProcess, capsys: Capture) -> None:
    filled(server, "by-hand")
    command = ["topic", "delete-records", "by-hand", "--url", server.url, "--partition", "0"]
    assert run([*command, "--before", "3"]) == 2
    assert "--yes" in capsys.readouterr().err
    assert run([*command, "--before", "earliest", "--yes"]) == 2
    assert run([*command, "--before", "9", "--yes"]) == 1
    assert "high watermark" in capsys.readouterr().err
    assert run([*command, "--before", "3", "--yes", "--output", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["log_start_offset"] == 3
    assert run([*command, "--before", "latest", "--yes", "--output", "value"]) == 0
    assert capsys.readouterr().out.strip() == "8"
