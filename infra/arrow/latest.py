"""Tells which rows are the last of their keys: exactly, in some 200 ns of processor time a row, in memory.

Hashes say which rows may have a key in common, by one sort of numbers. Only those are compared, by the keys themselves.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from siltlog.infra.arrow.arrays import BINARY_BYTES_MAX, numbers_of, validity_of

WORD_BYTES = 8
HASHED_ROWS = 32 * 1024
"""Rows that are hashed at a time: the numbers of so many stay in a processor's cache."""
COMPARED_ROWS = 128 * 1024
"""Keys that are gathered and compared at a time."""
_PRIMES = (np.uint64(0x9E3779B185EBCA87), np.uint64(0xC2B2AE3D27D4EB4F))
_HALF = np.uint64(32)
_MASKS = np.array([(1 << 8 * count) - 1 for count in range(WORD_BYTES + 1)], np.uint64)
"""The mask of the first n bytes of a word, at index n."""


def is_latest(pieces: Sequence[pa.Array]) -> npt.NDArray[np.bool_]:
    """Whether no later row of all `pieces` (binary, one after the other, n rows) has the key of a row; true where that
    is null; shape (n,).

    Takes some 40 bytes of memory a row, and those of the keys twice.
    """
    if not sum(map(len, pieces)):
        return np.ones(0, np.bool_)
    hashes = np.concatenate([hashes_of(piece) for piece in pieces])
    if sum(piece.nbytes for piece in pieces) > BINARY_BYTES_MAX:
        pieces = [piece.cast(pa.large_binary()) for piece in pieces]
    keys = pa.concat_arrays(list(pieces))
    rows, with_next = _doubtful(keys, hashes)
    latest = np.ones(len(keys), np.bool_)
    collided = _compare_neighbours(keys, rows, with_next, latest)
    if len(collided):
        groups = np.append(0, np.cumsum(~with_next[:-1]))
        among = np.sort(rows[np.isin(groups, groups[collided])])
        latest[among] = _latest_of(keys.take(pa.array(among)))
    return latest


def hashes_of(keys: pa.Array) -> npt.NDArray[np.uint64]:
    """64 bits for each of `keys` (binary, length n), the same for the same bytes; anything for a null; shape (n,)."""
    hashes = np.empty(len(keys), np.uint64)
    for start in range(0, len(keys), HASHED_ROWS):
        _hash(keys.slice(start, HASHED_ROWS), hashes[start : start + HASHED_ROWS])
    return hashes


def _hash(keys: pa.Array, out: npt.NDArray[np.uint64]) -> None:
    """Mixes in one word of every key, then one more of those that are longer, and so on."""
    _, ends_buffer, data = keys.buffers()
    ends = np.frombuffer(ends_buffer, np.int32)[keys.offset : keys.offset + len(keys) + 1].astype(np.int64)
    ends, first = ends - ends[0], ends[0]
    content = np.zeros(ends[-1] + WORD_BYTES, np.uint8)
    if ends[-1]:
        content[: ends[-1]] = np.frombuffer(data, np.uint8)[first : first + ends[-1]]
    # A word begins at every byte.
    words: npt.NDArray[np.uint64] = np.ndarray(len(content) - WORD_BYTES + 1, "<u8", content, strides=(1,))
    at, left = ends[:-1], np.diff(ends)
    out[:] = left.astype(np.uint64) * _PRIMES[1]
    rows: npt.NDArray[np.int64] | slice = slice(None)
    while len(at):
        word = words[at] & _MASKS[np.minimum(left, WORD_BYTES)]
        mixed = (out[rows] ^ word) * _PRIMES[0]
        out[rows] = (mixed ^ (mixed >> _HALF)) * _PRIMES[1]
        longer = np.flatnonzero(left > WORD_BYTES)
        rows = longer if isinstance(rows, slice) else rows[longer]
        at, left = at[longer] + WORD_BYTES, left[longer] - WORD_BYTES


def _doubtful(keys: pa.Array, hashes: npt.NDArray[np.uint64]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
    """The rows whose hash another has too, those of a hash side by side in their order; and whether the next has the
    same. `hashes` are used up.

    A hash gives up its last bits for the number of its row: numbers alone are sorted many times as fast.
    """
    bits = np.uint64(len(keys).bit_length())
    hashes >>= bits
    hashes <<= bits
    hashes |= np.arange(len(keys), dtype=np.uint64)
    if keys.null_count:
        hashes = hashes[validity_of(keys)]
    hashes.sort()
    same = np.append((hashes[1:] ^ hashes[:-1]) >> bits == 0, False)[: len(hashes)]
    doubtful = same.copy()
    doubtful[1:] |= same[:-1]
    rows = hashes[doubtful] & ((np.uint64(1) << bits) - np.uint64(1))
    return rows.view(np.int64), same[doubtful]


def _compare_neighbours(
    keys: pa.Array, rows: npt.NDArray[np.int64], with_next: npt.NDArray[np.bool_], latest: npt.NDArray[np.bool_]
) -> npt.NDArray[np.int64]:
    """Marks in `latest` the rows whose key the next one has; returns where the next has the same hash and another
    key."""
    collided = [np.zeros(0, np.int64)]
    for start in range(0, len(rows) - 1, COMPARED_ROWS):
        part = rows[start : start + COMPARED_ROWS + 1]
        taken = keys.take(pa.array(part))
        equal = pc.equal(taken[:-1], taken[1:]).to_numpy(zero_copy_only=False)
        asked = with_next[start : start + len(equal)]
        latest[part[:-1][asked & equal]] = False
        collided.append(start + np.flatnonzero(asked & ~equal))
    return np.concatenate(collided)


def _latest_of(keys: pa.Array) -> npt.NDArray[np.bool_]:
    """Whether no later one of `keys` (no nulls) is the same, whatever their hashes; shape (n,)."""
    codes = numbers_of(keys.dictionary_encode().indices, np.int32)
    last = np.zeros(codes.max() + 1, np.int64)
    np.maximum.at(last, codes, np.arange(len(keys)))
    latest = np.zeros(len(keys), np.bool_)
    latest[last] = True
    return latest
