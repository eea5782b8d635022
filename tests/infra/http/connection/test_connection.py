"""What clients of HTTP/1.1 do besides sending a request and reading its answer."""

import contextlib
import json
import re
import socket
import struct
import uuid

import pyarrow as pa
import pytest
from http_rig import Http, answer

from siltlog.infra import names
from siltlog.server_process import ServerProcess

RESET = struct.pack("ii", 1, 0)
"""SO_LINGER: closing resets the connection."""


@pytest.fixture
def topic(http: Http) -> str:
    name = f"protocol-{uuid.uuid4().hex}"
    http.create(name)
    return name


def publish(topic: str, value: bytes, fields: str = "") -> bytes:
    head = (
        f"POST /v1/topics/{topic}/records HTTP/1.1\nHost: localhost\nContent-Type: {names.MEDIA_BYTES}\n"
        f"{fields}Content-Length: {len(value)}\n\n"
    )
    return head.replace("\n", "\r\n").encode() + value


def replies(connection: socket.socket, count: int) -> bytes:
    got = b""
    while len(re.findall(rb'"first_offset":\d+.*?}', got)) < count:
        part = connection.recv(65_536)
        assert part, got
        got += part
    return got


@pytest.mark.rule("B10")
@pytest.mark.parametrize("protocol", ["h2c", "websocket", "TLS/1.0"])
@pytest.mark.parametrize("pieces", [1, 2, 5])
def test_who_could_also_speak_another_protocol_is_understood_in_this_one(
    http: Http, topic: str, protocol: str, pieces: int
) -> None:
    offer = f"Connection: Upgrade, HTTP2-Settings\nUpgrade: {protocol}\nHTTP2-Settings: AAMAAABkAAQAoAAAAAIAAAAA\n"
    sent = publish(topic, b"first", offer) + publish(topic, b"second") + publish(topic, b"third", offer)
    step = -(-len(sent) // pieces)
    with http.connect() as connection:
        for at in range(0, len(sent), step):
            connection.sendall(sent[at : at + step])
        got = replies(connection, 3)
    assert got.count(b"HTTP/1.1 200") == 3
    assert [record["value_base64"] for record in http.read(topic)] == ["Zmlyc3Q=", "c2Vjb25k", "dGhpcmQ="]


def test_the_head_and_the_body_of_an_offer_come_apart(http: Http, topic: str) -> None:
    sent = publish(topic, b"value", "Connection: upgrade\nUpgrade: h2c\n")
    with http.connect() as connection:
        connection.sendall(sent[:-5])
        connection.settimeout(0.2)
        with pytest.raises(TimeoutError):
            connection.recv(1)
        connection.settimeout(20)
        connection.sendall(sent[-5:] + publish(topic, b"next"))
        replies(connection, 2)
    assert len(http.read(topic)) == 2


def test_who_resets_with_requests_under_way_leaves_no_error_behind(
    http: Http, topic: str, small_server: ServerProcess
) -> None:
    for _ in range(20):
        with http.connect() as connection:
            connection.sendall(publish(topic, b"1") * 3 + publish(topic, b"2", "X-Any: thing\n"))
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
    with http.connect() as connection:
        connection.sendall(publish(topic, b"3"))
        replies(connection, 1)
    assert "Traceback" not in small_server.log_path.read_text(), small_server.log_path.read_text()[-3000:]


def test_an_answer_that_comes_after_its_connection_was_refused_is_not_sent(
    http: Http, topic: str, small_server: ServerProcess
) -> None:
    waiting = f"GET /v1/topics/{topic}/partitions/0/records?offset=0&wait_ms=60000 HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with http.connect() as connection:
        connection.sendall(waiting.encode() + b"GET / HTTP/1.1\r\nX-Long: " + b"a" * 70_000)
        got = b""
        while piece := connection.recv(65_536):
            got += piece
        # The server goes on reading what was refused while the answer to the first request is made.
        http.publish(topic, {"value": "awaited"})
        assert http.get(f"/v1/topics/{topic}").status == 200
    assert got.startswith(b"HTTP/1.1 413") and got.count(b"HTTP/1.1") == 1
    assert "Traceback" not in small_server.log_path.read_text(), small_server.log_path.read_text()[-3000:]


def test_what_a_small_arrow_body_becomes_may_be_large(http: Http, topic: str) -> None:
    """It may be as large as any other body, up to the limit of the server."""
    repeated = pa.record_batch({"value": pa.array([b"x" * 30_000] * 20).dictionary_encode()})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, repeated.schema) as writer:
        writer.write_batch(repeated)
    content = sink.getvalue().to_pybytes()
    with http.connect() as connection:
        connection.sendall(publish(topic, content).replace(names.MEDIA_BYTES.encode(), names.MEDIA_ARROW.encode()))
        assert b'"last_offset":19' in replies(connection, 1)


# --- fields behind a chunked body -------------------------------------------------------------------------
def chunked(topic: str, value: bytes, behind: str, fields: str = "") -> bytes:
    head = (
        f"POST /v1/topics/{topic}/records HTTP/1.1\nHost: localhost\nContent-Type: {names.MEDIA_BYTES}\n"
        f"{fields}Transfer-Encoding: chunked\n\n{len(value):x}\n"
    )
    return head.replace("\n", "\r\n").encode() + value + f"\r\n0\r\n{behind}\r\n".encode()


@pytest.mark.rule("B11")
@pytest.mark.parametrize("pieces", [1, 40])
@pytest.mark.parametrize("offer", ["", "Connection: Upgrade\nUpgrade: h2c\n"])
@pytest.mark.parametrize(
    "field",
    [
        "Silt-Request-Id: behind",
        "Host: evil.example",
        "Origin: https://evil.example",
        "Idempotency-Key: a",
        "Silt-Producer-Id: p",
        "Silt-Header-Name: value",
        "Content-Encoding: gzip",
        "Content-Type: text/plain",
        "Expect: 100-continue",
        "Upgrade: h2c\r\nConnection: upgrade",
        "X-First: 1\r\nHost: evil.example\r\nX-Last: 2",
    ],
)
def test_fields_behind_a_body_say_nothing(http: Http, topic: str, field: str, offer: str, pieces: int) -> None:
    sent = chunked(topic, b"value", field + "\r\n", offer) + publish(topic, b"next")
    step = -(-len(sent) // pieces)
    with http.connect() as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for at in range(0, len(sent), step):
            connection.sendall(sent[at : at + step])
        got = replies(connection, 2)
    assert got.count(b"HTTP/1.1 200") == 2 and b"behind" not in got and b"100 Continue" not in got
    found = http.read(topic)
    assert [(record["value_base64"], record["headers"]) for record in found] == [("dmFsdWU=", []), ("bmV4dA==", [])]


def test_who_asks_behind_the_body_for_the_end_of_the_connection_gets_it(http: Http, topic: str) -> None:
    with http.connect() as connection:
        connection.sendall(chunked(topic, b"value", "Connection: close\r\n"))
        got = b""
        while part := connection.recv(65_536):
            got += part
    assert got.startswith(b"HTTP/1.1 200") and b"connection: close" in got


@pytest.mark.parametrize(
    "behind", [b"0\r\nX: " + b"x" * 300_000, b"0\r\n" + b"X-Many: value\r\n" * 20_000, b"0;x=" + b"x" * 300_000]
)
def test_what_follows_a_body_without_end_is_refused(http: Http, topic: str, behind: bytes) -> None:
    with http.connect() as connection:
        connection.sendall(chunked(topic, b"value", "").removesuffix(b"0\r\n\r\n"))
        with contextlib.suppress(ConnectionError):
            connection.sendall(behind)
        got = answer(connection)
    assert got.startswith(b"HTTP/1.1 413") and b"above the limit of 65536 bytes" in got
    assert http.end(topic) == 0


# --- fields that come twice -------------------------------------------------------------------------------
@pytest.mark.rule("B12")
@pytest.mark.parametrize("way", ["", "X-Anything: the long way\n"])
@pytest.mark.parametrize(
    "field",
    [
        "Host: localhost",
        "Host: evil.example",
        "Content-Type: text/plain",
        "Silt-Request-Id: a\nSilt-Request-Id: b",
        "Authorization: Bearer a\nAuthorization: Bearer b",
        "Idempotency-Key: a\nIdempotency-Key: b",
        "Idempotency-Key: a\nIdempotency-Key: ",
        "Silt-Producer-Id: p\nSilt-Sequence: 0\nSilt-Producer-Id: q",
        "Silt-Producer-Id: p\nSilt-Producer-Epoch: 0\nSilt-Producer-Epoch: 1",
        "Silt-Partition-Count: 1\nSilt-Partition-Count: 2",
        "Origin: http://localhost\nOrigin: https://evil.example",
    ],
)
def test_a_field_that_comes_with_two_values_is_refused(http: Http, topic: str, field: str, way: str) -> None:
    name = field.rpartition("\n")[2].partition(":")[0]
    with http.connect() as connection:
        connection.sendall(publish(topic, b"known"))
        replies(connection, 1)
        connection.sendall(publish(topic, b"value", f"{way}{field}\n"))
        got = answer(connection)
    head, _, body = got.partition(b"\r\n\r\n")
    problem = json.loads(body)
    assert head.startswith(b"HTTP/1.1 400") and (problem["error_code"], problem["parameter"]) == (
        "invalid_parameter",
        name,
    )
    assert problem["detail"] == f"the header field {name} is given twice; give it once"
    assert problem["request_id"] not in ("a", "b")
    assert http.end(topic) == 1, "only what came before is there"


@pytest.mark.parametrize("way", ["", "X-Anything: the long way\n"])
def test_a_field_that_comes_twice_with_one_value_has_that_value(http: Http, topic: str, way: str) -> None:
    twice = f"{way}Idempotency-Key: a\nContent-Type: {names.MEDIA_BYTES}\nIdempotency-Key: a\n"
    with http.connect() as connection:
        connection.sendall(publish(topic, b"value", twice) + publish(topic, b"value", "Idempotency-Key: a\n"))
        assert b'"duplicate":true' in replies(connection, 2)
    assert http.end(topic) == 1


@pytest.mark.parametrize("lengths", ["Content-Length: 5", "Content-Length: 4", "Transfer-Encoding: chunked"])
def test_a_body_has_one_length(http: Http, topic: str, lengths: str) -> None:
    with http.connect() as connection:
        connection.sendall(publish(topic, b"value", f"{lengths}\n"))
        got = answer(connection)
    assert got.startswith(b"HTTP/1.1 400") and b"Content-Length" in got.partition(b"\r\n\r\n")[2]
    assert http.end(topic) == 0


def test_what_is_a_list_may_come_in_several_fields(http: Http, topic: str) -> None:
    twice = f"Accept: text/html\nAccept: {names.MEDIA_JSON}\n".replace("\n", "\r\n")
    path = f"/v1/topics/{topic}/partitions/0/records?offset=0"
    with http.connect() as connection:
        connection.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n{twice}\r\n".encode())
        assert answer(connection).startswith(b"HTTP/1.1 200")
        # What was deflated twice would be stored deflated once.
        connection.sendall(publish(topic, b"value", "Content-Encoding: gzip\nContent-Encoding: gzip\n"))
        assert answer(connection).startswith(b"HTTP/1.1 415")


def test_a_key_stands_for_every_header_of_a_blob(http: Http, topic: str) -> None:
    with http.connect() as connection:
        connection.sendall(publish(topic, b"value", "Idempotency-Key: a\nSilt-Header-A: 1\nSilt-Header-A: 2\n"))
        replies(connection, 1)
        connection.sendall(publish(topic, b"value", "Idempotency-Key: a\nSilt-Header-A: 3\nSilt-Header-A: 2\n"))
        assert b"idempotency_key_reused" in answer(connection)
