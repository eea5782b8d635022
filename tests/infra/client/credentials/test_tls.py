"""Hands that are not shaken, over both transports: each failure says what is wrong and what to do."""

import asyncio
import ssl
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from credential_server import Authority, serving

from siltlog.infra.client.async_transport import AsyncHttpTransport
from siltlog.infra.client.core import TLS_FAILED, ConnectionFailed, Request, connection_error
from siltlog.infra.client.credentials.tls import TlsFiles
from siltlog.infra.client.transport import HttpTransport
from siltlog.infra.errors import ConfigError, Unavailable

GET = Request("GET", "/", read_timeout_ms=5_000)
Failing = Callable[[str, TlsFiles], ConnectionFailed]


def fails_on_threads(url: str, tls: TlsFiles) -> ConnectionFailed:
    transport = HttpTransport(tls)
    with pytest.raises(ConnectionFailed) as failed:
        transport.send(url, GET)
    transport.close()
    return failed.value


def fails_in_tasks(url: str, tls: TlsFiles) -> ConnectionFailed:
    async def send() -> ConnectionFailed:
        transport = AsyncHttpTransport(tls)
        with pytest.raises(ConnectionFailed) as failed:
            await transport.send(url, GET)
        await transport.close()
        return failed.value

    return asyncio.run(send())


@pytest.fixture(params=[fails_on_threads, fails_in_tasks])
def failing(request: pytest.FixtureRequest) -> Failing:
    made: Failing = request.param
    return made


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


def test_an_authority_that_nobody_knows(failing: Failing, authority: Authority) -> None:
    with serving(authority.server_context()) as server:
        failed = failing(server.url, TlsFiles())
    assert "no authority that is trusted here issued the certificate of localhost: name its file by ca=" in str(failed)
    assert not failed.sent
    error = connection_error(failed, server.url)
    assert isinstance(error, Unavailable) and error.error_code == TLS_FAILED and "running" not in error.detail


def test_a_certificate_that_has_expired(failing: Failing, authority: Authority) -> None:
    with serving(authority.server_context(not_after=datetime.now(UTC) - timedelta(days=1))) as server:
        failed = failing(server.url, TlsFiles(authority.path))
    assert "the certificate of localhost has expired: renew it there" in str(failed)


def test_a_certificate_that_is_not_valid_yet(failing: Failing, authority: Authority) -> None:
    begins = datetime.now(UTC) + timedelta(days=1)
    with serving(authority.server_context(not_before=begins)) as server:
        failed = failing(server.url, TlsFiles(authority.path))
    assert "not valid yet: is the clock of this machine right?" in str(failed)


@pytest.mark.parametrize(("name", "host"), [("silt.example", "localhost"), ("localhost", "127.0.0.1")])
def test_a_certificate_of_another_name(failing: Failing, authority: Authority, name: str, host: str) -> None:
    with serving(authority.server_context(name)) as server:
        failed = failing(server.url.replace("localhost", host), TlsFiles(authority.path))
    assert f"the certificate is not one for {host}: call the server by a name that is in it" in str(failed)


def test_a_server_that_wants_a_certificate(failing: Failing, authority: Authority) -> None:
    with serving(authority.server_context(clients=True)) as server:
        failed = failing(server.url, TlsFiles(authority.path))
    assert "the server asks for a certificate of this client: give one by cert=" in str(failed)
    assert connection_error(failed, server.url).error_code == TLS_FAILED


def test_a_certificate_that_the_server_does_not_take(failing: Failing, authority: Authority, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    stranger = Authority(tmp_path / "other").client_pair("stranger")
    with serving(authority.server_context(clients=True)) as server:
        failed = failing(server.url, TlsFiles(authority.path, stranger))
    assert "this client's certificate" in str(failed)


def test_tls_to_a_server_without(failing: Failing) -> None:
    with serving() as server:
        failed = failing(server.url.replace("http:", "https:"), TlsFiles())
    assert "the server speaks no TLS there: its URL begins with http://" in str(failed)


def test_no_tls_to_a_server_with(failing: Failing, authority: Authority) -> None:
    context = authority.server_context()
    with serving(context) as server:
        failed = failing(server.url.replace("https:", "http:"), TlsFiles())
    assert "its URL begins with https://" in str(failed)


def test_servers_that_cut_off_without_a_word(failing: Failing, authority: Authority) -> None:
    with serving(authority.server_context(clients=True)) as server:
        server.says_why = False
        assert "give one by cert=" in str(failing(server.url, TlsFiles(authority.path)))
        assert "its URL begins with https://" in str(failing(server.url.replace("https:", "http:"), TlsFiles()))


def test_versions_that_have_nothing_in_common(failing: Failing, authority: Authority) -> None:
    context = authority.server_context()
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    tls = TlsFiles(authority.path)
    tls.context().maximum_version = ssl.TLSVersion.TLSv1_2
    with serving(context) as server:
        assert "no version of TLS in common" in str(failing(server.url, tls))


def test_the_protocol_is_agreed_on(authority: Authority) -> None:
    context = authority.server_context()
    context.set_alpn_protocols(["h2", "http/1.1"])
    with serving(context) as server:
        transport = HttpTransport(TlsFiles(authority.path))
        assert transport.send(server.url, GET).status == 200
        [kept] = transport._servers[server.url]._idle
        assert isinstance(kept._socket, ssl.SSLSocket) and kept._socket.selected_alpn_protocol() == "http/1.1"
        transport.close()


@pytest.mark.rule("X10")
def test_files_that_were_renewed_are_read_again(authority: Authority, tmp_path: Path) -> None:
    tls = TlsFiles(authority.path, authority.client_pair("a"))
    first = tls.context()
    assert tls.context() is first
    made = authority.client_pair("b")
    for path, renewed in zip((tmp_path / "a.pem", tmp_path / "a.key"), made, strict=True):
        renewed.replace(path)
    second = tls.context()
    assert second is not first
    (tmp_path / "a.key").write_text("half a fi")
    assert tls.context() is second, "what cannot be used leaves the last one in place"
    (tmp_path / "a.pem").unlink()
    assert tls.context() is second


def test_a_key_with_a_password_asks_nobody(authority: Authority, tmp_path: Path) -> None:
    from cryptography.hazmat.primitives import serialization as form

    certificate, key = authority.client_pair("a")
    loaded = form.load_pem_private_key(key.read_bytes(), None)
    secret = form.BestAvailableEncryption(b"canary")
    key.write_bytes(loaded.private_bytes(form.Encoding.PEM, form.PrivateFormat.PKCS8, secret))
    with pytest.raises(ConfigError, match="encrypted"):
        TlsFiles(None, (certificate, key)).context()
