"""MurmurHash2 of 32 bits, as Kafka's Java client has it."""

from struct import Struct

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from siltlog.infra.arrow.arrays import binary_values

SEED = 0x9747B28C
_MIX = 0x5BD1E995
_SHIFT = 24
_MASK = 0xFFFFFFFF
_WORD_BYTES = 4
FEW = 16
"""So few keys are hashed one by one, and so the longest of many: numpy takes a round for each word."""


def key_hash(key: bytes) -> int:
    """The hash in [0, 2^32)."""
    count = len(key) // _WORD_BYTES
    hashed = SEED ^ len(key)
    for word in Struct(f"<{count}I").unpack_from(key):
        word = word * _MIX & _MASK
        word = (word ^ word >> _SHIFT) * _MIX & _MASK
        hashed = hashed * _MIX & _MASK ^ word
    if rest := key[count * _WORD_BYTES :]:
        hashed = (hashed ^ int.from_bytes(rest, "little")) * _MIX & _MASK
    hashed = (hashed ^ hashed >> 13) * _MIX & _MASK
    return hashed ^ hashed >> 15


def hashes_of(keys: pa.Array) -> npt.NDArray[np.uint32]:
    """The hash of each of `keys` (binary, length n, no nulls); shape (n,)."""
    count = len(keys)
    if count <= FEW:
        return np.array([key_hash(key or b"") for key in binary_values(keys)], np.uint32)
    _, ends_buffer, data = keys.buffers()
    ends = np.frombuffer(ends_buffer, np.int32)[keys.offset : keys.offset + count + 1].astype(np.int64)
    content = np.zeros(int(ends[-1]) + _WORD_BYTES, np.uint8)
    if ends[-1]:
        content[: ends[-1]] = np.frombuffer(data, np.uint8)[: ends[-1]]
    # A word begins at every byte.
    words: npt.NDArray[np.uint32] = np.ndarray(len(content) - _WORD_BYTES + 1, "<u4", content, strides=(1,))
    at, left = ends[:-1].copy(), np.diff(ends)
    hashes = np.uint32(SEED) ^ left.astype(np.uint32)
    rows = np.flatnonzero(left >= _WORD_BYTES)
    while len(rows) > FEW:
        hashes[rows] = hashes[rows] * np.uint32(_MIX) ^ _mixed(words[at[rows]])
        at[rows] += _WORD_BYTES
        left[rows] -= _WORD_BYTES
        rows = rows[left[rows] >= _WORD_BYTES]
    ending = np.flatnonzero((left > 0) & (left < _WORD_BYTES))
    rest = words[at[ending]] & ((np.uint32(1) << (8 * left[ending]).astype(np.uint32)) - np.uint32(1))
    hashes[ending] = (hashes[ending] ^ rest) * np.uint32(_MIX)
    hashes = (hashes ^ hashes >> np.uint32(13)) * np.uint32(_MIX)
    hashes ^= hashes >> np.uint32(15)
    for row in rows.tolist():
        hashes[row] = key_hash(content[ends[row] : ends[row + 1]].tobytes())
    return hashes


def _mixed(words: npt.NDArray[np.uint32]) -> npt.NDArray[np.uint32]:
    words = words * np.uint32(_MIX)
    return (words ^ words >> np.uint32(_SHIFT)) * np.uint32(_MIX)
