import json
import uuid
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from conftest import CLOCK, TopicWriter, records

from siltlog.infra import names
from siltlog.infra.data_file import read_data_file
from siltlog.infra.errors import CorruptData
from siltlog.infra.schema import FILE_SCHEMA, TABLE_SCHEMA
from siltlog.infra.store import ObjectStore
from siltlog.infra.table import TopicTable
from siltlog.pipelines.compact import compact, plan_of, run_chunk, write_merged

pytestmark = pytest.mark.spark


def stored(store: ObjectStore, table: TopicTable) -> dict[int, pa.Table]:
    """What our reader sees of each partition, every page verified."""
    snapshot = table.refresh()
    return {
        partition: pa.concat_tables(
            read_data_file(store, table.topic, file, columns=TABLE_SCHEMA.names)
            for file in snapshot.files_of(partition)
        )
        for partition in range(snapshot.partitions)
        if snapshot.files_of(partition)
    }


def test_small_files_become_one_and_no_record_changes(spark: Any, store: ObjectStore) -> None:
    topic = TopicWriter(store, "flights", partitions=3)
    for _ in range(6):
        topic.append(20, 5)
    before = stored(store, topic.table)
    report = compact(spark, store, topic.table, CLOCK)
    assert report.error is None
    assert (report.files_before, report.files_after, report.merged_files) == (12, 2, 12)
    assert (report.chunks, report.raced_chunks) == (1, 0)
    assert stored(store, topic.table) == before
    assert plan_of(topic.table.refresh(), CLOCK).chunks == ()
