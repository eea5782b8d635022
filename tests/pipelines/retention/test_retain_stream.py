"""A Spark stream over a table that retention, compaction and changes of the topic go on beside."""

import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from record_tables import CLOCK, new_id
from topic_writer import TopicWriter

from siltlog.infra import names
from siltlog.infra.columns import FILE_SCHEMA
from siltlog.infra.settings.topic_config import TopicConfig
from siltlog.infra.store.store import open_store
from siltlog.infra.table.commits import COMMITS_MIN
from siltlog.infra.table.data_file import read_data_file, write_data_file
from siltlog.infra.table.log_start import move_starts, start_move

pytestmark = pytest.mark.spark


@pytest.fixture
def topic(tmp_path: Path) -> TopicWriter:
    return TopicWriter(open_store((tmp_path / "lake").as_uri()), "t", partitions=1)


@pytest.fixture
def streamed(spark: Any, topic: TopicWriter, tmp_path: Path) -> Callable[[], list[tuple[int, int]]]:
    """Starts the stream on its checkpoint, to the end of what there is; all it ever found, by partition and offset."""
    uri = topic.store.uri(names.topic_path("t"))
    found = tmp_path / "found"

    def streamed() -> list[tuple[int, int]]:
        stream = spark.readStream.format("delta").option("skipChangeCommits", "true").load(uri)
        query = (
            stream.select("partition", "offset")
            .writeStream.format("parquet")
            .option("path", str(found))
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        try:
            assert query.awaitTermination(300)
        finally:
            query.stop()
        return sorted((row.partition, row.offset) for row in spark.read.parquet(str(found)).collect())

    return streamed


def merge(topic: TopicWriter) -> None:
    """All files of the first partition become one, as file compaction does it."""
    snapshot = topic.table.refresh()
    removes = snapshot.files_of(0)
    columns = FILE_SCHEMA.names
    tables = [read_data_file(topic.store, "t", file, columns=columns, first_offset=0) for file in removes]
    merged = pa.concat_tables(tables).select(columns).cast(FILE_SCHEMA)
    now_ms = CLOCK.now_us() // 1000
    added = write_data_file(topic.store, "t", 0, merged, compression="zstd", now_ms=now_ms)
    topic.table.rewrite(snapshot.version, removes, [added], str(uuid.uuid4()))


@pytest.mark.slow
def test_a_stream_goes_on_over_removals(topic: TopicWriter, streamed: Callable[[], list[tuple[int, int]]]) -> None:
    topic.append(5)
    topic.append(5)
    assert streamed() == [(0, offset) for offset in range(10)]
    plan = topic.table.snapshot
    move_starts(topic.table, plan.version, {0: start_move(plan, 0, 7)}, new_id(), now_ms=CLOCK.now_us() // 1000)
    topic.append(5)
    assert streamed() == [(0, offset) for offset in range(15)]


@pytest.mark.slow
def test_a_stream_goes_on_over_compaction_checkpoints_and_changes_of_the_topic(
    topic: TopicWriter, streamed: Callable[[], list[tuple[int, int]]]
) -> None:
    """What is merged, or removed, before the stream comes to it is there once all the same."""
    topic.append(5)
    merge(topic)
    assert streamed() == [(0, offset) for offset in range(5)]
    topic.append(5)
    topic.append(5)
    merge(topic)
    topic.table.set_config(TopicConfig({"retention.records": 100}), new_id())
    epoch = topic.epochs[0]
    topic.table.grow(2, [15], epoch, new_id(), config=TopicConfig({}))
    topic.epochs[1] = epoch
    topic.append(2, 3)
    plan = topic.table.snapshot
    move_starts(topic.table, plan.version, {0: start_move(plan, 0, 17)}, new_id(), now_ms=CLOCK.now_us() // 1000)
    while topic.table.snapshot.version < COMMITS_MIN:
        topic.append(1)
    topic.table.maintain()
    end = topic.table.snapshot.offsets[0]
    assert streamed() == [(0, offset) for offset in range(end)] + [(1, offset) for offset in range(3)]
