"""Records as tables, for tests that write data files and topic tables."""

import uuid

import numpy as np
import pyarrow as pa

from siltlog.infra.clock import SystemClock
from siltlog.infra.columns import FILE_SCHEMA, HEADERS, TIMESTAMP
from siltlog.infra.settings.topic_config import TopicConfig
from siltlog.infra.store.store import ObjectStore, Put
from siltlog.infra.table.data_file import DataFile, write_data_file
from siltlog.infra.table.entries import HOUR_MS, RETENTION_MS, entry_path
from siltlog.infra.table.table import TopicTable

START_US = 1_795_255_969_361_001
CLOCK = SystemClock()


def records(first: int, count: int, *, value: bytes = b"value-%d", full: bool = False) -> pa.Table:
    """`count` records from offset `first`, with FILE_SCHEMA; `full` fills the optional columns too."""
    numbers = range(first, first + count)
    columns = {
        "offset": pa.array(np.arange(first, first + count, dtype=np.int64)),
        "timestamp": pa.array([START_US + number for number in numbers], TIMESTAMP),
        "key": pa.array([b"key-%d" % (number % 7) if full else None for number in numbers], pa.binary()),
        "value": pa.array([value % number if b"%d" in value else value for number in numbers], pa.binary()),
        "headers": pa.array(
            [
                [{"key": "h", "value": b"%d" % number}, {"key": "n", "value": None}] if full else None
                for number in numbers
            ],
            HEADERS,
        ),
        "producer_id": pa.array([f"producer-{number % 3}" if full else None for number in numbers], pa.string()),
        "producer_epoch": pa.array([number % 2 if full else None for number in numbers], pa.int32()),
        "sequence": pa.array([number if full else None for number in numbers], pa.int64()),
    }
    return pa.table(columns, schema=FILE_SCHEMA)


def written(store: ObjectStore, topic: str, partition: int, first: int, count: int) -> DataFile:
    now_ms = CLOCK.now_us() // 1000
    return write_data_file(store, topic, partition, records(first, count), compression="zstd", now_ms=now_ms)


def new_id() -> str:
    return str(uuid.uuid4())


def created(store: ObjectStore, topic: str = "t", partitions: int = 2) -> TopicTable:
    return TopicTable.create(
        store,
        topic,
        topic_id=new_id(),
        partitions=partitions,
        config=TopicConfig({}),
        created_us=CLOCK.now_us(),
        clock=CLOCK,
    )


def claimed(store: ObjectStore, topic: str = "t", partitions: int = 2) -> TopicTable:
    """A new topic whose partitions are claimed at epoch 1."""
    table = created(store, topic, partitions)
    table.claim(dict.fromkeys(range(partitions), 1), new_id())
    return table


CLEANED_RECORDS = 25


def cleaned_topic(store: ObjectStore) -> TopicTable:
    """A topic `t` with so many records of partition 0, whose log was cleaned; what somebody who slept through that has
    committed lies below."""
    table = claimed(store, partitions=1)
    for _ in range(CLEANED_RECORDS):
        append(store, table, {0: 1})
    slept = store.get(entry_path("t", 2))
    table.maintain()
    table.clean_log(CLOCK.now_us() // 1000 + RETENTION_MS + HOUR_MS)
    slept = slept.replace(b"partition=0/", b"partition=0/gone-")
    assert store.put_if_absent(entry_path("t", 2), slept) is Put.WRITTEN
    return table


def append(
    store: ObjectStore, table: TopicTable, counts: dict[int, int], *, epoch: int = 1, commit_id: str = ""
) -> list[DataFile]:
    """Appends `counts` records to each partition, one file each, at the offsets that come next."""
    bounds = {
        partition: (table.snapshot.offsets[partition], table.snapshot.offsets[partition] + count)
        for partition, count in counts.items()
    }
    files = [written(store, table.topic, partition, first, end - first) for partition, (first, end) in bounds.items()]
    table.append(files, bounds, dict.fromkeys(counts, epoch), commit_id or new_id())
    return files
