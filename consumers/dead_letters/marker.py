"""A marker: a record among dead letters, without key and value, that hides dead letters before it. Pure."""

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from siltlog.consumers.dead_letters.record import Stored, stored_records
from siltlog.infra import names
from siltlog.infra.records import NewRecord

MARKED = (names.RECORD_HEADER_DISCARDED, names.RECORD_HEADER_PARTITION, names.RECORD_HEADER_REASON)
RUNS_MAX = 10_000
"""One marker hides so many runs of offsets at most."""
_RUNS = re.compile(rb"\d{1,16}(?:-\d{1,16})?(?:,\d{1,16}(?:-\d{1,16})?)*")
Run = tuple[int, int]
"""Offsets from the first on, below the second."""


class Offsets:
    """A set of offsets, kept as runs."""

    def __init__(self, runs: Iterable[Run] = ()) -> None:
        self._firsts: list[int] = []
        self._ends: list[int] = []
        for first, end in runs:
            self.add(first, end)

    def add(self, first: int, end: int) -> None:
        """Takes in [first, end)."""
        if first >= end:
            return
        low, high = bisect_left(self._ends, first), bisect_right(self._firsts, end)
        if low < high:
            first, end = min(first, self._firsts[low]), max(end, self._ends[high - 1])
        self._firsts[low:high] = [first]
        self._ends[low:high] = [end]

    def remove(self, first: int, end: int) -> None:
        """Leaves out [first, end)."""
        low, high = self._overlap(first, end)
        if low < high:
            left = [(self._firsts[low], first), (end, self._ends[high - 1])]
            kept = [(begin, stop) for begin, stop in left if begin < stop]
            self._firsts[low:high] = [begin for begin, _ in kept]
            self._ends[low:high] = [stop for _, stop in kept]

    def runs(self) -> list[Run]:
        """The runs, ascending; none touches the next."""
        return list(zip(self._firsts, self._ends, strict=True))

    def within(self, first: int, end: int) -> list[Run]:
        """The runs of those in [first, end)."""
        low, high = self._overlap(first, end)
        return [(max(self._firsts[at], first), min(self._ends[at], end)) for at in range(low, high)]

    def lowest(self) -> int | None:
        return self._firsts[0] if self._firsts else None

    def highest_below(self, end: int) -> int | None:
        at = bisect_left(self._firsts, end) - 1
        return min(self._ends[at], end) - 1 if at >= 0 else None

    def _overlap(self, first: int, end: int) -> tuple[int, int]:
        """Gives the runs that have some of [first, end)."""
        return bisect_right(self._ends, first), bisect_left(self._firsts, end) if first < end else 0

    def __contains__(self, offset: int) -> bool:
        low, high = self._overlap(offset, offset + 1)
        return low < high

    def __len__(self) -> int:
        return sum(self._ends) - sum(self._firsts)


class Looked(NamedTuple):
    """What there is in a batch of dead letters."""

    letters: Offsets
    """The offsets of all letters, hidden ones included."""
    hidden: list[Run]
    """The runs that its markers hide; each lies before its marker."""


def markers(partition: int, hidden: Sequence[Run], reason: str) -> list[NewRecord]:
    """Records that hide some runs of offsets of a partition."""
    return [_marker(partition, hidden[at : at + RUNS_MAX], reason) for at in range(0, len(hidden), RUNS_MAX)]


def _marker(partition: int, hidden: Sequence[Run], reason: str) -> NewRecord:
    runs = ",".join(str(first) if end == first + 1 else f"{first}-{end - 1}" for first, end in hidden)
    values = (runs, str(partition), reason)
    return NewRecord(None, None, tuple((name, value.encode()) for name, value in zip(MARKED, values, strict=True)))


def hidden_by(record: Stored, partition: int) -> list[Run] | None:
    """What a marker hides, None where the record is none.

    A dead letter has the headers about it behind its own, so none of a user's is taken for a marker. One that was
    given up itself, and brought back to another partition, hides nothing.
    """
    if record.key is not None or record.value is not None or tuple(name for name, _ in record.headers) != MARKED:
        return None
    (_, runs), (_, of), _ = record.headers
    if runs is None or _RUNS.fullmatch(runs) is None:
        return None
    if of != b"%d" % partition:
        return []
    return [(first, min(end, record.offset)) for first, end in map(_run, runs.decode().split(","))]


def _run(text: str) -> Run:
    first, _, last = text.partition("-")
    return int(first), int(last or first) + 1


def looked_at(batch: pa.RecordBatch, partition: int) -> Looked:
    """Tells the dead letters of a RECORD_SCHEMA batch from its markers."""
    bare = pc.and_(pc.is_null(batch.column("key")), pc.is_null(batch.column("value")))
    letters = Offsets((offset, offset + 1) for offset in batch.column("offset").to_pylist())
    hidden: list[Run] = []
    for record in stored_records(batch.filter(bare)):
        runs = hidden_by(record, partition)
        if runs is not None:
            letters.remove(record.offset, record.offset + 1)
            hidden += runs
    return Looked(letters, hidden)


def still_there(records: Iterable[Stored], partition: int) -> Iterator[Stored]:
    """Yields the dead letters among all records of a partition that no marker hides."""
    letters: list[Stored] = []
    hidden = Offsets()
    for record in records:
        runs = hidden_by(record, partition)
        if runs is None:
            letters.append(record)
        for first, end in runs or ():
            hidden.add(first, end)
    return (record for record in letters if record.offset not in hidden)
