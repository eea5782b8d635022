"""Acknowledged records that never came into their table, because another went on with it: set aside as Arrow files.

{data dir}/stranded/{topic}/{topic id}/{partition}-{epoch}-{first offset}.arrow
"""

from collections.abc import Sequence
from itertools import groupby
from pathlib import Path

import pyarrow as pa

from siltlog.infra import names
from siltlog.infra.columns import RECORD_SCHEMA
from siltlog.infra.store.once import put_once
from siltlog.infra.store.store import open_store
from siltlog.ingest.log.topic import TopicLog
from siltlog.ingest.ownership.landed import Absent
from siltlog.ingest.records.batch import record_columns


def write(folder: Path, topic: TopicLog, partition: int, records: Sequence[Absent]) -> list[Path]:
    """A file for each epoch, durable and whole; the same ones when a start is repeated."""
    store = open_store(folder.parent.as_uri())
    paths = []
    for epoch, group in groupby(records, lambda absent: absent.epoch):
        batches = [record_columns(absent.batch, partition) for absent in group]
        first_offset = batches[0].column("offset")[0].as_py()
        inner = names.stranded_file(topic.name, topic.topic_id, partition, epoch, first_offset)
        sink = pa.BufferOutputStream()
        with pa.ipc.new_file(sink, RECORD_SCHEMA) as writer:
            for batch in batches:
                writer.write_batch(batch)
        put_once(store, f"{folder.name}/{inner}", sink.getvalue().to_pybytes())
        paths.append(folder / inner)
    return paths
