"""Spark's own source and sink of Kafka do the same at a broker of Kafka and at this server."""

import json
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from kafka_players import PARTITIONS, Player, places, rows, spark_player, without_offset
from kafka_rig import WAIT_SECONDS, producer

pytestmark = [pytest.mark.client, pytest.mark.spark, pytest.mark.timeout(600)]
FIRST_MS = 1_700_000_000_000


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Player]:
    folder = tmp_path_factory.mktemp("spark")
    with Player(spark_player(folder), folder / "log") as player:
        yield player


@pytest.fixture
def admin(bootstrap: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})


@pytest.fixture
def make_topic(admin: AdminClient) -> Callable[[], str]:
    def make() -> str:
        name = f"t{uuid.uuid4()}"
        admin.create_topics([NewTopic(name, PARTITIONS, 1)])[name].result(WAIT_SECONDS)
        return name

    return make


def per_partition(topic: str, *offsets: int) -> str:
    return json.dumps({topic: {str(number): offset for number, offset in enumerate(offsets)}})


def numbered(bootstrap: str, topic: str, numbers: range) -> None:
    """Publishes numbers to the first partition, a second apart."""
    with producer(bootstrap) as sends:
        for number in numbers:
            sends.produce(topic, b"%d" % number, partition=0, timestamp=FIRST_MS + number * 1000)


def test_batches_are_written_and_read(spark: Player, bootstrap: str, make_topic: Callable[[], str]) -> None:
    topic, sent = make_topic(), rows(0, 40)
    spark.do("produce", bootstrap=bootstrap, topic=topic, records=sent)
    read = spark.do("read", bootstrap=bootstrap, topic=topic, options={}).records
    assert sorted(map(without_offset, read)) == sorted(map(without_offset, sent))
    assert places(read) == [(part, offset) for part in range(PARTITIONS) for offset in range(10)]


def test_a_batch_is_what_lies_between_offsets_or_times(
    spark: Player, bootstrap: str, make_topic: Callable[[], str]
) -> None:
    topic = make_topic()
    numbered(bootstrap, topic, range(20))

    def read(**options: str) -> list[int]:
        found = spark.do("read", bootstrap=bootstrap, topic=topic, options=options).records
        return sorted(int(record["value"]) for record in found)

    between = {
        "startingOffsets": per_partition(topic, 3, -2, -2, -2),
        "endingOffsets": per_partition(topic, 17, -1, -1, -1),
    }
    assert read(**between) == list(range(3, 17))
    assert read(**between, minPartitions="7") == list(range(3, 17))
    times = {"startingTimestamp": str(FIRST_MS + 4_500), "startingOffsetsByTimestampStrategy": "latest"}
    assert read(**times) == list(range(5, 20))
    assert read(**times, endingTimestamp=str(FIRST_MS + 9_000)) == list(range(5, 9))


def test_a_stream_goes_on_from_its_checkpoint(
    spark: Player, bootstrap: str, make_topic: Callable[[], str], tmp_path: Path
) -> None:
    source, target, sent = make_topic(), make_topic(), rows(0, 60)
    streamed = {"source": source, "target": target, "checkpoint": str(tmp_path)}
    for number in range(0, 60, 20):
        spark.do("produce", bootstrap=bootstrap, topic=source, records=sent[number : number + 20])
        spark.do("copy", bootstrap=bootstrap, **streamed, options={"maxOffsetsPerTrigger": "16"})
    read = spark.do("read", bootstrap=bootstrap, topic=target, options={}).records
    assert sorted(map(without_offset, read)) == sorted(map(without_offset, sent))


def test_a_stream_hears_of_records_that_are_gone(
    spark: Player, bootstrap: str, admin: AdminClient, make_topic: Callable[[], str], tmp_path: Path
) -> None:
    source, target = make_topic(), make_topic()
    streamed = {"bootstrap": bootstrap, "source": source, "target": target, "checkpoint": str(tmp_path)}
    numbered(bootstrap, source, range(5))
    spark.do("copy", **streamed, options={})
    numbered(bootstrap, source, range(5, 10))
    [gone] = admin.delete_records([TopicPartition(source, 0, 8)]).values()
    assert gone.result(WAIT_SECONDS).low_watermark == 8
    told = spark.ask("copy", **streamed, options={}).error
    assert "Some data may have been lost" in told
    assert "Could not read records in offset [5, 10)" in told
    spark.do("copy", **streamed, options={"failOnDataLoss": "false"})
    read = spark.do("read", bootstrap=bootstrap, topic=target, options={}).records
    assert sorted(int(record["value"]) for record in read) == [0, 1, 2, 3, 4, 8, 9]
