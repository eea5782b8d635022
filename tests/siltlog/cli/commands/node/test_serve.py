"""`silt serve` and `silt config`: what a newcomer hits, as a sentence and an exit code."""

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from processes import silt

from siltlog.cli.main import run
from siltlog.infra.settings.settings import SECRETS, ServerSettings
from siltlog.testing import running_server

Capture = pytest.CaptureFixture[str]


def refused(*flags: str, env: dict[str, str] | None = None, cwd: Path) -> tuple[int, str]:
    """Exit code and stderr of a `silt serve` that does not come to listen."""
    ran = silt(["serve", "--port", "0", *flags], cwd, {**os.environ, **(env or {})})
    assert ran.stdout == ""
    assert "Traceback" not in ran.stderr
    return ran.returncode, ran.stderr


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working directory, where no settings of this machine reach."""
    for name in [name for name in os.environ if name.startswith("SILT_")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_every_setting_is_a_flag_that_says_what_it_is(capsys: Capture) -> None:
    assert run(["serve", "--help"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    for name, field in ServerSettings.model_fields.items():
        assert field.description, f"{name} needs a docstring in the settings"
        flag = f"--{name.replace('_', '-')} "
        if name in SECRETS:
            assert flag not in text, "every user of the machine sees the arguments of every process"
            continue
        assert flag in text
        assert f"SILT_{name.upper()}" in text
        assert " ".join(field.description.split()) in text


def test_a_port_that_is_taken(here: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        status, said = refused("--port", str(port), cwd=here)
    assert status == 1
    assert str(port) in said
    assert "--port" in said


def test_a_data_dir_that_is_a_file(here: Path) -> None:
    (here / "data").touch()
    status, said = refused("--data-dir", "data", cwd=here)
    assert (status, str(here / "data") in said, "SILT_DATA_DIR" in said) == (1, True, True)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs a file system that takes nothing")
def test_a_data_dir_that_cannot_be_made(here: Path) -> None:
    status, said = refused("--data-dir", "/proc/siltlog", cwd=here)
    assert (status, "/proc/siltlog" in said, "SILT_DATA_DIR" in said) == (1, True, True)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_data_dir_that_may_not_be_written(here: Path) -> None:
    (here / "data").mkdir(mode=0o500)
    status, said = refused("--data-dir", "data", cwd=here)
    assert (status, "Permission denied" in said, "SILT_DATA_DIR" in said) == (1, True, True)


def test_a_data_dir_in_use_names_who_has_it(here: Path) -> None:
    with running_server(data_dir=here / "data") as server:
        status, said = refused("--data-dir", "data", cwd=here)
        assert (status, str(server.pid) in said, server.url in said) == (1, True, True)


@pytest.mark.parametrize(
    ("flags", "env", "words"),
    [
        (["--flush-ms", "soon"], {}, "--flush-ms='soon' is not valid"),
        ([], {"SILT_WAL_BYTES_MAX": "1"}, "SILT_WAL_BYTES_MAX='1' is not valid"),
        (["--root", "/somewhere"], {}, "file:///path or s3://bucket/prefix"),
        ([], {"SILT_ROOOT": "s3://bucket/x"}, "did you mean SILT_ROOT?"),
        (["--no-such-setting", "1"], {}, "--no-such-setting"),
        ([], {"SILT_CONFIG": "absent.toml"}, "absent.toml"),
    ],
)
def test_a_setting_that_is_not_valid_is_a_misuse(here: Path, flags: list[str], env: dict[str, str], words: str) -> None:
    status, said = refused(*flags, env=env, cwd=here)
    assert (status, words in said) == (2, True), said


WRONG = (
    {"SILT_ROOOT": "s3://bucket/x"},
    {"SILT_REDIS_URL": "foo"},
    {"SILT_REDIS_URL": "redis://here?foo=1"},
    {"SILT_ROOT": "s3:/bucket"},
    {"SILT_ROOT": "s3://bucket", "SILT_S3_ENDPOINT": "minio:9000"},
    {"SILT_ROOT": "s3://bucket", "SILT_S3_REGION": "eu_central"},
    {"SILT_ADVERTISE_URL": "silt.example"},
)


@pytest.mark.parametrize("env", WRONG, ids=str)
def test_what_the_check_says_is_why_a_server_does_not_start(
    here: Path, env: dict[str, str], monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    status, said = refused(env=env, cwd=here)
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    assert run(["config", "check", "--output", "json"]) == 3
    [found] = json.loads(capsys.readouterr().out)["problems"]
    assert (status, found in said, list(env)[-1] in found) == (2, True, True), said
    assert not (here / "silt-data").exists()


def test_a_server_starts_beside_a_service_of_kubernetes_called_silt(here: Path) -> None:
    links = {
        "SILT_SERVICE_HOST": "10.0.0.1",
        "SILT_SERVICE_PORT": "7070",
        "SILT_PORT_7070_TCP": "tcp://10.0.0.1:7070",
        "SILT_PORT_7070_TCP_ADDR": "10.0.0.1",
    }
    command = [sys.executable, "-m", "siltlog.cli", "serve", "--schedule", "off"]
    env = {**os.environ, **links, "SILT_PORT": "tcp://10.0.0.1:7070"}
    ran = silt(["serve", "--schedule", "off"], here, env)
    assert (ran.returncode, "enableServiceLinks: false" in ran.stderr) == (2, True), ran.stderr
    with subprocess.Popen([*command, "--port", "0"], stdout=subprocess.PIPE, text=True, cwd=here, env=env) as server:
        assert server.stdout is not None
        assert server.stdout.readline().startswith("listening on")
        server.terminate()
        assert server.wait() == 0


def test_an_interrupt_stops_it_cleanly(here: Path) -> None:
    with running_server(data_dir=here / "data") as server:
        os.kill(server.pid, signal.SIGINT)
        assert server.stop() == 0


def test_config_show_says_where_each_value_came_from(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    (here / "siltlog.toml").write_text("flush_ms = 250\nport = 7171\n")
    monkeypatch.setenv("SILT_PORT", "7272")
    monkeypatch.setenv("SILT_REDIS_URL", "redis://me:hunter22@redis:6379/0")
    assert run(["config", "show"]) == 0
    assert "redis://me:***@redis:6379/0" in capsys.readouterr().out
    monkeypatch.setenv("SILT_REDIS_URL", "redis://redis:6379/0")
    monkeypatch.setenv("SILT_REDIS_PASSWORD", "hunter22")
    assert run(["config", "show", "--output", "json"]) == 0
    settings = json.loads(capsys.readouterr().out)["settings"]
    assert settings["redis_password"] == {"value": "***", "source": "environment"}
    assert settings["port"] == {"value": 7272, "source": "environment"}
    assert settings["flush_ms"] == {"value": 250, "source": "file"}
    assert settings["host"] == {"value": "127.0.0.1", "source": "default"}
    assert set(settings) == set(ServerSettings.model_fields)
    for form in ("table", "value", "json"):
        assert run(["config", "show", "--output", form]) == 0
        said = capsys.readouterr().out
        assert ("7272" in said, "hunter22" in said) == (True, False)


def test_config_check(here: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    assert run(["config", "check"]) == 0
    assert not (here / "silt-data").exists(), "a check makes nothing"
    (here / "silt-data").touch()
    assert run(["config", "check", "--output", "json"]) == 3
    [found] = json.loads(capsys.readouterr().out.splitlines()[-1])["problems"]
    assert "SILT_DATA_DIR" in found
    monkeypatch.setenv("SILT_PORT", "x")
    assert run(["config", "check", "--output", "value"]) == 3
    assert "SILT_PORT='x' is not valid" in capsys.readouterr().out
