"""`PATCH /v1/topics/{topic}` against a real server: settings, and more partitions, while it is used."""

import json
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from http_rig import Http, Reply

from siltlog import Producer
from siltlog.infra import delta_names
from siltlog.infra.arrow.partitioner import MURMUR2, partition_of
from siltlog.infra.clock import SystemClock
from siltlog.infra.settings.topic_config import TopicConfig
from siltlog.infra.store.store import open_store
from siltlog.infra.table.table import TopicTable
from siltlog.server_process import ServerProcess

WAIT_S = 30.0


@pytest.fixture
def name() -> str:
    """A name that no topic has yet."""
    return f"changes-{uuid.uuid4()}"


def patch(http: Http, name: str, document: Any) -> Reply:
    return http.json("PATCH", f"/v1/topics/{name}", document)


def changed(http: Http, name: str, document: Any) -> dict[str, Any]:
    reply = patch(http, name, document)
    assert reply.status == 200, reply
    answered: dict[str, Any] = reply.json
    return answered


def refused(reply: Reply, status: int, code: str, words: str = "") -> None:
    assert (reply.status, reply.error_code) == (status, code), reply
    assert words in reply.json["detail"]


def eventually(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < end, "it did not come about"
        time.sleep(0.02)


def opened(http: Http, name: str) -> DeltaTable:
    return DeltaTable(unquote(urlsplit(http.get(f"/v1/topics/{name}").json["table_uri"]).path))


def version(http: Http, name: str) -> int:
    return opened(http, name).version()


# --- settings ---------------------------------------------------------------------------------------------
def test_settings_are_changed_and_put_back(http: Http, name: str) -> None:
    made = http.create(name, retention_ms=5_000, flush_ms=70)
    document = changed(http, name, {"config": {"retention.ms": 6_000, "compression": "gzip", "flush.ms": None}})
    assert document["topic_id"] == made["topic_id"]
    config = document["config"]
    assert config["retention.ms"] == {"value": 6_000, "source": "topic"}
    assert config["compression"] == {"value": "gzip", "source": "topic"}
    assert config["flush.ms"] == {"value": 50, "source": "server"}
    assert http.get(f"/v1/topics/{name}").json == document
    assert changed(http, name, {"config": None})["config"]["retention.ms"] == {
        "value": 604_800_000,
        "source": "default",
    }


def test_what_changes_nothing_commits_nothing(http: Http, name: str) -> None:
    http.create(name, 2, flush_ms=70)
    before = version(http, name)
    for same in ({}, {"partitions": 2}, {"config": {}}, {"config": {"flush.ms": 70, "acks": None}}):
        changed(http, name, same)
    assert version(http, name) == before


@pytest.mark.parametrize(
    ("document", "status", "code", "words"),
    [
        ({"partitions": 1}, 422, "invalid_request", "partitions only grow"),
        ({"partitions": 0}, 422, "invalid_request", "from 1 to 10000"),
        ({"partitions": 10_001}, 422, "invalid_request", "from 1 to 10000"),
        ({"partitions": None}, 422, "invalid_request", "cannot be put back"),
        ({"partitions": "3"}, 422, "invalid_request", "partitions"),
        ({"config": {"flush.seconds": 2}}, 422, "invalid_config", "flush.seconds"),
        ({"config": {"flush.seconds": None}}, 422, "invalid_config", "flush.seconds"),
        ({"config": {"flush.ms": 0}}, 422, "invalid_config", "whole number"),
        ({"partitions": 3, "config": {"flush.ms": -5}}, 422, "invalid_config", "whole number"),
        ({"partitions": 3, "config": {"cleanup.policy": "compact"}}, 422, "invalid_request", "does not grow"),
        ({"name": "other"}, 422, "invalid_request", "name"),
        ([], 422, "invalid_request", ""),
    ],
)
def test_what_is_wrong_changes_nothing(
    http: Http, name: str, document: Any, status: int, code: str, words: str
) -> None:
    made = http.create(name, 2)
    before = version(http, name)
    refused(patch(http, name, document), status, code, words)
    assert http.get(f"/v1/topics/{name}").json == made
    assert version(http, name) == before


def test_topics_that_cannot_be_changed(http: Http, name: str) -> None:
    refused(patch(http, name, {"partitions": 2}), 404, "unknown_topic")
    refused(patch(http, name, {"config": None}), 404, "unknown_topic")
    refused(http.call("PATCH", f"/v1/topics/{name}", b"{"), 400, "malformed_body")


@pytest.mark.rule("C4")
def test_a_key_compacted_topic_does_not_grow(http: Http, name: str) -> None:
    http.create(name, 2, cleanup_policy="compact")
    both = {"partitions": 3, "config": {"cleanup.policy": "delete"}}
    for wanted in ({"partitions": 3}, both):
        refused(patch(http, name, wanted), 422, "invalid_request", "cleanup.policy")
    assert changed(http, name, {"partitions": 2, "config": {"retention.ms": 1}})["partitions"] == 2


@pytest.mark.parametrize("codec", ["lz4", "snappy", "gzip", "none", "zstd"])
def test_each_codec_is_what_is_written(http: Http, name: str, codec: str) -> None:
    http.create(name, compression="zstd" if codec != "zstd" else "none")
    changed(http, name, {"config": {"compression": codec}})
    assert http.publish(name, {"value": "x" * 500, "key": "k"}, query="?acks=table").status == 200
    [path] = opened(http, name).file_uris()
    row_group = pq.ParquetFile(unquote(urlsplit(path).path) if "://" in path else path).metadata.row_group(0)
    written = {row_group.column(index).compression for index in range(row_group.num_columns)}
    assert written == {{"none": "UNCOMPRESSED", "lz4": "LZ4"}.get(codec, codec.upper())}
    assert [record["value"] for record in http.read(name, query="values=text")] == ["x" * 500]


def test_limits_of_records_act_at_once(http: Http, name: str) -> None:
    http.create(name)
    assert http.publish(name, {"value": "12345"}).status == 200
    changed(http, name, {"config": {"max.record.bytes": 4}})
    reply = http.publish(name, {"value": "1"}, {"value": "12345"})
    refused(reply, 413, "record_too_large", "record 1")
    assert reply.json["limit"] == 4
    changed(http, name, {"config": {"max.record.bytes": None}})
    assert http.publish(name, {"value": "12345"}).status == 200


def test_bounds_of_timestamps_act_at_once(http: Http, name: str) -> None:
    http.create(name, timestamp_before_max_ms=-1)
    now_ms = SystemClock().now_us() // 1000
    seconds = {"value": 1, "timestamp": now_ms // 1000}
    ahead = {"value": 1, "timestamp": now_ms + 7_200_000}
    assert http.publish(name, seconds).status == 200
    refused(http.publish(name, ahead), 422, "invalid_record", "timestamp.after.max.ms")
    changed(http, name, {"config": {"timestamp.before.max.ms": 86_400_000, "timestamp.after.max.ms": -1}})
    refused(http.publish(name, seconds), 422, "invalid_record", "looks like seconds")
    assert http.publish(name, ahead).status == 200
    changed(http, name, {"config": {"timestamp.type": "append"}})
    assert http.publish(name, seconds).status == 200
    times = [record["timestamp"] for record in http.read(name)]
    assert times[0].startswith("1970") and times[1] > times[2] and times[2][:4] >= "2026"


def test_acks_of_a_topic_decide_what_is_visible(http: Http, name: str) -> None:
    http.create(name, acks="table", flush_ms=3_600_000)
    assert http.publish(name, {"value": 1}, query="?acks=wal").status == 200
    assert http.bounds(name)["high_watermark"] == 0
    waiting: list[Reply] = []
    path = f"/v1/topics/{name}/partitions/0/records?offset=0&wait_ms=20000"
    poll = threading.Thread(target=lambda: waiting.append(http.get(path)))
    poll.start()
    changed(http, name, {"config": {"acks": None}})
    assert http.bounds(name)["high_watermark"] == 1
    poll.join(WAIT_S)
    assert [record["value"] for record in waiting[0].json["records"]] == ["1"]
    changed(http, name, {"config": {"acks": "table"}})
    assert http.publish(name, {"value": 2}, query="?acks=wal").status == 200
    assert http.bounds(name)["high_watermark"] == 1, "it neither goes back nor on"


def test_when_to_flush_is_changed_for_what_waits_already(http: Http, name: str) -> None:
    http.create(name, flush_ms=3_600_000)
    assert http.publish(name, {"value": 1}).status == 200
    changed(http, name, {"config": {"flush.ms": 20}})
    eventually(lambda: http.bounds(name)["table_offset"] == 1)
    changed(http, name, {"config": {"flush.ms": 3_600_000, "flush.bytes": 10}})
    assert http.publish(name, {"value": "x" * 50}).status == 200
    eventually(lambda: http.bounds(name)["table_offset"] == 2)


def test_what_another_process_commits_is_picked_up(http: Http, small_server: ServerProcess, name: str) -> None:
    http.create(name, retention_ms=7)
    table = TopicTable.open(open_store(small_server.root), name, SystemClock())
    table.set_config(TopicConfig({"max.record.bytes": 3}), str(uuid.uuid4()), unset=["retention.ms"])
    eventually(lambda: http.get(f"/v1/topics/{name}").json["config"]["max.record.bytes"]["value"] == 3)
    assert http.get(f"/v1/topics/{name}").json["config"]["retention.ms"]["source"] == "default"
    refused(http.publish(name, {"value": "1234"}), 413, "record_too_large")


# --- partitions -------------------------------------------------------------------------------------------
def test_a_topic_grows(http: Http, name: str) -> None:
    made = http.create(name, 2)
    for partition in (0, 1, 1):
        assert http.publish(name, {"value": 1, "partition": partition}).status == 200
    refused(http.publish(name, {"value": 1, "partition": 2}), 404, "unknown_partition")
    document = changed(http, name, {"partitions": 4, "config": {"retention.ms": 5}})
    assert (document["partitions"], document["topic_id"]) == (4, made["topic_id"])
    assert document["config"]["retention.ms"]["value"] == 5
    assert [entry["high_watermark"] for entry in document["offsets"]] == [1, 2, 0, 0]
    reply = http.publish(name, *({"value": 2, "partition": p} for p in range(4)), query="?acks=table")
    assert reply.json["records"] == [[0, 1], [1, 2], [2, 0], [3, 0]]
    keys = [f"k{i}" for i in range(40)]
    reply = http.publish(name, *({"value": 3, "key": key} for key in keys))
    assert [place[0] for place in reply.json["records"]] == [partition_of(key.encode(), 4) for key in keys]
    history = json.loads(opened(http, name).metadata().configuration[delta_names.PROPERTY_PARTITIONS_HISTORY])
    assert history == [{"partitions": 2, "first_offsets": []}, {"partitions": 4, "first_offsets": [1, 2]}]


@pytest.mark.rule("KF23")
def test_keys_are_placed_by_the_partitioner_that_a_topic_was_made_with(http: Http, name: str) -> None:
    http.create(name, 4, partitioner="murmur2")
    keys = [f"k{number}" for number in range(20)]
    reply = http.publish(name, *({"value": 1, "key": key} for key in keys))
    wanted = [MURMUR2.partition_of(key.encode(), 4) for key in keys]
    assert [place[0] for place in reply.json["records"]] == wanted
    one_by_one = [http.publish(name, {"value": 1, "key": key}).json["records"][0][0] for key in keys]
    assert one_by_one == wanted
    in_columns = http.arrow(name, pa.table({"key": keys, "value": keys})).json["partitions"]
    assert {part["partition"]: part["count"] for part in in_columns} == Counter(wanted)
    refused(http.json("PATCH", f"/v1/topics/{name}", {"config": {"partitioner": "xxhash64"}}), 422, "invalid_config")
    # Who has placed keys says by what.
    sent = {"value": 1, "key": "k", "partition": 3}
    reply = http.publish(name, sent, Silt_Partition_Count="4")
    refused(reply, 409, "partition_count_changed", "murmur2")
    assert (reply.json["partitions"], reply.json["partitioner"]) == (4, "murmur2")
    assert http.publish(name, sent, Silt_Partition_Count="4", Silt_Partitioner="murmur2").status == 200
    assert http.publish(name, sent).status == 200
    for headers in ({"Silt_Partitioner": "murmur2"}, {"Silt_Partition_Count": "4", "Silt_Partitioner": "crc32"}):
        refused(http.publish(name, sent, **headers), 400, "invalid_parameter", "Silt-Partitioner")


@pytest.mark.rule("C5")
def test_clients_that_hash_learn_of_it_after_duplicates_are_answered(http: Http, name: str) -> None:
    http.create(name, 2)
    producer = {"Silt_Producer_Id": "p", "Silt_Partition_Count": "2"}
    sent = {"value": 1, "partition": 1, "sequence": 0}
    first = http.publish(name, sent, **producer)
    assert first.status == 200
    changed(http, name, {"partitions": 3})
    again = http.publish(name, sent, **producer)
    assert (again.json["records"], again.json["partitions"][0]["duplicate"]) == (first.json["records"], True)
    reply = http.publish(name, sent | {"sequence": 1}, **producer)
    refused(reply, 409, "partition_count_changed")
    assert reply.json["partitions"] == 3
    refused(http.publish(name, sent | {"sequence": 2}, **producer), 409, "partition_count_changed")
    refused(http.publish(name, sent | {"partition": 7}, **producer), 409, "partition_count_changed")
    refused(http.publish(name, {"value": 1, "partition": 7}, Silt_Partition_Count="8"), 409, "partition_count_changed")
    producer["Silt_Partition_Count"] = "3"
    refused(http.publish(name, sent | {"sequence": 2}, **producer), 409, "out_of_order_sequence")
    assert http.publish(name, sent | {"sequence": 1}, **producer).json["records"] == [[1, 1]]
    assert http.publish(name, {"value": 2, "partition": 2, "sequence": 0}, **producer).json["records"] == [[2, 0]]


@pytest.mark.rule("C1")
def test_a_topic_grows_while_producers_run(http: Http, name: str) -> None:
    """Nothing is lost or doubled, and the history says of every record by which count it was placed."""
    http.create(name, 1, flush_ms=30)
    stopping = threading.Event()
    failures: list[BaseException] = []
    sent = [0, 0, 0]

    def library() -> None:
        with Producer(http.url, linger_ms=1) as producer:
            while not stopping.is_set():
                for _ in range(20):
                    producer.send(name, f"lib {sent[0]}", key=f"k{sent[0] % 97}")
                    sent[0] += 1
                producer.flush()

    def plain(index: int) -> Callable[[], None]:
        def run() -> None:
            while not stopping.is_set():
                record = {"value": f"plain{index} {sent[index]}", "key": f"k{sent[index] % 89}"}
                reply = http.publish(name, record)
                assert reply.status == 200, reply
                sent[index] += 1

        return run

    def guarded(work: Callable[[], None]) -> Callable[[], None]:
        def run() -> None:
            try:
                work()
            except BaseException as error:
                failures.append(error)

        return run

    threads = [threading.Thread(target=guarded(work)) for work in (library, plain(1), plain(2))]
    for thread in threads:
        thread.start()
    try:
        for count in (2, 3, 5, 8):
            before = list(sent)
            eventually(
                lambda before=before: bool(failures) or all(a >= b + 25 for a, b in zip(sent, before, strict=True))
            )
            assert changed(http, name, {"partitions": count, "config": {"flush.ms": 30 + count}})["partitions"] == count
        before = list(sent)
        eventually(lambda: bool(failures) or all(a >= b + 25 for a, b in zip(sent, before, strict=True)))
    finally:
        stopping.set()
        for thread in threads:
            thread.join(WAIT_S)
    assert not failures
    history = json.loads(opened(http, name).metadata().configuration[delta_names.PROPERTY_PARTITIONS_HISTORY])
    assert [entry["partitions"] for entry in history] == [1, 2, 3, 5, 8]
    found: list[str] = []
    for partition in range(8):
        for record in http.read(name, partition, "values=text"):
            count = count_at(history, partition, record["offset"])
            assert partition == partition_of(record["key"].encode(), count), (record, history)
            found.append(record["value"])
    names_ = ("lib", "plain1", "plain2")
    assert sorted(found) == sorted(f"{names_[i]} {n}" for i in range(3) for n in range(sent[i]))


def count_at(history: list[dict[str, Any]], partition: int, offset: int) -> int:
    """Tells by which partition count a record was placed."""
    held: int = history[0]["partitions"]
    for entry in history[1:]:
        firsts = entry["first_offsets"]
        if partition >= len(firsts) or offset >= firsts[partition]:
            held = entry["partitions"]
    return held


def test_a_poll_of_all_partitions_goes_on_over_a_growth(http: Http, name: str) -> None:
    http.create(name, 1)
    positions = [{"topic": name, "partition": 0, "offset": 0}]
    waiting: list[Reply] = []
    document = {"partitions": positions, "wait_ms": 20_000}
    poll = threading.Thread(target=lambda: waiting.append(http.json("POST", "/v1/fetch", document)))
    poll.start()
    changed(http, name, {"partitions": 2})
    assert http.publish(name, {"value": 1, "partition": 1}).status == 200
    assert http.publish(name, {"value": 2, "partition": 0}).status == 200
    poll.join(WAIT_S)
    assert [record["value"] for record in waiting[0].json["records"]] == ["2"]


@pytest.mark.slow
def test_what_was_changed_outlives_a_restart(tmp_path: Path) -> None:
    server = ServerProcess(tmp_path / "data", {"redis_url": "redis://127.0.0.1:1/0"})
    server.start()
    try:
        http = Http(server.url)
        http.create("t", 1, flush_ms=3_600_000, retention_ms=9)
        assert http.publish("t", {"value": 0}).status == 200
        changed(http, "t", {"partitions": 3, "config": {"retention.ms": None, "acks": "wal"}})
        for partition in range(3):
            assert http.publish("t", {"value": partition + 1, "partition": partition}).status == 200
        before = http.get("/v1/topics/t").json
        server.kill()
        server.start()
        after = http.get("/v1/topics/t").json
        for bounds in (*before["offsets"], *after["offsets"]):
            del bounds["head_bytes"]  # it was in memory, and is by its frames alone now
        assert after == before
        assert [len(http.read("t", p)) for p in range(3)] == [2, 1, 1]
        assert changed(http, "t", {"partitions": 4})["partitions"] == 4
        assert server.stop() == 0
        server.start()
        assert http.publish("t", *({"value": 9, "partition": p} for p in range(4)), query="?acks=table").status == 200
        history = json.loads(opened(http, "t").metadata().configuration[delta_names.PROPERTY_PARTITIONS_HISTORY])
        assert [entry["first_offsets"] for entry in history] == [[], [1], [2, 1, 1]]
    finally:
        server.stop()
