"""Offsets of Kafka: those of the ends of a partition, and of times."""

from collections.abc import Callable
from typing import NamedTuple

from siltlog.consumers.reading.fetch import Fetcher, FetchPosition, find_partition, find_topic
from siltlog.consumers.reading.view import LogView
from siltlog.infra.errors import SiltlogError
from siltlog.infra.kafka.errors import KafkaError, kafka_error
from siltlog.infra.security.grant import EVERYTHING

LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED = -1, -2, -3, -4, -5
"""What asks for an end of a partition, or (KIP-734) for its latest record, in place of a time."""
NOTHING = -1
MICROS_PER_MS = 1_000


class TimedOffset(NamedTuple):
    """An offset, and the time of its record; -1 where there is none, or where no time was asked for."""

    offset: int = NOTHING
    timestamp_ms: int = NOTHING
    error: KafkaError = KafkaError.NONE


class KafkaOffsets:
    """Used on one event loop."""

    def __init__(self, log: LogView, fetcher: Fetcher, leader_epoch: Callable[[str], int]) -> None:
        self._log = log
        self._fetcher = fetcher
        self.leader_epoch = leader_epoch
        """The number of a topic's owner, which rises with each."""

    async def offset(self, topic: str, partition: int, time: int) -> TimedOffset:
        """`time` is in milliseconds, or asks for an end."""
        try:
            return await self._offset(topic, partition, time)
        except SiltlogError as error:
            return TimedOffset(error=kafka_error(error))

    async def end(self, topic: str, partition: int) -> TimedOffset:
        """The offset after the last record of an owner: no offset is ever used again, so it is that of all."""
        return await self.offset(topic, partition, LATEST)

    async def _offset(self, name: str, partition: int, time: int) -> TimedOffset:
        topic = find_topic(self._log, name, None)
        view = find_partition(topic, partition)
        bounds = view.bounds()
        if time == LATEST:
            return TimedOffset((await view.decided() or bounds).high_watermark)
        if time in (EARLIEST, EARLIEST_LOCAL):
            return TimedOffset(bounds.log_start_offset)
        if time == LATEST_TIERED:
            return TimedOffset(bounds.table_offset - 1)
        if time == MAX_TIMESTAMP:
            latest = await self._fetcher.lookup.latest(topic, view)
            return TimedOffset() if latest is None else TimedOffset(latest.offset, latest.timestamp_us // MICROS_PER_MS)
        if time < 0:
            # What a newer client asks for, it then does without.
            return TimedOffset(error=KafkaError.UNSUPPORTED_VERSION)
        offset = await self._fetcher.lookup.offset_at(topic, view, time * MICROS_PER_MS)
        if offset >= view.bounds().high_watermark:
            return TimedOffset()
        found = await self._fetcher.fetch(
            [FetchPosition(name, partition, offset)],
            max_records=1, max_bytes=1, min_bytes=0, wait_ms=0, grant=EVERYTHING,
        )  # fmt: skip
        [part] = found.partitions
        if part.error is not None:
            raise part.error
        if not part.batches:
            return TimedOffset()
        return TimedOffset(offset, part.batches[0].column("timestamp")[0].value // MICROS_PER_MS)
