"""One topic as its node sees it: configuration, partitions, table, and whether it takes records."""

import asyncio
import uuid
from typing import Literal

from siltlog.infra.errors import SiltlogError, problem
from siltlog.infra.table import TopicTable
from siltlog.infra.table_snapshot import TableSnapshot
from siltlog.infra.topic_config import TopicConfig
from siltlog.ingest.partition_log import PartitionLog
from siltlog.ingest.wal import Wal

State = Literal["creating", "open", "fenced", "unavailable", "deleted"]


class TopicLog:
    """Satisfies what readers need of a topic (TopicView)."""

    def __init__(self, name: str, table: TopicTable, config: TopicConfig, wal: Wal) -> None:
        snapshot = table.snapshot
        self.name = name
        self.snapshot = snapshot
        self.topic_id = snapshot.topic_id
        self.id_bytes = uuid.UUID(snapshot.topic_id).bytes
        self.config = config
        self.created_us = snapshot.created_us
        self.table = table
        self.table_lock = asyncio.Lock()
        """Held by whoever calls a method of `table` that commits or refreshes."""
        self.state: State = "open"
        self.state_reason = ""
        self.partitions = [PartitionLog(self, partition, wal) for partition in range(snapshot.partitions)]
        self.epochs: list[int] = []
        """The epochs of this topic that this WAL has taken, newest last."""
        self.open_commit = ""
        """A commit under way, or one whose outcome is not known yet; made on a handle at `open_version`."""
        self.open_version = -1
        self.records_total = 0
        self.bytes_total = 0
        """Acknowledged since the process started."""
        self._sticky = 0

    def see(self, snapshot: TableSnapshot) -> None:
        """Takes in a newer snapshot. Never that of the topic's end: whoever still reads reads what there was."""
        self.snapshot = snapshot

    def partition(self, partition: int) -> PartitionLog:
        """Raises Refused `unknown_partition`."""
        if not 0 <= partition < len(self.partitions):
            raise problem(
                "unknown_partition",
                f"topic {self.name} has partitions 0 to {len(self.partitions) - 1}, not {partition}",
            )
        return self.partitions[partition]

    def sticky_partition(self) -> int:
        """The partition for keyless records until `move_sticky`."""
        return self._sticky

    def move_sticky(self) -> None:
        self._sticky = (self._sticky + 1) % len(self.partitions)

    def expire_producers(self, now_us: int) -> None:
        """Forgets those that were not heard of for `producer.expiration.ms`."""
        before_us = now_us - self.config.integer("producer.expiration.ms") * 1000
        for partition in self.partitions:
            partition.sequencer.expire(before_us)

    def check_open(self) -> None:
        """Raises Unavailable or UnknownTopic when the topic takes no records."""
        if self.state == "open":
            return
        if self.state == "deleted":
            raise problem("unknown_topic", f"there is no topic {self.name}")
        raise problem("topic_unavailable", f"topic {self.name} takes no records: {self.state_reason}")

    def close(self, state: State, reason: str) -> None:
        """Stops acknowledging; whoever waits learns why."""
        self.state = state
        self.state_reason = reason
        for partition in self.partitions:
            partition.fail_waiters(self.gone())
            partition.notify()

    def gone(self) -> SiltlogError:
        """Why what waits for this topic will not be answered."""
        if self.state == "deleted":
            return problem("unknown_topic", f"the topic {self.name} was deleted")
        return problem("ack_timeout", f"topic {self.name} stopped before this was in its table: {self.state_reason}")
