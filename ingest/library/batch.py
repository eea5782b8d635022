"""Records of one topic that travel together, and what became of each of them."""

import logging
import threading
from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping
from copy import copy
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from siltlog.infra.arrow.arrays import BINARY_BYTES_MAX, binary_array, fixed_array
from siltlog.infra.client.record import (
    RECORD_BYTES_MAX,
    Headers,
    PartitionMetadata,
    RecordMetadata,
    datetime_of,
)
from siltlog.infra.columns import HEADERS, TIMESTAMP
from siltlog.infra.errors import SiltlogError

_log = logging.getLogger("siltlog.producer")
ROW_BYTES = 64
"""A record is reckoned to cost so much beside its own bytes."""
NO_TRACE: Mapping[str, str] = {}
assert RECORD_BYTES_MAX <= BINARY_BYTES_MAX


class Landed(NamedTuple):
    """Rows [start, stop) arrived. `partition` and `rank` (shape (stop - start,)) place each row: its offset is its
    partition's first offset plus its rank; a single partition has `partition` None and ranks in order."""

    start: int
    stop: int
    parts: tuple[PartitionMetadata, ...]
    partition: npt.NDArray[np.int32] | None
    rank: npt.NDArray[np.int64] | None


class Failed(NamedTuple):
    start: int
    stop: int
    error: SiltlogError
    records: pa.Table | None
    """The records as `send_batch` takes them; None once there was no room to keep them."""


Outcome = Landed | Failed


class Pending(NamedTuple):
    """Rows [start, stop), whose keyless ones go to the partition `keyless`: where they would have gone before."""

    start: int
    stop: int
    keyless: int | None = None


class Owner(Protocol):
    """The producer that a batch belongs to."""

    @property
    def lock(self) -> threading.Lock: ...

    def hurry(self, batch: "Batch") -> None:
        """Somebody waits for this batch: send it now rather than wait for more."""

    def changed(self, finished: bool) -> None:
        """There may be something to send, and once batches are `finished` there is more room. The lock is held."""


class Batch:
    """Filled under the owner's lock until it is closed; then the lane's alone until it is finished.

    `pending` are the rows not yet decided nor on their way, in order; outcomes may cut them finer, for the rows of one
    refused record or where a request would be too large. `requests` counts those under way that have rows of it.
    """

    def __init__(self, topic: str, created: float, owner: Owner, table: pa.Table | None = None) -> None:
        self.topic = topic
        self.created = created
        self.owner = owner
        self.table = table
        self.values: list[bytes | None] = []
        self.keys: list[bytes | None] = []
        self.timestamps = array("q")
        """Microseconds."""
        self.headers: dict[int, Headers] = {}
        self.partitions: dict[int, int] = {}
        """Both have only the rows that have headers or name a partition."""
        self.size_bytes = 0 if table is None else table.nbytes + ROW_BYTES
        self.count = 0 if table is None else table.num_rows
        self.trace: Mapping[str, str] = NO_TRACE
        """The header fields by which a request with these records goes on in a trace."""
        self.keyed = table is not None and "key" in table.column_names
        self.placed = self.keyed or (table is not None and "partition" in table.column_names)
        """Whether rows say where they belong, by a key or a partition."""
        self.full = table is not None
        """It need not wait for more."""
        self.urgent = self.full
        self.pending: list[Pending] = []
        self.requests = 0
        self.outcomes: list[Outcome] = []
        self.done = False
        self._settled = False
        self._read: set[int] = set()
        self._read_all = False
        self._event: threading.Event | None = None
        self._callbacks: list[tuple[Callable[[Any], None], Any]] = []

    def columns(self) -> pa.Table:
        """The records as columns value, key, headers, timestamp, partition; those that are all null are left out."""
        if self.table is None:
            self.table = self._table()
            self.values, self.keys, self.headers, self.partitions = [], [], {}, {}
        return self.table

    def _table(self) -> pa.Table:
        count = self.count
        columns = {"value": binary_array(self.values)}
        if self.keyed:
            columns["key"] = binary_array(self.keys)
        if self.headers:
            columns["headers"] = pa.array(list(map(self.headers.get, range(count))), HEADERS)
        columns["timestamp"] = fixed_array(self.timestamps, TIMESTAMP)
        if self.partitions:
            columns["partition"] = pa.array(list(map(self.partitions.get, range(count))), pa.int32())
        return pa.table(columns)

    def slice(self, start: int, stop: int) -> pa.Table:
        records = self.columns()
        return records if stop - start == self.count else records.slice(start, stop - start)

    def start_sending(self) -> None:
        # First of all: should the rows not become columns, they are still there to fail.
        if self.count:
            self.pending.append(Pending(0, self.count))
        self.columns()

    def landed(self, outcome: Landed) -> None:
        self.outcomes.append(outcome)

    def failed(self, start: int, stop: int, error: SiltlogError) -> None:
        records = None if self.table is None else self.slice(start, stop)
        self.outcomes.append(Failed(start, stop, error, records))

    def fail_pending(self, error: SiltlogError) -> None:
        for start, stop, _ in self.pending:
            self.failed(start, stop, error)
        self.pending.clear()

    def requeue(self, *ranges: tuple[int, int], keyless: int | None = None) -> None:
        """Puts row ranges back to where they belong among those that wait; empty ones are left out."""
        self.pending += [Pending(start, stop, keyless) for start, stop in ranges if start < stop]
        self.pending.sort()

    def finish(self) -> None:
        """Makes the outcomes known; callbacks run on the calling thread, which must not hold the lock.

        They run before anybody who waits goes on, so that a flush knows which errors they have read.
        """
        if len(self.outcomes) > 1:
            self.outcomes.sort(key=lambda outcome: outcome.start)
        self.table = None
        with self.owner.lock:
            self.done = True
            callbacks, self._callbacks = self._callbacks, []
        for callback, delivery in callbacks:
            try:
                callback(delivery)
            except Exception:
                _log.exception("a delivery callback failed")
        with self.owner.lock:
            self._settled = True
            if self._event is not None:
                self._event.set()

    def wait(self, timeout: float | None) -> bool:
        with self.owner.lock:
            if self._settled:
                return True
            if self._event is None:
                self._event = threading.Event()
        return self._event.wait(timeout)

    def when_done(self, callback: Callable[[Any], None], delivery: Any) -> None:
        with self.owner.lock:
            if not self.done:
                self._callbacks.append((callback, delivery))
                return
        callback(delivery)

    def outcome_of(self, index: int) -> Outcome:
        outcomes = self.outcomes
        if len(outcomes) == 1:
            return outcomes[0]
        return outcomes[bisect_right(outcomes, index, key=lambda outcome: outcome.start) - 1]

    def metadata(self, index: int) -> RecordMetadata:
        """Raises why the row did not arrive; that counts as read."""
        outcome = self.outcome_of(index)
        if isinstance(outcome, Failed):
            raise self._read_error(index, outcome)
        row = index - outcome.start
        if outcome.partition is None or outcome.rank is None:
            part, rank = outcome.parts[0], row
        else:
            number = int(outcome.partition[row])
            part = next(part for part in outcome.parts if part.partition == number)
            rank = int(outcome.rank[row])
        offset = None if part.first_offset is None else part.first_offset + rank
        return RecordMetadata(self.topic, part.partition, offset, datetime_of(self.timestamps[index]))

    def error(self, index: int) -> SiltlogError | None:
        """Why the row did not arrive, to be raised by whoever asks: each asker gets its own copy. It counts as read."""
        outcome = self.outcome_of(index)
        return None if isinstance(outcome, Landed) else self._read_error(index, outcome)

    def _read_error(self, index: int, outcome: Failed) -> SiltlogError:
        with self.owner.lock:
            self._read.add(index)
        return copy(outcome.error)

    def unread_failures(self) -> list[Failed]:
        """Gives the failures that nobody has been told yet; from now on they count as told."""
        with self.owner.lock:
            read, whole = frozenset(self._read), self._read_all
            self._read_all = True
        return [] if whole else [part for failed in self.failures for part in _without(failed, read)]

    @property
    def failures(self) -> list[Failed]:
        return [outcome for outcome in self.outcomes if isinstance(outcome, Failed)]

    def forget_records(self) -> None:
        self.outcomes = [part._replace(records=None) if isinstance(part, Failed) else part for part in self.outcomes]


def _without(failed: Failed, read: frozenset[int]) -> Iterator[Failed]:
    """`failed` without the rows in `read`."""
    cuts = sorted(index for index in read if failed.start <= index < failed.stop)
    start = failed.start
    for stop in (*cuts, failed.stop):
        if start < stop:
            records = failed.records
            yield Failed(
                start,
                stop,
                failed.error,
                None if records is None else records.slice(start - failed.start, stop - start),
            )
        start = stop + 1
