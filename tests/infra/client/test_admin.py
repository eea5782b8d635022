"""The administrative client against a real server."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

from siltlog import (
    Admin,
    ConfigError,
    Producer,
    Refused,
    TopicExists,
    TopicPartition,
    Unavailable,
    UnknownTopic,
    table_uri,
)
from siltlog.testing import running_server


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with running_server() as server:
        yield server.url


def test_topics_come_and_go(url: str) -> None:
    with Admin(url) as admin:
        created = admin.create_topic("a", partitions=3, config={"retention.ms": 60_000})
        assert (created["name"], created["partitions"]) == ("a", 3)
        assert admin.topic("a")["config"]["retention.ms"] == {"value": 60_000, "source": "topic"}
        with pytest.raises(TopicExists):
            admin.create_topic("a", partitions=3)
        assert admin.create_topic("a", partitions=3, exist_ok=True)["topic_id"] == created["topic_id"]
        with pytest.raises(TopicExists):
            admin.create_topic("a", partitions=4, exist_ok=True)
        admin.create_topic("b")
        assert {topic["name"] for topic in admin.topics()} >= {"a", "b"}
        assert [topic["name"] for topic in admin.topics(prefix="b")] == ["b"]
        assert table_uri("a", url=url) == admin.topic("a")["table_uri"]
        admin.delete_topic("a")
        with pytest.raises(UnknownTopic) as unknown:
            admin.topic("a")
        assert unknown.value.request_id
        with pytest.raises(UnknownTopic):
            table_uri("a", url=url)


def test_topics_change(url: str) -> None:
    with Admin(url) as admin:
        admin.create_topic("changing", config={"retention.ms": 60_000, "flush.ms": 70})
        changed = admin.alter_topic("changing", partitions=2, config={"retention.ms": None, "acks": "table"})
        assert changed == admin.topic("changing")
        own = {name: entry["value"] for name, entry in changed["config"].items() if entry["source"] == "topic"}
        assert (changed["partitions"], own) == (2, {"flush.ms": 70, "acks": "table"})
        assert admin.alter_topic("changing", config={"flush.ms": 80})["partitions"] == 2
        assert admin.alter_topic("changing", partitions=3)["config"]["flush.ms"]["value"] == 80
        with pytest.raises(Refused, match="only grow"):
            admin.alter_topic("changing", partitions=1)
        with pytest.raises(ConfigError, match=r"flush\.seconds"):
            admin.alter_topic("changing", config={"flush.seconds": 1})
        with pytest.raises(UnknownTopic):
            admin.alter_topic("nothing", partitions=2)


def test_offsets_by_time(url: str) -> None:
    moment = datetime(2026, 11, 21, 7, 36, 0, 123456, tzinfo=UTC)
    with Admin(url) as admin, Producer(url) as producer:
        admin.create_topic("times")
        for i in range(10):
            producer.send("times", b"x", timestamp=moment + timedelta(seconds=i))
        producer.flush()
        [bounds] = admin.offsets("times")
        assert (bounds["partition"], bounds["log_start_offset"], bounds["high_watermark"]) == (0, 0, 10)
        assert admin.offsets("times", timestamp=moment + timedelta(seconds=3))[0]["offset"] == 3
        assert admin.offsets("times", timestamp="2026-11-21T07:36:03.123457Z")[0]["offset"] == 4


def test_offsets_of_a_group(url: str) -> None:
    with Admin(url) as admin, Producer(url) as producer:
        admin.create_topic("grouped")
        producer.send("grouped", b"x").result()
        admin.set_group_offsets("g", {TopicPartition("grouped", 0): 1})
        assert admin.group_offsets("g") == {TopicPartition("grouped", 0): 1}
        assert admin.group("g")["state"] == "empty"
        assert "g" in {group["group"] for group in admin.groups()}
        with pytest.raises(Refused):
            admin.set_group_offsets("g", {TopicPartition("grouped", 0): 99})
        admin.delete_group("g")
        assert "g" not in {group["group"] for group in admin.groups()}


def test_the_cluster_names_its_limits(url: str) -> None:
    with Admin(url) as admin:
        assert {"request_bytes", "record_bytes", "records"} <= set(admin.cluster()["limits"])


def test_nobody_there_is_said_soon() -> None:
    with Admin("http://127.0.0.1:9", retry_timeout_ms=100) as admin, pytest.raises(Unavailable, match="running"):
        admin.cluster()
