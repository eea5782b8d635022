"""What reading needs of the log. The ingest side satisfies it structurally; the front door passes it in."""

from collections.abc import Callable, Sequence
from typing import Protocol

import pyarrow as pa

from siltlog.infra.bounds import Bounds
from siltlog.infra.store import ObjectStore
from siltlog.infra.table_snapshot import TableSnapshot
from siltlog.infra.topic_config import TopicConfig


class PartitionView(Protocol):
    @property
    def partition(self) -> int: ...

    def bounds(self) -> Bounds: ...

    async def read_head(
        self, offset: int, end: int, max_records: int, max_bytes: int
    ) -> Sequence[pa.RecordBatch] | None:
        """RECORD_SCHEMA batches, contiguous from `offset`, below `end`; at least one record when there is one.

        None when the head does not cover `offset`: it is then below the table offset of the topic's snapshot.
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
