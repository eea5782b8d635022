import asyncio
import socket
import ssl
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import credential_server
import pytest
import trustme
from hypothesis import given, settings
from hypothesis import strategies as st

from siltlog.infra.client.admin import Admin
from siltlog.infra.client.async_transport import AsyncHttpTransport
from siltlog.infra.client.connection import HEAD_BYTES_MAX, Address, Connection
from siltlog.infra.client.core import ConnectionFailed, Cut, Request, Response
from siltlog.infra.client.endpoints import Endpoints
from siltlog.infra.client.transport import HttpTransport

POLL_SECONDS = 0.001
GET = Request("GET", "/x", read_timeout_ms=5_000)
PLAIN = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nX-A: b\r\n\r\nhello"
CHUNKED = (
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nX-A: b\r\n\r\n"
    b"3\r\nhel\r\n2;a=b\r\nlo\r\n0\r\nX-A: later\r\nX-C: d\r\n\r\n"
)


class Server:
    """Answers the requests of each connection with the pieces it was given, in order, and then closes it."""

    def __init__(self, *connections: Sequence[Sequence[bytes]], context: ssl.SSLContext | None = None) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._connections = list(connections)
        self._context = context
        self.requests: list[bytes] = []
        port = self._listener.getsockname()[1]
        self.url = f"http://127.0.0.1:{port}/base" if context is None else f"https://localhost:{port}/base"
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        for replies in self._connections:
            accepted = self._listener.accept()[0]
            if self._context is not None:
                accepted = self._context.wrap_socket(accepted, server_side=True)
            with accepted:
                accepted.settimeout(10)
                for pieces in replies:
                    request = _read_request(accepted)
                    if not request:
                        break
                    self.requests.append(request)
                    for piece in pieces:
                        accepted.sendall(piece)

    def end(self) -> None:
        self._thread.join(10)
        self._listener.close()
        assert not self._thread.is_alive()


def _read_request(accepted: socket.socket) -> bytes:
    data = b""
    while b"\r\n\r\n" not in data:
        piece = accepted.recv(65_536)
        if not piece:
            return b""
        data += piece
    head, _, body = data.partition(b"\r\n\r\n")
    lengths = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
    wanted = int(lengths[0].split(b":")[1]) if lengths else 0
    while len(body) < wanted:
        body += accepted.recv(65_536)
    return head + b"\r\n\r\n" + body


@contextmanager
def serving(*connections: Sequence[Sequence[bytes]]) -> Iterator[tuple[HttpTransport, Server]]:
    server, transport = Server(*connections), HttpTransport()
    try:
        yield transport, server
    finally:
        transport.close()
        server.end()


def answer(*pieces: bytes, request: Request = GET) -> Response:
    with serving([pieces]) as (transport, server):
        return transport.send(server.url, request)


@pytest.mark.parametrize("reply", [PLAIN, CHUNKED], ids=["length", "chunked"])
def test_a_reply(reply: bytes) -> None:
    response = answer(reply)
    assert (response.status, bytes(response.body), response.headers["x-a"]) == (200, b"hello", "b")
    assert "x-c" not in response.headers


@given(st.sampled_from([PLAIN, CHUNKED, b"HTTP/1.1 100 Continue\r\n\r\n" + PLAIN]), st.data())
@settings(max_examples=30, deadline=None)
def test_a_reply_may_come_in_any_pieces(reply: bytes, data: st.DataObject) -> None:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(reply)), max_size=6)))
    ends = [0, *cuts, len(reply)]
    response = answer(*[reply[start:end] for start, end in pairwise(ends)])
    assert (response.status, bytes(response.body)) == (200, b"hello")


def test_a_large_reply_of_known_length() -> None:
    body = bytes(range(256)) * 4_096
    response = answer(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body), body[:10], body[10:])
    assert response.body == body


def test_a_reply_that_ends_with_its_connection() -> None:
    assert answer(b"HTTP/1.1 200 OK\r\n\r\nhel", b"lo").body == b"hello"


@pytest.mark.parametrize("status", [b"204 No Content", b"304 Not Modified"])
def test_replies_without_a_body(status: bytes) -> None:
    assert answer(b"HTTP/1.1 %b\r\n\r\n" % status).body == b""


def test_a_head_has_no_body() -> None:
    response = answer(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", request=Request("HEAD", "/x"))
    assert (response.status, response.body) == (200, b"")


def test_a_repeated_field_is_a_list() -> None:
    reply = b"HTTP/1.1 200 OK\r\nVary: Origin\r\nvary: Accept\r\nContent-Length: 0\r\n\r\n"
    assert answer(reply).headers["vary"] == "Origin, Accept"


def test_the_request_as_it_is_sent() -> None:
    request = Request("POST", "/y?z=1", {"Content-Type": "a/b"}, (b"one", memoryview(b"two")))
    with serving([[PLAIN]]) as (transport, server):
        transport.send(server.url, request)
    head, _, body = server.requests[0].partition(b"\r\n\r\n")
    port = server.url.split(":")[2].split("/")[0].encode()
    assert head.split(b"\r\n") == [
        b"POST /base/y?z=1 HTTP/1.1",
        b"Host: 127.0.0.1:" + port,
        b"User-Agent: siltlog-python",
        b"Content-Type: a/b",
        b"Content-Length: 6",
    ]
    assert body == b"onetwo"


def test_large_pieces_of_a_body_come_in_order() -> None:
    pieces = (b"a" * 10, b"b" * 200_000, b"c" * 5, b"d" * 65_000, b"e" * 70_000)
    with serving([[PLAIN]]) as (transport, server):
        transport.send(server.url, Request("POST", "/y", body=pieces))
    assert server.requests[0].endswith(b"\r\n\r\n" + b"".join(pieces))


def test_a_connection_is_used_again() -> None:
    with serving([[PLAIN], [CHUNKED], [PLAIN]]) as (transport, server):
        for _ in range(3):
            assert transport.send(server.url, GET).body == b"hello"


@pytest.mark.parametrize(
    "first",
    [
        b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 5\r\n\r\nhello",
        b"HTTP/1.0 200 OK\r\nContent-Length: 5\r\n\r\nhello",
        PLAIN + b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil",
    ],
    ids=["close", "HTTP/1.0", "more than was asked for"],
)
def test_a_connection_that_is_not_used_again(first: bytes) -> None:
    with serving([[first]], [[PLAIN]]) as (transport, server):
        assert transport.send(server.url, GET).body == b"hello"
        assert transport.send(server.url, GET).body == b"hello"


def test_a_connection_that_the_server_closed_meanwhile_is_not_used() -> None:
    with serving([[PLAIN]], [[PLAIN]]) as (transport, server):
        transport.send(server.url, GET)
        (kept,) = transport._servers[server.url]._idle  # type: ignore[attr-defined]
        assert kept._quiet.poll(5_000), "the server closes after its only reply"
        assert transport.send(server.url, GET).body == b"hello"


@pytest.mark.parametrize(
    ("reply", "why"),
    [
        (b"", "closed before the reply was whole"),
        (PLAIN[:-1], "closed before the reply was whole"),
        (CHUNKED[:-5], "closed before the reply was whole"),
        (b"HTTP/1.1 100 Continue\r\n\r\n", "closed before the reply was whole"),
        (b"SSH-2.0-OpenSSH_9.6\r\n", "HTTP"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n", "Content-Length"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n", "."),
        (b"HTTP/1.1 200 OK\r\n" + b"X: %b\r\n" % (b"y" * 1_000) * (HEAD_BYTES_MAX // 1_000 + 1), "do not end"),
    ],
)
def test_what_is_no_whole_reply(reply: bytes, why: str) -> None:
    with pytest.raises(ConnectionFailed, match=why) as failed:
        answer(reply)
    assert failed.value.sent


def test_a_reply_that_does_not_come_in_time() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        pytest.raises(ConnectionFailed, match="no answer within 50 ms") as failed,
    ):
        HttpTransport().send(f"http://127.0.0.1:{listener.getsockname()[1]}", Request("GET", "/", read_timeout_ms=50))
    assert failed.value.sent


def test_nobody_listens() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    with pytest.raises(ConnectionFailed, match="Connection refused") as failed:
        HttpTransport().send(url, GET)
    assert not failed.value.sent


def test_a_refusal_is_read_although_the_body_was_not_taken() -> None:
    reply = b"HTTP/1.1 413 Too Large\r\nContent-Length: 3\r\nConnection: close\r\n\r\nbig"
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def refuse() -> None:
            with listener.accept()[0] as accepted:
                accepted.recv(100)
                accepted.sendall(reply)
                accepted.shutdown(socket.SHUT_WR)
                accepted.recv(1_000_000)

        thread = threading.Thread(target=refuse)
        thread.start()
        request = Request("POST", "/", body=(bytes(32 * 1024 * 1024),))
        try:
            response = HttpTransport().send(f"http://127.0.0.1:{listener.getsockname()[1]}", request)
            assert (response.status, response.body) == (413, b"big")
        except ConnectionFailed as failed:
            # The reset may overtake the reply: it then is not known what came of the request.
            assert failed.sent
        finally:
            thread.join(10)


@pytest.mark.parametrize(
    "request_",
    [Request("GET", "/a b"), Request("GET", "/a\r\nX: y"), Request("GET", "/", {"X": "a\r\nY: b"})],
)
def test_nothing_is_smuggled_into_a_request(request_: Request) -> None:
    with serving([[PLAIN]], [[PLAIN]]) as (transport, server):
        with pytest.raises(ValueError, match=r"."):
            transport.send(server.url, request_)
        assert transport.send(server.url, GET).status == 200
    assert len(server.requests) == 1


def test_addresses() -> None:
    assert Address.of("http://h") == ("h", 80, False, "")
    assert Address.of("https://h/p") == ("h", 443, True, "/p")
    assert Address.of("http://[::1]:7070").authority == "[::1]:7070"
    assert Address.of("http://h:80").authority == "h"
    assert Address.of("https://h:80").authority == "h:80"
    assert Address.of("unix:/run/silt.sock") == ("/run/silt.sock", 0, False, "")


def test_over_tls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("localhost").configure_cert(context)
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
    server, transport = Server([[PLAIN], [CHUNKED]], context=context), HttpTransport()
    for _ in range(2):
        assert transport.send(server.url, GET).body == b"hello"
    transport.close()
    server.end()


def test_a_certificate_that_nobody_trusts() -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    trustme.CA().issue_cert("localhost").configure_cert(context)
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def shake() -> None:
            with listener.accept()[0] as accepted, pytest.raises(ssl.SSLError):
                context.wrap_socket(accepted, server_side=True)

        thread = threading.Thread(target=shake)
        thread.start()
        with pytest.raises(ConnectionFailed, match="certificate verify failed") as failed:
            Connection(Address.of(f"https://localhost:{listener.getsockname()[1]}"), ssl.create_default_context())
        thread.join(10)
    assert not failed.value.sent


@pytest.mark.parametrize("folder", ["s", "d" * 120], ids=["short", "long"])
def test_over_a_socket_in_the_file_system(tmp_path: Path, folder: str) -> None:
    (tmp_path / folder).mkdir()
    path = tmp_path / folder / "silt.sock"
    with credential_server.serving(path=path) as server:
        transport = HttpTransport()
        for _ in range(2):
            assert transport.send(f"unix://{path}" if folder == "s" else server.url, GET).status == 200
        transport.close()

        async def send() -> None:
            transport = AsyncHttpTransport()
            for _ in range(2):
                assert (await transport.send(server.url, GET)).status == 200
            await transport.close()

        asyncio.run(send())
        assert server.hosts == ["localhost"] * 4 and server.connections == 2
    path.unlink()
    transport = HttpTransport()
    with pytest.raises(ConnectionFailed, match="No such file") as failed:
        transport.send(server.url, GET)
    assert not failed.value.sent


def test_a_client_of_a_socket(tmp_path: Path) -> None:
    with credential_server.serving(path=tmp_path / "silt.sock") as server:
        with Admin(f"unix://{tmp_path}/silt.sock") as admin:
            assert admin.topics() == []
        assert Endpoints(f"unix://{tmp_path}/silt.sock").urls == (server.url,)


def test_a_server_that_speaks_tls_is_told_by_its_alert() -> None:
    with pytest.raises(ConnectionFailed, match="its URL begins with https://"):
        answer(b"\x15\x03\x01\x00\x02\x02\x46")


def test_only_a_first_word_that_does_not_come_is_explained() -> None:
    with serving([[PLAIN], [b""]]) as (transport, server):
        assert transport.send(server.url, GET).status == 200
        with pytest.raises(ConnectionFailed, match=r"before the reply was whole$"):
            transport.send(server.url, GET)


def _cut_while_it_waits(cut: Cut, server: Server) -> threading.Thread:
    """Makes the cut once the request has come, on a thread of its own."""

    def make() -> None:
        while not server.requests:
            time.sleep(POLL_SECONDS)
        cut.make()

    thread = threading.Thread(target=make)
    thread.start()
    return thread


@pytest.mark.rule("CR15")
def test_an_exchange_is_cut_while_it_waits() -> None:
    cut, request = Cut(), Request("GET", "/x", read_timeout_ms=60_000)
    with serving([[], []]) as (transport, server):
        thread = _cut_while_it_waits(cut, server)
        with pytest.raises(ConnectionFailed, match="gave another request no answer") as failed:
            transport.send(server.url, replace(request, cut=cut))
        assert failed.value.sent
        thread.join()


@pytest.mark.rule("CR15")
def test_an_asynchronous_exchange_is_cut_while_it_waits() -> None:
    cut, request = Cut(), Request("GET", "/x", read_timeout_ms=60_000)

    async def exchange(server: Server) -> None:
        transport = AsyncHttpTransport()
        with pytest.raises(ConnectionFailed, match="gave another request no answer") as failed:
            await transport.send(server.url, replace(request, cut=cut))
        assert failed.value.sent
        await transport.close()

    with serving([[], []]) as (_, server):
        thread = _cut_while_it_waits(cut, server)
        asyncio.run(exchange(server))
        thread.join()


@pytest.mark.rule("CR15")
def test_an_exchange_over_tls_is_cut_while_it_waits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("localhost").configure_cert(context)
    cut, server = Cut(), Server([[], []], context=context)
    transport, thread = HttpTransport(), _cut_while_it_waits(cut, server)
    with pytest.raises(ConnectionFailed, match="gave another request no answer"):
        transport.send(server.url, Request("GET", "/x", read_timeout_ms=60_000, cut=cut))
    thread.join()
    transport.close()
    server.end()


def test_an_answer_that_came_before_a_cut_counts() -> None:
    cut = Cut()
    with serving([[PLAIN], [PLAIN]]) as (transport, server):
        assert transport.send(server.url, replace(GET, cut=cut)).body == b"hello"
        cut.make()
        assert transport.send(server.url, GET).body == b"hello", "the connection is used by another now"
