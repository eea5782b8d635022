"""The server knows who may do what by Kafka's protocol: SASL PLAIN, certificates, quotas, what is recorded."""

import time
import uuid
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from access_rig import Secured, altered, make_first_key, secured_server
from confluent_kafka import KafkaException, Producer
from http_rig import NO_REDIS
from kafka_rig import (
    API_VERSIONS,
    FETCH,
    FOR_LEADER_EPOCH,
    LIST_OFFSETS,
    METADATA,
    PRODUCE,
    WAIT_SECONDS,
    Tape,
    batch,
    bootstrap_of,
    fetch,
    free_port,
    numbered,
    producer,
    publish,
    read,
    the_part,
)
from tls_rig import Made
from waiting import until

from siltlog.infra.kafka.errors import KafkaError
from siltlog.infra.kafka.frames import APIS
from siltlog.infra.security.keys import read_key
from siltlog.server.kafka.connection import LOGIN_BYTES_MAX
from siltlog.testing import running_server

HANDSHAKE, AUTHENTICATE = 17, 36
LIST_GROUPS, INIT_PRODUCER_ID, DESCRIBE_LOG_DIRS, DESCRIBE_CLUSTER, DESCRIBE_TOPIC_PARTITIONS = 16, 22, 35, 60, 75


@pytest.fixture(scope="module")
def secured() -> Iterator[Secured]:
    with secured_server(kafka_listen=f"127.0.0.1:{free_port()}", auto_create_partitions=1) as found:
        assert found.admin.create("allowed")
        assert found.admin.create("other")
        yield found


def user_of(token: str) -> str:
    key = read_key(token)
    assert key is not None
    return key.key_id


def plain(token: str) -> dict[str, str]:
    """The options of a client that logs in."""
    return {
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "PLAIN",
        "sasl_username": user_of(token),
        "sasl_password": token,
    }


def login(tape: Tape, token: str, user: str | None = None) -> dict[str, Any]:
    assert tape.ask(HANDSHAKE, 1, mechanism="PLAIN")["error_code"] == 0
    said = f"\0{user_of(token) if user is None else user}\0{token}".encode()
    return tape.ask(AUTHENTICATE, 2, auth_bytes=said)


@pytest.mark.rule("KF11")
@pytest.mark.parametrize(
    ("key", "version", "body"),
    [
        (METADATA, 9, {"topics": None}),
        (PRODUCE, 9, publish("allowed", batch(b"x"))),
        (FETCH, 11, fetch("allowed", 0)),
        (LIST_OFFSETS, 5, {"topics": []}),
        (FOR_LEADER_EPOCH, 3, {"topics": []}),
        (10, 3, {"key": "g", "key_type": 0}),
        (19, 5, {"topics": []}),
        (20, 5, {"topic_names": ["allowed"]}),
        (22, 4, {"transactional_id": None, "transaction_timeout_ms": 0}),
        (15, 5, {"groups": ["g"]}),
        (16, 5, {}),
        (21, 2, {"topics": [], "timeout_ms": 0}),
        (29, 3, {"resource_type_filter": 1, "operation": 1, "permission_type": 1}),
        (32, 3, {"resources": []}),
        (33, 2, {"resources": []}),
        (35, 4, {"topics": None}),
        (37, 3, {"topics": [], "timeout_ms": 0}),
        (42, 2, {"groups_names": ["g"]}),
        (44, 1, {"resources": []}),
        (60, 0, {}),
    ],
)
def test_before_a_login_nothing_is_answered_but_how_to_log_in(
    secured: Secured, key: int, version: int, body: dict[str, Any]
) -> None:
    with Tape(bootstrap_of(secured.server)) as tape:
        served = {each["api_key"] for each in tape.ask(API_VERSIONS, 0)["api_keys"]}
        assert {HANDSHAKE, AUTHENTICATE, key} <= served
        tape.send(key, version, **body)
        assert tape.is_closed()
    assert secured.admin.read("allowed") == [] or key != PRODUCE


@pytest.mark.rule("KF12")
def test_who_may_not_write_says_nothing_about_the_sequences_of_others(secured: Secured) -> None:
    _, writer = secured.key("writes", ("producer", "allowed"))
    _, other = secured.key("writes-not", ("producer", "elsewhere"))
    bootstrap, producer_id = bootstrap_of(secured.server), 4711
    with Tape(bootstrap) as first, Tape(bootstrap) as second:
        assert login(first, str(writer.token))["error_code"] == 0
        assert login(second, str(other.token))["error_code"] == 0

        def sent(tape: Tape, sequence: int) -> int:
            records = numbered(batch(b"x"), producer_id, 0, sequence)
            code: int = the_part(tape.ask(PRODUCE, 9, **publish("allowed", records)))["error_code"]
            return code

        assert sent(second, 0) == KafkaError.TOPIC_AUTHORIZATION_FAILED
        # Of a producer that is not known, such as one that was forgotten, any may be the first.
        assert sent(first, 5) == KafkaError.NONE


@pytest.mark.rule("KF11")
def test_a_key_is_nobodys_but_its_own(secured: Secured) -> None:
    _, writer = secured.key("own", ("producer", "allowed"))
    token = str(writer.token)
    for as_whom, code in (("", KafkaError.NONE), (user_of(token), KafkaError.NONE), ("admin", None)):
        with Tape(bootstrap_of(secured.server)) as tape:
            assert tape.ask(HANDSHAKE, 1, mechanism="PLAIN")["error_code"] == 0
            said = f"{as_whom}\0{user_of(token)}\0{token}".encode()
            answer = tape.ask(AUTHENTICATE, 2, auth_bytes=said)
        expected = KafkaError.SASL_AUTHENTICATION_FAILED if code is None else code
        assert answer["error_code"] == expected, answer


@pytest.mark.rule("KF12")
def test_who_may_not_see_a_topic_does_not_learn_its_name_by_its_id(secured: Secured) -> None:
    topic_id = uuid.UUID(secured.admin.get("/v1/topics/other").json["topic_id"]).bytes
    _, blind = secured.key("blind", ("producer", "allowed"))
    _, sees = secured.key("sees", ("producer", "allowed"))
    secured.allow("sees-other", "key:sees", "topic", "other", "describe")
    parts = [{"index": 0, "records": batch(b"x")}]
    for caller in (blind, sees):
        assert caller.token is not None
        with Tape(bootstrap_of(secured.server)) as tape:
            assert login(tape, caller.token)["error_code"] == 0
            data = [{"topic_id": topic_id, "partition_data": parts}]
            told = the_part(tape.ask(PRODUCE, 13, acks=-1, timeout_ms=1_000, topic_data=data))
            [deleted] = tape.ask(20, 6, topics=[{"name": None, "topic_id": topic_id}], timeout_ms=1_000)["responses"]
        for answer in (told, deleted):
            assert answer["error_code"] == KafkaError.TOPIC_AUTHORIZATION_FAILED
            assert ("other" in answer["error_message"]) == (caller is sees)
            assert "no right to" in answer["error_message"]
    assert secured.admin.get("/v1/topics/other").status == 200


@pytest.mark.rule("KF11")
def test_a_large_frame_is_not_waited_for_before_a_login(secured: Secured) -> None:
    _, writer = secured.key("large", ("producer", "allowed"))
    assert writer.token is not None
    with Tape(bootstrap_of(secured.server)) as tape:
        # Its length alone: more does not come.
        tape.socket.sendall((LOGIN_BYTES_MAX + 1).to_bytes(4))
        assert tape.is_closed()
    assert secured.admin.metrics()['silt_kafka_errors_total{api="none",error="too_large"}'] == 1
    with Tape(bootstrap_of(secured.server)) as tape:
        assert login(tape, writer.token)["error_code"] == 0
        large = batch(b"x" * 2 * LOGIN_BYTES_MAX)
        assert (
            the_part(tape.ask(PRODUCE, 9, **publish("large", large)))["error_code"]
            == KafkaError.TOPIC_AUTHORIZATION_FAILED
        )


@pytest.mark.rule("KF11", "KF31")
def test_only_a_whole_key_with_its_own_id_logs_in(secured: Secured) -> None:
    _, writer = secured.key("login", ("producer", "allowed"))
    token = writer.token
    assert token is not None
    bootstrap = bootstrap_of(secured.server)
    with Tape(bootstrap) as tape:
        assert tape.ask(HANDSHAKE, 1, mechanism="SCRAM-SHA-256") == {
            "error_code": KafkaError.UNSUPPORTED_SASL_MECHANISM,
            "mechanisms": ["PLAIN"],
        }
        assert tape.is_closed()
    for wrong, user in ((token, "admin"), (token, ""), (altered(token), None)):
        with Tape(bootstrap) as tape:
            answer = login(tape, wrong, user if user is not None else user_of(token))
            assert answer["error_code"] == KafkaError.SASL_AUTHENTICATION_FAILED
            assert answer["error_message"]
            assert tape.is_closed()
    for malformed in (b"", b"\0\0", b"\xff\0a\0b", b"a\0b\0c\0d"):
        with Tape(bootstrap) as tape:
            assert tape.ask(HANDSHAKE, 1, mechanism="PLAIN")["error_code"] == 0
            answer = tape.ask(AUTHENTICATE, 2, auth_bytes=malformed)
            assert answer["error_code"] == KafkaError.SASL_AUTHENTICATION_FAILED
    with Tape(bootstrap) as tape:
        assert login(tape, token)["error_code"] == 0
        assert the_part(tape.ask(PRODUCE, 9, **publish("allowed", batch(b"x"))))["error_code"] == 0
    # The first handshake has its token bare.
    with Tape(bootstrap) as tape:
        assert tape.ask(HANDSHAKE, 0, mechanism="PLAIN")["error_code"] == 0
        tape.frame(f"\0{user_of(token)}\0{token}".encode())
        assert tape.received() == b""
        assert tape.ask(METADATA, 9, topics=[{"name": "allowed"}])["topics"][0]["error_code"] == 0
    with Tape(bootstrap) as tape:
        assert tape.ask(HANDSHAKE, 0, mechanism="PLAIN")["error_code"] == 0
        tape.frame(f"\0x\0{token}".encode())
        assert tape.is_closed()


@pytest.mark.rule("KF12")
def test_rights_are_those_of_http(secured: Secured) -> None:
    _, writer = secured.key("writer", ("producer", "allowed"))
    _, reader = secured.key("reader", ("consumer", "allowed"))
    bootstrap = bootstrap_of(secured.server)
    refused = KafkaError.TOPIC_AUTHORIZATION_FAILED
    with Tape(bootstrap) as tape:
        assert login(tape, str(writer.token))["error_code"] == 0
        assert the_part(tape.ask(PRODUCE, 9, **publish("allowed", batch(b"x"))))["error_code"] == 0
        assert the_part(tape.ask(PRODUCE, 9, **publish("other", batch(b"x"))))["error_code"] == refused
        assert the_part(tape.ask(PRODUCE, 9, **publish("absent", batch(b"x"))))["error_code"] == refused
        assert the_part(tape.ask(FETCH, 11, **fetch("allowed", 0)))["error_code"] == refused
        asked = [{"name": name} for name in ("allowed", "other", "new")]
        found = tape.ask(METADATA, 9, topics=asked, allow_auto_topic_creation=True)["topics"]
        assert [each["error_code"] for each in found] == [0, refused, refused]
        assert [each["name"] for each in tape.ask(METADATA, 9, topics=None)["topics"]] == ["allowed"]
        created = tape.ask(19, 5, topics=[{"name": "new", "num_partitions": 1, "replication_factor": 1}])
        assert created["topics"][0]["error_code"] == refused
        assert tape.ask(20, 5, topic_names=["other"])["responses"][0]["error_code"] == refused
        described = tape.ask(32, 3, resources=[{"resource_type": 2, "resource_name": "other"}])["results"]
        assert described[0]["error_code"] == refused
    with Tape(bootstrap) as tape:
        assert login(tape, str(reader.token))["error_code"] == 0
        assert the_part(tape.ask(FETCH, 11, **fetch("allowed", 0)))["error_code"] == 0
        assert the_part(tape.ask(FETCH, 11, **fetch("other", 0)))["error_code"] == refused
        where = [{"partition_index": 0, "timestamp": -1}]
        listed = tape.ask(LIST_OFFSETS, 5, topics=[{"name": "other", "partitions": where}])
        assert the_part(listed)["error_code"] == refused
        assert the_part(tape.ask(PRODUCE, 9, **publish("allowed", batch(b"x"))))["error_code"] == refused
    assert secured.admin.read("other") == []


@pytest.mark.rule("KF12")
def test_a_key_that_is_revoked_loses_its_connection(secured: Secured) -> None:
    key_id, writer = secured.key("revoked", ("producer", "allowed"))
    with Tape(bootstrap_of(secured.server)) as tape:
        assert login(tape, str(writer.token))["error_code"] == 0
        assert the_part(tape.ask(PRODUCE, 9, **publish("allowed", batch(b"x"))))["error_code"] == 0
        assert secured.admin.call("DELETE", f"/v1/access/keys/{key_id}").status in (200, 204)
        tape.send(PRODUCE, 9, **publish("allowed", batch(b"x")))
        assert tape.is_closed()


@pytest.mark.rule("KF12")
def test_a_key_that_is_revoked_is_told_nothing_whatever_it_asks(secured: Secured) -> None:
    asks: dict[int, dict[str, Any]] = {
        METADATA: {"topics": None},
        LIST_GROUPS: {},
        INIT_PRODUCER_ID: {"transactional_id": None},
        DESCRIBE_LOG_DIRS: {"topics": None},
        DESCRIBE_CLUSTER: {},
        DESCRIBE_TOPIC_PARTITIONS: {"topics": []},
    }
    key_id, reader = secured.key("asks", ("producer", "allowed"))
    with ExitStack() as stack:
        tapes = {key: stack.enter_context(Tape(bootstrap_of(secured.server))) for key in asks}
        for tape in tapes.values():
            assert login(tape, str(reader.token))["error_code"] == 0
        assert secured.admin.call("DELETE", f"/v1/access/keys/{key_id}").status in (200, 204)
        for key, tape in tapes.items():
            tape.send(key, APIS[key].max_version, **asks[key])
            assert tape.ends() == b"", APIS[key].name
    assert "a request of Kafka failed" not in secured.server.log_path.read_text()


@pytest.mark.rule("KF12")
def test_quotas_slow_a_client_down(secured: Secured) -> None:
    _, limited = secured.key("limited", ("producer", "allowed"))
    quota = {"principal": "key:limited", "requests_per_s": 5, "burst_seconds": 0.2}
    assert secured.admin.json("PUT", "/v1/access/quotas/q", quota).status == 200
    with Tape(bootstrap_of(secured.server)) as tape:
        assert login(tape, str(limited.token))["error_code"] == 0
        began = time.monotonic()
        for _ in range(6):
            assert the_part(tape.ask(PRODUCE, 9, **publish("allowed", batch(b"x"))))["error_code"] == 0
        # A rate is a lower bound of a time, however slow the machine is.
        assert time.monotonic() - began > 0.9
        # One that would have to wait for longer than its client does is refused.
        quota |= {"requests_per_s": 0.01, "burst_seconds": 100}
        assert secured.admin.json("PUT", "/v1/access/quotas/q", quota).status == 200
        for _ in range(2):
            refused = tape.ask(PRODUCE, 9, **{**publish("allowed", batch(b"x")), "timeout_ms": 1})
        assert the_part(refused)["error_code"] == KafkaError.NOT_ENOUGH_REPLICAS
        assert refused["throttle_time_ms"] > 0
    assert secured.admin.call("DELETE", "/v1/access/quotas/q").status in (200, 204)


@pytest.mark.slow
@pytest.mark.rule("KF12")
def test_who_loses_a_right_while_he_waits_for_his_quota_publishes_nothing(secured: Secured) -> None:
    assert secured.admin.create("waited")
    key_id, slow = secured.key("slow", ("producer", "waited"))
    quota = {"principal": "key:slow", "publish_bytes_per_s": 60, "burst_seconds": 1}
    assert secured.admin.json("PUT", "/v1/access/quotas/slow", quota).status == 200
    with Tape(bootstrap_of(secured.server)) as tape:
        assert login(tape, str(slow.token))["error_code"] == 0
        for _ in range(2):
            # The second waits nine seconds for what the first owes.
            tape.send(PRODUCE, 9, **publish("waited", batch(b"x" * 500)))
        until(lambda: secured.admin.end("waited") == 1)
        assert secured.admin.call("DELETE", f"/v1/access/keys/{key_id}").status == 204
        assert tape.is_closed()
    assert secured.admin.end("waited") == 1
    assert secured.admin.call("DELETE", "/v1/access/quotas/slow").status in (200, 204)


@pytest.mark.rule("KF12")
def test_clients_log_in_make_a_topic_and_it_is_recorded(secured: Secured) -> None:
    token = str(secured.admin.token)
    bootstrap = bootstrap_of(secured.server)
    with producer(bootstrap, **plain(token)) as sends:
        sends.produce("recorded", b"x")
    assert [each.value() for each in read(bootstrap, "recorded", 1, **plain(token))] == [b"x"]
    wrong = Producer({"bootstrap.servers": bootstrap, "log_level": 0, "security.protocol": "SASL_PLAINTEXT",
                      "sasl.mechanism": "PLAIN", "sasl.username": "x", "sasl.password": token})  # fmt: skip
    with pytest.raises(KafkaException):
        wrong.list_topics(timeout=3)
    assert ("createTopic", "topic/recorded", "done", 201) in recorded(secured, "recorded", 1)


def recorded(secured: Secured, topic: str, count: int) -> list[tuple[str, str, str, int]]:
    """The first `count` changes of a topic that the audit log has as done."""
    path = "/v1/topics/_audit/partitions/0/records?values=json&max_records=1000"
    end = time.monotonic() + WAIT_SECONDS
    while True:
        rows = [row["value"] for row in secured.admin.get(path).json["records"]]
        done = [
            (row["operation"], row["resource"], row["outcome"], row["status"])
            for row in rows
            if row["resource"].partition("/partition")[0] == f"topic/{topic}" and row["outcome"] == "done"
        ]
        if len(done) >= count:
            return done
        assert time.monotonic() < end, done
        time.sleep(0.05)


@pytest.mark.rule("KF12")
def test_what_is_administered_is_recorded_as_if_it_came_by_http(secured: Secured) -> None:
    token, topic = str(secured.admin.token), "administered"
    setting = {"name": "retention.ms", "config_operation": 0, "value": "5"}
    resource = {"resource_type": 2, "resource_name": topic, "configs": [setting]}
    part = {"partition_index": 1, "offset": -1}
    with Tape(bootstrap_of(secured.server)) as tape:
        assert login(tape, token)["error_code"] == 0
        tape.ask(19, 5, topics=[{"name": topic, "num_partitions": 1, "replication_factor": 1}])
        tape.ask(44, 1, resources=[resource])
        tape.ask(37, 3, topics=[{"name": topic, "count": 2, "assignments": None}], timeout_ms=1000)
        tape.ask(21, 2, topics=[{"name": topic, "partitions": [part]}], timeout_ms=1000)
        tape.ask(20, 5, topic_names=[topic])
    assert recorded(secured, topic, 5) == [
        ("createTopic", f"topic/{topic}", "done", 201),
        ("alterTopic", f"topic/{topic}", "done", 200),
        ("alterTopic", f"topic/{topic}", "done", 200),
        ("deleteRecords", f"topic/{topic}/partition/1", "done", 200),
        ("deleteTopic", f"topic/{topic}", "done", 204),
    ]


@pytest.mark.rule("KF12")
def test_who_may_not_administer_is_told_so(secured: Secured) -> None:
    _, writer = secured.key("administers-nothing", ("producer", "allowed"))
    of_topic, of_group = KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.GROUP_AUTHORIZATION_FAILED
    setting = {"name": "retention.ms", "config_operation": 0, "value": "5"}
    resource = {"resource_type": 2, "resource_name": "allowed", "configs": [setting]}
    replaced = {**resource, "configs": [{"name": "retention.ms", "value": "5"}]}
    part = {"partition_index": 0, "offset": -1}
    with Tape(bootstrap_of(secured.server)) as tape:
        assert login(tape, str(writer.token))["error_code"] == 0
        assert tape.ask(44, 1, resources=[resource])["responses"][0]["error_code"] == of_topic
        assert tape.ask(33, 2, resources=[replaced])["responses"][0]["error_code"] == of_topic
        grown = tape.ask(37, 3, topics=[{"name": "allowed", "count": 2, "assignments": None}], timeout_ms=1000)
        assert grown["results"][0]["error_code"] == of_topic
        cut = tape.ask(21, 2, topics=[{"name": "allowed", "partitions": [part]}], timeout_ms=1000)
        assert the_part(cut)["error_code"] == of_topic
        assert tape.ask(15, 6, groups=["g"])["groups"][0]["error_code"] == of_group
        assert tape.ask(42, 2, groups_names=["g"])["results"][0]["error_code"] == of_group
        [folder] = tape.ask(35, 4, topics=None)["results"]
        assert [each["name"] for each in folder["topics"]] == ["allowed"]
        assert (folder["total_bytes"], folder["usable_bytes"]) == (-1, -1)


@pytest.mark.rule("KF11")
def test_a_certificate_says_who_it_is(tmp_path: Path) -> None:
    made = Made(tmp_path)
    files = made.with_clients("required")
    issued = made.authority.issue_cert("loader.etl.example")
    (tmp_path / "client.pem").write_bytes(b"".join(blob.bytes() for blob in issued.cert_chain_pems))
    (tmp_path / "client.key").write_bytes(issued.private_key_pem.bytes())
    (tmp_path / "authority.pem").write_bytes(made.authority.cert_pem.bytes())
    rules = '[{"from": "dns", "match": "*.etl.example", "principal": "loader"}]'
    settings = {"redis_url": NO_REDIS, "auth": "on", "data_dir": str(tmp_path / "data")}
    make_first_key(**settings)
    port = free_port()
    tls = {
        "tls_cert": files.certificate,
        "tls_key": files.key,
        "tls_client": "required",
        "tls_client_ca": files.client_ca,
    }
    own = {"certificates": rules, "kafka_listen": f"127.0.0.1:{port}", "kafka_advertise": f"localhost:{port}"}
    with running_server(**settings, **tls, **own):
        client = Producer({"bootstrap.servers": f"localhost:{port}", "log_level": 0, "security.protocol": "SSL",
                           "ssl.ca.location": str(tmp_path / "authority.pem"),
                           "ssl.certificate.location": str(tmp_path / "client.pem"),
                           "ssl.key.location": str(tmp_path / "client.key")})  # fmt: skip
        # It is known who that is, and that he may nothing.
        found = client.list_topics("t", timeout=WAIT_SECONDS)
        assert found.topics["t"].error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
