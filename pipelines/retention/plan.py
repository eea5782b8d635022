"""Plans the removal of expired records of a topic: values in, values out."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from siltlog.infra.errors import problem
from siltlog.infra.settings.topic_config import UNLIMITED, TopicConfig
from siltlog.infra.table.data_file import DataFile
from siltlog.infra.table.log_start import StartMove
from siltlog.infra.table.snapshot import TableSnapshot

US_PER_MS = 1000


@dataclass(frozen=True, slots=True)
class RetentionPlan:
    version: int
    moves: tuple[StartMove, ...]
    """At most one of each partition."""

    @property
    def files(self) -> int:
        return sum(len(move.files) for move in self.moves)

    @property
    def rows(self) -> int:
        return sum(move.rows for move in self.moves)

    @property
    def size_bytes(self) -> int:
        return sum(move.size_bytes for move in self.moves)


class _Limits(NamedTuple):
    """Each None where it is unlimited."""

    oldest_us: int | None
    bytes_max: int | None
    records_max: int | None

    @classmethod
    def of(cls, config: TopicConfig, now_ms: int) -> "_Limits":
        settings = (config.integer(name) for name in ("retention.ms", "retention.bytes", "retention.records"))
        period_ms, bytes_max, records_max = (None if value == UNLIMITED else value for value in settings)
        return cls(None if period_ms is None else (now_ms - period_ms) * US_PER_MS, bytes_max, records_max)

    def expired(self, file: DataFile, bytes_after: int, rows_after: int) -> bool:
        return (
            (self.oldest_us is not None and file.max_timestamp_us < self.oldest_us)
            or (self.bytes_max is not None and bytes_after >= self.bytes_max)
            or (self.records_max is not None and rows_after >= self.records_max)
        )


def plan(
    snapshot: TableSnapshot,
    config: TopicConfig,
    now_ms: int,
    *,
    until: Mapping[int, int] | None = None,
    files_max: int | None = None,
) -> RetentionPlan:
    """The log starts that move at `snapshot`, each above the longest prefix of files whose records are all expired.

    A record is expired when it is older than `retention.ms`, or the files after its own hold `retention.bytes` or
    `retention.records` of its partition; what is not in the table yet does not count. A deleted topic has
    nothing to remove, nor has one whose `cleanup.policy` lacks `delete`. With `until`, a partition keeps its files from
    that offset on, and one that is not named keeps all; `files_max` cuts the plan short. Raises CorruptData when files
    of a partition overlap.
    """
    if snapshot.deleted or "delete" not in str(config["cleanup.policy"]).split(","):
        return RetentionPlan(snapshot.version, ())
    limits = _Limits.of(config, now_ms)
    moves: list[StartMove] = []
    room = files_max
    for partition in range(snapshot.partitions):
        files = snapshot.files_of(partition)
        end = snapshot.offsets[partition] if until is None else until.get(partition, 0)
        count = _expired(files, snapshot.starts[partition], limits, end)
        if room is not None:
            count = min(count, room)
            room -= count
        if count:
            _check_order(files)
            # The first record there is: offsets between two files name none.
            start = files[count].first_offset if count < len(files) else snapshot.offsets[partition]
            before = snapshot.starts[partition]
            moves.append(StartMove(partition, before, max(start, before), tuple(files[:count])))
    return RetentionPlan(snapshot.version, tuple(moves))


def _expired(files: Sequence[DataFile], start: int, limits: _Limits, end: int) -> int:
    """How many of `files`, oldest first, go."""
    count = 0
    for file, bytes_after, rows_after in _with_rest(files):
        below_start = file.last_offset < start
        if file.last_offset >= end or not (below_start or limits.expired(file, bytes_after, rows_after)):
            break
        count += 1
    return count


def _with_rest(files: Sequence[DataFile]) -> Iterator[tuple[DataFile, int, int]]:
    """Each file with the bytes and the rows of all that come after it."""
    nbytes, rows = sum(file.size_bytes for file in files), sum(file.rows for file in files)
    for file in files:
        nbytes -= file.size_bytes
        rows -= file.rows
        yield file, nbytes, rows


def _check_order(files: Sequence[DataFile]) -> None:
    for before, after in pairwise(files):
        if after.first_offset <= before.last_offset:
            raise problem(
                "corrupt_data",
                f"the files {before.path} and {after.path} of partition {before.partition} both claim offset "
                f"{after.first_offset}; nothing is removed: bring the table back to a version before they overlapped",
                partition=before.partition,
                first_offset=after.first_offset,
                last_offset=before.last_offset,
            )
