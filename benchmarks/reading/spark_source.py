"""Spark reads what the log has beyond its table: how old records are when a stream's micro-batch has them."""

import time
from collections.abc import Iterator
from statistics import median
from typing import TYPE_CHECKING, Any, cast

import numpy as np

import siltlog.spark
from benchmarks.bench import TOPIC, Bench, Server
from benchmarks.figures.figure import Figure, Kind
from benchmarks.loads.records import table as random_records
from siltlog import Producer
from siltlog.infra.store.store import open_store
from siltlog.pipelines.spark.session import spark_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

P50_SECONDS_MAX = 2.0
PER_SECOND = 50
SECONDS_MIN = 10.0
READ_RECORDS = 2_000_000
QUICK_READ_RECORDS = 200_000
RECORD_BYTES = 100
READS = 3
COLUMNS = ("key", "value", "partition", "offset", "timestamp", "size(headers)")
DELTA = 'plain format("delta"), which has no head'
TRIGGER_SECONDS_MAX = 120.0


def spark_source(bench: Bench) -> Iterator[Figure]:
    count = QUICK_READ_RECORDS if bench.quick else READ_RECORDS
    # As users' sessions are: with the optimising compiler.
    with bench.server() as server, spark_session(open_store(server.process.root), short_job=False) as spark:
        siltlog.spark.register(spark)
        yield from _ages(bench, server, spark)
        with Producer(server.url, acks="table") as producer:
            producer.send_batch(TOPIC, random_records(count, RECORD_BYTES, keyed=False))
        yield from _batches(server, spark)


def _batches(server: Server, spark: "SparkSession") -> Iterator[Figure]:
    """The same records in turn, after a first time each; all columns, as a source in Python is not told of fewer."""
    uri = siltlog.table_uri(TOPIC, server.url)
    readers = {DELTA: lambda: spark.read.format("delta").load(uri)} | {
        f"a batch, {how}": lambda read=read: (
            spark.read.format("siltlog").option("url", server.url).option("read", read).load(TOPIC)
        )
        for read, how in (("auto", "from the table's files"), ("server", "through the server"))
    }
    rates: dict[str, list[float]] = {label: [] for label in readers}
    for _ in range(1 + READS):
        for label, reader in readers.items():
            started = time.perf_counter()
            [found] = reader().selectExpr("count(*)", *(f"max({column})" for column in COLUMNS)).collect()
            rates[label].append(found[0] / (time.perf_counter() - started))
    for label, [_, *warm] in rates.items():
        limit, kind = ("", "limit") if label == DELTA else (DELTA, "siltlog")
        yield Figure(label, median(warm), "records/s", kind=cast(Kind, kind), limit=limit)


def _ages(bench: Bench, server: Server, spark: "SparkSession") -> Iterator[Figure]:
    """Records are stamped when they are sent, and looked at when `foreachBatch` has collected them."""
    ages: list[float] = []

    def look(frame: Any, _batch: int) -> None:
        rows = frame.select("value").collect()
        had_ns = time.time_ns()
        ages.extend((had_ns - int(row.value)) / 1e9 for row in rows)

    query = (
        spark.readStream.format("siltlog")
        .option("url", server.url)
        .load(TOPIC)
        .writeStream.foreachBatch(look)
        .option("checkpointLocation", (bench.scratch / "checkpoint").as_uri())
        .start()
    )
    try:
        with Producer(server.url) as producer:
            # The first micro-batches are the JVM's compiler's.
            sent = _send(producer, 0, 1.0)
            _wait(query, ages, sent)
            sent = _send(producer, sent, 2.0)
            _wait(query, ages, sent)
            warm = len(ages)
            sent = _send(producer, sent, max(bench.seconds, SECONDS_MIN))
            _wait(query, ages, sent)
    finally:
        query.stop()
    for percent, target in ((50, P50_SECONDS_MAX), (99, None)):
        value = float(np.percentile(ages[warm:], percent))
        yield Figure(f"age of a record in a stream: p{percent}", value, "s", at_most=target)


def _send(producer: Producer, sent: int, seconds: float) -> int:
    count = int(seconds * PER_SECOND)
    for _ in range(count):
        producer.send(TOPIC, str(time.time_ns()))
        time.sleep(1 / PER_SECOND)
    return sent + count


def _wait(query: Any, ages: list[float], sent: int) -> None:
    until = time.monotonic() + TRIGGER_SECONDS_MAX
    while len(ages) < sent:
        if query.exception() is not None or time.monotonic() > until:
            raise RuntimeError(f"{len(ages)} of {sent} records came: {query.exception()}")
        time.sleep(0.05)
