"""Acknowledged records that never came into their table, because another went on with it: set aside as Arrow files.

{data dir}/stranded/{topic}/{topic id}/{partition}-{epoch}-{first offset}.arrow          of a server that is alone
{root}/cluster/stranded/{topic}/{topic id}/{partition}-{epoch}-{first offset}.arrow      of all nodes of a cluster
"""

from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa

from siltlog.infra import names
from siltlog.infra.columns import RECORD_SCHEMA
from siltlog.infra.store.once import put_once
from siltlog.infra.store.store import ObjectStore, open_store
from siltlog.ingest.log.topic import TopicLog
from siltlog.ingest.ownership.landed import Absent
from siltlog.ingest.records.batch import record_columns


class Stranded(NamedTuple):
    """Where such records are set aside."""

    store: ObjectStore
    folder: str
    shown: str
    """The folder as people name it."""

    @classmethod
    def beside(cls, wal: Path) -> "Stranded":
        """Opens what lies in the data directory `wal`."""
        return cls(open_store(wal.as_uri()), names.STRANDED_FOLDER, str(wal / names.STRANDED_FOLDER))

    @classmethod
    def shared(cls, root: ObjectStore) -> "Stranded":
        """Opens what lies in the root, where any node's are found, also once its disk is gone."""
        return cls(root, names.SHARED_STRANDED_FOLDER, root.uri(names.SHARED_STRANDED_FOLDER))

    def write(self, topic: TopicLog, partition: int, records: Sequence[Absent]) -> list[str]:
        """A file for each epoch, durable and whole; the same ones when it is repeated. Raises Unavailable."""
        written = []
        for epoch, group in groupby(records, lambda absent: absent.epoch):
            batches = [record_columns(absent.batch, partition) for absent in group]
            first_offset = batches[0].column("offset")[0].as_py()
            inner = names.stranded_file(topic.name, topic.topic_id, partition, epoch, first_offset)
            sink = pa.BufferOutputStream()
            with pa.ipc.new_file(sink, RECORD_SCHEMA) as writer:
                for batch in batches:
                    writer.write_batch(batch)
            put_once(self.store, f"{self.folder}/{inner}", sink.getvalue().to_pybytes())
            written.append(f"{self.shown}/{inner}")
        return written
