"""Fetches: one answer, or one long poll, over many partitions."""

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol, cast

import msgspec

from siltlog.consumers.reading import arrow_stream, render
from siltlog.consumers.reading.budget import Budget, Share
from siltlog.consumers.reading.heads import Head, Wanted, read_heads
from siltlog.consumers.reading.lookup import Lookup
from siltlog.consumers.reading.reader import Isolation, Reader, visible_end
from siltlog.consumers.reading.render import Values
from siltlog.consumers.reading.row_groups import RowGroups
from siltlog.consumers.reading.view import LogView, PartitionView, TopicView
from siltlog.consumers.reading.waiting import Wait, Waits
from siltlog.infra import names
from siltlog.infra.arrow.pieces import Piece
from siltlog.infra.errors import SiltlogError, UnknownTopic, problem, problem_document
from siltlog.infra.http.memory import Held
from siltlog.infra.limits import TURN_ITEMS
from siltlog.infra.records import Bounds
from siltlog.infra.security.grant import EVERYTHING, Grant

GOLDEN_RATIO = 0.6180339887498949
"""Multiples of it, modulo 1, and those of every subsequence with a fixed stride, are spread evenly (Weyl)."""

FAR_REST_SECONDS, FAR_REST_SECONDS_MAX = 0.02, 0.25
"""How long a fetch that waits for more bytes than another node had rests before it asks that again, at first and at
most: each publish there moves the end."""

_JSON = msgspec.json.Encoder()


@dataclass(frozen=True, slots=True)
class FetchPosition:
    topic: str
    partition: int
    offset: int
    max_bytes: int | None = None
    """At most so much of this partition; None: as much as the fetch takes."""
    topic_id: str | None = None
    """When given, the topic must still be this one."""


@dataclass(slots=True)
class PartitionFetch:
    """The result of a fetch in one partition. `bounds` is None where the partition could not be found."""

    position: FetchPosition
    next_offset: int
    share: Share
    bounds: Bounds | None = None
    error: SiltlogError | None = None
    batches: list[Any] = field(default_factory=list)
    """RECORD_SCHEMA batches, and a SentBatch for each that was taken as it was sent."""
    topic_id: str | None = None

    @property
    def count(self) -> int:
        return sum(batch.num_rows for batch in self.batches)


@dataclass(frozen=True, slots=True)
class FetchResult:
    """`partitions` in the order asked for; `order` is the order they were read in, which the records have."""

    partitions: Sequence[PartitionFetch]
    order: Sequence[int]
    values: Values

    def document(self) -> dict[str, Any]:
        """The reply of POST /v1/fetch, for msgspec's JSON encoder; members may be added."""
        return {"partitions": self._partitions(), "records": self.records()}

    def records(self) -> list[render.Record]:
        out: list[render.Record] = []
        for part in self._in_order():
            out += render.records(part.batches, self.values, part.position.topic)
        return out

    def json_bytes(self) -> bytes:
        return _JSON.encode(self.document())

    def arrow_buffers(self) -> list[Piece]:
        """An Arrow IPC stream of FETCH_SCHEMA, in pieces; the partitions are in the schema's metadata."""
        metadata = {names.ARROW_METADATA_KEY: _JSON.encode(self._partitions()).decode()}
        return arrow_stream.fetch_stream([(part.position.topic, part.batches) for part in self._in_order()], metadata)

    @property
    def count(self) -> int:
        return sum(part.count for part in self.partitions)

    def _in_order(self) -> list[PartitionFetch]:
        return [self.partitions[index] for index in self.order]

    def _partitions(self) -> list[dict[str, Any]]:
        out = []
        for part in self.partitions:
            bounds = part.bounds._asdict() if part.bounds else dict.fromkeys(Bounds._fields)
            error = problem_document(part.error, None) if part.error else None
            position = {"topic": part.position.topic, "partition": part.position.partition}
            out.append({**position, "next_offset": part.next_offset, **bounds, "error": error})
        return out


class Meter(Protocol):
    """Holds reads to the quotas of their topics."""

    def ask_topics(self, topics: Iterable[str]) -> None:
        """Raises Unavailable `rate_limited` where one of them has to wait."""

    def read_of(self, topic: str, nbytes: int) -> float:
        """Counts what was read of a topic."""


class Fetcher:
    """Serves fetches from a log. Used on one event loop."""

    def __init__(self, log: LogView, row_groups: RowGroups) -> None:
        self._log = log
        self.lookup = Lookup(log.store, row_groups)
        self._reader = Reader(row_groups)
        self._turn = 0.0
        self.records: dict[str, int] = {}
        self.bytes: dict[str, int] = {}
        """What was read so far, by topic."""
        self.waits = Waits()

    def wake(self) -> None:
        """Every waiting fetch returns with what it has; for a server that drains."""
        self.waits.wake()

    async def fetch(
        self,
        positions: Sequence[FetchPosition],
        *,
        max_records: int,
        max_bytes: int,
        min_bytes: int,
        wait_ms: int,
        isolation: str = "wal",
        values: str = "text",
        held: Held | None = None,
        grant: Grant = EVERYTHING,
        meter: Meter | None = None,
        producers: bool = False,
        sent: bool = False,
    ) -> FetchResult:
        """Reads until `min_bytes` are there, a partition has a problem, or `wait_ms` are over.

        Problems of one partition are in its part of the result; that `grant` does not allow to read it is one, also
        where that changed meanwhile. Limits are the caller's to cut. What is read is counted in `held`; reads of the
        server itself are no reply, and give none. `meter` takes it of the quotas of each topic that may be read. With
        `producers` records come with theirs (PRODUCED_SCHEMA), of what is in the table from there: it costs more. With
        `sent` batches come as they were sent, where they are still there: it costs less.
        Raises Refused `unauthenticated` when the grant ended, Unavailable `rate_limited`.
        """
        if meter is not None:
            meter.ask_topics(self._readable(grant, positions))
        budget = Budget(max_records, max_bytes, held)
        parts = await _begun(positions)
        first = self._first_of(len(parts))
        order = [*range(first, len(parts)), *range(first)]
        result = FetchResult(parts, order, cast(Values, values))
        wait: Wait | None = None
        turn: Sequence[int] = order
        forget = nothing
        rest_seconds = FAR_REST_SECONDS
        try:
            while True:
                heads = await self._far_heads(parts, turn, budget, cast(Isolation, isolation), grant, producers)
                for number, index in enumerate(turn, 1):
                    if budget.spent:
                        break
                    if number % TURN_ITEMS == 0:
                        await asyncio.sleep(0)
                    head = heads.get(index, ())
                    await self._read(parts[index], budget, cast(Isolation, isolation), grant, head, producers, sent)
                if (
                    budget.spent
                    or budget.bytes_taken >= min_bytes
                    or any(part.error or part.share.spent for part in parts)
                ):
                    for number, part in enumerate(parts, 1):
                        self._tell_bounds(part, grant)
                        if number % TURN_ITEMS == 0:
                            await asyncio.sleep(0)
                    return result
                if wait is None:
                    if wait_ms <= 0:
                        return result
                    wait = self._begin_wait(parts, grant.within(wait_ms), cast(Isolation, isolation))
                    if grant is not EVERYTHING:
                        forget = grant.when_changed(wait.look)
                    # What moved while the partitions were read, before they were watched.
                    turn = [index for index in order if self._has_more(parts[index], cast(Isolation, isolation))]
                    if turn:
                        continue
                if wait.over or self._log.draining:
                    return result
                if any(part.batches and self._is_far(part) for part in parts):
                    await wait.rest(rest_seconds)
                    rest_seconds = min(2 * rest_seconds, FAR_REST_SECONDS_MAX)
                moved = await wait.moved()
                grant.check()
                turn = [index for index in order if index in moved] if len(moved) < len(order) else order
        finally:
            forget()
            if wait is not None:
                wait.close()
            for part in parts:
                if part.batches:
                    self._count(part)
                    if meter is not None:
                        meter.read_of(part.position.topic, part.share.bytes_taken)

    def _count(self, part: PartitionFetch) -> None:
        topic = part.position.topic
        self.records[topic] = self.records.get(topic, 0) + part.count
        self.bytes[topic] = self.bytes.get(topic, 0) + part.share.bytes_taken

    def _first_of(self, count: int) -> int:
        """Chooses the partition a fetch begins with: each as often as others, also among every second or third
        fetch."""
        self._turn = (self._turn + GOLDEN_RATIO) % 1
        return int(self._turn * count)

    def _begin_wait(self, parts: Sequence[PartitionFetch], wait_ms: int, isolation: Isolation) -> Wait:
        wait = self.waits.begin(wait_ms)
        for index, part in enumerate(parts):
            # What is published is at once more to read, but is not in the table yet.
            worth = partial(self._has_more, part, isolation) if isolation == "table" else None
            try:
                wait.watch(index, self._find(part)[1], worth)
            except SiltlogError as error:
                part.error = error
        return wait

    def _has_more(self, part: PartitionFetch, isolation: Isolation) -> bool:
        """Whether reading on gives records, or a problem."""
        try:
            bounds = self._find(part)[1].bounds()
        except SiltlogError:
            return True
        return part.error is not None or not _is_at_end(part.next_offset, bounds, isolation)

    def _is_far(self, part: PartitionFetch) -> bool:
        try:
            return self._find(part)[1].far
        except SiltlogError:
            return False

    async def _far_heads(
        self,
        parts: Sequence[PartitionFetch],
        turn: Iterable[int],
        budget: Budget,
        isolation: Isolation,
        grant: Grant,
        producers: bool,
    ) -> Mapping[int, Head]:
        """Heads at other nodes that the partitions of a turn go on in, where there are several: as many as fill the
        reply."""
        if not self._log.view:
            return {}
        wanted: dict[int, Wanted] = {}
        for index in turn:
            part = parts[index]
            # What cannot be found or may not be read is told where it is read.
            with suppress(SiltlogError):
                require_read(grant, part.position.topic)
                view = self._find(part)[1]
                bounds = view.bounds()
                if view.far and bounds.table_offset <= part.next_offset < visible_end(bounds, isolation):
                    wanted[index] = Wanted(view, part.next_offset, visible_end(bounds, isolation), part.share)
        return await read_heads(wanted, budget, producers) if len(wanted) > 1 else {}

    async def _read(
        self,
        part: PartitionFetch,
        budget: Budget,
        isolation: Isolation,
        grant: Grant,
        head: Head,
        producers: bool,
        sent: bool,
    ) -> None:
        """Reads on in one partition; its problem becomes part of it."""
        if part.error is not None:
            return
        try:
            if grant is not EVERYTHING:
                require_read(grant, part.position.topic)
            topic, view = self._find(part)
            part.topic_id, part.bounds = topic.topic_id, view.bounds()
            if not head and _is_at_end(part.next_offset, part.bounds, isolation):
                return
            share = part.share
            read = await self._reader.read(
                topic, view, part.next_offset, budget, share, isolation, head, producers, sent
            )
        except SiltlogError as error:
            part.error = error
            return
        part.next_offset = read.next_offset
        part.bounds = read.bounds
        part.batches += read.batches

    def _tell_bounds(self, part: PartitionFetch, grant: Grant) -> None:
        """Fills in the bounds of a partition that was not read: what others have may be all that a fetch takes."""
        if part.bounds is None and part.error is None:
            try:
                require_read(grant, part.position.topic)
                topic, view = self._find(part)
            except SiltlogError as error:
                part.error = error
            else:
                part.topic_id, part.bounds = topic.topic_id, view.bounds()

    def _readable(self, grant: Grant, positions: Sequence[FetchPosition]) -> list[str]:
        """Lists the topics that are there and may be read: no measure is kept of names that somebody made up."""
        found = []
        for topic in dict.fromkeys(at.topic for at in positions):
            if all(grant.may("read", "topic", name) for name in sources(topic)):
                with suppress(UnknownTopic):
                    found.append(self._log.topic(topic).name)
        return found

    def _find(self, part: PartitionFetch) -> tuple[TopicView, PartitionView]:
        position = part.position
        topic = find_topic(self._log, position.topic, part.topic_id or position.topic_id)
        return topic, find_partition(topic, position.partition)


async def _begun(positions: Sequence[FetchPosition]) -> list[PartitionFetch]:
    parts = []
    for number, at in enumerate(positions, 1):
        parts.append(PartitionFetch(at, at.offset, Share(at.max_bytes)))
        if number % TURN_ITEMS == 0:
            await asyncio.sleep(0)
    return parts


def _is_at_end(offset: int, bounds: Bounds, isolation: Isolation) -> bool:
    """Whether there is nothing to read from an offset, and nothing wrong with it."""
    return bounds.log_start_offset <= offset == visible_end(bounds, isolation)


def require_read(grant: Grant, topic: str) -> None:
    """Raises Refused `forbidden`. Dead letters are records of their topic, which is to be read too."""
    if grant is EVERYTHING:
        return
    for name in sources(topic):
        grant.require("read", "topic", name)


def sources(topic: str) -> Iterator[str]:
    """Yields the topic, and the topics whose dead letters it has."""
    yield topic
    while topic.endswith(names.DEAD_LETTER_SUFFIX):
        topic = topic.removesuffix(names.DEAD_LETTER_SUFFIX)
        yield topic


def nothing() -> None:
    """Does nothing, where there is nothing to be undone."""


def find_topic(log: LogView, name: str, topic_id: str | None) -> TopicView:
    """Raises UnknownTopic, also where the topic of that name is another than `topic_id`."""
    topic = log.topic(name)
    if topic_id is not None and topic.topic_id != topic_id:
        raise problem(
            "unknown_topic",
            f"the topic {name} was deleted and created again: its id is {topic.topic_id}, not {topic_id[:80]}",
            topic=name,
            topic_id=topic.topic_id,
        )
    return topic


def find_partition(topic: TopicView, partition: int) -> PartitionView:
    if not 0 <= partition < len(topic.partitions):
        raise problem(
            "unknown_partition",
            f"the topic {topic.name} has the partitions 0 to {len(topic.partitions) - 1}, not {partition}",
            topic=topic.name,
            partition=partition,
        )
    return topic.partitions[partition]
