"""Topics in a Spark session of one's own: `siltlog.spark.read(spark, "flights")`."""

from typing import TYPE_CHECKING

from siltlog.infra import names, settings
from siltlog.infra.client.table_location import table_uri
from siltlog.infra.clock import SystemClock
from siltlog.infra.errors import problem
from siltlog.infra.store import open_store
from siltlog.infra.table import TopicTable
from siltlog.pipelines.topics import select_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TIMESTAMP_TYPES = {"create": 0, "append": 1}
"""Kafka's numbers: CreateTime and LogAppendTime."""


def read(spark: "SparkSession", topic: str, *, url: str | None = None, root: str | None = None) -> "DataFrame":
    """What the table of `topic` holds now, without the rows below the log start, as Spark's Kafka source names it.

    The stored columns, then Kafka's `topic string` and `timestampType int`. Rows are not ordered. The server at `url`
    is asked where the table is, or nobody with `root`. The session has Delta, and reaches the table by itself;
    `SILT_S3_ENDPOINT` and `SILT_S3_REGION` hold here as for the server. Raises UnknownTopic.
    """
    uri = table_uri(topic, url=url, root=root)
    chosen = settings.load().settings
    store = open_store(
        uri.removesuffix(f"/{names.topic_path(topic)}"),
        s3_endpoint=chosen.s3_endpoint,
        s3_region=chosen.s3_region,
    )
    snapshot = TopicTable.open(store, topic, SystemClock()).snapshot
    if snapshot.deleted:
        raise problem("unknown_topic", f"topic {topic!r} was deleted", topic=topic)
    timestamp_type = TIMESTAMP_TYPES[str(snapshot.config["timestamp.type"])]
    return spark.sql(
        f"SELECT *, '{topic}' AS topic, {timestamp_type} AS timestampType "  # noqa: S608
        f"FROM ({select_of(store, topic, snapshot)})"
    )
