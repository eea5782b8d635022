"""A Spark stream over a table from which retention removes records."""

from pathlib import Path
from typing import Any

import pytest
from record_tables import CLOCK, new_id
from topic_writer import TopicWriter

from siltlog.infra import names
from siltlog.infra.store import open_store
from siltlog.infra.table_retention import move_starts, start_move

pytestmark = pytest.mark.spark


def test_a_stream_goes_on_over_removals(spark: Any, tmp_path: Path) -> None:
    topic = TopicWriter(open_store((tmp_path / "lake").as_uri()), "t", partitions=1)
    uri = topic.store.uri(names.topic_path("t"))
    found = tmp_path / "found"

    def streamed() -> list[int]:
        stream = spark.readStream.format("delta").option("skipChangeCommits", "true").load(uri).select("offset")
        query = (
            stream.writeStream.format("parquet")
            .option("path", str(found))
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        try:
            assert query.awaitTermination(60)
        finally:
            query.stop()
        return sorted(row.offset for row in spark.read.parquet(str(found)).collect())

    topic.append(5)
    topic.append(5)
    assert streamed() == list(range(10))
    plan = topic.table.snapshot
    move_starts(topic.table, plan.version, {0: start_move(plan, 0, 7)}, new_id(), now_ms=CLOCK.now_us() // 1000)
    topic.append(5)
    assert streamed() == list(range(15))
