"""Connections on which nobody says who they are, at a server where one must."""

import socket
import time
from contextlib import ExitStack

import pytest
from access_rig import secured_server
from http_rig import NO_REDIS, Http, exchange

from siltlog.infra.http.connection.connection import STRANGER_SECONDS
from siltlog.testing import running_server

PUBLISH = "POST /v1/topics/t/records HTTP/1.1\nHost: localhost\nContent-Type: application/octet-stream"


def ask(connection: socket.socket, path: str, token: str = "") -> bytes:
    field = f"\nAuthorization: Bearer {token}" if token else ""
    return exchange(connection, f"GET {path} HTTP/1.1\nHost: localhost{field}")


@pytest.mark.slow
@pytest.mark.rule("A47")
@pytest.mark.timeout(90)
def test_they_get_half_of_the_places_and_ten_seconds() -> None:
    with secured_server(connections_max=8) as secured, ExitStack() as stack:
        token = secured.key("ops", ("admin", ""))[1].token
        secured.admin.create("t")
        http = Http(secured.server.url)

        def connect() -> socket.socket:
            return stack.enter_context(http.connect())

        by_either_way = [connect() for _ in range(3)]
        for connection in by_either_way[:2]:
            assert b" 200 " in ask(connection, "/v1/topics", token)
        publish = f"{PUBLISH}\nAuthorization: Bearer {token}\nContent-Length: 1"
        assert b" 200 " in exchange(by_either_way[2], publish, b"x")
        begun = time.monotonic()
        strangers = [connect() for _ in range(4)]
        for connection in strangers:
            assert b" 200 " in ask(connection, "/healthz")
        assert b" 401 " in ask(strangers[0], "/v1/topics", "no-token")
        one_more = connect()
        assert b"on which nobody has said who they are" in ask(one_more, "/v1/topics", token)
        for connection in strangers:
            assert connection.recv(1) == b""
        assert STRANGER_SECONDS - 2 < time.monotonic() - begun < STRANGER_SECONDS + 20
        for connection in by_either_way:
            assert b" 200 " in ask(connection, "/healthz")
        assert b" 200 " in ask(connect(), "/v1/topics", token)


@pytest.mark.slow
@pytest.mark.rule("A47")
@pytest.mark.timeout(90)
def test_what_is_not_whole_keeps_no_place_and_probes_are_answered_meanwhile() -> None:
    with secured_server(connections_max=8) as secured, ExitStack() as stack:
        http = Http(secured.server.url)
        begun = time.monotonic()
        silent, half_a_line, half_a_head, half_a_body = (stack.enter_context(http.connect()) for _ in range(4))
        half_a_line.sendall(b"GET /v1/to")
        half_a_head.sendall(b"GET /v1/topics HTTP/1.1\r\nHost: localhost\r\nX-Slow: ")
        half_a_body.sendall(f"{PUBLISH}\nContent-Length: 9".replace("\n", "\r\n").encode() + b"\r\n\r\nx")
        for path in ("/healthz", "/readyz"):
            assert b" 200 " in ask(stack.enter_context(http.connect()), path), "they are too many, and ask all the same"
        for connection in (silent, half_a_line, half_a_head, half_a_body):
            connection.settimeout(2 * STRANGER_SECONDS)
            while connection.recv(65_536):
                pass
        assert time.monotonic() - begun < STRANGER_SECONDS + 20


@pytest.mark.slow
def test_where_nobody_is_asked_all_places_are_everybodys() -> None:
    with running_server(connections_max=8, redis_url=NO_REDIS) as server, ExitStack() as stack:
        http = Http(server.url)
        connections = [stack.enter_context(http.connect()) for _ in range(8)]
        for connection in connections:
            assert b" 200 " in ask(connection, "/v1/topics")
        time.sleep(STRANGER_SECONDS + 1)
        for connection in connections:
            assert b" 200 " in ask(connection, "/v1/topics"), "it stays"
