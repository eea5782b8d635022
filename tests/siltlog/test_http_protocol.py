"""What clients of HTTP/1.1 do besides sending a request and reading its answer."""

import re
import socket
import struct
import uuid

import pyarrow as pa
import pytest
from http_rig import Http

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
    assert "Traceback" not in small_server.log_path.read_text()


def test_what_a_small_arrow_body_becomes_may_be_large(http: Http, topic: str) -> None:
    """As every other body may, up to the limit of the server."""
    repeated = pa.record_batch({"value": pa.array([b"x" * 30_000] * 20).dictionary_encode()})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, repeated.schema) as writer:
        writer.write_batch(repeated)
    content = sink.getvalue().to_pybytes()
    with http.connect() as connection:
        connection.sendall(publish(topic, content).replace(names.MEDIA_BYTES.encode(), names.MEDIA_ARROW.encode()))
        assert b'"last_offset":19' in replies(connection, 1)
