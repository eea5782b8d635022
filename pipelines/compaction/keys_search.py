"""The last record of each key, found in the memory of this process, where the keys of a partition fit there.

It takes a small part of the processor time of Spark's query (`keys_query.py`): no shuffle, and no hash map of keys.
"""

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from siltlog.infra.arrow.arrays import fixed_array, validity_of
from siltlog.infra.arrow.latest import is_latest
from siltlog.infra.store.store import ObjectStore
from siltlog.infra.table.data_file import row_groups
from siltlog.infra.table.totals import Kept
from siltlog.pipelines.compaction.keys_plan import KeptFile, KeyRange, fits_in_memory
from siltlog.pipelines.compaction.plan import Merge
from siltlog.pipelines.compaction.survivors import WORD_BITS, WORD_SHIFT, Survivors, check_seen

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SEARCHES_AT_ONCE = 2
"""Partitions whose keys are in memory at the same time."""

Bools = npt.NDArray[np.bool_]
Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class _Records:
    """What a search needs to know of each of n records, in their order."""

    offsets: Numbers
    keys: list[pa.Array]
    """Pieces of n rows together."""
    keyless: Bools
    tombstones: Bools


@dataclass(frozen=True, slots=True)
class _Found:
    """The records of one partition that stay."""

    words: Numbers
    """Ascending."""
    kept: Numbers
    """A word of bits beside each of `words`, one for each record."""
    files: dict[str, KeptFile]
    tombstones: int


def search(
    spark: "SparkSession", store: ObjectStore, topic: str, ranges: Sequence[KeyRange]
) -> tuple[Survivors, list[KeyRange]]:
    """The records that stay, and the ranges that are too large to tell.

    Raises CorruptData when a file is damaged or others are in it than the log says, Unavailable.
    """
    with ThreadPoolExecutor(min(SEARCHES_AT_ONCE, os.cpu_count() or 1)) as pool:
        each = list(pool.map(lambda found: _search(store, topic, found), ranges))
    known = {found.partition: one for found, one in zip(ranges, each, strict=True) if one is not None}

    def words(merge: Merge) -> "DataFrame":
        found = known[merge.partition]
        first, last = merge.first_offset >> WORD_SHIFT, merge.last_offset >> WORD_SHIFT
        start, end = np.searchsorted(found.words, [first, last + 1])
        columns = {"word": found.words[start:end], "kept": found.kept[start:end]}
        return spark.createDataFrame(pa.table({name: fixed_array(c, pa.int64()) for name, c in columns.items()}))

    files = {path: kept for one in known.values() for path, kept in one.files.items()}
    tombstones = {partition: one.tombstones for partition, one in known.items()}
    return Survivors(words, files, tombstones), [found for found in ranges if found.partition not in known]


def _search(store: ObjectStore, topic: str, found: KeyRange) -> _Found | None:
    """None when the keys do not fit in memory."""
    records = _read(store, topic, found)
    if records is None:
        return None
    check_seen(topic, [found], {found.partition: len(records.offsets)})
    offsets, tombstones = records.offsets, records.tombstones
    start, end = np.searchsorted(offsets, [found.start, found.end])
    stays = offsets >= found.start
    stays[start:end] = is_latest(_between(records.keys, int(start), int(end)))
    # The record at the end stays whatever it is; what lies above `end` is nothing's successor.
    waiting = tombstones & (offsets != found.last)
    stays &= ~(waiting & (offsets < found.expired_below))
    words, kept = _packed(offsets[stays])
    files = {}
    position = 0
    for file in found.files:
        part = slice(position, position + file.rows)
        of_file = offsets[part][stays[part]]
        base = file.first_offset
        total = int((of_file - base).sum()) + base * len(of_file)
        keyless = int(np.count_nonzero(records.keyless[part] & stays[part]))
        file_words = len(_starts(of_file >> WORD_SHIFT))
        files[file.path] = KeptFile(Kept(len(of_file), total, keyless, found.end), file_words)
        position += file.rows
    return _Found(words, kept, files, int(np.count_nonzero(waiting & stays)))


def _read(store: ObjectStore, topic: str, found: KeyRange) -> _Records | None:
    """Reads keys, and values where tombstones may go; None as soon as it is too much."""
    if not fits_in_memory(found.rows, 0):
        return None
    columns = ["offset", "key", *(["value"] if found.expired_below else [])]
    offsets: list[Numbers] = []
    keys: list[pa.Array] = []
    keyless: list[Bools] = []
    tombstones: list[Bools] = []
    key_bytes = 0
    for group in (each for file in found.files for each in row_groups(store, topic, file, columns=columns)):
        key = group.column("key").combine_chunks()
        key_bytes += key.nbytes
        if not fits_in_memory(found.rows, key_bytes):
            return None
        offsets.append(group.column("offset").to_numpy())
        keys.append(key)
        keyless.append(~validity_of(key))
        if found.expired_below:
            tombstones.append(group.column("value").is_null().to_numpy() & ~keyless[-1])
        else:
            tombstones.append(np.zeros(len(key), np.bool_))
    return _Records(np.concatenate(offsets), keys, np.concatenate(keyless), np.concatenate(tombstones))


def _between(pieces: Sequence[pa.Array], start: int, end: int) -> list[pa.Array]:
    """The rows from `start` to below `end` of all pieces."""
    out = []
    position = 0
    for piece in pieces:
        first, last = max(start - position, 0), min(end - position, len(piece))
        if first < last:
            out.append(piece.slice(first, last - first))
        position += len(piece)
    return out


def _packed(offsets: Numbers) -> tuple[Numbers, Numbers]:
    """The words that ascending `offsets` lie in, and of each its bits."""
    words = offsets >> WORD_SHIFT
    starts = _starts(words)
    if not len(starts):
        return words, words
    bits = np.uint64(1) << (offsets & (WORD_BITS - 1)).astype(np.uint64)
    return words[starts], np.bitwise_or.reduceat(bits, starts).view(np.int64)


def _starts(ascending: Numbers) -> Numbers:
    """Where each distinct value begins."""
    return np.flatnonzero(np.append(True, ascending[1:] != ascending[:-1])[: len(ascending)])
