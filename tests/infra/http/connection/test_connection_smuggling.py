"""Requests whose end is a matter of opinion: to the server alone, and through proxies that may be of another.

Each hides a publish to a topic that nobody is let through to, where some reader would see a request begin. Whether a
proxy refuses it, mends it or hands it on: that publish must not happen, and nobody gets another's answer.
"""

import socket
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import pytest
from http_rig import NO_REDIS, Http
from proxy_rig import DENIED, has_proxy, proxy
from tls_rig import Made, client_of

from siltlog.testing import running_server

TOPIC = DENIED.rpartition("/")[2]
HIDDEN = (
    f"POST {DENIED}/records HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/octet-stream\r\n"
    "Content-Length: 6\r\n\r\nhidden"
).encode()
START = b"POST /v1/topics/t/records HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/octet-stream\r\n"
WHOLE = b"%d" % len(HIDDEN)
CHUNK = b"%x\r\n%b\r\n0\r\n\r\n" % (len(HIDDEN), HIDDEN)
ENDED = b"0\r\n\r\n" + HIDDEN
CHUNKED = b"Transfer-Encoding: chunked\r\n"

AMBIGUOUS = {
    "both lengths, chunks end first": b"Content-Length: %d\r\n" % len(ENDED) + CHUNKED + b"\r\n" + ENDED,
    "both lengths, the other way round": CHUNKED + b"Content-Length: 4\r\n\r\n" + CHUNK,
    "two lengths": b"Content-Length: 0\r\nContent-Length: " + WHOLE + b"\r\n\r\n" + HIDDEN,
    "a list of lengths": b"Content-Length: 0, " + WHOLE + b"\r\n\r\n" + HIDDEN,
    "a length with a sign": b"Content-Length: +0\r\n\r\n" + HIDDEN,
    "a length below nothing": b"Content-Length: -1\r\n\r\n" + HIDDEN,
    "a length in base 16": b"Content-Length: 0x0\r\n\r\n" + HIDDEN,
    "a length that is none": b"Content-Length: \r\n\r\n" + HIDDEN,
    "a length beyond all numbers": b"Content-Length: 18446744073709551616\r\n\r\n" + HIDDEN,
    "a length with a blank before its colon": b"Content-Length : 0\r\nContent-Length: " + WHOLE + b"\r\n\r\n" + HIDDEN,
    "another coding": b"Transfer-Encoding: xchunked\r\nContent-Length: 0\r\n\r\n" + ENDED,
    "another coding before the chunks": b"Transfer-Encoding: gzip, chunked\r\n\r\n" + ENDED,
    "a coding in quotes": b'Transfer-Encoding: "chunked"\r\nContent-Length: 0\r\n\r\n' + ENDED,
    "a coding that is undone": b"Transfer-Encoding: chunked, identity\r\n\r\n" + ENDED,
    "two codings": CHUNKED + b"Transfer-Encoding: identity\r\n\r\n" + ENDED,
    "a coding with a vertical tab": b"Transfer-Encoding: \x0bchunked\r\nContent-Length: 0\r\n\r\n" + ENDED,
    "a coding with a blank before its colon": b"Transfer-Encoding : chunked\r\nContent-Length: 0\r\n\r\n" + ENDED,
    "a coding behind a bare line feed": b"X-A: b\nTransfer-Encoding: chunked\r\nContent-Length: 0\r\n\r\n" + ENDED,
    "a coding behind a bare return": b"X-A: b\rTransfer-Encoding: chunked\r\nContent-Length: 0\r\n\r\n" + ENDED,
    "a coding on a folded line": b"Transfer-Encoding:\r\n chunked\r\nContent-Length: 0\r\n\r\n" + ENDED,
    "a coding that is folded into another field": b"X-A: b\r\n Transfer-Encoding: chunked\r\n\r\n" + ENDED,
    "a coding behind a null": b"X-A: b\x00\r\n" + CHUNKED + b"Content-Length: 0\r\n\r\n" + ENDED,
    "a size of a chunk in other digits": CHUNKED + b"\r\n0x0\r\n\r\n" + HIDDEN,
    "a size of a chunk with a sign": CHUNKED + b"\r\n+0\r\n\r\n" + HIDDEN,
    "a size of a chunk beyond all numbers": CHUNKED + b"\r\n10000000000000000\r\n\r\n" + HIDDEN,
    "an extension with a bare line feed": CHUNKED + b"\r\n3;a\nxyz\r\n0\r\n\r\n" + HIDDEN,
    "a chunk longer than it says": CHUNKED + b"\r\n1\r\nxyz\r\n0\r\n\r\n" + HIDDEN,
    "chunks with bare line feeds": CHUNKED + b"\r\n1\nx\n0\n\n" + HIDDEN,
}
"""What follows START, by what is wrong with it: what RFC 9112 has refused, or closed behind."""
LAWFUL = {
    "a length that is told to stay behind": b"Connection: Content-Length\r\nContent-Length: "
    + WHOLE
    + b"\r\n\r\n"
    + HIDDEN,
    "an offer of another protocol": b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n"
    b"HTTP2-Settings: AAMAAABk\r\nContent-Length: " + WHOLE + b"\r\n\r\n" + HIDDEN,
    "an offer of a WebSocket": b"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 7\r\n"
    b"Content-Length: " + WHOLE + b"\r\n\r\n" + HIDDEN,
    "a field behind the body": CHUNKED + b"\r\n0\r\nContent-Length: 0\r\nTransfer-Encoding: identity\r\n\r\n",
    "an expectation": b"Expect: 100-continue\r\nContent-Length: " + WHOLE + b"\r\n\r\n" + HIDDEN,
    "one chunk": CHUNKED + b"\r\n" + CHUNK,
}
"""What has one end only, and the publish is its body, or data of another protocol."""


class Target(NamedTuple):
    front: Http
    back: Http
    fields: dict[str, str]
    """What calls to `back` by hand say in their head."""

    def records(self, topic: str) -> int:
        reply = self.back.get(f"/v1/topics/{topic}", **self.fields)
        records: int = reply.json["records"]
        return records


PROXIES = [pytest.param(name, marks=pytest.mark.client) for name in ("nginx", "haproxy")]


@pytest.fixture(scope="module", params=["bare", *PROXIES])
def target(request: pytest.FixtureRequest) -> Iterator[Target]:
    name: str = request.param
    if name != "bare" and not has_proxy(name):
        pytest.skip(f"{name} is not installed")
    proxies = {} if name == "bare" else {"trusted_proxies": "127.0.0.1"}
    with running_server(redis_url=NO_REDIS, flush_ms=50, **proxies) as server, tempfile.TemporaryDirectory() as folder:
        back = Http(server.url)
        fields = {} if name == "bare" else {"X_Forwarded_Proto": "https"}
        for topic in ("t", TOPIC):
            assert back.json("POST", "/v1/topics", {"name": topic, "partitions": 1}, **fields).status == 201
        if name == "bare":
            yield Target(back, back, fields)
            return
        made = Made(Path(folder))
        with proxy(name, made, server.url) as url:
            yield Target(Http(url, client_of(made)), back, fields)


def said(front: Http, sent: bytes, patience_seconds: float = 60.0) -> bytes:
    """All that comes back until the other side closes, or is silent for a moment, but for the first moment."""
    got = b""
    with front.connect() as connection:
        connection.settimeout(patience_seconds)
        with suppress(OSError):
            connection.sendall(sent)
            while part := connection.recv(65_536):
                got += part
                connection.settimeout(0.5)
    return got


@pytest.mark.rule("A26")
@pytest.mark.timeout(120)
@pytest.mark.parametrize("case", [*AMBIGUOUS, *LAWFUL])
def test_nothing_is_hidden_in_a_request(target: Target, case: str) -> None:
    sent = START + {**AMBIGUOUS, **LAWFUL}[case]
    for _ in range(3):
        # Who waits for more says nothing.
        said(target.front, sent, 0.5)
        # Whoever is next on a connection of the proxy's gets an answer to what they asked.
        for number in range(4):
            assert f"nothing-{number}" in target.front.get(f"/v1/topics/nothing-{number}").json["detail"]
    assert target.records(TOPIC) == 0


@pytest.mark.rule("A26")
@pytest.mark.parametrize("case", AMBIGUOUS)
def test_what_has_two_ends_is_refused_and_nothing_is_read_behind_it(http: Http, case: str) -> None:
    got = said(http, START + AMBIGUOUS[case] + b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert got.startswith(b"HTTP/1.1 400 "), got
    assert got.count(b"HTTP/1.1 ") == 1


@pytest.mark.rule("A48")
@pytest.mark.parametrize(
    ("line", "fields"),
    [
        ("GET http://elsewhere.example/healthz HTTP/1.1", "Host: localhost"),
        ("GET http://localhost/healthz HTTP/1.1", ""),
        ("GET http://silt_canary:canary@localhost/healthz HTTP/1.1", "Host: localhost"),
        (
            "GET ws://elsewhere.example/v1/topics/t/ws HTTP/1.1",
            "Host: localhost\r\nUpgrade: websocket\r\nConnection: upgrade",
        ),
        ("GET /healthz HTTP/1.1", ""),
        ("GET /healthz HTTP/2.0", "Host: localhost"),
        ("GET /healthz", "Host: localhost"),
    ],
)
def test_a_request_that_may_be_for_somebody_else_is_refused(http: Http, line: str, fields: str) -> None:
    got = said(http, f"{line}\r\n{fields}{fields and chr(13) + chr(10)}\r\n".encode())
    assert got.startswith(b"HTTP/1.1 400 "), got
    assert b"canary" not in got


def test_a_target_may_name_the_host(http: Http) -> None:
    for line, host in (
        ("GET http://localhost:80/healthz HTTP/1.1", "Host: LocalHost:80\r\n"),
        ("GET /healthz HTTP/1.0", ""),
    ):
        assert said(http, f"{line}\r\n{host}\r\n".encode()).startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize("target", PROXIES, indirect=True)
def test_the_proxy_says_who_calls_and_how(target: Target) -> None:
    assert target.front.publish(TOPIC, {"value": "x"}).status == 403
    assert target.front.publish("t", {"value": "x"}).status == 200
    assert target.back.get("/v1/topics").error_code == "tls_required"
    page = target.front.url
    assert target.front.get("/v1/topics", Origin=page).status == 200
    assert target.front.get("/v1/topics", Origin=page.replace("https", "http")).error_code == "origin_not_allowed"


def test_the_rig_would_see_it(target: Target) -> None:
    """The publish itself, sent past the proxy, arrives."""
    before = target.records("t")
    fields = b"".join(b"%b: %b\r\n" % (n.replace("_", "-").encode(), v.encode()) for n, v in target.fields.items())
    request = HIDDEN.replace(DENIED.encode(), b"/v1/topics/t").replace(b"Content-Type", fields + b"Content-Type")
    with socket.create_connection(tuple(target.back.url.removeprefix("http://").split(":"))) as connection:  # type: ignore[arg-type]
        connection.sendall(request)
        assert b" 200 " in connection.recv(65_536)
    assert target.records("t") == before + 1
