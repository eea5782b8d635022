"""`DELETE …/records` against a real server, and a log start that a job moved."""

import time
import uuid

import pytest
from http_rig import Http, Reply

from siltlog import Admin, Consumer, OffsetOutOfRange, TopicPartition
from siltlog.infra.clock import SystemClock
from siltlog.infra.store.store import open_store
from siltlog.infra.table.log_start import move_starts, start_move
from siltlog.infra.table.table import TopicTable
from siltlog.server_process import ServerProcess

WAIT_S = 30.0


@pytest.fixture
def topic(http: Http) -> str:
    """Two partitions, and in the first one records 0 to 9, of which nothing needs to be in the table yet."""
    name = f"deleted-{uuid.uuid4()}"
    http.create(name, 2, flush_ms=60_000)
    assert http.publish(name, *({"value": f"v{n}", "partition": 0} for n in range(10))).status == 200
    return name


def delete(http: Http, topic: str, query: str, partition: int | str = 0) -> Reply:
    return http.call("DELETE", f"/v1/topics/{topic}/partitions/{partition}/records{query}")


def deleted(http: Http, topic: str, before: int | str, partition: int = 0) -> dict[str, int]:
    reply = delete(http, topic, f"?before_offset={before}", partition)
    assert reply.status == 200, reply
    return {name: value for name, value in reply.json.items() if name not in ("topic", "partition")}


def read(http: Http, topic: str, query: str) -> Reply:
    return http.get(f"/v1/topics/{topic}/partitions/0/records?{query}")


def test_the_log_start_moves_and_what_is_below_it_is_gone(http: Http, topic: str) -> None:
    assert deleted(http, topic, 4) == {"log_start_offset": 4, "table_offset": 10, "high_watermark": 10}
    reply = read(http, topic, "offset=earliest")
    assert [record["value"] for record in reply.json["records"]] == [f"v{n}" for n in range(4, 10)]
    assert reply.json["log_start_offset"] == 4
    refused = read(http, topic, "offset=3")
    assert (refused.status, refused.error_code) == (416, "offset_out_of_range")
    assert (refused.json["log_start_offset"], refused.json["high_watermark"]) == (4, 10)
    entry = http.get(f"/v1/topics/{topic}/offsets?timestamp=2000-01-01T00:00:00Z").json["partitions"][0]
    assert (entry["log_start_offset"], entry["offset"]) == (4, 4)
    assert [r["offset"] for r in read(http, topic, "timestamp=2000-01-01T00:00:00Z").json["records"]] == [*range(4, 10)]
    assert [r["offset"] for r in read(http, topic, "isolation=table&offset=4").json["records"]] == [*range(4, 10)]
    fetch = {"partitions": [{"topic": topic, "partition": 0, "offset": 0}]}
    part = http.json("POST", "/v1/fetch", fetch).json["partitions"][0]
    assert part["error"]["error_code"] == "offset_out_of_range" and part["error"]["log_start_offset"] == 4


def test_repeated_or_below_the_log_start_it_changes_nothing(
    http: Http, topic: str, small_server: ServerProcess
) -> None:
    after = deleted(http, topic, 7)
    table = TopicTable.open(open_store(small_server.root), topic, SystemClock())
    for before in (7, 3, 0):
        assert deleted(http, topic, before) == after
    assert (
        table.refresh().version == TopicTable.open(open_store(small_server.root), topic, SystemClock()).snapshot.version
    )
    assert deleted(http, topic, 0, partition=1) == {"log_start_offset": 0, "table_offset": 0, "high_watermark": 0}


def test_everything_goes_and_offsets_go_on(http: Http, topic: str) -> None:
    assert deleted(http, topic, "latest")["log_start_offset"] == 10
    assert http.get(f"/v1/topics/{topic}").json["files"] == 0
    assert read(http, topic, "offset=earliest").json["records"] == []
    assert http.publish(topic, {"value": "next", "partition": 0}).json["partitions"][0]["first_offset"] == 10
    assert [record["offset"] for record in read(http, topic, "offset=earliest").json["records"]] == [10]


@pytest.mark.parametrize(
    ("query", "partition", "status", "code"),
    [
        ("", 0, 400, "invalid_parameter"),
        ("?before_offset=earliest", 0, 400, "invalid_parameter"),
        ("?before_offset=-1", 0, 400, "invalid_parameter"),
        ("?before_offset=1&yes=1", 0, 400, "invalid_parameter"),
        ("?before_offset=11", 0, 416, "offset_out_of_range"),
        ("?before_offset=1&topic_id=other", 0, 404, "unknown_topic"),
        ("?before_offset=1", 2, 404, "unknown_partition"),
        ("?before_offset=1", "x", 404, "unknown_partition"),
    ],
    ids=["missing", "earliest", "negative", "unknown parameter", "above", "another topic", "no partition", "no number"],
)
def test_refusals_change_nothing(
    http: Http, topic: str, query: str, partition: int | str, status: int, code: str
) -> None:
    reply = delete(http, topic, query, partition)
    assert (reply.status, reply.error_code) == (status, code), reply
    if status == 416:
        assert (reply.json["log_start_offset"], reply.json["high_watermark"]) == (0, 10)
    assert http.bounds(topic)["log_start_offset"] == 0


def test_no_topic_and_no_other_method(http: Http, topic: str) -> None:
    assert delete(http, "absent", "?before_offset=1").error_code == "unknown_topic"
    reply = http.call("PUT", f"/v1/topics/{topic}/partitions/0/records")
    assert reply.status == 405 and {"GET", "DELETE"} <= set(reply.headers["allow"].split(", "))


def test_from_the_library(http: Http, topic: str, small_server: ServerProcess) -> None:
    deleted(http, topic, 10)
    with Admin(small_server.url) as admin:
        assert admin.delete_records(topic, 0, 10)["log_start_offset"] == 10
        with pytest.raises(OffsetOutOfRange):
            admin.delete_records(topic, 0, 11)


@pytest.mark.parametrize("reset", ["earliest", "latest", "error"])
def test_a_consumer_below_the_log_start_follows_its_reset_policy(
    http: Http, topic: str, small_server: ServerProcess, reset: str
) -> None:
    at = [TopicPartition(topic, 0)]
    with Consumer(small_server.url, assign=at, auto_offset_reset=reset, stop_at="latest", idle_timeout_ms=2_000) as own:
        own.seek(topic, 0, offset=2)
        deleted(http, topic, 6)
        if reset == "error":
            with pytest.raises(OffsetOutOfRange):
                own.poll(timeout_ms=2_000)
        else:
            found = [record.offset for record in own]
            assert found == ([*range(6, 10)] if reset == "earliest" else [])


@pytest.mark.rule("L7")
def test_what_a_job_moved_is_seen(http: Http, topic: str, small_server: ServerProcess) -> None:
    deleted(http, topic, 1)
    store = open_store(small_server.root)
    table = TopicTable.open(store, topic, SystemClock())
    plan = table.snapshot
    move_starts(table, plan.version, {0: start_move(plan, 0, 8)}, str(uuid.uuid4()), now_ms=0)
    end = time.monotonic() + WAIT_S
    while http.bounds(topic)["log_start_offset"] != 8:
        assert time.monotonic() < end
        time.sleep(0.1)
    assert [record["offset"] for record in read(http, topic, "offset=earliest").json["records"]] == [8, 9]
