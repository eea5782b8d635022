"""WebSockets of a real server, spoken to by an independent client."""

import json
import socket
import time
import uuid
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
from http_rig import NO_REDIS, Http, answer
from push_rig import Socket, talking
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import connect

from siltlog.infra import names
from siltlog.server_process import ServerProcess
from siltlog.testing import running_server


@pytest.fixture(scope="module")
def server() -> Iterator[ServerProcess]:
    with running_server(flush_ms=50, request_timeout_ms=3_000, session_timeout_ms_max=3_000_000) as server:
        yield server


@pytest.fixture(scope="module")
def calls(server: ServerProcess) -> Http:
    return Http(server.url)


@pytest.fixture
def topic(calls: Http) -> str:
    name = f"socket-{uuid.uuid4().hex}"
    calls.create(name, 2)
    return name


def numbered(topic: str, calls: Http, count: int, partition: int | None = None) -> None:
    calls.publish(
        topic, *({"value": f"{n}", "partition": n % 2 if partition is None else partition} for n in range(count))
    )


def values(records: list[dict[str, Any]]) -> list[str]:
    return [record["value"] for record in records]


# --- a topic ----------------------------------------------------------------------------------------------
@pytest.mark.rule("U2")
def test_nothing_comes_before_credit_and_no_more_than_it(calls: Http, topic: str) -> None:
    numbered(topic, calls, 10)
    with talking(calls.url, f"/v1/topics/{topic}/ws?offset=earliest") as ws:
        assert ws.connection.subprotocol == names.SUBPROTOCOL
        assert ws.connection.response is not None
        assert ws.connection.response.headers["Silt-Request-Id"]
        with pytest.raises(TimeoutError):
            ws.connection.recv(timeout=0.2)
        ws.say("credit", records=3)
        begun = ws.hear("records")
        assert begun["records"] == []
        first = ws.records(3)
        with pytest.raises(TimeoutError):
            ws.connection.recv(timeout=0.2)
        ws.say("credit", records=1_000)
        ws.say("credit", records=1_000)
        assert sorted(values(first + ws.records(7))) == list("0123456789")
        numbered(topic, calls, 1)
        assert values(ws.records(1)) == ["0"]
    with talking(calls.url, f"/v1/topics/{topic}/ws?cursor={begun['cursor']}") as ws:
        ws.say("credit", records=11)
        assert len(ws.records(11)) == 11


@pytest.mark.rule("U4")
def test_a_cursor_goes_on_within_what_a_filter_left(calls: Http, topic: str) -> None:
    """Also where the credit ended amid the records that were looked at."""
    calls.publish(topic, *({"value": f"{n}", "key": "ab"[n % 2], "partition": n % 2} for n in range(40)))
    got: list[str] = []
    query = "offset=earliest"
    while len(got) < 20:
        with talking(calls.url, f"/v1/topics/{topic}/ws?{query}&key=a") as ws:
            ws.say("credit", records=3)
            ws.hear("records")
            message = ws.hear("records")
            got += values(message["records"])
            query = f"cursor={message['cursor']}"
    assert got == [f"{n}" for n in range(0, 40, 2)]


@pytest.mark.parametrize(
    ("path", "status", "code"),
    [
        ("/v1/topics/nowhere/ws", 404, "unknown_topic"),
        ("/v1/topics/{topic}/ws?cursor=x", 400, "invalid_parameter"),
        ("/v1/topics/{topic}/ws?offset=3", 400, "invalid_parameter"),
        ("/v1/topics/{topic}/ws?group=g", 400, "invalid_parameter"),
        ("/v1/groups/g/ws", 400, "invalid_parameter"),
        ("/v1/groups/g/ws?topics=nowhere", 404, "unknown_topic"),
        ("/v1/groups/g/ws?topics={topic}&member=%20", 400, "invalid_parameter"),
        ("/v1/groups/g/ws?topics={topic}&max_attempts=0", 400, "invalid_parameter"),
        ("/v1/groups/%24/ws?topics={topic}", 400, "invalid_parameter"),
    ],
)
def test_a_handshake_that_is_not_right_is_answered_in_http(
    calls: Http, topic: str, path: str, status: int, code: str
) -> None:
    with pytest.raises(InvalidStatus) as caught, talking(calls.url, path.replace("{topic}", topic)):
        pass
    assert caught.value.response.status_code == status
    assert json.loads(caught.value.response.body)["error_code"] == code


def handshake(http: Http, target: str, **fields: str) -> bytes:
    head = {
        "Host": "localhost",
        "Connection": "Upgrade",
        "Upgrade": "websocket",
        "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
        "Sec-WebSocket-Version": "13",
    } | {name.replace("_", "-"): value for name, value in fields.items()}
    lines = "".join(f"{name}: {value}\r\n" for name, value in head.items() if value)
    with http.connect() as connection:
        connection.sendall(f"GET {target} HTTP/1.1\r\n{lines}\r\n".encode())
        got = connection.recv(65_536)
        if b"101" not in got.partition(b"\r\n")[0]:
            while part := connection.recv(65_536):
                got += part
    return got


@pytest.mark.parametrize(
    ("fields", "status"),
    [
        ({}, b"101"),
        ({"Sec_WebSocket_Protocol": "other, silt.v1"}, b"101"),
        ({"Sec_WebSocket_Protocol": "other"}, b"400"),
        ({"Sec_WebSocket_Key": "short"}, b"400"),
        ({"Sec_WebSocket_Key": ""}, b"400"),
        ({"Sec_WebSocket_Version": "8"}, b"400"),
        ({"Origin": "https://evil.example"}, b"403"),
        ({"Host": "evil.example"}, b"421"),
        ({"Origin": "https://app.example"}, b"101"),
    ],
)
def test_handshakes(http: Http, fields: dict[str, str], status: bytes) -> None:
    name = f"handshake-{uuid.uuid4().hex}"
    http.create(name)
    got = handshake(http, f"/v1/topics/{name}/ws", **fields)
    assert got.split(b" ")[1] == status, got
    head = got.lower()
    assert head.count(b"\r\ndate:") == 1
    assert b"\r\nsilt-request-id:" in head
    if status == b"101":
        assert b"\r\nsec-websocket-accept: s3pplmbitxaq9kygzzhzrbk+xoo=" in head
        assert b"transfer-encoding" not in head
        assert b"connection: close" not in head
    else:
        assert names.MEDIA_PROBLEM.encode() in head
        # What comes behind a refused offer was meant for a WebSocket.
        assert b"\r\nconnection: close" in head


@pytest.mark.parametrize("path", ["/v1/topics?limit=1", "/v1/topics/{topic}/tail/ws", "/v1/topics/{topic}"])
def test_elsewhere_an_offer_is_declined_and_the_request_answered(http: Http, path: str) -> None:
    name = f"declined-{uuid.uuid4().hex}"
    http.create(name)
    with http.connect() as connection:
        head = "Host: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
        request = f"GET {path.replace('{topic}', name)} HTTP/1.1\r\n{head}\r\n".encode()
        # The connection goes on in HTTP.
        for _ in range(2):
            connection.sendall(request)
            assert answer(connection).split(b" ")[1] in (b"200", b"404")


def test_a_get_without_an_upgrade_says_what_it_is(calls: Http, topic: str) -> None:
    reply = calls.get(f"/v1/topics/{topic}/ws")
    assert reply.error_code == "invalid_parameter"
    assert "WebSocket" in reply.json["detail"]


def test_frames_that_come_with_the_handshake_are_heard(calls: Http, topic: str) -> None:
    numbered(topic, calls, 2)
    text = b'{"type":"credit","records":2}'
    frame = bytes((0x81, 0x80 | len(text))) + bytes(4) + text
    with calls.connect() as connection:
        head = (
            f"GET /v1/topics/{topic}/ws?offset=earliest HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\n"
            "Upgrade: websocket\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
        )
        connection.sendall(head.encode() + frame)
        got = b""
        while got.count(b'"offset"') < 2:
            part = connection.recv(65_536)
            assert part, got
            got += part


def test_a_topic_that_ends_is_said(calls: Http, topic: str) -> None:
    with talking(calls.url, f"/v1/topics/{topic}/ws") as ws:
        ws.say("credit", records=1)
        ws.hear("records")
        calls.call("DELETE", f"/v1/topics/{topic}")
        code, said = ws.closed()
    assert code == 1008
    assert said[-1]["error_code"] == "unknown_topic"


@pytest.mark.rule("U8")
def test_a_client_that_gives_credit_and_takes_nothing_is_told(calls: Http, topic: str) -> None:
    value = "x" * 60_000
    for _ in range(20):
        calls.publish(topic, *({"value": value, "partition": 0} for _ in range(10)))
    parts = calls.connect().getpeername()
    slow = socket.socket()
    slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    slow.connect(parts)
    target = calls.url.replace("http", "ws") + f"/v1/topics/{topic}/ws?offset=earliest"
    with connect(target, sock=slow, max_queue=1, max_size=None, subprotocols=[names.SUBPROTOCOL]) as connection:
        ws = Socket(connection)
        ws.say("credit", records=1_000)
        deadline = time.monotonic() + 30
        while b'too_slow_total{kind="topic_socket"} 0.0' in calls.get("/metrics").body:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        # It still takes what there was, and then hears why there is no more.
        heard = []
        try:
            for message in connection:
                heard.append(json.loads(message))
        except ConnectionClosed:
            pass
        assert heard[-1]["type"] == "problem"
        assert heard[-1]["error_code"] == "overloaded"
        assert connection.protocol.close_rcvd is not None
        assert connection.protocol.close_rcvd.code == 1013
        # Bounded: what was on its way is not what there is.
        assert sum(len(message.get("records", ())) for message in heard) < 200


# --- a group ----------------------------------------------------------------------------------------------
def group_path(group: str, topic: str, rest: str = "") -> str:
    return f"/v1/groups/{group}/ws?topics={topic}{rest}"


@pytest.fixture
def group() -> str:
    return f"group-{uuid.uuid4().hex}"


def committed(calls: Http, group: str) -> dict[int, int]:
    return {row["partition"]: row["offset"] for row in calls.get(f"/v1/groups/{group}/offsets").json["offsets"]}


def members(calls: Http, group: str) -> list[str]:
    return [member["member_id"] for member in calls.get(f"/v1/groups/{group}").json["members"]]


def test_a_member_reads_and_commits_and_leaves(calls: Http, topic: str, group: str) -> None:
    numbered(topic, calls, 10)
    with talking(calls.url, group_path(group, topic)) as ws:
        assigned = ws.hear("assigned")
        assert [at["partition"] for at in assigned["partitions"]] == [0, 1]
        assert {at["offset"] for at in assigned["partitions"]} == {0}
        assert members(calls, group) == [assigned["member_id"]]
        ws.say("credit", records=100)
        records = ws.records(10)
        assert {record["topic"] for record in records} == {topic}
        ws.say("commit", offsets=[{"topic": topic, "partition": 1, "offset": 4, "metadata": "m"}])
        assert ws.hear("committed")["offsets"] == [{"topic": topic, "partition": 1, "offset": 4}]
    until(lambda: members(calls, group) == [])
    assert committed(calls, group)[1] == 4
    with talking(calls.url, group_path(group, topic)) as ws:
        assert {at["partition"]: at["offset"] for at in ws.hear("assigned")["partitions"]} == {0: 0, 1: 4}
        ws.say("credit", records=100)
        assert len(ws.records(6)) == 6


def until(holds: Any) -> None:
    deadline = time.monotonic() + 30
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_partition_moves_once_it_is_released(calls: Http, topic: str, group: str) -> None:
    numbered(topic, calls, 4)
    with talking(calls.url, group_path(group, topic)) as first:
        first.hear("assigned")
        with talking(calls.url, group_path(group, topic)) as second:
            assert second.hear("assigned")["partitions"] == []
            [revoked] = first.hear("revoked")["partitions"]
            second.say("credit", records=100)
            # It is still the first one's, who has not let go.
            with pytest.raises(TimeoutError):
                second.connection.recv(timeout=0.3)
            first.say("commit", offsets=[{"topic": topic, "partition": revoked["partition"], "offset": 1}])
            first.hear("committed")
            first.say("release", partitions=[{"topic": topic, "partition": revoked["partition"]}])
            [assigned] = second.hear("assigned")["partitions"]
            assert (assigned["partition"], assigned["offset"]) == (revoked["partition"], 1)
            assert [record["offset"] for record in second.records(1)] == [1]
            # What moved cannot be committed by who had it.
            first.say("commit", offsets=[{"topic": topic, "partition": revoked["partition"], "offset": 2}])
            said = first.hear("problem")
            assert said["error_code"] == "fenced_member"
            assert [at["partition"] for at in said["partitions"]] == [revoked["partition"]]
            first.say("credit", records=100)
            assert len(first.records(2)) == 2
        # The second has left: what it had comes back.
        assert [at["partition"] for at in first.until("assigned")["partitions"]] == [revoked["partition"]]


@pytest.mark.rule("U13")
def test_a_record_that_fails_comes_again_and_then_is_a_dead_letter(calls: Http, topic: str, group: str) -> None:
    numbered(topic, calls, 4, partition=0)
    with talking(calls.url, group_path(group, topic, "&max_attempts=2")) as ws:
        ws.hear("assigned")
        ws.say("credit", records=4)
        assert values(ws.records(4)) == list("0123")
        ws.say("commit", offsets=[{"topic": topic, "partition": 0, "offset": 1}])
        ws.hear("committed")
        ws.say("credit", records=100)
        ws.say("nack", offsets=[{"topic": topic, "partition": 0, "offset": 1}], error="no such thing")
        assert values(ws.records(3)) == list("123")
        ws.say("nack", offsets=[{"topic": topic, "partition": 0, "offset": 1}], error="no such thing")
        told = ws.hear("committed")
        assert told["offsets"] == [{"topic": topic, "partition": 0, "offset": 2}]
        assert told["dead_lettered"] is True
        assert values(ws.records(2)) == list("23")
    assert committed(calls, group)[0] == 2
    [dead] = calls.read(f"{topic}.dlq", query="values=text")
    assert dead["value"] == "1"
    headers = {header["key"]: header["value"] for header in dead["headers"]}
    assert headers["silt.error"] == "no such thing"
    assert headers["silt.attempts"] == "2"
    assert headers["silt.group"] == group


@pytest.mark.rule("U13")
def test_of_several_that_fail_the_first_one_comes_first(calls: Http, topic: str, group: str) -> None:
    numbered(topic, calls, 4, partition=0)
    with talking(calls.url, group_path(group, topic, "&max_attempts=2")) as ws:
        ws.hear("assigned")
        ws.say("credit", records=1_000)
        ws.records(4)
        both = [{"topic": topic, "partition": 0, "offset": offset} for offset in (1, 2)]
        ws.say("nack", offsets=both, error="both")
        assert values(ws.records(3)) == list("123")
        # The later one may not pass the earlier: that has to be done with before.
        ws.say("nack", offsets=both[1:], error="again")
        assert ws.hear("problem")["error_code"] == "records_open"
        ws.say("nack", offsets=both[:1], error="again")
        told = ws.until("committed")
        assert (told["offsets"][0]["offset"], told["dead_lettered"]) == (2, True)
        while values(ws.hear("records")["records"])[-1] != "3":
            pass
    assert committed(calls, group)[0] == 2


def test_a_topic_that_ends_is_lost_and_the_others_go_on(calls: Http, topic: str, group: str) -> None:
    other = f"{topic}-other"
    calls.create(other, 1)
    with talking(calls.url, group_path(group, f"{topic},{other}")) as ws:
        assert len(ws.hear("assigned")["partitions"]) == 3
        ws.say("credit", records=100)
        calls.call("DELETE", f"/v1/topics/{other}")
        assert [at["topic"] for at in ws.hear("lost", "revoked")["partitions"]] == [other]
        numbered(topic, calls, 4)
        assert sorted(values(ws.records(4))) == list("0123")
        ws.say("commit", offsets=[{"topic": topic, "partition": 0, "offset": 2}])
        ws.until("committed")


@pytest.mark.rule("U12")
@pytest.mark.parametrize("kind", ["commit", "nack"])
def test_what_is_said_late_of_a_deleted_topic_is_not_taken_for_its_successor(
    calls: Http, topic: str, group: str, kind: str
) -> None:
    numbered(topic, calls, 5, 0)
    with talking(calls.url, group_path(group, topic)) as ws:
        before = ws.hear("assigned")["partitions"][0]
        ws.say("credit", records=5)
        ws.records(5)
        calls.call("DELETE", f"/v1/topics/{topic}")
        calls.create(topic, 2)
        numbered(topic, calls, 9, 0)
        after = ws.until("assigned")["partitions"]
        while not after:
            after = ws.until("assigned")["partitions"]
        said = {"topic": topic, "partition": 0, "offset": 4, "generation": before["generation"]}
        ws.say(kind, offsets=[said])
        assert ws.until("problem")["partitions"] == [{"topic": topic, "partition": 0}]
        assert committed(calls, group)[0] == 0
        ws.say("commit", offsets=[said | {"generation": after[0]["generation"]}])
        ws.until("committed")
    assert committed(calls, group)[0] == 4


@pytest.mark.rule("U12")
@pytest.mark.parametrize("comes_back", [False, True])
def test_a_commit_that_names_a_deleted_topic_too_is_made_for_the_others(
    calls: Http, topic: str, group: str, comes_back: bool
) -> None:
    other = f"{topic}-other"
    calls.create(other, 1)
    numbered(other, calls, 4, 0)
    numbered(topic, calls, 4)
    with talking(calls.url, group_path(group, f"{topic},{other}")) as ws:
        assigned = ws.hear("assigned")
        assert len(assigned["partitions"]) == 3
        ws.say("credit", records=8)
        ws.records(8)
        calls.call("DELETE", f"/v1/topics/{other}")
        if comes_back:
            calls.create(other, 1)
        gone = {"topic": other, "partition": 0}
        said_of = gone | {"generation": assigned["generation"]}
        ws.say("commit", offsets=[said_of | {"offset": 4}, {"topic": topic, "partition": 0, "offset": 2}])
        assert ws.until("committed")["offsets"] == [{"topic": topic, "partition": 0, "offset": 2}]
        said = ws.until("problem")
        assert (said["error_code"], said["partitions"]) == ("fenced_member", [gone])
        ws.say("nack", offsets=[said_of | {"offset": 1}], error="late as well")
        assert ws.until("problem")["partitions"] == [gone]
        ws.say("commit", offsets=[{"topic": topic, "partition": 1, "offset": 1}])
        ws.until("committed")
    rows = calls.get(f"/v1/groups/{group}/offsets").json["offsets"]
    assert {(row["topic"], row["partition"]): row["offset"] for row in rows if row["offset"]} == {
        (topic, 0): 2,
        (topic, 1): 1,
    }


@pytest.mark.rule("U15")
@pytest.mark.parametrize("kind", ["commit", "nack"])
def test_an_offset_that_cannot_be_is_an_error_of_its_message_alone(
    calls: Http, topic: str, group: str, kind: str
) -> None:
    numbered(topic, calls, 6, 0)
    with talking(calls.url, group_path(group, topic)) as ws:
        ws.hear("assigned")
        ws.say("credit", records=6)
        ws.records(6)
        there = {"topic": topic, "partition": 0}
        beside = [{"topic": topic, "partition": 1, "offset": 0}] if kind == "commit" else []
        ws.say(kind, offsets=[*beside, there | {"offset": 7}])
        said = ws.until("problem")
        wanted = {"commit": "invalid_request", "nack": "offset_out_of_range"}
        assert (said["error_code"], said["partition"], said["high_watermark"]) == (wanted[kind], 0, 6)
        if kind == "commit":
            ws.say("commit", offsets=[there | {"offset": 1}, there | {"offset": 2}])
            assert ws.until("problem")["error_code"] == "invalid_request"
        assert committed(calls, group)[0] == 0
        ws.say("commit", offsets=[there | {"offset": 6}])
        ws.until("committed")
    assert committed(calls, group)[0] == 6


@pytest.mark.parametrize(("policy", "first"), [("earliest", 6), ("latest", 11)])
def test_what_retention_took_is_passed_over_as_the_group_says(
    calls: Http, topic: str, group: str, policy: str, first: int
) -> None:
    numbered(topic, calls, 10, partition=0)
    calls.json("PUT", f"/v1/groups/{group}/offsets", {"offsets": [{"topic": topic, "partition": 0, "offset": 2}]})
    with talking(calls.url, group_path(group, topic, f"&auto_offset_reset={policy}")) as ws:
        ws.hear("assigned")
        assert calls.call("DELETE", f"/v1/topics/{topic}/partitions/0/records?before_offset=6").status < 300
        numbered(topic, calls, 1, partition=0)
        ws.say("credit", records=1)
        heard: list[dict[str, Any]] = []
        while not heard:
            numbered(topic, calls, 1, partition=0)
            with suppress(TimeoutError):
                heard = json.loads(ws.connection.recv(timeout=0.2))["records"]
        assert heard[0]["offset"] == first if policy == "earliest" else heard[0]["offset"] >= first


@pytest.mark.rule("U11")
def test_a_member_whose_connection_broke_comes_back_to_what_it_had(calls: Http, topic: str, group: str) -> None:
    numbered(topic, calls, 4)
    with talking(calls.url, group_path(group, topic)) as ws:
        member = ws.hear("assigned")["member_id"]
        ws.say("credit", records=10)
        ws.records(4)
        ws.say("commit", offsets=[{"topic": topic, "partition": 0, "offset": 2}])
        ws.hear("committed")
        ws.connection.socket.shutdown(socket.SHUT_RDWR)
    with talking(calls.url, group_path(group, topic, f"&member={member}")) as ws:
        assigned = ws.hear("assigned")
        assert assigned["member_id"] == member
        assert {at["partition"]: at["offset"] for at in assigned["partitions"]} == {0: 2, 1: 0}
        assert members(calls, group) == [member]
        # From another connection: this one is given up, and nothing moves.
        with talking(calls.url, group_path(group, topic, f"&member={member}")) as again:
            assert len(again.hear("assigned")["partitions"]) == 2
            code, said = ws.closed()
            assert (code, said[-1]["error_code"]) == (1008, "fenced_member")
            again.say("credit", records=10)
            assert len(again.records(2)) == 2
    until(lambda: members(calls, group) == [])
    with talking(calls.url, group_path(group, topic, f"&member={member}")) as ws:
        code, said = ws.closed()
        assert code == 1008
        assert [message["type"] for message in said] == ["lost", "problem"]
        assert said[-1]["error_code"] == "fenced_member"


def test_a_static_member_leaves_nothing_when_it_closes(calls: Http, topic: str, group: str) -> None:
    path = group_path(group, topic, "&instance_id=one")
    with talking(calls.url, path) as ws:
        first = ws.hear("assigned")
    assert members(calls, group) == [first["member_id"]]
    with talking(calls.url, path) as ws:
        second = ws.hear("assigned")
        assert len(second["partitions"]) == 2
        assert second["member_id"] != first["member_id"]
        with talking(calls.url, path) as again:
            assert len(again.hear("assigned")["partitions"]) == 2
            code, said = ws.closed()
            assert (code, [message["type"] for message in said]) == (1008, ["lost", "problem"])


def test_a_session_timeout_that_the_server_does_not_give_is_refused(calls: Http, topic: str, group: str) -> None:
    with talking(calls.url, group_path(group, topic, "&session_timeout_ms=3000001")) as ws:
        code, said = ws.closed()
    assert (code, said[-1]["error_code"]) == (1008, "invalid_request")
    assert "this server takes 100 to 3000000 (SILT_SESSION_TIMEOUT_MS_MIN" in said[-1]["detail"]


@pytest.mark.slow
def test_a_lost_connection_has_its_session_timeout(calls: Http, topic: str, group: str) -> None:
    with talking(calls.url, group_path(group, topic, "&session_timeout_ms=6000")) as ws:
        ws.hear("assigned")
        # Longer than its session: the connection is its heartbeat.
        time.sleep(7.5)
        assert len(members(calls, group)) == 1
        ws.connection.socket.shutdown(socket.SHUT_RDWR)
    until(lambda: members(calls, group) == [])


@pytest.mark.rule("U5")
def test_the_end_of_the_server_is_said_and_the_cursor_goes_on() -> None:
    with running_server(flush_ms=50, redis_url=NO_REDIS) as server:
        http = Http(server.url)
        http.create("end", 1)
        http.publish("end", {"value": "first"})
        with talking(server.url, "/v1/topics/end/ws?offset=earliest&contains=f") as ws:
            ws.say("credit", records=10)
            ws.records(1)
            http.publish("end", {"value": "passed over"}, {"value": "x"})
            server.stop()
            code, said = ws.closed()
        assert code == 1001
        server.start()
        http = Http(server.url)
        http.publish("end", {"value": "for later"})
        with talking(server.url, f"/v1/topics/end/ws?cursor={said[-1]['cursor']}") as ws:
            ws.say("credit", records=10)
            assert ws.records(1)[0]["offset"] == 3
        # Without Redis a member is told when to come back.
        with talking(server.url, group_path("g", "end")) as ws:
            code, said = ws.closed()
            assert (code, said[-1]["error_code"]) == (1013, "coordinator_unavailable")
