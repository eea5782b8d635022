"""The demo's table through Spark: is everything there, compaction, and an answer from the data."""

from contextlib import ExitStack
from typing import TYPE_CHECKING

from siltlog.demo.data import carrier_names
from siltlog.demo.result import Carrier, Table
from siltlog.demo.stage import Stage
from siltlog.infra.clock import Clock
from siltlog.infra.errors import SiltlogError
from siltlog.infra.store.store import open_store
from siltlog.infra.table.table import TopicTable
from siltlog.pipelines.compaction.compact import compact
from siltlog.pipelines.spark.session import spark_session
from siltlog.pipelines.topics import select_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CARRIERS_SHOWN = 5
COUNT = """
    select count(*) as rows,
           count(distinct partition, offset) as distinct_places,
           coalesce(sum(cast(xxhash64(value) as decimal(38, 0))), 0) as hash_sum
    from {view}
"""
WORST_CARRIERS = """
    select flight.carrier, count(*) as flights, avg(flight.dep_delay) as departure, avg(flight.arr_delay) as arrival
    from (select from_json(string(value), 'carrier string, dep_delay double, arr_delay double') as flight from {view})
    group by 1 order by arrival desc nulls last limit {limit}
"""


def examine(root_uri: str, topic: str, stage: Stage, clock: Clock) -> Table:
    """Counts the table, compacts it, counts it again, and asks which carriers were late.

    Raises ConfigError, a sentence that says what to install, when Spark, Java or the jars are missing.
    """
    store = open_store(root_uri)
    with ExitStack() as stack:
        with stage.waiting("starting Spark"):
            spark = stack.enter_context(spark_session(store))
        table = TopicTable.open(store, topic, clock)
        with stage.waiting("counting, with Spark SQL"):
            rows, distinct, hash_sum = _count(spark, select_of(store, topic, table.snapshot))
        stage.say(f"Spark counts {rows:,} rows in {len(table.snapshot.files):,} files")
        with stage.waiting("compacting"):
            report = compact(spark, store, table, clock)
            if report.error is not None:
                raise report.error
        stage.say(f"compacted into {report.files_after:,} files in {report.seconds:.1f} s")
        with stage.waiting("counting again, and asking who was late"):
            compacted = select_of(store, topic, table.refresh())
            rows_after, _, hash_sum_after = _count(spark, compacted)
            if hash_sum_after != hash_sum:
                raise SiltlogError("compaction changed the table's content")
            carriers = _worst_carriers(spark, compacted)
    return Table(
        rows=rows,
        distinct=distinct,
        hash_sum=hash_sum,
        files_before=report.files_before,
        files_after=report.files_after,
        bytes_before=report.bytes_before,
        bytes_after=report.bytes_after,
        compaction_s=report.seconds,
        rows_after=rows_after,
        carriers=carriers,
    )


def _count(spark: "SparkSession", select: str) -> tuple[int, int, int]:
    """Rows, distinct (partition, offset), sum of the hashes of the values."""
    row = spark.sql(COUNT.format(view=f"({select})")).first()
    return row["rows"], row["distinct_places"], int(row["hash_sum"])


def _worst_carriers(spark: "SparkSession", select: str) -> tuple[Carrier, ...]:
    names = carrier_names()
    rows = spark.sql(WORST_CARRIERS.format(view=f"({select})", limit=CARRIERS_SHOWN)).collect()
    return tuple(
        Carrier(row["carrier"], names.get(row["carrier"], ""), row["flights"], row["departure"], row["arrival"])
        for row in rows
    )
