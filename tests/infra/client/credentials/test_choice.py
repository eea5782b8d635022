from pathlib import Path

import pytest

from siltlog.infra.client.credentials.choice import TokenFile, checked_token_file, chosen
from siltlog.infra.client.credentials.contexts import Context, Contexts, contexts_file, write_contexts
from siltlog.infra.client.credentials.credentials import Credentials
from siltlog.infra.client.endpoints import Endpoints
from siltlog.infra.errors import ConfigError

SERVER = Endpoints("https://silt.example")


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    for name in ("TOKEN", "TOKEN_FILE", "CA", "CERT"):
        monkeypatch.delenv(f"SILT_{name}", raising=False)
    return tmp_path


def found(**given: str) -> Credentials:
    return chosen(SERVER, Credentials(**given), found=True)  # type: ignore[arg-type]


def test_a_keyword_comes_before_the_environment_and_that_before_a_context(monkeypatch: pytest.MonkeyPatch) -> None:
    assert found() == Credentials()
    context = Context("https://silt.example", "of-context", "context-ca", "context-cert,context-key")
    write_contexts(contexts_file(), Contexts().with_one("a", context))
    assert found() == Credentials("of-context", "context-ca", ("context-cert", "context-key"))
    for name in ("TOKEN", "CA", "CERT"):
        monkeypatch.setenv(f"SILT_{name}", f"environment-{name}")
    assert found() == Credentials("environment-TOKEN", "environment-CA", "environment-CERT")
    assert found(token="t", ca="c", cert="x") == Credentials("t", "c", "x")
    assert found(token="").token == ""
    assert chosen(Endpoints("https://other.example"), Credentials(), found=True).token == "environment-TOKEN"


def test_a_token_in_a_file(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (home / "token").write_text("one\n")
    monkeypatch.setenv("SILT_TOKEN_FILE", str(home / "token"))
    token = found().token
    assert isinstance(token, TokenFile) and token() == "one"
    (home / "token").write_text("two")
    assert token() == "two"
    monkeypatch.setenv("SILT_TOKEN", "three")
    with pytest.raises(ConfigError, match="both set"):
        found()


@pytest.mark.parametrize("content", [None, b"", b"\n", "ä".encode(), b"x" * 100_000])
def test_a_file_without_a_token_is_told_at_once(home: Path, content: bytes | None) -> None:
    if content is not None:
        (home / "token").write_bytes(content)
    with pytest.raises(ConfigError, match=f"SILT_TOKEN_FILE: {home}/token"):
        checked_token_file(str(home / "token"), "SILT_TOKEN_FILE")


def test_what_cannot_act_is_refused() -> None:
    for given in ({"ca": "ca.pem"}, {"cert": "c.pem"}):
        with pytest.raises(ConfigError, match="use https"):
            chosen(Endpoints("http://127.0.0.1:7070"), Credentials(**given), found=True)  # type: ignore[arg-type]
        with pytest.raises(ConfigError, match="transport="):
            chosen(SERVER, Credentials(**given), found=False)  # type: ignore[arg-type]


def test_the_environment_says_nothing_of_another_transport(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SILT_TOKEN", "environment")
    monkeypatch.setenv("SILT_CA", "environment")
    assert chosen(SERVER, Credentials(), found=False) == Credentials()


def test_by_a_socket_one_is_known_without_a_token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SILT_TOKEN", "environment")
    socket = Endpoints("unix:/run/silt.sock")
    assert chosen(socket, Credentials(), found=True).token is None
    assert chosen(socket, Credentials(token="t"), found=True).token == "t"


def test_variables_of_a_server_are_no_misspelt_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SILT_TLS_CERT", "server.pem")
    assert found() == Credentials()
