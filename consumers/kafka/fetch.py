"""Fetches of Kafka: the same reads as any, whose records are encoded as batches of Kafka."""

import asyncio
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import pyarrow as pa

from siltlog.consumers.reading.fetch import Fetcher, FetchPosition, Meter, PartitionFetch, find_partition, find_topic
from siltlog.consumers.reading.view import LogView
from siltlog.infra.errors import SiltlogError
from siltlog.infra.http.memory import Held
from siltlog.infra.kafka.compression import CODEC_NUMBERS, NO_CODEC
from siltlog.infra.kafka.errors import KafkaError, kafka_error
from siltlog.infra.kafka.records import control_marker, encode, resent
from siltlog.infra.kafka.wire import Buffer
from siltlog.infra.limits import TURN_ITEMS
from siltlog.infra.records import Bounds, SentBatch
from siltlog.infra.security.grant import Grant

INLINE_BYTES_MAX = 256 * 1024
"""Replies of more bytes are encoded on a thread."""
COMPRESSED_INLINE_BYTES_MAX = 32 * 1024
"""The same, where records are to be compressed: the slowest codec takes a fifth of a millisecond for as many."""
RECORDS_MAX = 1_000_000
NO_EPOCH = -1


@dataclass(frozen=True, slots=True)
class Asked:
    """One partition of a fetch. `leader_epoch` is that which the reader knows, -1 where it knows none."""

    position: FetchPosition
    leader_epoch: int = NO_EPOCH


@dataclass(slots=True)
class Fetched:
    """What was found in one partition: batches in pieces. `bounds` is None where there is no such partition."""

    asked: Asked
    error: KafkaError = KafkaError.NONE
    bounds: Bounds | None = None
    records: Sequence[Buffer] = ()


class KafkaFetch:
    """Used on one event loop."""

    def __init__(
        self, log: LogView, fetcher: Fetcher, leader_epoch: Callable[[str], int], leads: Callable[[str], bool]
    ) -> None:
        """`leader_epoch(topic)` is the number of its owner, which rises with each; `leads(topic)` whether that is this
        node."""
        self._log = log
        self._fetcher = fetcher
        self._leader_epoch = leader_epoch
        self._leads = leads

    async def fetch(
        self,
        asked: Sequence[Asked],
        *,
        max_bytes: int,
        min_bytes: int,
        wait_ms: int,
        held: Held,
        grant: Grant,
        meter: Meter | None,
        codecs: Collection[int],
    ) -> list[Fetched]:
        """`codecs` are those that the reader knows. Raises what a fetch does; problems of one partition are in its
        part."""
        found = []
        for number, each in enumerate(asked, 1):
            # What is not there is told by a code alone: very many errors with their tracebacks are collected slowly.
            at = each.position
            found.append(Fetched(each, self.check_leader(at.topic, at.partition, each.leader_epoch)))
            if number % TURN_ITEMS == 0:
                await asyncio.sleep(0)
        wanted = [each for each in found if not each.error]
        by = await self._codecs(wanted, codecs)
        wait_ms = wait_ms if len(wanted) == len(found) else 0
        result = await self._fetcher.fetch(
            [each.asked.position for each in wanted],
            max_records=RECORDS_MAX,
            max_bytes=max_bytes,
            min_bytes=min_bytes,
            wait_ms=wait_ms,
            held=held,
            grant=grant,
            meter=meter,
            sent=not any(by),
        )
        inline_max = COMPRESSED_INLINE_BYTES_MAX if any(by) else INLINE_BYTES_MAX
        taken = sum(part.share.bytes_taken for part in result.partitions)
        if taken <= inline_max and len(wanted) <= TURN_ITEMS:
            _encode(wanted, result.partitions, by)
        else:
            await asyncio.to_thread(_encode, wanted, result.partitions, by)
        return found

    async def _codecs(self, wanted: Sequence[Fetched], known: Collection[int]) -> list[int]:
        """How the records of each are compressed: as its topic says, where the reader knows that."""
        topics = [each.asked.position.topic for each in wanted]
        own = {}
        for number, topic in enumerate(set(topics), 1):
            own[topic] = self._codec(topic, known)
            if number % TURN_ITEMS == 0:
                await asyncio.sleep(0)
        return [own[topic] for topic in topics]

    def _codec(self, topic: str, known: Collection[int]) -> int:
        try:
            codec = CODEC_NUMBERS[str(self._log.topic(topic).config["fetch.compression"])]
        except SiltlogError:  # its part will say so
            return NO_CODEC
        return codec if codec in known else NO_CODEC

    def check_leader(self, topic: str, partition: int, leader_epoch: int) -> KafkaError:
        """Tells whether this node leads a partition, and a reader knows no former owner of it, nor one of which this
        node has not heard."""
        try:
            find_partition(find_topic(self._log, topic, None), partition)
        except SiltlogError as error:
            return kafka_error(error)
        if not self._leads(topic):
            return KafkaError.NOT_LEADER_OR_FOLLOWER
        if leader_epoch == NO_EPOCH or leader_epoch == (now := self._leader_epoch(topic)):
            return KafkaError.NONE
        return KafkaError.FENCED_LEADER_EPOCH if leader_epoch < now else KafkaError.UNKNOWN_LEADER_EPOCH


def _encode(wanted: Sequence[Fetched], parts: Sequence[PartitionFetch], codecs: Sequence[int]) -> None:
    for each, part, codec in zip(wanted, parts, codecs, strict=True):
        each.bounds = part.bounds
        if part.error is not None:
            each.error = kafka_error(part.error)
        each.records = _batches(part, codec)


def _batches(part: PartitionFetch, codec: int = NO_CODEC) -> list[Buffer]:
    """The records; where the fetch has passed over offsets behind the last of them, a marker on the last of those.

    Without it a reader would ask for the same offset for ever. Batches know no leader epoch: a reader would look for
    records that a change of owners took away, and none ever does.
    """
    pieces: list[Buffer] = []
    end = part.position.offset
    for is_sent, group in groupby(part.batches, lambda batch: isinstance(batch, SentBatch)):
        batches: list[Any] = list(group)
        if is_sent:
            pieces += (resent(batch.data, batch.first_offset, NO_EPOCH) for batch in batches)
            end = batches[-1].next_offset
        else:
            # The head may have each record by itself: one batch of all takes less time, and fewer bytes.
            found = batches[0] if len(batches) == 1 else pa.concat_batches(batches)
            pieces += encode(found, NO_EPOCH, codec=codec)
            end = batches[-1].column("offset")[-1].as_py() + 1
    if part.next_offset > end:
        pieces.append(control_marker(part.next_offset - 1, NO_EPOCH))
    return pieces
