"""Records that Kafka's clients delete are gone for every reader."""

from typing import Any

from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient
from http_rig import Http
from kafka import TopicPartition as Position
from kafka_rig import Tape, producer, the_part

from siltlog.infra.kafka.errors import KafkaError

DELETE_RECORDS = 21
LATEST = -1


def filled(bootstrap: str, topic: str) -> None:
    with producer(bootstrap) as sends:
        for number in range(10):
            sends.produce(topic, b"%d" % number, partition=0)


def left(http: Http, topic: str) -> list[int]:
    """The offsets that there are still."""
    records = http.get(f"/v1/topics/{topic}/partitions/0/records?offset=earliest&max_records=100").json["records"]
    return [each["offset"] for each in records]


def test_records_below_an_offset_are_deleted(http: Http, bootstrap: str, admin: AdminClient, python_admin: Any) -> None:
    http.create("cut")
    filled(bootstrap, "cut")
    [cut] = admin.delete_records([TopicPartition("cut", 0, 4)]).values()
    assert cut.result().low_watermark == 4
    assert left(http, "cut") == [4, 5, 6, 7, 8, 9]
    python_admin.delete_records({Position("cut", 0): 7})
    assert left(http, "cut") == [7, 8, 9]
    [cut] = admin.delete_records([TopicPartition("cut", 0, LATEST)]).values()
    assert cut.result().low_watermark == 10
    # What is gone already stays gone, and nothing more goes.
    [cut] = admin.delete_records([TopicPartition("cut", 0, 2)]).values()
    assert cut.result().low_watermark == 10


def test_what_cannot_be_deleted_says_so(http: Http, bootstrap: str) -> None:
    http.create("whole")
    filled(bootstrap, "whole")
    asked = {
        ("whole", 0, 11): KafkaError.OFFSET_OUT_OF_RANGE,
        ("whole", 0, -2): KafkaError.OFFSET_OUT_OF_RANGE,
        ("whole", 7, 1): KafkaError.UNKNOWN_TOPIC_OR_PARTITION,
        ("absent", 0, 1): KafkaError.UNKNOWN_TOPIC_OR_PARTITION,
        ("_offsets", 0, 0): KafkaError.TOPIC_AUTHORIZATION_FAILED,
    }
    with Tape(bootstrap) as tape:
        for (topic, partition, offset), code in asked.items():
            part = {"partition_index": partition, "offset": offset}
            wanted = [{"name": topic, "partitions": [part]}]
            assert the_part(tape.ask(DELETE_RECORDS, 2, topics=wanted, timeout_ms=60_000))["error_code"] == code, topic
    assert left(http, "whole") == list(range(10))


def test_who_waits_no_longer_has_nothing_more_deleted(http: Http, bootstrap: str) -> None:
    http.create("late", 3)
    asked = [{"partition_index": number, "offset": LATEST} for number in range(3)]
    with Tape(bootstrap) as tape:
        [topic] = tape.ask(DELETE_RECORDS, 2, topics=[{"name": "late", "partitions": asked}], timeout_ms=0)["topics"]
    found = [each["error_code"] for each in topic["partitions"]]
    assert found == [KafkaError.NONE, KafkaError.REQUEST_TIMED_OUT, KafkaError.REQUEST_TIMED_OUT]
