"""Tells which partition a key belongs to: the same number in the server, the clients and Spark.

`pmod(xxhash64(key), n)` of Spark SQL is XXH64 with seed 42, read as a signed 64-bit integer, modulo n
(mathematical, never negative).
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import xxhash

from siltlog.infra.arrow.arrays import numbers_of, validity_of

HASH_SEED = 42
_WRAP = 1 << 64
_SIGN = 1 << 63


def key_hash(key: bytes) -> int:
    """XXH64 of `key` with seed 42 as a signed 64-bit integer."""
    value: int = xxhash.xxh64_intdigest(key, HASH_SEED)
    return value - _WRAP if value >= _SIGN else value


def partition_of(key: bytes, partitions: int) -> int:
    """The partition in [0, partitions) that `key` belongs to."""
    return key_hash(key) % partitions


def partitions_of(keys: pa.Array, partitions: int, keyless: int) -> npt.NDArray[np.int32]:
    """The partition of each of `keys` (binary or string, length n), `keyless` where the key is null; shape (n,).

    Each distinct key is hashed once.
    """
    encoded = keys if pa.types.is_dictionary(keys.type) else keys.dictionary_encode()
    distinct = encoded.dictionary.cast(pa.binary()).to_pylist()
    by_code = partitions_of_distinct([*distinct, None], partitions, keyless)
    indices = encoded.indices
    codes = numbers_of(indices, indices.type.to_pandas_dtype())
    if indices.null_count:
        codes = np.where(validity_of(indices), codes, len(distinct))
    partitions_out: npt.NDArray[np.int32] = by_code[codes]
    return partitions_out


def partitions_of_distinct(keys: Sequence[bytes | None], partitions: int, keyless: int) -> npt.NDArray[np.int32]:
    """Does what `partitions_of` does, and hashes every key."""
    hashes = np.array([xxhash.xxh64_intdigest(key or b"", HASH_SEED) for key in keys], np.uint64)
    found = (hashes.view(np.int64) % partitions).astype(np.int32)
    if None in keys:
        found[[key is None for key in keys]] = keyless
    return found
