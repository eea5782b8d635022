"""Calls of gRPC at a real server beside the requests of HTTP that they stand for."""

import base64
import http.client
import socket
from collections.abc import Callable, Iterator
from typing import Any

import grpc
import pyarrow as pa
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from grpc_rig import SERVICE, TIMEOUT_S, Client, Problem, client_at, port_of, served
from http_rig import NO_REDIS, Http

from siltlog.infra.clock import parse_us
from siltlog.infra.grpc.made import silt_pb2 as pb

REQUEST_BYTES_MAX = 1024 * 1024


class Both:
    """One server, by both its protocols."""

    def __init__(self, http: Http, grpc: Client, server: Any) -> None:
        self.http, self.grpc, self.server = http, grpc, server

    @property
    def port(self) -> int:
        return port_of(self.server)


@pytest.fixture(scope="module")
def both() -> Iterator[Both]:
    with served(redis_url=NO_REDIS, request_bytes_max=REQUEST_BYTES_MAX, record_bytes_max=1024) as (
        http,
        client,
        server,
    ):
        yield Both(http, client, server)


def record(**fields: Any) -> pb.PublishRecord:
    return pb.PublishRecord(**fields)


def arrow(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()


# --- what is published, and read ---------------------------------------------------------------------------
def test_records_are_the_same_by_whichever_way_they_come_and_are_read(both: Both) -> None:
    at_us = 1_790_000_000_000_123
    given = [
        record(key=b"\xff\x00", value=b"\x01\xfe", timestamp_us=at_us),
        record(key=b"k", value=b""),
        record(
            value=b"no key",
            headers=[pb.Header(key="a", value=b"\x80"), pb.Header(key="a"), pb.Header(key="b", value=b"")],
        ),
        record(key=b"gone"),
        record(key=b"k", value=b"last", partition=1),
    ]
    both.http.create("by.grpc", 2)
    both.http.create("by.http", 2)
    acks = both.grpc.Publish(topic="by.grpc", records=given)
    encoded = lambda data: base64.b64encode(data).decode()  # noqa: E731
    rows: list[dict[str, Any]] = []
    for one in given:
        row: dict[str, Any] = {"value_base64": encoded(one.value)} if one.HasField("value") else {"value": None}
        if one.HasField("key"):
            row["key_base64"] = encoded(one.key)
        if one.HasField("timestamp_us"):
            row["timestamp"] = "2026-09-21T14:13:20.000123Z"
        if one.HasField("partition"):
            row["partition"] = one.partition
        row["headers"] = [
            {"key": header.key, "value_base64": encoded(header.value)}
            if header.HasField("value")
            else {"key": header.key}
            for header in one.headers
        ]
        rows.append(row)
    answer = both.http.publish("by.http", *rows)
    assert answer.status == 200, answer
    assert acks.acks == pb.ACKS_WAL
    both.http.create("early")
    early = both.grpc.Publish(topic="early", acks=pb.ACKS_WRITTEN, records=[record(value=b"v")])
    assert early.acks == pb.ACKS_WRITTEN
    fields = ("partition", "first_offset", "last_offset", "count", "duplicate")
    assert [tuple(getattr(it, name) for name in fields) for it in acks.partitions] == [
        tuple(it[name] for name in fields) for it in answer.json["partitions"]
    ]

    for topic in ("by.grpc", "by.http"):
        partitions = [pb.FetchPosition(topic=topic, partition=at) for at in (0, 1)]
        read = sorted(both.grpc.Fetch(partitions=partitions).records, key=lambda one: (one.partition, one.offset))
        assert [as_read(one) for one in read] == [
            as_read_by_http(one) for at in (0, 1) for one in both.http.read(topic, at)
        ]
        assert sorted(map(as_given, read)) == sorted(map(as_given, given))
    assert at_us in [one.timestamp_us for one in read]


def as_given(one: Any) -> tuple[Any, ...]:
    """What a record says, wherever it is."""
    headers = [(header.key, header.value if header.HasField("value") else None) for header in one.headers]
    return str(one.HasField("key")), one.key, str(one.HasField("value")), one.value, str(headers)


def as_read(one: pb.Record) -> tuple[Any, ...]:
    return (
        *(one.partition, one.offset, one.timestamp_us),
        one.key if one.HasField("key") else None,
        one.value if one.HasField("value") else None,
        [(header.key, header.value if header.HasField("value") else None) for header in one.headers],
    )


def as_read_by_http(row: dict[str, Any]) -> tuple[Any, ...]:
    headers = [(header["key"], data_of(header, "value")) for header in row["headers"]]
    at = row["partition"], row["offset"], parse_us(row["timestamp"])
    return *at, data_of(row, "key"), data_of(row, "value"), headers


def data_of(row: dict[str, Any], name: str) -> bytes | None:
    if f"{name}_base64" in row:
        return base64.b64decode(row[f"{name}_base64"])
    text = row.get(name)
    return None if text is None else text.encode()


def test_an_arrow_stream_goes_in_and_comes_out(both: Both) -> None:
    both.http.create("streamed")
    table = pa.table({"key": pa.array([b"a", None], pa.binary()), "value": pa.array([b"1", b"2"], pa.binary())})
    acks = both.grpc.Publish(topic="streamed", arrow_stream=arrow(table), partition=0)
    assert [(it.first_offset, it.last_offset, it.count) for it in acks.partitions] == [(0, 1, 2)]
    told = both.grpc.Fetch(partitions=[pb.FetchPosition(topic="streamed", partition=0)], arrow=True)
    assert not told.records
    [part] = told.partitions
    assert (part.next_offset, part.high_watermark, part.log_start_offset) == (2, 2, 0)
    read = pa.ipc.open_stream(told.arrow_stream).read_all()
    assert read.select(["key", "value"]) == table
    assert read.column("topic").to_pylist() == ["streamed"] * 2
    with pytest.raises(Problem) as failed:
        both.grpc.Publish(topic="streamed", arrow_stream=b"garbage", records=[record(value=b"x")])
    assert (failed.value.reason, failed.value.code) == ("invalid_request", grpc.StatusCode.INVALID_ARGUMENT)


def test_a_large_arrow_stream_is_the_same_request_as_a_small_one(both: Both) -> None:
    both.http.create("bulk", partitions=2)
    count = 10_000
    large = arrow(pa.table({"value": pa.array([b"%0100d" % number for number in range(count)], pa.binary())}))
    acks = both.grpc.Publish(topic="bulk", arrow_stream=large, partition=1, acks=pb.ACKS_WAL)
    assert [(it.partition, it.first_offset, it.count) for it in acks.partitions] == [(1, 0, count)]
    read = both.http.get("/v1/topics/bulk/partitions/1/records?offset=9999").json["records"]
    assert [row["value"] for row in read] == [f"{count - 1:0100d}"]
    with pytest.raises(Problem) as failed:
        both.grpc.Publish(topic="bulk", arrow_stream=large, records=[record(value=b"x")])
    assert failed.value.reason == "invalid_request"
    with pytest.raises(Problem) as failed:
        both.grpc.Publish(topic="bulk", arrow_stream=b"x" * 100_000)
    assert failed.value.reason == "malformed_body"
    whole = pb.PublishRequest(topic="bulk", arrow_stream=large).SerializeToString()
    for wrong in (b"\x0a\x01\xff" + whole, whole[:-1]):
        with pytest.raises(grpc.RpcError) as broken:
            both.grpc.channel.unary_unary("/silt.v1.Silt/Publish")(wrong, timeout=TIMEOUT_S)
        assert Problem(broken.value).detail == "what was sent is no silt.v1.PublishRequest in protobuf"


def test_a_publish_lands_once(both: Both) -> None:
    both.http.create("once")
    for duplicate in (False, True):
        acks = both.grpc.Publish(topic="once", records=[record(value=b"a")], idempotency_key="key-1")
        assert [(it.first_offset, it.duplicate) for it in acks.partitions] == [(0, duplicate)]
    producer = pb.Producer(id="p", first_sequence=0)
    for duplicate in (False, True):
        acks = both.grpc.Publish(topic="once", records=[record(value=b"b", partition=0)], producer=producer)
        assert [(it.first_offset, it.duplicate) for it in acks.partitions] == [(1, duplicate)]
    with pytest.raises(Problem) as failed:
        both.grpc.Publish(
            topic="once", records=[record(value=b"c", partition=0, sequence=7)], producer=pb.Producer(id="p")
        )
    assert (failed.value.reason, failed.value.code) == ("out_of_order_sequence", grpc.StatusCode.ABORTED)
    assert failed.value.members["next_sequence"] == "1"


def test_a_fetch_waits_for_what_comes(both: Both) -> None:
    both.http.create("awaited")
    position = pb.FetchPosition(topic="awaited", partition=0)
    assert not both.grpc.Fetch(partitions=[position]).records
    waiting = both.grpc.channel.unary_unary(
        f"/{SERVICE.full_name}/Fetch", pb.FetchRequest.SerializeToString, pb.FetchResponse.FromString
    ).future(pb.FetchRequest(partitions=[position], wait_ms=30_000), timeout=TIMEOUT_S)
    both.http.publish("awaited", {"value": "x"})
    assert [one.value for one in waiting.result().records] == [b"x"]


# --- topics ------------------------------------------------------------------------------------------------
def test_topics_are_made_told_of_listed_and_deleted_as_by_http(both: Both) -> None:
    made = both.grpc.CreateTopic(
        name="made", partitions=3,
        config={"retention.ms": pb.ConfigValue(number=3_600_000), "acks": pb.ConfigValue(text="table")},
    )  # fmt: skip
    told = both.http.get("/v1/topics/made").json
    described = both.grpc.DescribeTopic(topic="made")
    assert made == described
    assert (made.name, made.topic_id, made.partitions, made.created_at, made.table_uri) == tuple(
        told[name] for name in ("name", "topic_id", "partitions", "created_at", "table_uri")
    )
    values = {
        name: entry.number if entry.WhichOneof("value") == "number" else entry.text
        for name, entry in made.config.items()
    }
    assert values == {name: entry["value"] for name, entry in told["config"].items()}
    both.http.create("made.too")
    page = both.grpc.ListTopics(prefix="made", limit=1)
    assert ([one.name for one in page.topics], page.next) == (["made"], "made")
    page = both.grpc.ListTopics(prefix="made", after=page.next)
    assert ([one.name for one in page.topics], page.HasField("next")) == (["made.too"], False)
    both.grpc.DeleteTopic(topic="made.too")
    assert both.http.get("/v1/topics/made.too").status == 404


def test_offsets_are_those_of_http(both: Both) -> None:
    both.http.create("bounded", 2)
    records = [record(value=b"x", timestamp_us=1_790_000_000_000_000 + at) for at in range(3)]
    both.grpc.Publish(topic="bounded", partition=1, records=records)
    told = both.http.get("/v1/topics/bounded/offsets?timestamp=2026-09-21T14:13:20.000001Z").json
    found = both.grpc.ListOffsets(topic="bounded", timestamp_us=1_790_000_000_000_001)
    assert [one.offset for one in found.partitions] == [one["offset"] for one in told["partitions"]] == [0, 1]
    assert [one.high_watermark for one in found.partitions] == [0, 3]
    assert not both.grpc.ListOffsets(topic="bounded").partitions[0].HasField("offset")


# --- what is refused ---------------------------------------------------------------------------------------
Ask = Callable[[Both], Any]
REFUSED: dict[str, tuple[Ask, Ask]] = {
    "unknown topic": (
        lambda both: both.grpc.Publish(topic="nothing", records=[record(value=b"x")]),
        lambda both: both.http.publish("nothing", {"value": "x"}),
    ),
    "system topic": (
        lambda both: both.grpc.Publish(topic="_offsets", records=[record(value=b"x")]),
        lambda both: both.http.publish("_offsets", {"value": "x"}),
    ),
    "partition": (
        lambda both: both.grpc.Publish(topic="refusing", partition=9, records=[record(value=b"x")]),
        lambda both: both.http.publish("refusing", {"value": "x"}, query="?partition=9"),
    ),
    "negative partition": (
        lambda both: both.grpc.Publish(topic="refusing", partition=-1, records=[record(value=b"x")]),
        lambda both: both.http.publish("refusing", {"value": "x"}, query="?partition=-1"),
    ),
    "time-out": (
        lambda both: both.grpc.Publish(topic="refusing", timeout_ms=0, records=[record(value=b"x")]),
        lambda both: both.http.publish("refusing", {"value": "x"}, query="?timeout_ms=0"),
    ),
    "tombstone without a key": (
        lambda both: both.grpc.Publish(topic="refusing", records=[record(value=b"x"), record()]),
        lambda both: both.http.publish("refusing", {"value": "x"}, {"value": None}),
    ),
    "large record": (
        lambda both: both.grpc.Publish(topic="refusing", records=[record(value=b"x" * 2000)]),
        lambda both: both.http.publish("refusing", {"value": "x" * 2000}),
    ),
    "no acks to retry on": (
        lambda both: both.grpc.Publish(
            topic="refusing", acks=pb.ACKS_NONE, idempotency_key="k", records=[record(value=b"x")]
        ),
        lambda both: both.http.publish("refusing", {"value": "x"}, query="?acks=none", Idempotency_Key="k"),
    ),
    "key of an idempotent publish": (
        lambda both: both.grpc.Publish(topic="refusing", idempotency_key="", records=[record(value=b"x")]),
        lambda both: both.http.publish("refusing", {"value": "x"}, Idempotency_Key=""),
    ),
    "key and producer": (
        lambda both: both.grpc.Publish(
            topic="refusing", idempotency_key="k", producer=pb.Producer(id="p"), records=[record(value=b"x")]
        ),
        lambda both: both.http.publish("refusing", {"value": "x"}, Idempotency_Key="k", Silt_Producer_Id="p"),
    ),
    "an existing topic": (
        lambda both: both.grpc.CreateTopic(name="refusing"),
        lambda both: both.http.json("POST", "/v1/topics", {"name": "refusing"}),
    ),
    "the name of a topic": (
        lambda both: both.grpc.CreateTopic(name="a/b"),
        lambda both: both.http.json("POST", "/v1/topics", {"name": "a/b"}),
    ),
    "a setting": (
        lambda both: both.grpc.CreateTopic(name="n", config={"nothing": pb.ConfigValue(number=1)}),
        lambda both: both.http.json("POST", "/v1/topics", {"name": "n", "config": {"nothing": 1}}),
    ),
    "an absent topic described": (
        lambda both: both.grpc.DescribeTopic(topic="nothing"),
        lambda both: both.http.get("/v1/topics/nothing"),
    ),
    "an absent topic's offsets": (
        lambda both: both.grpc.ListOffsets(topic="refusing", topic_id="another"),
        lambda both: both.http.get("/v1/topics/refusing/offsets?topic_id=another"),
    ),
    "a fetch of nothing": (
        lambda both: both.grpc.Fetch(),
        lambda both: both.http.json("POST", "/v1/fetch", {"partitions": []}),
    ),
    "a fetch of the same twice": (
        lambda both: both.grpc.Fetch(partitions=[pb.FetchPosition(topic="refusing")] * 2),
        lambda both: both.http.json(
            "POST", "/v1/fetch", {"partitions": [{"topic": "refusing", "partition": 0, "offset": 0}] * 2}
        ),
    ),
    "a group without Redis": (
        lambda both: both.grpc.Join(group="g", member_id="m", settings=pb.MemberSettings(topics=["refusing"])),
        lambda both: both.http.json("PUT", "/v1/groups/g/members/m", {"generation": 0, "topics": ["refusing"]}),
    ),
    "the name of a group": (
        lambda both: both.grpc.Commit(group="g g", offsets=[pb.CommittedOffset(topic="refusing")]),
        lambda both: both.http.json(
            "PUT", "/v1/groups/g%20g/offsets", {"offsets": [{"topic": "refusing", "partition": 0, "offset": 0}]}
        ),
    ),
    "a heartbeat of a negative generation": (
        lambda both: both.grpc.Heartbeat(group="g", member_id="m", generation=-1),
        lambda both: both.http.json("PUT", "/v1/groups/g/members/m", {"generation": -1}),
    ),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_is_refused_is_refused_in_the_words_of_http(both: Both, what: str) -> None:
    if both.http.get("/v1/topics/refusing").status == 404:
        both.http.create("refusing")
    by_grpc, by_http = REFUSED[what]
    with pytest.raises(Problem) as failed:
        by_grpc(both)
    answer = by_http(both)
    assert answer.status >= 400
    told = answer.json
    assert (failed.value.reason, failed.value.detail) == (told["error_code"], told["detail"])
    assert failed.value.request_id
    assert failed.value.members["retryable"] == told["retryable"]
    assert failed.value.retry_ms == told.get("retry_after_ms")


@pytest.mark.parametrize("said", ["k\r\ncontent-length: 0\r\n\r\nGET /x HTTP/1.1", "k\0", "\u65e5"])
def test_what_no_header_field_can_have_is_refused(both: Both, said: str) -> None:
    if both.http.get("/v1/topics/smuggled").status == 404:
        both.http.create("smuggled")
    records = [record(value=b"v")]
    for more in ({"idempotency_key": said}, {"producer": pb.Producer(id=said)}):
        with pytest.raises(Problem) as refused:
            both.grpc.Publish(topic="smuggled", records=records, **more)
        assert (refused.value.reason, refused.value.code) == ("invalid_parameter", grpc.StatusCode.INVALID_ARGUMENT)
    assert both.http.read("smuggled") == []


def test_what_is_of_one_partition_alone_is_told_with_it(both: Both) -> None:
    both.http.create("in.part")
    both.http.publish("in.part", {"value": "x"})
    wanted = [("in.part", 0, 0), ("in.part", 7, 0), ("nothing", 0, 0), ("in.part", 0, 99)]
    for topic, partition, offset in wanted[1:]:
        told = both.grpc.Fetch(
            partitions=[pb.FetchPosition(topic=topic, partition=partition, offset=offset)]
        ).partitions[0].error  # fmt: skip
        body = {"partitions": [{"topic": topic, "partition": partition, "offset": offset}]}
        error = both.http.json("POST", "/v1/fetch", body).json["partitions"][0]["error"]
        assert (told.error_code, told.detail, told.retryable) == tuple(
            error[name] for name in ("error_code", "detail", "retryable")
        )


def test_values_that_stand_for_nothing_are_named(both: Both) -> None:
    with pytest.raises(Problem, match="acks is 9, which stands for nothing here: none, written, wal, object, table"):
        both.grpc.Publish(topic="t", acks=9, records=[record(value=b"x")])
    with pytest.raises(Problem, match="timestamp_us is beyond the years 1 to 9999"):
        both.grpc.ListOffsets(topic="t", timestamp_us=2**62)
    with pytest.raises(Problem, match="Join gives the first"):
        both.grpc.Heartbeat(group="g", member_id="m")
    for name in ("", "a/b", ".."):
        with pytest.raises(Problem) as failed:
            both.grpc.DescribeTopic(topic=name)
        assert failed.value.reason == "invalid_parameter"


def test_what_is_above_the_limit_is_refused_before_it_is_read(both: Both) -> None:
    both.http.create("limited")
    table = pa.table({"value": pa.array([b"x" * 1000] * 1100, pa.binary())})
    with pytest.raises(Problem) as failed:
        both.grpc.Publish(topic="limited", arrow_stream=arrow(table))
    answer = both.http.arrow("limited", table)
    assert (failed.value.code, failed.value.reason) == (grpc.StatusCode.OUT_OF_RANGE, "request_too_large")
    assert failed.value.detail == answer.json["detail"]
    with pytest.raises(Problem) as failed:
        both.grpc.Publish(topic="limited", records=[record(value=b"x" * 1000)] * 4_000)
    # gRPC itself says no to what is far above.
    assert failed.value.code is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert both.http.end("limited") == 0


def test_what_is_no_message_is_refused_in_our_words(both: Both) -> None:
    call = both.grpc.channel.unary_unary(f"/{SERVICE.full_name}/Publish")
    for garbage in (b"\xff\xff\xff", b"\x0a\xff", b"\x12\x02\x0a\x05"):
        with pytest.raises(grpc.RpcError) as failed:
            call(garbage, timeout=TIMEOUT_S)
        told = Problem(failed.value)
        assert (told.code, told.reason) == (grpc.StatusCode.INVALID_ARGUMENT, "malformed_body")
        assert told.detail == "what was sent is no silt.v1.PublishRequest in protobuf"


def test_what_is_no_grpc_at_all_ends_its_own_connection_alone(both: Both) -> None:
    for said in (
        b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"\x00" * 5_000,
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\xff" * 99,
    ):
        with socket.create_connection(("127.0.0.1", both.port), timeout=TIMEOUT_S) as connection:
            connection.sendall(said)
            while connection.recv(65_536):
                pass
    assert both.grpc.ListTopics(limit=1) is not None
    with pytest.raises((http.client.HTTPException, OSError)):
        plain = http.client.HTTPConnection("127.0.0.1", both.port, timeout=TIMEOUT_S)
        plain.request("GET", "/healthz")
        plain.getresponse()


def test_a_method_that_is_not_there(both: Both) -> None:
    with pytest.raises(grpc.RpcError) as failed:
        both.grpc.channel.unary_unary(f"/{SERVICE.full_name}/Nothing")(b"", timeout=TIMEOUT_S)
    assert failed.value.code() is grpc.StatusCode.UNIMPLEMENTED


def test_a_page_of_another_origin_may_not_call(both: Both) -> None:
    with client_at(both.port, origin="https://elsewhere.example") as client, pytest.raises(Problem) as failed:
        client.ListTopics()
    assert (failed.value.code, failed.value.reason) == (grpc.StatusCode.PERMISSION_DENIED, "origin_not_allowed")


def test_calls_have_the_ids_that_they_are_given_and_count_as_what_they_ask_for(both: Both) -> None:
    both.http.create("counted")
    name = 'silt_http_replies_total{operation="publish",status="404"}'
    before = both.http.metrics().get(name, 0.0)
    with client_at(both.port, silt_request_id="my-id-1") as client, pytest.raises(Problem) as failed:
        client.Publish(topic="nothing", records=[record(value=b"x")])
    assert failed.value.request_id == "my-id-1"
    assert both.http.metrics()[name] == before + 1


# --- what tells of it --------------------------------------------------------------------------------------
def test_a_client_that_knows_nothing_finds_the_service(both: Both) -> None:
    stub = reflection_pb2_grpc.ServerReflectionStub(both.grpc.channel)
    asked = [
        reflection_pb2.ServerReflectionRequest(list_services=""),
        reflection_pb2.ServerReflectionRequest(file_containing_symbol=SERVICE.full_name),
    ]
    listed, file = stub.ServerReflectionInfo(iter(asked), timeout=TIMEOUT_S)
    services = {one.name for one in listed.list_services_response.service}
    assert {SERVICE.full_name, "grpc.health.v1.Health"} <= services
    assert pb.DESCRIPTOR.serialized_pb in file.file_descriptor_response.file_descriptor_proto


def test_health_is_told_to_whoever_asks(both: Both) -> None:
    stub = health_pb2_grpc.HealthStub(both.grpc.channel)
    for service in ("", SERVICE.full_name):
        told = stub.Check(health_pb2.HealthCheckRequest(service=service), timeout=TIMEOUT_S)
        assert told.status == health_pb2.HealthCheckResponse.SERVING
    with pytest.raises(grpc.RpcError) as failed:
        stub.Check(health_pb2.HealthCheckRequest(service="nothing"), timeout=TIMEOUT_S)
    assert failed.value.code() is grpc.StatusCode.NOT_FOUND
    watch = stub.Watch(health_pb2.HealthCheckRequest(service="nothing"), timeout=TIMEOUT_S)
    assert next(watch).status == health_pb2.HealthCheckResponse.SERVICE_UNKNOWN
    watch.cancel()


def test_who_watches_health_sees_the_drain() -> None:
    with served(redis_url=NO_REDIS) as (_, client, server):
        watch = health_pb2_grpc.HealthStub(client.channel).Watch(health_pb2.HealthCheckRequest(), timeout=60)
        assert next(watch).status == health_pb2.HealthCheckResponse.SERVING
        assert server.stop() == 0
        assert [one.status for one in watch] == [health_pb2.HealthCheckResponse.NOT_SERVING]
