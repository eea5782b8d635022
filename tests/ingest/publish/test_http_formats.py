"""Formats and content codings over HTTP, against a real server; and bodies that lie, break off or never end."""

import base64
import gzip
import json
import random
import socket
import sys
import threading
import uuid
import zlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from bombs import zstd_bomb
from http_rig import Http, Reply, answer, exchange

from siltlog.infra import names
from siltlog.server_process import ServerProcess

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

MIB = 1024 * 1024
COMPRESS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "zstd": zstd.compress,
    "deflate": zlib.compress,
}


@pytest.fixture
def topic(http: Http) -> str:
    name = f"formats-{uuid.uuid4()}"
    http.create(name, 2)
    return name


def post(http: Http, topic: str, body: Any, media: str, query: str = "", **headers: str) -> Reply:
    return http.call("POST", f"/v1/topics/{topic}/records?{query}", body, Content_Type=media, **headers)


def refused(reply: Reply, status: int, code: str, **members: Any) -> str:
    assert (reply.status, reply.error_code) == (status, code), reply
    assert {name: reply.json[name] for name in members} == members
    detail: str = reply.json["detail"]
    return detail


def values(http: Http, topic: str, partition: int = 0) -> list[bytes | None]:
    return [
        base64.b64decode(record["value_base64"]) if "value_base64" in record else None
        for record in http.read(topic, partition)
    ]


# --- NDJSON ---------------------------------------------------------------------------------------------
def test_lines_of_values(http: Http, topic: str) -> None:
    body = b'{"a":  1.0}\r\n\n"text"\n null \n[1, 2]'
    reply = post(http, topic, body, "application/x-ndjson; charset=utf-8", "partition=1")
    assert (reply.status, reply.json["records"]) == (200, [[1, 0], [1, 1], [1, 2], [1, 3]])
    assert values(http, topic, 1) == [b'{"a":  1.0}', b'"text"', b" null ", b"[1, 2]"]
    again = http.get(
        f"/v1/topics/{topic}/partitions/1/records?lines=value", Accept=names.MEDIA_NDJSON, Accept_Encoding="identity"
    )
    assert again.body == b'{"a":  1.0}\n"text"\n null \n[1, 2]\n'
    detail = refused(post(http, topic, b"1\n\n{]\n", names.MEDIA_NDJSON), 400, "malformed_body", line=3, byte=4)
    assert detail.startswith("line 3 is not valid JSON, at byte 4")
    assert http.end(topic) == 4


def test_lines_of_records(http: Http, topic: str) -> None:
    lines = b'{"value": {"a": 1.0}, "key": "k", "partition": 0}\n{"value": null, "key": "k", "partition": 0}\n'
    assert post(http, topic, lines, names.MEDIA_NDJSON, "lines=record").status == 200
    assert values(http, topic) == [b'{"a": 1.0}', None]
    wrong = lines + b"\n" + lines.replace(b'"key": "k", ', b"", 2)
    refused(post(http, topic, wrong, names.MEDIA_NDJSON, "lines=record"), 422, "invalid_record", line=5, index=3)
    read = http.get(f"/v1/topics/{topic}/partitions/0/records", Accept=names.MEDIA_NDJSON)
    assert post(http, topic, read.body, names.MEDIA_NDJSON, "lines=record").status == 200
    assert values(http, topic) == [b'{"a": 1.0}', None] * 2
    refused(post(http, topic, lines, names.MEDIA_NDJSON, "lines=records"), 400, "invalid_parameter", parameter="lines")
    refused(post(http, topic, b"{}", names.MEDIA_JSON, "lines=record"), 400, "invalid_parameter", parameter="lines")


def test_keys_from_values(http: Http, topic: str) -> None:
    lines = b'{"user": {"id": "a"}}\n{"user": {"id": 7.0}}\n'
    assert post(http, topic, lines, names.MEDIA_NDJSON, "partition=0&key_from=/user/id").status == 200
    assert [record["key"] for record in http.read(topic)] == ["a", "7.0"]
    body = json.dumps({"records": [{"value": {"user": {"id": True}}, "partition": 1}]}).encode()
    assert post(http, topic, body, names.MEDIA_JSON, "key_from=/user/id").status == 200
    assert http.read(topic, 1, "values=text")[0]["key"] == "true"
    for value, line in ((b'{"user": {"id": null}}', 3), (b"1", 3)):
        reply = post(http, topic, lines + value, names.MEDIA_NDJSON, "key_from=/user/id")
        refused(reply, 422, "invalid_record", line=line, index=2)
    reply = post(http, topic, lines, names.MEDIA_NDJSON, "key_from=user")
    refused(reply, 400, "invalid_parameter", parameter="key_from")
    assert http.end(topic) == 3


# --- content codings ------------------------------------------------------------------------------------
@pytest.mark.parametrize("coding", COMPRESS)
def test_every_format_compressed(http: Http, topic: str, coding: str) -> None:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, pa.schema([("value", pa.string())])) as writer:
        writer.write_table(pa.table({"value": ["arrow"]}))
    bodies = {
        names.MEDIA_JSON: b'{"records": [{"value": "json"}]}',
        names.MEDIA_NDJSON: b'"ndjson"\n',
        names.MEDIA_BYTES: b"blob",
        names.MEDIA_ARROW: sink.getvalue().to_pybytes(),
    }
    for media, body in bodies.items():
        reply = post(http, topic, COMPRESS[coding](body), media, "partition=0", Content_Encoding=coding)
        assert reply.status == 200, reply
    assert values(http, topic) == [b"json", b'"ndjson"', b"blob", b"arrow"]


@pytest.mark.parametrize("coding", COMPRESS)
def test_large_and_in_several_members(http: Http, topic: str, coding: str) -> None:
    lines = b"".join(
        b'{"n": %d, "x": "%s"}\n' % (n, random.Random(n).randbytes(20).hex().encode()) for n in range(9_000)
    )
    half = len(lines) // 2
    packed = COMPRESS[coding]
    body = packed(lines) if coding == "deflate" else packed(lines[:half]) + packed(lines[half:])
    reply = post(http, topic, body, names.MEDIA_NDJSON, "partition=0", Content_Encoding=coding)
    assert reply.status == 200, reply
    assert values(http, topic) == lines.splitlines()


@pytest.mark.parametrize("coding", COMPRESS)
def test_broken_streams(http: Http, topic: str, coding: str) -> None:
    good = COMPRESS[coding](b'{"records": [{"value": 1}]}')
    for body in (b"", good[:-1], good + b"garbage", b"plain", b'{"records": [{"value": 1}]}'):
        reply = post(http, topic, body, names.MEDIA_JSON, Content_Encoding=coding)
        detail = refused(reply, 400, "malformed_body")
        assert f"byte {reply.json['byte']}" in detail
        assert coding in detail
    assert http.end(topic) == 0


def test_codings_that_are_not_offered(http: Http, topic: str) -> None:
    for coding in ("br", "gzip, gzip"):
        reply = post(http, topic, b"x", names.MEDIA_BYTES, Content_Encoding=coding)
        refused(reply, 415, "unsupported_encoding")
        assert reply.headers["accept-encoding"] == "gzip, zstd, deflate"


def test_every_body_may_be_compressed(http: Http, topic: str) -> None:
    asked = {"partitions": [{"topic": topic, "partition": 0, "offset": 0}]}
    packed = gzip.compress(json.dumps(asked).encode())
    reply = http.call("POST", "/v1/fetch", packed, Content_Type=names.MEDIA_JSON, Content_Encoding="gzip")
    assert reply.status == 200, reply
    for coding, status, code in (("br", 415, "unsupported_encoding"), ("zstd", 400, "malformed_body")):
        reply = http.call("POST", "/v1/fetch", packed, Content_Type=names.MEDIA_JSON, Content_Encoding=coding)
        refused(reply, status, code)


def arrow_bomb() -> bytes:
    sink = pa.BufferOutputStream()
    table = pa.table({"value": [bytes(100 * MIB)]})
    with pa.ipc.new_stream(sink, table.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
        writer.write_table(table)
    body: bytes = sink.getvalue().to_pybytes()
    return body


def lying_arrow() -> bytes:
    """Its buffer says that it has 64 bytes, and holds 100 MiB."""
    body = arrow_bomb()
    told = (100 * MIB).to_bytes(8, "little")
    assert body.count(told) >= 1
    return body.replace(told, (64).to_bytes(8, "little"))


def test_bombs_cost_no_memory(http: Http, topic: str, small_server: ServerProcess) -> None:
    bombs = [
        ("zstd", names.MEDIA_NDJSON, zstd_bomb(10 << 30), 413, "request_too_large"),
        ("gzip", names.MEDIA_JSON, gzip.compress(bytes(64 * MIB), mtime=0) * 15, 413, "request_too_large"),
        ("deflate", names.MEDIA_JSON, zlib.compress(bytes(512 * MIB)), 413, "request_too_large"),
        ("", names.MEDIA_ARROW, arrow_bomb(), 413, "request_too_large"),
        ("", names.MEDIA_ARROW, lying_arrow(), 400, "malformed_body"),
        ("gzip", names.MEDIA_ARROW, gzip.compress(arrow_bomb(), mtime=0), 413, "request_too_large"),
    ]
    assert http.publish(topic, {"value": 1}).status == 200
    before = _most_memory(small_server)
    for coding, media, body, status, code in bombs * 2:
        assert len(body) < MIB
        refused(post(http, topic, body, media, Content_Encoding=coding or "identity"), status, code)
    assert _most_memory(small_server) - before < 60 * MIB
    assert http.end(topic) == 1


def _most_memory(server: ServerProcess) -> int:
    status = Path(f"/proc/{server.pid}/status").read_text()
    return next(int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("VmHWM:"))


# --- lies -----------------------------------------------------------------------------------------------
@contextmanager
def others_publish(http: Http, topic: str) -> Iterator[None]:
    """Meanwhile others publish, one request after the other on a connection each, and every one is acknowledged."""
    stop = threading.Event()
    failures: list[str] = []

    def run() -> None:
        while not stop.is_set():
            reply = http.publish(topic, {"value": "other", "partition": 1})
            if reply.status != 200:
                failures.append(str(reply))
                return
            stop.wait(0.01)

    threads = [threading.Thread(target=run) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        for thread in threads:
            thread.join(30)
    assert not failures
    assert http.publish(topic, {"value": "other", "partition": 1}).status == 200


def head(topic: str, *fields: str) -> str:
    own = "".join(f"\n{field}" for field in fields)
    return (
        f"POST /v1/topics/{topic}/records?partition=0 HTTP/1.1\nHost: localhost\nContent-Type: {names.MEDIA_JSON}{own}"
    )


GOOD = b'{"records": [{"value": 1}]}'


def test_lies_about_the_length(http: Http, topic: str) -> None:
    cases = [
        (head(topic, "Content-Length: 10"), GOOD, 400),
        (head(topic, "Content-Length: 0"), b"", 400),
        (head(topic, "Content-Length: 99999999999999999999999"), GOOD, 400),
        (head(topic, "Content-Length: 2000000"), GOOD, 413),
        (head(topic, "Content-Length: -5"), GOOD, 400),
        (head(topic, "Content-Length: 5, 6"), GOOD, 400),
        (head(topic, "Content-Length: 5", "Content-Length: 6"), GOOD, 400),
        (head(topic, "Content-Length: 27", "Transfer-Encoding: chunked"), GOOD, 400),
        (head(topic, "Transfer-Encoding: chunked"), b"zz\r\n" + GOOD, 400),
        (head(topic, "Content-Length: 1000"), GOOD, 408),
        (head(topic, "Transfer-Encoding: chunked"), b"ff\r\n" + GOOD, 408),
    ]

    def got(case: tuple[str, bytes, int]) -> bytes:
        with http.connect() as connection:
            return exchange(connection, *case[:2])

    # At once: two of them end with the time that a body has.
    with others_publish(http, topic), ThreadPoolExecutor(len(cases)) as threads:
        for (request, _, status), said in zip(cases, threads.map(got, cases), strict=True):
            assert said.startswith(b"HTTP/1.1 %d " % status), (request, said)
            assert b"application/problem+json" in said, (request, said)
    assert values(http, topic) == []


def test_half_of_a_request_and_then_nothing(http: Http, topic: str) -> None:
    packed = gzip.compress(GOOD)
    whole = [
        head(topic, f"Content-Length: {len(GOOD)}").replace("\n", "\r\n").encode() + b"\r\n\r\n" + GOOD,
        head(topic, "Content-Encoding: gzip", f"Content-Length: {len(packed)}").replace("\n", "\r\n").encode()
        + b"\r\n\r\n"
        + packed,
    ]
    with others_publish(http, topic):
        for request in whole:
            for cut in random.Random(7).sample(range(1, len(request)), 20):
                with http.connect() as connection:
                    connection.sendall(request[:cut])
                    connection.shutdown(socket.SHUT_WR)
                    assert not answer(connection).startswith(b"HTTP/1.1 2")
    assert values(http, topic) == []


def test_damaged_bodies_of_every_kind(http: Http, topic: str) -> None:
    """Whatever it is: taken whole, or a problem that says where; and the server goes on."""
    rng = random.Random(11)
    sink = pa.BufferOutputStream()
    table = pa.table({"value": ["a", "b"], "key": ["k", None]})
    with pa.ipc.new_stream(sink, table.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
        writer.write_table(table)
    samples = [
        (names.MEDIA_JSON, b'{"records": [{"value": {"a": [1, "\xc3\xa9"]}, "key": "k", "headers": {"h": "x"}}]}'),
        (names.MEDIA_NDJSON, b'{"a": [1, "\xc3\xa9"]}\nnull\n"x"\n'),
        (names.MEDIA_ARROW, sink.getvalue().to_pybytes()),
    ]
    coded = [(media, body, "identity") for media, body in samples]
    coded += [(media, pack(body), coding) for media, body in samples for coding, pack in COMPRESS.items()]
    with others_publish(http, topic):
        for media, body, coding in coded:
            for _ in range(12):
                damaged = bytearray(body)
                for _ in range(rng.randrange(1, 4)):
                    damaged[rng.randrange(len(damaged))] = rng.randrange(256)
                reply = post(
                    http, topic, bytes(damaged[: rng.randrange(1, 2 * len(damaged))]), media, Content_Encoding=coding
                )
                if reply.status != 200:
                    assert reply.error_code in (
                        "malformed_body",
                        "invalid_record",
                        "invalid_request",
                        "request_too_large",
                    )
                    assert reply.error_code != "malformed_body" or "byte" in reply.json, reply
