"""Reads the tables of topics by Spark's own Delta source, with the columns of its Kafka source."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from siltlog.infra import names
from siltlog.infra.clock import SystemClock
from siltlog.infra.errors import ConfigError, problem
from siltlog.infra.settings import loading
from siltlog.infra.store.store import ObjectStore, open_store
from siltlog.infra.table.snapshot import TableSnapshot
from siltlog.infra.table.table import TopicTable
from siltlog.pipelines.topics import select_of, spark_uri
from siltlog.spark.columns import TIMESTAMP_TYPES
from siltlog.table_location import table_uri

_NO_DELTA = ("[TABLE_OR_VIEW_NOT_FOUND]", "[DATA_SOURCE_NOT_FOUND]")

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def read(spark: "SparkSession", topic: str, *, url: str | None = None, root: str | None = None) -> "DataFrame":
    """Reads the table of `topic` as it is now, without rows below the log start, named as by Spark's Kafka source.

    The stored columns, then Kafka's `topic string` and `timestampType int`. Rows are not ordered. The server at `url`
    is asked where the table is, or nobody with `root`. The session has Delta, and reaches the table by itself;
    `SILT_S3_ENDPOINT` and `SILT_S3_REGION` hold here as for the server. Raises UnknownTopic.
    """
    store, snapshot = _opened(topic, url, root)
    with _delta():
        return spark.sql(
            f"SELECT *, '{topic}' AS topic, {_timestamp_type(snapshot)} AS timestampType "  # noqa: S608
            f"FROM ({select_of(store, topic, snapshot)})"
        )


def readStream(spark: "SparkSession", topic: str, *, url: str | None = None, root: str | None = None) -> "DataFrame":
    """Reads what the table of `topic` has and will have, as a stream with the columns of `read`; arguments as there.

    Compaction and retention do not disturb it. It begins with all that is there, in no order. Where a topic of the same
    name follows a deleted one, Delta knows its table for another and ends the query: begin anew with another
    checkpoint.
    """
    store, snapshot = _opened(topic, url, root)
    with _delta():
        stream = (
            spark.readStream.format("delta")
            .option("skipChangeCommits", "true")
            .load(spark_uri(store, names.topic_path(topic)))
        )
    return stream.selectExpr("*", f"'{topic}' AS topic", f"{_timestamp_type(snapshot)} AS timestampType")


@contextmanager
def _delta() -> Iterator[None]:
    """We opened the table: where Spark finds none, it is Delta that it has not. Raises ConfigError."""
    try:
        yield
    except Exception as error:
        if any(sign in str(error) for sign in _NO_DELTA):
            raise ConfigError(
                "this Spark session has no Delta: begin it with the package and the two settings that docs/spark.md "
                'says, or read with format("siltlog"), which needs neither'
            ) from error
        raise


def _opened(topic: str, url: str | None, root: str | None) -> tuple[ObjectStore, TableSnapshot]:
    uri = table_uri(topic, url=url, root=root)
    chosen = loading.load().settings
    store = open_store(
        uri.removesuffix(f"/{names.topic_path(topic)}"),
        **chosen.s3_options(),
    )
    snapshot = TopicTable.open(store, topic, SystemClock()).snapshot
    if snapshot.deleted:
        raise problem("unknown_topic", f"topic {topic!r} was deleted", topic=topic)
    return store, snapshot


def _timestamp_type(snapshot: TableSnapshot) -> int:
    return TIMESTAMP_TYPES[str(snapshot.config["timestamp.type"])]
