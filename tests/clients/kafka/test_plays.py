"""Clients of Kafka in many languages do the same at a broker of Kafka and at this server, and are told the same."""

import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from kafka_players import CLIENTS, PARTITIONS, Client, Player, Said, places, rows, without_offset
from kafka_rig import WAIT_SECONDS

pytestmark = [pytest.mark.client, pytest.mark.timeout(600)]
BYTES_MAX = 10_000


@pytest.fixture(scope="module", params=sorted(CLIENTS))
def client(request: pytest.FixtureRequest) -> Client:
    return CLIENTS[request.param]


@pytest.fixture(scope="module")
def start(client: Client, bootstrap: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[], Player]]:
    """Starts a process of the client."""
    folder = tmp_path_factory.mktemp("player")
    command = client.command(folder)
    with ExitStack() as stack:
        yield lambda: stack.enter_context(Player([*command, bootstrap], folder / "log"))


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


def test_a_group_is_reset_once_it_has_no_members(client: Client, player: Player, topic: str, bootstrap: str) -> None:
    if not client.not_reset:
        pytest.skip("it resets no groups")
    group, wanted = f"g{uuid.uuid4()}", [2, 0, 10, 7]
    asked = {"group": group, "topic": topic, "offsets": {str(part): offset for part, offset in enumerate(wanted)}}
    player.do("produce", topic=topic, codec="none", records=rows(0, 40))
    members = Members(player, group, topic)
    members.join("a")
    members.until(lambda: len(members.records) >= 40)
    members.commit()
    assert player.ask("reset", **asked).error == client.not_reset
    members.leave("a")
    assert committed(bootstrap, group, topic) == [10] * PARTITIONS
    player.do("reset", **asked)
    assert committed(bootstrap, group, topic) == wanted
    members = Members(player, group, topic)
    members.join("b")
    members.until(lambda: len(members.records) >= 21)
    assert places(members.records) == [(part, at) for part, offset in enumerate(wanted) for at in range(offset, 10)]
    members.leave("b")


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
