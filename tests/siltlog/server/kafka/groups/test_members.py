"""Members of classic groups by real clients and by their frames."""

import queue
import socket
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import started
from access_rig import secured_server
from classic_rig import assignment, subscription
from http_rig import NO_REDIS, Http
from java_members import JavaMembers
from kafka import KafkaConsumer
from kafka.structs import OffsetAndMetadata
from kafka.structs import TopicPartition as Position
from kafka_members import Reader, member_for_ever, until
from kafka_rig import WAIT_SECONDS, Tape, bootstrap_of, free_port, producer, served
from redis import Redis

from siltlog.cli.main import run
from siltlog.infra.kafka.errors import KafkaError
from siltlog.infra.security.keys import read_key
from siltlog.server_process import ServerProcess
from siltlog.testing import running_server

JOIN, HEARTBEAT, LEAVE, SYNC = 11, 12, 13, 14
PARTITIONS = 4
RECORDS = 40


@pytest.fixture(scope="module")
def grouped() -> Iterator[tuple[Http, str]]:
    """A client of HTTP, and the address for clients of Kafka."""
    settings = {"group_initial_rebalance_delay_ms": 100, "flush_ms": 200}
    with running_server(kafka_listen=f"127.0.0.1:{free_port()}", **settings) as server:
        yield Http(server.url), bootstrap_of(server)


def fill(http: Http, bootstrap: str, topic: str, count: int = RECORDS) -> None:
    http.create(topic, partitions=PARTITIONS)
    more(bootstrap, topic, count)


def more(bootstrap: str, topic: str, count: int = RECORDS) -> None:
    with producer(bootstrap) as made:
        for number in range(count):
            made.produce(topic, str(number).encode(), partition=number % PARTITIONS)


@pytest.mark.parametrize("strategy", ["range", "roundrobin", "cooperative-sticky"])
def test_two_share_and_one_takes_over(grouped: tuple[Http, str], strategy: str) -> None:
    http, bootstrap = grouped
    topic = f"shared-{strategy}"
    fill(http, bootstrap, topic)
    a = Reader(bootstrap, topic, topic, partition_assignment_strategy=strategy)
    until(lambda: len(a.held()) == PARTITIONS, a)
    b = Reader(bootstrap, topic, topic, partition_assignment_strategy=strategy, client_id="b")
    until(lambda: len(a.held()) == len(b.held()) == 2 and len(a.read) + len(b.read) == RECORDS, a, b)
    group = http.get(f"/v1/groups/{topic}").json
    assert (group["type"], group["state"], group["phase"], group["protocol"]) == (
        "classic",
        "stable",
        "stable",
        strategy,
    )
    held = {member["client_id"]: {at["partition"] for at in member["assignment"]} for member in group["members"]}
    assert held["b"] == b.held() and {member["client_host"] for member in group["members"]} == {"127.0.0.1"}
    assert [member["topics"] for member in group["members"]] == [[topic], [topic]]
    b.consumer.close()
    more(bootstrap, topic)
    until(lambda: len(a.read) + len(b.read) == 2 * RECORDS, a)
    a.consumer.close()
    times = Counter([*a.read, *b.read])
    twice = [at for at, count in times.items() if count > 1]
    assert (twice, len(times)) == ([], 2 * RECORDS), [(at, at in a.read, at in b.read) for at in twice]
    assert http.get(f"/v1/groups/{topic}").json["state"] == "empty"


@pytest.mark.rule("KF14")
def test_a_member_is_killed(grouped: tuple[Http, str]) -> None:
    http, bootstrap = grouped
    fill(http, bootstrap, "killed")
    told = started.queue()
    victim = started.process(member_for_ever, bootstrap, "killed", "killed", told)
    victim.start()
    a = Reader(bootstrap, "killed", "killed")
    read: list[tuple[int, int]] = []

    def drained() -> int:
        try:
            while True:
                read.append(told.get_nowait())
        except queue.Empty:
            return len(read)

    until(lambda: len(a.held()) == 2 and len(a.read) + drained() == RECORDS, a)
    victim.kill()
    victim.join()
    more(bootstrap, "killed")
    until(lambda: len(a.held()) == PARTITIONS and len(a.read) + drained() == 2 * RECORDS, a)
    a.consumer.close()
    assert Counter([*a.read, *read]) == Counter({(at % PARTITIONS, at // PARTITIONS): 1 for at in range(2 * RECORDS)})


@pytest.mark.rule("KF15")
def test_a_static_member_comes_back(grouped: tuple[Http, str], capsys: pytest.CaptureFixture[str]) -> None:
    http, bootstrap = grouped
    fill(http, bootstrap, "static")
    a = Reader(bootstrap, "static", "static", group_instance_id="a")
    b = Reader(bootstrap, "static", "static", group_instance_id="b")
    until(lambda: len(a.held()) == len(b.held()) == 2 and len(a.read) + len(b.read) == RECORDS, a, b)
    before = http.get("/v1/groups/static").json
    held = b.held()
    b.consumer.close()
    c = Reader(bootstrap, "static", "static", group_instance_id="b")
    until(lambda: c.held() == held, a, c)
    after = http.get("/v1/groups/static").json
    assert (after["generation"], after["state"]) == (before["generation"], "stable")
    assert {member["instance_id"] for member in after["members"]} == {"a", "b"}
    assert {member["member_id"] for member in after["members"]} != {member["member_id"] for member in before["members"]}
    assert run(["group", "describe", "static", "--url", http.url]) == 0
    shown = capsys.readouterr().out
    assert all(
        word in shown for word in ("classic", "phase", "127.0.0.1", "rdkafka", f"static {min(held)}, {max(held)}")
    )
    assert run(["group", "list", "--url", http.url]) == 0
    assert ["static", "classic", "stable", "2"] in [line.split() for line in capsys.readouterr().out.splitlines()]
    for reader in (a, c):
        reader.consumer.close()


def test_members_of_two_libraries(grouped: tuple[Http, str]) -> None:
    http, bootstrap = grouped
    fill(http, bootstrap, "mixed")
    a = Reader(bootstrap, "mixed", "mixed", partition_assignment_strategy="range")
    until(lambda: len(a.held()) == PARTITIONS, a)
    reads = KafkaConsumer(
        "mixed",
        bootstrap_servers=bootstrap,
        group_id="mixed",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        heartbeat_interval_ms=100,
        max_poll_records=5,
    )
    found: list[tuple[int, int]] = []

    def turn() -> int:
        for records in reads.poll(50).values():
            last = records[-1]
            at = Position("mixed", last.partition)
            reads.commit({at: OffsetAndMetadata(last.offset + 1, "", -1)})
            found.extend((record.partition, record.offset) for record in records)
        return len(found)

    until(lambda: turn() >= 0 and len(a.held()) == 2 and len(reads.assignment()) == 2, a)
    more(bootstrap, "mixed")
    until(lambda: turn() + len(a.read) == 2 * RECORDS, a)
    a.consumer.close()
    more(bootstrap, "mixed", PARTITIONS)
    until(lambda: turn() + len(a.read) == 2 * RECORDS + PARTITIONS)
    reads.close()
    assert set(Counter([*a.read, *found]).values()) == {1}


@pytest.mark.rule("KF13")
@pytest.mark.parametrize("killed", ["once", "in a rebalance"])
def test_a_server_is_killed(tmp_path: Path, killed: str) -> None:
    settings = {"kafka_listen": f"127.0.0.1:{free_port()}", "group_initial_rebalance_delay_ms": 0}
    server = ServerProcess(tmp_path, settings)
    server.start()
    try:
        bootstrap = settings["kafka_listen"]
        fill(Http(server.url), str(bootstrap), "t")
        a = Reader(str(bootstrap), "g", "t", reconnect_backoff_max_ms=200, session_timeout_ms=6_000)
        until(lambda: len(a.held()) == PARTITIONS and len(a.read) > 3, a)
        b = Reader(str(bootstrap), "g", "t", reconnect_backoff_max_ms=200, session_timeout_ms=6_000)
        if killed == "once":
            until(lambda: len(a.held()) == len(b.held()) == 2, a, b)
        server.kill()
        server.start()
        more(str(bootstrap), "t")

        def have_read() -> set[tuple[int, int]]:
            return {record for reader in (a, b) for record in (*reader.read, *reader.unsure)}

        until(lambda: len(a.held()) == len(b.held()) == 2 and len(have_read()) == 2 * RECORDS, a, b)
        for reader in (a, b):
            reader.consumer.close()
        offsets = Http(server.url).get("/v1/groups/g/offsets").json["offsets"]
        assert [at["offset"] for at in offsets] == [2 * RECORDS // PARTITIONS] * PARTITIONS
    finally:
        server.stop()


def login(tape: Tape, token: str) -> dict[str, Any]:
    key = read_key(token)
    assert key is not None and tape.ask(17, 1, mechanism="PLAIN")["error_code"] == 0
    return tape.ask(36, 2, auth_bytes=f"\0{key.key_id}\0{token}".encode())


@pytest.mark.rule("KF17")
def test_redis_is_lost(valkey_url: str) -> None:
    settings = {"offsets_snapshot_ms": 50, "group_initial_rebalance_delay_ms": 0}
    with served(redis_url=valkey_url, **settings) as (http, bootstrap, _):
        fill(http, bootstrap, "lost")
        a, b = (Reader(bootstrap, "lost", "lost") for _ in range(2))
        until(lambda: len(a.held()) == len(b.held()) == 2 and len({*a.read, *b.read}) == RECORDS, a, b)
        Redis.from_url(valkey_url).flushall()
        more(bootstrap, "lost")
        until(lambda: len(a.held()) == len(b.held()) == 2 and len({*a.read, *b.read}) == 2 * RECORDS, a, b)
        # They go on, but for what was committed in the last moments: they do not begin anew.
        assert len([*a.read, *b.read]) < 2.5 * RECORDS
        for reader in (a, b):
            reader.consumer.close()


def joins(group: str, member_id: str = "", **more: Any) -> dict[str, Any]:
    return {
        "group_id": group,
        "session_timeout_ms": 10_000,
        "rebalance_timeout_ms": 10_000,
        "member_id": member_id,
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": subscription("t")}],
        **more,
    }


@pytest.mark.parametrize("version", range(10))
def test_each_version_of_a_join(grouped: tuple[Http, str], version: int) -> None:
    _, bootstrap = grouped
    group = f"versions/{version}"
    sync, beat, leave = min(version, 5), min(version, 4), min(version, 5)
    with Tape(bootstrap) as tape:
        assert tape.ask(JOIN, version, **joins(""))["error_code"] == KafkaError.INVALID_GROUP_ID
        joined = tape.ask(JOIN, version, **joins(group))
        if version >= 4:
            assert joined["error_code"] == KafkaError.MEMBER_ID_REQUIRED
            joined = tape.ask(JOIN, version, **joins(group, joined["member_id"]))
        assert (joined["error_code"], joined["leader"]) == (0, joined["member_id"])
        assert [member["member_id"] for member in joined["members"]] == [joined["member_id"]]
        assert 0 < joined["generation_id"] < 2**31
        assert joined["members"][0]["metadata"] == subscription("t")
        at = {"group_id": group, "generation_id": joined["generation_id"], "member_id": joined["member_id"]}
        given = [{"member_id": joined["member_id"], "assignment": assignment(t=[0])}]
        synced = tape.ask(SYNC, sync, **at, protocol_type="consumer", protocol_name="range", assignments=given)
        assert (synced["error_code"], synced["assignment"]) == (0, assignment(t=[0]))
        assert tape.ask(HEARTBEAT, beat, **at)["error_code"] == 0
        assert tape.ask(HEARTBEAT, beat, **at | {"generation_id": 1})["error_code"] == KafkaError.ILLEGAL_GENERATION
        assert tape.ask(HEARTBEAT, beat, **at | {"member_id": "x"})["error_code"] == KafkaError.UNKNOWN_MEMBER_ID
        mine = {"member_id": joined["member_id"]}
        left = tape.ask(
            LEAVE, leave, group_id=group, **({"members": [mine, {"member_id": "x"}]} if leave > 2 else mine)
        )
        assert left["error_code"] == 0
        if leave > 2:
            assert [member["error_code"] for member in left["members"]] == [0, KafkaError.UNKNOWN_MEMBER_ID]
        assert tape.ask(HEARTBEAT, beat, **at)["error_code"] == KafkaError.UNKNOWN_MEMBER_ID


def test_a_join_without_redis() -> None:
    with served(redis_url=NO_REDIS) as (_, bootstrap, _), Tape(bootstrap) as tape:
        joined = tape.ask(JOIN, 3, **joins("g"))
        assert joined["error_code"] == KafkaError.COORDINATOR_NOT_AVAILABLE


@pytest.mark.rule("KF14")
def test_whoever_hangs_up_while_it_waits_is_gone(grouped: tuple[Http, str]) -> None:
    _, bootstrap = grouped
    with Tape(bootstrap) as tape:
        first = tape.ask(JOIN, 3, **joins("hangs-up"))
        at = {"group_id": "hangs-up", "generation_id": first["generation_id"], "member_id": first["member_id"]}
        tape.ask(SYNC, 3, **at, assignments=[])
        with Tape(bootstrap) as other:
            other.send(JOIN, 3, **joins("hangs-up", session_timeout_ms=300))
            end = time.monotonic() + WAIT_SECONDS
            while tape.ask(HEARTBEAT, 3, **at)["error_code"] != KafkaError.REBALANCE_IN_PROGRESS:
                assert time.monotonic() < end
        again = tape.ask(JOIN, 3, **joins("hangs-up", first["member_id"]))
        # It is of this generation, or its session has ended before.
        ids = {member["member_id"] for member in again["members"]}
        at["generation_id"] = again["generation_id"]
        tape.ask(SYNC, 3, **at, assignments=[])
        while len(ids) > 1:
            if tape.ask(HEARTBEAT, 3, **at)["error_code"]:
                ids = {
                    each["member_id"] for each in tape.ask(JOIN, 3, **joins("hangs-up", first["member_id"]))["members"]
                }
            assert time.monotonic() < end
        assert ids == {first["member_id"]}


@pytest.mark.rule("KF14")
def test_a_join_ends_with_its_connection(grouped: tuple[Http, str]) -> None:
    _, bootstrap = grouped
    group = "ends-with-its-connection"
    with Tape(bootstrap) as first, Tape(bootstrap) as gone:
        joined = first.ask(JOIN, 3, **joins(group))
        at = {"group_id": group, "generation_id": joined["generation_id"], "member_id": joined["member_id"]}
        first.ask(SYNC, 3, **at, assignments=[])
        gone.send(JOIN, 3, **joins(group))
        gone.socket.shutdown(socket.SHUT_WR)
        # Were it waited for the other, that would be gone after its session, and this one would have joined.
        assert gone.answer(JOIN, 3)["error_code"] == KafkaError.COORDINATOR_NOT_AVAILABLE
        assert gone.is_closed()


@pytest.mark.rule("KF12")
def test_members_need_the_rights_of_http() -> None:
    with secured_server(redis_url="", kafka_listen=f"127.0.0.1:{free_port()}") as secured:
        _, first = secured.key("first")
        _, other = secured.key("other")
        secured.allow("first", "key:first", "group", "g", "read")
        with Tape(bootstrap_of(secured.server)) as tape, Tape(bootstrap_of(secured.server)) as others:
            assert login(tape, str(first.token))["error_code"] == 0
            assert login(others, str(other.token))["error_code"] == 0
            refused = KafkaError.GROUP_AUTHORIZATION_FAILED
            joined = tape.ask(JOIN, 3, **joins("g"))
            at = {"group_id": "g", "generation_id": joined["generation_id"], "member_id": joined["member_id"]}
            assert tape.ask(SYNC, 3, **at, assignments=[])["error_code"] == 0
            assert tape.ask(JOIN, 3, **joins("h"))["error_code"] == refused
            requests = [(JOIN, joins("g")), (SYNC, {**at, "assignments": []}), (HEARTBEAT, at)]
            leaves = {"group_id": "g", "members": [{"member_id": joined["member_id"]}]}
            for key, body in [*requests, (LEAVE, leaves)]:
                assert others.ask(key, 3, **body)["error_code"] == refused, key
            # With the right to the group, another's member is still another's.
            secured.allow("other", "key:other", "group", "g", "read")
            assert others.ask(HEARTBEAT, 3, **at)["error_code"] == refused
            assert others.ask(LEAVE, 3, **leaves)["members"][0]["error_code"] == refused
            assert others.ask(JOIN, 3, **joins("g", joined["member_id"]))["error_code"] == refused
            assert tape.ask(HEARTBEAT, 3, **at)["error_code"] == 0


CLASSIC = {"group_protocol": "classic", "session_timeout_ms": "3000", "heartbeat_interval_ms": "200"}
ASSIGNORS = "org.apache.kafka.clients.consumer"


@pytest.mark.slow
@pytest.mark.rule("KF13", "KF14")
@pytest.mark.parametrize("assignor", ["RangeAssignor", "CooperativeStickyAssignor"])
def test_a_member_of_java_takes_over(grouped: tuple[Http, str], assignor: str) -> None:
    http, bootstrap = grouped
    fill(http, bootstrap, assignor)
    settings = {**CLASSIC, "partition_assignment_strategy": f"{ASSIGNORS}.{assignor}"}
    with JavaMembers(bootstrap) as stays, JavaMembers(bootstrap) as killed:
        stays.start("a", assignor, assignor, **settings)
        stays.until(lambda: len(stays.held.get("a", ())) == PARTITIONS)
        killed.start("b", assignor, assignor, **settings)
        stays.until(lambda: len(stays.held["a"]) == len(killed.held.get("b", ())) == 2)
        more(bootstrap, assignor)
        stays.until(lambda: len(stays.records) + len(killed.records) == 2 * RECORDS)
        killed.kill()
        stays.until(lambda: len(stays.held["a"]) == PARTITIONS)
        more(bootstrap, assignor)
        stays.until(lambda: len({read[1:4] for read in [*stays.records, *killed.records]}) == 3 * RECORDS)
        stays.stop("a")
    assert http.get(f"/v1/groups/{assignor}").json["state"] == "empty"


@pytest.mark.rule("KF15")
def test_a_static_member_of_java_comes_back(grouped: tuple[Http, str]) -> None:
    http, bootstrap = grouped
    fill(http, bootstrap, "static-java")
    settings = {**CLASSIC, "session_timeout_ms": "30000"}
    with JavaMembers(bootstrap) as java:
        for instance in ("a", "b"):
            java.start(instance, "static-java", "static-java", **settings, group_instance_id=instance)
        java.until(lambda: [len(held) for held in java.held.values()] == [2, 2] and len(java.records) == RECORDS)
        before = http.get("/v1/groups/static-java").json
        held = set(java.held["a"])
        java.stop("a")
        java.start("again", "static-java", "static-java", **settings, group_instance_id="a")
        java.until(lambda: java.held.get("again") == held)
        more(bootstrap, "static-java")
        java.until(lambda: len(java.records) == 2 * RECORDS)
        assert http.get("/v1/groups/static-java").json["generation"] == before["generation"]
