"""The token that a schedule is given: its jobs have it, and nothing else that is started."""

import sys
from pathlib import Path

import pytest

from siltlog.infra.client.credentials.choice import checked_token_file
from siltlog.infra.client.credentials.credentials import Credentials
from siltlog.infra.errors import ConfigError
from siltlog.infra.settings.settings import ServerSettings
from siltlog.infra.telemetry import logger
from siltlog.pipelines.schedule import opening
from siltlog.pipelines.spark.java import find_java

TOKEN = "canary-of-a-token"
Started = list[dict[str, str]]


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> Started:
    """The environments of jobs, which are not run."""
    found: Started = []

    def process(job: str, command: list[str], environment: dict[str, str], *rest: object) -> None:
        assert TOKEN not in " ".join(command)
        found.append(environment)

    monkeypatch.setattr(opening, "JobProcess", process)
    return found


def start(data_dir: Path, credentials: Credentials) -> None:
    settings = ServerSettings(data_dir=data_dir)  # type: ignore[call-arg]
    log = logger("error", "json")
    opening._starting(settings, "http://127.0.0.1:1", log, credentials)("retain", "run", "schedule", 0, lambda: None)


@pytest.mark.rule("A43")
def test_its_jobs_have_the_token_of_the_command_line(
    started: Started, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "token"
    file.write_text(TOKEN)
    monkeypatch.setenv("SILT_TOKEN", "another")
    start(tmp_path, Credentials(TOKEN))
    start(tmp_path, Credentials(checked_token_file(str(file), "--token")))
    monkeypatch.setenv("SILT_TOKEN_FILE", "/another")
    start(tmp_path, Credentials(TOKEN))
    told = [(one["SILT_TOKEN"], one["SILT_TOKEN_FILE"]) for one in started]
    assert told == [(TOKEN, ""), ("", str(file)), (TOKEN, "")]


@pytest.mark.rule("A43")
def test_what_a_job_starts_has_no_token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told = tmp_path / "environment"
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text(f'#!{sys.executable}\nimport os\nopen("{told}", "w").write(repr(dict(os.environ)))\n')
    java.chmod(0o700)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(java.parent))
    monkeypatch.setenv("SILT_TOKEN", TOKEN)
    monkeypatch.setenv("SILT_TOKEN_FILE", "/run/token")
    with pytest.raises(ConfigError):
        find_java()
    assert "JAVA_HOME" in told.read_text()
    assert "SILT_TOKEN" not in told.read_text()
