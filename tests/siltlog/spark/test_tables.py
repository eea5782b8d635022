from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from record_tables import CLEANED_RECORDS, cleaned_topic, new_id
from topic_writer import TopicWriter

import siltlog.spark
from siltlog.infra import names
from siltlog.infra.errors import ConfigError, UnknownTopic
from siltlog.infra.store.store import ObjectStore
from siltlog.pipelines.topics import spark_uri

pytestmark = pytest.mark.spark

KAFKA_SOURCE = {
    "key": "binary",
    "value": "binary",
    "topic": "string",
    "partition": "int",
    "offset": "bigint",
    "timestamp": "timestamp",
    "timestampType": "int",
    "headers": "array<struct<key:string,value:binary>>",
}


def test_a_topic_has_the_columns_of_the_kafka_source(spark: Any, store: ObjectStore) -> None:
    topic = TopicWriter(store, "a-b.c", partitions=1, timestamp_type="append")
    topic.append(3)
    frame = siltlog.spark.read(spark, "a-b.c", root=store.root_uri)
    types = dict(frame.dtypes)
    assert KAFKA_SOURCE.items() <= types.items()
    assert list(types)[-2:] == ["topic", "timestampType"]
    rows = frame.orderBy("offset").collect()
    assert [(row.offset, row.value, row.topic, row.timestampType) for row in rows] == [
        (offset, b"value-%d" % offset, "a-b.c", 1) for offset in range(3)
    ]


@pytest.mark.slow
def test_an_entry_below_where_the_log_was_cleaned_is_no_part_of_it(
    spark: Any, store: ObjectStore, tmp_path: Path
) -> None:
    cleaned_topic(store)
    uri = spark_uri(store, names.topic_path("t"))
    assert spark.read.format("delta").load(uri).count() == CLEANED_RECORDS
    seen = spark.readStream.format("delta").load(uri).writeStream.format("memory").queryName("cleaned")
    seen.option("checkpointLocation", str(tmp_path / "at")).trigger(availableNow=True).start().awaitTermination()
    assert spark.table("cleaned").count() == CLEANED_RECORDS


def test_a_deleted_topic_is_none(spark: Any, store: ObjectStore) -> None:
    topic = TopicWriter(store, "t")
    topic.table.delete(new_id())
    for name in ("t", "never"):
        with pytest.raises(UnknownTopic):
            siltlog.spark.read(spark, name, root=store.root_uri)


def test_a_session_without_delta_is_told_from_a_topic_that_is_not_there(store: ObjectStore) -> None:
    TopicWriter(store, "t")
    said = "[TABLE_OR_VIEW_NOT_FOUND] The table or view `delta`.`file:///…` cannot be found."
    session = Mock(**{"sql.side_effect": RuntimeError(said)})
    with pytest.raises(ConfigError, match="has no Delta"):
        siltlog.spark.read(session, "t", root=store.root_uri)
    said = "[DATA_SOURCE_NOT_FOUND] Failed to find the data source: delta."
    session = Mock(**{"readStream.format.side_effect": RuntimeError(said)})
    with pytest.raises(ConfigError, match="has no Delta"):
        siltlog.spark.readStream(session, "t", root=store.root_uri)
