"""Spark SQL over the topics: each is a view under its own name, made when a query names it.

A name that is no plain identifier goes in backquotes; any other is also found as `silt.<name>`. A view is pinned to
the version that the table had when it was made, hides the rows below the log start, and is gone after the query.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from siltlog.infra.clock import Clock, SystemClock
from siltlog.infra.errors import problem
from siltlog.infra.settings.settings import ServerSettings
from siltlog.infra.sql.identifiers import DATABASE, PLAIN
from siltlog.infra.store.s3_denied import missing_permission
from siltlog.infra.store.store import ObjectStore
from siltlog.infra.table.table import TopicTable
from siltlog.pipelines.spark.errors import is_denied, reason_of, spark_errors
from siltlog.pipelines.spark.session import spark_session
from siltlog.pipelines.sql.result import QueryResult, live_topics, unknown_table
from siltlog.pipelines.topics import select_of, store_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_UNKNOWN_TABLE = "TABLE_OR_VIEW_NOT_FOUND"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_READING_COMMANDS = ("Describe", "Explain")


@contextmanager
def query(settings: ServerSettings, sql: str, *, clock: Clock | None = None) -> Iterator[QueryResult]:
    """Runs `sql` in a session that ends with the block (or in the active one).

    Raises UnknownTopic, Refused for SQL that is not valid or would change something, ConfigError when Spark, Java or
    the jars are missing.
    """
    store = store_of(settings)
    with spark_session(store) as spark:
        yield run_query(spark, store, sql, clock=clock)


def run_query(spark: "SparkSession", store: ObjectStore, sql: str, *, clock: Clock | None = None) -> QueryResult:
    clock = clock or SystemClock()
    with translated():
        _check_reads_only(spark, sql)
    made: list[str] = []
    try:
        while True:
            try:
                with translated(passing=_UNKNOWN_TABLE):
                    return _result(spark.sql(sql))
            except _NoSuchView as missing:
                if missing.name in made:
                    raise problem("internal", f"Spark does not see the view {missing.name} that was made") from missing
                _make_view(spark, store, missing.name, clock)
                made.append(missing.name)
    finally:
        # The result has what they stand for; the next query is to see what was committed since.
        for name in made:
            spark.sql(f"DROP VIEW IF EXISTS {name}")


class _NoSuchView(Exception):
    def __init__(self, name: str) -> None:
        """`name` as Spark quotes it: `` `silt`.`flights` ``."""
        super().__init__(name)
        self.name = name


@contextmanager
def translated(passing: str = "") -> Iterator[None]:
    """Errors of Spark SQL become Refused with Spark's own sentence."""
    from pyspark.errors import AnalysisException, ParseException, PySparkException

    try:
        yield
    except spark_errors() as error:
        if isinstance(error, PySparkException) and error.getCondition() == passing:
            raise _NoSuchView((error.getMessageParameters() or {})["relationName"]) from error
        if isinstance(error, AnalysisException | ParseException):
            raise problem("invalid_request", reason_of(error)) from error
        if is_denied(error):
            raise missing_permission(reason_of(error), "the tables of the query") from error
        raise problem("topic_unavailable", f"the query failed: {reason_of(error)}") from error


def _check_reads_only(spark: "SparkSession", sql: str) -> None:
    """Tables are changed through Siltlog alone: Spark's own writers are not safe beside it."""
    jvm: Any = spark._jvm
    parsed = spark._jsparkSession.sessionState().sqlParser().parsePlan(sql)
    logical = "org.apache.spark.sql.catalyst.plans.logical"
    changing = [jvm.java.lang.Class.forName(f"{logical}.{name}") for name in ("Command", "ParsedStatement")]
    pending = [parsed]
    while pending:
        node = pending.pop()
        name = node.getClass().getSimpleName()
        if not name.startswith(_READING_COMMANDS) and any(kind.isInstance(node) for kind in changing):
            raise problem("invalid_request", f"queries only read: {name} is not a query; write SELECT ...")
        children = node.children()
        pending += [children.apply(index) for index in range(children.size())]


def _make_view(spark: "SparkSession", store: ObjectStore, quoted: str, clock: Clock) -> None:
    parts = [part.replace("``", "`") for part in quoted.strip("`").split("`.`")]
    known = live_topics(store)
    whole = ".".join(parts)
    if len(parts) == 2 and parts[0].lower() == DATABASE and parts[1].lower() in known:
        topic = known[parts[1].lower()]
    elif whole.lower() in known and len(parts) <= 2:
        topic = known[whole.lower()]
    else:
        raise unknown_table(store, whole, list(known.values()))
    snapshot = TopicTable.open(store, topic, clock).snapshot
    if snapshot.deleted:
        raise unknown_table(store, whole, [name for name in known.values() if name != topic])
    kind = "TEMPORARY VIEW"
    if len(parts) == 2:
        if not all(PLAIN.fullmatch(part) for part in parts):
            raise problem("invalid_request", f"write the topic as `{topic}`: in backquotes, nothing before it")
        kind = "VIEW"
        spark.sql(f"CREATE DATABASE IF NOT EXISTS {parts[0]}")
    with translated():
        spark.sql(f"CREATE OR REPLACE {kind} {quoted} AS {select_of(store, topic, snapshot)}")


def _result(frame: "DataFrame") -> QueryResult:
    from pyspark.sql import functions
    from pyspark.sql.types import TimestampType

    columns = list(frame.columns)
    # By position: names may repeat. Times as microseconds: pyspark would give them in the local time zone.
    by_position = frame.toDF(*(f"c{index}" for index in range(len(columns))))
    times = {index for index, field in enumerate(frame.schema.fields) if isinstance(field.dataType, TimestampType)}
    fetched = by_position.select(
        *(
            functions.unix_micros(f"c{index}").alias(f"c{index}") if index in times else functions.col(f"c{index}")
            for index in range(len(columns))
        )
    )
    return QueryResult(columns, _rows(fetched, times))


def _rows(frame: "DataFrame", times: set[int]) -> Iterator[tuple[Any, ...]]:
    with translated():
        for row in frame.toLocalIterator():
            values = list(row.asDict(recursive=True).values())
            for index in times:
                if values[index] is not None:
                    values[index] = _EPOCH + timedelta(microseconds=values[index])
            yield tuple(values)
