"""Server-Sent Events of a real server, as curl and other clients see them."""

import socket
import subprocess
import threading
import time
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from http_rig import NO_REDIS, Http, exchange
from push_rig import tailing

from siltlog.infra import names
from siltlog.server_process import ServerProcess
from siltlog.testing import running_server

MIB = 1024 * 1024


@pytest.fixture
def topic(http: Http) -> str:
    name = f"tail-{uuid.uuid4().hex}"
    http.create(name, 2)
    return name


def tail(topic: str, query: str = "offset=earliest") -> str:
    return f"/v1/topics/{topic}/tail?{query}"


def values(records: list[dict[str, Any]]) -> list[str]:
    return [record["value"] for record in records]


@pytest.mark.rule("U2")
def test_the_first_event_is_an_id_alone_and_what_comes_follows(http: Http, topic: str) -> None:
    http.publish(topic, {"value": "before", "partition": 0})
    with tailing(http.url, tail(topic, "")) as stream:
        assert stream.reply.headers["content-type"].startswith(names.MEDIA_EVENTS)
        assert stream.reply.headers["x-accel-buffering"] == "no"
        assert stream.reply.headers["cache-control"] == "no-store"
        assert stream.reply.headers["silt-request-id"]
        first, second = stream.next(), stream.next()
        assert first is not None
        assert second is not None
        assert (first.retry, first.id, first.data) == (1000, None, None)
        assert (second.data, second.kind) == (None, "message")
        assert second.id
        http.publish(topic, {"value": "line\nline", "key": "k", "partition": 1, "headers": {"a": "b"}})
        [record] = stream.records(1)
        assert record == {
            "partition": 1,
            "offset": 0,
            "timestamp": record["timestamp"],
            "key": "k",
            "value": "line\nline",
            "headers": [{"key": "a", "value": "b"}],
        }
        assert stream.cursor != second.id


def test_a_resume_never_skips_and_the_header_wins_over_the_query(http: Http, topic: str) -> None:
    with tailing(http.url, tail(topic)) as stream:
        stream.next()
        stream.next()
        begun = stream.cursor
        http.publish(topic, *({"value": f"{n}", "partition": n % 2} for n in range(6)))
        assert set(values(stream.records(6))) == set("012345")
        after = stream.cursor
    assert begun
    assert after
    http.publish(topic, {"value": "last", "partition": 1})
    with tailing(http.url, tail(topic, f"cursor={begun}")) as stream:
        assert set(values(stream.records(7))) == {*"012345", "last"}
    with tailing(http.url, tail(topic), Last_Event_ID=after) as stream:
        assert values(stream.records(1)) == ["last"]
    with tailing(http.url, tail(topic, f"cursor={begun}&partitions=1"), Last_Event_ID=after) as stream:
        assert values(stream.records(1)) == ["last"]


@pytest.mark.rule("U1")
def test_every_cursor_on_the_way_goes_on_where_it_stood(http: Http, topic: str) -> None:
    """Whatever was read before a cursor, and what is read from it on, is everything."""
    http.publish(topic, *({"value": f"{n}", "partition": n % 2} for n in range(1_500)))
    seen: list[str] = []
    with tailing(http.url, tail(topic)) as stream:
        places: list[tuple[str, int]] = []
        while len(seen) < 1_500:
            event = stream.next()
            assert event is not None
            if event.kind == "record":
                seen.append(event.data["value"])
            if event.id:
                places.append((event.id, len(seen)))
    assert len(places) > 3
    assert sorted(map(int, seen)) == list(range(1_500))
    for cursor, count in places[:-1]:
        with tailing(http.url, tail(topic, f"cursor={cursor}")) as stream:
            assert {*seen[:count], *values(stream.records(1_500 - count))} == set(seen)


@pytest.mark.parametrize(
    ("query", "wanted", "ends"),
    [
        ("key=a", "024", 1),
        ("contains=4", "4", 2),
        ("partitions=1", "135", 1),
        ("partitions=0,1&key=b&contains=3", "3", 1),
        ("contains=", "012345", 2),
        ("header=kind", "014", 2),
        ("header=kind&header_value=b%3Ac&partitions=1", "1", 1),
    ],
)
def test_filters(http: Http, topic: str, query: str, wanted: str, ends: int) -> None:
    records = [{"value": f"{n}", "key": "ab"[n % 2], "partition": n % 2} for n in range(6)]
    kinds = [{"key": "kind", "value": "a"}, {"key": "kind", "value": "b:c"}]
    for record, headers in ((0, kinds[:1]), (1, kinds), (4, kinds[:1]), (5, [{"key": "other", "value": "a"}])):
        records[record]["headers"] = headers
    http.publish(topic, *records, {"value": None, "key": "tombstone", "partition": 0})
    http.publish(topic, {"value": "end 0123456789", "key": "a", "partition": 0, "headers": kinds})
    http.publish(topic, {"value": "end 0123456789", "key": "b", "partition": 1, "headers": kinds})
    with tailing(http.url, tail(topic, f"offset=earliest&{query}")) as stream:
        found: list[str] = []
        while found.count("end 0123456789") < ends:
            found += values(stream.records(1))
        assert sorted(value for value in found if len(value) == 1) == list(wanted)


def test_values_isolation_and_times(http: Http, topic: str) -> None:
    http.publish(topic, {"value": {"x": 1}, "timestamp": 631_152_001_000, "partition": 0})
    http.publish(topic, {"value": "late", "timestamp": 631_152_005_000, "partition": 0})
    with tailing(http.url, tail(topic, "offset=earliest&values=json")) as stream:
        assert [record["value"] for record in stream.records(2)] == [{"x": 1}, "late"]
    with tailing(http.url, tail(topic, "timestamp=1990-01-01T00:00:02Z&isolation=table&values=base64")) as stream:
        assert [record["value_base64"] for record in stream.records(1)] == ["bGF0ZQ=="]


@pytest.mark.parametrize(
    ("query", "code", "status"),
    [
        ("offset=7", "invalid_parameter", 400),
        ("cursor=abc", "invalid_parameter", 400),
        ("offset=latest&timestamp=0", "invalid_parameter", 400),
        ("partitions=0,0", "invalid_parameter", 400),
        ("partitions=", "invalid_parameter", 400),
        ("partitions=2", "unknown_partition", 404),
        ("unknown=1", "invalid_parameter", 400),
        ("header_value=a", "invalid_parameter", 400),
        ("values=xml", "invalid_parameter", 400),
        ("timestamp=soon", "invalid_request", 422),
        ("topic_id=another", "unknown_topic", 404),
    ],
)
def test_what_is_not_right_is_an_answer_of_http(http: Http, topic: str, query: str, code: str, status: int) -> None:
    reply = http.get(tail(topic, query), Accept=names.MEDIA_EVENTS)
    assert (reply.error_code, reply.status) == (code, status)


def test_other_refusals(http: Http, topic: str) -> None:
    assert http.get(tail("nowhere"), Accept=names.MEDIA_EVENTS).error_code == "unknown_topic"
    assert http.get(tail(topic), Accept=names.MEDIA_JSON).error_code == "not_acceptable"
    assert http.get(tail(topic), Last_Event_ID="x").error_code == "invalid_parameter"
    assert http.get(tail(topic), Origin="https://evil.example").error_code == "origin_not_allowed"
    assert http.get(tail(topic), Host="evil.example").error_code == "unknown_host"
    reply = http.call("HEAD", tail(topic))
    assert (reply.status, reply.body) == (200, b"")
    assert reply.headers["content-type"].startswith(names.MEDIA_EVENTS)


@pytest.mark.rule("U1")
def test_a_cursor_of_a_topic_that_was_made_anew_is_of_no_topic(http: Http, topic: str) -> None:
    with tailing(http.url, tail(topic)) as stream:
        stream.next()
        stream.next()
        cursor = stream.cursor
        http.call("DELETE", f"/v1/topics/{topic}")
        event = stream.next()
        assert event is not None
        assert (event.kind, event.data["error_code"]) == ("problem", "unknown_topic")
        assert stream.next() is None
    http.create(topic, 2)
    assert http.get(tail(topic, f"cursor={cursor}")).error_code == "unknown_topic"


def test_a_cursor_of_what_retention_took_is_refused(http: Http, topic: str) -> None:
    with tailing(http.url, tail(topic)) as stream:
        stream.next()
        stream.next()
        cursor = stream.cursor
    http.publish(topic, *({"value": f"{n}", "partition": 0} for n in range(5)))
    assert http.call("DELETE", f"/v1/topics/{topic}/partitions/0/records?before_offset=3").status < 300
    reply = http.get(tail(topic, f"cursor={cursor}"), Accept=names.MEDIA_EVENTS)
    assert (reply.status, reply.error_code, reply.json["log_start_offset"]) == (416, "offset_out_of_range", 3)
    with tailing(http.url, tail(topic)) as stream:
        assert values(stream.records(2)) == ["3", "4"]


def test_more_partitions_than_a_stream_takes_have_to_be_chosen(http: Http) -> None:
    name = f"wide-{uuid.uuid4().hex}"
    http.create(name, 257)
    assert "256" in http.get(tail(name)).json["detail"]
    chosen = ",".join(map(str, range(1, 257)))
    http.publish(name, {"value": "x", "partition": 256})
    with tailing(http.url, tail(name, f"offset=earliest&partitions={chosen}")) as stream:
        assert values(stream.records(1)) == ["x"]
        assert stream.cursor
        assert len(stream.cursor) <= 4096


def test_curl_shows_what_comes(http: Http, topic: str) -> None:
    command = ["curl", "-sN", "--max-time", "20", http.url + tail(topic)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as curl:
        assert curl.stdout is not None
        try:
            lines = iter(curl.stdout.readline, "")
            assert next(lines) == "retry: 1000\n"
            http.publish(topic, {"value": "hello"})
            assert any('"value":"hello"' in line for line in lines)
        finally:
            curl.terminate()


@pytest.mark.rule("U8")
def test_a_client_that_takes_nothing_is_cut_off_and_others_go_on(http: Http, topic: str) -> None:
    """The server's limit is three seconds here; what it holds for the slow one is no more than a write or two."""
    value = "x" * 60_000
    for _ in range(24):
        http.publish(topic, *({"value": value, "partition": 0} for _ in range(10)))
    before = too_slow(http, "events")
    sent = metric(http, 'silt_stream_records_total{kind="events"}')
    with http.connect() as slow:
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        slow.sendall(f"GET {tail(topic)} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        with tailing(http.url, tail(topic)) as stream:
            assert len(stream.records(240)) == 240
        deadline = time.monotonic() + 30
        while too_slow(http, "events") == before:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        # What was on its way is all there is.
        no_streams(http)
        assert metric(http, 'silt_stream_records_total{kind="events"}') - sent < 2 * 240


def no_streams(http: Http) -> None:
    """Waits for the server to hear of the end of those that were closed."""
    deadline = time.monotonic() + 60
    while metric(http, "silt_streams"):
        assert time.monotonic() < deadline
        time.sleep(0.02)


def too_slow(http: Http, kind: str) -> float:
    return metric(http, f'silt_streams_too_slow_total{{kind="{kind}"}}')


def metric(http: Http, name: str) -> float:
    text = http.get("/metrics").body.decode()
    return float(next(line for line in text.splitlines() if line.startswith(name + " ")).rpartition(" ")[2])


@pytest.fixture(scope="module")
def own_server() -> Iterator[ServerProcess]:
    """One that may be stopped and started."""
    with running_server(redis_url=NO_REDIS, flush_ms=50, connections_max=20) as server:
        yield server


@pytest.mark.slow
def test_a_tail_goes_on_over_a_restart_and_streams_end_with_the_server(own_server: ServerProcess) -> None:
    http = Http(own_server.url)
    http.create("restart", 2)
    http.publish("restart", {"value": "one"})
    with tailing(own_server.url, tail("restart")) as stream:
        assert values(stream.records(1)) == ["one"]
        stopping = threading.Thread(target=own_server.stop)
        stopping.start()
        try:
            while stream.next() is not None:
                pass
        finally:
            stopping.join()
        cursor = stream.cursor
    own_server.restart()
    http = Http(own_server.url)
    http.publish("restart", {"value": "two"})
    assert cursor
    with tailing(own_server.url, tail("restart"), Last_Event_ID=cursor) as stream:
        assert values(stream.records(1)) == ["two"]


def test_who_takes_nothing_does_not_hold_up_the_end() -> None:
    """Requests, and the end, have all the time in the world."""
    with running_server(redis_url=NO_REDIS, request_timeout_ms=600_000, drain_ms=600_000) as server:
        http = Http(server.url)
        http.create("stuck")
        for _ in range(15):
            http.publish("stuck", *({"value": "x" * 100_000} for _ in range(10)))
        with http.connect() as slow:
            slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            slow.sendall(f"GET {tail('stuck')} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
            sent = 'silt_stream_records_total{kind="events"}'
            before, now = -1.0, metric(http, sent)
            while now != before or now == 0:
                time.sleep(0.3)
                before, now = now, metric(http, sent)
            assert now < 150
            assert server.stop() == 0


@pytest.mark.rule("U14")
def test_a_crowded_server_asks_browsers_to_come_back(own_server: ServerProcess) -> None:
    http = Http(own_server.url)
    http.create("crowded")
    limit = 20
    crowd = [http.connect() for _ in range(limit)]
    try:
        for connection in crowd:
            got = exchange(connection, "GET /healthz HTTP/1.1\nHost: localhost")
            assert got.startswith(b"HTTP/1.1 200")
        with tailing(own_server.url, tail("crowded")) as stream:
            assert stream.status == 200
            event = stream.next()
            assert event is not None
            assert event.retry is not None
            assert event.retry > 0
            assert stream.next() is None
        with http.connect() as plain:
            got = exchange(plain, f"GET {tail('crowded')} HTTP/1.1\nHost: localhost")
            assert got.startswith(b"HTTP/1.1 503")
    finally:
        for connection in crowd:
            connection.close()


@pytest.mark.slow
def test_many_that_take_nothing_leave_room_for_others() -> None:
    """All of them together have the memory of all requests, and who stands still in it is ended."""
    slow_ones = 16
    limits = {"head_bytes_max": MIB, "request_bytes_max": MIB, "request_timeout_ms": 1_000}
    with running_server(redis_url=NO_REDIS, flush_ms=50, **limits) as server:
        http = Http(server.url)
        http.create("flood")
        value = "x" * 200_000
        for _ in range(15):
            http.publish("flood", *({"value": value} for _ in range(4)))
        bound = 4 * MIB
        crowd = []
        try:
            for _ in range(slow_ones):
                connection = http.connect()
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
                connection.sendall(f"GET {tail('flood')} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
                crowd.append(connection)
            deadline = time.monotonic() + 60
            while too_slow(http, "events") < slow_ones or metric(http, "silt_streams"):
                assert metric(http, "silt_in_flight_bytes") <= bound
                assert http.publish("flood", {"value": "small"}).status == 200
                assert time.monotonic() < deadline
                time.sleep(0.1)
            assert metric(http, "silt_in_flight_bytes") < bound / 10
        finally:
            for connection in crowd:
                connection.close()
        with tailing(server.url, tail("flood")) as stream:
            assert len(stream.records(60)) == 60


def test_open_streams_are_counted(http: Http, topic: str) -> None:
    no_streams(http)
    sent = metric(http, 'silt_stream_records_total{kind="events"}')
    with tailing(http.url, tail(topic)) as stream:
        http.publish(topic, {"value": "x"})
        stream.records(1)
        assert metric(http, "silt_streams") == 1
    no_streams(http)
    assert metric(http, 'silt_stream_records_total{kind="events"}') == sent + 1


@pytest.mark.rule("U3")
def test_a_topic_that_grows_is_read_whole(http: Http, topic: str) -> None:
    with tailing(http.url, tail(topic)) as stream:
        stream.next()
        stream.next()
        cursor = stream.cursor
    http.json("PATCH", f"/v1/topics/{topic}", {"partitions": 4})
    http.publish(topic, {"value": "new", "partition": 3})
    with tailing(http.url, tail(topic, f"cursor={cursor}")) as stream:
        assert values(stream.records(1)) == ["new"]


def test_one_tail_too_many_is_told_when_to_come_again() -> None:
    with running_server(redis_url=NO_REDIS, tails_max=1) as server:
        http = Http(server.url)
        http.create("watched")
        with tailing(server.url, tail("watched")) as stream:
            assert stream.next()
            handshake = {
                "Connection": "Upgrade",
                "Upgrade": "websocket",
                "Sec-WebSocket-Version": "13",
                "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
                "Sec-WebSocket-Protocol": names.SUBPROTOCOL,
            }
            for place in (tail("watched"), "/v1/topics/watched/ws"):
                refused = http.get(place, **(handshake if place.endswith("ws") else {}))
                assert (refused.status, refused.error_code, refused.headers["Retry-After"]) == (503, "overloaded", "10")
                assert "SILT_TAILS_MAX" in refused.json["detail"]
        deadline = time.monotonic() + 60
        while http.call("HEAD", tail("watched")).status != 200:
            assert time.monotonic() < deadline, "its place is free once it has left"
            time.sleep(0.02)
