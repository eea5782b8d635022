import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from credential_server import Authority, CredentialServer, serving

from siltlog.cli.main import run
from siltlog.infra.client.credentials.contexts import contexts_file, read_contexts


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    for name in ("URL", "TOKEN", "TOKEN_FILE", "CA", "CERT"):
        monkeypatch.delenv(f"SILT_{name}", raising=False)
    return tmp_path


@pytest.fixture
def server() -> Iterator[CredentialServer]:
    with serving() as server:
        server.tokens = {"silt_abc_canary"}
        yield server


def typed(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(text.encode())))


def test_what_is_kept_is_used_by_other_commands(
    server: CredentialServer, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    typed(monkeypatch, "silt_abc_canary\n")
    assert run(["login", "ops", "--url", server.url, "--token", "-"]) == 0
    assert run(["topic", "list"]) == 0
    assert run(["context", "show"]) == 0
    assert run(["context", "list", "-o", "json"]) == 0
    said = capsys.readouterr()
    assert "canary" not in said.out + said.err and "silt_abc_***" in said.out
    assert set(server.seen) == {"Bearer silt_abc_canary"}
    assert contexts_file().stat().st_mode & 0o777 == 0o600


def test_a_token_that_is_not_taken_is_not_kept(server: CredentialServer, home: Path, capsys: Any) -> None:
    (home / "token").write_text("wrong-canary")
    assert run(["login", "--url", server.url, "--token", "@token"]) == 1
    said = capsys.readouterr()
    assert "not known" in said.err and "silt login" in said.err and "canary" not in said.out + said.err
    assert read_contexts(contexts_file()).by_name == {}


def test_nobody_is_asked_where_nobody_sits(
    server: CredentialServer, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    typed(monkeypatch, "")
    assert run(["login", "--url", server.url]) == 2
    assert "--token -" in capsys.readouterr().err


@pytest.mark.rule("X8")
@pytest.mark.parametrize("argument", ["silt_abc_canary", "-", "@canary-file"])
def test_a_token_is_no_argument(argument: str, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    typed(monkeypatch, "silt canary\n")
    assert run(["topic", "list", "--token", argument]) == 2
    assert "silt_abc_canary" not in (said := capsys.readouterr().err) and "silt canary" not in said


def test_flag_before_environment_before_context(
    server: CredentialServer, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.tokens = set()
    for name in ("context", "environment", "flag"):
        (home / name).write_text(f"of-{name}")
    assert run(["login", "--url", server.url, "--token", "@context"]) == 0
    server.seen.clear()
    assert run(["topic", "list"]) == 0
    monkeypatch.setenv("SILT_TOKEN_FILE", str(home / "environment"))
    assert run(["topic", "list"]) == 0
    assert run(["topic", "list", "--token", "@flag"]) == 0
    assert run(["topic", "list", "--url", server.url]) == 0
    assert server.seen == ["Bearer of-context", "Bearer of-environment", "Bearer of-flag", "Bearer of-environment"]


@pytest.mark.rule("X7")
def test_a_context_says_nothing_to_another_server(server: CredentialServer, home: Path) -> None:
    (home / "token").write_text("silt_abc_canary")
    assert run(["login", "--url", server.url, "--token", "@token"]) == 0
    with serving() as other:
        assert run(["topic", "list", "--url", other.url]) == 0
        assert other.seen == [None]


def test_over_tls(home: Path, capsys: Any) -> None:
    authority = Authority(home)
    certificate, key = authority.client_pair("ops.example")
    with serving(authority.server_context(clients=True)) as server:
        named = ["--url", server.url, "--ca", "ca.pem", "--cert", f"{certificate.name},{key.name}"]
        assert run(["login", "tls", *named]) == 0
        assert run(["topic", "list"]) == 0
        assert ("DNS", "ops.example") in server.peers[-1]["subjectAltName"]
        capsys.readouterr()
        assert run(["topic", "list", "--url", server.url, "--ca", "none.pem", "-o", "json"]) == 1
        assert "none.pem" in json.loads(capsys.readouterr().err)["detail"]
    kept = read_contexts(contexts_file()).of("tls")
    assert (kept.token, kept.ca, kept.cert) == (None, str(home / "ca.pem"), f"{certificate},{key}")


def test_records_may_follow_the_token(server: CredentialServer, monkeypatch: pytest.MonkeyPatch) -> None:
    typed(monkeypatch, "silt_abc_canary\nrecord\n")
    assert run(["topic", "list", "--url", server.url, "--token", "-"]) == 0
    import sys

    assert sys.stdin.buffer.read() == b"record\n"
