"""Tells which partition a key belongs to: the same number in the server, the clients and Spark, or in Kafka's clients.

`pmod(xxhash64(key), n)` of Spark SQL is XXH64 with seed 42, read as a signed 64-bit integer, modulo n (mathematical,
never negative). Kafka's default partitioner is MurmurHash2, its sign bit cleared, modulo n.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import xxhash

from siltlog.infra.arrow import murmur2
from siltlog.infra.arrow.arrays import numbers_of, validity_of

HASH_SEED = 42
_WRAP = 1 << 64
_SIGN = 1 << 63
_POSITIVE = 0x7FFFFFFF
Hashes = npt.NDArray[np.int64]


class PlacedBy(NamedTuple):
    """Says how a client has placed keys: among how many partitions, and by which partitioner."""

    partitions: int
    partitioner: str = "xxhash64"


class Partitioner:
    """Places keys by one hash."""

    def __init__(
        self, name: str, key_hash: Callable[[bytes], int], hashes: Callable[[Sequence[bytes | None]], Hashes]
    ) -> None:
        """`hashes` are those of many keys, whatever it gives for None; shape (n,)."""
        self.name = name
        self._key_hash = key_hash
        self._hashes = hashes

    def partition_of(self, key: bytes, partitions: int) -> int:
        """The partition in [0, partitions) that `key` belongs to."""
        return self._key_hash(key) % partitions

    def partitions_of(self, keys: pa.Array, partitions: int, keyless: int) -> npt.NDArray[np.int32]:
        """The partition of each of `keys` (binary or string, length n), `keyless` where the key is null; shape (n,).

        Each distinct key is hashed once.
        """
        encoded = keys if pa.types.is_dictionary(keys.type) else keys.dictionary_encode()
        distinct = encoded.dictionary.cast(pa.binary()).to_pylist()
        by_code = self.partitions_of_distinct([*distinct, None], partitions, keyless)
        indices = encoded.indices
        codes = numbers_of(indices, indices.type.to_pandas_dtype())
        if indices.null_count:
            codes = np.where(validity_of(indices), codes, len(distinct))
        partitions_out: npt.NDArray[np.int32] = by_code[codes]
        return partitions_out

    def partitions_of_distinct(
        self, keys: Sequence[bytes | None], partitions: int, keyless: int
    ) -> npt.NDArray[np.int32]:
        """Does what `partitions_of` does, and hashes every key."""
        found = (self._hashes(keys) % partitions).astype(np.int32)
        if None in keys:
            found[[key is None for key in keys]] = keyless
        return found


def key_hash(key: bytes) -> int:
    """XXH64 of `key` with seed 42 as a signed 64-bit integer."""
    value: int = xxhash.xxh64_intdigest(key, HASH_SEED)
    return value - _WRAP if value >= _SIGN else value


def _xxhash64s(keys: Sequence[bytes | None]) -> Hashes:
    hashes = np.array([xxhash.xxh64_intdigest(key or b"", HASH_SEED) for key in keys], np.uint64)
    return hashes.view(np.int64)


def _murmur2(key: bytes) -> int:
    return murmur2.key_hash(key) & _POSITIVE


def _murmur2s(keys: Sequence[bytes | None]) -> Hashes:
    column = pa.array([key or b"" for key in keys], pa.binary())
    return murmur2.hashes_of(column).astype(np.int64) & _POSITIVE


XXHASH64 = Partitioner("xxhash64", key_hash, _xxhash64s)
MURMUR2 = Partitioner("murmur2", _murmur2, _murmur2s)
PARTITIONERS: Mapping[str, Partitioner] = {each.name: each for each in (XXHASH64, MURMUR2)}
"""By what topics call them in their setting `partitioner`."""
partition_of = XXHASH64.partition_of
"""By the partitioner that a topic has where nobody says."""
