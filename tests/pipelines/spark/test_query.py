from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from record_tables import START_US
from topic_writer import TopicWriter

from siltlog.infra.errors import Refused, UnknownTopic
from siltlog.infra.store.store import ObjectStore
from siltlog.pipelines.spark.query import run_query
from siltlog.pipelines.topics import select_of

pytestmark = pytest.mark.spark


def rows(spark: Any, store: ObjectStore, sql: str) -> list[tuple[Any, ...]]:
    return list(run_query(spark, store, sql).rows)


@pytest.fixture
def topics(store: ObjectStore) -> ObjectStore:
    TopicWriter(store, "flights").append(3, 2)
    TopicWriter(store, "lost-luggage.dlq").append(1)
    TopicWriter(store, "a.b").append(2)
    return store


def test_topics_are_tables_under_their_names(spark: Any, topics: ObjectStore) -> None:
    assert rows(spark, topics, "select count(*) from flights") == [(5,)]
    assert rows(spark, topics, "select count(*) from FLIGHTS f join silt.flights g using (partition, offset)") == [(5,)]
    assert rows(spark, topics, "select count(*) from `lost-luggage.dlq`") == [(1,)]
    with pytest.raises(Refused, match="write the topic as `lost-luggage"):
        run_query(spark, topics, "select count(*) from silt.`lost-luggage.dlq`")
    assert rows(spark, topics, "with x as (select offset from a.b) select max(offset) from x") == [(1,)]


@pytest.mark.slow
def test_each_query_sees_what_was_committed_before_it(spark: Any, store: ObjectStore) -> None:
    topic = TopicWriter(store, "flights")
    for count in (3, 6):
        topic.append(3)
        assert rows(spark, store, "select count(*), count(*) from flights, silt.flights g") == [(count**2, count**2)]


def test_rows_below_the_log_start_are_hidden(spark: Any, store: ObjectStore) -> None:
    topic = TopicWriter(store, "flights", partitions=3)
    topic.append(5, 5, 5)
    snapshot = replace(topic.table.snapshot, starts={0: 0, 1: 3, 2: 5})
    sql = (
        f"select partition, min(offset), count(*) from ({select_of(store, 'flights', snapshot)}) group by 1 order by 1"
    )
    assert [tuple(row) for row in spark.sql(sql).collect()] == [(0, 0, 5), (1, 3, 2)]


def test_a_result_has_columns_and_rows_as_stored(spark: Any, topics: ObjectStore) -> None:
    result = run_query(
        spark,
        topics,
        "select timestamp, value, headers, 1 as n, 2 as n from flights where partition = 0 order by offset",
    )
    assert result.columns == ["timestamp", "value", "headers", "n", "n"]
    first, second, _ = result.rows
    assert first[0] == datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=START_US)
    assert first[1:] == (b"value-0", [{"key": "h", "value": b"0"}, {"key": "n", "value": None}], 1, 2)
    assert second[1] == b"value-1"


def test_nothing_is_printed(spark: Any, topics: ObjectStore, capfd: pytest.CaptureFixture[str]) -> None:
    rows(spark, topics, "select count(*) from flights")
    assert capfd.readouterr() == ("", "")


def test_what_is_not_a_topic_is_told_with_those_there_are(spark: Any, topics: ObjectStore) -> None:
    told = r"no topic 'fligths'; did you mean 'flights'\? .* a\.b, flights, lost.*backq"
    with pytest.raises(UnknownTopic, match=told):
        run_query(spark, topics, "select * from fligths")


@pytest.mark.parametrize(
    "sql",
    [
        "selec 1",
        "select nothing from flights",
        "select 1; select 2",
        "delete from flights",
        "insert into flights select * from flights",
        "with x as (select 1) insert into flights select * from x",
        "from flights insert into a select 1 insert into b select 2",
        "drop table flights",
        "create table t as select 1",
        "optimize flights",
    ],
)
def test_only_queries_are_run(spark: Any, topics: ObjectStore, sql: str) -> None:
    with pytest.raises(Refused) as raised:
        run_query(spark, topics, sql)
    assert "\n" not in str(raised.value)
    assert "SQLSTATE" not in str(raised.value)
