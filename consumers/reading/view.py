"""The log as the consumer side sees it: views of topics and partitions to read, and a log of the system to append to.

The ingest side satisfies these protocols structurally; the server passes its log in.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import NamedTuple, Protocol

import pyarrow as pa

from siltlog.infra.records import Bounds, NewRecord, SentBatch
from siltlog.infra.settings.topic_config import TopicConfig, Value
from siltlog.infra.store.store import ObjectStore
from siltlog.infra.table.snapshot import TableSnapshot


class Key(NamedTuple):
    """A partition as groups name it. It carries the topic's id: a successor of the same name is another topic."""

    topic: str
    topic_id: str
    partition: int

    def text(self) -> str:
        return f"{self.topic}/{self.topic_id}/{self.partition}"

    def topic_text(self) -> str:
        """Names the topic as groups do."""
        return f"{self.topic}/{self.topic_id}"

    @classmethod
    def parse(cls, text: str) -> "Key":
        topic, topic_id, partition = text.split("/")
        return cls(topic, topic_id, int(partition))


class PartitionView(Protocol):
    @property
    def partition(self) -> int: ...

    @property
    def far(self) -> bool:
        """Whether its head is at another node: to read that takes a request."""

    def bounds(self) -> Bounds: ...

    async def read_head(
        self, offset: int, end: int, max_records: int, max_bytes: int, producers: bool = False
    ) -> Sequence[pa.RecordBatch] | None:
        """RECORD_SCHEMA batches, contiguous from `offset`, below `end`; at least one record when there is one. With
        `producers` PRODUCED_SCHEMA, of which the head covers only what is not in the table.

        None when the head does not cover `offset`: it is then below the table offset of the topic's snapshot.
        """

    def sent(self, offset: int, end: int) -> Sequence[SentBatch]:
        """Batches as they were sent, contiguous from `offset`, below `end`, for those who take such; there may be none,
        and `read_head` has the same records."""

    async def decided(self) -> Bounds | None:
        """The bounds as the partition's owner has them now, where something is refused or begun by them.

        None while nobody owns it: what lies above what is known is then not known. Raises Unavailable.
        """

    async def reaches(self, offset: int) -> bool:
        """Whether the table has records up to `offset` of which the owner has not heard: its own commit may have
        landed without an answer, and others read it. Asked before what lies above the end is refused.

        Raises Unavailable where the table cannot be read.
        """

    def subscribe(self, callback: Callable[[], None]) -> None:
        """`callback` is called on the loop when a bound moved or the topic went away, until it is unsubscribed."""

    def unsubscribe(self, callback: Callable[[], None]) -> None: ...


class TopicView(Protocol):
    @property
    def name(self) -> str: ...
    @property
    def topic_id(self) -> str: ...
    @property
    def partitions(self) -> Sequence[PartitionView]: ...
    @property
    def created_us(self) -> int: ...
    @property
    def config(self) -> TopicConfig: ...
    @property
    def snapshot(self) -> TableSnapshot:
        """The newest one. It covers every offset below the head from before the head lets that offset go."""


class LogView(Protocol):
    @property
    def store(self) -> ObjectStore: ...
    @property
    def draining(self) -> bool: ...

    def topic(self, name: str) -> TopicView:
        """Raises UnknownTopic."""

    def topics(self) -> Sequence[TopicView]:
        """Sorted by name."""

    @property
    def view(self) -> int:
        """The number of the view by which it knows which topics there are; 0 where there are no others than its own."""

    def opening(self) -> Collection[str]:
        """Topics that there are, and that cannot be read here yet."""


class SystemLog(Protocol):
    async def ensure(self, name: str, partitions: int, config: Mapping[str, Value]) -> TopicView:
        """The topic of the system's; made with `config` when it is not there, and grown to `partitions`.

        Raises Unavailable while it cannot be made.
        """

    async def dead_letters(self, topic: str) -> TopicView:
        """`{topic}.dlq`, made when it is not there, with as many partitions as `topic` has now.

        Raises UnknownTopic, Unavailable.
        """

    async def append(
        self,
        topic: str,
        partition: int,
        records: Sequence[NewRecord],
        *,
        producer_id: str = "",
        sequences: Sequence[int] = (),
        epoch: int = 0,
    ) -> list[int | None]:
        """The records' offsets, once they are durable (acks=wal); any topic, the users' too. All of them or none.

        With `producer_id` each record has one of `sequences`, which rise; those that the producer published to this
        partition before are dropped as duplicates, their offset None. The producer is forgotten as any other
        (`producer.expiration.ms`). With `epoch` nobody but this node appends, under that epoch: Unavailable `not_owner`
        where it is gone. Raises what a publish does: UnknownTopic, Unavailable, OutcomeUnknown.
        """

    async def delete_records(self, topic: str, partition: int, before_offset: int) -> int:
        """Deletes what is below an offset, for good; the log start as it is then. Raises what a deletion does."""

    def epoch_of(self, topic: str) -> int:
        """The epoch under which this node appends to the topic, 0 where there is none. Those of later owners are
        higher."""

    async def last_of(self, topic: str, partition: int, producer_id: str) -> tuple[int, int] | None:
        """(sequence, offset) of a producer's last record; None where it is not known, or not any more."""

    async def producers_of(self, topic: str, prefix: str) -> set[str]:
        """The producers of `topic` that are remembered and whose ids begin with `prefix`."""
