"""The topics of a log, by name and by id, and what its WAL remembers of all of them together.

Built before both: the WAL asks for the state, and the log fills it.
"""

import uuid
from collections.abc import Collection, Iterator, Sequence

from siltlog.infra import names
from siltlog.infra.errors import problem
from siltlog.ingest.log import state as wal_state
from siltlog.ingest.log.partition import PartitionLog
from siltlog.ingest.log.topic import TopicLog
from siltlog.ingest.producers.sequencer import StateBytes


class TopicLogs:
    """Used on the log's event loop."""

    def __init__(self) -> None:
        self.producer_bytes = StateBytes()
        """The bytes of the WAL's state that producers and keys of all topics take."""
        self._by_name: dict[str, TopicLog] = {}
        self._by_id: dict[bytes, TopicLog] = {}
        self._sorted: tuple[TopicLog, ...] | None = ()
        self._former: dict[bytes, wal_state.TopicState] = {}
        """What the WAL remembers of topics that are not held, by id."""
        self._named: Collection[str] = ()

    def find(self, name: str) -> TopicLog:
        """Raises UnknownTopic, Unavailable `not_owner`."""
        topic = self._by_name.get(name)
        if topic is None:
            if name in self._named:
                raise problem("not_owner", f"this node does not own the topic {name}", topic=name)
            system = names.is_system_topic(name)
            made = "the server makes it when it is needed" if system else "create it with POST /v1/topics"
            raise problem("unknown_topic", f"there is no topic {name[:200]!r}; {made}", topic=name[:200])
        return topic

    def get(self, name: str) -> TopicLog | None:
        """The topic, where it is held here."""
        return self._by_name.get(name)

    def named(self, names_of_cluster: Collection[str]) -> None:
        """Takes note of all topics there are: those that are not held here are another node's."""
        self._named = names_of_cluster

    def elsewhere(self) -> list[str]:
        """The names of topics that are not held here."""
        return [name for name in self._named if name not in self._by_name]

    def all(self) -> Sequence[TopicLog]:
        """Lists them sorted by name."""
        if self._sorted is None:
            self._sorted = tuple(sorted(self._by_name.values(), key=lambda topic: topic.name))
        return self._sorted

    def partitions(self) -> Iterator[PartitionLog]:
        return (log for topic in self._by_name.values() for log in topic.partitions)

    def add(self, topic: TopicLog) -> None:
        """Holds the topic; what the WAL remembered of it is what the topic says from now on."""
        self._sorted = None
        self._former.pop(topic.id_bytes, None)
        self._by_name[topic.name] = topic
        self._by_id[topic.id_bytes] = topic
        topic.producers.bytes.join(self.producer_bytes)

    def remove(self, topic: TopicLog) -> None:
        if self._by_name.get(topic.name) is topic:
            self._sorted = None
            del self._by_name[topic.name]
            del self._by_id[topic.id_bytes]
            topic.producers.bytes.leave()

    def keep(self, topic_id: str, known: wal_state.TopicState) -> None:
        """Has the WAL remember a topic that is not held, with all that it has of it."""
        self._former[uuid.UUID(topic_id).bytes] = known

    def settled(self, topic_id: str) -> None:
        """The WAL may forget a topic that is not held."""
        self._former.pop(uuid.UUID(topic_id).bytes, None)

    def let_go(self, topic: TopicLog, *, released: bool) -> None:
        """Does not hold the topic any more. What was released is all in the table, its producers beside it: of that
        the WAL remembers only how far it came."""
        self.remove(topic)
        known = _state_of(topic)
        if released:
            partitions = {
                partition: wal_state.PartitionState(state.next_offset, state.table_offset)
                for partition, state in known.partitions.items()
            }
            known = wal_state.TopicState(topic.name, topic.snapshot.version, partitions=partitions)
        self._former[topic.id_bytes] = known

    def former(self, topic_id: str) -> wal_state.TopicState | None:
        """What the WAL remembers of a topic that is not held."""
        return self._former.get(uuid.UUID(topic_id).bytes)

    def former_ids(self) -> list[str]:
        """The ids of the topics that are not held, and that the WAL remembers."""
        return [str(uuid.UUID(bytes=topic_id)) for topic_id in self._former]

    def table_offset(self, topic_id: bytes, partition: int) -> int:
        """The table offset of a partition, for recycling: of a topic that is gone everything may go."""
        if (former := self._former.get(topic_id)) is not None:
            known = former.partitions.get(partition)
            return 0 if known is None else known.table_offset
        topic = self._by_id.get(topic_id)
        if topic is None or partition >= len(topic.partitions):
            return 2**63 - 1
        return topic.partitions[partition].offsets.table

    def held(self, topic_id: bytes) -> TopicLog | None:
        return self._by_id.get(topic_id)

    def claims_stored(self, topic_id: bytes) -> bool:
        """Whether the object beside the topic's table has every epoch that its producers claimed."""
        topic = self._by_id.get(topic_id)
        return topic_id not in self._former if topic is None else topic.producers.epochs_stored

    def forget_producers(self, bytes_max: float) -> None:
        """Forgets producers unused for longest until those left take at most `bytes_max` of the WAL's state."""
        while self.producer_bytes.producers > bytes_max:
            largest = max(self._by_name.values(), key=lambda other: other.producers.bytes.producers)
            largest.producers.forget_oldest(log.sequencer for log in largest.partitions)

    def producers(self) -> int:
        """The number of producers remembered, counted in each partition they published to."""
        return sum(len(log.sequencer.producers) for log in self.partitions())

    def idempotency_keys(self) -> int:
        return sum(len(topic.producers.keys) for topic in self._by_name.values())

    def unflushed_bytes(self) -> int:
        return sum(log.head.unflushed_bytes for log in self.partitions())

    def live_files(self) -> dict[str, int]:
        """How many files the table of each topic has."""
        return {topic.name: len(topic.snapshot.files) for topic in self.all()}

    def state(self, bytes_max: int) -> bytes:
        """Everything that was submitted to the WAL so far, and nothing that still gathers.

        It must leave the segment it begins room for records: where it would take more than `bytes_max` of that, of each
        producer's requests only the last is remembered across a restart. That is enough to tell a duplicate.
        """
        state = self._state()
        encoded = wal_state.encode(state)
        if len(encoded) > bytes_max:
            encoded = wal_state.encode(wal_state.shortened(state))
        return encoded

    def _state(self) -> wal_state.WalState:
        topics = {str(uuid.UUID(bytes=topic_id)): known for topic_id, known in self._former.items()}
        topics |= {topic.topic_id: _state_of(topic) for topic in self._by_name.values()}
        return wal_state.WalState(topics, wal_state.VERSION)


def _state_of(topic: TopicLog) -> wal_state.TopicState:
    partitions = {
        log.partition: wal_state.PartitionState(
            log.offsets.submitted, log.offsets.table, log.sequencer.dump(log.offsets.submitted)
        )
        for log in topic.partitions
    }
    return wal_state.TopicState(
        topic.name,
        topic.snapshot.version,
        topic.epochs,
        topic.open_commit,
        partitions,
        topic.producers.epochs.dump(),
        topic.open_version,
        topic.claiming,
        topic.shipped_epochs,
    )
