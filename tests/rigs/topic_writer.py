"""A topic that is filled as the server fills it: files, then one commit."""

from typing import Any

import pyarrow as pa
from record_tables import CLOCK, new_id, records

from siltlog.infra.settings.topic_config import TopicConfig
from siltlog.infra.store.store import ObjectStore
from siltlog.infra.table.data_file import write_data_file
from siltlog.infra.table.table import TopicTable


class TopicWriter:
    """Made over a deleted topic of the same name, it takes the next epochs."""

    def __init__(self, store: ObjectStore, topic: str, partitions: int = 2, **config: Any) -> None:
        """`config` has the topic's own settings, `_` for `.`; retention is unlimited unless it says otherwise."""
        self.config = TopicConfig(
            {name.replace("_", "."): value for name, value in ({"retention_ms": -1} | config).items()}
        )
        self.store = store
        self.topic = topic
        self.table = TopicTable.create(
            store,
            topic,
            topic_id=new_id(),
            partitions=partitions,
            config=self.config,
            created_us=CLOCK.now_us(),
            clock=CLOCK,
        )
        self.epochs = {partition: epoch + 1 for partition, epoch in self.table.snapshot.epochs.items()}
        self.table.claim(self.epochs, new_id())

    def append(self, *counts: int) -> None:
        """One commit with that many records for partition 0, 1, ..."""
        offsets = self.table.refresh().offsets
        self.append_tables({p: records(offsets[p], count, full=True) for p, count in enumerate(counts) if count})

    def append_tables(self, tables: dict[int, pa.Table]) -> None:
        """One commit; the offsets of each table go on where its partition ends."""
        compression = str(self.config["compression"])
        files, bounds = [], {}
        for partition, table in tables.items():
            now_ms = CLOCK.now_us() // 1000
            files.append(
                write_data_file(self.store, self.topic, partition, table, compression=compression, now_ms=now_ms)
            )
            first = table["offset"][0].as_py()
            bounds[partition] = (first, first + table.num_rows)
        self.table.append(files, bounds, self.epochs, new_id())
