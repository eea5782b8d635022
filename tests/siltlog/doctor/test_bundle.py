"""The file for whoever is asked for help: what is in it, and what must not be."""

import json
import stat
import zipfile
from pathlib import Path

import pytest
from http_rig import Http

from siltlog.cli.main import run
from siltlog.doctor.bundle import ASKED
from siltlog.infra.settings.settings import ServerSettings
from siltlog.testing import running_server

Capture = pytest.CaptureFixture[str]
PASSWORD = "canary-of-redis"
CANARIES = (PASSWORD, "canary-value", "canary-key", "canary-header")


@pytest.mark.rule("A46")
def test_a_bundle_has_what_helps_and_no_secret_or_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.chdir(tmp_path)
    with running_server(data_dir=tmp_path / "data", flush_ms=50) as server:
        http = Http(server.url)
        http.create("flights", partitions=2)
        record = {"key": "canary-key", "value": "canary-value", "headers": {"h": "canary-header"}}
        assert http.publish("flights", record, query="?acks=table").status == 200
        (tmp_path / "data" / "server.log").write_text(f"redis://me:{PASSWORD}@h and {PASSWORD}, then a line\n")
        (tmp_path / "data" / "wal" / "gone").symlink_to("removed as it is looked at")
        monkeypatch.setenv("SILT_REDIS_URL", "redis://127.0.0.1:1")
        monkeypatch.setenv("SILT_REDIS_PASSWORD", PASSWORD)
        monkeypatch.setenv("SILT_DATA_DIR", str(tmp_path / "data"))
        several = f"http://127.0.0.1:1,{server.url}"
        assert run(["doctor", "--url", several, "--bundle", "help.zip"]) == 3, "Redis does not answer"
        assert "help.zip" in capsys.readouterr().err
    assert stat.S_IMODE(Path("help.zip").stat().st_mode) == 0o600
    with zipfile.ZipFile("help.zip") as bundle:
        parts = {name: bundle.read(name).decode() for name in bundle.namelist()}
    assert set(parts) >= {"about.json", "findings.json", "settings.json", "data_dir.json", "server.log", *ASKED}
    assert set(json.loads(parts["settings.json"])) == set(ServerSettings.model_fields)
    assert json.loads(parts["settings.json"])["redis_password"] == "***"
    assert "deltalake" in json.loads(parts["about.json"])["packages"]
    assert "flights" in parts["topics.json"] and "silt_" in parts["metrics.txt"]
    kept = [entry["path"] for entry in json.loads(parts["data_dir.json"])]
    assert any(path.startswith("wal/") for path in kept)
    assert not any(path.startswith("lake/") or path == "wal/gone" for path in kept)
    assert "then a line" in parts["server.log"]
    assert [(name, canary) for name, text in parts.items() for canary in CANARIES if canary in text] == []
    assert run(["doctor", "--url", server.url, "--bundle", "help.zip"]) == 1
    assert "exists, and is kept" in capsys.readouterr().err


def test_a_bundle_without_a_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run(["doctor", "--url", "http://127.0.0.1:1", "--bundle", "help.zip"])
    with zipfile.ZipFile("help.zip") as bundle:
        assert "not_answered" in bundle.read("metrics.txt").decode()
        assert "settings.json" in bundle.namelist()
