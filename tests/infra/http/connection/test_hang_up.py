"""Who hangs up is waited for no longer."""

import asyncio
import json
import socket
import struct
from pathlib import Path

import pytest
from http_rig import NO_REDIS, Http
from waiting import until

from siltlog.consumers.groups.waiters import GroupWaiters
from siltlog.infra.http.connection.hang_up import HANG_UP, HangUp, waits, when_hung_up
from siltlog.testing import running_server

RESET = struct.pack("ii", 1, 0)
"""SO_LINGER: closing resets the connection."""


def test_those_who_wait_hear_of_it_once_also_where_it_was_before() -> None:
    heard: list[str] = []
    hang_up = HangUp()
    hang_up.when(lambda: heard.append("first"))
    forget = hang_up.when(lambda: heard.append("forgotten"))
    forget()
    hang_up.told()
    hang_up.told()
    assert heard == ["first"]
    hang_up.when(lambda: heard.append("late"))()
    assert heard == ["first", "late"]


def test_nobody_hears_of_a_request_that_came_by_no_connection() -> None:
    async def run() -> None:
        waits({})
        when_hung_up(lambda: pytest.fail("it is heard of"))()

    asyncio.run(run())


@pytest.mark.rule("P1")
@pytest.mark.parametrize("ask", ["GET /v1/topics/{}/partitions/0/records?offset=0&wait_ms=30000", "POST /v1/fetch"])
def test_a_long_poll_ends_with_its_connection(tmp_path: Path, ask: str) -> None:
    """It ends before another that came later and waits for a shorter time; the access log has both as they end."""
    with running_server(data_dir=tmp_path, redis_url=NO_REDIS, access_log="all") as server:
        http = Http(server.url)
        for topic in ("left", "stayed"):
            http.create(topic)
        body = json.dumps({"partitions": [{"topic": "left", "partition": 0, "offset": 0}], "wait_ms": 30_000})
        request = f"{ask.format('left')} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        content = body if ask.startswith("POST") else ""
        with http.connect() as connection:
            connection.sendall(f"{request}Content-Length: {len(content)}\r\n\r\n{content}".encode())
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        http.get("/v1/topics/stayed/partitions/0/records?offset=0&wait_ms=2000")
        path = "/v1/fetch" if content else "/topics/left/partitions/0"
        log = server.log_path
        until(lambda: path in log.read_text() and "/topics/stayed/partitions/0" in log.read_text())
        said = log.read_text()
        assert said.index(path) < said.index("/topics/stayed/partitions/0")


def test_a_member_that_hung_up_waits_for_no_change_of_its_group() -> None:
    async def run() -> None:
        hang_up = HangUp()
        waits({HANG_UP: hang_up})
        waiters = GroupWaiters()
        with waiters.waiting("g", "m") as waiter:
            hang_up.told()
            assert await waiter.wait(30)
            assert waiter.ended
        with waiters.waiting("g", "m") as late:
            assert late.ended

    asyncio.run(run())
