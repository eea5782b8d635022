"""Plans which files of a topic to merge: values in, values out."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise, zip_longest

from siltlog.infra.errors import problem
from siltlog.infra.limits import FILE_BYTES_TARGET
from siltlog.infra.settings.topic_config import UNLIMITED, TopicConfig
from siltlog.infra.table.data_file import DataFile
from siltlog.infra.table.snapshot import TableSnapshot

LIVE_FILES_MAX = 2_500
"""While a table has more, plans go on being made: a server adds up to a hundred files a second."""
MIB = 1024 * 1024
CHUNK_BYTES_MAX = 1024 * MIB
CHUNK_FILES_MAX = 1_000
"""Both bounds make a chunk take minutes on two cores, so that little is lost when it is killed or raced."""
LEAD_FACTOR = 0.5
"""A file is merged with those after it only when it is at most this many times as large as all of them: so a record is
in a file three times as large each time that it is written anew, and not once more for each small file that comes."""
CHUNK_SCANS_MAX = 16
"""Up to so many merges are a query each, which needs no shuffle; more of them, small ones then, are one query."""
TINY_PARTS = 2_048
"""Such a part of the target size is merged with whatever comes after it: a file costs more than its bytes then."""
TINY_FILE_BYTES = 128 * 1024
"""To open and close a file costs about what it costs to write so many bytes: key compaction, which reads each file
twice, has smaller ones merged first, and merges larger ones as it writes what stays of them."""
RETENTION_PARTS = 10
"""Retention removes whole files: merging holds a record back by at most this part of the time, bytes or records that
are kept."""
RETENTION_BYTES_MIN = MIB
RETENTION_RECORDS_MIN = 10_000
"""Files up to these are made in any case: a topic that keeps next to nothing must not have a file for each flush."""
US_PER_MS = 1000
Period = tuple[int, int]
_EXPIRED: Period = -1, -1


@dataclass(frozen=True, slots=True)
class Limits:
    """Sizes in bytes as the files are stored."""

    file_bytes_target: int = FILE_BYTES_TARGET
    chunk_bytes_max: int = CHUNK_BYTES_MAX
    chunk_files_max: int = CHUNK_FILES_MAX

    def __post_init__(self) -> None:
        assert 0 < self.file_bytes_target <= self.chunk_bytes_max, "a merge must fit in a chunk"
        assert self.chunk_files_max >= 2, "a merge has two files or more"

    @property
    def big_bytes(self) -> int:
        """Files of this size and above are left alone."""
        return self.file_bytes_target // 2

    def within(self, config: TopicConfig) -> "Limits":
        """Lowers the size of files to a part of what `retention.bytes` keeps, where that is less."""
        kept_bytes = config.integer("retention.bytes") if _expires(config) else UNLIMITED
        if kept_bytes == UNLIMITED:
            return self
        part = max(kept_bytes // RETENTION_PARTS, RETENTION_BYTES_MIN)
        return replace(self, file_bytes_target=min(self.file_bytes_target, part))


@dataclass(frozen=True, slots=True)
class Merge:
    """Neighbours in the order of offsets, of one partition, that become one file."""

    partition: int
    files: tuple[DataFile, ...]

    @property
    def size_bytes(self) -> int:
        return sum(file.size_bytes for file in self.files)

    @property
    def first_offset(self) -> int:
        return self.files[0].first_offset

    @property
    def last_offset(self) -> int:
        return self.files[-1].last_offset


@dataclass(frozen=True, slots=True)
class Chunk:
    """Merges written and committed together; if there are more than CHUNK_SCANS_MAX, at most one of each partition."""

    merges: tuple[Merge, ...]

    @property
    def files(self) -> tuple[DataFile, ...]:
        return tuple(file for merge in self.merges for file in merge.files)

    @property
    def size_bytes(self) -> int:
        return sum(merge.size_bytes for merge in self.merges)


@dataclass(frozen=True, slots=True)
class CompactionPlan:
    version: int
    chunks: tuple[Chunk, ...]

    @property
    def files(self) -> int:
        return sum(len(chunk.files) for chunk in self.chunks)

    @property
    def files_after(self) -> int:
        return sum(len(chunk.merges) for chunk in self.chunks)

    @property
    def size_bytes(self) -> int:
        return sum(chunk.size_bytes for chunk in self.chunks)


def plan(
    snapshot: TableSnapshot,
    config: TopicConfig,
    now_ms: int,
    limits: Limits | None = None,
    *,
    rewritten_next: Collection[int] = (),
) -> CompactionPlan:
    """The merges that are worth their writing at `snapshot`; none for a deleted topic.

    Each file is in at most one merge. Planned again over its result it is empty, unless a limit of files cut it short.
    Of partitions that are `rewritten_next`, by key compaction, only tiny or very many files are merged.
    Raises CorruptData when files of a partition overlap: merging would hide which of them is wrong.
    """
    limits = (limits or Limits()).within(config)
    if snapshot.deleted:
        return CompactionPlan(snapshot.version, ())
    by_partition = []
    for partition in range(snapshot.partitions):
        merges = list(_merges(snapshot, partition, config, now_ms, limits))
        if partition in rewritten_next and sum(len(merge.files) for merge in merges) <= limits.chunk_files_max:
            merges = [merge for merge in merges if merge.size_bytes < TINY_FILE_BYTES * len(merge.files)]
        by_partition.append(merges)
    # The first merge of every partition, then the second of every one: so a chunk has many partitions, not one deep.
    layered = [merge for layer in zip_longest(*by_partition) for merge in layer if merge is not None]
    return CompactionPlan(snapshot.version, tuple(_chunks(layered, limits)))


def _merges(
    snapshot: TableSnapshot, partition: int, config: TopicConfig, now_ms: int, limits: Limits
) -> Iterator[Merge]:
    files, compacted = snapshot.files_of(partition), snapshot.compacted(partition)
    check_order(files)
    # What key compaction has been through is not mixed with what it has still to see.
    periods = [
        (period, file.last_offset < compacted)
        for file, period in zip(files, periods_of(files, config, now_ms), strict=True)
    ]
    start = 0
    while start < len(files):
        end = _run_end(files, periods, start, limits)
        rest = sum(file.size_bytes for file in files[start + 1 : end])
        lead_bytes_max = max(LEAD_FACTOR * rest, limits.file_bytes_target // TINY_PARTS)
        if end - start > 1 and files[start].size_bytes <= lead_bytes_max:
            yield Merge(partition, tuple(files[start:end]))
            start = end
        else:
            start += 1


def _run_end(files: Sequence[DataFile], periods: Sequence[tuple[Period, bool]], start: int, limits: Limits) -> int:
    """The end (exclusive) of the longest run from `start` that may become one file."""
    size = 0
    for index in range(start, min(len(files), start + limits.chunk_files_max)):
        size += files[index].size_bytes
        if (
            size > limits.file_bytes_target
            or files[index].size_bytes >= limits.big_bytes
            or periods[index] != periods[start]
        ):
            return index
    return min(len(files), start + limits.chunk_files_max)


def periods_of(files: Sequence[DataFile], config: TopicConfig, now_ms: int) -> list[Period]:
    """Gives each file the period in which retention can remove it; only files of the same period are merged.

    Retention removes prefixes, so a file waits for the newest record up to its end. What has expired is one period.
    """
    if not _expires(config):
        return [(0, 0)] * len(files)
    retention_us, records = config.integer("retention.ms") * US_PER_MS, config.integer("retention.records")
    length_us = max(retention_us // RETENTION_PARTS, 1)
    length = max(records // RETENTION_PARTS, RETENTION_RECORDS_MIN)
    expired_us = now_ms * US_PER_MS - retention_us
    periods = []
    newest_us = None
    for file in files:
        newest_us = file.max_timestamp_us if newest_us is None else max(newest_us, file.max_timestamp_us)
        # Both counted from a fixed place, so that merging does not move its own boundaries.
        span = 0 if records == UNLIMITED else file.last_offset // length
        if retention_us < 0:
            periods.append((0, span))
        elif newest_us < expired_us:
            periods.append(_EXPIRED)
        else:
            periods.append((max(newest_us, 0) // length_us, span))
    return periods


def _expires(config: TopicConfig) -> bool:
    return "delete" in str(config["cleanup.policy"]).split(",")


def check_order(files: Sequence[DataFile]) -> None:
    for before, after in pairwise(files):
        if after.first_offset <= before.last_offset:
            raise problem(
                "corrupt_data",
                f"the files {before.path} and {after.path} of partition {before.partition} both claim offset "
                f"{after.first_offset}; nothing is merged: run `silt audit` to see which one is wrong",
                partition=before.partition,
                first_offset=after.first_offset,
                last_offset=before.last_offset,
            )


def _chunks(merges: Iterable[Merge], limits: Limits) -> Iterator[Chunk]:
    chunk: list[Merge] = []
    partitions: set[int] = set()
    files = size = 0
    for merge in merges:
        full = size + merge.size_bytes > limits.chunk_bytes_max or files + len(merge.files) > limits.chunk_files_max
        again = merge.partition in partitions or len(partitions) < len(chunk)
        if chunk and (full or (again and len(chunk) >= CHUNK_SCANS_MAX)):
            yield Chunk(tuple(chunk))
            chunk, partitions, files, size = [], set(), 0, 0
        chunk.append(merge)
        partitions.add(merge.partition)
        files += len(merge.files)
        size += merge.size_bytes
    if chunk:
        yield Chunk(tuple(chunk))
