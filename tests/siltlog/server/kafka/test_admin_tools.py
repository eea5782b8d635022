"""Kafka's own command line tools, at this server and at a broker of Kafka: the same commands, with the same effect."""

import json
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from kafka_rig import WAIT_SECONDS, bootstrap_of, free_port
from kafka_tools import KafkaTools, kafka_broker

from siltlog.infra.errors import ConfigError
from siltlog.testing import running_server

pytestmark = pytest.mark.client
TOPIC = "orders"


class Place(NamedTuple):
    """Where the tools are used."""

    bootstrap: str
    tools: KafkaTools
    is_kafka: bool

    def run(self, tool: str, *arguments: str) -> str:
        """What a tool prints that does what it is asked for."""
        printed = self.tools.run(tool, *arguments)
        assert printed.status == 0, printed.text
        return printed.text

    def refused(self, tool: str, *arguments: str) -> str:
        printed = self.tools.run(tool, *arguments)
        assert printed.status != 0, printed.text
        return printed.text

    def told(self, is_so: Callable[[str], bool], tool: str, *arguments: str) -> str:
        """What a tool prints once it `is_so`: a broker of Kafka answers a change before it has learned of it itself."""
        deadline = time.monotonic() + WAIT_SECONDS
        while not is_so(printed := self.run(tool, *arguments)):
            assert time.monotonic() < deadline, printed
        return printed

    def offsets(self, *arguments: str) -> list[str]:
        return [line for line in self.run("kafka-get-offsets", "--topic", TOPIC, *arguments).splitlines() if line]


@pytest.fixture(scope="module", params=["siltlog", "kafka"])
def there(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    try:
        if request.param == "kafka":
            with kafka_broker(tmp_path_factory.mktemp("kafka")) as bootstrap, KafkaTools(bootstrap) as tools:
                yield Place(bootstrap, tools, is_kafka=True)
        else:
            address = f"127.0.0.1:{free_port()}"
            with running_server(kafka_listen=address, flush_ms=200) as server, KafkaTools(address) as tools:
                yield Place(bootstrap_of(server), tools, is_kafka=False)
    except ConfigError as error:
        pytest.skip(f"Kafka's tools cannot be run: {error}")


@pytest.fixture
def orders(there: Place) -> Iterator[Place]:
    """A topic of two partitions, which have three records and two."""
    created = there.run(
        "kafka-topics", "--create", "--topic", TOPIC, "--partitions", "2", "--config", "retention.ms=-1"
    )
    assert "Created topic orders" in created
    producer = Producer({"bootstrap.servers": there.bootstrap, "log_level": 0})
    for number in range(5):
        producer.produce(TOPIC, b"%d" % number, key=b"k", partition=number % 2, timestamp=1_700_000_000_000 + number)
    assert producer.flush(WAIT_SECONDS) == 0
    yield there
    there.run("kafka-topics", "--delete", "--topic", TOPIC)
    there.told(lambda printed: TOPIC not in printed.split(), "kafka-topics", "--list")


def test_topics(orders: Place) -> None:
    assert TOPIC in orders.run("kafka-topics", "--list").split()
    described = orders.run("kafka-topics", "--describe", "--topic", TOPIC)
    assert "PartitionCount: 2" in described
    assert "retention.ms=-1" in described
    assert "Leader: 1" in described
    orders.run("kafka-topics", "--alter", "--topic", TOPIC, "--partitions", "3")
    orders.told(lambda printed: "PartitionCount: 3" in printed, "kafka-topics", "--describe", "--topic", TOPIC)
    assert "already" in orders.refused("kafka-topics", "--create", "--topic", TOPIC)
    assert " 3 " in orders.refused("kafka-topics", "--alter", "--topic", TOPIC, "--partitions", "3")


def test_settings(orders: Place) -> None:
    of_topic = ("--entity-type", "topics", "--entity-name", TOPIC)
    added = "cleanup.policy=[compact,delete],max.message.bytes=100000"
    orders.run("kafka-configs", "--alter", *of_topic, "--add-config", added, "--delete-config", "retention.ms")
    described = orders.told(
        lambda printed: "cleanup.policy=compact,delete" in printed, "kafka-configs", "--describe", *of_topic
    )
    assert "max.message.bytes=100000" in described
    assert "retention.ms" not in described
    assert "retention.ms=604800000" in orders.run("kafka-configs", "--describe", "--all", *of_topic) or orders.is_kafka
    wrong = orders.refused("kafka-configs", "--alter", *of_topic, "--add-config", "no.such.setting=1")
    assert "InvalidConfiguration" in wrong or "Unknown topic config" in wrong


def test_offsets_and_deleted_records(orders: Place, tmp_path: Path) -> None:
    assert orders.offsets() == ["orders:0:3", "orders:1:2"]
    for earliest in ("earliest", "earliest-local"):
        assert orders.offsets("--time", earliest) == ["orders:0:0", "orders:1:0"]
    assert orders.offsets("--time", "1700000000002") == ["orders:0:1", "orders:1:1"]
    assert orders.offsets("--time", "max-timestamp") == ["orders:0:2", "orders:1:1"]
    wanted = [{"topic": TOPIC, "partition": 0, "offset": 2}, {"topic": TOPIC, "partition": 1, "offset": -1}]
    file = tmp_path / "delete.json"
    file.write_text(json.dumps({"version": 1, "partitions": wanted}))
    deleted = orders.run("kafka-delete-records", "--offset-json-file", str(file))
    assert "partition: orders-0\tlow_watermark: 2" in deleted
    assert "partition: orders-1\tlow_watermark: 2" in deleted
    for earliest in ("earliest", "earliest-local"):
        assert orders.offsets("--time", earliest) == ["orders:0:2", "orders:1:2"]
    wanted[0]["offset"] = 9
    file.write_text(json.dumps({"version": 1, "partitions": wanted}))
    assert "OffsetOutOfRange" in orders.run("kafka-delete-records", "--offset-json-file", str(file))


def test_log_directories(orders: Place) -> None:
    printed = orders.run("kafka-log-dirs", "--describe", "--topic-list", TOPIC)
    [broker] = json.loads(printed.splitlines()[-1])["brokers"]
    [folder] = broker["logDirs"]
    sizes = {part["partition"]: part["size"] for part in folder["partitions"]}
    assert set(sizes) == {"orders-0", "orders-1"}
    assert min(sizes.values()) > 0


def test_the_cluster_and_what_it_speaks(there: Place) -> None:
    assert "Cluster ID: " in there.run("kafka-cluster", "cluster-id")
    assert re.search(r"1 +127.0.0.1", there.run("kafka-cluster", "list-endpoints"))
    assert "(id: 1 " in there.run("kafka-broker-api-versions")
    assert there.run("kafka-client-metrics", "--list").strip() == ""


def test_records_come_and_go(orders: Place) -> None:
    sent = orders.run(
        "kafka-producer-perf-test",
        "--topic",
        TOPIC,
        "--num-records",
        "100",
        "--record-size",
        "10",
        "--throughput",
        "-1",
    )
    assert "100 records sent" in sent
    assert sum(int(line.rpartition(":")[2]) for line in orders.offsets()) == 105
    read = orders.run(
        "kafka-console-consumer", "--topic", TOPIC, "--partition", "0", "--offset", "1", "--max-messages", "2"
    )
    assert read.splitlines()[:2] == ["2", "4"]


def test_groups(orders: Place) -> None:
    of_group, of_topic = ("--group", "tool/group"), ("--topic", TOPIC)
    settings = {"bootstrap.servers": orders.bootstrap, "group.id": "tool/group", "auto.offset.reset": "earliest"}
    consumer = Consumer({**settings, "enable.auto.commit": False, "log_level": 0})
    consumer.subscribe([TOPIC])
    end = time.monotonic() + WAIT_SECONDS
    count = 0
    while count < 5:
        assert time.monotonic() < end
        count += sum(message.error() is None for message in consumer.consume(5, 0.2))
    consumer.commit(asynchronous=False)
    assert re.search(r"tool/group +Classic +consumer", orders.run("kafka-groups", "--list"))
    assert re.search(r"tool/group +Stable", orders.run("kafka-consumer-groups", "--list", "--state"))
    assert re.search(r"tool/group +Classic", orders.run("kafka-consumer-groups", "--list", "--type", "classic"))
    assert "tool/group" not in orders.run("kafka-consumer-groups", "--list", "--type", "consumer")
    described = orders.run("kafka-consumer-groups", "--describe", *of_group)
    assert re.search(r"orders +0 +3 +3 +0 +rdkafka-", described)
    members = orders.run("kafka-consumer-groups", "--describe", *of_group, "--members", "--verbose")
    assert "orders:0,1" in members
    assert re.search(r"range +Stable +1", orders.run("kafka-consumer-groups", "--describe", *of_group, "--state"))
    assert "not empty" in orders.run("kafka-consumer-groups", "--delete", *of_group)
    consumer.close()
    assert "no active members" in orders.run("kafka-consumer-groups", "--describe", *of_group)
    reset = ("kafka-consumer-groups", "--reset-offsets", *of_group, *of_topic)
    assert re.search(r"orders +1 +1", orders.run(*reset, "--to-offset", "1", "--execute"))
    assert re.search(r"orders +1 +2", orders.run(*reset, "--shift-by", "1", "--dry-run"))
    deleted = orders.run("kafka-consumer-groups", "--delete-offsets", *of_group, "--topic", f"{TOPIC}:1")
    assert re.search(r"orders +1 +Successful", deleted)
    left = orders.run("kafka-consumer-groups", "--describe", *of_group)
    assert re.search(r"orders +0 +1 +3 +2 ", left)
    assert not re.search(r"orders +1 ", left)
    assert "successful" in orders.run("kafka-consumer-groups", "--delete", *of_group)
    assert "GroupIdNotFound" in orders.run("kafka-consumer-groups", "--describe", *of_group)


def test_a_group_beyond_the_end(orders: Place) -> None:
    admin = AdminClient({"bootstrap.servers": orders.bootstrap, "log_level": 0})
    wanted = [ConsumerGroupTopicPartitions("beyond", [TopicPartition(TOPIC, 0, 99), TopicPartition(TOPIC, 1, 3)])]
    end = time.monotonic() + WAIT_SECONDS
    while True:
        [altered] = admin.alter_consumer_group_offsets(wanted).values()
        if not any(at.error for at in altered.result(WAIT_SECONDS).topic_partitions):
            break
        # A broker of Kafka loads where groups are kept once it is asked for the first.
        assert time.monotonic() < end
    described = orders.run("kafka-consumer-groups", "--describe", "--group", "beyond")
    assert re.search(r"orders +0 +99 +3 ", described)
    assert re.search(r"orders +1 +3 +2 ", described)
    producer = Producer({"bootstrap.servers": orders.bootstrap, "log_level": 0})
    for value in (b"passed over", b"read"):
        producer.produce(TOPIC, value, partition=1)
    assert producer.flush(WAIT_SECONDS) == 0
    settings = {"bootstrap.servers": orders.bootstrap, "group.id": "beyond", "auto.offset.reset": "earliest"}
    consumer = Consumer({**settings, "enable.auto.commit": False, "log_level": 0})
    consumer.subscribe([TOPIC])
    found: set[tuple[int | None, int | None]] = set()
    end = time.monotonic() + WAIT_SECONDS
    while len(found) < 4:
        assert time.monotonic() < end
        found |= {(each.partition(), each.offset()) for each in consumer.consume(5, 0.2) if each.error() is None}
    consumer.close()
    assert found == {(0, 0), (0, 1), (0, 2), (1, 3)}


def test_assignments_of_replicas(orders: Place, tmp_path: Path) -> None:
    orders.run("kafka-topics", "--create", "--topic", "assigned", "--replica-assignment", "1,1,1")
    described = orders.told(
        lambda printed: "PartitionCount: 3" in printed, "kafka-topics", "--describe", "--topic", "assigned"
    )
    assert "Leader: 1" in described
    of_it = ("kafka-topics", "--alter", "--topic", "assigned", "--partitions")
    orders.run(*of_it, "4", "--replica-assignment", "1,1,1,1")
    orders.told(lambda printed: "PartitionCount: 4" in printed, "kafka-topics", "--describe", "--topic", "assigned")
    orders.refused(*of_it, "5", "--replica-assignment", "1,1,1,1,7")
    orders.refused("kafka-topics", "--create", "--topic", "nowhere", "--replica-assignment", "1,7")
    assert "assigned" in orders.run("kafka-topics", "--describe", "--at-min-isr-partitions")
    assert orders.run("kafka-topics", "--describe", "--under-min-isr-partitions").strip() == ""
    plan = tmp_path / "plan.json"
    parts = [{"topic": "assigned", "partition": number, "replicas": [1]} for number in range(4)]
    plan.write_text(json.dumps({"version": 1, "partitions": parts}))
    reassign = ("kafka-reassign-partitions", "--reassignment-json-file", str(plan))
    assert "Successfully started" in orders.run(*reassign, "--execute")
    assert "assigned-3 is completed" in orders.run(*reassign, "--verify")
    assert "No partition reassignments" in orders.run("kafka-reassign-partitions", "--list")
    orders.run(*reassign, "--cancel")
    orders.run("kafka-topics", "--delete", "--topic", "assigned")


def test_elections(orders: Place) -> None:
    for kind in ("preferred", "unclean"):
        of_kind = ("kafka-leader-election", "--election-type", kind)
        orders.run(*of_kind, "--all-topic-partitions")
        assert "already elected" in orders.run(*of_kind, "--topic", TOPIC, "--partition", "0")
        assert "UnknownTopicOrPartition" in orders.refused(*of_kind, "--topic", TOPIC, "--partition", "9")


def test_access_lists_are_none(there: Place) -> None:
    of_one = ("--allow-principal", "User:a", "--operation", "Read", "--topic", TOPIC)
    for asked in (("--list",), ("--add", *of_one), ("--remove", *of_one, "--force")):
        assert "SecurityDisabled" in there.refused("kafka-acls", *asked)
