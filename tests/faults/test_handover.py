"""Two data dirs and one root: who may write, and what happens to what the other had."""

import random
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from evidence import check, read_api, read_table
from failure_rig import NEVER_FLUSHED, StartServer, refused, set_aside
from publishers import Ledger, Wire, start_publishers
from push_rig import tailing

from siltlog import Consumer, TopicPartition
from siltlog.infra import names
from siltlog.infra.clock import SystemClock
from siltlog.infra.errors import ConfigError
from siltlog.infra.store.store import open_store
from siltlog.infra.table.table import TopicTable
from siltlog.server_process import ServerProcess

PARTITIONS = 2
JUMP = 1 << 32
TABLE = "/v1/topics/logs/records?acks=table"
PRODUCER = {"Silt_Producer_Id": "0b6ce8e0-9b0e-4b5a-8d3c-2f1f7e1e9f00"}


def records(first: int, count: int, partition: int = 0) -> dict[str, object]:
    numbers = range(first, first + count)
    return {"records": [{"value": f"v{n}", "partition": partition, "sequence": n} for n in numbers]}


def gaps(server: ServerProcess, topic: str, partition: int) -> list[tuple[int, int]]:
    return TopicTable.open(open_store(server.root), topic, SystemClock()).snapshot.gaps(partition)


def publish(wire: Wire, topic: str, values: list[str], partition: int = 0) -> int:
    """The first offset."""
    body = {"records": [{"value": value, "partition": partition} for value in values]}
    reply = wire.call("POST", f"/v1/topics/{topic}/records", body)
    assert reply.status == 200, reply
    first: int = reply.document["partitions"][0]["first_offset"]
    return first


@pytest.mark.rule("T2")
@pytest.mark.slow
def test_a_second_server_is_refused_and_taking_over_fences_the_first(
    make_server: StartServer, rng: random.Random
) -> None:
    first = make_server("first")
    first.start()
    wire = Wire(first.url)
    wire.create("logs", PARTITIONS)
    ledger = Ledger()
    publishers = start_publishers(first.url, "logs", PARTITIONS, ledger, rng, plain=2, idempotent=0)
    time.sleep(0.7)

    second = make_server("second", root=first.root)
    said = refused(second)
    assert "topic logs, partitions 0, 1" in said and "--take-over" in said
    assert wire.ready().status == 200

    second.start("--take-over")
    deadline = time.monotonic() + 30
    while wire.ready().status == 200:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    reply = wire.call("POST", "/v1/topics/logs/records", {"records": [{"value": "late"}]})
    assert (reply.status, reply.error_code) == (503, "topic_unavailable")
    assert "logs" in str(wire.ready().document) and "fenced" in str(wire.ready().document)
    for publisher in publishers:
        publisher.finish()
    assert first.stop() == 0

    there = Wire(second.url)
    for partition in range(PARTITIONS):
        assert publish(there, "logs", ["new"], partition) == JUMP
        ((start, end),) = gaps(second, "logs", partition)
        assert start < end == JUMP
    found = read_api(there, "logs", PARTITIONS)
    old = [row for row in found if row.offset < JUMP]
    assert [row for row in found if row.offset >= JUMP] == [(p, JUMP, "new") for p in range(PARTITIONS)]

    # What the first acknowledged and could not flush any more is set aside, not lost, when its data dir is used again.
    assert second.stop() == 0
    first.start()
    check(sorted([*old, *set_aside(first)]), ledger)
    assert sorted(read_api(Wire(first.url), "logs", PARTITIONS)) == sorted(found)
    assert first.stop() == 0
    assert read_table(first.root, "logs") == sorted(found)


@pytest.mark.slow
def test_what_a_lost_server_left_in_its_log_is_set_aside_when_it_comes_back(make_server: StartServer) -> None:
    first = make_server("first", **NEVER_FLUSHED)
    first.start()
    wire = Wire(first.url)
    wire.create("logs", 1)
    assert publish(wire, "logs", ["a", "b"]) == 0
    first.kill()

    second = make_server("second", root=first.root)
    assert "topic logs, partitions 0:" in refused(second)
    second.start("--take-over")
    there = Wire(second.url)
    assert publish(there, "logs", ["c"]) == JUMP
    assert gaps(second, "logs", 0) == [(0, JUMP)]
    second.kill()
    second.start()
    assert publish(there, "logs", ["d"]) == JUMP + 1

    assert "topic logs, partitions 0:" in refused(first)
    assert second.stop() == 0
    first.start()
    assert set_aside(first) == [(0, 0, "a"), (0, 1, "b")]
    assert publish(Wire(first.url), "logs", ["e"]) == JUMP + 2
    assert [row.value for row in read_api(Wire(first.url), "logs", 1)] == ["c", "d", "e"]
    assert first.stop() == 0
    assert [row.value for row in read_table(first.root, "logs")] == ["c", "d", "e"]


def test_taking_over_twice_jumps_twice(make_server: StartServer) -> None:
    servers = [make_server("one")]
    servers += [make_server(name, root=servers[0].root) for name in ("two", "three")]
    for number, server in enumerate(servers):
        server.start(*(["--take-over"] if number else []))
        wire = Wire(server.url)
        if not number:
            wire.create("logs", 1)
        assert publish(wire, "logs", ["x"]) == number * JUMP
        wire.call("POST", "/v1/topics/logs/records?acks=table", {"records": [{"value": "y"}]})
        server.kill()
    last = servers[-1]
    last.start()
    assert gaps(last, "logs", 0) == [(2, JUMP), (JUMP + 2, 2 * JUMP)]
    offsets = [row.offset for row in read_api(Wire(last.url), "logs", 1)]
    assert offsets == [0, 1, JUMP, JUMP + 1, 2 * JUMP, 2 * JUMP + 1]
    assert publish(Wire(last.url), "logs", ["z"]) == 2 * JUMP + 2


def test_offsets_that_were_jumped_are_no_records_that_somebody_is_behind(make_server: StartServer) -> None:
    first = make_server("one")
    first.start()
    wire = Wire(first.url)
    wire.create("logs", 1)
    assert wire.call("POST", TABLE, records(0, 3), **PRODUCER).status == 200
    first.kill()
    second = make_server("two", root=first.root, groups=True)
    second.start("--take-over")
    wire = Wire(second.url)
    place = TopicPartition("logs", 0)

    def counted(offset: int) -> tuple[int, int, int]:
        """The records of the topic, and of those that a group and a consumer at the offset are behind."""
        commit = {"offsets": [{"topic": "logs", "partition": 0, "offset": offset}]}
        assert wire.call("PUT", "/v1/groups/g/offsets", commit).status == 204
        [progress] = wire.call("GET", "/v1/groups/g").document["partitions"]
        with Consumer(second.url, assign=[place]) as consumer:
            consumer.seek(place.topic, place.partition, offset)
            lag = consumer.lag()[place]
        assert (lag.records == 0) is (progress["lag"] == 0) is (lag.seconds == 0.0) is (progress["lag_seconds"] == 0.0)
        return wire.call("GET", "/v1/topics/logs").document["records"], progress["lag"], lag.records

    assert (counted(1), counted(3)) == ((3, 2, 2), (3, 0, 0))
    assert publish(wire, "logs", ["x", "y"]) == JUMP
    assert (counted(1), counted(3), counted(JUMP + 1)) == ((5, 4, 4), (5, 2, 2), (5, 1, 1))
    shown: dict[str, object] = {}
    with tailing(second.url, "/v1/events?kinds=topics,groups") as stream:
        while len(shown) < 2:
            told = stream.next()
            assert told is not None
            data = told.data or {}
            shown |= {row["name"]: row["records"] for row in data.get("topics", ()) if row["name"] == "logs"}
            shown |= {row["group"]: row["lag"] for row in data.get("groups", ()) if row["lag"]}
    assert shown == {"logs": 5, "g": 1}
    [offsets] = wire.call("GET", "/v1/topics/logs/offsets").document["partitions"]
    assert (offsets["high_watermark"], offsets["gaps"]) == (JUMP + 2, [[3, JUMP]])


@pytest.mark.rule("T3")
def test_after_a_clean_stop_another_data_dir_goes_on_with_the_producers(make_server: StartServer) -> None:
    first = make_server("first")
    first.start()
    wire = Wire(first.url)
    wire.create("logs", PARTITIONS)
    offsets = {}
    for start in range(0, 300, 10):
        reply = wire.call("POST", "/v1/topics/logs/records", records(start, 10), **PRODUCER)
        assert reply.status == 200
        offsets[start] = reply.document["partitions"][0]["first_offset"]
    assert first.stop() == 0

    second = make_server("second", root=first.root)
    second.start()
    there = Wire(second.url)
    for start in (290, 0, 150):
        again = there.call("POST", "/v1/topics/logs/records", records(start, 10), **PRODUCER)
        assert again.status == 200, again
        (partition,) = again.document["partitions"]
        assert partition["duplicate"] and partition["first_offset"] in (offsets[start], None)
    assert publish(there, "logs", ["other"]) == 300
    onward = there.call("POST", "/v1/topics/logs/records", records(300, 10), **PRODUCER)
    assert (onward.status, onward.document["partitions"][0]["first_offset"]) == (200, 301)
    gap = there.call("POST", "/v1/topics/logs/records", records(400, 10), **PRODUCER)
    assert (gap.status, gap.error_code) == (409, "out_of_order_sequence")
    assert not gaps(second, "logs", 0)

    # The first has nothing of its own left to say, but may not go on beside the second either.
    assert "topic logs, partitions 0, 1" in refused(first)
    assert second.stop() == 0
    first.start()
    again = Wire(first.url).call("POST", "/v1/topics/logs/records", records(300, 10), **PRODUCER)
    assert again.status == 200 and again.document["partitions"][0]["duplicate"]


@pytest.mark.parametrize("left_behind", ["state", "rows"])
def test_producers_survive_a_takeover(make_server: StartServer, left_behind: str) -> None:
    """They are read from the state objects beside the table, or, where there are none, from its rows."""
    first = make_server("first")
    first.start()
    wire = Wire(first.url)
    wire.create("logs", 1)
    for start in (0, 10):
        path = "/v1/topics/logs/records?acks=table"
        assert wire.call("POST", path, records(start, 10), **PRODUCER).status == 200
    first.kill()
    if left_behind == "rows":
        for path in (Path(first.data_dir) / "lake").rglob(f"{names.STATE_FOLDER}/*/*/*"):
            path.unlink()
    second = make_server("second", root=first.root)
    second.start("--take-over")
    there = Wire(second.url)
    again = there.call("POST", "/v1/topics/logs/records", records(10, 10), **PRODUCER)
    assert again.status == 200 and again.document["partitions"][0]["duplicate"], again
    onward = there.call("POST", "/v1/topics/logs/records", records(20, 10), **PRODUCER)
    assert (onward.status, onward.document["partitions"][0]["first_offset"]) == (200, JUMP)


@pytest.mark.slow
def test_two_servers_that_take_over_at_once(make_server: StartServer) -> None:
    """Each serves, is fenced, or says why it will not start; what was acknowledged from the table is there once."""
    first = make_server("first")
    first.start()
    wire = Wire(first.url)
    wire.create("logs", 1)
    expected = {wire.call("POST", TABLE, {"records": [{"value": "a"}]}).document["records"][0][1]: "a"}
    for life in range(3):
        racers = [make_server(f"racer-{life}-{n}", root=first.root) for n in range(2)]
        if life == 0:
            first.kill()
        with ThreadPoolExecutor(2) as threads:
            starts = [threads.submit(racer.start, "--take-over") for racer in racers]
        for racer, start in zip(racers, starts, strict=True):
            if start.exception() is not None:
                assert isinstance(start.exception(), ConfigError) and "Traceback" not in str(start.exception())
                continue
            value = racer.data_dir.name
            reply = Wire(racer.url).call("POST", TABLE, {"records": [{"value": value}]})
            if reply.status == 200:
                ((_, offset),) = reply.document["records"]
                assert offset not in expected
                expected[offset] = value
            else:
                assert reply.error_code in ("topic_unavailable", "ack_timeout"), reply
        for racer in racers:
            if racer.running:
                racer.kill()
    assert len(expected) > 1
    assert {row.offset: row.value for row in read_table(first.root, "logs")} == expected
