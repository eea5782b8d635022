"""Kafka's clients at nodes that share a root: they follow the owners of topics, and hear of no error when those move,
drain, stop or die. What they were told, and what callers of HTTP were told meanwhile, is one log."""

import random
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from typing import Any

import pytest
from cluster_callers import Caller
from cluster_rig import Nodes, cluster
from cluster_world import FLUSH_MS, World, kill, newest, restart
from confluent_kafka import OFFSET_END, KafkaException, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
)
from cut_door import CutDoor
from kafka_callers import KafkaMember, KafkaPublisher, KafkaReader, address_of
from kafka_rig import FETCH, LIST_OFFSETS, METADATA, PRODUCE, Tape, batch, fetch, free_port, publish, the_part

from siltlog.cli.main import run
from siltlog.infra.kafka.errors import KafkaError
from siltlog.infra.store.store import open_store

GOES_ON = 20
"""So many records of each client show that it goes on."""
SECONDS = 60.0
LEASE_MS = 8_000
"""Longer than a busy machine lets a node wait: nothing moves but what a test moves."""
_topics = count(1)

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nodes]:
    folder = tmp_path_factory.mktemp("kafka") / "cluster"

    def each(name: str, peers: CutDoor) -> Mapping[str, Any]:
        return {"kafka_listen": f"127.0.0.1:{free_port()}", "auto_create_partitions": 2}

    with cluster(folder, each=each, lease_ms=LEASE_MS, flush_ms=FLUSH_MS) as nodes:
        yield nodes


def _numbers(nodes: Nodes) -> dict[str, int]:
    return {name: entry.number for name, entry in newest(open_store(nodes.root)).nodes.items()}


def _leaders(nodes: Nodes, asked: str, topic: str) -> set[int]:
    """Asks one node who leads the partitions of a topic."""
    admin = AdminClient({"bootstrap.servers": address_of(nodes, asked), "log_level": 0})
    found = admin.list_topics(topic, timeout=SECONDS).topics[topic]
    return {partition.leader for partition in found.partitions.values()}


def _count(client: Caller) -> int:
    """How many records it published, or was given."""
    given = len(client.given) if isinstance(client, KafkaMember) else 0
    return len(client.acks) + sum(len(read.rows) for read in client.reads) + given


def _go_on(world: World, clients: list[Caller]) -> None:
    """Returns once each of the clients has published, or read, more."""

    def counts() -> list[int]:
        return [_count(each) for each in clients]

    before = counts()

    def all_more() -> bool:
        told = [said for each in clients for said in each.complaints]
        assert not told, told
        return all(now > count + GOES_ON for now, count in zip(counts(), before, strict=True))

    with world.hurried():
        world.nodes.until(all_more, "every client of Kafka goes on", SECONDS)


@pytest.fixture
def topic(nodes: Nodes) -> Iterator[str]:
    """A topic of `n1`'s, which all nodes know."""
    name = f"of-n1-{next(_topics)}"
    nodes["n1"].wire.create(name, 2)
    nodes.until(lambda: all(nodes.owner(name, at) for at in nodes), "all know the topic")
    if nodes.owner(name) != "n1":
        nodes["n1"].wire.call("POST", f"/v1/topics/{name}/move", {"node": "n1"})
    nodes.until(lambda: all(nodes.owner(name, at) == "n1" for at in nodes), "all know its owner")
    yield name
    nodes["n1"].wire.call("DELETE", f"/v1/topics/{name}")


@pytest.mark.rule("KF25")
def test_who_does_not_own_a_topic_names_its_owner(nodes: Nodes, topic: str) -> None:
    host, port = address_of(nodes, "n1").rsplit(":", 1)
    with Tape(address_of(nodes, "n1")) as owner, Tape(address_of(nodes, "n2")) as other:
        told = owner.ask(METADATA, 12, topics=[{"topic_id": bytes(16), "name": topic}])
        assert [broker["node_id"] for broker in told["brokers"]] == [1, 2, 3]
        [found] = told["topics"]
        leader = {
            "leader_id": found["partitions"][0]["leader_id"],
            "leader_epoch": found["partitions"][0]["leader_epoch"],
        }
        assert other.ask(METADATA, 12, topics=[{"topic_id": bytes(16), "name": topic}])["topics"] == [found]
        end = {"node_id": leader["leader_id"], "host": host, "port": int(port), "rack": None}
        sent = other.ask(PRODUCE, 12, transactional_id=None, **publish(topic, batch(b"a")))
        assert the_part(sent)["error_code"] == KafkaError.NOT_LEADER_OR_FOLLOWER
        assert the_part(sent)["current_leader"] == leader
        assert sent["node_endpoints"] == [end]
        by_id = fetch("", 0)
        by_id["topics"][0]["topic_id"] = found["topic_id"]
        read = other.ask(FETCH, 17, **by_id)
        assert the_part(read)["error_code"] == KafkaError.NOT_LEADER_OR_FOLLOWER
        assert the_part(read)["current_leader"] == leader
        assert read["node_endpoints"] == [end]
        older = other.ask(FETCH, 12, **fetch(topic, 0))
        assert the_part(older)["current_leader"] == leader
        part = {"partition_index": 0, "timestamp": -1, "current_leader_epoch": -1}
        listed = other.ask(LIST_OFFSETS, 5, topics=[{"name": topic, "partitions": [part]}])
        assert the_part(listed)["error_code"] == KafkaError.NOT_LEADER_OR_FOLLOWER
        absent = other.ask(PRODUCE, 12, transactional_id=None, **publish("absent", batch(b"a")))
        assert the_part(absent)["error_code"] == KafkaError.UNKNOWN_TOPIC_OR_PARTITION
        taken = owner.ask(PRODUCE, 12, transactional_id=None, **publish(topic, batch(b"a")))
        assert (the_part(taken)["error_code"], the_part(taken)["base_offset"]) == (KafkaError.NONE, 0)
        assert taken["node_endpoints"] == []


@pytest.mark.rule("KF26")
def test_topics_are_made_changed_and_deleted_at_any_node(nodes: Nodes) -> None:
    for number, asked in enumerate(nodes):
        admin = AdminClient({"bootstrap.servers": address_of(nodes, asked), "log_level": 0})
        assert admin.describe_cluster().result().controller.id == _numbers(nodes)[asked]
        name = f"made-{number}"
        [made] = admin.create_topics([NewTopic(name, 2, 1)]).values()
        assert made.result() is None
        for target in (asked, list(nodes)[number - 1]):
            nodes.until(lambda: all(nodes.owner(name, at) for at in nodes), "all know the topic")  # noqa: B023
            if nodes.owner(name) != target:
                nodes["n1"].wire.call("POST", f"/v1/topics/{name}/move", {"node": target})
                nodes.until(lambda: all(nodes.owner(name, at) == target for at in nodes), "it has moved")  # noqa: B023
            _changed(nodes, admin, name, target)
        [deleted] = admin.delete_topics([name]).values()
        assert deleted.result() is None
        nodes.until(lambda: nodes["n2"].wire.call("GET", f"/v1/topics/{name}").status == 404, "it is gone")  # noqa: B023


@pytest.mark.rule("KF27")
def test_an_assignment_of_replicas_says_who_owns_a_topic(nodes: Nodes) -> None:
    numbers = _numbers(nodes)
    admin = AdminClient({"bootstrap.servers": address_of(nodes, "n1"), "log_level": 0})
    for target, number in numbers.items():
        others = [each for each in numbers.values() if each != number]
        name = f"assigned-to-{target}"
        [made] = admin.create_topics([NewTopic(name, 2, replica_assignment=[[number, *others]] * 2)]).values()
        assert made.result() is None
        assert nodes.owner(name) == target
    spread = NewTopic("spread", 2, replica_assignment=[[number] for number in sorted(numbers.values())[:2]])
    [refused] = admin.create_topics([spread]).values()
    with pytest.raises(KafkaException, match="name the same one first in each"):
        refused.result()

    name, there = "assigned-to-n1", [numbers["n1"]]
    with Tape(address_of(nodes, "n2")) as tape:

        def reassigned(*replicas: list[int] | None) -> int:
            parts = [{"partition_index": at, "replicas": each} for at, each in enumerate(replicas)]
            [told] = tape.ask(45, 1, topics=[{"name": name, "partitions": parts}])["responses"]
            [code] = {part["error_code"] for part in told["partitions"]}
            return int(code)

        def is_there() -> bool:
            return all(nodes.owner(name, at) == "n3" for at in nodes)

        def nothing_moves() -> bool:
            return not tape.ask(46, 0, topics=None)["topics"]

        def canceled_on_its_way() -> bool:
            nodes.until(lambda: reassigned([numbers["n3"]], [numbers["n3"]]) == KafkaError.NONE, "it may go there")
            nodes.until(is_there, "it is there")
            assert reassigned(there, there) == KafkaError.NONE
            return reassigned(None, None) == KafkaError.NONE

        assert reassigned([numbers["n3"]]) == KafkaError.INVALID_REPLICA_ASSIGNMENT, "a topic goes as a whole"
        assert reassigned(*[[*there, numbers["n3"]]] * 2) == KafkaError.INVALID_REPLICA_ASSIGNMENT
        assert reassigned([numbers["n3"]], [numbers["n3"]]) == KafkaError.NONE
        nodes.until(is_there, "it has gone there")
        nodes.until(nothing_moves, "nothing is on its way")
        assert reassigned(None, None) == KafkaError.NO_REASSIGNMENT_IN_PROGRESS
        nodes.until(canceled_on_its_way, "it was canceled before it had arrived")
        nodes.until(nothing_moves, "nothing is on its way")
        nodes.until(is_there, "it has come back")
    [wrong] = admin.create_partitions([NewPartitions(name, 3, [there])]).values()
    with pytest.raises(KafkaException, match="name it first in each, or move the topic"):
        wrong.result()
    [grown] = admin.create_partitions([NewPartitions(name, 3, [[numbers["n3"]]])]).values()
    assert grown.result() is None


@pytest.mark.rule("KF26")
def test_a_topic_that_clients_of_all_nodes_ask_for_at_once_is_made_once(nodes: Nodes) -> None:
    def asked(node: str, name: str) -> tuple[int, bytes, frozenset[int]]:
        with Tape(address_of(nodes, node)) as tape:
            told = tape.ask(METADATA, 12, topics=[{"topic_id": bytes(16), "name": name}])
        [topic] = told["topics"]
        leaders = frozenset(part["leader_id"] for part in topic["partitions"])
        return topic["error_code"], topic["topic_id"], leaders

    for name in ("at-once-0", "at-once-1"):
        with ThreadPoolExecutor(len(nodes)) as pool:
            found = list(pool.map(lambda node: asked(node, name), nodes))  # noqa: B023
        assert {code for code, *_ in found} <= {KafkaError.NONE, KafkaError.LEADER_NOT_AVAILABLE}

        def alike() -> bool:
            told = {asked(node, name) for node in nodes}  # noqa: B023
            [(code, _, leaders)] = told if len(told) == 1 else {(-1, b"", frozenset[int]())}
            return code == KafkaError.NONE and len(leaders) == 1 and -1 not in leaders

        nodes.until(alike, "all nodes tell of one topic", SECONDS)
    refused, _, _ = asked("n2", "At-Once-0")
    assert refused == KafkaError.INVALID_TOPIC_EXCEPTION, "its name differs from one that there is by case alone"


def _changed(nodes: Nodes, admin: AdminClient, name: str, owner: str) -> None:
    before = nodes[owner].wire.call("GET", f"/v1/topics/{name}").document
    more = before["partitions"] + 1
    [refused] = admin.create_partitions([NewPartitions(name, 1)]).values()
    with pytest.raises(KafkaException):
        refused.result()
    [grown] = admin.create_partitions([NewPartitions(name, more)]).values()
    assert grown.result() is None
    entry = ConfigEntry("retention.ms", str(60_000 + more), incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource("topic", name, incremental_configs=[entry])
    [tried] = admin.incremental_alter_configs([resource], validate_only=True).values()
    assert tried.result() is None
    [changed] = admin.incremental_alter_configs([resource]).values()
    assert changed.result() is None
    after = nodes[owner].wire.call("GET", f"/v1/topics/{name}").document
    assert (after["partitions"], after["config"]["retention.ms"]["value"]) == (more, 60_000 + more)
    nodes[owner].wire.call("POST", f"/v1/topics/{name}/records", {"records": [{"value": "a", "partition": 0}]})
    [deletion] = admin.delete_records([TopicPartition(name, 0, OFFSET_END)]).values()
    end = nodes[owner].wire.offsets(name)[0]["high_watermark"]
    assert deletion.result().low_watermark == end


def _of_disk_alone(nodes: Nodes, owner: str) -> str:
    """A topic whose records are safe on the disk of its node alone."""
    name = f"alone-{next(_topics)}"
    nodes[owner].wire.create(name, 1, acks="wal")
    nodes[owner].wire.call("POST", f"/v1/topics/{name}/move", {"node": owner})
    nodes.until(lambda: all(nodes.owner(name, at) == owner for at in nodes), "it is there")
    return name


@pytest.mark.rule("KF24", "KF25")
def test_clients_go_on_while_topics_move_and_nodes_drain_stop_and_die(nodes: Nodes, rng: random.Random) -> None:
    world = World(nodes, open_store(nodes.root), rng, "kafka")
    [shipped] = [topic for topic, level in world.topics.items() if level == "object"]
    [in_table] = [topic for topic, level in world.topics.items() if level == "table"]
    clients: list[Caller] = [
        KafkaPublisher(nodes, shipped, "kafka-object", rng.getrandbits(32)),
        KafkaReader(nodes, shipped, "kafka-reader", rng.getrandbits(32)),
        KafkaPublisher(nodes, in_table, "kafka-table", rng.getrandbits(32)),
    ]
    members = [
        KafkaMember(nodes, shipped, f"kafka-member{number}", rng.getrandbits(32), group="kafka-members")
        for number in range(2)
    ]
    clients += members
    world.join(*clients)
    _go_on(world, clients)
    numbers = _numbers(nodes)
    assert sorted(numbers.values()) == [1, 2, 3]
    told = nodes["n1"].wire.call("GET", "/v1/nodes").document["nodes"]
    assert {(node["id"], node["number"], node["kafka"]) for node in told} == {
        (name, numbers[name], address_of(nodes, name)) for name in nodes
    }
    for asked in nodes:
        assert _leaders(nodes, asked, shipped) == {numbers[world.owner("object")]}
    # A planned move.
    owner = world.owner("object")
    target = next(name for name in nodes if name != owner)
    nodes[owner].wire.call("POST", f"/v1/topics/{shipped}/move", {"node": target})
    nodes.until(lambda: world.owner("object") == target, "it has moved")
    _go_on(world, clients)
    # A node that drains, or stops, hands over what it has; and comes back under its number.
    drained = world.owner("object")
    other = next(node for name, node in nodes.items() if name != drained)
    assert run(["node", "drain", drained, "--url", other.url]) == 0
    nodes.until(lambda: not world.owns(drained), "it owns nothing")
    _go_on(world, clients)
    restart(world, drained)()
    _go_on(world, clients)
    start = restart(world, world.owner("object"))
    _go_on(world, clients)
    start()
    _go_on(world, clients)
    # A node that is killed: its topics are given to another, but those that are on its disk alone.
    killed = world.owner("object")
    alone = _of_disk_alone(nodes, killed)
    mend = kill(world, killed)
    _go_on(world, clients)
    asked = next(name for name in nodes if name != killed)
    nodes.until(lambda: _leaders(nodes, asked, alone) == {-1}, "nobody leads it")
    mend()
    _go_on(world, clients)
    # Its node has it again, and may hand it over to another.
    nodes.until(lambda: _leaders(nodes, asked, alone) < set(numbers.values()), "somebody leads it")
    assert _numbers(nodes) == numbers
    clients[0].finish()
    ends = world.ends(shipped)
    print(f"stalls: {[round(seconds, 2) for client in clients for _, seconds in client.stalls][:20]}")
    wanted = {(partition, offset) for partition, end in ends.items() for offset in range(end)}

    def given() -> set[tuple[int, int]]:
        return {(row.partition, row.offset) for member in members for row in member.given}

    nodes.until(lambda: given() >= wanted, "the group has had every record", SECONDS)
    world.finish()
    assert {row for member in members for row in member.given} <= set(world.table(shipped))
    world.leave()
