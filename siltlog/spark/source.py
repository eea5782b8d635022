"""`format("siltlog")`: topics as Spark reads and writes them, the newest records included.

Spark makes these objects anew wherever it needs one, on the driver and on executors; nothing lives in them but options
and, in a stream's reader on the driver, what the server said last.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from siltlog.infra.bounds import Bounds
from siltlog.infra.errors import problem
from siltlog.spark.columns import READ_DDL
from siltlog.spark.log_reader import LogReader
from siltlog.spark.options import ReadOptions, read_options, write_options
from siltlog.spark.positions import (
    Positions,
    Span,
    TopicBounds,
    TopicPosition,
    advanced,
    from_json,
    limited,
    loss,
    present,
    spans_between,
    split,
    to_json,
)
from siltlog.spark.sink import BatchSink, StreamSink

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

NAME = "siltlog"
IDLE_WAIT_MS = 200
"""How long a trigger without news waits for some. A query that is stopped waits as long."""


def register(spark: "SparkSession") -> None:
    """Makes `format("siltlog")` known to a session."""
    spark.dataSource.register(SiltlogSource)


class SiltlogSource(DataSource):  # type: ignore[misc]
    """Its options are in docs/spark.md."""

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> str:
        return READ_DDL

    def reader(self, schema: "StructType") -> "BatchReader":
        return BatchReader(read_options(self.options, streaming=False))

    def streamReader(self, schema: "StructType") -> "StreamReader":
        return StreamReader(read_options(self.options, streaming=True))

    def writer(self, schema: "StructType", overwrite: bool) -> BatchSink:
        if overwrite:
            raise problem("invalid_request", 'a topic is only ever appended to: use mode("append")')
        return BatchSink(write_options(self.options, streaming=False), schema.names)

    def streamWriter(self, schema: "StructType", overwrite: bool) -> StreamSink:
        if overwrite:
            raise problem("invalid_request", 'a topic is only ever appended to: use outputMode("append")')
        return StreamSink(write_options(self.options, streaming=True), schema.names)


@dataclass(frozen=True)
class SpanPartition(InputPartition):  # type: ignore[misc]
    """What one task reads."""

    span: Span
    bounds: Bounds
    timestamp_type: int


class BatchReader(DataSourceReader):  # type: ignore[misc]
    def __init__(self, options: ReadOptions) -> None:
        self._options = options

    def partitions(self) -> Sequence[InputPartition]:
        options = self._options
        with LogReader(options.url) as log:
            bounds = {topic: log.bounds(topic) for topic in options.topics}
            start = {topic: log.position(topic, options.starting, bounds[topic], options) for topic in options.topics}
            end = {topic: log.position(topic, options.ending, bounds[topic], options) for topic in options.topics}
        return tasks_of(start, end, bounds, options)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _records(partition, self._options)


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):  # type: ignore[misc]
    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._log: LogReader | None = None
        self._target: dict[str, TopicPosition] | None = None
        """Where a query that reads what is available now ends."""
        self._ends: dict[str, TopicPosition] | None = None

    # --- on the driver --------------------------------------------------------------------------------------
    def initialOffset(self) -> dict[str, Any]:
        bounds = self._bounds()
        return to_json(
            {
                topic: self._reader().position(topic, self._options.starting, known, self._options)
                for topic, known in bounds.items()
            }
        )

    def getDefaultReadLimit(self) -> ReadLimit:
        limit = self._options.max_offsets_per_trigger
        return ReadAllAvailable() if limit is None else ReadMaxRows(limit)

    def prepareForTriggerAvailableNow(self) -> None:
        self._target = self._latest()

    def latestOffset(self, start: Mapping[str, Any], limit: ReadLimit) -> dict[str, Any]:
        before = from_json(start)
        ends = self._target
        if ends is None:
            ends = self._latest()
            if not any(spans_between(before, ends)):
                self._reader().wait(ends, self._options, IDLE_WAIT_MS)
                ends = self._latest()
        self._ends = ends
        if self._options.fail_on_data_loss:
            _check_same(before, ends)
        reached = advanced(before, ends)
        return to_json(limited(before, reached, limit.max_rows) if isinstance(limit, ReadMaxRows) else reached)

    def reportLatestOffset(self) -> dict[str, Any] | None:
        return None if self._ends is None else to_json(self._ends)

    def partitions(self, start: Mapping[str, Any], end: Mapping[str, Any]) -> Sequence[InputPartition]:
        first, last = from_json(start), from_json(end)
        return tasks_of(first, last, {topic: self._reader().bounds(topic) for topic in last}, self._options)

    def stop(self) -> None:
        if self._log is not None:
            self._log.close()

    def _reader(self) -> LogReader:
        if self._log is None:
            self._log = LogReader(self._options.url)
        return self._log

    def _bounds(self) -> dict[str, TopicBounds]:
        return {topic: self._reader().bounds(topic) for topic in self._options.topics}

    def _latest(self) -> dict[str, TopicPosition]:
        return {topic: self._reader().ends(topic, known, self._options) for topic, known in self._bounds().items()}

    # --- on executors ---------------------------------------------------------------------------------------
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _records(partition, self._options)

    def __getstate__(self) -> dict[str, Any]:
        # Connections stay where they were made.
        return {"_options": self._options, "_log": None, "_target": None, "_ends": None}


def tasks_of(
    start: Positions, end: Positions, bounds: Mapping[str, TopicBounds], options: ReadOptions
) -> list[SpanPartition]:
    """What lies between, as tasks. Raises what `loss` says, unless the options take that."""
    if options.fail_on_data_loss:
        _check_same(start, end)
    tasks = []
    for span in spans_between(start, end):
        known = bounds[span.topic]
        # Partitions that a topic was given since begin where they begin.
        seen = span.topic in start and span.partition in start[span.topic].offsets
        lost = loss(span, known) if seen and options.fail_on_data_loss else None
        if lost is not None:
            raise lost
        there = present(span, known)
        if there is not None:
            partition = known.partitions[span.partition]
            tasks += [
                SpanPartition(part, partition, known.timestamp_type) for part in split(there, options.records_per_task)
            ]
    return tasks


def _check_same(start: Positions, end: Positions) -> None:
    for topic, position in end.items():
        before = start.get(topic)
        if before is not None and before.topic_id != position.topic_id:
            raise problem(
                "unknown_topic",
                f"topic {topic!r} was deleted and created again since it was read last: set failOnDataLoss to false "
                "to go on with the new one, or begin anew with another checkpoint",
                topic=topic,
            )


def _records(task: InputPartition, options: ReadOptions) -> Iterator[pa.RecordBatch]:
    if not isinstance(task, SpanPartition):
        return  # Spark's own, for a batch without any
    with LogReader(options.url) as log:
        yield from log.read(task.span, task.bounds, task.timestamp_type, options)
