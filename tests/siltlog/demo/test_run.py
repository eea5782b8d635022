"""The demo, small: the whole way through, without Java, and what it must refuse."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from processes import interrupted
from pyspark import SparkContext
from rich.console import Console

from siltlog.cli.main import run as silt
from siltlog.demo import run as acts
from siltlog.demo.data import FLIGHTS, carrier_names, flights
from siltlog.demo.publishing import Programme
from siltlog.demo.result import Quantiles, Result
from siltlog.demo.run import Plan, empty
from siltlog.demo.stage import Stage
from siltlog.demo.summary import summary
from siltlog.infra import names
from siltlog.infra.client.admin import Admin
from siltlog.infra.clock import SystemClock
from siltlog.infra.errors import ConfigError
from siltlog.testing import running_server

RECORDS = 3_000


def played(data_dir: Path) -> tuple[Result, str]:
    """A short demo, and what its audience saw."""
    clock = SystemClock()
    console = Console(width=120, record=True, file=(data_dir.parent / "stage").open("w"))
    result = acts.run(Plan(data_dir, RECORDS, steady_s=2.0), Stage(console, clock), clock)
    console.print(summary(result))
    return result, console.export_text()


def assert_whole(result: Result) -> None:
    assert result.ok, [check for check in result.checks if not check.ok]
    assert (result.published, result.acknowledged, result.read) == (RECORDS,) * 3
    assert result.kill is not None
    assert 0 < result.kill.acknowledged == result.kill.recovered < RECORDS
    assert result.ack_ms.count > 0 and result.freshness_ms.count > 0
    assert sum(result.members.values()) == RECORDS + result.repeated


@pytest.mark.spark
@pytest.mark.slow
def test_the_whole_demo_and_what_it_leaves(spark: Any, tmp_path: Path) -> None:
    data_dir = tmp_path / "demo"
    result, seen = played(data_dir)
    assert_whole(result)
    assert result.table is not None
    assert result.table.files_after <= min(result.table.files_before, acts.PARTITIONS)
    assert len(result.table.carriers) > 1
    for words in ("kill -9", "nothing lost", "= 3,000 read", f"{result.table.files_before:,} files → ", "silt serve"):
        assert words in seen
    with running_server(data_dir=data_dir) as server, Admin(server.url) as admin:
        assert admin.topic(acts.TOPIC)["records"] == RECORDS


@pytest.mark.slow
def test_without_java_all_but_spark_is_played(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setattr(SparkContext, "_active_spark_context", None)
    result, seen = played(tmp_path / "demo")
    assert_whole(result)
    assert result.table is None
    assert "Spark needs Java 17 or newer" in seen


@pytest.mark.slow
def test_an_interrupt_ends_it_at_once_and_leaves_no_process(
    tmp_path: Path, processes_in: Callable[[Path], list[str]]
) -> None:
    arguments = ["demo", "--records", "5000", "--data-dir", str(tmp_path / "demo")]
    status, told, rest = interrupted(arguments, "acknowledged")
    assert (status, told) == (130, "")
    assert "Traceback" not in rest
    assert processes_in(tmp_path) == []


@pytest.mark.parametrize(("ok", "status"), [(True, 0), (False, 1)])
def test_the_exit_code_says_whether_every_check_held(
    ok: bool, status: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def play(plan: Plan, *_: Any) -> Result:
        result = Result(plan.records, 6, "http://127.0.0.1:1", plan.data_dir)
        result.check("one", True, "fine")
        result.check("two", ok, "3 records are not there")
        return result

    monkeypatch.setattr(acts, "run", play)
    command = ["demo", "--records", "2000", "--data-dir", str(tmp_path / "demo")]
    assert silt(command) == status
    said = capsys.readouterr().out
    assert ("✗ two" in said) is not ok
    assert silt([*command, "--output", "json"]) == status
    document = json.loads(capsys.readouterr().out)
    assert (document["ok"], document["records"], document["checks"][0]["name"]) == (ok, 2000, "one")


def test_only_what_a_demo_made_is_emptied(tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "thesis").write_text("words")
    with pytest.raises(ConfigError, match="--data-dir"):
        empty(precious)
    assert (precious / "thesis").read_text() == "words"

    folder = tmp_path / "demo"
    empty(folder)
    (folder / "old").touch()
    empty(folder)
    assert [path.name for path in folder.iterdir()] == [names.DEMO_MARKER_FILE]
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="cannot be used"):
        empty(tmp_path / "file")


def test_a_folder_that_a_server_uses_is_left_alone(tmp_path: Path) -> None:
    folder = tmp_path / "demo"
    empty(folder)
    with running_server(data_dir=folder) as server:
        with pytest.raises(ConfigError, match=f"process {server.pid}"):
            empty(folder)
        assert (folder / names.LAKE_FOLDER).exists()


def test_the_flights_are_all_there() -> None:
    data = flights()
    assert len(data) == FLIGHTS == len(data.keys)
    first = json.loads(data.values[0])
    assert (first["carrier"], first["flight"], first["dest"]) == (data.keys[0], 1545, "IAH") == ("UA", 1545, "IAH")
    assert set(data.keys) == set(carrier_names())
    assert json.loads(data.values[-1])["dep_time"] is None, "a flight that was cancelled"


def test_quantiles_and_pace() -> None:
    assert Quantiles.of(()) == Quantiles(0, 0.0, 0.0, 0.0)
    assert Quantiles.of([3.0, 1.0, 2.0]).p50 == 2.0
    programme = Programme.of(1000, steady_share=0.6, steady_s=10.0)
    assert (programme.steady, programme.steady_per_s) == (600, 60.0)
