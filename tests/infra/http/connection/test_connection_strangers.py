"""Connections on which nobody says who they are, at a server where one must."""

import socket
import time
from contextlib import ExitStack

import pytest
from access_rig import secured_server
from http_rig import Http, exchange

from siltlog.infra.http.connection.connection import STRANGER_SECONDS

PUBLISH = "POST /v1/topics/t/records HTTP/1.1\nHost: localhost\nContent-Type: application/octet-stream"


def ask(connection: socket.socket, path: str, token: str = "") -> bytes:
    field = f"\nAuthorization: Bearer {token}" if token else ""
    return exchange(connection, f"GET {path} HTTP/1.1\nHost: localhost{field}")


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
        assert STRANGER_SECONDS - 2 < time.monotonic() - begun < STRANGER_SECONDS + 5
        for connection in by_either_way:
            assert b" 200 " in ask(connection, "/healthz")
        assert b" 200 " in ask(connect(), "/v1/topics", token)
