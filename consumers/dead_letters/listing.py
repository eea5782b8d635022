"""Lists the dead letters of a topic, the newest first, without those that were discarded."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import msgspec

from siltlog.consumers.dead_letters.marks import MarkIndex, Marks, bounds_of, read_on
from siltlog.consumers.dead_letters.record import said_of, stored_records
from siltlog.consumers.reading import render
from siltlog.consumers.reading.fetch import Fetcher
from siltlog.consumers.reading.render import Values
from siltlog.consumers.reading.view import LogView, PartitionView, TopicView
from siltlog.infra import names
from siltlog.infra.errors import UnknownTopic, problem

PAGE_BYTES = 4 * 1024 * 1024
"""A page ends with the letter that brings it to so many bytes."""
CHUNK_BYTES = 256 * 1024
CHUNK_RECORDS = 16
CHUNK_RECORDS_MAX = 500
SHRINK = 8
"""What is read backwards is tried with so many times fewer records where a chunk of them is too large."""
SCANNED_MAX = 5_000
"""Records that are not to be shown, which one page passes over at most."""
_AFTER = re.compile(r"\d{1,10}:\d{1,16}(?:,\d{1,10}:\d{1,16})*")
_JSON = msgspec.json.Encoder()


class Letter(render.Record):
    """A record as reads give it, and what is said about it; null where its headers do not say that."""

    dead_letter: dict[str, str | int] | None


class Page(NamedTuple):
    letters: list[msgspec.Raw]
    following: str | None
    """Where the next page begins; None: there is none."""
    letters_all: int
    """How many letters there are, of all groups."""


class _Found(NamedTuple):
    time_us: int
    offset: int
    letter: msgspec.Raw


@dataclass(slots=True)
class _Partition:
    """A partition that is read from its end: `found` are letters of it that were not given yet, the newest last."""

    partition: int
    end: int
    marks: Marks
    view: PartitionView
    found: list[_Found] = field(default_factory=list)
    chunk: int = CHUNK_RECORDS

    @property
    def start(self) -> int:
        """The log start, which moves while a page is made."""
        return max(self.marks.start, self.view.bounds().log_start_offset)

    @property
    def done(self) -> bool:
        return not self.found and self.end <= self.start

    def below(self, end: int) -> int:
        """The offset after the last letter below `end` that is not hidden; where there is none, 0."""
        last = self.marks.shown.highest_below(end)
        return 0 if last is None else last + 1

    @property
    def position(self) -> int:
        """Below it nothing was given."""
        return self.found[-1].offset + 1 if self.found else self.end


class DeadLetterList:
    """Used on one event loop."""

    def __init__(self, log: LogView, fetcher: Fetcher, marks: MarkIndex) -> None:
        self._log = log
        self._fetcher = fetcher
        self._marks = marks

    async def page(self, topic: str, group: str | None, after: str | None, limit: int, values: Values) -> Page:
        """At most `limit` letters, those of `group` alone where it is given, from where a page ended.

        Newest is what was given up last; in each partition that is the order of offsets. A page may have fewer and be
        followed by others. Raises Refused `invalid_parameter`, UnknownTopic, and what a read raises.
        """
        positions = _positions(after)
        self._log.topic(topic)
        try:
            dead = self._log.topic(names.dead_letter_topic(topic))
        except UnknownTopic:
            return Page([], None, 0)
        partitions, count = await self._begun(dead, positions)
        letters: list[msgspec.Raw] = []
        size, budget = 0, SCANNED_MAX
        while len(letters) < limit and size < PAGE_BYTES:
            for one in partitions:
                while budget > 0 and not one.found and not one.done:
                    budget -= await self._read(dead, one, group, values)
            if any(not one.found and not one.done for one in partitions):
                break
            newest = max(
                (one for one in partitions if one.found),
                key=lambda one: (one.found[-1].time_us, -one.partition),
                default=None,
            )
            if newest is None:
                break
            letter = newest.found.pop().letter
            size += len(bytes(letter))
            letters.append(letter)
        left = [f"{one.partition}:{one.position}" for one in partitions if not one.done]
        return Page(letters, ",".join(left) or None, count)

    async def _begun(self, dead: TopicView, positions: Mapping[int, int] | None) -> tuple[list[_Partition], int]:
        """The partitions that there is something to read in, and how many letters there are in all."""
        found, count = [], 0
        for view in dead.partitions:
            bounds = await bounds_of(view)
            marks = await self._marks.of(dead, view.partition, bounds)
            count += len(marks.shown)
            end = bounds.high_watermark if positions is None else positions.get(view.partition, 0)
            one = _Partition(view.partition, end, marks, view)
            one.end = one.below(end)
            if not one.done:
                found.append(one)
        return found, count

    async def _read(self, dead: TopicView, one: _Partition, group: str | None, values: Values) -> int:
        """Reads the chunk below; how many records in it are none of these."""
        first = max(one.end - one.chunk, one.start)
        batches, next_offset = await read_on(
            self._fetcher, dead, one.partition, first, max_records=one.end - first, max_bytes=CHUNK_BYTES
        )
        if next_offset < one.end and first < one.end - 1:
            one.chunk = max(one.chunk // SHRINK, 1)
            return 0
        passed = 0
        for batch in batches:
            for record, shown in zip(stored_records(batch), render.records([batch], values), strict=True):
                if record.offset >= one.end:
                    break
                said = said_of(record.headers)
                if record.offset not in one.marks.shown or (
                    group is not None and (said is None or said["group"] != group)
                ):
                    passed += 1
                    continue
                members = {name: getattr(shown, name) for name in render.Record.__struct_fields__}
                letter = Letter(**members, dead_letter=said)
                one.found.append(_Found(record.timestamp_us, record.offset, msgspec.Raw(_JSON.encode(letter))))
        one.end = one.below(first)
        one.chunk = min(one.chunk * 2, CHUNK_RECORDS_MAX)
        return passed


def _positions(after: str | None) -> dict[int, int] | None:
    """Where a page goes on, by partition. Raises Refused `invalid_parameter`."""
    if after is None:
        return None
    if _AFTER.fullmatch(after) is None:
        raise problem(
            "invalid_parameter", "after is not what the last reply gave as its next; send that", parameter="after"
        )
    return {int(partition): int(end) for partition, _, end in (part.partition(":") for part in after.split(","))}
