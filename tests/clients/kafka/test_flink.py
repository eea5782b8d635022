"""Flink's source and sink of Kafka do the same at a broker of Kafka and at this server."""

import uuid
from collections.abc import Iterator

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from kafka_players import PARTITIONS, Player, flink_player, places, rows, without_offset
from kafka_rig import WAIT_SECONDS

pytestmark = [pytest.mark.client, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def flink(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Player]:
    folder = tmp_path_factory.mktemp("flink")
    with Player(flink_player(folder), folder / "log") as player:
        yield player


@pytest.fixture
def topic(bootstrap: str) -> str:
    name = f"t{uuid.uuid4()}"
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    admin.create_topics([NewTopic(name, PARTITIONS, 1)])[name].result(WAIT_SECONDS)
    return name


def test_what_a_job_wrote_others_read_from_where_their_group_is(flink: Player, bootstrap: str, topic: str) -> None:
    there = {"bootstrap": bootstrap, "topic": topic}
    group = f"g{uuid.uuid4()}"
    for first in (0, 40):
        sent = rows(first, 40)
        flink.do("produce", **there, records=sent)
        read = flink.do("read", **there, group=group).records
        assert sorted(map(without_offset, read)) == sorted(map(without_offset, sent))
        began = first // PARTITIONS
        assert places(read) == [(part, began + number) for part in range(PARTITIONS) for number in range(10)]
