"""Where a stream stands, and what lies between two such places: pure, and what Spark's checkpoint keeps of it."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from siltlog.infra.errors import ConfigError, SiltlogError, problem
from siltlog.infra.records import OFFSET_JUMP, Bounds

GAP_OFFSETS = 1 << 20
"""Among so many offsets it is asked whether they name records at all: fewer are read sooner than asked about."""


@dataclass(frozen=True, slots=True)
class TopicPosition:
    """The next offset of each partition (int -> int) of the topic with this id."""

    topic_id: str
    offsets: Mapping[int, int]


Positions = Mapping[str, TopicPosition]
"""Positions by topic."""


@dataclass(frozen=True, slots=True)
class TopicBounds:
    """The partitions of a topic and their bounds, as a server gave them at one moment."""

    topic_id: str
    partitions: Mapping[int, Bounds]
    timestamp_type: int


class Span(NamedTuple):
    """Offsets [start, end) of one partition."""

    topic: str
    topic_id: str
    partition: int
    start: int
    end: int


class Part(NamedTuple):
    """A span that is read as a whole, and what was known of its partition when that was planned."""

    span: Span
    bounds: Bounds
    timestamp_type: int


def to_json(positions: Positions) -> dict[str, Any]:
    """The checkpoint's form: `{"flights": {"topic_id": "…", "offsets": {"0": 42}}}`, always in the same order."""
    return {
        topic: {
            "topic_id": position.topic_id,
            "offsets": {str(number): position.offsets[number] for number in sorted(position.offsets)},
        }
        for topic, position in sorted(positions.items())
    }


def from_json(document: Mapping[str, Any]) -> dict[str, TopicPosition]:
    """Raises ConfigError for what `to_json` did not write."""
    try:
        return {
            topic: TopicPosition(
                str(one["topic_id"]), {int(number): int(offset) for number, offset in one["offsets"].items()}
            )
            for topic, one in document.items()
        }
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ConfigError(
            f"the checkpoint's offsets are not those of a siltlog source ({error!r}); give the query its own checkpoint"
        ) from None


def limited(
    start: Positions, end: Positions, count_max: int, first_from: Callable[[Span], int] = lambda span: span.start
) -> dict[str, TopicPosition]:
    """At most `count_max` offsets from `start` towards `end`: of each partition in proportion to what it has.

    Never nothing while there is something, and never more, also where there are more partitions than offsets.
    `first_from` says where the records of a span begin: offsets before that one do not count.
    """
    spans = [span._replace(start=first_from(span)) for span in spans_between(start, end)]
    total = sum(span.end - span.start for span in spans)
    if total <= count_max:
        return dict(end)
    left = count_max
    takes: dict[tuple[str, int], int] = {}
    for span in spans:
        take = (span.end - span.start) * count_max // total
        takes[span.topic, span.partition] = take
        left -= take
    # Rounding leaves less than one offset for each partition: those with the most left over are given them.
    for span in sorted(spans, key=lambda span: takes[span.topic, span.partition] - (span.end - span.start)):
        if left == 0:
            break
        takes[span.topic, span.partition] += 1
        left -= 1
    reached = {
        topic: {number: _start_of(start, topic, position, number) for number in position.offsets}
        for topic, position in end.items()
    }
    for span in spans:
        reached[span.topic][span.partition] = span.start + takes[span.topic, span.partition]
    return {topic: TopicPosition(end[topic].topic_id, offsets) for topic, offsets in reached.items()}


def spans_between(start: Positions, end: Positions) -> Iterator[Span]:
    """Yields spans that are not empty, by topic and partition; a partition or topic that `start` lacks begins at 0."""
    for topic, position in sorted(end.items()):
        for number in sorted(position.offsets):
            first, last = _start_of(start, topic, position, number), position.offsets[number]
            if first < last:
                yield Span(topic, position.topic_id, number, first, last)


def _start_of(start: Positions, topic: str, position: TopicPosition, number: int) -> int:
    before = start.get(topic)
    if before is None or before.topic_id != position.topic_id:
        return 0
    return before.offsets.get(number, 0)


def dense(span: Span, first_from: Callable[[Span], int]) -> Iterator[Span]:
    """The parts of a long span that have its records, without what a take-over of the log jumped over.

    Offsets go on at a multiple of OFFSET_JUMP then. Where they ended before is found by halves, to about GAP_OFFSETS.
    """
    while span.start < span.end:
        first = first_from(span)
        last = min((first // OFFSET_JUMP + 1) * OFFSET_JUMP, span.end)
        here = span._replace(start=first, end=last)
        while here.end - here.start > GAP_OFFSETS:
            middle = (here.start + here.end) // 2
            after = first_from(span._replace(start=middle, end=last))
            here = here._replace(end=middle) if after == last else here._replace(start=middle)
        if first < here.end:
            yield span._replace(start=first, end=here.end)
        span = span._replace(start=last)


def split(span: Span, records_max: int) -> Iterator[Span]:
    """Equal parts of at most `records_max` offsets."""
    count = span.end - span.start
    parts = -(-count // records_max)
    for index in range(parts):
        first, last = count * index // parts, count * (index + 1) // parts
        yield span._replace(start=span.start + first, end=span.start + last)


def gathered(parts: Iterable[Part], records_max: int) -> Iterator[tuple[Part, ...]]:
    """Yields the parts in the same order, as many together as have `records_max` offsets at most, or one."""
    together: list[Part] = []
    count = 0
    for part in parts:
        size = part.span.end - part.span.start
        if together and count + size > records_max:
            yield tuple(together)
            together, count = [], 0
        together.append(part)
        count += size
    if together:
        yield tuple(together)


def advanced(start: Positions, ends: Positions) -> dict[str, TopicPosition]:
    """`ends`, nowhere before `start`, as long as the topics are the same."""
    reached = {}
    for topic, position in ends.items():
        offsets = {
            number: max(end, _start_of(start, topic, position, number)) for number, end in position.offsets.items()
        }
        reached[topic] = TopicPosition(position.topic_id, offsets)
    return reached


def loss(span: Span, bounds: TopicBounds) -> SiltlogError | None:
    """Returns the error for the part of `span` that can no longer be read; None when all of it is there."""
    where = f"partition {span.partition} of topic {span.topic!r}"
    how = (
        "what was to be read is gone; set failOnDataLoss to false to go on without it, or begin anew with another "
        "checkpoint"
    )
    if bounds.topic_id != span.topic_id:
        return problem(
            "unknown_topic",
            f"topic {span.topic!r} was deleted, and created again since offset {span.start} of partition "
            f"{span.partition} was read: {how}",
            topic=span.topic,
        )
    known = bounds.partitions.get(span.partition)
    if known is None:
        return problem("unknown_partition", f"there is no {where}: {how}", topic=span.topic)
    if span.start < known.log_start_offset:
        return problem(
            "offset_out_of_range",
            f"{where} begins at offset {known.log_start_offset} by now, and {span.start} was asked for: {how}",
            log_start_offset=known.log_start_offset,
            high_watermark=known.high_watermark,
        )
    if span.end > known.high_watermark:
        return problem(
            "offset_out_of_range",
            f"{where} ends at offset {known.high_watermark}, and was to be read up to {span.end}: {how}",
            log_start_offset=known.log_start_offset,
            high_watermark=known.high_watermark,
        )
    return None


def present(span: Span, bounds: TopicBounds) -> Span | None:
    """Cuts `span` to the part that is there; None when nothing is."""
    known = bounds.partitions.get(span.partition)
    if known is None or bounds.topic_id != span.topic_id:
        return None
    first, last = max(span.start, known.log_start_offset), min(span.end, known.high_watermark)
    return span._replace(start=first, end=last) if first < last else None
