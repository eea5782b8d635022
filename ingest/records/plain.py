"""Records of nothing but a value and perhaps a key, one by one.

To put them in another order, each is joined in that order: half the work of taking them out of columns, which copies
every byte once more.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from siltlog.infra.arrow.partitioner import Partitioner

PLAIN_MAX = 8192
"""More are columns at once: a thread makes those, and the event loop would put these in order."""
_END_BYTES = 4
"""The bytes that an end takes in a column of bytes."""

Order = npt.NDArray[np.int64]
Text = bytes | msgspec.Raw


@dataclass(frozen=True, slots=True)
class Keys:
    """The keys of n records: each distinct one once (None: no key), and which of them each record has, shape (n,)."""

    distinct: list[bytes | None]
    codes: npt.NDArray[np.int32]

    def lengths(self) -> npt.NDArray[np.int32]:
        """The bytes of each record's key; shape (n,), 0 for none."""
        each = np.fromiter((len(key or b"") for key in self.distinct), np.int32, len(self.distinct))
        lengths: npt.NDArray[np.int32] = each[self.codes]
        return lengths

    def partitions(self, partitions: int, keyless: int, by: Partitioner) -> npt.NDArray[np.int32]:
        """The partition of each record, `keyless` where it has no key; shape (n,)."""
        targets: npt.NDArray[np.int32] = by.partitions_of_distinct(self.distinct, partitions, keyless)[self.codes]
        return targets

    def array(self, order: Order | None) -> pa.Array:
        """The keys as a column, in the order of the records or in `order` (indices of the records)."""
        ordered = self if order is None else Keys(self.distinct, self.codes[order])
        validity = None
        distinct = self.distinct
        if None in distinct:
            there = ordered.codes != distinct.index(None)
            validity = pa.py_buffer(np.packbits(there, bitorder="little"))
            distinct = [key or b"" for key in distinct]
        text = b"".join(map(distinct.__getitem__, ordered.codes.tolist()))  # type: ignore[arg-type]
        buffers = [validity, pa.py_buffer(ends_of(ordered.lengths())), pa.py_buffer(text)]
        return pa.Array.from_buffers(pa.binary(), len(ordered.codes), buffers)


@dataclass(frozen=True, slots=True)
class PlainRecords:
    """At least one record, at most PLAIN_MAX; a value is never null."""

    values: Sequence[Text]
    lengths: npt.NDArray[np.int32]
    """The bytes of each value; shape (n,)."""
    text: bytes
    """All values together."""
    keys: Keys | None

    @property
    def nbytes(self) -> int:
        """The bytes that values and keys take as columns."""
        count = len(self.values)
        nbytes = len(self.text) + _END_BYTES * count
        return nbytes if self.keys is None else nbytes + int(self.keys.lengths().sum()) + _END_BYTES * count

    def sizes(self) -> npt.NDArray[np.int64]:
        """The bytes of each record's value and key; shape (n,)."""
        sizes = self.lengths.astype(np.int64)
        return sizes if self.keys is None else sizes + self.keys.lengths()

    def columns(self, order: Order | None = None) -> tuple[pa.Array, pa.Array | None]:
        """Values and keys in the order of the records, or in `order` (indices of the records)."""
        lengths, text = self.lengths, self.text
        if order is not None:
            lengths = lengths[order]
            text = b"".join(map(self.values.__getitem__, order.tolist()))
        buffers = [None, pa.py_buffer(ends_of(lengths)), pa.py_buffer(text)]
        value = pa.Array.from_buffers(pa.binary(), len(lengths), buffers)
        return value, None if self.keys is None else self.keys.array(order)


def keys_of(keys: Sequence[str | bytes | None]) -> Keys | None:
    """None where no record has a key. Raises ValueError for text that has no UTF-8."""
    code_of = {key: code for code, key in enumerate(dict.fromkeys(keys))}
    if len(code_of) == 1 and None in code_of:
        return None
    codes = np.fromiter(map(code_of.__getitem__, keys), np.int32, len(keys))
    return Keys([key.encode() if isinstance(key, str) else key for key in code_of], codes)


def lengths_of(values: Sequence[Text]) -> npt.NDArray[np.int32]:
    """The bytes of each value; shape (n,)."""
    return np.fromiter(map(len, values), np.int32, len(values))


def ends_of(lengths: npt.NDArray[np.int32]) -> npt.NDArray[np.int32]:
    """Where each value begins in their text and the last one ends; shape (n + 1,)."""
    ends = np.zeros(len(lengths) + 1, np.int32)
    np.cumsum(lengths, out=ends[1:])
    return ends
