"""Records of one topic that travel together, and what became of each of them."""

import logging
import threading
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterator
from copy import copy
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from siltlog.infra.client.record import Headers, PartitionMetadata, RecordMetadata, datetime_of
from siltlog.infra.errors import SiltlogError
from siltlog.infra.schema import HEADERS, TIMESTAMP

Row = tuple[bytes | None, bytes | None, Headers | None, int, int | None]
"""value, key, headers, timestamp in microseconds, partition or None"""

_log = logging.getLogger("siltlog.producer")
ROW_BYTES = 64
"""What a record is reckoned to cost beside its own bytes."""


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
    """As `send_batch` takes them; None once there was no room to keep them."""


Outcome = Landed | Failed


class Batch:
    """Filled by `add` under the owner's lock until it is closed; then the sender's alone until it is finished.

    `pending` are the row ranges not yet decided, in order; outcomes may cut them finer, for the rows of one refused
    record or where a request would be too large.
    """

    def __init__(self, topic: str, created: float, lock: threading.Lock, table: pa.Table | None = None) -> None:
        self.topic = topic
        self.created = created
        self.table = table
        self.rows: list[Row] = []
        self.size_bytes = 0 if table is None else table.nbytes + ROW_BYTES
        self.count = 0 if table is None else table.num_rows
        self.urgent = table is not None
        self.pending: deque[tuple[int, int]] = deque()
        self.outcomes: list[Outcome] = []
        self.done = False
        self._settled = False
        self._read: set[int] = set()
        self._read_all = False
        self._lock = lock
        self._event: threading.Event | None = None
        self._callbacks: list[tuple[Callable[[Any], None], Any]] = []
        self._timestamps: npt.NDArray[np.int64] | None = None

    # --- sending side -------------------------------------------------------------------------------------
    def columns(self) -> pa.Table:
        """The records as columns value, key, headers, timestamp, partition; those that are all null are left out."""
        if self.table is None:
            self.table = _table_of(self.rows)
            self.rows = []
            self._timestamps = self.table["timestamp"].chunk(0).cast(pa.int64()).to_numpy()
        return self.table

    def start_sending(self) -> None:
        # First of all: should the rows not become columns, they are still there to fail.
        if self.count:
            self.pending.append((0, self.count))
        self.columns()

    def landed(self, outcome: Landed) -> None:
        self.outcomes.append(outcome)

    def failed(self, start: int, stop: int, error: SiltlogError) -> None:
        records = None if self.table is None else self.table.slice(start, stop - start)
        self.outcomes.append(Failed(start, stop, error, records))

    def fail_pending(self, error: SiltlogError) -> None:
        for start, stop in self.pending:
            self.failed(start, stop, error)
        self.pending.clear()

    def finish(self) -> None:
        """Makes the outcomes known; callbacks run on the calling thread, which must not hold the lock.

        They run before anybody who waits goes on, so that a flush knows which errors they have read.
        """
        self.outcomes.sort(key=lambda outcome: outcome.start)
        self.table = None
        with self._lock:
            self.done = True
            callbacks, self._callbacks = self._callbacks, []
        for callback, delivery in callbacks:
            try:
                callback(delivery)
            except Exception:
                _log.exception("a delivery callback failed")
        with self._lock:
            self._settled = True
            if self._event is not None:
                self._event.set()

    # --- waiting side -------------------------------------------------------------------------------------
    def wait(self, timeout: float | None) -> bool:
        with self._lock:
            if self._settled:
                return True
            if self._event is None:
                self._event = threading.Event()
        return self._event.wait(timeout)

    def when_done(self, callback: Callable[[Any], None], delivery: Any) -> None:
        with self._lock:
            if not self.done:
                self._callbacks.append((callback, delivery))
                return
        callback(delivery)

    def outcome_of(self, index: int) -> Outcome:
        return self.outcomes[bisect_right(self.outcomes, index, key=lambda outcome: outcome.start) - 1]

    def metadata(self, index: int) -> RecordMetadata:
        """Of a row whose outcome is `Landed`."""
        outcome = self.outcome_of(index)
        assert isinstance(outcome, Landed) and self._timestamps is not None
        row = index - outcome.start
        if outcome.partition is None or outcome.rank is None:
            part, rank = outcome.parts[0], row
        else:
            number = int(outcome.partition[row])
            part = next(part for part in outcome.parts if part.partition == number)
            rank = int(outcome.rank[row])
        offset = None if part.first_offset is None else part.first_offset + rank
        return RecordMetadata(self.topic, part.partition, offset, datetime_of(int(self._timestamps[index])))

    def error(self, index: int) -> SiltlogError | None:
        """Why the row did not arrive, to be raised by whoever asks: each asker gets its own copy. It counts as read."""
        outcome = self.outcome_of(index)
        if isinstance(outcome, Landed):
            return None
        with self._lock:
            self._read.add(index)
        return copy(outcome.error)

    def unread_failures(self) -> list[Failed]:
        """What failed and nobody has been told yet; from now on it counts as told."""
        with self._lock:
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


def _table_of(rows: list[Row]) -> pa.Table:
    values, keys, headers, timestamps, partitions = zip(*rows, strict=True)
    columns = {
        "value": pa.array(values, pa.binary()),
        "key": pa.array(keys, pa.binary()),
        "headers": pa.array(headers, HEADERS) if any(headers) else None,
        "timestamp": pa.array(np.array(timestamps, np.int64)).cast(TIMESTAMP),
        "partition": pa.array(partitions, pa.int32()),
    }
    return pa.table(
        {
            name: column
            for name, column in columns.items()
            if column is not None and (name == "value" or column.null_count < len(column))
        }
    )
