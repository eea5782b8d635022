"""The object store goes away and comes back; and the whole way through on a disk and on S3, with a kill in it."""

import contextlib
import random
import signal
import threading
import time
import uuid
from collections import Counter
from typing import Any

import pytest
from evidence import check, read_api, read_table
from failure_rig import StartServer
from publishers import ARROW, FILLER, LOST, Ledger, Wire, arrow_body, start_publishers
from s3_server import S3Server
from s3_storm import Storm

from siltlog import Admin, Consumer, Producer
from siltlog.infra.store.store import open_store

PARTITIONS = 2
RECORDS = 1_500


def on_s3(server: S3Server) -> dict[str, Any]:
    return {
        "root": server.root_uri(f"run-{uuid.uuid4().hex[:8]}"),
        "s3_endpoint": server.endpoint,
        "s3_region": server.region,
    }


def options(server: S3Server, root: str) -> dict[str, str]:
    return open_store(root, s3_endpoint=server.endpoint, s3_region=server.region).storage_options()


def caught_up(wire: Wire, topic: str) -> bool:
    return all(entry["table_offset"] == entry["high_watermark"] for entry in wire.offsets(topic))


@pytest.mark.s3
@pytest.mark.slow
def test_the_store_stands_still_for_a_while(make_server: StartServer, own_s3: S3Server, rng: random.Random) -> None:
    server = make_server(**on_s3(own_s3), flush_ms=100)
    server.start()
    wire = Wire(server.url)
    wire.create("logs", PARTITIONS)
    ledger = Ledger()
    publishers = start_publishers(server.url, "logs", PARTITIONS, ledger, rng, plain=1, idempotent=1)
    time.sleep(1.0)
    own_s3.process.send_signal(signal.SIGSTOP)

    # Publishing goes on until the log's budget is used; then it says so, and when to come back.
    deadline = time.monotonic() + 60
    taken = 0
    while True:
        values = [f"filler:{taken + n} {FILLER}" for n in range(60)]
        reply = wire.call("POST", "/v1/topics/logs/records?partition=0", arrow_body(values), **ARROW)
        if reply.status != 200:
            break
        first = reply.document["partitions"][0]["first_offset"]
        ledger.acked.update({value: (0, first + n) for n, value in enumerate(values)})
        taken += len(values)
        assert time.monotonic() < deadline
    assert (reply.status, reply.error_code) == (503, "wal_full")
    assert reply.document["retry_after_ms"] > 0 and taken * len(FILLER) > 1 << 20
    raw = wire.raw("POST", "/v1/topics/logs/records?partition=0", arrow_body(values), **ARROW)
    assert raw.status == 503 and int(raw.headers["Retry-After"]) > 0
    assert "wal_full" in str(wire.ready().document) or wire.ready().status == 200
    # The newest records, which are all in the head, stay readable.
    for entry in wire.offsets("logs"):
        path = f"/v1/topics/logs/partitions/{entry['partition']}/records?offset={entry['table_offset']}"
        reply = wire.call("GET", path + "&max_records=1000000&max_bytes=67108864")
        assert reply.status == 200
        assert reply.document["next_offset"] > entry["table_offset"] or entry["table_offset"] == entry["high_watermark"]

    own_s3.process.send_signal(signal.SIGCONT)
    deadline = time.monotonic() + 120
    while wire.call("POST", "/v1/topics/logs/records", {"records": [{"value": "after:0 x"}]}).status != 200:
        assert time.monotonic() < deadline
        time.sleep(0.2)
    ledger.unknown.add("after:0 x")
    for publisher in publishers:
        publisher.finish()
    while not caught_up(wire, "logs"):
        assert time.monotonic() < deadline
        time.sleep(0.2)
    found = read_api(wire, "logs", PARTITIONS)
    check(found, ledger)
    assert server.stop() == 0
    assert read_table(server.root, "logs", options(own_s3, server.root)) == sorted(found)


@pytest.mark.s3
@pytest.mark.slow
def test_the_store_is_killed_and_comes_back(make_server: StartServer, own_s3: S3Server, rng: random.Random) -> None:
    """Nothing listens for a while; topics that were to be made meanwhile are told so, and can be made later."""
    server = make_server(**on_s3(own_s3), flush_ms=100)
    server.start()
    wire = Wire(server.url, timeout_s=120)
    wire.create("logs", PARTITIONS)
    ledger = Ledger()
    publishers = start_publishers(server.url, "logs", PARTITIONS, ledger, rng, plain=1, idempotent=1)
    for publisher in publishers:
        publisher.pause_s = 0.05
    time.sleep(0.7)
    own_s3.process.kill()
    own_s3.process.wait()
    reply = wire.call("POST", "/v1/topics", {"name": "later", "partitions": 1})
    assert (reply.status, reply.error_code) == (503, "topic_unavailable"), reply
    own_s3.restart()
    assert wire.call("POST", "/v1/topics", {"name": "later", "partitions": 1}).status == 201
    for publisher in publishers:
        publisher.finish()
    deadline = time.monotonic() + 60
    while not caught_up(wire, "logs"):
        assert time.monotonic() < deadline
        time.sleep(0.2)
    found = read_api(wire, "logs", PARTITIONS)
    check(found, ledger)
    assert server.stop() == 0
    assert read_table(server.root, "logs", options(own_s3, server.root)) == sorted(found)


@pytest.mark.s3
@pytest.mark.slow
def test_a_stop_while_the_store_stands_still(make_server: StartServer, own_s3: S3Server) -> None:
    server = make_server(**on_s3(own_s3), flush_ms=100, drain_ms=3_000)
    server.start()
    wire = Wire(server.url)
    wire.create("logs", 1)
    ledger = Ledger()
    own_s3.process.send_signal(signal.SIGSTOP)
    for number in range(50):
        reply = wire.call("POST", "/v1/topics/logs/records", {"records": [{"value": f"writer:{number} x"}]})
        assert reply.status == 200
        ledger.acked[f"writer:{number} x"] = (0, reply.document["records"][0][1])
    time.sleep(0.5)
    assert server.stop() == 0, "it was killed, because it did not end by itself"
    own_s3.process.send_signal(signal.SIGCONT)
    server.start()
    check(read_api(Wire(server.url), "logs", 1), ledger)
    assert server.stop() == 0
    assert len(read_table(server.root, "logs", options(own_s3, server.root))) == len(ledger.acked)


@pytest.mark.s3
@pytest.mark.slow
def test_a_creation_that_got_no_answer_can_be_finished(make_server: StartServer, own_s3: S3Server) -> None:
    server = make_server(**on_s3(own_s3), flush_ms=100)
    server.start()
    wire = Wire(server.url, timeout_s=120)
    own_s3.process.send_signal(signal.SIGSTOP)

    def create() -> None:
        with contextlib.suppress(*LOST):
            wire.create("logs", 1)

    creating = threading.Thread(target=create)
    creating.start()
    creating.join(2.0)
    server.kill()
    creating.join()
    own_s3.process.send_signal(signal.SIGCONT)
    server.start()
    wire = Wire(server.url)
    again = wire.call("PUT", "/v1/topics/logs", {"partitions": 1})
    assert again.status in (200, 201), again
    assert wire.call("POST", "/v1/topics/logs/records?acks=table", {"records": [{"value": "x"}]}).status == 200


@pytest.mark.s3
@pytest.mark.slow
@pytest.mark.parametrize("way", [signal.SIGSTOP, signal.SIGKILL])
def test_a_store_that_is_away_is_told_of_though_nobody_publishes(
    make_server: StartServer, own_s3: S3Server, way: signal.Signals
) -> None:
    server = make_server(**on_s3(own_s3))
    server.start()
    wire = Wire(server.url)

    def told(expected: bool) -> None:
        deadline = time.monotonic() + 120
        while any("the object store at s3://" in said for said in wire.ready().document["warnings"]) is not expected:
            assert time.monotonic() < deadline
            time.sleep(0.1)

    told(False)
    own_s3.process.send_signal(way)
    told(True)
    assert wire.ready().status == 200, "what is published is on this disk"
    if way == signal.SIGKILL:
        own_s3.process.wait()
    own_s3.go_on()
    told(False)
    assert server.stop() == 0


@pytest.mark.parametrize("where", ["disk", pytest.param("s3", marks=pytest.mark.s3)])
@pytest.mark.slow
def test_from_end_to_end_with_a_kill_in_the_middle(
    make_server: StartServer, rng: random.Random, request: pytest.FixtureRequest, where: str
) -> None:
    s3: S3Server | None = request.getfixturevalue("s3_server") if where == "s3" else None
    server = make_server(groups=True, flush_ms=200, **(on_s3(s3) if s3 else {}))
    server.start()
    with Admin(server.url) as admin:
        admin.create_topic("logs", PARTITIONS)
    sent = [f"record {n}" for n in range(RECORDS)]
    read: list[tuple[int, int, str]] = []
    enough = threading.Event()

    def consume() -> None:
        with Consumer(server.url, group="readers", topics=["logs"]) as consumer:
            while not enough.is_set():
                read.extend(
                    (record.partition, record.offset, record.text()) for record in consumer.poll(timeout_ms=500)
                )
                consumer.commit()
                if len({value for _, _, value in read}) == RECORDS:
                    return

    consuming = threading.Thread(target=consume, daemon=True)
    consuming.start()
    with Producer(server.url) as producer:
        deliveries = []
        kill_at = rng.randrange(RECORDS // 3, 2 * RECORDS // 3)
        for number, value in enumerate(sent):
            deliveries.append(producer.send("logs", value, key=str(number % 97)))
            if number == kill_at:
                deliveries[0].result(60)
                server.kill()
                server.start()
        places = [(delivery.result(120).partition, delivery.result().offset) for delivery in deliveries]
    consuming.join(60)
    enough.set()
    consuming.join(30)
    rows = [(partition, offset, value) for (partition, offset), value in zip(places, sent, strict=True)]
    assert sorted(set(read)) == sorted(rows)
    found = read_api(Wire(server.url), "logs", PARTITIONS)
    assert sorted(found) == sorted(rows)
    assert Counter(value for _, _, value in found) == Counter(sent)
    assert server.stop() == 0
    storage = options(s3, server.root) if s3 else None
    assert read_table(server.root, "logs", storage) == sorted(rows)


@pytest.mark.s3
@pytest.mark.slow
def test_a_storm_of_503(make_server: StartServer, s3_server: S3Server, rng: random.Random) -> None:
    """Everything is answered with SlowDown for a while, some of it for longer; publishing goes on beside it."""
    storm = Storm(s3_server.endpoint)
    try:
        server = make_server(
            **{**on_s3(s3_server), "s3_endpoint": storm.endpoint}, flush_ms=100, wal_bytes_max=24 << 20
        )
        server.start()
        wire = Wire(server.url)
        wire.create("logs", PARTITIONS)
        ledger = Ledger()
        publishers = start_publishers(server.url, "logs", PARTITIONS, ledger, rng, plain=1, idempotent=1)
        for publisher in publishers:
            publisher.pause_s = 0.02
        for _ in range(2):
            storm.raging = not storm.raging
            time.sleep(0.6)
        storm.raging = True
        while not any("logs" in warning for warning in wire.ready().document["warnings"]):
            time.sleep(0.1)
        assert wire.ready().status == 200
        reply = wire.call("POST", "/v1/topics/logs/records", {"records": [{"value": "storm:0 x"}]})
        assert reply.status == 200
        ledger.acked["storm:0 x"] = tuple(reply.document["records"][0])
        storm.raging = False
        for publisher in publishers:
            publisher.finish()
        deadline = time.monotonic() + 60
        while not caught_up(wire, "logs"):
            assert time.monotonic() < deadline
            time.sleep(0.2)
        assert storm.refused > 0
        found = read_api(wire, "logs", PARTITIONS)
        check(found, ledger)
        assert server.stop() == 0
        assert read_table(server.root, "logs", options(s3_server, server.root)) == sorted(found)
    finally:
        storm.close()
