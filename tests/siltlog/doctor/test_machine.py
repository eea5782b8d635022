"""`silt doctor` against things that are really broken: each is named, with what mends it."""

import json
import os
import re
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
from s3_server import S3Server

from siltlog.cli.main import run
from siltlog.doctor import examine, machine, services, spark
from siltlog.doctor.finding import Finding
from siltlog.infra import names
from siltlog.infra.client import job_calls
from siltlog.infra.client.endpoints import Endpoints
from siltlog.infra.client.transport import Caller, HttpTransport
from siltlog.infra.clock import SystemClock, format_us
from siltlog.infra.errors import ConfigError
from siltlog.infra.kafka.native import CODEC, IS_NATIVE
from siltlog.infra.redis.embedded import EmbeddedValkey
from siltlog.infra.settings.settings import ServerSettings
from siltlog.infra.store.local import LocalStore
from siltlog.infra.store.store import Put
from siltlog.infra.telemetry import logger
from siltlog.testing import running_server

NOBODY = "http://127.0.0.1:1"


def found(settings: ServerSettings, url: str = NOBODY) -> dict[str, Finding]:
    return {finding.check: finding for finding in examine(settings, url, SystemClock())}


@pytest.fixture
def settings(tmp_path: Path) -> ServerSettings:
    return ServerSettings(data_dir=tmp_path / "data")


@pytest.fixture(scope="module")
def valkey(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    own = EmbeddedValkey(tmp_path_factory.mktemp("doctor"), SystemClock(), logger("error", "console"))
    yield own.start()
    own.stop()


def test_a_machine_on_which_nothing_runs_yet(settings: ServerSettings) -> None:
    findings = found(settings)
    assert {check for check, finding in findings.items() if finding.state == "wrong"} == set()
    assert (findings["server"].state, findings["server"].mend) == ("warning", "silt serve")
    assert findings["redis"].state == "ok"
    assert not settings.data_dir.exists()


def test_the_codec_of_kafka_is_told_where_it_is_spoken(settings: ServerSettings) -> None:
    assert "kafka" not in found(settings)
    told = found(settings.model_copy(update={"kafka_listen": "127.0.0.1:9092"}))["kafka"]
    assert (told.state, CODEC in told.detail, "make native" in told.detail) == ("ok", True, not IS_NATIVE)


def test_a_server_that_runs(tmp_path: Path) -> None:
    with running_server(data_dir=tmp_path, schedule="on") as server:
        settings = ServerSettings(data_dir=tmp_path)
        findings = found(settings, server.url)
        assert findings["server"].state == findings["object store"].state == "ok"
        assert str(server.pid) in findings["data dir"].detail
        assert not list((tmp_path / "lake/cluster").glob("doctor-*"))
        away = found(settings)["server"]
        assert (away.state, away.mend) == ("wrong", f"silt doctor --url {server.url}")


def test_what_jobs_did_last(tmp_path: Path) -> None:
    with running_server(data_dir=tmp_path, schedule="off") as server:
        settings = ServerSettings(data_dir=tmp_path)
        assert found(settings, server.url)["schedule"].state == "warning"
        caller = Caller(Endpoints(server.url), HttpTransport(), SystemClock(), retry_timeout_ms=60_000)
        now = format_us(SystemClock().now_us())
        run = {"started_at": now, "ended_at": now, "outcome": "succeeded"}
        for told in (
            {"job": "compact", "outcome": "failed", "error": "there is no Java"},
            {"job": "compact", "topics": ["one"]},
            {"job": "compact", "dry_run": True},
            {"job": "compact", "outcome": "interrupted"},
            {"job": "retain", "outcome": "failed", "error": "it has passed"},
            {"job": "retain"},
        ):
            caller.run(job_calls.record_job(run | {"run_id": str(uuid.uuid4())} | told))
        findings = found(settings, server.url)
        assert findings["schedule"].state == "ok", "cron runs them"
        assert findings["jobs"].detail.startswith("compact failed") and "no Java" in findings["jobs"].detail
        assert findings["jobs"].mend == "silt jobs --job compact --failed"
        caller.run(job_calls.record_job(run | {"run_id": str(uuid.uuid4()), "job": "compact"}))
        assert "jobs" not in found(settings, server.url)


def test_exit_status_and_forms(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SILT_URL", NOBODY)
    assert run(["doctor"]) == 0
    assert "server" in capsys.readouterr().out
    (tmp_path / "silt-data").touch()
    assert run(["doctor", "--output", "json"]) == 3
    told = json.loads(capsys.readouterr().out)
    wrong = [finding for finding in told["findings"] if finding["state"] == "wrong"]
    assert not told["ok"] and wrong[0]["check"] == "data dir" and "is a file" in wrong[0]["detail"]
    assert all(finding["mend"] for finding in wrong[:1])
    assert run(["doctor", "--output", "value"]) == 3
    assert capsys.readouterr().out.startswith("data dir: ")


CLIENT_ONLY = """
import sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {"pydantic", "pydantic_settings", "redis", "deltalake", "boto3", "cronsim"}:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Absent())
from siltlog.cli.main import main
main(sys.argv[1:])
"""


def test_where_only_the_client_is_installed_it_asks_the_server(tmp_path: Path) -> None:
    def told(url: str, code: int) -> dict[str, Any]:
        command = [sys.executable, "-c", CLIENT_ONLY, "doctor", "--output", "json", "--url", url]
        ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=240)
        assert ran.returncode == code, ran.stderr
        return {finding["check"]: finding for finding in json.loads(ran.stdout)["findings"]}

    with running_server(data_dir=tmp_path, schedule="off") as server:
        there = told(server.url, 0)
        assert re.search(r"month takes \$\d.* for requests, .* and \$0\.00 for what", there["cost"]["detail"])
    assert there["server"]["state"] == "ok" and server.url in there["server"]["detail"]
    assert "siltlog[server]" in there["machine"]["detail"]
    assert told(NOBODY, 3)["server"]["state"] == "wrong"


def test_the_place_that_is_named_is_looked_at(tmp_path: Path, capsys: Any) -> None:
    named, root = tmp_path / "named", (tmp_path / "tables").as_uri()
    assert run(["doctor", "--data-dir", str(named), "--root", root, "--url", NOBODY, "--output", "json"]) == 0
    details = {finding["check"]: finding["detail"] for finding in json.loads(capsys.readouterr().out)["findings"]}
    assert details["data dir"] == str(named)
    assert details["object store"].startswith(root)
    assert run(["doctor", "--data-dir", str(named), "--url", NOBODY, "--output", "json"]) == 0
    details = {finding["check"]: finding["detail"] for finding in json.loads(capsys.readouterr().out)["findings"]}
    assert details["object store"].startswith((named / "lake").as_uri())


def test_a_segment_that_goes_as_the_log_is_measured_takes_nothing(settings: ServerSettings) -> None:
    wal = settings.data_dir / names.WAL_FOLDER
    wal.mkdir(parents=True)
    (wal / names.segment_file(1)).symlink_to("removed")
    assert found(settings)["disk"].state == "ok"


def test_a_disk_that_is_full_or_slow(settings: ServerSettings, monkeypatch: pytest.MonkeyPatch) -> None:
    free = machine.shutil.disk_usage(settings.data_dir.parent).free
    more = settings.model_copy(update={"wal_bytes_max": 2 * free})
    assert found(more)["disk"].state == "warning"
    monkeypatch.setattr(machine, "FREE_BYTES_MIN", 2 * free)
    assert found(more)["disk"].state == "wrong"
    monkeypatch.setattr(machine, "SYNC_SECONDS_MAX", 0.0)
    assert found(settings)["sync"].state == "warning"


def test_a_redis_that_forgets(settings: ServerSettings, valkey: str) -> None:
    asked = settings.model_copy(update={"redis_url": valkey})
    assert found(asked)["redis"].state == "ok"
    with redis.Redis.from_url(valkey) as client:
        client.config_set("appendonly", "no")
        assert found(asked)["redis"].mend.endswith("config set appendonly yes")
        client.config_set("maxmemory-policy", "allkeys-lru")
        assert found(asked)["redis"].state == "wrong"
        assert "config set maxmemory-policy noeviction" in found(asked)["redis"].mend


def test_a_redis_that_is_away_and_its_password_is_not_told(settings: ServerSettings) -> None:
    finding = found(settings.model_copy(update={"redis_url": "redis://:secret@127.0.0.1:1/0"}))["redis"]
    assert (finding.state, finding.mend) == ("wrong", "redis-cli -h 127.0.0.1 -p 1 ping")
    assert "secret" not in finding.detail


class Overwriting(LocalStore):
    def put_if_absent(self, path: str, data: bytes) -> Put:
        self.put(path, data)
        return Put.WRITTEN


def test_a_store_without_conditional_writes(
    settings: ServerSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(services, "open_store", lambda *_, **__: Overwriting(str(tmp_path)))
    finding = found(settings.model_copy(update={"root": tmp_path.as_uri()}))["object store"]
    assert finding.state == "wrong" and "put if absent" in finding.detail
    assert not list((tmp_path / "cluster").iterdir())


@pytest.mark.s3
def test_s3(settings: ServerSettings, s3_server: S3Server) -> None:
    there = settings.model_copy(update={"root": s3_server.root_uri("doctor"), "s3_endpoint": s3_server.endpoint})
    assert found(there)["object store"].state == "ok"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_root_that_cannot_be_made(settings: ServerSettings, tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o500)
    assert found(settings.model_copy(update={"root": (closed / "lake").as_uri()}))["object store"].state == "wrong"


def test_what_spark_lacks(settings: ServerSettings, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> None:
        raise ConfigError("there is none")

    monkeypatch.setattr(spark, "jars_of", lambda _: None)
    assert found(settings)["spark"].mend == spark.COMMAND
    monkeypatch.setattr(spark, "find_java", missing)
    assert found(settings)["spark"].state == "wrong"
    assert found(settings.model_copy(update={"schedule_compact": ""}))["spark"].state == "warning"
    monkeypatch.setattr(spark, "spark_home", missing)
    assert found(settings)["spark"].mend == "pip install 'siltlog[spark]'"
    assert found(settings)["spark"].detail == "no Spark: silt compact and replay --where do not run here"
    monkeypatch.setattr(spark, "find_spec", lambda _: None)
    assert found(settings)["spark"].detail == "no Spark: silt compact, query and replay --where do not run here"


def test_what_a_node_lacks_is_found_where_its_settings_are_read(tmp_path: Path) -> None:
    def first(**settings: Any) -> Finding:
        findings = examine(ServerSettings(data_dir=tmp_path, **settings), NOBODY, SystemClock())
        return next(found for found in findings if found.check != "siltlog")

    node = {"cluster": "on", "root": tmp_path.as_uri(), "redis_url": "redis://127.0.0.1:1"}
    lacking = first(**node)
    assert (lacking.check, lacking.state) == ("settings", "wrong") and "SILT_ADVERTISE_URL is not set" in lacking.detail
    assert first(**node, advertise_url="http://127.0.0.1:1").check != "settings"
    assert first().check != "settings"
