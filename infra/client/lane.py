"""The publishing of one topic: what to ask the server next and what its answer means. No IO, no clock.

A lane has at most one request in flight, and takes the next rows only once the ones before are decided, so that order
holds and sequences stay contiguous. A retry is the same request, byte for byte.

What is refused has no effect, so its sequence numbers are used again. What ends without a known outcome may still
arrive: the lane then goes on under a new producer id, as nobody can tell which sequence is next.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any
from uuid import uuid4

import msgspec

from siltlog.infra import names
from siltlog.infra.client.arrow_body import Compression, Placement, body_of, out_of_range, place
from siltlog.infra.client.batch import Batch, Landed
from siltlog.infra.client.core import READ_TIMEOUT_MS, Request, Response, backoff_ms, json_request
from siltlog.infra.client.record import PartitionMetadata
from siltlog.infra.errors import OutcomeUnknown, SiltlogError, Unavailable, problem

GRACE_MS = 5_000
"""How much longer the client waits for a reply than the server was told to take."""
COLUMN_BYTES = 16
"""Partition and sequence of a row, with room for padding."""
REQUEST_BYTES_TARGET = 8 * 1024 * 1024
REQUEST_RECORDS_TARGET = 1_000_000
UNKNOWN_TOPIC_CODES = frozenset(("unknown_topic", "unknown_partition"))
BAD_RECORD_CODES = frozenset(("invalid_record", "record_too_large"))


@dataclass(frozen=True, slots=True)
class PublishOptions:
    acks: str | None
    compression: Compression
    delivery_timeout_ms: int
    request_timeout_ms: int


@dataclass(slots=True)
class Limits:
    """What the server takes in one request; shared by the lanes of a producer."""

    request_bytes: int = REQUEST_BYTES_TARGET
    records: int = REQUEST_RECORDS_TARGET
    known: bool = False

    def learn(self, document: Mapping[str, Any]) -> None:
        limits = document.get("limits", {})
        # A tenth stays free for what frames the columns.
        self.request_bytes = min(self.request_bytes, max(1, int(limits.get("request_bytes", self.request_bytes) * 0.9)))
        self.records = min(self.records, limits.get("records", self.records))
        self.known = True


@dataclass(slots=True)
class Flight:
    """Rows [start, stop) of a batch on their way."""

    batch: Batch
    start: int
    stop: int
    placement: Placement
    sequences: dict[int, int]
    request: Request
    maybe_landed: bool = False


class Reply(msgspec.Struct):
    class Part(msgspec.Struct):
        partition: int
        count: int
        first_offset: int | None = None
        last_offset: int | None = None
        duplicate: bool = False

    partitions: list[Part]


_REPLY = msgspec.json.Decoder(Reply)


class Lane:
    def __init__(self, topic: str, options: PublishOptions, limits: Limits, jitter: Callable[[], float]) -> None:
        self.topic = topic
        self.not_before = 0.0
        self.ending = False
        self._options = options
        self._limits = limits
        self._jitter = jitter
        self._partitions: int | None = None
        self._guessed = False
        self._producer_id = str(uuid4())
        self._sequences: dict[int, int] = {}
        self._keyless = int(jitter() * 2**31)
        self._batch: Batch | None = None
        self._unstarted = False
        self._flight: Flight | None = None
        self._last_error: SiltlogError | None = None
        self._attempts = 0

    @property
    def wants_batch(self) -> bool:
        return self._batch is None

    def give(self, batch: Batch) -> None:
        self._batch = batch
        self._unstarted = True

    def next_request(self, now: float) -> Request | None:
        """What to send next; None when the batch has been decided without one (`resolve` is not called then)."""
        batch = self._batch
        assert batch is not None
        if self._unstarted:
            self._unstarted = False
            batch.start_sending()
        remaining_ms = self._options.delivery_timeout_ms - (now - batch.created) * 1000
        if remaining_ms <= 0 or self.ending:
            self._give_up(batch)
        if self._flight is None:
            if not batch.pending:
                return None
            if self._partitions is None:
                return json_request("GET", f"/v1/topics/{self.topic}", read_timeout_ms=READ_TIMEOUT_MS)
            if not self._limits.known:
                return json_request("GET", "/v1/cluster")
            self._flight = self._next_flight(batch)
            if self._flight is None:
                return None
        elif self._partitions is None:
            return json_request("GET", f"/v1/topics/{self.topic}")
        request = self._flight.request
        return replace(request, read_timeout_ms=int(min(request.read_timeout_ms, max(remaining_ms, 1_000))))

    def resolve(self, result: Response | SiltlogError, now: float) -> None:
        """Takes what came of the last request."""
        if isinstance(result, Response):
            try:
                self._succeeded(result)
            except (msgspec.DecodeError, msgspec.ValidationError, OutcomeUnknown, KeyError, TypeError) as error:
                result = OutcomeUnknown(f"the server's reply is not understood: {error}", error_code="internal")
        if isinstance(result, SiltlogError):
            self._failed(result, now)
        else:
            self._attempts = 0
            self._last_error = None

    def take_finished(self) -> Batch | None:
        """The batch once every row of it is decided; the lane then wants another."""
        if self._batch is None or self._flight is not None or self._batch.pending:
            return None
        batch, self._batch = self._batch, None
        return batch

    def abandon(self, error: SiltlogError) -> None:
        """Fails what is left of the batch, which may have arrived."""
        if self._flight is not None:
            self._flight.maybe_landed = True
            self._settle(self._flight, error)
        if self._batch is not None:
            self._batch.fail_pending(error)

    # --- making requests ----------------------------------------------------------------------------------
    def _next_flight(self, batch: Batch) -> Flight | None:
        assert self._partitions is not None
        start, end = batch.pending.popleft()
        stop = self._fitting(batch, start, end)
        records = batch.columns().slice(start, stop - start)
        wrong = [] if self._guessed else out_of_range(records, self._partitions)
        if wrong:
            bad = start + wrong[0]
            batch.failed(bad, bad + 1, self._no_partition(batch, bad))
            self._requeue(batch, (start, bad), (bad + 1, end))
            return None
        if stop < end:
            batch.pending.appendleft((stop, end))
        self._keyless += 1
        placement = place(records, self._partitions, self._keyless % self._partitions)
        sequences = {number: self._sequences.get(number, 0) for number in placement.counts}
        body = body_of(records, placement, sequences, self._options.compression)
        timeout_ms = self._options.request_timeout_ms
        acks = f"&acks={self._options.acks}" if self._options.acks else ""
        request = Request(
            "POST",
            f"/v1/topics/{self.topic}/records?timeout_ms={timeout_ms}{acks}",
            {
                "Content-Type": names.MEDIA_ARROW,
                "Accept": names.MEDIA_JSON,
                names.HEADER_PRODUCER_ID: self._producer_id,
                names.HEADER_PRODUCER_EPOCH: "0",
                names.HEADER_PARTITION_COUNT: str(self._partitions),
            },
            body,
            timeout_ms + GRACE_MS,
            True,
        )
        return Flight(batch, start, stop, placement, sequences, request)

    def _fitting(self, batch: Batch, start: int, end: int) -> int:
        """The largest end at most `end` whose rows fit in one request; at least one row does."""
        count = min(end - start, self._limits.records)
        columns = batch.columns()
        while count > 1:
            size = columns.slice(start, count).nbytes + count * COLUMN_BYTES
            if size <= self._limits.request_bytes:
                break
            count = max(1, min(count - 1, int(count * self._limits.request_bytes / size)))
        return start + count

    def _no_partition(self, batch: Batch, row: int) -> SiltlogError:
        partition = batch.columns()["partition"][row].as_py()
        return problem(
            "unknown_partition",
            f"{self.topic} has no partition {partition}; it has {self._partitions}, numbered from 0",
            topic=self.topic,
            partition=partition,
        )

    @staticmethod
    def _requeue(batch: Batch, *ranges: tuple[int, int]) -> None:
        for start, stop in reversed(ranges):
            if start < stop:
                batch.pending.appendleft((start, stop))

    # --- taking answers -----------------------------------------------------------------------------------
    def _succeeded(self, response: Response) -> None:
        if self._partitions is None:
            count = int(response.json()["partitions"])
            self._partitions, self._guessed = count, False
            if self._flight is not None:
                self._count_in(self._flight, count)
        elif self._flight is None:
            self._limits.learn(response.json())
        else:
            self._landed(self._flight, _REPLY.decode(response.body))

    def _landed(self, flight: Flight, reply: Reply) -> None:
        if {part.partition: part.count for part in reply.partitions} != dict(flight.placement.counts):
            raise OutcomeUnknown("it counts other records than were sent", error_code="internal")
        parts = tuple(
            PartitionMetadata(
                self.topic, part.partition, part.first_offset, part.last_offset, part.count, part.duplicate
            )
            for part in reply.partitions
        )
        placement = flight.placement
        flight.batch.landed(Landed(flight.start, flight.stop, parts, placement.partition, placement.rank))
        for number, count in placement.counts.items():
            self._sequences[number] = flight.sequences[number] + count
        self._flight = None
        self._guessed = False

    def _failed(self, error: SiltlogError, now: float) -> None:
        batch, flight = self._batch, self._flight
        assert batch is not None
        if error.retryable != "no":
            if flight is not None and self._partitions is not None and error.retryable == "unknown":
                flight.maybe_landed = True
            deadline = batch.created + self._options.delivery_timeout_ms / 1000
            pause = backoff_ms(self._attempts, self._jitter(), error.retry_after_ms) / 1000
            self.not_before = min(now + pause, max(deadline, now))
            self._attempts += 1
            self._last_error = error
            return
        self._attempts = 0
        if flight is None or self._partitions is None:
            self._refused_lookup(batch, flight, error)
        elif error.error_code == "partition_count_changed" or (
            self._guessed and error.error_code == "unknown_partition"
        ):
            self._recount(flight, error)
        elif flight.maybe_landed:
            self._settle(flight, error)
        elif error.error_code == "unknown_producer" and any(flight.sequences.values()):
            self._new_producer()
            self._take_back(flight)
        else:
            self._refused(flight, error)

    def _refused_lookup(self, batch: Batch, flight: Flight | None, error: SiltlogError) -> None:
        """The topic or the limits could not be looked up: nothing of this batch can be sent, but for one case.

        A server may create topics that are published to. It is then told a count, and answers with
        `partition_count_changed` and its own where that is another.
        """
        if flight is None and self._partitions is None and error.error_code == "unknown_topic":
            self._partitions, self._guessed = 1, True
            return
        if flight is not None:
            self._settle(flight, error)
        batch.fail_pending(error)

    def _recount(self, flight: Flight, error: SiltlogError) -> None:
        """The topic's partition count is another than the rows were placed by."""
        count = error.members.get("partitions")
        if self._guessed and isinstance(count, int):
            # The topic is not made before rows come that were placed by its count: there is none to look up yet.
            self._partitions, self._guessed = count, False
            self._count_in(flight, count)
        else:
            self._partitions = None
        if not flight.maybe_landed:
            self._take_back(flight)

    def _count_in(self, flight: Flight, count: int) -> None:
        headers = {**flight.request.headers, names.HEADER_PARTITION_COUNT: str(count)}
        flight.request = replace(flight.request, headers=headers)

    def _take_back(self, flight: Flight) -> None:
        """Nothing of it happened: its rows are placed anew."""
        self._requeue(flight.batch, (flight.start, flight.stop))
        self._flight = None

    def _refused(self, flight: Flight, error: SiltlogError) -> None:
        """Nothing of it happened and the same again will not help; other rows of it may still be taken."""
        count = flight.stop - flight.start
        index = error.members.get("index")
        self._flight = None
        if error.error_code in UNKNOWN_TOPIC_CODES:
            self._partitions = None
        if error.error_code == "out_of_order_sequence":
            self._new_producer()
        if error.error_code == "request_too_large" and count > 1:
            middle = flight.start + count // 2
            self._requeue(flight.batch, (flight.start, middle), (middle, flight.stop))
            self._limits.records = min(self._limits.records, max(1, count // 2))
        elif error.error_code in BAD_RECORD_CODES and isinstance(index, int) and 0 <= index < count and count > 1:
            order = flight.placement.order
            row = flight.start + (index if order is None else int(order[index]))
            flight.batch.failed(row, row + 1, error)
            self._requeue(flight.batch, (flight.start, row), (row + 1, flight.stop))
        else:
            flight.batch.failed(flight.start, flight.stop, error)

    def _settle(self, flight: Flight, error: SiltlogError) -> None:
        """Ends a flight of which an earlier attempt may have arrived."""
        self._flight = None
        self._new_producer()
        unknown = OutcomeUnknown(
            f"it may have arrived, or part of it: an attempt got no answer, and then: {error.detail}",
            error_code=error.error_code if error.retryable == "unknown" else "ack_timeout",
            status=error.status,
            request_id=error.request_id,
            members=error.members,
        )
        flight.batch.failed(flight.start, flight.stop, unknown)

    def _new_producer(self) -> None:
        self._producer_id = str(uuid4())
        self._sequences = {}

    def _give_up(self, batch: Batch) -> None:
        """`delivery_timeout_ms` is over, or the producer was closed with less time."""
        limit = "until the producer was closed" if self.ending else f"within {self._options.delivery_timeout_ms} ms"
        last = f"; the last attempt: {self._last_error.detail}" if self._last_error is not None else ""
        late = Unavailable(
            f"not delivered {limit}, and nothing of it arrived{last}",
            error_code="delivery_timeout",
            retryable="yes",
        )
        flight, self._flight = self._flight, None
        if flight is not None and flight.maybe_landed:
            self._settle(flight, self._last_error or late)
        elif flight is not None:
            batch.failed(flight.start, flight.stop, late)
        batch.fail_pending(late)
        self._attempts = 0
        self.not_before = 0.0
