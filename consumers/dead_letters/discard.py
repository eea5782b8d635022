"""Dead letters that nobody wants any more: a marker hides them, and the log start follows where the lowest are hidden.

The marker is what counts, and it is durable before the log start moves: a process that ends between the two leaves
letters that are hidden, and the next that discards moves the log start. Repeated it comes to the same.
"""

import asyncio
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated

import msgspec

from siltlog.consumers.dead_letters.marker import Offsets, markers
from siltlog.consumers.dead_letters.marks import MarkIndex, bounds_of
from siltlog.consumers.dead_letters.replay import OFFSETS_MAX, DeadLetterName
from siltlog.consumers.groups.messages import Whole
from siltlog.consumers.reading.fetch import find_partition
from siltlog.consumers.reading.reader import check_there
from siltlog.consumers.reading.view import LogView, SystemLog, TopicView
from siltlog.infra import names
from siltlog.infra.errors import SiltlogError, UnknownTopic, problem
from siltlog.infra.records import Bounds

if TYPE_CHECKING:
    from siltlog.infra.telemetry import Logger

REASON_CHARS_MAX = 1_000
LISTED_MAX = 10
NOTHING = "nothing was discarded"


class DeadLetterRange(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """Every dead letter from the first to the last offset, both included."""

    partition: Whole
    first_offset: Whole
    last_offset: Whole


class DiscardRequest(msgspec.Struct, forbid_unknown_fields=True):
    """`offsets` name dead letters, `ranges` all that there are within them."""

    offsets: Annotated[list[DeadLetterName], msgspec.Meta(max_length=OFFSETS_MAX)] = []
    ranges: Annotated[list[DeadLetterRange], msgspec.Meta(max_length=OFFSETS_MAX)] = []
    reason: Annotated[str, msgspec.Meta(max_length=REASON_CHARS_MAX)] = ""


@dataclass(slots=True)
class Discarded:
    """How many were discarded now, and how many had been before; the log starts of the partitions, as they are now."""

    discarded: int = 0
    duplicates: int = 0
    log_starts: dict[int, int] = field(default_factory=dict)


@dataclass(slots=True)
class _Plan:
    """What is to be hidden in a partition."""

    bounds: Bounds
    hide: Offsets
    duplicates: int


class Discard:
    """Used on one event loop."""

    def __init__(self, log: LogView, system: SystemLog, marks: MarkIndex, logger: "Logger | None") -> None:
        self._log = log
        self._system = system
        self._marks = marks
        self._logger = logger
        # So that of two at a time one says that it discarded a letter, and the other that this was done.
        self._lock = asyncio.Lock()

    async def discard(self, topic: str, request: DiscardRequest) -> Discarded:
        """Hides dead letters of `topic`, for good. Those that are hidden or deleted already are counted as duplicates.

        Everything is checked before anything is hidden: raises Refused `not_found` where an offset has no dead letter,
        `offset_out_of_range` above the high watermark, `invalid_request`, UnknownTopic. What an append raises may come
        after some partitions are done.
        """
        async with self._lock:
            self._log.topic(topic)
            asked = _asked(request)
            try:
                dead = self._log.topic(names.dead_letter_topic(topic))
            except UnknownTopic:
                raise problem("not_found", f"the topic {topic} has no dead letters; {NOTHING}") from None
            named: dict[int, set[int]] = defaultdict(set)
            for at in request.offsets:
                named[at.partition].add(at.offset)
            plans = {
                partition: await self._planned(dead, partition, wanted, named.get(partition, set()))
                for partition, wanted in sorted(asked.items())
            }
            done = Discarded()
            for partition, plan in plans.items():
                bounds = plan.bounds
                if plan.hide:
                    records = markers(partition, plan.hide.runs(), request.reason)
                    offsets = await self._system.append(dead.name, partition, records)
                    last = max(offset for offset in offsets if offset is not None)
                    bounds = bounds._replace(high_watermark=max(bounds.high_watermark, last + 1))
                done.discarded += len(plan.hide)
                done.duplicates += plan.duplicates
                done.log_starts[partition] = await self._follow(dead, partition, bounds)
            return done

    async def _planned(self, dead: TopicView, partition: int, wanted: Offsets, named: set[int]) -> _Plan:
        view = find_partition(dead, partition)
        bounds = await bounds_of(view)
        start, end = bounds.log_start_offset, bounds.high_watermark
        last = wanted.runs()[-1][1] - 1
        if last >= end:
            check_there(dead, view, last, "dead letter", f"; {NOTHING}", bounds)
        marks = await self._marks.of(dead, partition, bounds)
        missing = sorted(
            offset for offset in named if offset >= start and offset not in marks.shown and offset not in marks.hidden
        )
        if missing:
            positions = ", ".join(f"{partition}:{offset}" for offset in missing[:LISTED_MAX])
            raise problem(
                "not_found",
                f"there is no dead letter {positions} in {dead.name}: that says what was discarded, or is not there; "
                f"{NOTHING}",
                partition=partition,
                offsets=missing[:LISTED_MAX],
            )
        hide, before = Offsets(), Offsets((offset, offset + 1) for offset in named if offset < start)
        for first, last in wanted.runs():
            for run in marks.shown.within(first, last):
                hide.add(*run)
            for run in marks.hidden.within(first, last):
                before.add(*run)
        return _Plan(bounds, hide, len(before))

    async def _follow(self, dead: TopicView, partition: int, bounds: Bounds) -> int:
        """Moves the log start up to the lowest letter that is there; where it is then.

        What is hidden is hidden wherever the log start is. So where that cannot be moved, the next discard does it.
        """
        marks = await self._marks.of(dead, partition, bounds)
        lowest = marks.shown.lowest()
        if lowest is None:
            lowest = bounds.high_watermark
        if lowest <= bounds.log_start_offset:
            return bounds.log_start_offset
        try:
            return await self._system.delete_records(dead.name, partition, lowest)
        except SiltlogError as error:
            if self._logger is not None:
                self._logger.warning(
                    "discarded dead letters are hidden, and not deleted yet",
                    topic=dead.name,
                    partition=partition,
                    reason=error.detail,
                )
            return bounds.log_start_offset


def _asked(request: DiscardRequest) -> Mapping[int, Offsets]:
    """Offsets of each partition that is named. Raises Refused `invalid_request`."""
    if not request.offsets and not request.ranges:
        raise problem("invalid_request", f"say which dead letters: give offsets or ranges; {NOTHING}")
    asked: dict[int, Offsets] = defaultdict(Offsets)
    for at in sorted(request.offsets):
        asked[at.partition].add(at.offset, at.offset + 1)
    for span in request.ranges:
        if span.first_offset > span.last_offset:
            raise problem(
                "invalid_request",
                f"ranges: in partition {span.partition} first_offset {span.first_offset} is above last_offset "
                f"{span.last_offset}; {NOTHING}",
            )
        asked[span.partition].add(span.first_offset, span.last_offset + 1)
    return asked
