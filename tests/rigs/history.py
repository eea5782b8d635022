"""What callers of a log were told, when, and whether one log can have told it all. Pure: values in, complaints out.

acks     a record is at one place, for good; what was acknowledged before another was sent lies before it
reads    what was read is what is there in the end: nothing more, nothing less, a prefix
marks    who asks again is not told of less; who asks after an acknowledgement sees it
the end  every acknowledged record is in the table once, and nothing that was refused
"""

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from heapq import heappop, heappush
from itertools import pairwise
from typing import NamedTuple

COMPLAINTS_MAX = 5
"""So many of one kind are told: the first say enough."""


class Ack(NamedTuple):
    """A record that was acknowledged; `began` and `ended` are of the request that was."""

    producer: str
    value: str
    partition: int
    offset: int
    began: float
    ended: float


class Read(NamedTuple):
    reader: str
    partition: int
    offset: int
    """What was asked for."""
    next_offset: int
    watermark: int
    rows: tuple[tuple[int, str], ...]
    """Offset and value."""
    began: float
    ended: float
    node: str = ""
    """Names the one that answered."""


class Row(NamedTuple):
    """A row of the table, in the end."""

    partition: int
    offset: int
    value: str


def complaints(
    acks: Sequence[Ack],
    reads: Sequence[Read],
    table: Sequence[Row],
    *,
    refused: Collection[str] = (),
    exactly_once: Collection[str] = (),
    gaps: bool = False,
    fresh: bool = True,
) -> list[str]:
    """What cannot be, a sentence each. Values are unique, and a producer sends one request after another.

    `exactly_once` are values that were acknowledged in the end, wherever. With `gaps` offsets may have been jumped;
    without `fresh` a read may have come from a node that did not know yet that it was no owner, or could not ask one:
    then each of them only tells nothing lower than it told before.
    """
    kinds = (
        _one_place(acks),
        _order(acks),
        _prefixes(reads, table),
        _marks(
            reads if fresh else (read._replace(reader=f"{read.reader} at {read.node}") for read in reads),
            acks if fresh else (),
        ),
        _in_the_end(acks, table, refused, exactly_once, gaps),
    )
    return [said for kind in kinds for _, said in zip(range(COMPLAINTS_MAX), kind, strict=False)]


def _one_place(acks: Iterable[Ack]) -> Iterator[str]:
    places: dict[tuple[int, int], str] = {}
    values: dict[str, tuple[int, int]] = {}
    for ack in acks:
        place = ack.partition, ack.offset
        if places.setdefault(place, ack.value) != ack.value:
            yield f"{_short(ack.value)} and {_short(places[place])} were both acknowledged at {place}"
        if values.setdefault(ack.value, place) != place:
            yield f"{_short(ack.value)} was acknowledged at {values[ack.value]}, and at {place}"


def _order(acks: Iterable[Ack]) -> Iterator[str]:
    by_partition: dict[int, list[Ack]] = defaultdict(list)
    for ack in acks:
        by_partition[ack.partition].append(ack)
    for group in by_partition.values():
        group.sort(key=lambda ack: ack.began)
        under_way: list[tuple[float, int, str]] = []
        highest = -1, ""
        for ack in group:
            while under_way and under_way[0][0] < ack.began:
                _, offset, value = heappop(under_way)
                highest = max(highest, (offset, value))
            if ack.offset <= highest[0] and ack.value != highest[1]:
                yield (
                    f"{_short(ack.value)} is at {ack.offset} of partition {ack.partition}, and was sent after "
                    f"{_short(highest[1])} had been acknowledged at {highest[0]}"
                )
            heappush(under_way, (ack.ended, ack.offset, ack.value))


def _prefixes(reads: Iterable[Read], table: Iterable[Row]) -> Iterator[str]:
    there: dict[int, dict[int, str]] = defaultdict(dict)
    for row in table:
        there[row.partition][row.offset] = row.value
    offsets = {partition: sorted(rows) for partition, rows in there.items()}
    for read in reads:
        rows = dict(read.rows)
        its = offsets.get(read.partition, [])
        inside = its[bisect_left(its, read.offset) : bisect_left(its, read.next_offset)]
        for at, value in read.rows:
            found = there[read.partition].get(at)
            if found != value:
                what = "nothing is" if found is None else f"{_short(found)} is"
                yield f"{read.reader} read {_short(value)} at {at} of partition {read.partition}, where {what}"
        missing = [at for at in inside if at not in rows]
        if missing:
            yield (
                f"{read.reader} read partition {read.partition} from {read.offset} to {read.next_offset}, and not "
                f"{_short(there[read.partition][missing[0]])} at {missing[0]}"
            )
        if read.next_offset > read.watermark and read.rows:
            yield f"{read.reader} read partition {read.partition} up to {read.next_offset}, above {read.watermark}"


def _marks(reads: Iterable[Read], acks: Iterable[Ack]) -> Iterator[str]:
    by_reader: dict[tuple[str, int], list[Read]] = defaultdict(list)
    for read in reads:
        by_reader[read.reader, read.partition].append(read)
    ended: dict[int, list[tuple[float, int]]] = defaultdict(list)
    for ack in acks:
        ended[ack.partition].append((ack.ended, ack.offset))
    for marks in ended.values():
        marks.sort()
    for (reader, partition), group in by_reader.items():
        group.sort(key=lambda read: read.began)
        for before, after in pairwise(group):
            if after.watermark < before.watermark:
                yield (
                    f"{reader} was told {after.watermark} as the watermark of partition {partition}, "
                    f"and {before.watermark} before"
                )
        marks, at, highest = ended[partition], 0, -1
        for read in group:
            while at < len(marks) and marks[at][0] < read.began:
                highest = max(highest, marks[at][1])
                at += 1
            if read.watermark <= highest:
                yield (
                    f"{reader} was told {read.watermark} as the watermark of partition {partition}, "
                    f"after {highest} had been acknowledged"
                )


def _in_the_end(
    acks: Iterable[Ack], table: Sequence[Row], refused: Collection[str], exactly_once: Collection[str], gaps: bool
) -> Iterator[str]:
    places = {row.value: (row.partition, row.offset) for row in table}
    for value, times in Counter(row.value for row in table).items():
        if times > 1:
            yield f"{_short(value)} is in the table {times} times"
    for place, times in Counter((row.partition, row.offset) for row in table).items():
        if times > 1:
            yield f"the table has {times} records at {place}"
    for ack in acks:
        place = ack.partition, ack.offset
        if places.get(ack.value) != place:
            where = f"at {places[ack.value]}" if ack.value in places else "not there"
            yield f"{_short(ack.value)} was acknowledged at {place} and is {where}"
    for value in exactly_once:
        if value not in places:
            yield f"{_short(value)} was acknowledged in the end and is not there"
    for value in refused:
        if value in places:
            yield f"{_short(value)} was refused and is at {places[value]}"
    if gaps:
        return
    offsets: dict[int, list[int]] = defaultdict(list)
    for row in table:
        offsets[row.partition].append(row.offset)
    for partition, numbers in offsets.items():
        hole = next((at for at, number in enumerate(sorted(set(numbers))) if at != number), None)
        if hole is not None:
            yield f"partition {partition} has no record at {hole}, and some above"


def _short(value: str) -> str:
    return value.split(" ", 1)[0][:40]
