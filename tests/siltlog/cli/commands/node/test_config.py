"""`silt config` and the admin client on a server that runs."""

import json
from collections.abc import Iterator

import pytest
from http_rig import NO_REDIS

from siltlog import Admin
from siltlog.cli.main import run
from siltlog.infra.errors import ConfigError, Refused
from siltlog.server_process import ServerProcess
from siltlog.testing import running_server


@pytest.fixture(scope="module")
def server() -> Iterator[ServerProcess]:
    with running_server(redis_url=NO_REDIS) as server:
        yield server


def test_settings_of_a_running_server_are_shown_changed_and_taken_back(
    server: ServerProcess, capsys: pytest.CaptureFixture[str]
) -> None:
    there = ["--url", server.url]
    assert run(["config", "set", "flush_ms=500ms", "connections_max=200", *there]) == 0
    assert "500" in capsys.readouterr().out
    assert run(["config", "show", "--running", "--output", "json", *there]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["settings"]["flush_ms"]["value"] == 500
    assert run(["config", "show", "--running", *there]) == 0
    shown = capsys.readouterr().out
    assert "settings.toml" in shown and "takes a restart" in shown and told["version"] in shown
    assert run(["config", "unset", "flush_ms", "--version", told["version"], *there, "-o", "value"]) == 0
    assert capsys.readouterr().out == "flush_ms=1000\n"
    assert run(["config", "unset", "connections_max", "--version", told["version"], *there]) == 1
    assert "the settings changed meanwhile" in capsys.readouterr().err
    assert run(["config", "set", "flush_ms", *there]) == 2
    assert run(["config", "set", "port=1", *there]) == 1
    assert "SILT_PORT" in capsys.readouterr().err


def test_the_admin_client_changes_what_holds(server: ServerProcess) -> None:
    with Admin(server.url) as admin:
        version = admin.config()["version"]
        document = admin.change_config({"record_bytes_max": 4_096}, version)
        assert document["settings"]["record_bytes_max"]["value"] == 4_096
        with pytest.raises(Refused, match="meanwhile"):
            admin.change_config({"record_bytes_max": None}, version)
        with pytest.raises(ConfigError, match="record_bytes_max"):
            admin.change_config({"record_bytes_max": 0})
