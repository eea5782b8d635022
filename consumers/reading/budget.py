"""How much of what is there one reply takes: records and bytes, counted from Arrow's own offsets."""

from struct import Struct

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from siltlog.infra.columns import RECORD_SCHEMA
from siltlog.infra.http.memory import SMALL_BYTES, Held
from siltlog.infra.records import SentBatch

RECORD_BYTES = 20
"""Bytes that a record counts beside its key, value and headers, for its partition, offset and timestamp."""

REPLY_COPIES = 2
"""Records of a reply are in memory as they were read, and as they are sent."""

RECORD_COLUMNS = len(RECORD_SCHEMA)
_INT32 = Struct("=i")

HEAD_MARGIN = 9 / 8
"""A head is asked for so many times what a reply takes of it: it counts bytes by another measure, and is asked once."""

SENT_BATCHES_MAX = 8
"""So many batches of a partition are given as they were sent, and more are joined."""
READ_RECORDS_MAX = 500
"""The most records of one read for a stream, whose reader takes them as they come."""
READ_BYTES_MAX = 256 * 1024
"""The most bytes of one; a single record may be larger."""


def record_ends(batch: pa.RecordBatch) -> npt.NDArray[np.int64]:
    """Bytes of the first 1, 2, ... records of a batch of RECORD_SCHEMA or PRODUCED_SCHEMA; shape (rows,)."""
    ends = np.arange(1, batch.num_rows + 1, dtype=np.int64) * RECORD_BYTES
    for name in ("key", "value"):
        column = batch.column(name)
        if column.null_count < len(column):
            ends += _value_ends(column)
    if batch.num_columns > RECORD_COLUMNS:
        ends += _value_ends(batch.column("producer_id"))
    headers = batch.column("headers")
    if headers.null_count < len(headers):
        # Null lists may span values that do not count; flatten() and its lengths leave them out.
        pairs = headers.flatten()
        pair_ends = _value_ends(pairs.field("key")) + _value_ends(pairs.field("value"))
        lengths = pc.fill_null(pc.list_value_length(headers), 0).to_numpy(zero_copy_only=False)
        ends += np.concatenate((np.zeros(1, np.int64), pair_ends))[np.cumsum(lengths, dtype=np.int64)]
    return ends


def _value_ends(column: pa.Array) -> npt.NDArray[np.int64]:
    """Running sum of the lengths of a binary or string column; shape (n,)."""
    offsets = column.buffers()[1]
    if offsets is None or offsets.size == 0:
        return np.zeros(len(column), np.int64)
    every = np.frombuffer(offsets, np.int32, len(column) + 1, column.offset * _INT32.size)
    return every[1:].astype(np.int64) - int(every[0])


def _has_more(batch: pa.RecordBatch) -> bool:
    """Whether records have something that counts beside keys and values."""
    headers = batch.column("headers")
    return bool(batch.num_columns > RECORD_COLUMNS or headers.null_count < len(headers))


def _plain_bytes(batch: pa.RecordBatch) -> int:
    """The last of the `record_ends` of records that have no more than keys and values: of a few it is known sooner."""
    nbytes: int = batch.num_rows * RECORD_BYTES
    for name in ("key", "value"):
        column = batch.column(name)
        offsets = column.buffers()[1]
        if column.null_count < len(column) and offsets is not None and offsets.size:
            first, end = column.offset, column.offset + len(column)
            [before], [last] = (_INT32.unpack_from(offsets, at * _INT32.size) for at in (first, end))
            nbytes += last - before
    return nbytes


class Budget:
    """The records and bytes left for one reply, and how many of them the partition that is being read may take.

    The first record of a reply is always taken, whatever it weighs: a reader must be able to go on.
    """

    def __init__(self, max_records: int, max_bytes: int, held: Held | None = None) -> None:
        """Counts what is taken in `held` too: where memory is nearly full, a reply has less in it."""
        self._held = held
        self.records_left = max_records
        self.bytes_left = max_bytes
        self.bytes_taken = 0
        self.spent = False
        """Nothing more may be taken for this reply."""

    def take(self, batch: pa.RecordBatch, share: "Share", ends: npt.NDArray[np.int64] | None = None) -> pa.RecordBatch:
        """The longest prefix of `batch` that fits; when that is not all of it, the share or the budget is spent.

        `ends` are its `record_ends`, where they are known already.
        Raises Unavailable `overloaded` when there is no memory even for one record.
        """
        wanted = min(batch.num_rows, self.records_left)
        if wanted == 0:
            return batch.slice(0, 0)
        if ends is None and _has_more(batch):
            ends = record_ends(batch)
        room = _bytes_left(self, share)
        if self._held is not None:
            room = min(room, max(self._held.room(), SMALL_BYTES) // REPLY_COPIES)
        share_is_less = share.bytes_left is not None and room == share.bytes_left < self.bytes_left
        count, nbytes = batch.num_rows, _plain_bytes(batch) if ends is None else int(ends[-1])
        if count > wanted or nbytes > room:
            ends = record_ends(batch) if ends is None else ends
            count = min(int(np.searchsorted(ends, room, side="right")), wanted)
            if count == 0 and (self.bytes_taken == 0 or (share.bytes_taken == 0 and ends[0] <= self.bytes_left)):
                count = 1
            nbytes = int(ends[count - 1]) if count else 0
        if self._held is not None:
            self._held.take(nbytes * REPLY_COPIES)
        self._took(count, nbytes, share)
        self.spent = self.spent or (count < wanted and not share_is_less)
        share.spent = share.spent or (count < wanted and share_is_less)
        return batch if count == batch.num_rows else batch.slice(0, count)

    def take_sent(self, batch: SentBatch, share: "Share") -> bool:
        """Takes a batch as it was sent, where it fits whole."""
        if batch.num_rows > self.records_left or batch.nbytes > _bytes_left(self, share):
            return False
        if self._held is not None:
            if len(batch.data) * REPLY_COPIES > self._held.room():
                return False
            self._held.take(len(batch.data) * REPLY_COPIES)
        share.sent_left -= 1
        self._took(batch.num_rows, batch.nbytes, share)
        return True

    def _took(self, count: int, nbytes: int, share: "Share") -> None:
        self.records_left -= count
        self.bytes_left -= nbytes
        self.bytes_taken += nbytes
        share.took(nbytes)
        self.spent = self.records_left == 0 or self.bytes_left <= 0


class Share:
    """One partition's part of a budget; `max_bytes` None: all that is left."""

    def __init__(self, max_bytes: int | None = None) -> None:
        self.bytes_left = max_bytes
        self.bytes_taken = 0
        self.spent = False
        self.sent_left = SENT_BATCHES_MAX

    def took(self, nbytes: int) -> None:
        self.bytes_taken += nbytes
        if self.bytes_left is not None:
            self.bytes_left -= nbytes
            self.spent = self.spent or self.bytes_left <= 0


def head_bytes(budget: Budget, share: Share) -> int:
    """How many bytes a head is asked for."""
    return int(_bytes_left(budget, share) * HEAD_MARGIN) + 1


def _bytes_left(budget: Budget, share: Share) -> int:
    return budget.bytes_left if share.bytes_left is None else min(share.bytes_left, budget.bytes_left)
