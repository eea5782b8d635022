"""Groups whose partitions the server assigns: clients of Kafka (`group.protocol=consumer`) and members over HTTP."""

import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from access_rig import secured_server
from classic_rig import subscription
from confluent_kafka import Consumer
from http_rig import Http
from java_members import JavaMembers
from kafka_members import Reader
from kafka_members import until as until_all
from kafka_rig import WAIT_SECONDS, Tape, free_port, served
from kafka_tools import KafkaTools
from waiting import until

import siltlog
from siltlog.infra.kafka.errors import KafkaError
from siltlog.server_process import ServerProcess

JOIN, LEAVE, BEAT, DESCRIBE = 11, 13, 68, 69
PARTITIONS = 4
SESSION_MS = 9_000
"""A ninth of it is between heartbeats."""
Both = tuple[Http, str, Any]
At = tuple[str, int]


@pytest.fixture(scope="module")
def both(valkey_url: str) -> Iterator[Both]:
    settings = {"session_timeout_ms_max": SESSION_MS, "group_initial_rebalance_delay_ms": 0}
    with served(redis_url=valkey_url, **settings) as found:
        yield found


@pytest.fixture
def group() -> str:
    return f"g{uuid.uuid4()}"


@pytest.fixture
def topic(both: Both) -> str:
    name = f"t{uuid.uuid4()}"
    both[0].create(name, PARTITIONS)
    return name


class Member:
    """A client of Kafka as the protocol has it, which says what it is told to."""

    def __init__(self, tape: Tape, http: Http, group: str, member_id: str | None = None) -> None:
        self.tape, self.http, self.group = tape, http, group
        self.id = str(uuid.uuid4()) if member_id is None else member_id
        self.epoch = 0
        self.held: set[At] = set()

    def beat(self, *topics: str, owned: set[At] | None = None, version: int = 1, **more: Any) -> dict[str, Any]:
        fields: dict[str, Any] = {"group_id": self.group, "member_id": self.id, "member_epoch": self.epoch}
        if topics:
            fields |= {"subscribed_topic_names": list(topics), "rebalance_timeout_ms": 30_000, "topic_partitions": []}
        if owned is not None:
            fields["topic_partitions"] = [
                {"topic_id": id_of(self.http, topic), "partitions": [at for name, at in owned if name == topic]}
                for topic in {name for name, _ in owned}
            ]
        answer = self.tape.ask(BEAT, version, **fields | more)
        if answer["error_code"] == 0:
            self.id = answer["member_id"] or self.id
            self.epoch = max(answer["member_epoch"], self.epoch)
            if answer["assignment"] is not None:
                self.held = {
                    (name_of(self.http, each["topic_id"]), at)
                    for each in answer["assignment"]["topic_partitions"]
                    for at in each["partitions"]
                }
        return answer


def id_of(http: Http, topic: str) -> bytes:
    return uuid.UUID(http.get(f"/v1/topics/{topic}").json["topic_id"]).bytes


def name_of(http: Http, topic_id: bytes) -> str:
    topics = http.get("/v1/topics?limit=1000").json["topics"]
    [name] = [each["name"] for each in topics if uuid.UUID(each["topic_id"]).bytes == topic_id]
    return str(name)


def every(topic: str, count: int = PARTITIONS) -> set[At]:
    return {(topic, number) for number in range(count)}


@pytest.fixture
def made(both: Both, group: str) -> Iterator[Any]:
    with Tape(both[1]) as tape:
        yield lambda member_id=None: Member(tape, both[0], group, member_id)


def members_of(http: Http, group: str) -> dict[str, list[At]]:
    members = http.get(f"/v1/groups/{group}").json["members"]
    return {each["member_id"]: [(at["topic"], at["partition"]) for at in each["assignment"]] for each in members}


@pytest.mark.rule("KF18")
def test_partitions_are_let_go_before_another_gets_them(both: Both, made: Any, topic: str) -> None:
    a, b = made(), made()
    answer = a.beat(topic)
    assert answer["heartbeat_interval_ms"] == SESSION_MS // 9
    assert a.held == every(topic) and a.epoch > 0
    assert a.beat(owned=every(topic))["assignment"] is None
    b.beat(topic)
    assert b.held == set(), "nothing is free yet"
    kept = a.beat()["assignment"] is not None and set(a.held)
    assert len(kept) == PARTITIONS // 2
    b.beat(owned=set())
    assert b.held == set(), "it was told, and has not let go"
    a.beat(owned=kept)
    b.beat()
    assert b.held == every(topic) - kept
    # Unchanged, and said so.
    assert a.beat(owned=kept)["assignment"] is None and b.beat(owned=b.held)["assignment"] is None
    assert b.beat(member_epoch=-1)["member_epoch"] == -1
    a.beat()
    assert a.held == every(topic)


@pytest.mark.rule("KF18")
def test_who_left_or_was_fenced_joins_again_under_the_same_id(both: Both, made: Any, topic: str) -> None:
    a = made()
    a.beat(topic)
    a.beat(member_epoch=-1)
    assert a.beat()["error_code"] in (KafkaError.UNKNOWN_MEMBER_ID, KafkaError.FENCED_MEMBER_EPOCH)
    before, a.epoch = a.epoch, 0
    assert a.beat(topic)["error_code"] == 0
    assert a.epoch > before and a.held == every(topic)
    # It has started anew while the group still knows it.
    b = made()
    b.beat(topic)
    a.beat()
    kept = set(a.held)
    a.epoch = 0
    a.beat(topic)
    assert a.held == kept, "it is told of all that it has"
    b.beat()
    assert b.held == every(topic) - kept, "what it was to let go of it has no more"
    assert a.beat(owned=kept)["error_code"] == 0
    # With a join it may want something else, too.
    other = f"other{uuid.uuid4()}"
    both[0].create(other, 1)
    a.epoch = 0
    a.beat(other)
    assert a.held == every(other, 1)


@pytest.mark.rule("KF18")
def test_a_member_of_an_instance_takes_its_place(both: Both, made: Any, topic: str) -> None:
    first, other = made(), made()
    first.beat(topic, instance_id="one")
    other.beat(topic)
    first.beat(instance_id="one")
    first.beat(instance_id="one", owned=first.held)
    kept = set(first.held)
    assert first.beat(member_epoch=-2, instance_id="one")["member_epoch"] == -2
    again = made()
    again.beat(topic, instance_id="one")
    assert again.held == kept
    assert first.beat(instance_id="one")["error_code"] == KafkaError.FENCED_INSTANCE_ID
    assert first.beat(member_epoch=-2)["error_code"] == KafkaError.INVALID_REQUEST


def test_a_regular_expression_and_topics_that_come_later(both: Both, made: Any, topic: str, group: str) -> None:
    http, _, _ = both
    later = f"later{uuid.uuid4()}"
    a = made()
    joins = {"subscribed_topic_regex": f"{later[:20]}.*", "rebalance_timeout_ms": 30_000, "topic_partitions": []}
    a.beat(**joins)
    assert a.held == set()
    http.create(later, 2)
    until(lambda: a.beat(owned=a.held) and a.held == every(later, 2))
    # A name, too, of which there is no topic.
    named = f"named{uuid.uuid4()}"
    a.beat(subscribed_topic_names=[named, "no/name"])
    http.create(named, 1)
    until(lambda: a.beat(owned=a.held) and a.held == every(later, 2) | every(named, 1))
    a.beat(subscribed_topic_regex="")
    until(lambda: a.beat(owned=a.held) and a.held == every(named, 1))
    wrong = a.beat(subscribed_topic_regex="(")
    assert wrong["error_code"] == KafkaError.INVALID_REGULAR_EXPRESSION and "RE2" in wrong["error_message"]
    wrong = a.beat(subscribed_topic_regex="a" * 1_001)
    assert wrong["error_code"] == KafkaError.INVALID_REGULAR_EXPRESSION and "1000" in wrong["error_message"]


def test_what_makes_no_sense_is_refused(both: Both, made: Any, topic: str, group: str) -> None:
    a = made()
    assert a.beat(topic, server_assignor="range")["error_code"] == KafkaError.UNSUPPORTED_ASSIGNOR
    assert a.beat(topic, server_assignor="uniform")["error_code"] == 0
    assert a.beat(member_epoch=-3)["error_code"] == KafkaError.INVALID_REQUEST
    assert a.beat(member_epoch=-2)["error_code"] == KafkaError.INVALID_REQUEST
    assert a.beat(group_id="")["error_code"] == KafkaError.INVALID_GROUP_ID
    assert made("").beat(topic)["error_code"] == KafkaError.INVALID_REQUEST
    assert made().beat()["error_code"] == KafkaError.INVALID_REQUEST, "a join without topics"
    stranger = made()
    stranger.epoch = a.epoch
    assert stranger.beat()["error_code"] == KafkaError.UNKNOWN_MEMBER_ID
    # The server makes the id where the client is too old to.
    old = made("")
    assert old.beat(topic, version=0)["error_code"] == 0
    assert uuid.UUID(old.id)
    assert old.beat(version=0)["error_code"] == 0


@pytest.mark.rule("KF18")
def test_who_has_found_no_topic_yet_joins_and_gets_those_that_it_finds(
    both: Both, made: Any, topic: str, group: str
) -> None:
    """Java's client matches names itself, where it is given a pattern of Java's."""
    a = made()
    nothing = {"subscribed_topic_names": [], "rebalance_timeout_ms": 30_000, "topic_partitions": []}
    assert a.beat(**nothing)["error_code"] == 0
    assert a.epoch > 0
    assert a.held == set()
    assert a.beat()["error_code"] == 0
    assert a.beat(topic)["error_code"] == 0
    assert a.held == every(topic)
    assert a.beat(**nothing)["error_code"] == 0
    a.beat()
    assert a.held == set()
    [shown] = a.tape.ask(DESCRIBE, 1, group_ids=[group])["groups"]
    assert [each["subscribed_topic_names"] for each in shown["members"]] == [[]]


@pytest.mark.rule("KF18")
def test_members_over_http_and_of_kafka_share_one_group(both: Both, made: Any, topic: str, group: str) -> None:
    http, _, _ = both
    a = made()
    a.beat(topic)
    body = {"topics": [topic], "auto_offset_reset": "latest"}
    joined = http.json("PUT", f"/v1/groups/{group}/members/h", body).json
    assert joined["assignment"] == []
    a.beat()
    kept = set(a.held)
    a.beat(owned=kept)
    told = http.json("PUT", f"/v1/groups/{group}/members/h", {"generation": joined["generation"]}).json
    gained = {(at["topic"], at["partition"]): at["offset"] for at in told["assignment"]}
    assert set(gained) == every(topic) - kept
    # Its client has a policy of its own, the member over HTTP has the group's.
    offsets = {at["partition"]: at["offset"] for at in http.get(f"/v1/groups/{group}/offsets").json["offsets"]}
    assert set(offsets) == {number for _, number in gained}
    described = http.get(f"/v1/groups/{group}").json
    rows = {each["member_id"]: each for each in described["members"]}
    assert described["type"] == "consumer" and rows[a.id]["client_host"] == "127.0.0.1"
    assert (rows[a.id]["client_id"], rows[a.id]["auto_offset_reset"]) == ("tape", None)
    [shown] = a.tape.ask(DESCRIBE, 1, group_ids=[group])["groups"]
    assert (shown["error_code"], shown["group_state"], shown["assignor_name"]) == (0, "Stable", "uniform")
    held = {
        each["member_id"]: {
            (part["topic_name"], number)
            for part in each["assignment"]["topic_partitions"]
            for number in part["partitions"]
        }
        for each in shown["members"]
    }
    assert held == {a.id: kept, "h": set(gained)}
    codes = [each["error_code"] for each in a.tape.ask(DESCRIBE, 0, group_ids=["nobody", ""])["groups"]]
    assert codes == [KafkaError.GROUP_ID_NOT_FOUND] * 2


@pytest.mark.rule("KF18")
def test_a_group_has_members_of_one_kind_at_a_time(both: Both, made: Any, topic: str, group: str) -> None:
    _, bootstrap, _ = both
    joins = {
        "group_id": group,
        "session_timeout_ms": SESSION_MS,
        "rebalance_timeout_ms": SESSION_MS,
        "member_id": "",
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": subscription(topic)}],
    }
    a = made()
    a.beat(topic)
    with Tape(bootstrap) as tape:
        assert tape.ask(JOIN, 3, **joins)["error_code"] == KafkaError.INCONSISTENT_GROUP_PROTOCOL
        a.beat(member_epoch=-1)
        joined = tape.ask(JOIN, 3, **joins)
        assert joined["error_code"] == 0
        assert joined["generation_id"] > a.epoch
        a.epoch = 0
        refused = a.beat(topic)
        assert refused["error_code"] == KafkaError.INVALID_REQUEST and "group.protocol" in refused["error_message"]
        [shown] = tape.ask(DESCRIBE, 1, group_ids=[group])["groups"]
        assert shown["error_code"] == KafkaError.GROUP_ID_NOT_FOUND and "classic" in shown["error_message"]
        left = tape.ask(LEAVE, 0, group_id=group, member_id=joined["member_id"])
        assert left["error_code"] == 0
        assert a.beat(topic)["error_code"] == 0
        assert a.held == every(topic)


@pytest.mark.rule("KF12")
def test_members_need_the_rights_of_http(valkey_url: str) -> None:
    listens = f"127.0.0.1:{free_port()}"
    with secured_server(kafka_listen=listens, redis_url=valkey_url) as secured:
        for name in ("mine-t", "other-t"):
            assert secured.admin.create(name)
        made = [secured.key(name, ("consumer", "mine")) for name in ("one", "two")]
        with Tape(listens) as first, Tape(listens) as second:
            for tape, (key_id, caller) in zip((first, second), made, strict=True):
                tape.ask(17, 1, mechanism="PLAIN")
                assert tape.ask(36, 2, auth_bytes=f"\0{key_id}\0{caller.token}".encode())["error_code"] == 0
            a = Member(first, secured.admin, "other-g")
            assert a.beat("mine-t")["error_code"] == KafkaError.GROUP_AUTHORIZATION_FAILED
            a.group = "mine-members"
            refused = a.beat("mine-t", "other-t")
            assert (
                refused["error_code"] == KafkaError.TOPIC_AUTHORIZATION_FAILED and "other-t" in refused["error_message"]
            )
            # An expression matches what may be read.
            joins = {"subscribed_topic_regex": ".*-t", "rebalance_timeout_ms": 30_000, "topic_partitions": []}
            assert a.beat(**joins)["error_code"] == 0
            assert a.held == {("mine-t", 0)}
            b = Member(second, secured.admin, "mine-members", a.id)
            b.epoch = a.epoch
            assert b.beat()["error_code"] == KafkaError.GROUP_AUTHORIZATION_FAILED, "the member is another's"
            assert b.beat(member_epoch=-1)["error_code"] == KafkaError.GROUP_AUTHORIZATION_FAILED
            assert a.beat()["error_code"] == 0


# --- clients ------------------------------------------------------------------------------------------------
def publish(http: Http, topic: str, count: int, first: int = 0) -> set[str]:
    """Records over all partitions; their values."""
    values = [str(number) for number in range(first, first + count)]
    for partition in range(PARTITIONS):
        records = [{"value": value, "partition": partition} for value in values[partition::PARTITIONS]]
        http.publish(topic, *records)
    return set(values)


def librdkafka(bootstrap: str, group: str, topic: str, **more: Any) -> Consumer:
    own = {"bootstrap.servers": bootstrap, "group.id": group, "auto.offset.reset": "earliest", "log_level": 0}
    consumer = Consumer({**own, "enable.auto.commit": False, "group.protocol": "consumer", **more})
    consumer.subscribe([topic])
    return consumer


def taken(consumer: Consumer, count: int = 0) -> list[str]:
    """Reads and commits until there are `count` values, or, for 0, once."""
    values: list[str] = []
    end = time.monotonic() + WAIT_SECONDS
    while not values or len(values) < count:
        assert time.monotonic() < end, values
        messages = consumer.consume(count - len(values) if count else 100, 0.2)
        for message in messages:
            assert message.error() is None, message.error()
            values.append(message.value().decode())
        if messages:
            consumer.commit(asynchronous=False)
        if not count:
            break
    return values


@pytest.mark.rule("KF18")
def test_members_of_librdkafka_share_a_group_with_one_over_http(both: Both, topic: str, group: str) -> None:
    http, bootstrap, server = both
    sent = publish(http, topic, 40)
    first = librdkafka(bootstrap, group, topic)
    read = taken(first, 40)
    assert set(read) == sent
    ours = siltlog.Consumer(server.url, group=group, topics=[topic], session_timeout_ms=SESSION_MS)
    second = librdkafka(bootstrap, group, topic)
    try:
        end = time.monotonic() + WAIT_SECONDS
        while True:
            assert time.monotonic() < end
            for each in (first, second):
                assert each.poll(0.05) is None
            ours.poll(timeout_ms=50)
            held = [{(at.topic, at.partition) for at in each.assignment()} for each in (first, second, ours)]
            if all(held) and set().union(*held) == every(topic):
                break
        assert sum(map(len, held)) == PARTITIONS
        more = publish(http, topic, 40, 40)
        found: list[str] = []
        while len(found) < len(more):
            assert time.monotonic() < end, found
            for each in (first, second):
                found += taken(each)
            found += [record.value.decode() for record in ours.poll(timeout_ms=50)]
            ours.commit()
        assert sorted(found) == sorted(more), "each once"
    finally:
        ours.close()
        first.close()
        second.close()
    assert members_of(http, group) == {}


@pytest.mark.rule("KF18")
def test_a_kill_of_the_server_costs_no_member_its_place(tmp_path: Path) -> None:
    settings = {"kafka_listen": f"127.0.0.1:{free_port()}", "session_timeout_ms_max": SESSION_MS}
    bootstrap = str(settings["kafka_listen"])
    server = ServerProcess(tmp_path, settings)
    server.start()
    try:
        http = Http(server.url)
        http.create("t", PARTITIONS)
        publish(http, "t", 40)
        joins = {"group_protocol": "consumer", "reconnect_backoff_max_ms": 200}
        a, b = Reader(bootstrap, "g", "t", **joins), Reader(bootstrap, "g", "t", **joins)
        until_all(lambda: len(a.held()) == len(b.held()) == 2 and len({*a.read, *b.read}) == 40, a, b)
        before, ids = (a.held(), b.held()), set(members_of(http, "g"))
        server.kill()
        server.start()
        publish(Http(server.url), "t", 40, 40)
        until_all(lambda: len({*a.read, *b.read}) == 80, a, b)
        assert (a.held(), b.held()) == before
        assert set(members_of(Http(server.url), "g")) == ids
        assert len(a.read) + len(b.read) == 80, "each once"
        for reader in (a, b):
            reader.consumer.close()
    finally:
        server.stop()


@pytest.mark.rule("KF17")
@pytest.mark.parametrize("protocol", ["consumer", "classic"])
def test_half_is_read_over_http_and_half_by_kafka(both: Both, topic: str, group: str, protocol: str) -> None:
    """And the other way round: nothing comes twice, and nothing is left out."""
    http, bootstrap, server = both
    sent = publish(http, topic, 80)
    # Of the other protocol the server says.
    more = {"session.timeout.ms": SESSION_MS} if protocol == "classic" else {}
    found: list[str] = []
    for rest in (60, 20):
        with siltlog.Consumer(server.url, group=group, topics=[topic], session_timeout_ms=SESSION_MS) as ours:
            while len(found) < len(sent) - rest:
                found += [record.value.decode() for record in ours.poll(5, timeout_ms=100) if record.value is not None]
                ours.commit()
        theirs = librdkafka(bootstrap, group, topic, **{"group.protocol": protocol}, **more)
        try:
            found += taken(theirs, 20)
        finally:
            theirs.close()
    assert sorted(found) == sorted(sent)
    assert members_of(http, group) == {}


@pytest.mark.client
@pytest.mark.rule("KF18")
def test_members_of_java_share_a_group_with_one_over_http(both: Both, topic: str, group: str) -> None:
    http, bootstrap, server = both
    sent = publish(http, topic, 40)
    joins = {"group_protocol": "consumer"}
    with JavaMembers(bootstrap) as java:
        java.start("a", group, topic, **joins)
        java.until(lambda: len(java.records) == len(sent))
        assert {record.value for record in java.records} == sent
        java.start("b", group, f"~{topic[:20]}.*", **joins)
        with siltlog.Consumer(server.url, group=group, topics=[topic], session_timeout_ms=SESSION_MS) as ours:
            found: list[str] = []

            def all_share() -> bool:
                found.extend(record.text() or "" for record in ours.poll(timeout_ms=50))
                ours.commit()
                held = [*java.held.values(), {(at.topic, at.partition) for at in ours.assignment()}]
                return len(held) == 3 and all(held) and set().union(*held) == every(topic)

            java.until(all_share)
            more = publish(http, topic, 40, 40)

            def all_came() -> bool:
                all_share()
                return len(java.records) + len(found) >= len(sent) + len(more)

            java.until(all_came)
            assert sorted([record.value for record in java.records] + found) == sorted(sent | more), "each once"
            java.stop("a")
            java.until(lambda: all_share() or len(java.held["b"]) + len(ours.assignment()) == PARTITIONS)
            shown = http.get(f"/v1/groups/{group}").json
            assert len(shown["members"]) == 2
    # Killed, it is gone with its session; who takes over goes on where it was.
    last = publish(http, topic, 20, 80)
    with JavaMembers(bootstrap) as java:
        java.start("c", group, topic, **joins)
        java.until(lambda: len(java.records) >= len(last))
        assert {record.value for record in java.records} == last
        java.stop("c")


@pytest.mark.client
def test_kafkas_tools_describe_the_group_and_move_it(both: Both, made: Any, topic: str, group: str) -> None:
    http, bootstrap, _ = both
    publish(http, topic, 40)
    a = made()
    a.beat(topic, instance_id="one")
    http.json("PUT", f"/v1/groups/{group}/members/h", {"topics": [topic]})
    a.beat(owned=a.held)
    a.beat(owned=a.held)
    with KafkaTools(bootstrap) as tools:

        def told(*arguments: str) -> str:
            printed = tools.run("kafka-consumer-groups", "--group", group, *arguments)
            assert printed.status == 0, printed.text
            return printed.text

        members = told("--describe", "--members", "--verbose")
        assert a.id in members and "one" in members and " h " in members, members
        state = told("--describe", "--state")
        assert "uniform" in state and "Stable" in state, state
        assert "STALE" not in told("--describe")
        stays = told("--delete-offsets", "--topic", topic)
        assert "subscribed" in stays.lower(), stays
        a.beat(member_epoch=-1)
        assert http.call("DELETE", f"/v1/groups/{group}/members/h").status == 204
        told("--reset-offsets", "--topic", f"{topic}:1,2", "--to-offset", "3", "--execute")
        offsets = {at["partition"]: at["offset"] for at in http.get(f"/v1/groups/{group}/offsets").json["offsets"]}
        assert (offsets[1], offsets[2]) == (3, 3)
        told("--delete-offsets", "--topic", topic)
        assert http.get(f"/v1/groups/{group}/offsets").json["offsets"] == []
