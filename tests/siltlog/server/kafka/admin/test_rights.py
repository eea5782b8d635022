"""Clients of Kafka are told what they may do, where they ask for it."""

from typing import Any

from confluent_kafka import TopicCollection
from confluent_kafka.admin import AclOperation, AdminClient
from http_rig import Http
from kafka_rig import METADATA, WAIT_SECONDS, Tape

from siltlog.infra.security.access import Binding, Policy, Subject
from siltlog.infra.security.grant import Access, Grant, Identity
from siltlog.server.kafka.admin.rights import (
    ALTER,
    ALTER_CONFIGS,
    CREATE,
    DELETE,
    DESCRIBE,
    DESCRIBE_CONFIGS,
    operations,
)

NOT_ASKED = -(2**31)


class At:
    """A clock that stands."""

    def now_us(self) -> int:
        return 0


def test_each_right_is_the_operations_of_kafka_that_it_allows() -> None:
    operator = Policy({}, {"b": Binding("key:o", "operator", "own-")})
    grant = Grant(Access(At(), operator), Identity(Subject("key:o")))  # type: ignore[arg-type]
    allowed = (DESCRIBE, DESCRIBE_CONFIGS, CREATE, ALTER, ALTER_CONFIGS, DELETE)
    assert operations(grant, "topic", "own-t") == sum(1 << each for each in allowed)
    assert operations(grant, "topic", "other") == 0
    assert operations(grant, "group", "own-g") == (1 << DESCRIBE) + (1 << DELETE)
    assert operations(grant, "cluster") == 0


def test_a_client_that_asks_is_told_and_another_is_not(http: Http, bootstrap: str, admin: AdminClient) -> None:
    http.create("may")
    asked = TopicCollection(["may"])
    [topic] = admin.describe_topics(asked, include_authorized_operations=True, request_timeout=WAIT_SECONDS).values()
    assert {AclOperation.READ, AclOperation.ALTER_CONFIGS} <= set(topic.result().authorized_operations)
    cluster = admin.describe_cluster(include_authorized_operations=True, request_timeout=WAIT_SECONDS).result()
    assert AclOperation.ALTER in cluster.authorized_operations
    with Tape(bootstrap) as tape:

        def told(**more: Any) -> tuple[int, int]:
            answer = tape.ask(METADATA, 10, topics=[{"name": "may"}, {"name": "no such"}], **more)
            may, none = answer["topics"]
            assert none["topic_authorized_operations"] == NOT_ASKED
            return may["topic_authorized_operations"], answer["cluster_authorized_operations"]

        assert told() == (NOT_ASKED, NOT_ASKED)
        of_topic, of_cluster = told(
            include_topic_authorized_operations=True, include_cluster_authorized_operations=True
        )
        assert of_topic & 1 << DELETE
        assert of_cluster & 1 << ALTER
