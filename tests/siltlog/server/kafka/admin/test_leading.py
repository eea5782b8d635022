"""Elections and reassignments at a server alone, which leads all that there is."""

from typing import Any

import pytest
from access_rig import secured_server
from http_rig import Http
from kafka_rig import Tape, bootstrap_of, free_port

from siltlog.infra.kafka.errors import KafkaError

ELECT, REASSIGN, LIST = 43, 45, 46
PREFERRED, UNCLEAN = 0, 1


def elected(
    tape: Tape, topics: dict[str, list[int]], version: int = 2, kind: int = PREFERRED
) -> list[tuple[str, int, int]]:
    """The (topic, partition, error) of each."""
    wanted = [{"topic": name, "partitions": numbers} for name, numbers in topics.items()]
    named = {"topic_partitions": wanted, "timeout_ms": 1_000} | ({"election_type": kind} if version else {})
    answer = tape.ask(ELECT, version, **named)
    return [
        (each["topic"], part["partition_id"], part["error_code"])
        for each in answer["replica_election_results"]
        for part in each["partition_result"]
    ]


@pytest.mark.rule("KF27")
@pytest.mark.parametrize(("version", "kind"), [(0, PREFERRED), (1, UNCLEAN), (2, PREFERRED), (2, UNCLEAN)])
def test_an_election_is_never_needed(http: Http, bootstrap: str, version: int, kind: int) -> None:
    name = f"elected-{version}-{kind}"
    http.create(name, 2)
    with Tape(bootstrap) as tape:
        found = elected(tape, {name: [1, 0, 1, 9], "absent": [0]}, version, kind)
        everything = tape.ask(ELECT, version, topic_partitions=None, timeout_ms=1_000)
    assert found == [
        (name, 1, KafkaError.ELECTION_NOT_NEEDED),
        (name, 0, KafkaError.ELECTION_NOT_NEEDED),
        (name, 9, KafkaError.UNKNOWN_TOPIC_OR_PARTITION),
        ("absent", 0, KafkaError.UNKNOWN_TOPIC_OR_PARTITION),
    ]
    assert everything["replica_election_results"] == []


def test_there_is_no_other_kind_of_election(http: Http, bootstrap: str) -> None:
    http.create("elected-otherwise")
    with Tape(bootstrap) as tape:
        assert elected(tape, {"elected-otherwise": [0]}, kind=2) == [
            ("elected-otherwise", 0, KafkaError.INVALID_REQUEST)
        ]
        answer = tape.ask(ELECT, 2, topic_partitions=None, timeout_ms=1_000, election_type=-1)
    assert answer["error_code"] == KafkaError.INVALID_REQUEST


def reassigned(tape: Tape, topic: str, **replicas: list[int] | None) -> tuple[int, str | None]:
    """`replicas` by partition, as p0; the error and the sentence that all partitions have."""
    parts = [{"partition_index": int(name[1:]), "replicas": each} for name, each in replicas.items()]
    answer = tape.ask(REASSIGN, 1, topics=[{"name": topic, "partitions": parts}])
    assert answer["error_code"] == 0
    [told] = answer["responses"]
    [found] = {(part["error_code"], part["error_message"]) for part in told["partitions"]}
    return found


@pytest.mark.rule("KF27")
@pytest.mark.parametrize(
    ("replicas", "code"),
    [
        ({"p0": [1], "p1": [1]}, KafkaError.NONE),
        ({"p1": [1]}, KafkaError.NONE),
        ({"p0": [7], "p1": [7]}, KafkaError.INVALID_REPLICA_ASSIGNMENT),
        ({"p0": [1, 1]}, KafkaError.INVALID_REPLICA_ASSIGNMENT),
        ({"p0": []}, KafkaError.INVALID_REPLICA_ASSIGNMENT),
        ({"p5": [1]}, KafkaError.UNKNOWN_TOPIC_OR_PARTITION),
        ({"p0": None}, KafkaError.NO_REASSIGNMENT_IN_PROGRESS),
    ],
)
def test_a_topic_stays_where_it_is(http: Http, bootstrap: str, replicas: Any, code: KafkaError) -> None:
    if http.get("/v1/topics/stays").status == 404:
        http.create("stays", 2)
    with Tape(bootstrap) as tape:
        found, sentence = reassigned(tape, "stays", **replicas)
        assert (found, bool(sentence)) == (code, code != KafkaError.NONE)
        assert reassigned(tape, "absent", **replicas)[0] == KafkaError.UNKNOWN_TOPIC_OR_PARTITION
        for wanted in (None, [{"name": "stays", "partition_indexes": [0]}]):
            assert tape.ask(LIST, 0, topics=wanted)["topics"] == []


@pytest.mark.rule("KF12")
def test_rights_are_those_of_http(valkey_url: str) -> None:
    with secured_server(kafka_listen=f"127.0.0.1:{free_port()}", redis_url=valkey_url) as secured:
        assert secured.admin.create("mine-t")
        assert secured.admin.create("other-t")
        key_id, mine = secured.key("mine", ("consumer", "mine"))
        with Tape(bootstrap_of(secured.server)) as tape:
            tape.ask(17, 1, mechanism="PLAIN")
            assert tape.ask(36, 2, auth_bytes=f"\0{key_id}\0{mine.token}".encode())["error_code"] == 0
            assert elected(tape, {"mine-t": [0], "other-t": [0]}) == [
                ("mine-t", 0, KafkaError.ELECTION_NOT_NEEDED),
                ("other-t", 0, KafkaError.TOPIC_AUTHORIZATION_FAILED),
            ]
            assert reassigned(tape, "mine-t", p0=[1])[0] == KafkaError.TOPIC_AUTHORIZATION_FAILED
            listed = tape.ask(74, 1, resource_types=[2])["config_resources"]
            assert [each["resource_name"] for each in listed] == ["mine-t"]
