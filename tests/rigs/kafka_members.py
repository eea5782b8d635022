"""Members of groups by confluent-kafka and kafka-python: what each has read and committed."""

import time
from collections import defaultdict
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
COMMITTED: dict[tuple[str, str, str], dict[int, int]] = defaultdict(dict)
"""The offset after the last record that readers of this process have committed: by server, group and topic, and by
partition."""


class Reader:
    """A consumer of confluent-kafka in a group, and what it has read and committed.

    One thread drives all members of a group. So a commit is waited for by turns: it may stand behind the request to
    join of its member, and that is answered once the others have asked to join as well.
    """

    def __init__(self, bootstrap: str, group: str, topic: str, **more: Any) -> None:
        own = {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "on_commit": self._on_commit,
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
        self.unsure: list[tuple[int, int]] = []
        """The same of records of which nobody has said whether they are: the answer was lost with its server."""
        self._pending: dict[int, list[int]] = {}
        self._asked: set[int] = set()
        """Partitions of which a commit is under way."""
        self._committed = COMMITTED[bootstrap, group, topic]
        self.consumer = Consumer({**own, **{name.replace("_", "."): value for name, value in more.items()}})
        self.consumer.subscribe([topic], on_revoke=self._on_gone, on_lost=self._on_gone)

    def held(self) -> set[int]:
        return {at.partition for at in self.consumer.assignment()}

    def turn(self) -> None:
        """Reads what there is for a moment, and has it committed."""
        message = self.consumer.poll(0.05)
        if message is not None:
            if message.error() is not None:
                raise KafkaException(message.error())
            at, offset = message.partition(), message.offset()
            assert at is not None and offset is not None
            if not self._is_stale(at, offset):
                self._pending.setdefault(at, []).append(offset)
        for at in self._pending.keys() - self._asked:
            if self._commit(at, asynchronous=True):
                self._asked.add(at)

    def _is_stale(self, at: int, offset: int) -> bool:
        """Whether librdkafka had fetched a record before another member read it, and hands it out only now.

        What the group has committed says so, not what this process knows of it: else a commit was lost.
        """
        if offset >= self._committed.get(at, 0):
            return False
        [known] = self.consumer.committed([TopicPartition(self.topic, at)], WAIT_SECONDS)
        return known.offset > offset

    def _commit(self, at: int, asynchronous: bool) -> bool:
        """Whether it is committed, or will be."""
        position = TopicPartition(self.topic, at, self._pending[at][-1] + 1)
        try:
            self.consumer.commit(offsets=[position], asynchronous=asynchronous)
        except KafkaException as error:
            _pass_over(error.args[0])
            return False
        return True

    def _on_commit(self, error: ConsumerError | None, positions: list[TopicPartition]) -> None:
        for position in positions:
            self._asked.discard(position.partition)
            failure = error or position.error
            if failure is None:
                self._settle(position.partition, position.offset)
            else:
                _pass_over(failure)

    def _settle(self, at: int, end: int) -> None:
        """Notes that everything below `end` is committed."""
        pending = self._pending.pop(at, [])
        self.read += [(at, offset) for offset in pending if offset < end]
        later = [offset for offset in pending if offset >= end]
        if later:
            self._pending[at] = later
        self._committed[at] = max(end, self._committed.get(at, 0))

    def _on_gone(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        for at in (partition.partition for partition in partitions):
            if at in self._pending and self._commit(at, asynchronous=False):
                self._settle(at, self._pending[at][-1] + 1)
            self.unsure += [(at, offset) for offset in self._pending.pop(at, ())]


def _pass_over(error: ConsumerError) -> None:
    """Takes it that a commit failed as in the middle of a rebalance: it comes later, or by whoever has the partition
    then."""
    assert error.code() in PASSING, error


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
