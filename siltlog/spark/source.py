"""`format("siltlog")`: topics as Spark reads and writes them, the newest records included.

Spark makes these objects anew wherever it needs one, on the driver and on executors; nothing lives in them but options
and, in a stream's reader on the driver, what the server said last.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from siltlog.infra.errors import UnknownTopic, problem
from siltlog.infra.records import OFFSET_JUMP
from siltlog.spark.columns import READ_DDL, schema_of
from siltlog.spark.log_reader import LogReader
from siltlog.spark.options import ReadOptions, read_options, write_options
from siltlog.spark.positions import (
    GAP_OFFSETS,
    Part,
    Positions,
    Span,
    TopicBounds,
    TopicPosition,
    advanced,
    dense,
    from_json,
    gathered,
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
TOGETHER_OFFSETS = 10_000
"""Partitions that have so few together are read by one task: to begin one costs more than to read them."""
IDLE_WAIT_MS = 200
"""How long a trigger without news waits for some. A query that is stopped waits as long."""


def register(spark: "SparkSession") -> None:
    """Makes `format("siltlog")` known to a session."""
    spark.dataSource.register(SiltlogSource)


class SiltlogSource(DataSource):  # type: ignore[misc]
    """The source of Spark reads; its options are in docs/spark.md."""

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> str:
        return READ_DDL

    def reader(self, schema: "StructType") -> "BatchReader":
        return BatchReader(read_options(self.options, streaming=False), _arrow(schema))

    def streamReader(self, schema: "StructType") -> "StreamReader":
        return StreamReader(dict(self.options), schema)

    def writer(self, schema: "StructType", overwrite: bool) -> BatchSink:
        if overwrite:
            raise problem("invalid_request", 'a topic is only ever appended to: use mode("append")')
        return BatchSink(write_options(self.options, streaming=False), schema.names)

    def streamWriter(self, schema: "StructType", overwrite: bool) -> StreamSink:
        if overwrite:
            raise problem("invalid_request", 'a topic is only ever appended to: use outputMode("append")')
        return StreamSink(write_options(self.options, streaming=True), schema.names)


@dataclass(frozen=True)
class TaskPartition(InputPartition):  # type: ignore[misc]
    """The parts that one task reads."""

    parts: tuple[Part, ...]


class BatchReader(DataSourceReader):  # type: ignore[misc]
    def __init__(self, options: ReadOptions, schema: pa.Schema) -> None:
        self._options = options
        self._schema = schema

    def partitions(self) -> Sequence[InputPartition]:
        options = self._options
        with LogReader(options.url, credentials=options.credentials) as log:
            bounds = {topic: log.bounds(topic) for topic in options.topics}
            start = {topic: log.position(topic, options.starting, bounds[topic], options) for topic in options.topics}
            end = {topic: log.position(topic, options.ending, bounds[topic], options) for topic in options.topics}
            return tasks_of(start, end, bounds, options, lambda span: log.first_from(span, options))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _records(partition, self._schema, self._options)


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):  # type: ignore[misc]
    """Says what is wrong with its options when it is first used: where it is made, Spark hides that behind an error of
    its own."""

    def __init__(self, given: Mapping[str, str], schema: "StructType") -> None:
        self._given = given
        self._spark_schema = schema
        self._log: LogReader | None = None
        self._target: dict[str, TopicPosition] | None = None
        """Where a query that reads what is available now ends."""
        self._ends: dict[str, TopicPosition] | None = None
        self._seen: dict[str, TopicBounds] = {}

    @cached_property
    def _options(self) -> ReadOptions:
        return read_options(self._given, streaming=True)

    @cached_property
    def _schema(self) -> pa.Schema:
        return _arrow(self._spark_schema)

    def initialOffset(self) -> dict[str, Any]:
        options, log = self._options, self._reader()
        bounds = {topic: log.bounds(topic) for topic in options.topics}
        return to_json(
            {topic: log.position(topic, options.starting, known, options) for topic, known in bounds.items()}
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
        if isinstance(limit, ReadMaxRows):
            reached = limited(before, reached, limit.max_rows, self._first_from)
        return to_json(reached)

    def reportLatestOffset(self) -> dict[str, Any] | None:
        return None if self._ends is None else to_json(self._ends)

    def partitions(self, start: Mapping[str, Any], end: Mapping[str, Any]) -> Sequence[InputPartition]:
        first, last = from_json(start), from_json(end)
        self._schema  # noqa: B018  (is asked for here, not first on an executor)
        return tasks_of(first, last, self._bounds(last), self._options, self._first_from)

    def stop(self) -> None:
        if self._log is not None:
            self._log.close()

    def _reader(self) -> LogReader:
        if self._log is None:
            self._log = LogReader(self._options.url, credentials=self._options.credentials)
        return self._log

    def _bounds(self, topics: Iterable[str]) -> dict[str, TopicBounds]:
        """Finds the topics' bounds, without topics that are gone where that is no error."""
        found = {}
        for topic in topics:
            try:
                found[topic] = self._reader().bounds(topic)
            except UnknownTopic:
                if self._options.fail_on_data_loss:
                    raise
        return found

    def _latest(self) -> dict[str, TopicPosition]:
        self._seen = self._bounds(self._options.topics)
        return {topic: self._reader().ends(topic, known, self._options) for topic, known in self._seen.items()}

    def _first_from(self, span: Span) -> int:
        """Asks only where so much lies ahead that there may be nothing in it."""
        known = self._seen.get(span.topic)
        if known is not None and known.topic_id == span.topic_id:
            log_start = known.partitions[span.partition].log_start_offset
            span = span._replace(start=min(max(span.start, log_start), span.end))
        if span.end - span.start <= GAP_OFFSETS:
            return span.start
        return self._reader().first_from(span, self._options)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _records(partition, self._schema, self._options)

    def __getstate__(self) -> dict[str, Any]:
        # Connections stay where they were made.
        return {"_given": self._given, "_spark_schema": self._spark_schema}


def tasks_of(
    start: Positions,
    end: Positions,
    bounds: Mapping[str, TopicBounds],
    options: ReadOptions,
    first_from: Callable[[Span], int],
) -> list[InputPartition]:
    """Divides the offsets from `start` to `end` into tasks. Raises the error of `loss`, unless the options allow it."""
    if options.fail_on_data_loss:
        _check_same(start, end)
    parts: list[Part] = []
    for span in spans_between(start, end):
        known = bounds.get(span.topic)
        # Partitions that a topic was given since begin where they begin.
        seen = span.topic in start and span.partition in start[span.topic].offsets
        lost = loss(span, known) if known is not None and seen and options.fail_on_data_loss else None
        if lost is not None:
            raise lost
        there = None if known is None else present(span, known)
        if known is None or there is None:
            continue
        partition = known.partitions[span.partition]
        for place in [there] if there.end - there.start < OFFSET_JUMP // 2 else dense(there, first_from):
            pieces = split(place, options.records_per_task)
            parts += [Part(piece, partition, known.timestamp_type) for piece in pieces]
    together = min(options.records_per_task, TOGETHER_OFFSETS)
    return [TaskPartition(some) for some in gathered(parts, together)]


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


def _arrow(schema: "StructType") -> pa.Schema:
    return schema_of(to_arrow_schema(schema, timezone="UTC"))


def _records(task: InputPartition, schema: pa.Schema, options: ReadOptions) -> Iterator[pa.RecordBatch]:
    if not isinstance(task, TaskPartition):
        return  # Spark's own, for a batch without any
    with LogReader(options.url, credentials=options.credentials) as log:
        for part in task.parts:
            yield from log.read(part, schema, options)
