"""Members of groups by confluent-kafka and kafka-python: what each has read and committed."""

import time
from collections.abc import Callable
from typing import Any

from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka import KafkaError as ConsumerError
from kafka_rig import WAIT_SECONDS

from siltlog.infra.kafka.errors import KafkaError

PASSING = (
    KafkaError.ILLEGAL_GENERATION,
    KafkaError.UNKNOWN_MEMBER_ID,
    KafkaError.REBALANCE_IN_PROGRESS,
    KafkaError.STALE_MEMBER_EPOCH,
    ConsumerError._STATE,
    ConsumerError._NO_OFFSET,
    # Of a server that has just been killed.
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    ConsumerError._TRANSPORT,
    ConsumerError._TIMED_OUT,
    ConsumerError._WAIT_COORD,
)


class Reader:
    """A consumer of confluent-kafka in a group, and what it has read and committed."""

    def __init__(self, bootstrap: str, group: str, topic: str, **more: Any) -> None:
        own = {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            # Longer than a busy machine lets it wait: where a session ends, records come again.
            "session.timeout.ms": 30_000,
            "heartbeat.interval.ms": 100,
            "log_level": 0,
        }
        if more.get("group_protocol") == "consumer":
            # There the server says.
            del own["session.timeout.ms"], own["heartbeat.interval.ms"]
        self.topic = topic
        self.read: list[tuple[int, int]] = []
        """Partitions and offsets of records that are committed."""
        self._pending: dict[int, list[int]] = {}
        self.consumer = Consumer({**own, **{name.replace("_", "."): value for name, value in more.items()}})
        self.consumer.subscribe([topic], on_revoke=self._on_gone, on_lost=self._on_gone)

    def held(self) -> set[int]:
        return {at.partition for at in self.consumer.assignment()}

    def turn(self) -> None:
        """Reads what there is for a moment, and commits it."""
        message = self.consumer.poll(0.05)
        if message is not None:
            if message.error() is not None:
                raise KafkaException(message.error())
            at, offset = message.partition(), message.offset()
            assert at is not None and offset is not None
            self._pending.setdefault(at, []).append(offset)
        for at in list(self._pending):
            self._commit(at)

    def _commit(self, at: int) -> None:
        offsets = self._pending[at]
        try:
            self.consumer.commit(offsets=[TopicPartition(self.topic, at, offsets[-1] + 1)], asynchronous=False)
        except KafkaException as error:
            # Such as in the middle of a rebalance: later, or by whoever has the partition then.
            assert error.args[0].code() in PASSING, error
            return
        self.read += [(at, offset) for offset in self._pending.pop(at)]

    def _on_gone(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        for partition in partitions:
            if partition.partition in self._pending:
                self._commit(partition.partition)
            self._pending.pop(partition.partition, None)


def until(condition: Callable[[], bool], *readers: Reader) -> None:
    end = time.monotonic() + WAIT_SECONDS
    while not condition():
        assert time.monotonic() < end, [sorted(reader.held()) for reader in readers]
        for reader in readers:
            reader.turn()


def member_for_ever(bootstrap: str, group: str, topic: str, told: Any) -> None:
    """What a process does that is killed: it puts what it has committed into the queue `told`."""
    reader = Reader(bootstrap, group, topic, client_id="killed", session_timeout_ms=2_000)
    while True:
        before = len(reader.read)
        reader.turn()
        for at in reader.read[before:]:
            told.put(at)
