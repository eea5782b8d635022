"""Kafka's clients at the nodes of a cluster, which go on through anything and note what they are told."""

import time
from functools import partial

from cluster_callers import Caller
from cluster_rig import Nodes
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from history import Ack, Read, Row

POLL_SECONDS = 0.05
BATCH_MAX = 200
DELIVERED_SECONDS = 60.0
RETRY_MS = 50
"""How soon clients ask again: what they wait for here is what is measured."""


def address_of(nodes: Nodes, name: str) -> str:
    return str(nodes[name].server._settings["kafka_listen"])


def bootstrap_of(nodes: Nodes) -> str:
    """The addresses of all nodes, as clients are given them."""
    return ",".join(address_of(nodes, name) for name in nodes)


class KafkaPublisher(Caller):
    """An idempotent producer of librdkafka, which has many batches under way."""

    def __init__(self, nodes: Nodes, topic: str, name: str, seed: int, *, partitions: int = 2) -> None:
        super().__init__(nodes, topic, name, seed)
        self.partitions = partitions
        self._count = 0
        self._last = dict.fromkeys(range(partitions), -1)
        """The highest offset that was told, by partition: deliveries come in the order of what was sent."""
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap_of(nodes),
                "enable.idempotence": True,
                "linger.ms": 2,
                "retry.backoff.ms": RETRY_MS,
                "retry.backoff.max.ms": 4 * RETRY_MS,
                "topic.metadata.refresh.fast.interval.ms": RETRY_MS,
                "reconnect.backoff.max.ms": 500,
                "log_level": 0,
                "error_cb": partial(_fatal_alone, self.complaints),
            }
        )

    def run(self) -> None:
        super().run()
        left = self._producer.flush(DELIVERED_SECONDS)
        if left:
            self.complaints.append(f"{self.name}: {left} records were not delivered")

    def step(self) -> None:
        for _ in range(self.rng.choice((1, 3, 20))):
            value = f"{self.name}:{self._count}"
            self._count += 1
            told = partial(self._delivered, value, time.monotonic())
            self._producer.produce(
                self.topic, value.encode(), partition=self.rng.randrange(self.partitions), on_delivery=told
            )
        self._producer.poll(POLL_SECONDS)

    def _delivered(self, value: str, began: float, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.complaints.append(f"{self.name}: {value} was not delivered: {error}")
            self.leave()
            return
        self.landed.add(value)
        at, offset = message.partition(), message.offset()
        if offset is None or offset < 0:
            return  # seen before, and nobody knows where
        if offset <= self._last[at]:
            self.complaints.append(f"{self.name}: {value} is at {offset} of {at}, behind {self._last[at]}")
        self._last[at] = offset
        ended = time.monotonic()
        if ended - began > 1.0:
            self.stalls.append((began, ended - began))
        self.acks.append(Ack(self.name, value, at, offset, began, ended))


class KafkaReader(Caller):
    """A consumer of librdkafka that was assigned all partitions."""

    def __init__(self, nodes: Nodes, topic: str, name: str, seed: int, *, partitions: int = 2) -> None:
        super().__init__(nodes, topic, name, seed)
        self._offsets = dict.fromkeys(range(partitions), 0)
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap_of(nodes),
                "group.id": name,
                "enable.auto.commit": False,
                "fetch.error.backoff.ms": RETRY_MS,
                "topic.metadata.refresh.fast.interval.ms": RETRY_MS,
                "reconnect.backoff.max.ms": 500,
                "log_level": 0,
                "error_cb": partial(_fatal_alone, self.complaints),
            }
        )

    def run(self) -> None:
        self._consumer.assign([TopicPartition(self.topic, partition, 0) for partition in self._offsets])
        super().run()
        self._consumer.close()

    def step(self) -> None:
        began = time.monotonic()
        rows: dict[int, list[tuple[int, str]]] = {}
        for message in self._consumer.consume(BATCH_MAX, POLL_SECONDS):
            error = message.error()
            if error is None:
                rows.setdefault(message.partition(), []).append((message.offset(), message.value().decode()))
            else:
                self.complaints.append(f"{self.name}: {error}")
        ended = time.monotonic()
        for partition, found in rows.items():
            offset, after = self._offsets[partition], found[-1][0] + 1
            self._offsets[partition] = after
            self.reads.append(
                Read(self.name, partition, offset, after, after, tuple(found), began, ended, "the cluster")
            )


class KafkaMember(Caller):
    """A consumer of librdkafka in a group, which commits what it was given."""

    def __init__(self, nodes: Nodes, topic: str, name: str, seed: int, *, group: str) -> None:
        super().__init__(nodes, topic, name, seed)
        self.given: list[Row] = []
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap_of(nodes),
                "group.id": group,
                "auto.offset.reset": "earliest",
                "auto.commit.interval.ms": 200,
                "session.timeout.ms": 10_000,
                "heartbeat.interval.ms": 500,
                "fetch.error.backoff.ms": RETRY_MS,
                "topic.metadata.refresh.fast.interval.ms": RETRY_MS,
                "reconnect.backoff.max.ms": 500,
                "log_level": 0,
                "error_cb": partial(_fatal_alone, self.complaints),
            }
        )

    def run(self) -> None:
        self._consumer.subscribe([self.topic])
        super().run()
        self._consumer.close()

    def step(self) -> None:
        for message in self._consumer.consume(BATCH_MAX, POLL_SECONDS):
            error = message.error()
            if error is None:
                self.given.append(Row(message.partition(), message.offset(), message.value().decode()))
            else:
                self.complaints.append(f"{self.name}: {error}")


def _fatal_alone(complaints: list[str], error: KafkaError) -> None:
    """Every client is told that a node is gone; what counts is whether it goes on."""
    if error.fatal():
        complaints.append(f"a client gave up: {error}")
