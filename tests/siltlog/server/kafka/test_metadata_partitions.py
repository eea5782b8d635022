"""DescribeTopicPartitions: topics in pages. What is expected here a broker of Kafka 4.3 says as well."""

from collections.abc import Iterator
from typing import Any

import pytest
from access_rig import secured_server
from http_rig import Http
from kafka_rig import METADATA, Tape, bootstrap_of, free_port, served

from siltlog.infra.kafka.errors import KafkaError
from siltlog.infra.security.keys import read_key
from siltlog.server.kafka.metadata import PARTITIONS_MAX

DESCRIBE = 75
PARTITIONS = {"aa": 3, "bb": 2, "cc": 1}
INVALID, UNKNOWN = KafkaError.INVALID_REQUEST, KafkaError.UNKNOWN_TOPIC_OR_PARTITION
At = tuple[str, int]


@pytest.fixture(scope="module")
def tape() -> Iterator[Tape]:
    with served() as (http, bootstrap, _), Tape(bootstrap) as tape:
        make(http)
        yield tape


def make(http: Http) -> None:
    for name, partitions in PARTITIONS.items():
        http.create(name, partitions)


def described(tape: Tape, topics: list[str], limit: int = 2_000, cursor: At | None = None) -> dict[str, Any]:
    at = None if cursor is None else {"topic_name": cursor[0], "partition_index": cursor[1]}
    asked = [{"name": name} for name in topics]
    return tape.ask(DESCRIBE, 0, topics=asked, response_partition_limit=limit, cursor=at)


def brief(answer: dict[str, Any]) -> tuple[dict[str, Any], At | None]:
    """The partitions or the error of each topic, and where it goes on."""
    told = {
        topic["name"]: topic["error_code"] or [part["partition_index"] for part in topic["partitions"]]
        for topic in answer["topics"]
        if not topic["is_internal"]
    }
    assert list(told) == [topic["name"] for topic in answer["topics"] if not topic["is_internal"]]
    cursor = answer["next_cursor"]
    return told, None if cursor is None else (cursor["topic_name"], cursor["partition_index"])


@pytest.mark.parametrize(
    ("limit", "cursor", "told", "following"),
    [
        (9, ("aa", 0), {"aa": [0, 1, 2], "bb": [0, 1], "cc": [0]}, None),
        (2, ("aa", 0), {"aa": [0, 1]}, ("aa", 2)),
        (3, ("aa", 0), {"aa": [0, 1, 2]}, ("bb", 0)),
        (0, ("aa", 0), {"aa": [0]}, ("aa", 1)),
        (-4, ("aa", 0), {"aa": [0]}, ("aa", 1)),
        (2, ("aa", 2), {"aa": [2], "bb": [0]}, ("bb", 1)),
        (2, ("aa", 3), {"aa": [], "bb": [0, 1]}, ("cc", 0)),
        (2, ("aa", 9), {"aa": [], "bb": [0, 1]}, ("cc", 0)),
        (2, ("ab", 1), {"bb": [0, 1]}, ("cc", 0)),
        (2, ("zz", 0), {}, None),
        (2, ("aa", -1), {}, None),
    ],
)
def test_all_topics_come_in_pages(
    tape: Tape, limit: int, cursor: At, told: dict[str, Any], following: At | None
) -> None:
    assert brief(described(tape, [], limit, cursor)) == (told, following)


@pytest.mark.parametrize(
    ("topics", "limit", "cursor", "told", "following"),
    [
        (["cc", "aa", "zz", "a b", "aa"], 9, None, {"a b": 17, "aa": [0, 1, 2], "cc": [0], "zz": UNKNOWN}, None),
        (["cc", "aa", "zz"], 2, ("aa", 2), {"aa": [2], "cc": [0]}, ("zz", 0)),
        (["zz", "cc"], 1, None, {"cc": [0]}, ("zz", 0)),
        (["ax", "bb", "by"], 1, None, {"ax": UNKNOWN, "bb": [0]}, ("bb", 1)),
        (["cc", "aa"], 2, ("bb", 0), {"cc": INVALID, "aa": INVALID}, None),
        (["aa", "cc"], 2, ("aa", -1), {"aa": INVALID, "cc": INVALID}, None),
    ],
)
def test_topics_that_are_asked_for_come_by_name(
    tape: Tape, topics: list[str], limit: int, cursor: At | None, told: dict[str, Any], following: At | None
) -> None:
    assert brief(described(tape, topics, limit, cursor)) == (told, following)


def test_a_topic_is_told_as_by_metadata(tape: Tape) -> None:
    [topic] = described(tape, ["aa"])["topics"]
    [known] = tape.ask(METADATA, 12, topics=[{"name": "aa"}], include_topic_authorized_operations=True)["topics"]
    for part in topic["partitions"]:
        assert part.pop("eligible_leader_replicas") == part.pop("last_known_elr") == []
    assert topic == known


def test_an_answer_has_only_so_many_partitions() -> None:
    with served() as (http, bootstrap, _), Tape(bootstrap) as tape:
        for number in range(3):
            http.create(f"t{number}", PARTITIONS_MAX // 2)
        told, following = brief(described(tape, [], 2**31 - 1, ("t", 0)))
        assert ([len(told[name]) for name in ("t0", "t1")], following) == ([1_000, 1_000], ("t2", 0))
        assert brief(described(tape, [], 2**31 - 1, following)) == ({"t2": list(range(1_000))}, None)


@pytest.mark.rule("KF12")
def test_who_may_not_see_a_topic_is_told_nothing_of_it() -> None:
    with secured_server(kafka_listen=f"127.0.0.1:{free_port()}") as secured:
        make(secured.admin)
        _, reader = secured.key("reader", ("consumer", "bb"))
        key = read_key(str(reader.token))
        assert key is not None
        with Tape(bootstrap_of(secured.server)) as tape:
            tape.ask(17, 1, mechanism="PLAIN")
            assert tape.ask(36, 2, auth_bytes=f"\0{key.key_id}\0{reader.token}".encode())["error_code"] == 0
            assert brief(described(tape, [])) == ({"bb": [0, 1]}, None)
            refused = KafkaError.TOPIC_AUTHORIZATION_FAILED
            found = described(tape, ["aa", "bb", "zz"])
            assert brief(found) == ({"bb": [0, 1], "aa": refused, "zz": refused}, None)
            assert {topic["topic_id"] for topic in found["topics"] if topic["error_code"]} == {bytes(16)}
