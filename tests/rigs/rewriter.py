"""File compaction beside everything else, in small and often."""

import random
import uuid
from collections import deque
from collections.abc import Sequence

import pyarrow as pa

from siltlog.infra import names
from siltlog.infra.clock import SystemClock
from siltlog.infra.columns import FILE_SCHEMA
from siltlog.infra.errors import Fenced
from siltlog.infra.store.store import ObjectStore, open_store
from siltlog.infra.table.data_file import DataFile, read_data_file, write_data_file
from siltlog.infra.table.table import TopicTable


class Rewriter:
    """Merges runs of neighbouring files as file compaction does, without Spark."""

    def __init__(
        self, root: str, topic: str, partitions: int, rng: random.Random, *, gone_after_s: float | None = None
    ) -> None:
        """A file that was merged is deleted `gone_after_s` later, as by a vacuum in a great hurry; by default never."""
        self._store: ObjectStore = open_store(root)
        self._topic = topic
        self._partitions = partitions
        self._rng = rng
        self._gone_after_s = gone_after_s
        self._doomed: deque[tuple[float, DataFile]] = deque()
        self.deleted = 0
        self.landed = 0
        self.refused = 0

    def once(self) -> None:
        clock = SystemClock()
        self._delete(clock.monotonic())
        table = TopicTable.open(self._store, self._topic, clock)
        partition = self._rng.randrange(self._partitions)
        files = table.snapshot.files_of(partition)
        if len(files) < 4:
            return
        at = self._rng.randrange(len(files) - 3)
        removes = files[at : at + self._rng.randint(2, 12)]
        try:
            table.rewrite(table.snapshot.version, removes, [self._merged(removes)], str(uuid.uuid4()))
            self.landed += 1
            if self._gone_after_s is not None:
                due = clock.monotonic() + self._gone_after_s
                self._doomed.extend((due, file) for file in removes)
        except Fenced:
            self.refused += 1

    def _delete(self, now: float) -> None:
        while self._doomed and self._doomed[0][0] <= now:
            self._store.delete(f"{names.topic_path(self._topic)}/{self._doomed.popleft()[1].path}")
            self.deleted += 1

    def _merged(self, files: Sequence[DataFile]) -> DataFile:
        columns = FILE_SCHEMA.names
        tables = [read_data_file(self._store, self._topic, file, columns=columns, first_offset=0) for file in files]
        merged = pa.concat_tables(tables).select(columns).cast(FILE_SCHEMA)
        now_ms = SystemClock().now_us() // 1000
        return write_data_file(self._store, self._topic, files[0].partition, merged, compression="zstd", now_ms=now_ms)
