"""Where a group goes on: set by hand, from what a person says to offsets within the log."""

from collections.abc import Sequence, Set
from typing import Annotated, Literal, NamedTuple

import msgspec

from siltlog.consumers.groups.groups import Groups
from siltlog.consumers.groups.messages import (
    COMMITS_MAX,
    TOPICS_MAX,
    CommitRequest,
    CommittedOffset,
    PartitionName,
    TopicName,
    Whole,
)
from siltlog.consumers.reading.fetch import find_partition
from siltlog.consumers.reading.lookup import Lookup
from siltlog.consumers.reading.view import LogView, PartitionView, TopicView
from siltlog.infra.clock import parse_us
from siltlog.infra.errors import problem
from siltlog.infra.records import Bounds

ResetTo = Literal["earliest", "latest", "timestamp", "offset", "shift"]
Shift = Annotated[int, msgspec.Meta(ge=-(2**53) + 1, le=2**53 - 1)]


class ResetRequest(msgspec.Struct, forbid_unknown_fields=True):
    """Every partition of `topics`, or `partitions`; the member of the same name says what `to` needs to know."""

    to: ResetTo
    topics: Annotated[list[TopicName], msgspec.Meta(min_length=1, max_length=TOPICS_MAX)] | None = None
    partitions: Annotated[list[PartitionName], msgspec.Meta(min_length=1, max_length=COMMITS_MAX)] | None = None
    timestamp: str | int | None = None
    offset: Whole | None = None
    shift: Shift | None = None
    dry_run: bool = False

    def check(self) -> None:
        """Raises Refused `invalid_request` for members that do not go together."""
        if (self.topics is None) == (self.partitions is None):
            raise problem("invalid_request", "say what to reset: give topics or partitions, one of them")
        for name in ("timestamp", "offset", "shift"):
            if (getattr(self, name) is None) == (self.to == name):
                missing = f"needs {name}" if self.to == name else f"takes no {name}"
                raise problem("invalid_request", f"to {self.to!r} {missing}")

    def timestamp_us(self) -> int:
        try:
            return parse_us(str(self.timestamp))
        except ValueError as error:
            raise problem("invalid_request", f"timestamp: {error}") from None


class Moved(NamedTuple):
    """The next offset to read before and after; `before` None where the group had none."""

    topic: str
    partition: int
    before: int | None
    after: int


class OffsetReset:
    """Used on one event loop."""

    def __init__(self, groups: Groups, log: LogView, lookup: Lookup) -> None:
        self._groups = groups
        self._log = log
        self._lookup = lookup

    async def reset(self, group: str, request: ResetRequest) -> list[Moved]:
        """Every asked partition in the order of the request; with `dry_run` nothing is changed.

        Raises Refused `unknown_group`, `group_not_empty`, `unknown_partition`, `invalid_request`; UnknownTopic.
        """
        request.check()
        state = await self._groups.describe(group)
        if state.members:
            raise problem(
                "group_not_empty",
                f"the group {group} has members, which go on where they are: stop them, then reset it; "
                "one with an instance_id is gone once its session timeout is over",
            )
        committed = {(entry.key.topic, entry.key.partition): entry.offset for entry in state.offsets}
        moved = []
        for topic, view in self._asked(committed.keys(), request):
            before = committed.get((topic.name, view.partition))
            after = await self._after(topic, view, request, before)
            moved.append(Moved(topic.name, view.partition, before, after))
        if not request.dry_run:
            offsets = [CommittedOffset(move.topic, move.partition, move.after) for move in moved]
            await self._groups.offsets.commit(group, CommitRequest(offsets))
        return moved

    def _asked(self, known: Set[tuple[str, int]], request: ResetRequest) -> list[tuple[TopicView, PartitionView]]:
        if request.partitions is not None:
            twice = _first_twice([(at.topic, at.partition) for at in request.partitions])
            if twice is not None:
                raise problem("invalid_request", f"{twice[0]}/{twice[1]} is given twice; give it once")
            found = []
            for at in request.partitions:
                topic = self._log.topic(at.topic)
                found.append((topic, find_partition(topic, at.partition)))
        else:
            topics = [self._log.topic(name) for name in dict.fromkeys(request.topics or ())]
            found = [(topic, view) for topic in topics for view in topic.partitions]
        if request.to != "shift":
            return found
        there = [(topic, view) for topic, view in found if (topic.name, view.partition) in known]
        if not there or (request.partitions is not None and len(there) < len(found)):
            lacks = next((t.name, v.partition) for t, v in found if (t.name, v.partition) not in known)
            raise problem(
                "invalid_request",
                f"the group has no offset in {lacks[0]}/{lacks[1]} to shift: say earliest, latest, timestamp or offset",
                topic=lacks[0],
                partition=lacks[1],
            )
        return there

    async def _after(self, topic: TopicView, view: PartitionView, request: ResetRequest, before: int | None) -> int:
        if request.to == "timestamp":
            wanted = await self._lookup.offset_at(topic, view, request.timestamp_us())
        else:
            wanted = _wanted(request, view.bounds(), before)
        bounds = view.bounds()
        return min(max(wanted, bounds.log_start_offset), bounds.high_watermark)


def _first_twice(places: Sequence[tuple[str, int]]) -> tuple[str, int] | None:
    seen: set[tuple[str, int]] = set()
    for place in places:
        if place in seen:
            return place
        seen.add(place)
    return None


def _wanted(request: ResetRequest, bounds: Bounds, before: int | None) -> int:
    if request.to == "earliest":
        return bounds.log_start_offset
    if request.to == "latest":
        return bounds.high_watermark
    if request.to == "offset":
        assert request.offset is not None
        return request.offset
    assert request.shift is not None and before is not None
    return before + request.shift
