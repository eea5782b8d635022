"""A topic that may be here or at another node, and its partitions: what reads it does not see it move."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Protocol

import pyarrow as pa

from siltlog.consumers.reading.view import PartitionView, TopicView
from siltlog.infra.records import Bounds, SentBatch
from siltlog.infra.settings.topic_config import TopicConfig
from siltlog.infra.table.snapshot import TableSnapshot


class Owners(Protocol):
    """Asks the owners of topics."""

    def fresh(self) -> bool:
        """Whether this node may decide by the bounds of what it owns: others do not take it for gone."""

    async def head(
        self,
        topic: "ClusterTopic",
        partition: int,
        offset: int,
        end: int,
        max_records: int,
        max_bytes: int,
        producers: bool,
    ) -> tuple[Sequence[pa.RecordBatch] | None, int]:
        """Records of the owner's head, None where that begins above `offset`; and its table's version.

        Raises Unavailable, also `not_owner` where nobody owns it now, and where the owner knows of no `producers`.
        """

    async def bounds(self, topic: "ClusterTopic", partition: int) -> tuple[Bounds, int] | None:
        """The owner's bounds, and its table's version; None where nobody owns it and will soon. Raises Unavailable."""

    async def newest(self, topic: "ClusterTopic") -> TableSnapshot:
        """Reads what the table is now. Raises Unavailable."""

    async def refresh(self, topic: "ClusterTopic", version: int) -> None:
        """Has the topic see the table at that version or a later one. Raises what reading the table does."""


class ClusterPartition:
    """Satisfies PartitionView. Used on one event loop."""

    def __init__(self, topic: "ClusterTopic", partition: int, owners: Owners) -> None:
        self.partition = partition
        self._topic = topic
        self._owners = owners
        self._told = Bounds(0, 0, 0)
        self._subscribers: set[Callable[[], None]] = set()
        self._followed: PartitionView | None = None

    @property
    def _local(self) -> PartitionView | None:
        local = self._topic.local
        return local.partitions[self.partition] if local and self.partition < len(local.partitions) else None

    @property
    def far(self) -> bool:
        return self._local is None

    def bounds(self) -> Bounds:
        local = self._local
        if local is not None:
            return local.bounds()
        snapshot, told = self._topic.snapshot, self._told
        table = max(told.table_offset, snapshot.offsets.get(self.partition, 0))
        start = max(told.log_start_offset, snapshot.starts.get(self.partition, 0))
        return Bounds(start, table, max(0 if self._topic.away else told.high_watermark, table, start))

    async def decided(self) -> Bounds | None:
        local = self._local
        if local is not None and self._owners.fresh():
            return await local.decided()
        found = await self._owners.bounds(self._topic, self.partition)
        if found is None:
            return None
        self.told(found[0])
        return self.bounds()

    async def reaches(self, offset: int) -> bool:
        snapshot = await self._owners.newest(self._topic)
        return offset <= snapshot.offsets.get(self.partition, 0)

    def sent(self, offset: int, end: int) -> Sequence[SentBatch]:
        local = self._local
        return () if local is None else local.sent(offset, end)

    async def read_head(
        self, offset: int, end: int, max_records: int, max_bytes: int, producers: bool = False
    ) -> Sequence[pa.RecordBatch] | None:
        local = self._local
        if local is not None:
            return await local.read_head(offset, end, max_records, max_bytes, producers)
        if offset < self._topic.snapshot.offsets.get(self.partition, 0):
            return None
        batches, version = await self._owners.head(
            self._topic, self.partition, offset, end, max_records, max_bytes, producers
        )
        if batches is None:
            await self._owners.refresh(self._topic, version)
        return batches

    def subscribe(self, callback: Callable[[], None]) -> None:
        self._subscribers.add(callback)
        self.follow()

    def unsubscribe(self, callback: Callable[[], None]) -> None:
        self._subscribers.discard(callback)
        self.follow()

    def told(self, bounds: Bounds) -> None:
        """Takes what an owner says; bounds only rise while a topic lasts."""
        before = self._told
        self._told = Bounds(*map(max, before, bounds))
        if self._told != before:
            self.notify()

    def notify(self) -> None:
        for callback in tuple(self._subscribers):
            callback()

    def follow(self) -> None:
        """Is told by this node's own log, where that has the topic and somebody wants to know."""
        wanted = self._local if self._subscribers else None
        if wanted is not self._followed:
            if self._followed is not None:
                self._followed.unsubscribe(self.notify)
            self._followed = wanted
            if wanted is not None:
                wanted.subscribe(self.notify)


class ClusterTopic:
    """Satisfies TopicView. Used on one event loop."""

    def __init__(self, name: str, snapshot: TableSnapshot, owners: Owners) -> None:
        self.name = name
        self.topic_id = snapshot.topic_id
        self.local: TopicView | None = None
        """The topic in this node's own log, while that may be read."""
        self.away = False
        """Its owner is gone, and nobody goes on: the table is all that there is to read."""
        self.refreshing = asyncio.Lock()
        self._snapshot = snapshot
        self._owners = owners
        self._partitions: list[ClusterPartition] = []
        self._grow()

    @property
    def partitions(self) -> Sequence[ClusterPartition]:
        if self.local is not None and len(self.local.partitions) != len(self._partitions):
            self._grow()
        return self._partitions

    @property
    def created_us(self) -> int:
        return self.snapshot.created_us

    @property
    def config(self) -> TopicConfig:
        return self.snapshot.config if self.local is None else self.local.config

    @property
    def snapshot(self) -> TableSnapshot:
        return self._snapshot if self.local is None else self.local.snapshot

    def see(self, snapshot: TableSnapshot) -> None:
        """Takes in a newer snapshot of the same topic."""
        if snapshot.topic_id != self.topic_id or snapshot.deleted or snapshot.version <= self._snapshot.version:
            return
        self._snapshot = snapshot
        self._grow()
        self.notify()

    def moved(self, local: TopicView | None) -> None:
        """It came to this node, or left it."""
        if local is self.local:
            return
        if self.local is not None:
            before = self.local
            for view, own in zip(self._partitions, before.partitions, strict=False):
                view.told(own.bounds())
            if before.snapshot.version > self._snapshot.version:
                self._snapshot = before.snapshot
        self.local = local
        self._grow()
        for partition in self._partitions:
            partition.follow()
        self.notify()

    def went(self, away: bool) -> None:
        """Its owner went away, or came back."""
        if away != self.away:
            self.away = away
            self.notify()

    def notify(self) -> None:
        for partition in self._partitions:
            partition.notify()

    def _grow(self) -> None:
        count = len(self.local.partitions) if self.local is not None else self._snapshot.partitions
        for partition in range(len(self._partitions), count):
            self._partitions.append(ClusterPartition(self, partition, self._owners))
