import os
from pathlib import Path

import pytest

from siltlog.cli.place import unsaid_url
from siltlog.infra.client.credentials.contexts import Context, Contexts, contexts_file, write_contexts
from siltlog.infra.clock import SystemClock
from siltlog.infra.names import SOCKET_FILE
from siltlog.ingest.data_dir import DataDir

DEFAULT = "http://127.0.0.1:7070"


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    for name in ("URL", "TOKEN", "TOKEN_FILE", "CERT", "DATA_DIR"):
        monkeypatch.delenv(f"SILT_{name}", raising=False)
    return tmp_path


def test_the_environment_comes_before_a_context(monkeypatch: pytest.MonkeyPatch) -> None:
    assert unsaid_url(alone=True) == DEFAULT
    write_contexts(contexts_file(), Contexts().with_one("a", Context("https://a.example")))
    assert unsaid_url(alone=True) == "https://a.example"
    monkeypatch.setenv("SILT_URL", "https://b.example")
    assert unsaid_url(alone=True) == "https://b.example"


def test_the_server_here_is_reached_by_its_socket(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import socket

    with DataDir(home / "silt-data", SystemClock(), free_bytes_min=0) as data_dir, socket.socket(socket.AF_UNIX) as it:
        it.bind(os.fspath(home / "silt-data" / SOCKET_FILE))
        assert unsaid_url(alone=True) == DEFAULT, "it does not listen yet"
        data_dir.announce("http://127.0.0.1:7071")
        assert unsaid_url(alone=True) == DEFAULT, "another one is meant"
        data_dir.announce("https://0.0.0.0:7070")
        assert unsaid_url(alone=True) == f"unix:{home}/silt-data/{SOCKET_FILE}"
        assert unsaid_url(alone=False) == DEFAULT
        monkeypatch.setenv("SILT_TOKEN", "t")
        assert unsaid_url(alone=True) == DEFAULT
    monkeypatch.delenv("SILT_TOKEN")
    assert unsaid_url(alone=True) == DEFAULT, "it was killed"
