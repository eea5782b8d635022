"""Clients of Kafka in many languages do the same at a broker of Kafka and at this server, and are told the same."""

import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import cache
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from kafka_players import CLIENTS, Client, Player, Said
from kafka_rig import WAIT_SECONDS, served
from kafka_tools import kafka_broker

from siltlog.infra.errors import ConfigError

pytestmark = [pytest.mark.client, pytest.mark.timeout(240)]
PARTITIONS = 4
BYTES_MAX = 10_000
SESSION_MS = 9_000
"""A ninth of it is between heartbeats, where the server says how often."""
LIKE_OURS = (
    "auto.create.topics.enable=false",
    "group.consumer.min.heartbeat.interval.ms=1000",
    "group.consumer.heartbeat.interval.ms=1000",
)


@pytest.fixture(scope="module")
def address_of(valkey_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], str]]:
    """Gives the address of a server, which is there for all clients once one has asked for it."""
    with ExitStack() as stack:

        @cache
        def address(name: str) -> str:
            if name == "kafka":
                folder = tmp_path_factory.mktemp("kafka")
                return stack.enter_context(kafka_broker(folder, *LIKE_OURS))
            settings = {"session_timeout_ms_max": SESSION_MS, "group_initial_rebalance_delay_ms": 0}
            return stack.enter_context(served(redis_url=valkey_url, flush_ms=200, **settings))[1]

        yield address


@pytest.fixture(scope="module", params=["kafka", "siltlog"])
def bootstrap(request: pytest.FixtureRequest, address_of: Callable[[str], str]) -> str:
    try:
        return address_of(request.param)
    except ConfigError as error:
        pytest.skip(f"there is no broker of Kafka: {error}")


@pytest.fixture(scope="module", params=sorted(CLIENTS))
def client(request: pytest.FixtureRequest) -> Client:
    return CLIENTS[request.param]


@pytest.fixture(scope="module")
def start(client: Client, bootstrap: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[], Player]]:
    """Starts a process of the client."""
    folder = tmp_path_factory.mktemp("player")
    command = client.command(folder)
    with ExitStack() as stack:
        yield lambda: stack.enter_context(Player(command, bootstrap, folder / "log"))


@pytest.fixture(scope="module")
def player(start: Callable[[], Player]) -> Player:
    return start()


@pytest.fixture
def topic(client: Client, player: Player, bootstrap: str) -> str:
    name, config = f"t{uuid.uuid4()}", {"max.message.bytes": str(BYTES_MAX)}
    if client.makes_topics:
        player.do("create", topic=name, partitions=PARTITIONS, config=config)
    else:
        admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
        admin.create_topics([NewTopic(name, PARTITIONS, 1, config=config)])[name].result(WAIT_SECONDS)
    return name


def rows(first: int, count: int) -> list[dict[str, Any]]:
    """Records that are shared out among the partitions, some without a key or a value."""
    return [
        {
            "partition": number % PARTITIONS,
            "key": None if number % 5 == 4 else f"key {number % 3}",
            "value": None if number % 5 == 3 else f"value {number} žluťoučký",
            "headers": [["n", str(number)], ["empty", ""]] if number % 2 else [],
        }
        for number in range(first, first + count)
    ]


def without_offset(record: dict[str, Any]) -> str:
    return str(sorted((name, value) for name, value in record.items() if name != "offset"))


def places(records: list[dict[str, Any]]) -> list[tuple[int, int]]:
    return sorted((record["partition"], record["offset"]) for record in records)


def test_all_that_was_produced_is_read_back(client: Client, player: Player, topic: str) -> None:
    sent = []
    for at, codec in enumerate(("none", *client.codecs)):
        batch = rows(at * 40, 40)
        player.do("produce", topic=topic, codec=codec, records=batch)
        sent += batch
    read = player.do("read", topic=topic, partitions=PARTITIONS, count=len(sent)).records
    assert sorted(map(without_offset, read)) == sorted(map(without_offset, sent))
    for number in range(PARTITIONS):
        offsets = [record["offset"] for record in read if record["partition"] == number]
        assert offsets == list(range(len(sent) // PARTITIONS))


class Members:
    """Members of a group, who are asked in turn for what they got."""

    def __init__(self, player: Player, group: str, topic: str) -> None:
        self.player, self.group, self.topic = player, group, topic
        self.held: dict[str, set[int]] = {}
        self.records: list[dict[str, Any]] = []

    def join(self, member: str) -> None:
        self.held[member] = set()
        self.player.do("join", member=member, group=self.group, topic=self.topic)

    def until(self, holds: Callable[[], bool]) -> None:
        end = time.monotonic() + WAIT_SECONDS
        while not holds():
            assert time.monotonic() < end, (self.held, len(self.records))
            for member in self.held:
                said: Said = self.player.do("poll", member=member)
                self.held[member] = said.held
                self.records += said.records

    def commit(self) -> None:
        for member in self.held:
            self.player.do("commit", member=member)

    def leave(self, member: str) -> None:
        self.player.do("leave", member=member)
        del self.held[member]


def committed(bootstrap: str, group: str, topic: str) -> list[int]:
    """The offsets of a group, as another client is told them."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "log_level": 0})
    try:
        asked = [TopicPartition(topic, number) for number in range(PARTITIONS)]
        return [each.offset for each in consumer.committed(asked, timeout=WAIT_SECONDS)]
    finally:
        consumer.close()


def members_of(bootstrap: str, group: str) -> int:
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    return len(admin.describe_consumer_groups([group])[group].result(WAIT_SECONDS).members)


def test_a_group_shares_out_takes_over_and_goes_on(
    client: Client, player: Player, start: Callable[[], Player], topic: str, bootstrap: str
) -> None:
    group = f"g{uuid.uuid4()}"
    codec = client.codecs[0]
    player.do("produce", topic=topic, codec=codec, records=rows(0, 40))
    members = Members(player, group, topic)
    members.join("a")
    members.until(lambda: len(members.records) >= 40)
    assert members.held["a"] == set(range(PARTITIONS))
    members.commit()
    members.join("b")
    members.until(lambda: sorted(map(len, members.held.values())) == [2, 2])
    assert members.held["a"] | members.held["b"] == set(range(PARTITIONS))
    assert members_of(bootstrap, group) == 2
    player.do("produce", topic=topic, codec=codec, records=rows(40, 40))
    members.until(lambda: len(members.records) >= 80)
    members.commit()
    members.leave("a")
    members.until(lambda: members.held["b"] == set(range(PARTITIONS)))
    player.do("produce", topic=topic, codec=codec, records=rows(80, 40))
    members.until(lambda: len(members.records) >= 120)
    assert places(members.records) == [(part, offset) for part in range(PARTITIONS) for offset in range(30)]
    members.commit()
    members.leave("b")
    assert committed(bootstrap, group, topic) == [30] * PARTITIONS
    player.do("produce", topic=topic, codec=codec, records=rows(120, 20))
    again = Members(start(), group, topic)
    again.join("c")
    again.until(lambda: len(again.records) >= 20)
    assert places(again.records) == [(part, offset) for part in range(PARTITIONS) for offset in range(30, 35)]
    again.commit()
    again.leave("c")
    assert committed(bootstrap, group, topic) == [35] * PARTITIONS


def test_what_is_refused_is_told(client: Client, player: Player, topic: str) -> None:
    if client.makes_topics:
        again = player.ask("create", topic=topic, partitions=PARTITIONS, config={})
        assert again.error == "TOPIC_ALREADY_EXISTS"
    [row] = rows(0, 1)
    large = player.ask("produce", topic=topic, codec="none", records=[row | {"value": "x" * 2 * BYTES_MAX}])
    assert large.error == client.too_large
    nowhere = player.ask("produce", topic=f"t{uuid.uuid4()}", codec="none", records=[row])
    assert nowhere.error == client.unknown_topic
    # It goes on where it was.
    player.do("produce", topic=topic, codec="none", records=[row])
    [read] = player.do("read", topic=topic, partitions=PARTITIONS, count=1).records
    assert read == row | {"offset": 0}
