"""Copies a topic of a Kafka cluster, each record once, however often it is run: what is there already is passed over.

Partition by partition, with keys, headers and times as they are. The sequence of a record is its offset in Kafka, so
the server knows how far a former run came, and `sequence` in the table says where each record was. With --group it also
carries over how far groups of the cluster have come.

    pip install siltlog confluent-kafka
    python examples/kafka/import_topic.py orders --from broker:9092
"""

import argparse
import hashlib
import json
import os
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Message, TopicPartition

import siltlog
from siltlog import Admin, UnknownTopic

REQUEST_BYTES = 4 * 1024 * 1024
POLL_SECONDS = 1.0
AWAY_SECONDS = 120.0
RETRIED = (429, 502, 503, 504, 507)
SCHEMA = pa.schema(
    {
        "partition": pa.int32(),
        "sequence": pa.int64(),
        "timestamp": pa.timestamp("us", tz="UTC"),
        "key": pa.binary(),
        "value": pa.binary(),
        "headers": pa.list_(pa.struct({"key": pa.string(), "value": pa.binary()})),
    }
)


class Server:
    """The server's HTTP API, whose requests are repeated while it is away: a record lands once all the same."""

    def __init__(self, url: str) -> None:
        self._url = url
        token = os.environ.get("SILT_TOKEN")
        self._own = {"Authorization": f"Bearer {token}"} if token else {}

    def ask(self, method: str, path: str, body: bytes | None = None, **headers: str) -> Any:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        request = urllib.request.Request(self._url + path, body, {**self._own, **named}, method=method)
        end = time.monotonic() + AWAY_SECONDS
        while True:
            try:
                with urllib.request.urlopen(request, timeout=60) as answer:
                    return json.load(answer)
            except urllib.error.HTTPError as error:
                detail = error.read().decode()
                if error.code not in RETRIED or time.monotonic() > end:
                    raise SystemExit(f"{method} {path}: {error.code} {detail}") from None
            except OSError as error:
                if time.monotonic() > end:
                    raise SystemExit(f"{self._url} does not answer: {error}") from None
            time.sleep(0.5)


def row(message: Message) -> dict[str, Any]:
    kind, millis = message.timestamp()
    headers = message.headers()
    return {
        "partition": message.partition(),
        "sequence": message.offset(),
        "timestamp": millis * 1000 if kind else None,
        "key": message.key(),
        "value": message.value(),
        "headers": headers and [{"key": name, "value": value} for name, value in headers],
    }


def found(consumer: Consumer, source: str, topic: str) -> tuple[str, list[int]]:
    """Gives the id of the old cluster, and the topic's partitions there."""
    try:
        listed = consumer.list_topics(topic, timeout=10)
    except KafkaException as error:
        raise SystemExit(f"{source} does not answer: {error.args[0].str()}") from None
    partitions = sorted(listed.topics[topic].partitions)
    if not partitions:
        raise SystemExit(f"{source} has no topic {topic}")
    return listed.cluster_id, partitions


def chunks(consumer: Consumer, ends: dict[int, int], count: int, follow: bool) -> Iterator[list[Message]]:
    """Yields what is read, in requests of some size, up to the end that each partition had; with `follow` for ever."""
    left = {partition for partition, end in ends.items() if end > 0}
    waiting: list[Message] = []
    nbytes = 0
    while left or follow:
        for message in consumer.consume(count - len(waiting), POLL_SECONDS):
            error = message.error()
            if error is None:
                waiting.append(message)
                nbytes += len(message.key() or b"") + len(message.value() or b"")
            elif error.code() != KafkaError._PARTITION_EOF:
                raise KafkaException(error)
            if error is not None or message.offset() >= ends[message.partition()] - 1:
                left.discard(message.partition())
        if waiting and (len(waiting) >= count or nbytes >= REQUEST_BYTES or follow or not left):
            yield waiting
            waiting, nbytes = [], 0


def published(server: Server, path: str, headers: dict[str, str], messages: list[Message]) -> int:
    """Publishes them, and counts those that were not there yet."""
    messages.sort(key=lambda message: (message.partition(), message.offset()))
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, SCHEMA) as writer:
        writer.write_table(pa.Table.from_pylist([row(message) for message in messages], SCHEMA))
    answer = server.ask("POST", path, sink.getvalue().to_pybytes(), **headers)
    return sum(part["count"] for part in answer["partitions"] if not part["duplicate"])


def carry_over(server: Server, admin: Admin, topic: str, producer: str, source: Consumer, group: str) -> None:
    """Has a group go on here where the group of this name has come to in Kafka."""
    committed = {part.partition: part.offset for part in source.committed(source.assignment()) if part.offset >= 0}
    if not committed:
        raise SystemExit(f"the old cluster has no offsets of group {group}: is that its name?")
    while any(part["table_offset"] < part["high_watermark"] for part in admin.offsets(topic)):
        time.sleep(0.1)  # until the table has all of it: there each record tells its sequence
    offsets = {}
    for part in admin.offsets(topic):
        number = part["partition"]
        if number in committed:
            query = f"""select min("offset") from "{topic}" where producer_id = '{producer}'
                and partition = {number} and sequence >= {committed[number]}"""
            body = json.dumps({"sql": query}).encode()
            [[first]] = server.ask("POST", "/v1/sql", body, Content_Type="application/json")["rows"]
            offsets[siltlog.TopicPartition(topic, number)] = part["high_watermark"] if first is None else first
    admin.set_group_offsets(group, offsets)
    print(f"{group} goes on at {', '.join(map(str, offsets.values()))}")


def main() -> None:
    parser = argparse.ArgumentParser(description="Copies a topic of a Kafka cluster.")
    parser.add_argument("topic")
    parser.add_argument("--from", dest="source", required=True, help="the cluster's bootstrap.servers")
    parser.add_argument("--to", default="http://localhost:7070", help="the server's URL")
    parser.add_argument("--as", dest="name", help="the topic's name here, where it is to be another")
    parser.add_argument(
        "--group", action="append", default=[], help="a group to carry over; may be given several times"
    )
    parser.add_argument("--follow", action="store_true", help="go on with what comes")
    parser.add_argument("--records", type=int, default=10_000, help="how many records a request has at most")
    parser.add_argument(
        "-X", dest="properties", action="append", default=[], help="a setting of librdkafka: name=value"
    )
    given = parser.parse_args()
    name = given.name or given.topic
    server, admin = Server(given.to), Admin(given.to)
    settings = {
        "bootstrap.servers": given.source,
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        "auto.offset.reset": "earliest",
        **dict(each.split("=", 1) for each in given.properties),
    }
    consumer = Consumer({**settings, "group.id": given.group[0] if given.group else "import"})
    cluster_id, partitions = found(consumer, given.source, given.topic)
    try:
        admin.topic(name)
    except UnknownTopic:
        # Kafka's clients place keys by this hash, so those that publish here later find the partition of each.
        admin.create_topic(name, len(partitions), {"partitioner": "murmur2"})
    there = admin.topic(name)
    if there["partitions"] < len(partitions):
        raise SystemExit(f"{name} has {there['partitions']} partitions, and {given.topic} has {len(partitions)}")
    # It stands for the topic of that cluster: another run finds how far this one came.
    producer = "kafka-" + hashlib.sha256(f"{cluster_id}/{given.topic}".encode()).hexdigest()[:32]
    claimed = server.ask("POST", f"/v1/topics/{name}/producers/{producer}")
    next_offsets = {part["partition"]: part["next_sequence"] for part in claimed["partitions"]}
    filled = {part["partition"] for part in admin.offsets(name) if part["high_watermark"]}
    ends = {}
    for at in partitions:
        first, ends[at] = consumer.get_watermark_offsets(TopicPartition(given.topic, at), timeout=30)
        if first < ends[at] and at in filled and at not in next_offsets:
            raise SystemExit(
                f"{name}, partition {at} has records, and none known to come from there: choose another --as"
            )
    consumer.assign([TopicPartition(given.topic, at, next_offsets.get(at, OFFSET_BEGINNING)) for at in partitions])
    headers = {
        "Content_Type": "application/vnd.apache.arrow.stream",
        "Accept": "application/json",
        "Silt_Producer_Id": producer,
        "Silt_Producer_Epoch": str(claimed["producer_epoch"]),
        "Silt_Sequence_Mode": "increasing",
        "Silt_Timestamps": "stored",
    }
    count = 0
    for messages in chunks(consumer, ends, given.records, given.follow):
        count += published(server, f"/v1/topics/{name}/records", headers, messages)
    print(f"{count} records came, {admin.topic(name)['records']} are there")
    for group in given.group:
        with_group = Consumer({**settings, "group.id": group})
        with_group.assign([TopicPartition(given.topic, at) for at in partitions])
        carry_over(server, admin, name, producer, with_group, group)
        with_group.close()
    consumer.close()


if __name__ == "__main__":
    main()
