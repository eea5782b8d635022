"""Plans which partitions of a topic to rid of superseded records, and which of their files to write anew: values only.

A record is superseded by a later one with its key. What lies below the *horizon* of a partition is looked through as a
whole, because a key's records may be anywhere in it; what is written at a time is bounded.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import NamedTuple

from siltlog.infra import delta_names
from siltlog.infra.settings.topic_config import TopicConfig
from siltlog.infra.table.data_file import DataFile
from siltlog.infra.table.snapshot import TableSnapshot
from siltlog.infra.table.totals import Kept
from siltlog.pipelines.compaction.plan import (
    CHUNK_SCANS_MAX,
    MIB,
    Chunk,
    Limits,
    Merge,
    Period,
    check_order,
    periods_of,
)

PASS_PARTITIONS_MAX = 16
"""Partitions that are looked through together, in one query with a scan for each."""
PASS_BYTES_MAX = 1024 * MIB
"""Bytes of partitions that are looked through together; a larger one is looked through by itself."""
CLEAN_PARTS = 4
"""A partition is due when it has a part of what was compacted before that came since: else each new record would have
everything before it read again."""
SMALL_BYTES = 64 * MIB
"""A partition that is no larger is due with the first new record."""
CHUNK_WORDS_MAX = 4 * 1024 * 1024
"""Words of the map of records that stay, sent by one query to every executor: 16 bytes for 64 neighbouring offsets."""


SEARCH_BYTES_MAX = 512 * MIB
"""Memory to find the last of each key of one partition in: of 5,000,000 records with keys of 25 bytes."""
SEARCH_ROW_BYTES = 48
"""Bytes in memory of each record beside its key, which is there twice while keys are compared."""


@dataclass(frozen=True, slots=True)
class KeyRange:
    """The part of one partition that is looked through: offsets from `start` to below `end`."""

    partition: int
    start: int
    """The log start: what lies below it goes with the file it is in."""
    end: int
    """Records at and above it stay, and supersede nothing yet."""
    last: int
    """The record at the end of the partition always stays."""
    expired_below: int
    """A tombstone below it has been the last of its key for long enough."""
    files: tuple[DataFile, ...]
    """All that have an offset below `end`, ascending."""

    @property
    def size_bytes(self) -> int:
        return sum(file.size_bytes for file in self.files)

    @property
    def rows(self) -> int:
        return sum(file.rows for file in self.files)


class KeptFile(NamedTuple):
    """How many records of one file stay."""

    kept: Kept
    words: int
    """How many words of the map of records that stay are of this file."""


def compacts_keys(config: TopicConfig) -> bool:
    return "compact" in str(config["cleanup.policy"]).split(",")


def fits_in_memory(rows: int, key_bytes: int) -> bool:
    """Whether the last of each key among `rows` records, whose keys take `key_bytes`, is found in memory."""
    return rows * SEARCH_ROW_BYTES + 2 * key_bytes <= SEARCH_BYTES_MAX


def first_too_young(snapshot: TableSnapshot, config: TopicConfig, now_ms: int) -> dict[int, DataFile]:
    """Finds by partition the first file with a record younger than `min.compaction.lag.ms`; none without that
    setting."""
    lag_ms = config.integer("min.compaction.lag.ms")
    if not lag_ms:
        return {}
    young_us = (now_ms - lag_ms) * 1000
    found = {}
    for partition in range(snapshot.partitions):
        for file in snapshot.files_of(partition):
            if file.max_timestamp_us > young_us:
                found[partition] = file
                break
    return found


def plan(
    snapshot: TableSnapshot, config: TopicConfig, now_ms: int, horizons: Mapping[int, int]
) -> tuple[tuple[KeyRange, ...], ...]:
    """Passes: the partitions that are due at `snapshot`, those looked through together in one tuple.

    `horizons` says for a partition how far it may be compacted, its table offset where it is absent. Raises CorruptData
    when files of a partition overlap.
    """
    if snapshot.deleted or not compacts_keys(config):
        return ()
    ranges = [
        found
        for partition in range(snapshot.partitions)
        if (found := _range(snapshot, config, now_ms, partition, horizons.get(partition))) is not None
    ]
    return tuple(_passes(ranges))


def may_be_due(snapshot: TableSnapshot, config: TopicConfig, now_ms: int) -> frozenset[int]:
    """Partitions that are due as far as the list of files says: a horizon may leave fewer."""
    return frozenset(found.partition for ranges in plan(snapshot, config, now_ms, {}) for found in ranges)


def _range(
    snapshot: TableSnapshot, config: TopicConfig, now_ms: int, partition: int, horizon: int | None
) -> KeyRange | None:
    files = snapshot.files_of(partition)
    table_offset = snapshot.offsets[partition]
    end = table_offset if horizon is None else min(horizon, table_offset)
    within = tuple(file for file in files if file.first_offset < end)
    if not within:
        return None
    check_order(files)
    marks = snapshot.transactions
    compacted = marks.get(delta_names.txn_compacted(partition), 0)
    dirty_bytes = sum(_bytes_between(file, compacted, end) for file in within)
    clean_bytes = sum(_bytes_between(file, 0, min(compacted, end)) for file in within)
    tombstones = marks.get(delta_names.txn_tombstones(partition), 0)
    since_ms = marks.get(delta_names.txn_tombstones_since(partition), 0)
    expired = tombstones > 0 and now_ms >= since_ms + config.integer("delete.retention.ms")
    small = dirty_bytes + clean_bytes <= SMALL_BYTES
    if not expired and (dirty_bytes == 0 or (not small and dirty_bytes * CLEAN_PARTS < clean_bytes)):
        return None
    return KeyRange(
        partition=partition,
        start=snapshot.starts[partition],
        end=end,
        last=files[-1].last_offset,
        expired_below=min(tombstones, end) if expired else 0,
        files=within,
    )


def _bytes_between(file: DataFile, first: int, end: int) -> int:
    """Estimates the bytes of a file at the offsets from `first` to below `end`, by their share, rounded up."""
    offsets = min(file.last_offset + 1, end) - max(file.first_offset, first)
    return -(-file.size_bytes * max(0, offsets) // (file.last_offset + 1 - file.first_offset))


def _passes(ranges: Sequence[KeyRange]) -> Iterator[tuple[KeyRange, ...]]:
    gathered: list[KeyRange] = []
    size = 0
    for found in ranges:
        if gathered and (size + found.size_bytes > PASS_BYTES_MAX or len(gathered) == PASS_PARTITIONS_MAX):
            yield tuple(gathered)
            gathered, size = [], 0
        gathered.append(found)
        size += found.size_bytes
    if gathered:
        yield tuple(gathered)


def rewrites(
    ranges: Sequence[KeyRange], kept: Mapping[str, KeptFile], config: TopicConfig, now_ms: int, limits: Limits
) -> tuple[Chunk, ...]:
    """Plans what to write anew: every file that loses a record, and small neighbours. `kept` is by path.

    Chunks are in the order in which they must be committed: of each partition from its lowest offset on, so that a
    tombstone never goes before what it stands for.
    """
    limits = limits.within(config)
    by_partition = [list(_merges(found, kept, config, now_ms, limits)) for found in ranges]
    chunks: list[Chunk] = []
    merges: list[Merge] = []
    words = 0
    for layer in zip_longest(*by_partition):
        for merge in layer:
            if merge is None:
                continue
            size = sum(kept[file.path].words for file in merge.files)
            full = (
                len(merges) == CHUNK_SCANS_MAX
                or sum(other.size_bytes for other in merges) + merge.size_bytes > limits.chunk_bytes_max
                or sum(len(other.files) for other in merges) + len(merge.files) > limits.chunk_files_max
                or words + size > CHUNK_WORDS_MAX
            )
            if merges and full:
                chunks.append(Chunk(tuple(merges)))
                merges, words = [], 0
            merges.append(merge)
            words += size
    if merges:
        chunks.append(Chunk(tuple(merges)))
    return tuple(chunks)


def _merges(
    found: KeyRange, kept: Mapping[str, KeptFile], config: TopicConfig, now_ms: int, limits: Limits
) -> Iterator[Merge]:
    """Neighbours that together become a file of the target's size at most."""
    run: list[DataFile] = []
    stays_bytes = words = 0
    run_period: Period | None = None

    def loses(files: Sequence[DataFile]) -> bool:
        return any(kept[file.path].kept.rows < file.rows for file in files)

    for file, period in zip(found.files, periods_of(found.files, config, now_ms), strict=True):
        rows, file_words = kept[file.path].kept.rows, kept[file.path].words
        file_bytes = -(-file.size_bytes * rows // file.rows)
        whole_and_big = rows == file.rows and file.size_bytes >= limits.big_bytes
        full = run and (
            period != run_period
            or stays_bytes + file_bytes > limits.file_bytes_target
            or sum(each.size_bytes for each in run) + file.size_bytes > limits.chunk_bytes_max
            or len(run) == limits.chunk_files_max
            or words + file_words > CHUNK_WORDS_MAX
        )
        if full or whole_and_big:
            if loses(run):
                yield Merge(found.partition, tuple(run))
            run, stays_bytes, words = [], 0, 0
        if not whole_and_big:
            run.append(file)
            stays_bytes += file_bytes
            words += file_words
            run_period = period
    if loses(run):
        yield Merge(found.partition, tuple(run))
