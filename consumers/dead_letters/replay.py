"""Dead letters go back to the topic they came from, each once for a replay."""

import asyncio
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import msgspec
import xxhash

from siltlog.consumers.dead_letters.marks import MarkIndex, Marks, bounds_of, read_on
from siltlog.consumers.dead_letters.record import Origin, origin, stored_records
from siltlog.consumers.groups.messages import Name, Whole
from siltlog.consumers.reading.fetch import Fetcher, find_partition
from siltlog.consumers.reading.reader import check_there
from siltlog.consumers.reading.view import LogView, SystemLog, TopicView
from siltlog.infra import names, producer_names
from siltlog.infra.arrow.partitioner import PARTITIONERS
from siltlog.infra.clock import Clock
from siltlog.infra.errors import UnknownTopic, problem
from siltlog.infra.records import NewRecord
from siltlog.infra.settings.topic_config import TopicConfig

OFFSETS_MAX = 100_000
ALL = "all"


class DeadLetterName(msgspec.Struct, forbid_unknown_fields=True, frozen=True, order=True):
    partition: Whole
    offset: Whole


class ReplayRequest(msgspec.Struct, forbid_unknown_fields=True):
    """`offsets` left out: every dead letter there is."""

    replay_id: Name
    offsets: Annotated[list[DeadLetterName], msgspec.Meta(max_length=OFFSETS_MAX)] | None = None


@dataclass(slots=True)
class Replayed:
    """How many dead letters went back, and how many had gone back before by the same replay."""

    replayed: int = 0
    duplicates: int = 0


class Replay:
    """Used on one event loop."""

    def __init__(self, log: LogView, fetcher: Fetcher, system: SystemLog, clock: Clock, marks: MarkIndex) -> None:
        self._log = log
        self._fetcher = fetcher
        self._system = system
        self._clock = clock
        self._marks = marks
        # What a replay_id stands for is known by what it has published: two at a time would not see each other.
        self._lock = asyncio.Lock()

    async def replay(self, topic: str, request: ReplayRequest) -> Replayed:
        """Publishes them with their own key, value, headers and time, to the partitions they came from.

        Repeated with the same `replay_id` and `offsets` it brings what is missing. Raises Refused
        `idempotency_key_reused` where the replay_id stands for other offsets, `offset_out_of_range`, `not_found` for
        one that was discarded, UnknownTopic, and what a publish raises.
        """
        async with self._lock:
            target = self._log.topic(topic)
            done = Replayed()
            try:
                dead = self._log.topic(names.dead_letter_topic(topic))
            except UnknownTopic:
                if request.offsets:
                    raise problem("not_found", f"the topic {topic} has no dead letters; nothing was replayed") from None
                return done
            chosen = _chosen(request.offsets)
            await self._check_unused(topic, request.replay_id, chosen)
            wanted = self._wanted(dead, request.offsets)
            marks = {at: await self._marks.of(dead, at, await bounds_of(dead.partitions[at])) for at in wanted}
            for at in request.offsets or ():
                if at.offset not in marks[at.partition].shown:
                    raise problem(
                        "not_found",
                        f"there is no dead letter {at.partition}:{at.offset} of {topic} (any more): it was discarded, "
                        "or says what was; nothing was replayed",
                        partition=at.partition,
                        offset=at.offset,
                    )
            for partition, offsets in sorted(wanted.items()):
                producer_id = producer_names.replay_producer(request.replay_id, chosen, dead.topic_id, partition)
                await self._replay(dead, partition, offsets, marks[partition], target, producer_id, done)
            return done

    async def _check_unused(self, topic: str, replay_id: str, chosen: str) -> None:
        prefix = producer_names.replay_prefix(replay_id)
        known = await self._system.producers_of(topic, prefix)
        used = {producer.removeprefix(prefix).partition("/")[0] for producer in known}
        if used - {chosen}:
            raise problem(
                "idempotency_key_reused",
                f"the replay_id {replay_id} was used with other offsets in the topic {topic}: one stands for one "
                "request; take a new one for these",
            )

    def _wanted(self, dead: TopicView, offsets: Sequence[DeadLetterName] | None) -> dict[int, Sequence[int]]:
        """Offsets of each partition, ascending."""
        if offsets is None:
            bounds = [view.bounds() for view in dead.partitions]
            return {
                partition: range(found.log_start_offset, found.high_watermark) for partition, found in enumerate(bounds)
            }
        wanted: dict[int, list[int]] = defaultdict(list)
        for at in sorted(set(offsets)):
            check_there(dead, find_partition(dead, at.partition), at.offset, "dead letter", "; nothing was replayed")
            wanted[at.partition].append(at.offset)
        return dict(wanted)

    async def _replay(
        self,
        dead: TopicView,
        partition: int,
        offsets: Sequence[int],
        marks: Marks,
        target: TopicView,
        producer_id: str,
        done: Replayed,
    ) -> None:
        chosen = offsets if isinstance(offsets, range) else frozenset(offsets)
        at = 0
        while at < len(offsets):
            batches, next_offset = await read_on(self._fetcher, dead, partition, offsets[at])
            by_partition: dict[int, list[tuple[int, NewRecord]]] = defaultdict(list)
            for record in (record for batch in batches for record in stored_records(batch)):
                if record.offset in chosen and record.offset in marks.shown:
                    found = origin(record)
                    by_partition[_partition(found, target)].append((record.offset, self._timed(found, target.config)))
            for number, entries in sorted(by_partition.items()):
                appended = await self._system.append(
                    target.name,
                    number,
                    [record for _, record in entries],
                    producer_id=producer_id,
                    sequences=[offset for offset, _ in entries],
                )
                done.duplicates += appended.count(None)
                done.replayed += len(appended) - appended.count(None)
            at = bisect_left(offsets, next_offset)

    def _timed(self, found: Origin, config: TopicConfig) -> NewRecord:
        """Gives the record its own time, unless the topic no longer takes one that is so old."""
        oldest_us, _ = config.times_us(self._clock.now_us(), stored=True)
        if (found.record.timestamp_us or 0) < oldest_us:
            return found.record._replace(timestamp_us=None)
        return found.record


def _partition(found: Origin, target: TopicView) -> int:
    """The one it came from; in a successor with fewer partitions the one its key says."""
    count = len(target.partitions)
    if found.partition < count:
        return found.partition
    if found.record.key is None:
        return found.partition % count
    return PARTITIONERS[str(target.config["partitioner"])].partition_of(found.record.key, count)


def _chosen(offsets: Sequence[DeadLetterName] | None) -> str:
    """Says which dead letters were asked for, in the name of the producer."""
    if offsets is None:
        return ALL
    return xxhash.xxh3_128_hexdigest(msgspec.json.encode(sorted(set(offsets))))
