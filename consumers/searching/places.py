"""The range of a search: how a request says it, what that is in each partition, and the cursor to go on from."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from siltlog.consumers.reading.cursor import PARTITIONS_MAX, Cursor
from siltlog.consumers.reading.fetch import find_partition, find_topic
from siltlog.consumers.reading.lookup import Lookup
from siltlog.consumers.reading.reader import visible_end
from siltlog.consumers.reading.view import LogView, PartitionView, TopicView
from siltlog.infra.clock import parse_us
from siltlog.infra.errors import Refused, SiltlogError, problem
from siltlog.infra.limits import INTEGER_MAX, PARTITION_MAX
from siltlog.infra.records import counted

_BETWEEN = "."
"""Between the offsets of a cursor and its ends; in neither of them."""

Offset = Annotated[int, Meta(ge=-INTEGER_MAX, le=INTEGER_MAX)] | Literal["earliest", "latest"]


class Place(msgspec.Struct, forbid_unknown_fields=True):
    """`offset` or `timestamp`: one of them. A negative offset counts from the end of each partition."""

    offset: Offset | None = None
    timestamp: Annotated[int | str | None, Meta(description="RFC 3339 or milliseconds")] = None


class Beginning(Place):
    """`offset`, `timestamp` or `cursor`: one of them. A cursor is `next` of an earlier search, which goes on."""

    cursor: str | None = None


Partitions = Annotated[list[Annotated[int, Meta(ge=0, le=PARTITION_MAX)]], Meta(min_length=1)]


@dataclass(frozen=True, slots=True)
class SearchRange:
    """The offsets of a topic's partitions, [start, end) of each."""

    topic: TopicView
    starts: Mapping[int, int]
    ends: Mapping[int, int]


async def find_range(
    log: LogView,
    lookup: Lookup,
    topic_name: str,
    start: Beginning | None,
    end: Place | None,
    partitions: list[int] | None,
) -> SearchRange:
    """What is asked for, within what the log has now: from `earliest` to `latest` of all partitions where nothing else
    is said.

    Raises Refused `invalid_request`, `unknown_partition`; UnknownTopic also where a cursor is of a topic that was
    deleted; Unavailable, CorruptData where a time cannot be looked up.
    """
    _check_one("from", start)
    _check_one("to", end)
    topic = log.topic(topic_name)
    if start is not None and start.cursor is not None:
        if end is not None or partitions is not None:
            raise problem("invalid_request", "from.cursor has the partitions and the ends: leave out to and partitions")
        return _gone_on(log, topic_name, start.cursor)
    starts, ends = {}, {}
    for partition in _chosen(topic, partitions):
        view = find_partition(topic, partition)
        high_watermark = visible_end(await view.decided() or view.bounds(), "wal")
        begins = await _offset(lookup, topic, view, start, "earliest", high_watermark)
        stops = await _offset(lookup, topic, view, end, "latest", high_watermark)
        starts[partition] = min(max(begins, view.bounds().log_start_offset), high_watermark)
        ends[partition] = max(min(stops, high_watermark), starts[partition])
    return SearchRange(topic, starts, ends)


def cursor_text(topic: TopicView, offsets: Mapping[int, int], ends: Mapping[int, int]) -> str:
    """Tells where a search is, and where it ends."""
    return _BETWEEN.join(Cursor(topic.topic_id, part).text() for part in (offsets, ends))


def _gone_on(log: LogView, topic_name: str, text: str) -> SearchRange:
    offsets, between, ends = text.partition(_BETWEEN)
    try:
        first, last = Cursor.parse(offsets), Cursor.parse(ends)
    except Refused:
        raise _damaged() from None
    if not between or first.topic_id != last.topic_id or first.offsets.keys() != last.offsets.keys():
        raise _damaged()
    topic = find_topic(log, topic_name, first.topic_id)
    for partition in first.offsets:
        find_partition(topic, partition)
    ends_of = {partition: max(end, first.offsets[partition]) for partition, end in last.offsets.items()}
    return SearchRange(topic, first.offsets, ends_of)


def _damaged() -> SiltlogError:
    return problem(
        "invalid_request",
        "from.cursor is damaged, or none of a search; use next as it came, or begin with an offset or a timestamp",
    )


def _check_one(name: str, place: Place | None) -> None:
    if place is None:
        return
    given = [member for member in place.__struct_fields__ if getattr(place, member) is not None]
    if len(given) != 1:
        members = " or ".join(place.__struct_fields__)
        said = " and ".join(given) or "nothing"
        raise problem("invalid_request", f"{name} takes {members}, one of them; {said} is given")


def _chosen(topic: TopicView, partitions: list[int] | None) -> list[int]:
    """The partitions asked for, each of which is there."""
    if partitions is None:
        if len(topic.partitions) > PARTITIONS_MAX:
            raise _too_many(len(topic.partitions))
        return list(range(len(topic.partitions)))
    if len(set(partitions)) != len(partitions):
        raise problem("invalid_request", "partitions names one of them twice; give it once")
    if len(partitions) > PARTITIONS_MAX:
        raise _too_many(len(partitions))
    return sorted(partitions)


def _too_many(count: int) -> SiltlogError:
    return problem(
        "invalid_request",
        f"{count} partitions are more than a search takes ({PARTITIONS_MAX}); choose some, such as [0, 1]",
    )


async def _offset(
    lookup: Lookup,
    topic: TopicView,
    view: PartitionView,
    place: Place | None,
    default: Literal["earliest", "latest"],
    high_watermark: int,
) -> int:
    """The offset in one partition that a place means; it may lie outside of the log."""
    if place is not None and place.timestamp is not None:
        try:
            timestamp_us = parse_us(str(place.timestamp))
        except ValueError as error:
            raise problem("invalid_request", f"timestamp: {error}") from None
        return await lookup.offset_at(topic, view, timestamp_us)
    offset = default if place is None or place.offset is None else place.offset
    if offset == "earliest":
        return view.bounds().log_start_offset
    return high_watermark if offset == "latest" else counted(offset, high_watermark)
