"""What groups and dead letters write: topics of the system. The log satisfies it; the front door passes it in."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from siltlog.consumers.log_view import TopicView
from siltlog.infra.new_record import NewRecord
from siltlog.infra.topic_config import Value


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
    ) -> list[int | None]:
        """The records' offsets, once they are durable (acks=wal); any topic, the users' too. All of them or none.

        With `producer_id` each record has one of `sequences`, which rise; those that the producer published to this
        partition before are dropped as duplicates, their offset None. The producer is forgotten as any other
        (`producer.expiration.ms`). Raises what a publish does: UnknownTopic, Unavailable, OutcomeUnknown.
        """

    def last_of(self, topic: str, partition: int, producer_id: str) -> tuple[int, int] | None:
        """(sequence, offset) of a producer's last record; None where it is not known, or not any more."""

    def producers_of(self, topic: str, prefix: str) -> set[str]:
        """The producers of `topic` that are remembered and whose ids begin with `prefix`."""
