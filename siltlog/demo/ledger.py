"""Ledgers: which record is at which offset, as columns. They compare what was acknowledged with what was read."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from siltlog.infra.arrow.partitioner import key_hash

Integers = npt.NDArray[np.int64]
_PARTITION_SHIFT = 48
"""Offsets are far below 2^48, so partition and offset fit in one integer."""


def value_hashes(values: Sequence[bytes]) -> Integers:
    """XXH64 (seed 42) of each value, shape (n,): the number that Spark's `xxhash64(value)` gives."""
    return np.fromiter(map(key_hash, values), dtype=np.int64, count=len(values))


@dataclass(frozen=True, slots=True)
class Ledger:
    """One entry per record; three columns of shape (n,)."""

    partitions: Integers
    offsets: Integers
    hashes: Integers

    def __len__(self) -> int:
        return len(self.offsets)

    @property
    def places(self) -> Integers:
        """Partition and offset as one integer, shape (n,)."""
        return (self.partitions << _PARTITION_SHIFT) | self.offsets

    @property
    def distinct(self) -> int:
        """Number of different (partition, offset)."""
        return len(np.unique(self.places))

    @property
    def hash_sum(self) -> int:
        """Sum of all hashes, exact."""
        return sum(self.hashes.tolist())

    @property
    def first_times(self) -> "Ledger":
        """The ledger without what repeats a (partition, offset), in the same order."""
        chosen = np.sort(np.unique(self.places, return_index=True)[1])
        return Ledger(self.partitions[chosen], self.offsets[chosen], self.hashes[chosen])

    def shifted(self, partitions: int) -> "Ledger":
        """Gives the ledger with other numbers of partitions, so that one ledger has several topics."""
        return Ledger(self.partitions + partitions, self.offsets, self.hashes)

    @classmethod
    def concat(cls, parts: Sequence["Ledger"]) -> "Ledger":
        empty = np.empty(0, dtype=np.int64)
        return cls(
            np.concatenate([empty, *(part.partitions for part in parts)]),
            np.concatenate([empty, *(part.offsets for part in parts)]),
            np.concatenate([empty, *(part.hashes for part in parts)]),
        )


@dataclass(frozen=True, slots=True)
class Comparison:
    """How what was read differs from what was acknowledged, in distinct (partition, offset)."""

    missing: int
    """acknowledged, never read"""
    unknown: int
    """read, never acknowledged"""
    altered: int
    """read with other bytes than were published"""
    repeated: int
    """read more than once"""


def compare(acknowledged: Ledger, read: Ledger) -> Comparison:
    """`read` in the order of reading. Repeats are allowed: a group delivers at least once."""
    written_places, first_written = np.unique(acknowledged.places, return_index=True)
    read_places, first_read = np.unique(read.places, return_index=True)
    both, in_written, in_read = np.intersect1d(written_places, read_places, assume_unique=True, return_indices=True)
    written_hashes = acknowledged.hashes[first_written][in_written]
    read_hashes = read.hashes[first_read][in_read]
    return Comparison(
        missing=len(written_places) - len(both),
        unknown=len(read_places) - len(both),
        altered=int(np.count_nonzero(written_hashes != read_hashes)),
        repeated=len(read) - len(read_places),
    )


def out_of_order(sent: Ledger) -> int:
    """How many records of `sent`, in the order of sending by one producer, got no higher offset than the one before
    them in their partition."""
    by_partition = np.argsort(sent.partitions, kind="stable")
    partitions, offsets = sent.partitions[by_partition], sent.offsets[by_partition]
    same = partitions[1:] == partitions[:-1]
    return int(np.count_nonzero(same & (offsets[1:] <= offsets[:-1])))
