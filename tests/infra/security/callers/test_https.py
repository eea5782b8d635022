"""Documents of other servers: from whom they are taken, how large, and how long that may take."""

import asyncio
import ssl
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
import trustme

from siltlog.infra.errors import ConfigError
from siltlog.infra.security.callers import https as module
from siltlog.infra.security.callers.https import DOCUMENT_BYTES_MAX, FetchFailed, Https, checked_url

Script = Callable[[bytes, asyncio.StreamWriter], Awaitable[None]]
CA = trustme.CA()


def plain(head: str, body: bytes = b"") -> Script:
    async def answer(path: bytes, writer: asyncio.StreamWriter) -> None:
        writer.write(head.replace("\n", "\r\n").encode() + b"\r\n\r\n" + body)

    return answer


async def _get(script: Script, url: str, https: Https, context: ssl.SSLContext | None) -> bytes:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        try:
            await script(head.split(b" ")[1], writer)
            await writer.drain()
            writer.close()
        except ConnectionError:
            pass

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
    async with server:
        return await https.get(url.format(port=server.sockets[0].getsockname()[1]))


def get(script: Script, url: str = "http://127.0.0.1:{port}/keys?a=1", context: ssl.SSLContext | None = None) -> bytes:
    return asyncio.run(_get(script, url, Https(), context))


def failed(script: Script, url: str = "http://127.0.0.1:{port}/keys") -> str:
    with pytest.raises(FetchFailed) as caught:
        get(script, url)
    return str(caught.value)


@pytest.mark.parametrize(
    ("head", "body"),
    [
        ("HTTP/1.1 200 OK\nContent-Length: 2", b"{}"),
        ("HTTP/1.1 200 OK\nTransfer-Encoding: chunked", b"1\r\n{\r\n1\r\n}\r\n0\r\n\r\n"),
        ("HTTP/1.1 200 OK\nConnection: close", b"{}"),
        ("HTTP/1.0 200 OK\nContent-Type: application/json", b"{}"),
    ],
)
def test_a_document_in_each_form(head: str, body: bytes) -> None:
    assert get(plain(head, body)) == b"{}"


def test_the_path_and_query_are_asked_for() -> None:
    async def echo(path: bytes, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n" + path)

    assert get(echo) == b"/keys?a=1"
    assert get(echo, "http://127.0.0.1:{port}") == b"/"


@pytest.mark.parametrize(
    ("head", "body"),
    [
        ("HTTP/1.1 200 OK\nContent-Length: 3", b"{}"),
        ("HTTP/1.1 200 OK\nTransfer-Encoding: chunked", b"1\r\n{\r\n"),
        ("HTTP/1.1 404 Not Found\nContent-Length: 0", b""),
        ("HTTP/1.1 304 Not Modified\nContent-Length: 0", b""),
        ("SSH-2.0-OpenSSH_9.9", b""),
    ],
)
def test_what_is_no_whole_answer(head: str, body: bytes) -> None:
    assert failed(plain(head, body))


def test_a_document_is_only_so_large() -> None:
    body = b"x" * DOCUMENT_BYTES_MAX
    assert len(get(plain(f"HTTP/1.1 200 OK\nContent-Length: {len(body)}", body))) == DOCUMENT_BYTES_MAX
    assert "bytes" in failed(plain("HTTP/1.1 200 OK\nContent-Length: 99999999", body + b"x"))
    assert "bytes" in failed(plain("HTTP/1.1 200 OK\nConnection: close", body + b"x"))

    async def endless(path: bytes, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\n")
        while True:
            writer.write(b"X-More: " + b"x" * 60_000 + b"\r\n")
            await writer.drain()

    assert failed(endless)


def test_one_that_drips_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FETCH_SECONDS", 0.3)

    async def drip(path: bytes, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
        while not writer.is_closing():
            writer.write(b"x")
            await writer.drain()
            await asyncio.sleep(0.02)

    begun = time.monotonic()
    assert "0.3 s" in failed(drip)
    assert time.monotonic() - begun < 10


def test_redirects_stay_where_they_are() -> None:
    async def lead(path: bytes, writer: asyncio.StreamWriter) -> None:
        step = {b"/keys": b"/moved", b"/moved": b"there", b"/there": b""}[path]
        head = b"HTTP/1.1 302 Found\r\nLocation: " + step if step else b"HTTP/1.1 200 OK"
        writer.write(head + b"\r\nContent-Length: 2\r\n\r\n{}")

    assert get(lead, "http://127.0.0.1:{port}/keys") == b"{}"
    for place in ("http://localhost:1/", "https://127.0.0.1/", "//evil.example/", "http://127.0.0.1:2/", "file:///x"):
        head = f"HTTP/1.1 307 Temporary Redirect\nLocation: {place}\nContent-Length: 0"
        assert "another server" in failed(plain(head))
    assert "more than 3" in failed(plain("HTTP/1.1 301 Moved\nLocation: /keys\nContent-Length: 0"))
    assert failed(plain("HTTP/1.1 301 Moved\nContent-Length: 0"))


def test_a_port_where_nothing_is() -> None:
    with pytest.raises(FetchFailed, match=r"127\.0\.0\.1"):
        asyncio.run(Https().get("http://127.0.0.1:1/"))


@pytest.mark.parametrize(
    "url",
    [
        "",
        "id.example",
        "http://id.example/",
        "http://127.0.0.1.evil.example/",
        "ftp://id.example/",
        "file:///etc/passwd",
        "https://",
        "https://user:secret@id.example/",
        "https://id.example/#part",
        "https://id.example:99999/",
        "https://id.example/a b",
        "https://id.example/\r\nX: y",
        "https://id.exämple/",
    ],
)
def test_what_is_not_asked_at_all(url: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        checked_url(url)
    with pytest.raises(FetchFailed):
        asyncio.run(Https().get(url))


def _https(certificate: trustme.LeafCert) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    certificate.configure_cert(context)
    return context


@pytest.mark.rule("A13")
def test_by_tls_only_one_whom_an_authority_knows_is_read(tmp_path: Path) -> None:
    authorities = tmp_path / "ca.pem"
    CA.cert_pem.write_to_path(str(authorities))
    script = plain("HTTP/1.1 200 OK\nContent-Length: 2", b"{}")
    good, other = _https(CA.issue_cert("127.0.0.1")), _https(CA.issue_cert("id.example"))
    strange = _https(trustme.CA().issue_cert("127.0.0.1"))
    url = "https://127.0.0.1:{port}/keys"
    assert asyncio.run(_get(script, url, Https(authorities), good)) == b"{}"
    for https, context in ((Https(authorities), other), (Https(authorities), strange), (Https(), good)):
        with pytest.raises(FetchFailed, match="cannot be read"):
            asyncio.run(_get(script, url, https, context))


def test_a_file_without_authorities(tmp_path: Path) -> None:
    wrong = tmp_path / "ca.pem"
    with pytest.raises(ConfigError, match=r"ca\.pem"):
        Https(wrong)
    wrong.write_text("no certificate")
    with pytest.raises(ConfigError, match=r"ca\.pem"):
        Https(wrong)
