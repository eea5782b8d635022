"""A real server with small bounds: past each of them a clear answer at once, and nobody else notices."""

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from urllib.parse import urlsplit

import pytest
from forked import executing
from http_rig import NO_REDIS, Http, answer, exchange
from resident import resident_bytes

from siltlog.infra import names
from siltlog.infra.metrics import catalogue
from siltlog.server_process import ServerProcess
from siltlog.testing import running_server

MIB = 1024 * 1024
REQUEST_BYTES = 4 * MIB
CONNECTIONS_MAX = 24
PUBLISH = "POST /v1/topics/t/records HTTP/1.1\n{}\nContent-Type: " + names.MEDIA_BYTES + "\nContent-Length: 1"
PATIENCE_S = 60


@pytest.fixture(scope="module")
def server() -> Iterator[ServerProcess]:
    settings = {
        "redis_url": NO_REDIS,
        "flush_ms": 200,
        "wal_bytes_max": 256 * MIB,
        "head_bytes_max": 16 * MIB,
        "request_bytes_max": REQUEST_BYTES,
        # Longer than a busy machine stands still while somebody sends.
        "request_timeout_ms": 8_000,
        "connections_max": CONNECTIONS_MAX,
        "cors_origins": "https://app.example",
    }
    with executing(), running_server(**settings) as server:
        Http(server.url).create("t")
        yield server


@pytest.fixture
def http(server: ServerProcess) -> Http:
    return Http(server.url)


def head_of(got: bytes) -> tuple[int, dict[str, str], bytes]:
    """Status, header fields by lower-case name, body."""
    head, _, body = got.partition(b"\r\n\r\n")
    lines = head.decode("latin-1").split("\r\n")
    fields = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines[1:])}
    return int(lines[0].split()[1]), fields, body


def begin_publish(http: Http, sent: bytes, length: int, topic: str = "t") -> socket.socket:
    """A publish of which only a part of the body was sent."""
    connection = http.connect()
    connection.sendall(
        f"POST /v1/topics/{topic}/records HTTP/1.1\r\nHost: localhost\r\nContent-Type: {names.MEDIA_BYTES}\r\n"
        f"Content-Length: {length}\r\n\r\n".encode()
        + sent
    )
    return connection


def metric(http: Http, name: str) -> float:
    lines = dict(line.rsplit(" ", 1) for line in http.get("/metrics").body.decode().splitlines() if line[0] != "#")
    return float(lines[name])


def connect_deaf(http: Http) -> socket.socket:
    """What is sent to it soon stays with the sender."""
    parts = urlsplit(http.url)
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    connection.settimeout(20)
    connection.connect((parts.hostname, parts.port))
    return connection


def received_whole(connection: socket.socket) -> bool:
    got = b""
    try:
        while len(got.partition(b"\r\n\r\n")[2]) < int(head_of(got)[1].get("content-length", 1) if got else 1):
            if not (part := connection.recv(1 << 20)):
                return False
            got += part
    except ConnectionError:
        return False
    return True


def until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def until_quiet(http: Http) -> None:
    """Everything that is counted was given back."""
    deadline = time.monotonic() + PATIENCE_S
    while metric(http, catalogue.IN_FLIGHT_BYTES.name) != 0 or metric(http, catalogue.CONNECTIONS.name) > 2:
        assert time.monotonic() < deadline, http.get("/metrics").body.decode()
        time.sleep(0.05)


# --- connections ------------------------------------------------------------------------------------------
@pytest.mark.rule("P1")
def test_connections_that_are_too_many_are_told_and_the_others_go_on(http: Http) -> None:
    assert http.publish("t", {"value": 1}).status == 200  # it has its connection
    with ExitStack() as stack:
        for _ in range(CONNECTIONS_MAX - 1):
            connection = stack.enter_context(http.connect())
            assert head_of(exchange(connection, "GET /healthz HTTP/1.1\nHost: localhost"))[0] == 200
        for _ in range(3):
            with http.connect() as one_more:
                body = b"x" * 1000
                request = "POST /v1/topics/t/records HTTP/1.1\nHost: localhost\nContent-Type: {}\nContent-Length: {}"
                got = exchange(one_more, request.format(names.MEDIA_BYTES, len(body)), body)
                status, fields, document = head_of(got)
                assert (status, json.loads(document)["error_code"]) == (503, "overloaded")
                assert 1 <= int(fields["retry-after"]) <= 75
                assert (fields["connection"], "silt-request-id" in fields) == ("close", True)
                assert one_more.recv(1) == b""
        with http.connect() as probe:
            # An orchestrator must not take it for dead.
            assert head_of(exchange(probe, "GET /healthz HTTP/1.1\nHost: localhost"))[0] == 200
        assert http.publish("t", {"value": 1}).status == 200
    deadline = time.monotonic() + PATIENCE_S
    while Http(http.url).publish("t", {"value": 1}).status != 200:
        assert time.monotonic() < deadline
    until_quiet(http)


@pytest.mark.rule("P1")
def test_a_flood_of_connections_leaves_the_open_ones_alone(http: Http) -> None:
    assert http.publish("t", {"value": 1}).status == 200
    flood = []
    try:
        for _ in range(300):
            flood.append(http.connect())
        assert http.publish("t", {"value": 1}).status == 200
        # Far above the limit nobody is read any more, but the reason is there for who reads.
        status, fields, _ = head_of(answer(flood[-1]))
        assert (status, fields["connection"]) == (503, "close")
    finally:
        for connection in flood:
            connection.close()
    until_quiet(http)


@pytest.mark.slow
@pytest.mark.rule("P2")
def test_a_request_head_that_never_ends(http: Http) -> None:
    with http.connect() as slow, http.connect() as large:
        slow.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX-A: ")
        large.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n")
        for _ in range(70):
            large.sendall(b"X-B: " + b"b" * 1000 + b"\r\n")
            time.sleep(0.001)
        status, _, document = head_of(answer(large))
        assert (status, json.loads(document)["error_code"]) == (413, "request_too_large")
        status, fields, document = head_of(answer(slow))
        assert (status, json.loads(document)["error_code"]) == (408, "request_timeout")
        assert fields["connection"] == "close"
    until_quiet(http)


@pytest.mark.parametrize("sent", [b"\x16\x03\x01\x02\x00\x01\x00", b"nonsense\r\n\r\n", b"GET / HTTP/9.x\r\n\r\n"])
def test_what_is_no_http_is_told_so(http: Http, sent: bytes) -> None:
    with http.connect() as connection:
        connection.sendall(sent)
        status, fields, document = head_of(answer(connection))
        assert (status, json.loads(document)["error_code"]) == (400, "malformed_body")
        assert (fields["content-type"], connection.recv(1)) == (names.MEDIA_PROBLEM, b"")
        assert fields["silt-request-id"] == json.loads(document)["request_id"]


def test_what_is_no_http_after_a_request_does_not_spoil_its_answer(http: Http) -> None:
    end = http.end("t")
    with http.connect() as connection:
        request = PUBLISH.format("Host: localhost").replace("\n", "\r\n").encode() + b"\r\n\r\n1"
        connection.sendall(request + request + b"nonsense\r\n\r\n")
        got = b""
        while part := connection.recv(65_536):
            got += part
    assert got.count(b"HTTP/1.1 200 OK") == got.count(b"HTTP/1.1 ") == 2
    assert http.end("t") == end + 2


@pytest.mark.rule("P3")
def test_requests_without_waiting_are_bounded(http: Http) -> None:
    """All that are taken are answered, in order; then the connection ends."""
    with http.connect() as connection:
        connection.sendall(b"".join(b"GET /none-%d HTTP/1.1\r\nHost: localhost\r\n\r\n" % n for n in range(1_000)))
        got = b""
        while part := connection.recv(1 << 20):
            got += part
    answered = got.count(b"HTTP/1.1 404")
    assert 64 <= answered < 1_000
    assert [b"/none-%d" % n in line for n, line in enumerate(got.split(b"nothing at")[1:])] == [True] * answered
    assert http.publish("t", {"value": 1}).status == 200


# --- memory -----------------------------------------------------------------------------------------------
@pytest.mark.rule("P5")
def test_slow_large_bodies_do_not_keep_others_out(http: Http, server: ServerProcess) -> None:
    """They fill the memory there is for requests, and stop: small publishes go on, large ones are told when to come
    back, and by then there is room, because who holds it and does not move is ended."""
    held = [begin_publish(http, b"x" * (REQUEST_BYTES - 10), REQUEST_BYTES) for _ in range(3)]
    try:
        while metric(http, catalogue.IN_FLIGHT_BYTES.name) < 3 * (REQUEST_BYTES - 10):
            time.sleep(0.01)
        body = b"y" * (2 * MIB)
        refused = 0
        deadline = time.monotonic() + PATIENCE_S
        while True:
            assert http.publish("t", {"value": "small"}).status == 200
            reply = http.call("POST", "/v1/topics/t/records", body, Content_Type=names.MEDIA_BYTES)
            if reply.status == 200:
                break
            assert (reply.status, reply.error_code) == (503, "overloaded")
            assert reply.json["retry_after_ms"] > 0
            assert int(reply.headers["retry-after"]) == -(-reply.json["retry_after_ms"] // 1000)
            refused += 1
            assert time.monotonic() < deadline
            time.sleep(reply.json["retry_after_ms"] / 1000)
        assert 1 <= refused <= 4
        for connection in held:
            status, fields, document = head_of(answer(connection))
            assert (status, json.loads(document)["error_code"]) == (408, "request_timeout")
            assert fields["connection"] == "close"
    finally:
        for connection in held:
            connection.close()
    until_quiet(http)


def test_many_large_bodies_at_once_never_take_more_than_their_bound(http: Http, server: ServerProcess) -> None:
    body = b"z" * (REQUEST_BYTES - 1000)
    codes: list[str] = []

    def publish() -> None:
        own = Http(http.url)
        for _ in range(4):
            reply = own.call("POST", "/v1/topics/t/records", body, Content_Type=names.MEDIA_BYTES)
            codes.append("" if reply.status == 200 else reply.error_code)

    before = resident_bytes(server.pid)
    threads = [threading.Thread(target=publish) for _ in range(16)]
    for thread in threads:
        thread.start()
    highest = 0.0
    while any(thread.is_alive() for thread in threads):
        highest = max(highest, metric(http, catalogue.IN_FLIGHT_BYTES.name))
        time.sleep(0.01)
    assert len(codes) == 64
    assert set(codes) <= {"", "overloaded", "wal_full"}
    assert codes.count("") > 0
    # What was admitted is counted once more from its append to its sync.
    assert highest <= 2 * 16 * MIB
    assert resident_bytes(server.pid) - before < 200 * MIB
    until_quiet(http)


@pytest.mark.slow
@pytest.mark.rule("P6")
def test_who_does_not_read_is_cut_off_and_costs_little(http: Http, server: ServerProcess) -> None:
    """Each asks for megabytes and takes none."""
    http.create("wide")
    value = "w" * 60_000
    for _ in range(10):
        assert http.publish("wide", *({"value": value} for _ in range(16))).status == 200
    before = resident_bytes(server.pid)
    deaf = []
    try:
        for _ in range(16):
            connection = connect_deaf(http)
            path = b"/v1/topics/wide/partitions/0/records?offset=0&max_bytes=9000000"
            connection.sendall(b"GET " + path + b" HTTP/1.1\r\nHost: localhost\r\n\r\n")
            deaf.append(connection)
            if len(deaf) == 1:
                # The first has all memory, and its reply is more than the kernel's buffers take.
                until(lambda: metric(http, catalogue.IN_FLIGHT_BYTES.name) > MIB)
        for _ in range(20):
            assert http.publish("t", {"value": 1}).status == 200
        assert resident_bytes(server.pid) - before < 150 * MIB
        until(lambda: metric(http, catalogue.IN_FLIGHT_BYTES.name) == 0)
        # Who asked while there was memory; the others got less, or a refusal, which the kernel's buffers take.
        assert not all(map(received_whole, deaf))
    finally:
        for connection in deaf:
            connection.close()
    until_quiet(http)


@pytest.mark.slow
def test_who_sends_and_never_reads_is_made_to_wait_and_cut_off(http: Http, server: ServerProcess) -> None:
    """One small publish after the other into one connection, and none of the answers is taken."""
    body = b'{"records":[' + b",".join([b'{"value":1}'] * 500) + b"]}"
    head = f"POST /v1/topics/t/records HTTP/1.1\r\nHost: localhost\r\nContent-Type: {names.MEDIA_JSON}\r\n"
    request = head.encode() + b"Content-Length: %d\r\n\r\n" % len(body) + body
    before = resident_bytes(server.pid)
    with connect_deaf(http) as deaf:
        deaf.settimeout(PATIENCE_S)
        deadline = time.monotonic() + PATIENCE_S
        with pytest.raises(ConnectionError):
            while time.monotonic() < deadline:
                deaf.sendall(request)
    assert resident_bytes(server.pid) - before < 64 * MIB
    until_quiet(http)


def test_a_refusal_reaches_who_is_still_sending(http: Http) -> None:
    """Closing with a body unread would reset the connection, and the answer with it."""
    for length, topic, code in ((REQUEST_BYTES + 1, "t", "request_too_large"), (REQUEST_BYTES, "no", "unknown_topic")):
        with begin_publish(http, b"", length, topic) as connection:
            time.sleep(0.05)
            sent = 0
            while sent < length:
                sent += connection.send(b"x" * min(65_536, length - sent))
            _, _, document = head_of(answer(connection))
            assert json.loads(document)["error_code"] == code
    until_quiet(http)


# --- who may call, also where it counts -------------------------------------------------------------------
@pytest.mark.parametrize(
    ("fields", "status", "code"),
    [
        ("Host: localhost", 200, ""),
        ("Host: localhost\nOrigin: https://app.example", 200, ""),
        ("Host: localhost:7070\nOrigin: http://localhost:7070", 200, ""),
        ("Host: LOCALHOST:7070\nOrigin: http://localhost:7070", 200, ""),
        ("Host: localhost:7070\nOrigin: http://localhost:3000", 403, "origin_not_allowed"),
        ("Host: localhost\nOrigin: https://evil.example", 403, "origin_not_allowed"),
        ("Host: localhost\nOrigin: null", 403, "origin_not_allowed"),
        ("Host: localhost\nOrigin: https://app.example\nOrigin: https://evil.example", 400, "invalid_parameter"),
        ("Host: localhost\nOrigin: https://evil.example\nOrigin: https://app.example", 400, "invalid_parameter"),
        ("Host: evil.example:7070\nOrigin: http://evil.example:7070", 421, "unknown_host"),
        ("Host: evil.example", 421, "unknown_host"),
        ("Host: evil.example\nHost: localhost", 400, "invalid_parameter"),
        ("Host: localhost\nHost: evil.example", 400, "invalid_parameter"),
    ],
)
def test_no_page_publishes_that_may_not(http: Http, fields: str, status: int, code: str) -> None:
    """Pages of others, and pages of a name that was bound to this address after they were loaded."""
    end = http.end("t")
    with http.connect() as connection:
        got, _, document = head_of(exchange(connection, PUBLISH.format(fields), b"1"))
    assert (got, json.loads(document).get("error_code", "")) == (status, code)
    assert http.end("t") == end + (status == 200)


def test_a_preflight_for_publishing(http: Http) -> None:
    asked = {"Access_Control_Request_Method": "POST", "Access_Control_Request_Headers": "silt-producer-id"}
    allowed = http.call("OPTIONS", "/v1/topics/t/records", Origin="https://app.example", **asked)
    assert (allowed.status, allowed.headers["access-control-allow-headers"]) == (204, "silt-producer-id")
    for origin, host, status in (
        ("https://evil.example", "localhost", 403),
        ("https://app.example", "evil.example", 421),
    ):
        refused = http.call("OPTIONS", "/v1/topics/t/records", Origin=origin, Host=host, **asked)
        assert refused.status == status
        assert "access-control-allow-methods" not in refused.headers
