"""Publishing over HTTP, against a real server: every body, every refusal, every promise of an acknowledgement."""

import base64
import json
import uuid
from typing import Any

import pyarrow as pa
import pytest
from http_rig import NO_REDIS, Http, Reply, answer, exchange

from siltlog.infra import names
from siltlog.infra.arrow.partitioner import partition_of
from siltlog.testing import running_server

OCTETS = names.MEDIA_BYTES


@pytest.fixture
def topic(http: Http) -> str:
    """A topic of two partitions."""
    name = f"publish-{uuid.uuid4()}"
    http.create(name, 2)
    return name


def b64(content: bytes) -> str:
    return base64.b64encode(content).decode()


def contents(records: list[dict[str, Any]]) -> list[bytes | None]:
    return [_decoded(record, "value") for record in records]


def _decoded(record: dict[str, Any], name: str) -> bytes | None:
    if name + "_base64" in record:
        return base64.b64decode(record[name + "_base64"])
    text: str | None = record[name]
    return None if text is None else text.encode()


def refused(reply: Reply, status: int, code: str, **members: Any) -> str:
    """Checks the problem; its detail."""
    document = reply.json
    assert (reply.status, reply.error_code) == (status, code), document
    assert document["request_id"] == reply.headers["silt-request-id"]
    assert (document["status"], document["type"]) == (status, f"/errors/{code}")
    assert {name: document[name] for name in members} == members
    detail: str = document["detail"]
    return detail


# --- JSON -------------------------------------------------------------------------------------------------
def test_a_reply_says_where_each_record_is(http: Http, topic: str) -> None:
    keys = [f"key {i}" for i in range(40)]
    reply = http.publish(topic, *({"key": key, "value": i} for i, key in enumerate(keys)))
    assert reply.status == 200
    document = reply.json
    assert (document["topic"], document["acks"]) == (topic, "wal")
    assert [part["partition"] for part in document["partitions"]] == [0, 1]
    assert [partition for partition, _ in document["records"]] == [partition_of(key.encode(), 2) for key in keys]
    for part in document["partitions"]:
        offsets = [offset for partition, offset in document["records"] if partition == part["partition"]]
        assert offsets == list(range(part["first_offset"], part["last_offset"] + 1))
        assert (part["count"], part["duplicate"]) == (len(offsets), False)
        assert contents(http.read(topic, part["partition"])) == [
            str(i).encode() for i, (partition, _) in enumerate(document["records"]) if partition == part["partition"]
        ]


def test_every_member_of_a_record(http: Http, topic: str) -> None:
    records = [
        {"value": "text é", "partition": 1},
        {"value": {"b": 1.0, "a": [None, "é"]}, "partition": 1},
        {"value_base64": b64(b"\xff\0"), "key_base64": b64(b"\0k"), "partition": 1},
        {"value": None, "key": "gone", "partition": 1},
        {"value": "", "key": "", "headers": {"a": "é", "b": None}, "partition": 1},
        {
            "value": 1,
            "headers": [{"key": "a", "value": "1"}, {"key": "a", "value_base64": b64(b"\xff")}],
            "partition": 1,
        },
        {"value": 1, "headers": [], "timestamp": "2026-11-21T07:36:00.123456+02:00", "partition": 1},
        {"value": 1, "timestamp": 631_152_001_000, "topic": "another", "offset": 99, "partition": 1},
    ]
    assert http.publish(topic, *records).status == 200
    found = http.read(topic, 1)
    assert contents(found) == [
        "text é".encode(),
        json.dumps(records[1]["value"]).encode(),
        b"\xff\0",
        None,
        b"",
        b"1",
        b"1",
        b"1",
    ]
    assert [_decoded(record, "key") for record in found] == [None, None, b"\0k", b"gone", b"", None, None, None]
    headers = [[(header["key"], _decoded(header, "value")) for header in record["headers"]] for record in found]
    assert headers[4:7] == [[("a", "é".encode()), ("b", None)], [("a", b"1"), ("a", b"\xff")], []]
    assert [record["timestamp"] for record in found[6:]] == [
        "2026-11-21T05:36:00.123456Z",
        "1990-01-01T00:00:01.000000Z",
    ]


def test_what_was_read_can_be_published_again(http: Http, topic: str) -> None:
    original = [{"value": "é", "key": "k", "headers": {"a": "b"}}, {"value_base64": b64(b"\xff")}, {"value": {"a": 1}}]
    http.publish(topic, *original, query="?partition=0")
    for values in ("text", "base64", "json"):
        again = http.read(topic, 0, f"values={values}")[:3]
        for record in again:
            record["partition"] = 1
        assert http.publish(topic, *again).status == 200
    stored = contents(http.read(topic, 0))
    assert contents(http.read(topic, 1)) == stored * 3


def test_keyless_records_of_a_request_stay_together(http: Http, topic: str) -> None:
    for _ in range(4):
        records = http.publish(topic, *({"value": i} for i in range(10))).json["records"]
        assert len({partition for partition, _ in records}) == 1


@pytest.mark.parametrize(
    ("records", "status", "code", "index"),
    [
        ([{"value": 1}, {"value": None}], 422, "invalid_record", 1),
        ([{"value": 1}, {"value": 1, "partition": 2}], 404, "unknown_partition", 1),
        ([{"value": 1}, {"value": "x" * 100_001}], 413, "record_too_large", 1),
        ([{"value": 1}, {"value": 1, "timestamp": 99_999_999_999_999}], 422, "invalid_record", 1),
        ([{"value": 1}] * 40 + [{"value": None}], 422, "invalid_record", 40),
        ([{"value": 1}, {"value": 1, "sequence": 0}], 422, "invalid_record", 0),
    ],
)
def test_one_bad_record_refuses_all(
    http: Http, topic: str, records: list[dict[str, Any]], status: int, code: str, index: int
) -> None:
    refused(http.publish(topic, *records), status, code, index=index)
    assert http.end(topic) == 0


def test_a_body_that_is_no_json(http: Http, topic: str) -> None:
    body = b'{"records": [{"value": 1}, {"value": 01}]}'
    reply = http.call("POST", f"/v1/topics/{topic}/records", body, Content_Type="application/json; charset=utf-8")
    assert "byte 38" in refused(reply, 400, "malformed_body", byte=38, retryable="no")
    refused(http.json("POST", f"/v1/topics/{topic}/records", {"record": []}), 422, "invalid_request")
    assert http.end(topic) == 0


# --- one record -------------------------------------------------------------------------------------------
def test_one_blob(http: Http, topic: str) -> None:
    path = f"/v1/topics/{topic}/records"
    reply = http.call(
        "POST",
        path + "?key=a%20b%2F%C3%A9&partition=1&timestamp=1990-01-01T00:00:01Z",
        b"\0\xff",
        Content_Type=OCTETS,
        Silt_Header_Content_Type="image/png",
    )
    assert (reply.status, reply.json["records"]) == (200, [[1, 0]])
    assert http.call("POST", path + "?key_base64=AP8%3D&partition=1", b"", Content_Type=OCTETS).status == 200
    first, second = http.read(topic, 1)
    assert (_decoded(first, "value"), _decoded(first, "key")) == (b"\0\xff", "a b/é".encode())
    assert [(h["key"], _decoded(h, "value")) for h in first["headers"]] == [("content-type", b"image/png")]
    assert first["timestamp"] == "1990-01-01T00:00:01.000000Z"
    assert (_decoded(second, "value"), _decoded(second, "key")) == (b"", b"\0\xff"), "empty is no tombstone"


def test_headers_of_a_blob_that_are_given_twice_are_kept(http: Http, topic: str) -> None:
    head = (
        f"POST /v1/topics/{topic}/records?partition=0 HTTP/1.1\nHost: localhost\nContent-Type: {OCTETS}\n"
        "Silt-Header-A: 1\nsilt-header-a: 2\nContent-Length: 1"
    )
    with http.connect() as connection:
        assert exchange(connection, head, b"x").startswith(b"HTTP/1.1 200")
    [record] = http.read(topic)
    assert [(h["key"], _decoded(h, "value")) for h in record["headers"]] == [("a", b"1"), ("a", b"2")]


@pytest.mark.parametrize(
    ("query", "status", "code"),
    [
        ("key=a&key_base64=YQ==", 400, "invalid_parameter"),
        ("key_base64=a", 400, "invalid_parameter"),
        ("key=%FF", 400, "invalid_parameter"),
        ("timestamp=yesterday", 422, "invalid_request"),
        ("partition=2", 404, "unknown_partition"),
        ("partition=-1", 400, "invalid_parameter"),
    ],
)
def test_a_blob_whose_query_is_wrong(http: Http, topic: str, query: str, status: int, code: str) -> None:
    reply = http.call("POST", f"/v1/topics/{topic}/records?{query}", b"x", Content_Type=OCTETS)
    refused(reply, status, code)
    assert http.end(topic) == 0


# --- Arrow ------------------------------------------------------------------------------------------------
def test_arrow(http: Http, topic: str) -> None:
    table = pa.table({"value": [f"v{i}" for i in range(500)], "key": [f"k{i % 9}" for i in range(500)]})
    reply = http.arrow(topic, table)
    assert reply.status == 200
    assert "records" not in reply.json
    assert sum(part["count"] for part in reply.json["partitions"]) == 500
    found = [(record["key"], record["value"]) for p in (0, 1) for record in http.read(topic, p, "values=text")]
    assert sorted(found) == sorted(zip(table["key"].to_pylist(), table["value"].to_pylist(), strict=True))
    assert all(partition_of(r["key"].encode(), 2) == p for p in (0, 1) for r in http.read(topic, p, "values=text"))


def test_arrow_that_is_wrong(http: Http, topic: str) -> None:
    table = pa.table({"value": ["a", "b"], "key": [None, None], "partition": [0, 5]})
    refused(http.arrow(topic, table), 404, "unknown_partition", index=1)
    refused(http.arrow(topic, pa.table({"v": ["a"]})), 422, "invalid_request")
    body = http.call("POST", f"/v1/topics/{topic}/records", b"no arrow", Content_Type=names.MEDIA_ARROW)
    refused(body, 400, "malformed_body", byte=0)
    bomb = pa.BufferOutputStream()
    column = pa.table({"value": [bytes(20_000_000)]})
    with pa.ipc.new_stream(bomb, column.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
        writer.write_table(column)
    reply = http.call(
        "POST", f"/v1/topics/{topic}/records", bomb.getvalue().to_pybytes(), Content_Type=names.MEDIA_ARROW
    )
    refused(reply, 413, "request_too_large", limit=1_048_576)
    assert http.end(topic) == 0


# --- what is refused before the body is read --------------------------------------------------------------
@pytest.mark.parametrize("media", ["", "application/x-www-form-urlencoded", "text/plain", "application/jsonl"])
def test_other_media(http: Http, topic: str, media: str) -> None:
    headers = {"Content_Type": media} if media else {}
    reply = http.call("POST", f"/v1/topics/{topic}/records", b"{}", **headers)
    detail = refused(reply, 415, "unsupported_media_type")
    assert names.MEDIA_JSON in detail
    if media in ("", "application/x-www-form-urlencoded"):
        assert "-H 'Content-Type: application/json'" in detail


def test_what_is_not_offered_is_refused(http: Http, topic: str) -> None:
    record = {"value": 1}
    refused(http.publish(topic, record, Content_Encoding="br"), 415, "unsupported_encoding")
    assert http.publish(topic, record, Content_Encoding="identity").status == 200
    refused(http.publish(topic, record, query="?acks=object"), 422, "unsupported_acks")
    for query in ("acks=all", "acks=", "timeout_ms=0", "timeout_ms=60001", "key=a", "partition=x", "lines=record"):
        name = query.partition("=")[0]
        refused(http.publish(topic, record, query=f"?{query}"), 400, "invalid_parameter", parameter=name)
    refused(http.publish("absent", record), 404, "unknown_topic", topic="absent")
    refused(http.publish("a%2Fb", record), 404, "not_found")
    assert http.end(topic) == 1


@pytest.mark.parametrize("chunked", [False, True])
def test_a_body_that_is_too_large(http: Http, topic: str, chunked: bool) -> None:
    body = b'{"records": [{"value": "' + b"x" * 1_100_000 + b'"}]}'
    sent = (body[i : i + 50_000] for i in range(0, len(body), 50_000)) if chunked else body
    reply = http.call("POST", f"/v1/topics/{topic}/records", sent, Content_Type=names.MEDIA_JSON)
    assert "1048576" in refused(reply, 413, "request_too_large", limit=1_048_576)
    assert http.publish(topic, {"value": 1}).status == 200


def begun(topic: str, length: int = 100) -> str:
    head = f"POST /v1/topics/{topic}/records HTTP/1.1\nHost: localhost\nContent-Type: {names.MEDIA_JSON}\n"
    return head + f"Content-Length: {length}"


def test_half_a_body_has_no_effect(http: Http, topic: str) -> None:
    for _ in range(3):
        with http.connect() as connection:
            connection.sendall(begun(topic).replace("\n", "\r\n").encode() + b'\r\n\r\n{"records": [{"value": 1}')
    assert http.publish(topic, {"value": 1}).json["records"][0][1] == 0
    assert http.end(topic) == 1


def test_a_body_that_comes_too_slowly(http: Http, topic: str) -> None:
    with http.connect() as connection:
        got = exchange(connection, begun(topic), b'{"records": ')
        assert got.startswith(b"HTTP/1.1 408 ")
        assert b'"error_code":"request_timeout"' in got
        assert connection.recv(1) == b"", "the rest of the body must not be read as a request"
    assert http.end(topic) == 0


def test_many_requests_on_one_connection(http: Http, topic: str) -> None:
    body = b'{"records": [{"value": 1}]}'
    head = begun(topic, len(body))
    with http.connect() as connection:
        for number in range(3):
            got = exchange(connection, head.replace("/records ", "/records?partition=0 "), body)
            assert f'"records":[[0,{number}]]'.encode() in got
        refusal = exchange(connection, begun("absent", len(body)), body)
        assert refusal.startswith(b"HTTP/1.1 404 ")
        connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n" * 2)
        assert answer(connection).startswith(b"HTTP/1.1 200 ")


# --- acknowledgements -------------------------------------------------------------------------------------
def test_acks(http: Http, topic: str) -> None:
    reply = http.publish(topic, {"value": 1, "partition": 0}, query="?acks=none")
    assert (reply.status, reply.json["acks"], reply.json["records"]) == (202, "none", [[0, None]])
    [part] = reply.json["partitions"]
    assert (part["first_offset"], part["last_offset"], part["count"]) == (None, None, 1)
    reply = http.publish(topic, {"value": 2, "partition": 0}, query="?acks=table")
    assert (reply.status, reply.json["acks"], reply.json["records"]) == (200, "table", [[0, 1]])
    assert http.bounds(topic)["table_offset"] == 2
    assert contents(http.read(topic, 0, "values=base64&isolation=table")) == [b"1", b"2"]


def test_a_topic_whose_acks_is_the_table(http: Http) -> None:
    name = f"table-{uuid.uuid4()}"
    http.create(name, 1, acks="table", flush_ms=60_000)
    # Its own level: answered, and seen, once it is in the table.
    reply = http.publish(name, {"value": 1}, query="?acks=wal")
    assert (reply.status, reply.json["acks"]) == (200, "wal")
    assert http.bounds(name) == {"partition": 0, "log_start_offset": 0, "table_offset": 0, "high_watermark": 0}
    # Who does not wait long enough is told how far it came; it may land all the same.
    sent = 1
    while (late := http.publish(name, {"value": 2}, query="?timeout_ms=1")).status == 200:
        sent += 1  # where the server does not run for a while it comes into the table before the time is looked at
    refused(late, 504, "ack_timeout", retryable="unknown")
    assert late.json["acks"] in ("none", "wal")
    # Who waits does not wait for all of flush.ms.
    reply = http.publish(name, {"value": 3})
    assert (reply.status, reply.json["acks"]) == (200, "table")
    end = sent + 2
    assert http.bounds(name) == {"partition": 0, "log_start_offset": 0, "table_offset": end, "high_watermark": end}
    assert contents(http.read(name)) == [b"1", *[b"2"] * sent, b"3"]


def test_what_is_written_is_answered_as_such_and_read_once_it_is_synced(http: Http) -> None:
    name = f"written-{uuid.uuid4()}"
    http.create(name, 1, acks="written")
    first = http.publish(name, {"value": 1})
    assert (first.status, first.json["acks"], first.json["records"]) == (200, "written", [[0, 0]])
    assert http.publish(name, {"value": 2}, query="?acks=wal").json["acks"] == "wal"
    assert contents(http.read(name)) == [b"1", b"2"], "what is synced is behind what was written"
    for headers in ({"Silt_Producer_Id": "p", "Silt_Sequence": "0"}, {"Idempotency_Key": "k"}):
        kept, again, safe = (
            http.publish(name, {"value": 3, "partition": 0}, query=query, **headers)
            for query in ("", "?acks=written", "?acks=wal")
        )
        assert [reply.json["acks"] for reply in (kept, again, safe)] == ["written", "written", "wal"]
        assert kept.json["records"] == again.json["records"] == safe.json["records"]
    assert contents(http.read(name)) == [b"1", b"2", b"3", b"3"], "each once, the last repeats having waited"


@pytest.mark.parametrize(("own", "told"), [("table", "written"), ("object", "object"), ("none", "written")])
def test_a_request_for_written_is_answered_as_its_topic_can(http: Http, own: str, told: str) -> None:
    name = f"{own}-{uuid.uuid4()}"
    http.create(name, 1, acks=own)
    reply = http.publish(name, {"value": 1}, query="?acks=written")
    assert (reply.status, reply.json["acks"], reply.json["records"]) == (200, told, [[0, 0]])


def test_a_topic_whose_acks_is_none(http: Http) -> None:
    name = f"none-{uuid.uuid4()}"
    http.create(name, 1, acks="none")
    assert (http.publish(name, {"value": 1}).status, http.publish(name, {"value": 2}).json["acks"]) == (202, "none")
    reply = http.publish(name, {"value": 3}, query="?acks=wal")
    assert (reply.status, reply.json["records"]) == (200, [[0, 2]])
    assert contents(http.read(name)) == [b"1", b"2", b"3"], "seen once synced"
    # A producer must know what became of its request, and is told.
    for headers in ({"Silt_Producer_Id": "p"}, {"Idempotency_Key": "k"}):
        own = {"Silt_Sequence": "0"} if "Silt_Producer_Id" in headers else {}
        reply = http.publish(name, {"value": 4, "partition": 0}, **headers, **own)
        assert (reply.status, reply.json["acks"]) == (200, "wal")
        refused(
            http.publish(name, {"value": 4, "partition": 0}, query="?acks=none", **headers, **own),
            422,
            "unsupported_acks",
        )


# --- exactly once -----------------------------------------------------------------------------------------
def sequenced(first: int, count: int, partition: int = 0) -> list[dict[str, Any]]:
    return [{"value": first + i, "partition": partition, "sequence": first + i} for i in range(count)]


def test_a_retry_gets_the_same_answer(http: Http, topic: str) -> None:
    producer = {"Silt_Producer_Id": str(uuid.uuid4())}
    records = sequenced(0, 3) + sequenced(0, 2, 1)
    first = http.publish(topic, *records, **producer).json
    again = http.publish(topic, *records, **producer).json
    assert again["records"] == first["records"]
    assert [part.pop("duplicate") for part in again["partitions"]] == [True, True]
    assert [part.pop("duplicate") for part in first["partitions"]] == [False, False]
    assert again["partitions"] == first["partitions"]
    # Duplicate in one partition, next in line in the other; answered only once both are in the table.
    mixed = http.publish(topic, *sequenced(0, 3), *sequenced(2, 1, 1), query="?acks=table", **producer).json
    assert [part["duplicate"] for part in mixed["partitions"]] == [True, False]
    assert [http.bounds(topic, p)["table_offset"] for p in (0, 1)] == [3, 3]
    assert http.end(topic) == 6


def test_gaps_overlaps_and_strangers_are_refused_whole(http: Http, topic: str) -> None:
    producer = {"Silt_Producer_Id": "p.1_-"}
    assert http.publish(topic, *sequenced(0, 3), **producer).status == 200
    for first, count in ((4, 1), (2, 2)):
        reply = http.publish(topic, *sequenced(first, count), *sequenced(0, 1, 1), **producer)
        refused(reply, 409, "out_of_order_sequence", partition=0, next_sequence=3)
        assert reply.json["partitions"] == [
            {"partition": 0, "next_sequence": 3},
            {"partition": 1, "next_sequence": 0},
        ]
    torn = [{"value": 1, "partition": 0, "sequence": 3}, {"value": 1, "partition": 0, "sequence": 5}]
    refused(http.publish(topic, *torn, **producer), 409, "out_of_order_sequence", next_sequence=3)
    stranger = http.publish(topic, *sequenced(7, 1), Silt_Producer_Id="stranger")
    refused(stranger, 409, "unknown_producer", partition=0, next_sequence=0)
    assert http.end(topic) == 3


def test_an_older_epoch_is_fenced(http: Http, topic: str) -> None:
    own = {"Silt_Producer_Id": "p"}
    assert http.publish(topic, *sequenced(0, 1), Silt_Producer_Epoch="4", **own).status == 200
    reply = http.publish(topic, *sequenced(1, 1), Silt_Producer_Epoch="3", **own)
    refused(reply, 409, "fenced_producer", producer_epoch=4)
    assert http.publish(topic, *sequenced(1, 1), Silt_Producer_Epoch="5", **own).status == 200


def test_sequences_by_header(http: Http, topic: str) -> None:
    own = {"Silt_Producer_Id": "p", "Silt_Sequence": "0"}
    path = f"/v1/topics/{topic}/records?partition=1"
    for duplicate in (False, True):
        reply = http.call("POST", path, b"x", Content_Type=OCTETS, **own).json
        assert (reply["records"], reply["partitions"][0]["duplicate"]) == ([[1, 0]], duplicate)
    both = ({"value": 1, "partition": 0}, {"value": 1, "partition": 1})
    refused(http.publish(topic, *both, **own), 422, "invalid_request")
    table = pa.table({"value": ["a", "b"]})
    reply = http.arrow(topic, table, "?partition=1", Silt_Producer_Id="p", Silt_Sequence="1")
    assert reply.json["partitions"][0]["first_offset"] == 1


@pytest.mark.parametrize(
    ("headers", "status", "code"),
    [
        ({"Silt_Producer_Id": "a b"}, 400, "invalid_parameter"),
        ({"Silt_Producer_Id": ""}, 400, "invalid_parameter"),
        ({"Silt_Producer_Id": "p", "Silt_Producer_Epoch": "-1"}, 400, "invalid_parameter"),
        ({"Silt_Producer_Id": "p", "Silt_Producer_Epoch": "9" * 5_000}, 400, "invalid_parameter"),
        ({"Silt_Producer_Id": "p", "Silt_Sequence": "x"}, 400, "invalid_parameter"),
        ({"Silt_Producer_Id": "p"}, 422, "invalid_record"),
        ({"Silt_Sequence": "0"}, 422, "invalid_request"),
        ({"Silt_Producer_Epoch": "0"}, 422, "invalid_request"),
        ({"Silt_Partition_Count": "x"}, 400, "invalid_parameter"),
    ],
)
def test_headers_of_a_producer_that_are_wrong(
    http: Http, topic: str, headers: dict[str, str], status: int, code: str
) -> None:
    refused(http.publish(topic, {"value": 1}, **headers), status, code)
    assert http.end(topic) == 0


def test_no_producer_without_an_answer(http: Http, topic: str) -> None:
    reply = http.publish(topic, *sequenced(0, 1), query="?acks=none", Silt_Producer_Id="p")
    refused(reply, 422, "unsupported_acks")


def test_a_client_that_hashes_by_an_old_count(http: Http, topic: str) -> None:
    producer = {"Silt_Producer_Id": "p"}
    assert http.publish(topic, *sequenced(0, 1), Silt_Partition_Count="2", **producer).status == 200
    reply = http.publish(topic, *sequenced(1, 1), Silt_Partition_Count="1", **producer)
    refused(reply, 409, "partition_count_changed", partitions=2)
    again = http.publish(topic, *sequenced(0, 1), Silt_Partition_Count="1", **producer)
    assert again.json["partitions"][0]["duplicate"] is True


@pytest.mark.slow
def test_retries_across_restarts_kills_and_flushes() -> None:
    """Whatever happens between a request and its retry, the retry gets the original's offsets."""
    with running_server(redis_url=NO_REDIS, flush_ms=60_000) as server:
        http = Http(server.url)
        http.create("t", 2)
        producer = {"Silt_Producer_Id": "p"}
        requests = []
        # Killed with everything in the log only; stopped, so that everything is in the table only.
        ways: list[Any] = [lambda: (server.kill(), server.restart()), server.restart]
        for turn, way in enumerate(ways):
            records = sequenced(3 * turn, 3)
            requests.append((records, http.publish("t", *records, **producer).json["records"]))
            way()
            http = Http(server.url)
            for sent, places in requests:
                again = http.publish("t", *sent, **producer).json
                assert (again["records"], again["partitions"][0]["duplicate"]) == (places, True)
            reply = http.publish("t", *sequenced(3 * turn + 4, 1), **producer)
            refused(reply, 409, "out_of_order_sequence", next_sequence=3 * turn + 3)
        assert contents(http.read("t")) == [str(i).encode() for i in range(3 * len(ways))]


# --- topics that publishing creates -----------------------------------------------------------------------
def test_topics_that_publishing_creates() -> None:
    with running_server(redis_url=NO_REDIS, auto_create_partitions=3) as server:
        http = Http(server.url)
        refused(http.publish("made", {"value": None}), 422, "invalid_record", index=0)
        refused(http.publish("_made", {"value": 1}), 403, "forbidden")
        assert http.get("/v1/topics").json["topics"] == []
        assert http.publish("made", {"value": 1}).status == 200
        assert http.get("/v1/topics/made").json["partitions"] == 3
        refused(http.publish("Made", {"value": 1}), 409, "topic_exists")
