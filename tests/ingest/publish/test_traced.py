"""Publishes with a span each: both ways begin and end one, and a context of strangers sends nobody the long way."""

import json
from collections.abc import Iterator

import pytest
from http_rig import NO_REDIS, Http, answer
from trace_sink import TraceSink, attributes, linked, trace_sink

from siltlog.infra import names
from siltlog.testing import running_server

TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
GOOD = f"00-{TRACE}-{PARENT}-01"
LONG_WAY = "X-Anything: else\n"


@pytest.fixture(scope="module")
def sink() -> Iterator[TraceSink]:
    with trace_sink() as sink:
        yield sink


@pytest.fixture(scope="module")
def http(sink: TraceSink) -> Iterator[Http]:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in sink.environment().items():
            patch.setenv(name, value)
        with running_server(traces="on", redis_url=NO_REDIS, flush_ms=100) as server:
            http = Http(server.url)
            http.create("t")
            http.get("/healthz", Host="localhost")
            yield http


def publish(http: Http, body: bytes, *extra: str, topic: str = "t") -> bytes:
    head = (
        f"POST /v1/topics/{topic}/records HTTP/1.1\nHost: localhost\nContent-Type: {names.MEDIA_JSON}\n"
        f"{''.join(extra)}Content-Length: {len(body)}\n\n"
    )
    with http.connect() as connection:
        connection.sendall(head.replace("\n", "\r\n").encode("latin-1") + body)
        return answer(connection)


RECORD = b'{"records":[{"value":"a"}]}'


@pytest.mark.rule("V4")
@pytest.mark.parametrize("way", ["", LONG_WAY])
@pytest.mark.parametrize(("body", "status"), [(RECORD, 200), (b'{"records":[{}]}', 422)])
def test_both_ways_tell_the_same(way: str, body: bytes, status: int, http: Http, sink: TraceSink) -> None:
    sink.spans.clear()
    reply = publish(http, body, f"traceparent: {GOOD}\n", "tracestate: a=1\n", way)
    assert reply.startswith(b"HTTP/1.1 %d" % status)
    span = sink.one("publish", lambda span: span.trace_id.hex() == TRACE)
    assert (span.trace_id.hex(), span.parent_span_id.hex()) == (TRACE, PARENT)
    told = attributes(span)
    request_id = next(line for line in reply.split(b"\r\n") if line.startswith(b"silt-request-id: "))[17:].decode()
    assert (told["http.response.status_code"], told["siltlog.request_id"]) == (status, request_id)
    assert told.get("error.type") == (None if status == 200 else "invalid_record")
    if status == 200:
        # Sampled for what it is linked to, though of its own it would hardly ever be.
        sink.one("group commit", lambda commit: linked(commit) == {span.span_id})


@pytest.mark.rule("V2")
@pytest.mark.parametrize("way", ["", LONG_WAY])
@pytest.mark.parametrize(
    "parent", ["", "x", GOOD + "-x", GOOD.upper(), "\xff" * 55, "0" * 5_000, f"{GOOD}\ntraceparent: x"]
)
def test_what_a_stranger_sends_is_no_error(parent: str, way: str, http: Http) -> None:
    assert publish(http, RECORD, f"traceparent: {parent}\n", "tracestate: =,;\xff\n", way).startswith(b"HTTP/1.1 200")


@pytest.mark.rule("V3")
def test_the_server_writes_nothing_into_records(http: Http) -> None:
    publish(http, RECORD, f"traceparent: {GOOD}\n")
    own = {"records": [{"value": "b", "headers": {"traceparent": "mine"}}]}
    publish(http, json.dumps(own).encode(), f"traceparent: {GOOD}\n")
    plain, mine = http.read("t", query="values=text")[-2:]
    assert "headers" not in plain or not plain["headers"]
    assert mine["headers"] == [{"key": "traceparent", "value": "mine"}]
