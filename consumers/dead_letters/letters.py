"""Records that a group gave up: copied to the dead letters of their topic, once, and then passed.

The copy is published by a producer of the group and partition, whose sequences are the source's offsets; so that one
whose commit was lost with the server is known when it comes again. A copy that was discarded since does not count: who
gives the record up again is to be seen. A group that goes back gives up lower offsets than
before, which such a producer would take for duplicates: a producer that has passed the offset is left alone, and the
next one in a line of them is taken.
"""

import asyncio
from collections import Counter
from dataclasses import dataclass
from itertools import count

from siltlog.consumers.dead_letters.marks import MarkIndex, bounds_of
from siltlog.consumers.dead_letters.record import Failure, Stored, dead_letter, stored_records
from siltlog.consumers.groups.messages import (
    ERROR_CHARS_MAX,
    Actor,
    Attempted,
    AttemptRequest,
    CommitRequest,
    CommittedOffset,
    DeadLetterRequest,
)
from siltlog.consumers.groups.offsets import Offsets
from siltlog.consumers.reading.fetch import Fetcher, FetchPosition
from siltlog.consumers.reading.view import Key, SystemLog, TopicView
from siltlog.infra import producer_names
from siltlog.infra.clock import Clock
from siltlog.infra.errors import problem

LOCKS = 64
LISTED_MAX = 10


@dataclass(frozen=True, slots=True)
class Buried:
    """Where a dead letter is; `duplicate`: it was there before, and `offset` is None where that is not known."""

    topic: str
    partition: int
    offset: int | None
    attempts: int
    duplicate: bool


@dataclass(frozen=True, slots=True)
class Nacked:
    """`buried` None: the record is to be delivered again, to who polls once its partition has rested."""

    attempts: int
    buried: Buried | None
    rest_ms: int = 0


class DeadLetters:
    """Used on one event loop."""

    def __init__(self, offsets: Offsets, fetcher: Fetcher, system: SystemLog, clock: Clock, marks: MarkIndex) -> None:
        self._offsets = offsets
        self._fetcher = fetcher
        self._system = system
        self._clock = clock
        self._marks = marks
        # Between looking at the producers and appending as one of them nobody else appends as one.
        self._locks = [asyncio.Lock() for _ in range(LOCKS)]
        self.attempts: Counter[str] = Counter()
        """Attempts that were counted, by topic, since the process started."""
        self.buried: Counter[str] = Counter()
        """Records that became dead letters, by their topic, since the process started."""

    async def attempt(
        self,
        group: str,
        request: AttemptRequest,
        suspect_max: int | None = None,
        actor: Actor | None = None,
        backoff_ms: tuple[int, int] | None = None,
    ) -> Attempted:
        """Counts one attempt at a record, to be told before it is handled; `suspect_max` and `backoff_ms` as in
        `Offsets.attempt`."""
        found = await self._offsets.attempt(
            group, request, actor, count=True, suspect_max=suspect_max, backoff_ms=backoff_ms
        )
        if request.offset < found.committed:
            raise problem(
                "invalid_request",
                f"the group {group} has committed {found.committed} in {request.topic}/{request.partition}: "
                f"the record at {request.offset} is done, and has no more attempts",
                committed=found.committed,
            )
        self.attempts[request.topic] += not found.spent
        return found

    async def nack(
        self,
        group: str,
        request: DeadLetterRequest,
        attempts_max: int,
        actor: Actor | None = None,
        backoff_ms: tuple[int, int] | None = None,
    ) -> Nacked:
        """The record's handling failed: counts an attempt, and buries the record where that was the last."""
        counted = await self.attempt(group, request, actor=actor, backoff_ms=backoff_ms)
        if counted.attempts < attempts_max:
            return Nacked(counted.attempts, None, counted.rest_ms)
        return Nacked(counted.attempts, await self.bury(group, request, actor))

    async def bury(self, group: str, request: DeadLetterRequest, actor: Actor | None = None) -> Buried:
        """Copies the record to the dead letters, then commits the offset after it.

        Raises Fenced where the member does not hold the partition, Refused `records_open` while lower records that it
        has begun are not committed, `offset_out_of_range` or `not_found` where the record is gone, and what a publish
        and a commit raise. Whatever it raised, it may be called again: one record becomes one dead letter.
        """
        found = await self._offsets.attempt(group, request, actor, count=False)
        if found.lower:
            listed = ", ".join(map(str, found.lower[:LISTED_MAX]))
            raise problem(
                "records_open",
                f"{request.member_id} has begun {listed} in {request.topic}/{request.partition} and has not committed "
                f"beyond: commit {found.lower[-1] + 1} or give those up first",
                offsets=found.lower[:LISTED_MAX],
            )
        async with self._locks[hash((group, found.key)) % LOCKS]:
            buried = await self._copied(group, request, found)
        if request.offset >= found.committed:
            done = CommittedOffset(request.topic, request.partition, request.offset + 1)
            commit = CommitRequest(offsets=[done], member_id=request.member_id, generation=request.generation)
            await self._offsets.commit(group, commit, found.key.topic_id, actor)
        if not buried.duplicate:
            self.buried[request.topic] += 1
        return buried

    async def _copied(self, group: str, request: DeadLetterRequest, found: Attempted) -> Buried:
        key = found.key
        topic = await self._system.dead_letters(key.topic)
        producer_id, known = await self._producer(topic, group, key, request.offset, found.committed)
        if known is None and request.offset < found.committed:
            raise problem(
                "invalid_request",
                f"the group {group} has committed {found.committed} in {key.topic}/{key.partition}, and the record at "
                f"{request.offset} with it: it is done, and nothing was copied",
                committed=found.committed,
            )
        failure = Failure(
            key.topic, key.partition, group, found.attempts, request.error[:ERROR_CHARS_MAX], self._clock.now_us()
        )
        record = dead_letter(await self._stored(key, request.offset), failure)
        # Also where it is known to be there: this returns once that is durable.
        [offset] = await self._system.append(
            topic.name, key.partition, [record], producer_id=producer_id, sequences=[request.offset]
        )
        duplicate = offset is None
        return Buried(topic.name, key.partition, known if duplicate else offset, found.attempts, duplicate)

    async def _producer(
        self, topic: TopicView, group: str, key: Key, offset: int, committed: int
    ) -> tuple[str, int | None]:
        """Returns the producer id that copies the record at `offset`, and the offset of a copy made before."""
        start = topic.partitions[key.partition].bounds().log_start_offset
        for line in count():
            producer_id = producer_names.dead_letter_producer(group, key.topic_id, key.partition, line)
            last = await self._system.last_of(topic.name, key.partition, producer_id)
            if last is None or last[0] < offset:
                return producer_id, None
            # Where the record is done, this is a repeat, even where the copy was discarded since.
            there = last[0] == offset and last[1] >= start
            if there and (offset < committed or not await self._discarded(topic, key.partition, last[1])):
                return producer_id, last[1]
            # It went beyond, or what it published was purged or discarded.
        raise AssertionError("a line of producers has an end")

    async def _discarded(self, topic: TopicView, partition: int, offset: int) -> bool:
        bounds = await bounds_of(topic.partitions[partition])
        return offset in (await self._marks.of(topic, partition, bounds)).hidden

    async def _stored(self, key: Key, offset: int) -> Stored:
        at = FetchPosition(key.topic, key.partition, offset, topic_id=key.topic_id)
        result = await self._fetcher.fetch([at], max_records=1, max_bytes=1, min_bytes=0, wait_ms=0)
        [part] = result.partitions
        if part.error is not None:
            raise part.error
        for batch in part.batches:
            for record in stored_records(batch):
                if record.offset == offset:
                    return record
        raise problem(
            "not_found",
            f"there is no record at offset {offset} of {key.topic}/{key.partition} (any more): commit {offset + 1}",
        )
