"""Topics that grow by Kafka's clients, and when they do not."""

from typing import Any

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewPartitions
from http_rig import Http
from kafka.admin import NewPartitions as PythonPartitions
from kafka_rig import Tape

from siltlog.infra.kafka.errors import KafkaError

CREATE_PARTITIONS = 37


def count_of(http: Http, topic: str) -> int:
    count: int = http.get(f"/v1/topics/{topic}").json["partitions"]
    return count


def test_a_topic_grows(http: Http, admin: AdminClient, python_admin: Any) -> None:
    http.create("grown")
    [tried] = admin.create_partitions([NewPartitions("grown", 3)], validate_only=True).values()
    assert (tried.result(), count_of(http, "grown")) == (None, 1)
    [grown] = admin.create_partitions([NewPartitions("grown", 3)]).values()
    assert (grown.result(), count_of(http, "grown")) == (None, 3)
    python_admin.create_partitions({"grown": PythonPartitions(4)})
    assert count_of(http, "grown") == 4


@pytest.mark.rule("KF27")
def test_a_topic_grows_with_an_assignment_of_replicas(http: Http, bootstrap: str, admin: AdminClient) -> None:
    http.create("grown-by-node")
    [grown] = admin.create_partitions([NewPartitions("grown-by-node", 3, [[1], [1]])]).values()
    assert (grown.result(), count_of(http, "grown-by-node")) == (None, 3)
    with Tape(bootstrap) as tape:
        more = {"name": "grown-by-node", "count": 5, "assignments": [{"broker_ids": [1]}]}
        [answer] = tape.ask(CREATE_PARTITIONS, 3, topics=[more], timeout_ms=1000)["results"]
    assert (answer["error_code"], count_of(http, "grown-by-node")) == (KafkaError.INVALID_REPLICA_ASSIGNMENT, 3)
    assert "2 partitions are new, and 1 are assigned" in answer["error_message"]


@pytest.mark.parametrize(
    ("wanted", "code"),
    [
        (NewPartitions("three", 3), KafkaError.INVALID_PARTITIONS),
        (NewPartitions("three", 2), KafkaError.INVALID_PARTITIONS),
        (NewPartitions("three", 100_000), KafkaError.INVALID_PARTITIONS),
        (NewPartitions("three", 4, [[7]]), KafkaError.INVALID_REPLICA_ASSIGNMENT),
        (NewPartitions("absent", 4), KafkaError.UNKNOWN_TOPIC_OR_PARTITION),
        (NewPartitions("compacted", 4), KafkaError.POLICY_VIOLATION),
        (NewPartitions("_offsets", 400), KafkaError.TOPIC_AUTHORIZATION_FAILED),
    ],
)
def test_what_does_not_grow_says_why(http: Http, admin: AdminClient, wanted: NewPartitions, code: KafkaError) -> None:
    if http.get("/v1/topics/three").status == 404:
        http.create("three", 3)
        http.create("compacted", cleanup_policy="compact")
    for validate_only in (True, False):
        [done] = admin.create_partitions([wanted], validate_only=validate_only).values()
        with pytest.raises(KafkaException) as failed:
            done.result()
        assert failed.value.args[0].code() == code
        assert failed.value.args[0].str()
    assert (count_of(http, "three"), count_of(http, "compacted")) == (3, 1)


def test_a_topic_that_is_named_twice_is_refused(http: Http, bootstrap: str) -> None:
    http.create("twice")
    topics = [{"name": "twice", "count": 2, "assignments": None}, {"name": "twice", "count": 3, "assignments": None}]
    with Tape(bootstrap) as tape:
        [answer] = tape.ask(CREATE_PARTITIONS, 3, topics=topics, timeout_ms=1000)["results"]
    assert (answer["error_code"], count_of(http, "twice")) == (KafkaError.INVALID_REQUEST, 1)
