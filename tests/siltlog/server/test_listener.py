"""Where a real server listens: what it refuses to open to others, and the socket for its own user."""

import os
import socket
import stat
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
from http_rig import NO_REDIS, Http, exchange
from tls_rig import Made, client_of

from siltlog.infra import names
from siltlog.infra.errors import ConfigError
from siltlog.infra.settings.settings import ServerSettings
from siltlog.infra.socket_path import short_path
from siltlog.server.listener import check_reach, listening_problems
from siltlog.server_process import ServerProcess
from siltlog.testing import running_server

TLS = {"tls_cert": "/c", "tls_key": "/k"}
AUTH = {"auth": "on"}
PROXIES = {"trusted_proxies": "10.0.0.0/8"}


# --- what others may reach --------------------------------------------------------------------------------
@pytest.mark.rule("A19")
@pytest.mark.parametrize(
    ("given", "lacking"),
    [
        ({}, ["no-tls", "no-auth"]),
        (TLS, ["no-auth"]),
        (PROXIES, ["no-auth"]),
        (TLS | PROXIES, ["no-auth"]),
        (AUTH, ["no-tls"]),
        (AUTH | TLS, []),
        (AUTH | PROXIES, []),
    ],
)
def test_every_row_of_what_a_server_may_be(given: dict[str, str], lacking: list[str]) -> None:
    for host in ("127.0.0.1", "::1", "localhost"):
        assert check_reach(ServerSettings(host=host, **given)) == []  # type: ignore[arg-type]
    for host in ("0.0.0.0", "::", "10.0.0.1"):
        for waived in ("", "no-tls", "no-auth", "no-tls,no-auth"):
            settings = ServerSettings(host=host, insecure=waived, **given)  # type: ignore[arg-type]
            if not lacking:
                assert check_reach(settings) == []
            elif set(lacking) <= set(waived.split(",")):
                [warning] = check_reach(settings)
                assert warning.startswith("insecure: ")
                assert warning.endswith(f"SILT_INSECURE waives {','.join(lacking)}")
            else:
                with pytest.raises(ConfigError, match="can be reached from other machines"):
                    check_reach(settings)


@pytest.mark.rule("A19")
def test_it_does_not_start_where_others_reach_it_unless_that_was_waived() -> None:
    open_to_all: dict[str, Any] = {"host": "0.0.0.0", "redis_url": NO_REDIS}
    with pytest.raises(ConfigError, match=r"exit status 1.*without TLS and without authentication"):
        running_server(**open_to_all).__enter__()
    with running_server(**open_to_all, insecure="no-tls,no-auth") as server:
        http = Http(server.url.replace("0.0.0.0", "127.0.0.1"))
        [warning] = [text for text in http.get("/readyz").json["warnings"] if text.startswith("insecure:")]
        assert warning in server.log_path.read_text()
        assert http.get("/v1/topics").status == 200


def test_tls_is_no_word_for_the_lack_of_authentication(tmp_path: Path) -> None:
    made = Made(tmp_path)
    given: dict[str, Any] = {"host": "0.0.0.0", "redis_url": NO_REDIS}
    given |= {"tls_cert": made.files.certificate, "tls_key": made.files.key}
    with pytest.raises(ConfigError, match="machines, without authentication"):
        running_server(**given, insecure="no-tls").__enter__()
    with running_server(**given, insecure="no-auth") as server:
        http = Http(server.url.replace("0.0.0.0", "127.0.0.1"), client_of(made))
        assert "SILT_INSECURE waives no-auth" in str(http.get("/readyz").json["warnings"])


def test_what_keeps_it_from_starting_is_told_before(tmp_path: Path) -> None:
    made = Made(tmp_path)
    given: dict[str, Any] = {"tls_cert": str(made.files.certificate), "tls_key": str(made.files.key)}
    assert listening_problems(ServerSettings(**given)) == []
    made.files.key.write_text("no key")
    [reach, key] = listening_problems(ServerSettings(host="0.0.0.0", **given))
    assert "can be reached from other machines, without authentication" in reach
    assert "server.key is not the key of a certificate" in key


# --- the socket in the data directory ---------------------------------------------------------------------
def ask(server: ServerProcess, head: str) -> bytes:
    with (
        short_path(server.data_dir / names.SOCKET_FILE) as path,
        socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection,
    ):
        connection.settimeout(20)
        connection.connect(str(path))
        return exchange(connection, head)


@pytest.mark.rule("A25")
def test_the_socket_answers_whatever_it_is_called(tmp_path: Path) -> None:
    with running_server(redis_url=NO_REDIS, data_dir=tmp_path / "data") as server:
        path = server.data_dir / names.SOCKET_FILE
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        for host in ("localhost", "silt.sock", "", "%2Fdata%2Fsilt.sock"):
            assert b" 200 " in ask(server, f"GET /v1/topics HTTP/1.1\nHost: {host}")
        assert b"unknown_host" in raw(server, "GET /v1/topics HTTP/1.1\nHost: silt.sock")
        assert server.stop() == 0
        assert not path.exists()


def raw(server: ServerProcess, head: str) -> bytes:
    with Http(server.url).connect() as connection:
        return exchange(connection, head)


def test_a_socket_that_a_killed_server_left_is_replaced(tmp_path: Path) -> None:
    with running_server(redis_url=NO_REDIS, data_dir=tmp_path / "data") as server:
        server.kill()
        assert (server.data_dir / names.SOCKET_FILE).exists()
        server.start()
        assert b" 200 " in ask(server, "GET /healthz HTTP/1.1\nHost: localhost")


def test_a_path_that_is_too_long_for_a_socket(tmp_path: Path) -> None:
    folder = tmp_path / ("x" * 100) / ("y" * 100)
    with running_server(redis_url=NO_REDIS, data_dir=folder) as server:
        assert b" 200 " in ask(server, "GET /healthz HTTP/1.1\nHost: localhost")


def test_the_socket_is_there_with_tls_too_and_speaks_none(tmp_path: Path) -> None:
    made = Made(tmp_path)
    given = {"tls_cert": made.files.certificate, "tls_key": made.files.key}
    with running_server(redis_url=NO_REDIS, **given) as server:
        assert b" 200 " in ask(server, "GET /v1/topics HTTP/1.1\nHost: localhost")


ASK = """
import os, socket, sys
os.setgid(int(sys.argv[2]))
os.setuid(int(sys.argv[2]))
with socket.socket(socket.AF_UNIX) as connection:
    connection.settimeout(20)
    connection.connect(sys.argv[1])
    connection.sendall(b"GET /v1/topics HTTP/1.1\\r\\nHost: localhost\\r\\n\\r\\n")
    print(connection.recv(65536).decode())
"""


@pytest.mark.rule("A25")
@pytest.mark.skipif(os.getuid() != 0, reason="only root may be somebody else")
def test_another_user_is_refused_also_where_the_mode_lets_him_in() -> None:
    nobody = 65_534
    with tempfile.TemporaryDirectory() as scratch:
        Path(scratch).chmod(0o755)
        with running_server(redis_url=NO_REDIS, data_dir=Path(scratch) / "data") as server:
            path = server.data_dir / names.SOCKET_FILE

            def said() -> str:
                command = [sys.executable, "-c", ASK, str(path), str(nobody)]
                done = subprocess.run(command, capture_output=True, text=True, check=False)
                return done.stdout + done.stderr

            assert "Permission denied" in said()
            path.chmod(0o666)
            assert '"error_code":"forbidden"' in said()
