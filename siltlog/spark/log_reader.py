"""Asks a server for a Spark job where topics begin and end, and for the records of a span, in Arrow batches."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Self

import numpy as np
import pyarrow as pa

from siltlog.consumers.library.sources.choice import Read, TableReading
from siltlog.consumers.library.sources.server import (
    SERVER,
    Fetched,
    FetchPlan,
    ServerSource,
    Source,
    Wanted,
    fetch_request,
    fetched_of,
)
from siltlog.infra.arrow.arrays import fixed_array, numbers_of
from siltlog.infra.client import calls
from siltlog.infra.client.credentials.authorized import open_transport
from siltlog.infra.client.credentials.credentials import Credentials
from siltlog.infra.client.endpoints import Endpoints
from siltlog.infra.client.record import TopicPartition, datetime_of
from siltlog.infra.client.transport import Caller
from siltlog.infra.clock import Clock, SystemClock
from siltlog.infra.columns import FETCH_SCHEMA
from siltlog.infra.errors import OffsetOutOfRange, UnknownTopic, problem
from siltlog.infra.records import Bounds
from siltlog.spark.columns import TIMESTAMP_TYPE, TIMESTAMP_TYPES
from siltlog.spark.options import EARLIEST, LATEST, Bound, Moment, Moments, ReadOptions
from siltlog.spark.positions import Part, Positions, Span, TopicBounds, TopicPosition

RETRY_MS = 60_000
"""How long a server may be away before a task or a trigger fails."""
FETCH_BYTES_MAX = 16 * 1024 * 1024
BATCH_ROWS_MAX = 64 * 1024
"""Rows that Spark is given at once."""
STALLED_MAX = 30
STALL_WAIT_MS = 1_000


class LogReader:
    """Used by one thread. `Caller`'s errors are raised as they are."""

    def __init__(self, url: str, clock: Clock | None = None, credentials: Credentials | None = None) -> None:
        self._url = url
        self._clock = clock or SystemClock()
        self._transport = open_transport(Endpoints(url), self._clock, credentials)
        self._caller = self._open_caller()
        self._timestamp_types: dict[str, tuple[str, int]] = {}

    def _open_caller(self) -> Caller:
        return Caller(Endpoints(self._url), self._transport, self._clock, retry_timeout_ms=RETRY_MS)

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
        named = self._named(topic, bound, bounds)
        if bound == "earliest":
            otherwise = EARLIEST
        elif bound == "latest":
            otherwise = LATEST
        else:
            otherwise = EARLIEST if bound is options.starting else LATEST
        offsets = {}
        for number, known in bounds.partitions.items():
            offset, end = named.get(number, otherwise), end_of(known, options)
            if offset == EARLIEST:
                offset = known.log_start_offset
            elif offset == LATEST or isinstance(bound, Moment | Moments):
                offset = end if offset == LATEST else min(offset, end)
            elif bound is options.starting and offset > known.high_watermark:
                if options.fail_on_data_loss:
                    raise problem(
                        "offset_out_of_range",
                        f"partition {number} of topic {topic!r} ends at offset {known.high_watermark}, and was to be "
                        f"read from {offset}: correct startingOffsets",
                        log_start_offset=known.log_start_offset,
                        high_watermark=known.high_watermark,
                    )
                offset = end
            offsets[number] = offset
        return TopicPosition(bounds.topic_id, offsets)

    def _named(self, topic: str, bound: Bound, bounds: TopicBounds) -> dict[int, int]:
        """Partition -> offset, of those that `bound` says something of."""
        if isinstance(bound, str):
            return {}
        if isinstance(bound, Moment):
            return self._at(topic, bound.us)
        named = dict((bound.us if isinstance(bound, Moments) else bound).get(topic, {}))
        strange = sorted(named.keys() - bounds.partitions.keys())
        if strange:
            raise problem(
                "unknown_partition",
                f"{topic} has no partition {strange[0]}; it has {len(bounds.partitions)}, numbered from 0",
            )
        if not isinstance(bound, Moments):
            return named
        at = {us: self._at(topic, us) for us in set(named.values())}
        return {number: at[us][number] for number, us in named.items()}

    def _at(self, topic: str, us: int) -> dict[int, int]:
        found = self._caller.run(calls.offsets(topic, datetime_of(us)))
        return {int(part["partition"]): int(part["offset"]) for part in found["partitions"]}

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
        if not wanted:
            self._clock.sleep(wait_ms / 1000)
            return
        plan = FetchPlan(SERVER, wanted, options.isolation, 1, 1, wait_ms)
        self._caller.call(fetch_request(plan))

    def first_from(self, span: Span, options: ReadOptions) -> int:
        """Finds where the records of `span` begin, or a place in it with no record before; its end when it has none."""
        wanted = Wanted(TopicPartition(span.topic, span.partition), span.start, span.topic_id, None)
        plan = FetchPlan(SERVER, (wanted,), options.isolation, 1, 1, 0)
        for part in fetched_of(self._caller.call(fetch_request(plan))):
            if part.error is None:
                found = part.next_offset if part.rows is None else part.rows["offset"][0].as_py()
                return min(max(found, span.start), span.end)
        return span.start

    def read(self, part: Part, schema: pa.Schema, options: ReadOptions) -> Iterator[pa.RecordBatch]:
        """The records of `part` in their order, of `schema` (of READ_SCHEMA); what comes next is fetched meanwhile.

        `bounds` are those of its partition when it was planned. Without `fail_on_data_loss` what retention or a
        deletion removes meanwhile is left out, else that is OffsetOutOfRange or UnknownTopic.
        """
        for rows in _ahead(self._pages(part.span, part.bounds, options)):
            yield from _batches(rows, part, schema)

    def _pages(self, span: Span, bounds: Bounds, options: ReadOptions) -> Iterator[pa.Table]:
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
                        if options.fail_on_data_loss or not isinstance(part.error, OffsetOutOfRange | UnknownTopic):
                            raise part.error
                        if isinstance(part.error, UnknownTopic):
                            return
                        first = None if part.bounds is None else part.bounds.log_start_offset
                        if first is None or first <= position:
                            raise part.error
                        position, stalled = first, 0
                    elif part.next_offset > position:
                        position, stalled = part.next_offset, 0
                        if part.rows is not None:
                            yield part.rows

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


def _ahead(pages: Iterator[pa.Table]) -> Iterator[pa.Table]:
    """The same, each made while the one before is used."""
    with ThreadPoolExecutor(1, "siltlog-page") as pool:
        following = pool.submit(next, pages, None)
        while (page := following.result()) is not None:
            following = pool.submit(next, pages, None)
            yield page


def _batches(rows: pa.Table, part: Part, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Rows (FETCH_SCHEMA, rising by offset) below the end of `part`, in `schema`."""
    for batch in rows.to_batches(max_chunksize=BATCH_ROWS_MAX):
        kept = _below(batch, part.span.end)
        if kept.num_rows:
            columns = [kept.column(name) for name in FETCH_SCHEMA.names]
            by_name = dict(zip(FETCH_SCHEMA.names, columns, strict=True))
            by_name[TIMESTAMP_TYPE] = fixed_array(np.full(kept.num_rows, part.timestamp_type, np.int32), pa.int32())
            yield pa.RecordBatch.from_arrays([by_name[name] for name in schema.names], schema=schema)


def _below(batch: pa.RecordBatch, end: int) -> pa.RecordBatch:
    if batch.num_rows == 0 or batch.column("offset")[-1].as_py() < end:
        return batch
    offsets = numbers_of(batch.column("offset"), np.int64)
    return batch.slice(0, int(np.searchsorted(offsets, end)))
