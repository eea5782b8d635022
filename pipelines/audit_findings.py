"""What an audit expects of a partition, and what it finds wrong. Pure: it takes what was read of the files."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from siltlog.infra.data_file import DataFile
from siltlog.infra.table_snapshot import TableSnapshot

Kind = Literal[
    "damaged_log",
    "missing_file",
    "damaged_file",
    "unprotected_file",
    "wrong_statistics",
    "missing_offsets",
    "repeated_offsets",
    "unordered_offsets",
    "out_of_bounds",
    "wrong_partition",
]
Range = tuple[int, int]
"""Offsets [from, to)."""


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
    """What the records of one partition must be like, as its table says."""

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


class Hole(NamedTuple):
    """Offsets [start, end) that a file goes past."""

    start: int
    end: int


@dataclass(slots=True)
class FileRead:
    """What was read of one file. `findings` say what is wrong with it by itself."""

    file: DataFile
    findings: list[Finding] = field(default_factory=list)
    rows: int = 0
    first: int = 0
    last: int = -1
    """Lowest and highest offset; of a file that could not be read whole, what the log says."""
    holes: list[Hole] = field(default_factory=list)
    whole: bool = True
    """False where it could not be read to its end."""


def expected_of(snapshot: TableSnapshot, partition: int) -> Expected:
    return Expected(
        partition=partition,
        start=snapshot.starts[partition],
        end=snapshot.offsets[partition],
        gaps=tuple(snapshot.gaps(partition)),
        thinned_below=snapshot.compacted(partition),
        placements=tuple(_placements(snapshot, partition)),
    )


def _placements(snapshot: TableSnapshot, partition: int) -> Iterator[tuple[int, int]]:
    for count, first_offsets in snapshot.partition_history:
        if partition < count:
            yield (first_offsets[partition] if partition < len(first_offsets) else 0), count


def cover(expected: Expected, reads: Iterable[FileRead]) -> list[Finding]:
    """What is wrong with the files of a partition together: offsets that none has, that several have, out of bounds."""
    findings: list[Finding] = []
    position = expected.start
    for read in sorted(reads, key=lambda read: (read.first, read.file.path)):
        if read.last < read.first:
            continue
        findings.extend(_bounds_findings(expected, read))
        if read.first > position:
            findings.extend(_missing(expected, (position, read.first)))
        elif read.first < position and read.first >= expected.start and read.last >= expected.start:
            end = min(position - 1, read.last)
            findings.append(
                Finding(
                    "repeated_offsets",
                    f"partition {expected.partition}: {read.file.path} begins at offset {read.first}, and files before "
                    f"it hold offsets up to {position - 1}: {_span(read.first, end)} twice",
                    partition=expected.partition,
                    path=read.file.path,
                    first_offset=read.first,
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
    """What is left of `whole` outside `holes`, ascending."""
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
