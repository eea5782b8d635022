"""Groups of HTTP as Kafka's tools see them: listed, described, deleted."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from confluent_kafka import Consumer, ConsumerGroupState
from confluent_kafka.admin import AdminClient
from http_rig import Http
from kafka_rig import WAIT_SECONDS, Tape

from siltlog.infra.kafka.consumer_protocol import assigned_partitions
from siltlog.infra.kafka.errors import KafkaError

COMMIT, LIST, DESCRIBE, DELETE, DESCRIBE_CONSUMERS = 8, 16, 15, 42, 69


def joined(http: Http, group: str, topic: str, member: str = "m") -> int:
    """Has a member of `group`; its generation."""
    body = {"generation": 0, "topics": [topic], "client_id": "c", "session_timeout_ms": 60_000}
    told = http.json("PUT", f"/v1/groups/{group}/members/{member}", body)
    assert told.status == 200, told
    generation: int = told.json["generation"]
    return generation


def committed(http: Http, group: str, topic: str) -> None:
    body = {"offsets": [{"topic": topic, "partition": 0, "offset": 0}]}
    assert http.json("PUT", f"/v1/groups/{group}/offsets", body).status == 204


def listed(tape: Tape, version: int = 5, **filters: list[str]) -> dict[str, tuple[str, str]]:
    answer = tape.ask(LIST, version, **filters)
    assert answer["error_code"] == 0
    return {each["group_id"]: (each["group_state"], each["group_type"]) for each in answer["groups"]}


def test_groups_are_listed_by_state_and_type(http: Http, bootstrap: str, admin: AdminClient) -> None:
    http.create("listed")
    committed(http, "idle", "listed")
    joined(http, "busy", "listed")
    with Tape(bootstrap) as tape:
        found = listed(tape)
        assert (found["idle"], found["busy"]) == (("Empty", "classic"), ("Stable", "consumer"))
        assert {"busy"} <= set(listed(tape, states_filter=["stable", "Dead"]))
        assert "idle" not in listed(tape, states_filter=["stable", "Dead"])
        assert "busy" in listed(tape, types_filter=["consumer"])
        assert not {"busy", "idle"} & set(listed(tape, types_filter=["share"]))
        assert {"busy", "idle"} <= set(listed(tape, 0))
    answer = admin.list_consumer_groups().result()
    assert (answer.errors, {"busy", "idle"} <= {each.group_id for each in answer.valid}) == ([], True)


@pytest.mark.rule("KF17")
def test_a_group_that_only_has_offsets_is_a_classic_one_of_no_protocol(http: Http, bootstrap: str) -> None:
    """It is what a broker of Kafka says of one, until a member has joined."""
    http.create("alone")
    part = {"partition_index": 0, "committed_offset": 0}
    asked = {"group_id": "alone", "generation_id_or_member_epoch": -1, "member_id": ""}
    with Tape(bootstrap) as tape:
        tape.ask(COMMIT, 8, **asked, topics=[{"name": "alone", "partitions": [part]}])
        assert listed(tape)["alone"] == ("Empty", "classic")
        assert "alone" in listed(tape, types_filter=["classic"])
        assert "alone" not in listed(tape, types_filter=["consumer"])
        [listed_as] = [each for each in tape.ask(LIST, 5)["groups"] if each["group_id"] == "alone"]
        [found] = tape.ask(DESCRIBE, 6, groups=["alone"])["groups"]
        assert listed_as["protocol_type"] == found["protocol_type"] == ""
        assert (found["error_code"], found["group_state"]) == (0, "Empty")
        [refused] = tape.ask(DESCRIBE_CONSUMERS, 1, group_ids=["alone"])["groups"]
        assert refused["error_code"] == KafkaError.GROUP_ID_NOT_FOUND
        joined(http, "alone", "alone")
        assert http.call("DELETE", "/v1/groups/alone/members/m").status == 204
        assert listed(tape)["alone"] == ("Empty", "consumer")
        assert tape.ask(DESCRIBE_CONSUMERS, 1, group_ids=["alone"])["groups"][0]["error_code"] == 0


def test_a_group_is_described_with_what_its_members_hold(http: Http, bootstrap: str, admin: AdminClient) -> None:
    http.create("held", 2)
    joined(http, "described", "held")
    with Tape(bootstrap) as tape:
        [found] = tape.ask(DESCRIBE, 6, groups=["described", "described"])["groups"]
        assert (found["error_code"], found["group_state"], found["protocol_type"]) == (0, "Stable", "consumer")
        [member] = found["members"]
        assert (member["member_id"], member["client_id"]) == ("m", "c")
        # read | delete | describe
        [found] = tape.ask(DESCRIBE, 6, groups=["described"], include_authorized_operations=True)["groups"]
        assert found["authorized_operations"] == (1 << 3) + (1 << 6) + (1 << 8)


@contextmanager
def classic(bootstrap: str, group: str, topic: str) -> Iterator[Consumer]:
    """The only member of a group whose members share out its partitions, once it has them."""
    settings = {"bootstrap.servers": bootstrap, "group.id": group, "client.id": "c", "log_level": 0}
    consumer = Consumer({**settings, "enable.auto.commit": False})
    consumer.subscribe([topic])
    end = time.monotonic() + WAIT_SECONDS
    while not consumer.assignment():
        assert time.monotonic() < end
        consumer.poll(0.1)
    yield consumer
    consumer.close()


def test_a_group_of_any_name_whose_members_assign_is_described_in_their_words(
    http: Http, bootstrap: str, admin: AdminClient
) -> None:
    http.create("assigned", 2)
    name = "any/thing ü%"
    with classic(bootstrap, name, "assigned"):
        with Tape(bootstrap) as tape:
            assert listed(tape)[name] == ("Stable", "classic")
            assert name in listed(tape, types_filter=["Classic"])
            assert name not in listed(tape, types_filter=["Consumer"])
            [found] = tape.ask(DESCRIBE, 6, groups=[name])["groups"]
            [member] = found["members"]
            assert (found["group_state"], found["protocol_data"]) == ("Stable", "range")
            assert assigned_partitions(member["member_assignment"]) == [("assigned", 0), ("assigned", 1)]
            assert (member["client_id"], member["client_host"]) == ("c", "/127.0.0.1")
            [refused] = tape.ask(DELETE, 2, groups_names=[name])["results"]
            assert refused["error_code"] == KafkaError.NON_EMPTY_GROUP
        [described] = admin.describe_consumer_groups([name], request_timeout=WAIT_SECONDS).values()
        [seen] = described.result().members
        assert [(at.topic, at.partition) for at in seen.assignment.topic_partitions] == [
            ("assigned", 0),
            ("assigned", 1),
        ]
    [gone] = admin.delete_consumer_groups([name], request_timeout=WAIT_SECONDS).values()
    assert gone.result() is None


def test_clients_see_what_members_of_http_hold(http: Http, admin: AdminClient, python_admin: Any) -> None:
    http.create("http-held", 2)
    joined(http, "http-members", "http-held")
    [described] = admin.describe_consumer_groups(["http-members"], request_timeout=WAIT_SECONDS).values()
    found = described.result()
    [member] = found.members
    assert found.state == ConsumerGroupState.STABLE
    assert [(at.topic, at.partition) for at in member.assignment.topic_partitions] == [
        ("http-held", 0),
        ("http-held", 1),
    ]
    assert "http-members" in str(python_admin.describe_groups(["http-members"]))
    assert "http-members" in str(python_admin.list_groups())


@pytest.mark.parametrize(("version", "code"), [(5, KafkaError.NONE), (6, KafkaError.GROUP_ID_NOT_FOUND)])
def test_a_group_that_is_not_there_is_dead(bootstrap: str, version: int, code: KafkaError) -> None:
    with Tape(bootstrap) as tape:
        [found] = tape.ask(DESCRIBE, version, groups=["nobody"])["groups"]
    assert (found["error_code"], found["group_state"]) == (code, "Dead")


def test_groups_without_members_are_deleted(http: Http, bootstrap: str) -> None:
    http.create("left")
    committed(http, "gone", "left")
    joined(http, "there", "left")
    with Tape(bootstrap) as tape:
        found = tape.ask(DELETE, 2, groups_names=["gone", "there", "nobody"])["results"]
    assert [(each["group_id"], each["error_code"]) for each in found] == [
        ("gone", KafkaError.NONE),
        ("there", KafkaError.NON_EMPTY_GROUP),
        ("nobody", KafkaError.GROUP_ID_NOT_FOUND),
    ]
    assert http.get("/v1/groups/gone").status == 404
    assert http.get("/v1/groups/there").status == 200
