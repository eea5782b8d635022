"""The end of a topic, and topics that publishing makes, against real servers."""

import threading
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest
from http_rig import NO_REDIS, Http, Reply

from siltlog import Admin, Producer, Refused
from siltlog.cli.main import run
from siltlog.infra import names
from siltlog.infra.arrow.partitioner import partition_of
from siltlog.server_process import ServerProcess
from siltlog.testing import running_server

WAIT_S = 30.0


def refused(reply: Reply, status: int, code: str) -> None:
    assert (reply.status, reply.error_code) == (status, code), reply


@pytest.fixture
def name() -> str:
    """A name that no topic has yet."""
    return f"ends-{uuid.uuid4()}"


# --- deletion ---------------------------------------------------------------------------------------------
def test_who_waits_for_a_topic_learns_of_its_end_at_once(http: Http, name: str) -> None:
    http.create(name, 2, acks="wal", flush_ms=3_600_000)
    other = name + "-other"
    http.create(other)
    replies: dict[str, Reply] = {}

    def get(path: str) -> Reply:
        return http.get(f"/v1/topics/{name}/{path}")

    def fetch() -> Reply:
        positions = [{"topic": topic, "partition": 0, "offset": 0} for topic in (name, other)]
        return http.json("POST", "/v1/fetch", {"partitions": positions, "wait_ms": 30_000})

    calls = {
        "records": lambda: get("partitions/0/records?wait_ms=30000"),
        "from the table": lambda: get("partitions/1/records?wait_ms=30000&isolation=table"),
        "several": fetch,
        "an ack": lambda: http.publish(name, {"value": 1, "partition": 1}, query="?acks=table&timeout_ms=30000"),
    }

    def keep(what: str) -> None:
        replies[what] = calls[what]()

    threads = [threading.Thread(target=keep, args=(what,)) for what in calls]
    for thread in threads:
        thread.start()
    end = time.monotonic() + WAIT_S
    while http.bounds(name, 1)["high_watermark"] == 0:
        assert time.monotonic() < end
    assert http.call("DELETE", f"/v1/topics/{name}").status == 204
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive(), f"it goes on waiting: {calls.keys() - replies.keys()}"
    for what in ("records", "from the table", "an ack"):
        refused(replies[what], 404, "unknown_topic")
    errors = [part["error"] and part["error"]["error_code"] for part in replies["several"].json["partitions"]]
    assert (replies["several"].status, errors) == (200, ["unknown_topic", None])


def test_several_that_delete_a_topic_at_once(http: Http, name: str) -> None:
    http.create(name)
    statuses: list[int] = []
    threads = [
        threading.Thread(target=lambda: statuses.append(http.call("DELETE", f"/v1/topics/{name}").status))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT_S)
    assert sorted(statuses) == [204, 404, 404, 404]
    assert http.create(name)["records"] == 0


def test_nothing_is_left_beside_the_table(http: Http, small_server: ServerProcess, name: str) -> None:
    http.create(name)
    claimed = http.call("POST", f"/v1/topics/{name}/producers/p")
    assert claimed.status == 200
    folder = Path(unquote(urlsplit(small_server.root).path)) / names.topic_path(name) / names.STATE_FOLDER
    end = time.monotonic() + WAIT_S
    while not folder.exists():
        assert time.monotonic() < end
    assert http.call("DELETE", f"/v1/topics/{name}").status == 204
    assert not folder.exists()


def test_a_topic_id_tells_a_topic_from_its_successor(http: Http, name: str) -> None:
    old = http.create(name)["topic_id"]
    path = f"/v1/topics/{name}"
    for read in (f"{path}/partitions/0/records?", f"{path}/offsets?"):
        assert http.get(f"{read}topic_id={old}").status == 200
    assert http.call("DELETE", path).status == 204
    new = http.create(name)["topic_id"]
    for read in (f"{path}/partitions/0/records?", f"{path}/offsets?"):
        refused(http.get(f"{read}topic_id={old}"), 404, "unknown_topic")
        assert http.get(f"{read}topic_id={new}").status == 200


@pytest.fixture(scope="module")
def grouped() -> Iterator[Http]:
    """A server with groups."""
    with running_server(flush_ms=50) as server:
        yield Http(server.url)


def test_what_groups_committed_in_a_topic_goes_with_it(grouped: Http) -> None:
    http = grouped
    for topic in ("kept", "gone"):
        http.create(topic, 2)
        assert http.publish(topic, {"value": 1, "partition": 1}).status == 200
        entry = {"topic": topic, "partition": 1, "offset": 1}
        assert http.json("PUT", "/v1/groups/g/offsets", {"offsets": [entry]}).status == 204
    old = http.get("/v1/topics/gone").json["topic_id"]

    def committed() -> list[tuple[str, int]]:
        return [(entry["topic"], entry["offset"]) for entry in http.get("/v1/groups/g/offsets").json["offsets"]]

    assert committed() == [("gone", 1), ("kept", 1)]
    assert http.call("DELETE", "/v1/topics/gone").status == 204
    assert committed() == [("kept", 1)]
    http.create("gone", 2)
    assert committed() == [("kept", 1)]
    entry = {"topic": "gone", "partition": 1, "offset": 0}
    refused(http.json("PUT", f"/v1/groups/g/offsets?topic_id={old}", {"offsets": [entry]}), 404, "unknown_topic")
    assert http.json("PUT", "/v1/groups/g/offsets", {"offsets": [entry]}).status == 204
    assert committed() == [("gone", 0), ("kept", 1)]


def test_a_member_reads_the_partitions_that_a_topic_gains(grouped: Http) -> None:
    http = grouped
    http.create("gains", 1)
    member = f"/v1/groups/readers/members/{uuid.uuid4()}/poll"
    joined: dict[str, Any] = http.json("POST", member, {"topics": ["gains"], "auto_offset_reset": "latest"}).json
    assert http.json("PATCH", "/v1/topics/gains", {"partitions": 3}).status == 200
    # Before the member can know of it: the policy is not for partitions that come later.
    reply = http.publish("gains", {"value": "early", "partition": 2})
    assert reply.status == 200
    generation, values = joined["generation"], []
    end = time.monotonic() + WAIT_S
    while not values:
        assert time.monotonic() < end
        polled = http.json("POST", member, {"generation": generation, "wait_ms": 1_000}).json
        generation = polled["generation"]
        values += [record["value"] for record in polled["records"]]
    assert values == ["early"]


# --- made by publishing -----------------------------------------------------------------------------------
@pytest.fixture(scope="module")
def making() -> Iterator[Http]:
    """A server that makes the topics that are published to."""
    options = {"auto_create_partitions": 3, "default_partitions": 2, "record_bytes_max": 1_000}
    with running_server(redis_url=NO_REDIS, **options) as server:
        yield Http(server.url)


def test_who_makes_a_topic_and_does_not_say_has_the_partitions_of_the_server(making: Http) -> None:
    made = [
        making.json("POST", "/v1/topics", {"name": "by-post"}).json,
        making.json("PUT", "/v1/topics/by-put", {}).json,
        making.json("PUT", "/v1/topics/by-put", {}).json,
    ]
    with Admin(making.url) as admin:
        made += [admin.create_topic("by-admin"), admin.create_topic("by-admin", exist_ok=True)]
    assert run(["topic", "create", "by-command", "--url", making.url]) == 0
    made.append(making.get("/v1/topics/by-command").json)
    assert [topic["partitions"] for topic in made] == [2] * len(made)
    assert making.json("POST", "/v1/topics", {"name": "said", "partitions": 5}).json["partitions"] == 5
    assert making.json("POST", "/v1/topics", {"name": "null", "partitions": None}).status == 422
    assert making.publish("published", {"value": 1}).status == 200
    assert making.get("/v1/topics/published").json["partitions"] == 3, "which has a setting of its own"


@pytest.mark.rule("C6")
@pytest.mark.parametrize(
    ("record", "query", "headers", "status", "code"),
    [
        ({"value": "x" * 1_001}, "", {}, 413, "record_too_large"),
        ({"value": 1, "partition": 3}, "", {}, 404, "unknown_partition"),
        ({"value": 1}, "?partition=3", {}, 404, "unknown_partition"),
        ({"value": 1, "timestamp": "2226-11-21T07:36:00Z"}, "", {}, 422, "invalid_record"),
        ({"value": 1, "sequence": 0}, "", {}, 422, "invalid_record"),
        ({"value": None}, "", {}, 422, "invalid_record"),
        ({"value": 1}, "?acks=all", {}, 400, "invalid_parameter"),
        ({"value": 1}, "?acks=object", {}, 422, "unsupported_acks"),
        ({"value": 1}, "", {"Silt_Partition_Count": "2"}, 409, "partition_count_changed"),
        ({"value": 1}, "", {"Silt_Partition_Count": "two"}, 400, "invalid_parameter"),
        ({"value": 1, "partition": 9}, "", {"Silt_Partition_Count": "10"}, 409, "partition_count_changed"),
        ({"value": 1, "partition": 0, "sequence": 0}, "?acks=none", {"Silt_Producer_Id": "p"}, 422, "unsupported_acks"),
        ({"value": 1, "partition": 0, "sequence": 4}, "", {"Silt_Producer_Id": "p"}, 409, "unknown_producer"),
        ({"value": 1}, "", {"Silt_Producer_Id": "p"}, 422, "invalid_record"),
    ],
)
def test_what_is_refused_makes_no_topic(
    making: Http, name: str, record: dict[str, Any], query: str, headers: dict[str, str], status: int, code: str
) -> None:
    refused(making.publish(name, record, query=query, **headers), status, code)
    refused(making.get(f"/v1/topics/{name}"), 404, "unknown_topic")


def test_the_count_of_a_topic_that_is_not_made_yet_is_told(making: Http, name: str) -> None:
    reply = making.publish(name, {"value": 1}, Silt_Partition_Count="1")
    assert (reply.status, reply.json["partitions"]) == (409, 3)
    made = making.publish(
        name, {"value": 1, "partition": 2, "sequence": 0}, Silt_Partition_Count="3", Silt_Producer_Id="p"
    )
    assert (made.status, made.json["records"]) == (200, [[2, 0]])


def test_a_topic_that_many_publish_to_first(making: Http, name: str) -> None:
    replies: list[Reply] = []
    threads = [
        threading.Thread(target=lambda n=n: replies.append(making.publish(name, {"value": n, "partition": 0})))
        for n in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT_S)
    assert [reply.status for reply in replies] == [200] * 8, replies
    assert sorted(record["value"] for record in making.read(name, 0, "values=text")) == [str(n) for n in range(8)]


def test_the_library_places_records_in_a_topic_that_it_makes(making: Http, name: str) -> None:
    with Producer(making.url) as producer:
        for n in range(30):
            producer.send(name, str(n), key=f"k{n % 11}")
    for partition in range(3):
        for record in making.read(name, partition, "values=text"):
            assert partition_of(record["key"].encode(), 3) == partition
    assert making.end(name) == 30
    with Producer(making.url) as producer:
        lost = producer.send(name + "-other", "x", partition=7)
        with pytest.raises(Refused, match="no partition 7"):
            lost.result(WAIT_S)
        with pytest.raises(Refused):
            producer.send("_system", "x").result(WAIT_S)
    refused(making.get(f"/v1/topics/{name}-other"), 404, "unknown_topic")
