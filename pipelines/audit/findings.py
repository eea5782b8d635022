"""Decides what an audit expects of a partition, and what is wrong with it, from what was read of the files. Pure."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from siltlog.infra import delta_names
from siltlog.infra.arrow.partitioner import XXHASH64
from siltlog.infra.table.data_file import DataFile
from siltlog.infra.table.snapshot import TableSnapshot

Kind = Literal[
    "damaged_log",
    "lost_commits",
    "lost_state",
    "wrong_bounds",
    "missing_file",
    "damaged_file",
    "unprotected_file",
    "wrong_statistics",
    "missing_offsets",
    "repeated_offsets",
    "unordered_offsets",
    "out_of_bounds",
    "wrong_partition",
    "split_key",
]
Range = tuple[int, int]
"""Offsets [from, to)."""
RESTORE = "restore the topic from a backup to another root (silt restore --topic)"
REMEDIES: Mapping[Kind, str] = {
    "damaged_log": f"put the file of the log back from a copy of the root, or {RESTORE}",
    "lost_commits": f"put the missing entries of the log back from a copy of the root, or {RESTORE}",
    "lost_state": "start the server that has this log's data directory, and publish something: it writes it anew; else "
    "put it back from a copy of the root. Without it a server with another data directory takes retries for new ones",
    "wrong_bounds": f"put the log back as it was from a copy of the root, or {RESTORE}",
    "missing_file": f"put the file back from a copy of the root, or {RESTORE}",
    "damaged_file": f"put the file back from a copy of the root, or {RESTORE}; what is left of it can be exported",
    "unprotected_file": "find out who wrote it: only silt writes to a topic; what is wrong with it goes unseen",
    "wrong_statistics": f"find out who wrote the file, and {RESTORE}",
    "missing_offsets": f"the records are not there: {RESTORE}, or publish them again from where they came from",
    "repeated_offsets": f"find out who committed the file, and {RESTORE}",
    "unordered_offsets": f"find out who wrote the file, and {RESTORE}",
    "out_of_bounds": f"find out who committed the file: only silt commits to a topic's table; {RESTORE}",
    "wrong_partition": "if publishers choose partitions themselves, say so with --any-partition; else find out who "
    "published these records: readers look for their keys in another partition. Of clients of Kafka some place keys by "
    "another hash: librdkafka has `partitioner=murmur2_random`",
    "split_key": "publish to a new topic, by producers that place keys alike: each partition keeps the last record of "
    "such a key, and knows of no other",
}
"""Remedies, by the kind of a finding."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong. Offsets are inclusive; None where it is not about records."""

    kind: Kind
    detail: str
    partition: int | None = None
    path: str | None = None
    """Relative to the topic's path."""
    first_offset: int | None = None
    last_offset: int | None = None
    records: int | None = None
    """How many are concerned, where that is known."""


@dataclass(frozen=True)
class Expected:
    """The offsets and placements that the table of a topic promises for one partition."""

    partition: int
    start: int
    end: int
    """Log start and table offset: every offset between them has a record, but for `gaps` and `thinned`."""
    gaps: tuple[Range, ...]
    """Jumped: no record has an offset in them."""
    thinned_below: int
    """Below it key compaction may have removed records."""
    placements: tuple[tuple[int, int], ...]
    """(from offset, partition count): by which count keys were placed from there on, ascending."""
    partitioner: str = XXHASH64.name


class Hole(NamedTuple):
    """Offsets [start, end) that a file goes past."""

    start: int
    end: int


@dataclass(slots=True)
class FileRead:
    """The result of reading one file. `findings` say what is wrong with it by itself."""

    file: DataFile
    findings: list[Finding] = field(default_factory=list)
    warnings: list[Finding] = field(default_factory=list)
    """What may be as its publishers want it."""
    misplaced_keys: set[bytes] = field(default_factory=set)
    """Some of the keys that lie where their hash does not say, where that is only worth a warning."""
    rows: int = 0
    first: int = 0
    last: int = -1
    """Lowest and highest offset; of a file that could not be read whole, what the log says."""
    holes: list[Hole] = field(default_factory=list)
    whole: bool = True
    """False where it could not be read to its end."""


def marks_of(snapshot: TableSnapshot, partition: int, known: int) -> Iterator[Finding]:
    """Yields what is wrong with the numbers of a partition in its table. `known`: a table offset that a server once
    saw."""
    end = snapshot.offsets[partition]
    if known > max(end, 0):
        yield Finding(
            "lost_commits",
            f"partition {partition}: the table ends at offset {end}, and what is beside it was written when it had "
            f"come to {known}: its last commits are gone",
            partition=partition,
            first_offset=end,
            last_offset=known - 1,
            records=known - end,
        )
    for what, number in (
        ("the log start", snapshot.starts[partition]),
        ("the mark of key compaction", snapshot.compacted(partition)),
        ("the mark of erased keys", snapshot.erased(partition)),
    ):
        if not 0 <= number <= end:
            yield Finding(
                "wrong_bounds",
                f"partition {partition}: {what} is {number}, and its offsets go from 0 to the table offset {end}",
                partition=partition,
            )
    if end and not snapshot.epochs[partition]:
        yield Finding(
            "wrong_bounds",
            f"partition {partition}: the table ends at offset {end}, and nobody has ever claimed the partition",
            partition=partition,
        )
    hidden = [file for file in snapshot.files_of(partition) if file.last_offset < snapshot.starts[partition]]
    if hidden:
        rows = sum(file.rows for file in hidden)
        yield Finding(
            "wrong_bounds",
            f"partition {partition}: the log start is {snapshot.starts[partition]}, and {hidden[0].path} with {rows} "
            "records below it is still there: whoever moves it removes them with it",
            partition=partition,
            path=hidden[0].path,
            first_offset=hidden[0].first_offset,
            last_offset=hidden[-1].last_offset,
            records=rows,
        )


def lost_state(snapshot: TableSnapshot, partition: int, newest: int) -> Iterator[Finding]:
    """Yields the producer state that the table names and that is gone; `newest` is the newest offset that is there."""
    noted = snapshot.transactions.get(delta_names.txn_state(partition), 0)
    if newest < noted:
        there = f"the newest that is there ends at {newest}" if newest else "none is there"
        yield Finding(
            "lost_state",
            f"partition {partition}: what its producers did up to offset {noted} was beside the table, and {there}",
            partition=partition,
        )


def expected_of(snapshot: TableSnapshot, partition: int) -> Expected:
    return Expected(
        partition=partition,
        start=snapshot.starts[partition],
        end=snapshot.offsets[partition],
        gaps=tuple(snapshot.gaps(partition)),
        thinned_below=max(snapshot.compacted(partition), snapshot.erased(partition)),
        placements=tuple(_placements(snapshot, partition)),
        partitioner=str(snapshot.config["partitioner"]),
    )


def _placements(snapshot: TableSnapshot, partition: int) -> Iterator[tuple[int, int]]:
    for count, first_offsets in snapshot.partition_history:
        if partition < count:
            yield (first_offsets[partition] if partition < len(first_offsets) else 0), count


def cover(expected: Expected, reads: Iterable[FileRead]) -> list[Finding]:
    """Lists what is wrong with the files of a partition together: offsets missing, in several files, or out of
    bounds."""
    findings: list[Finding] = []
    position = expected.start
    for read in sorted(reads, key=lambda read: (read.first, read.file.path)):
        if read.last < read.first:
            continue
        findings.extend(_bounds_findings(expected, read))
        # Rows of a file that straddles the log start are hidden below it.
        first = max(read.first, expected.start)
        if first > position:
            findings.extend(_missing(expected, (position, first)))
        elif first < position and first <= read.last:
            end = min(position - 1, read.last)
            findings.append(
                Finding(
                    "repeated_offsets",
                    f"partition {expected.partition}: {read.file.path} begins at offset {read.first}, and files before "
                    f"it hold offsets up to {position - 1}: {_span(first, end)} twice",
                    partition=expected.partition,
                    path=read.file.path,
                    first_offset=first,
                    last_offset=end,
                )
            )
        for hole in read.holes:
            findings.extend(_missing(expected, (max(hole.start, position), hole.end), read.file.path))
        position = max(position, read.last + 1)
    findings.extend(_missing(expected, (position, expected.end)))
    return findings


def _missing(expected: Expected, wanted: Range, path: str | None = None) -> Iterator[Finding]:
    start, end = max(wanted[0], expected.start, expected.thinned_below), min(wanted[1], expected.end)
    for first, after in without((start, end), expected.gaps):
        where = f"in {path}" if path else "in any file"
        yield Finding(
            "missing_offsets",
            f"partition {expected.partition}: {_span(first, after - 1)} not {where}, and neither retention nor a "
            "recorded gap explains it",
            partition=expected.partition,
            path=path,
            first_offset=first,
            last_offset=after - 1,
            records=after - first,
        )


def without(whole: Range, holes: Sequence[Range]) -> Iterator[Range]:
    """Yields the parts of `whole` outside `holes`, ascending."""
    position, end = whole
    for start, after in sorted(holes):
        if start >= end:
            break
        if position < start:
            yield position, start
        position = max(position, after)
    if position < end:
        yield position, end


def _bounds_findings(expected: Expected, read: FileRead) -> Iterator[Finding]:
    if read.last >= expected.end:
        first = max(read.first, expected.end)
        yield Finding(
            "out_of_bounds",
            f"partition {expected.partition}: {read.file.path} holds {_span(first, read.last)} past the table offset "
            f"{expected.end}",
            partition=expected.partition,
            path=read.file.path,
            first_offset=first,
            last_offset=read.last,
        )
    for start, end in expected.gaps:
        held = [*without((max(start, read.first), min(end, read.last + 1)), read.holes)]
        if held:
            yield Finding(
                "out_of_bounds",
                f"partition {expected.partition}: {read.file.path} holds {_span(held[0][0], held[-1][1] - 1)} inside "
                f"the recorded gap from {start} to {end - 1}",
                partition=expected.partition,
                path=read.file.path,
                first_offset=held[0][0],
                last_offset=held[-1][1] - 1,
            )


def _span(first: int, last: int) -> str:
    return f"offset {first} is" if first == last else f"offsets {first} to {last} are"
