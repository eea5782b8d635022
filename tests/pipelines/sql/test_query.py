"""DuckDB and Spark answer the same of the same tables, on a disk and in a bucket; what DuckDB may not do is refused."""

import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from chaos import CHAOS
from record_tables import START_US, new_id, records
from s3_server import S3Server
from topic_writer import TopicWriter

from siltlog.infra.errors import Refused, Unavailable, UnknownTopic
from siltlog.infra.store.store import ObjectStore, open_store
from siltlog.infra.table.log_start import move_starts, start_move
from siltlog.pipelines.spark import query as by_spark
from siltlog.pipelines.spark.session import spark_session
from siltlog.pipelines.sql import query as by_duckdb
from siltlog.pipelines.sql.query import connected, records_dataset, run_query

SAME = [
    "select * from flights order by partition, offset",
    "select timestamp, value, 1 as n, 2 as n from flights where partition = 2 order by offset limit 2 offset 1",
    "select count(*) as n, sum(offset) as s, min(timestamp) as first, count(headers) as h from flights",
    "select string(key) as k, string(value) as v from flights where offset >= 1 and partition = 1 order by offset",
    "select count(*) as n from FLIGHTS f join silt.flights g using (partition, offset)",
    "with x as (select offset from a.b) select max(x.offset) as m, 'from `x`, offset' as t from x",
    "select count(*) as n, max(offset) as m from `lost-luggage.dlq` -- offset",
    "select count(*) as n, max(value) as v from empty",
    "select get_json_object(string(value), '$.n') as n from json order by offset",
    "select key, string(offset) as t, string(null) as u from plain order by offset",
    "select max(timestamp) - min(timestamp) as period from flights",
]


def filled(store: ObjectStore) -> ObjectStore:
    flights = TopicWriter(store, "flights", partitions=3)
    flights.append(5, 4, 3)
    flights.append(2, 0, 1)
    table = flights.table.refresh()
    moves = {partition: start_move(table, partition, start) for partition, start in ((0, 6), (1, 2))}
    move_starts(flights.table, table.version, moves, new_id(), now_ms=0)
    TopicWriter(store, "lost-luggage.dlq").append(1)
    TopicWriter(store, "a.b").append(2)
    TopicWriter(store, "empty")
    TopicWriter(store, "json", partitions=1).append_tables({0: records(0, 3, value=b'{"n": %d}')})
    TopicWriter(store, "plain", partitions=1).append_tables({0: records(0, 2)})
    return store


@pytest.fixture
def topics(store: ObjectStore) -> ObjectStore:
    return filled(store)


def asked(store: ObjectStore, sql: str) -> tuple[list[str], list[tuple[Any, ...]]]:
    with connected() as connection:
        result = run_query(connection, store, sql)
        return result.columns, list(result.rows)


def rows(store: ObjectStore, sql: str) -> list[tuple[Any, ...]]:
    return asked(store, sql)[1]


@pytest.fixture(params=["disk", pytest.param("s3", marks=pytest.mark.s3)])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> ObjectStore:
    if request.param == "disk":
        return open_store((tmp_path / "the lake [1]").as_uri())
    s3: S3Server = request.getfixturevalue("s3_server")
    return open_store(s3.root_uri("query"), s3_endpoint=s3.endpoint, s3_region=s3.region)


@pytest.mark.slow
@pytest.mark.spark
def test_both_engines_answer_the_same(spark: Any, place: ObjectStore) -> None:
    store = filled(place)
    with spark_session(store):
        # A bucket differs in how its files are read.
        for sql in SAME if place.root_uri.startswith("file:") or CHAOS > 1 else SAME[::4]:
            expected = by_spark.run_query(spark, store, sql)
            assert asked(store, sql) == (expected.columns, list(expected.rows)), sql


def test_only_what_is_above_the_log_start_is_there(topics: ObjectStore) -> None:
    assert rows(topics, "select partition, offset from flights order by all") == [
        (0, 6), (1, 2), (1, 3), (2, 0), (2, 1), (2, 2), (2, 3),
    ]  # fmt: skip


def test_a_query_sees_one_version(topics: ObjectStore) -> None:
    with connected() as connection:
        result = run_query(connection, topics, "select count(*) from json a, silt.json b")
        TopicWriter(topics, "later").append(1)
        assert list(result.rows) == [(9,)]


def test_values_are_what_they_are(topics: ObjectStore) -> None:
    columns, [row] = asked(
        topics,
        "select timestamp, value, headers, sum(offset) as s, 1.5 as f, 12345678901234567890 as large from flights "
        "where partition = 2 and offset = 1 group by all",
    )
    assert columns == ["timestamp", "value", "headers", "s", "f", "large"]
    assert row[0] == datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=START_US + 1)
    assert row[1:4] == (b"value-1", [{"key": "h", "value": b"1"}, {"key": "n", "value": None}], 1)
    assert (float(row[4]), row[5], type(row[3])) == (1.5, 12345678901234567890, int)
    high = f"select timetz '10:00:00+02' a, {2**127}::uhugeint b, time '24:00:00' c, {2**127 - 1}::hugeint \"B\""
    assert asked(topics, f"{high} from plain limit 1") == (
        ["a", "b", "c", "B"],
        [("10:00:00+02", 2**127, "24:00:00", 2**127 - 1)],
    )


def test_a_value_that_is_no_text_is_shown_all_the_same(store: ObjectStore) -> None:
    TopicWriter(store, "bytes", partitions=1).append_tables({0: records(0, 1, value=b"a\xff")})
    assert rows(store, "select string(value) from bytes") == [("a\\xFF",)]


def test_what_is_not_a_topic_is_told_with_those_there_are(topics: ObjectStore) -> None:
    told = r"no topic 'fligths'; did you mean 'flights'\? there are: a\.b, .*; a name with '-' or '\.' goes in backq"
    for name in ("fligths", "silt.fligths"):
        with pytest.raises(UnknownTopic, match=told):
            rows(topics, f"select * from {name}")
    with pytest.raises(UnknownTopic, match=r"no topic 'other\.flights'; did you mean 'flights'"):
        rows(topics, "select * from other.flights")
    with pytest.raises(
        Refused, match=r"\"nothing\" not found.*the columns of a topic are partition, offset, timestamp, key"
    ):
        rows(topics, "select nothing from flights")
    with pytest.raises(Refused, match="--engine spark"):
        rows(topics, "select pmod(offset, 2) from flights")


@pytest.mark.parametrize(
    ("sql", "told"),
    [
        ("selec 1", "syntax error.*DuckDB's SQL"),
        ("", "one query at a time, not 0"),
        ("select 1; select 2", "one query at a time, not 2"),
        ("delete from flights", "queries only read: DELETE"),
        ("insert into flights select * from flights", "queries only read: INSERT"),
        ("drop view flights", "queries only read: DROP"),
        ("create table t as select 1", "queries only read: CREATE"),
        ("select 1; create table t as select 1", "queries only read: CREATE"),
        ("copy flights to '{folder}/out.csv'", "queries only read: COPY"),
        ("copy (select 1) to '{folder}/out.parquet'", "queries only read: COPY"),
        ("export database '{folder}'", "queries only read: EXPORT"),
        ("attach '{folder}/a.db'", "queries only read: ATTACH"),
        ("install httpfs", "queries only read: LOAD"),
        ("load httpfs", "queries only read: LOAD"),
        ("set enable_external_access = true", "queries only read: SET"),
        ("reset lock_configuration", "queries only read"),
        ("pragma database_list", "queries only read: PRAGMA"),
        ("select * from read_csv('{folder}/secret')", "queries only read topics"),
        ("select * from read_text('{folder}/secret')", "queries only read topics"),
        ("select * from read_parquet('{folder}/*')", "queries only read topics"),
        ("select * from glob('{folder}/*')", "queries only read topics"),
        ("select * from '{folder}/secret'", "no topic"),
        ("select * from '{folder}/secret.csv'", "queries only read topics|no topic"),
        ("explain analyze copy flights to '{folder}/out.csv'", "queries only read"),
    ],
)
def test_only_queries_of_topics_are_run(topics: ObjectStore, tmp_path: Path, sql: str, told: str) -> None:
    (tmp_path / "secret").write_text("secret")
    (tmp_path / "secret.csv").write_text("secret")
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(Refused, match=told) as raised:
        rows(topics, sql.format(folder=tmp_path))
    assert "\n" not in str(raised.value)
    assert sorted(tmp_path.rglob("*")) == before


def test_a_variable_of_the_program_is_no_table(topics: ObjectStore) -> None:
    with pytest.raises(UnknownTopic):
        rows(topics, "select * from connection")


def test_a_file_that_is_gone_is_told_without_a_traceback(topics: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(*arguments: Any) -> Any:
        made = records_dataset(*arguments)
        for stored in topics.list("topics/json"):
            if stored.path.endswith(".parquet"):
                topics.delete(stored.path)
        return made

    monkeypatch.setattr(by_duckdb, "records_dataset", gone)
    with pytest.raises(Unavailable, match=r"the query failed: .*json.*\.parquet"):
        rows(topics, "select string(value) from json")


def test_a_query_leaves_nothing_behind(topics: ObjectStore, tmp_path: Path, temporary: Path) -> None:
    """It runs in a process of its own, in an empty folder: it ends well, and neither folder has more than before."""
    work = tmp_path / "work"
    work.mkdir()
    program = (
        "import sys; from siltlog.infra.settings.settings import ServerSettings\n"
        "from siltlog.pipelines.sql.query import query\n"
        "with query(ServerSettings(root=sys.argv[1]), 'select count(*) from flights') as result:\n"
        "    print(list(result.rows))\n"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program, topics.root_uri], cwd=work, capture_output=True, text=True, check=False
    )
    assert (ran.returncode, ran.stdout.strip(), ran.stderr) == (0, "[(7,)]", "")
    assert [*work.iterdir(), *temporary.iterdir()] == []
