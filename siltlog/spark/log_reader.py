"""What a Spark job asks of a server: where topics begin and end, and the records of a span, in Arrow batches."""

from collections.abc import Callable, Iterator, Sequence
from types import TracebackType
from typing import Self

import numpy as np
import pyarrow as pa

from siltlog.consumers.row_source import SERVER, Fetched, FetchPlan, ServerSource, Source, Wanted, fetch_request
from siltlog.consumers.table_reading import Read, TableReading
from siltlog.infra.arrow_arrays import fixed_array, numbers_of
from siltlog.infra.bounds import Bounds
from siltlog.infra.client import calls
from siltlog.infra.client.core import Endpoints
from siltlog.infra.client.record import TopicPartition, datetime_of
from siltlog.infra.client.transport import Caller, HttpTransport
from siltlog.infra.clock import Clock, SystemClock
from siltlog.infra.errors import OffsetOutOfRange, problem
from siltlog.infra.schema import FETCH_SCHEMA
from siltlog.spark.columns import READ_SCHEMA, TIMESTAMP_TYPE, TIMESTAMP_TYPES
from siltlog.spark.options import EARLIEST, LATEST, Bound, Moment, ReadOptions
from siltlog.spark.positions import Positions, Span, TopicBounds, TopicPosition

RETRY_MS = 60_000
"""How long a server may be away before a task or a trigger fails."""
FETCH_BYTES_MAX = 16 * 1024 * 1024
BATCH_ROWS_MAX = 64 * 1024
"""Rows that Spark is given at once."""
STALLED_MAX = 30
STALL_WAIT_MS = 1_000


class LogReader:
    """Used by one thread. `Caller`'s errors are raised as they are."""

    def __init__(self, url: str, clock: Clock | None = None) -> None:
        self._url = url
        self._clock = clock or SystemClock()
        self._transport = HttpTransport()
        self._caller = self._open_caller()
        self._timestamp_types: dict[str, tuple[str, int]] = {}

    def _open_caller(self) -> Caller:
        return Caller(Endpoints(self._url), self._transport, self._clock, retry_timeout_ms=RETRY_MS)

    # --- where topics begin and end -------------------------------------------------------------------------
    def bounds(self, topic: str) -> TopicBounds:
        """Raises UnknownTopic."""
        found = self._caller.run(calls.offsets(topic))
        topic_id = str(found["topic_id"])
        known = self._timestamp_types.get(topic)
        if known is None or known[0] != topic_id:
            config = self._caller.run(calls.topic(topic))["config"]
            known = (topic_id, TIMESTAMP_TYPES[config["timestamp.type"]["value"]])
            self._timestamp_types[topic] = known
        partitions = {
            int(part["partition"]): Bounds(*(int(part[name]) for name in Bounds._fields))
            for part in found["partitions"]
        }
        return TopicBounds(topic_id, partitions, known[1])

    def position(self, topic: str, bound: Bound, bounds: TopicBounds, options: ReadOptions) -> TopicPosition:
        """The offsets that a `startingOffsets` or `endingOffsets`, or a time, stands for."""
        if isinstance(bound, Moment):
            found = self._caller.run(calls.offsets(topic, datetime_of(bound.us)))
            offsets = {int(part["partition"]): int(part["offset"]) for part in found["partitions"]}
            ends = {number: end_of(known, options) for number, known in bounds.partitions.items()}
            return TopicPosition(bounds.topic_id, {number: min(offsets[number], ends[number]) for number in ends})
        named = {} if isinstance(bound, str) else bound.get(topic, {})
        strange = sorted(named.keys() - bounds.partitions.keys())
        if strange:
            raise problem(
                "unknown_partition",
                f"{topic} has no partition {strange[0]}; it has {len(bounds.partitions)}, numbered from 0",
            )
        otherwise = {"earliest": EARLIEST, "latest": LATEST}.get(bound) if isinstance(bound, str) else None
        if otherwise is None:
            otherwise = EARLIEST if bound is options.starting else LATEST
        offsets = {}
        for number, known in bounds.partitions.items():
            offset = named.get(number, otherwise)
            if offset == EARLIEST:
                offset = known.log_start_offset
            offsets[number] = end_of(known, options) if offset == LATEST else offset
        return TopicPosition(bounds.topic_id, offsets)

    def ends(self, topic: str, bounds: TopicBounds, options: ReadOptions) -> TopicPosition:
        return TopicPosition(
            bounds.topic_id, {number: end_of(known, options) for number, known in bounds.partitions.items()}
        )

    def wait(self, positions: Positions, options: ReadOptions, wait_ms: int) -> None:
        """Returns once a record is there at one of `positions`, or a partition has a problem, or after `wait_ms`."""
        wanted = tuple(
            Wanted(TopicPartition(topic, number), offset, position.topic_id, None)
            for topic, position in positions.items()
            for number, offset in position.offsets.items()
        )
        plan = FetchPlan(SERVER, wanted, options.isolation, 1, 1, wait_ms)
        self._caller.call(fetch_request(plan))

    # --- records --------------------------------------------------------------------------------------------
    def read(self, span: Span, bounds: Bounds, timestamp_type: int, options: ReadOptions) -> Iterator[pa.RecordBatch]:
        """The records of `span` in their order, of READ_SCHEMA.

        `bounds` are those of its partition when it was planned. Without `fail_on_data_loss` what retention removes
        meanwhile is left out, else that is OffsetOutOfRange; a topic that is gone is UnknownTopic.
        """
        with _Sources(self._caller, options.read, self._open_caller, self._clock) as sources:
            position, stalled = span.start, 0
            # To the choice between table and server the span's end is where the log ends.
            here = bounds._replace(table_offset=min(bounds.table_offset, span.end))
            at = TopicPartition(span.topic, span.partition)
            while position < span.end:
                wanted = Wanted(at, position, span.topic_id, here)
                waits_ms = STALL_WAIT_MS if stalled else 0
                found = sources.read(wanted, span.end - position, options, waits_ms)
                stalled += 1
                if stalled > STALLED_MAX:
                    raise problem(
                        "topic_unavailable",
                        f"partition {span.partition} of topic {span.topic} gives nothing at offset {position}, which "
                        "was acknowledged; look at its server's log",
                    )
                for part in found:
                    if part.error is not None:
                        if not isinstance(part.error, OffsetOutOfRange) or options.fail_on_data_loss:
                            raise part.error
                        first = None if part.bounds is None else part.bounds.log_start_offset
                        if first is None or first <= position:
                            raise part.error
                        position, stalled = first, 0
                    elif part.next_offset > position:
                        position, stalled = part.next_offset, 0
                        if part.rows is not None:
                            yield from _batches(part.rows, span.end, timestamp_type)

    def close(self) -> None:
        self._transport.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class _Sources:
    """The server, and the table's files where `read` says so and they are within reach."""

    def __init__(self, caller: Caller, read: Read, open_caller: Callable[[], Caller], clock: Clock) -> None:
        self._reading = TableReading(read, open_caller, clock)
        self._sources: dict[str, Source] = {SERVER: ServerSource(caller), **self._reading.sources}

    def read(self, wanted: Wanted, records_max: int, options: ReadOptions, wait_ms: int) -> Sequence[Fetched]:
        name = self._reading.choose(wanted, options.isolation)
        plan = FetchPlan(name, (wanted,), options.isolation, records_max, FETCH_BYTES_MAX, wait_ms)
        return self._sources[name].read(plan)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._reading.close()


def end_of(bounds: Bounds, options: ReadOptions) -> int:
    return bounds.table_offset if options.isolation == "table" else bounds.high_watermark


def _batches(rows: pa.Table, end: int, timestamp_type: int) -> Iterator[pa.RecordBatch]:
    """Rows (FETCH_SCHEMA, rising by offset) below `end`, in READ_SCHEMA."""
    for batch in rows.to_batches(max_chunksize=BATCH_ROWS_MAX):
        kept = _below(batch, end)
        if kept.num_rows:
            columns = [kept.column(name) for name in FETCH_SCHEMA.names]
            by_name = dict(zip(FETCH_SCHEMA.names, columns, strict=True))
            by_name[TIMESTAMP_TYPE] = fixed_array(np.full(kept.num_rows, timestamp_type, np.int32), pa.int32())
            yield pa.RecordBatch.from_arrays([by_name[name] for name in READ_SCHEMA.names], schema=READ_SCHEMA)


def _below(batch: pa.RecordBatch, end: int) -> pa.RecordBatch:
    if batch.num_rows == 0 or batch.column("offset")[-1].as_py() < end:
        return batch
    offsets = numbers_of(batch.column("offset"), np.int64)
    return batch.slice(0, int(np.searchsorted(offsets, end)))
