"""The access log: which requests have a line, what it says, and how many there are of a storm."""

import asyncio
import json
import re
import time
from collections.abc import Iterator
from typing import Any

import pytest
from access_rig import secured_server
from http_rig import NO_REDIS, Http, answer
from kept_log import KeptLog

from siltlog.infra import names
from siltlog.infra.http.log.access_log import LINES_A_SECOND_MAX, SLOW_SECONDS, WINDOW_SECONDS, AccessLog, AccessLogMode
from siltlog.server_process import ServerProcess
from siltlog.testing import running_server

SECRET = "canary-in-a-query"


def lines(server: ServerProcess) -> list[dict[str, Any]]:
    """The lines of its access log so far."""
    text = server.log_path.read_text("utf-8")
    found = [json.loads(line) for line in text.splitlines() if line.startswith("{")]
    return [line for line in found if line["event"] == "request"]


def line_of(server: ServerProcess, request_id: str = "", **has: str) -> dict[str, Any]:
    has = {"request_id": request_id} if request_id else has
    end = time.monotonic() + 60
    while time.monotonic() < end:
        found = [line for line in lines(server) if has.items() <= line.items()]
        if found:
            assert len(found) == 1
            return found[0]
        time.sleep(0.01)
    raise AssertionError(f"no line of {has}")


@pytest.fixture(scope="module")
def server() -> Iterator[ServerProcess]:
    settings = {"access_log": "all", "log_format": "json", "log_level": "info", "node_id": "here"}
    with running_server(redis_url=NO_REDIS, trusted_proxies="127.0.0.1", insecure="no-tls", **settings) as started:
        yield started


@pytest.mark.rule("A64")
def test_of_a_name_without_end_a_line_has_a_little(server: ServerProcess) -> None:
    assert Http(server.url).get(f"/v1/topics/{'x' * 60_000}", X_Request_Id="endless").status == 404
    assert line_of(server, "endless")["topic"] == "x" * names.TOPIC_CHARS_MAX


@pytest.mark.rule("LG3")
def test_what_a_line_says(server: ServerProcess) -> None:
    http = Http(server.url)
    http.create("orders")
    body = json.dumps({"records": [{"value": "a"}]}).encode()
    reply = http.call("POST", "/v1/topics/orders/records", body, Content_Type="application/json", X_Request_Id="fast")
    assert reply.headers["silt-request-id"] == "fast"
    told = line_of(server, "fast")
    assert 0 < told.pop("seconds") < 30 and told.pop("time")
    assert told == {
        "level": "info",
        "event": "request",
        "message": "request",
        "request_id": "fast",
        "operation": "publish",
        "topic": "orders",
        "node": "here",
        "status": 200,
        "path": "/v1/topics/orders/records",
        "method": "POST",
        "bytes_in": len(body),
        "bytes_out": len(reply.body),
        "address": "127.0.0.1",
    }
    forwarded = {"X_Forwarded_For": "192.0.2.9", "X_Forwarded_Proto": "https"}
    wrong = http.get(f"/v1/topics/absent?token={SECRET}", X_Request_Id="long", **forwarded)
    assert wrong.json["request_id"] == "long"
    told = line_of(server, "long")
    assert (told["status"], told["error_code"], told["address"]) == (400, "invalid_parameter", "192.0.2.9")
    assert (told["operation"], told["path"]) == ("describeTopic", "/v1/topics/absent")
    with http.connect() as connection:
        connection.sendall(f"NOTHING {SECRET}\r\n\r\n".encode())
        answer(connection)
    malformed = line_of(server, error_code="malformed_body")
    assert (malformed["status"], malformed["path"]) == (400, "")
    assert SECRET not in server.log_path.read_text("utf-8")


@pytest.mark.rule("LG3")
def test_a_publish_with_an_id_takes_the_fast_path_and_one_that_is_refused_there_has_a_line(
    server: ServerProcess,
) -> None:
    http = Http(server.url)
    http.create("fast")
    for at in range(3):
        http.publish("fast", {"value": "a"}, X_Request_Id=f"ok-{at}")
        line_of(server, f"ok-{at}")
    assert http.publish("fast", {"value": "a", "partition": 9}, X_Request_Id="refused").status == 404
    assert line_of(server, "refused")["error_code"] == "unknown_partition"
    with http.connect() as connection:
        head = "POST /v1/topics/fast/records HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        body = b'{"records": [{"value": "a"}]}'
        twice = f"{head}X-Request-Id: theirs\r\nSilt-Request-Id: ours\r\nContent-Length: {len(body)}\r\n\r\n"
        connection.sendall(twice.encode() + body)
        assert b"silt-request-id: ours" in answer(connection).lower()


@pytest.mark.rule("LG3")
def test_who_calls_is_told_and_by_which_address() -> None:
    with secured_server(access_log="all", log_format="json", log_level="info") as secured:
        assert secured.admin.get("/v1/topics", X_Request_Id="by-admin").status == 200
        secured.admin.create("orders")
        secured.admin.publish("orders", {"value": "a"})
        secured.admin.publish("orders", {"value": "a"}, X_Request_Id="published")
        assert Http(secured.server.url).get("/v1/topics", X_Request_Id="by-nobody").status == 401
        known, published = line_of(secured.server, "by-admin"), line_of(secured.server, "published")
        assert (known["principal"], published["principal"]) == ("key:admin", "key:admin")
        assert "principal" not in line_of(secured.server, "by-nobody")


def test_what_is_slow_without_its_wait() -> None:
    with running_server(redis_url=NO_REDIS, access_log="slow", log_format="json") as server:
        http = Http(server.url)
        began = time.monotonic()
        assert http.json("PUT", "/v1/topics/quiet", {}, X_Request_Id="made").status == 201
        took = {"made": time.monotonic() - began}
        waited = "/v1/topics/quiet/partitions/0/records?offset=0&wait_ms=1200"
        began = time.monotonic()
        assert http.get(waited, X_Request_Id="waited").status == 200
        took["waited"] = time.monotonic() - began - 1.2
        with http.connect() as connection:
            head = "POST /v1/topics HTTP/1.1\r\nHost: localhost\r\nX-Request-Id: slow\r\nContent-Length: 16\r\n"
            connection.sendall(f"{head}Content-Type: application/json\r\n\r\n".encode())
            time.sleep(SLOW_SECONDS + 2)
            connection.sendall(b'{"name": "late"}')
            assert answer(connection).startswith(b"HTTP/1.1 201")
        assert http.get("/v1/topics/absent", X_Request_Id="last").status == 404
        line_of(server, "last")
        told = [line["request_id"] for line in lines(server)]
        # The machine may have made one slow that waits for nothing else.
        by_itself = {name for name, seconds in took.items() if seconds > SLOW_SECONDS}
        assert [name for name in told if name not in by_itself] == ["slow", "last"]


@pytest.mark.parametrize(
    ("mode", "has"),
    [
        ("off", (False, False, False, False)),
        ("errors", (False, False, True, True)),
        ("slow", (False, True, True, True)),
        ("all", (True, True, True, True)),
    ],
)
def test_which_requests_have_a_line(mode: AccessLogMode, has: tuple[bool, ...]) -> None:
    log = AccessLog(mode, KeptLog(), time.monotonic)
    assert tuple(log.wants(*asked) for asked in ((200, 0.9), (200, 1.1), (400, 0.0), (503, 0.0))) == has


@pytest.mark.rule("LG4")
def test_a_storm_has_so_many_lines_a_second_and_says_how_many_were_left_out() -> None:
    async def storm(mode: AccessLogMode, status: int = 404) -> KeptLog:
        kept, now = KeptLog(), 100.0
        log = AccessLog(mode, kept, lambda: now)
        for _ in range(LINES_A_SECOND_MAX * 3):
            log.tell(status, b"/", 0.1)
        await asyncio.sleep(WINDOW_SECONDS + 0.1)
        now += WINDOW_SECONDS + 0.1
        log.tell(404, b"/", 0.1)
        return kept

    async def all_three() -> list[KeptLog]:
        return list(await asyncio.gather(storm("errors"), storm("all"), storm("errors", 503)))

    bounded, whole, failures = asyncio.run(all_three())
    assert (bounded.warnings, failures.warnings[-1]) == ([], "requests left out of the access log")
    assert bounded.events() == [*["request"] * LINES_A_SECOND_MAX, "requests left out of the access log", "request"]
    assert bounded.said[LINES_A_SECOND_MAX][1] == {"count": LINES_A_SECOND_MAX * 2}
    assert whole.events() == ["request"] * (LINES_A_SECOND_MAX * 3 + 1)


@pytest.mark.rule("LG4")
def test_a_storm_of_a_real_client() -> None:
    with running_server(redis_url=NO_REDIS, log_format="json") as server:
        http = Http(server.url)
        for _ in range(150):
            http.get("/v1/topics/absent")
        end = time.monotonic() + 10
        while "requests_left_out" not in (text := server.log_path.read_text()) and time.monotonic() < end:
            time.sleep(0.05)
        server.stop()
        text = server.log_path.read_text()
    left_out = sum(map(int, re.findall(r'"count":(\d+)', text)))
    assert text.count('"event":"request"') + left_out == 150 and left_out > 0
