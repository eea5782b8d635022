"""How many records became dead letters of late: told by the places of their times in the topics that have them."""

from siltlog.consumers.reading.lookup import Lookup
from siltlog.infra import names
from siltlog.infra.clock import MICROS_PER_SECOND, Clock
from siltlog.infra.errors import SiltlogError
from siltlog.infra.records import records_between
from siltlog.ingest.log.log import Log
from siltlog.ingest.log.topic import TopicLog

SINCE_SECONDS = 900
LOOK_SECONDS = 15.0
TOPICS_MAX = 200
"""How many topics with dead letters are looked at."""


class DeadLetterCounts:
    """Used on one event loop."""

    def __init__(self, log: Log, lookup: Lookup, clock: Clock) -> None:
        self._log = log
        self._lookup = lookup
        self._clock = clock
        self._found: dict[str, int] = {}
        self._looked_at = float("-inf")

    async def counts(self) -> dict[str, int]:
        """Gives how many dead letters of the last 15 minutes each topic has that has some; as of some seconds ago."""
        now = self._clock.monotonic()
        if now - self._looked_at >= LOOK_SECONDS:
            self._looked_at = now
            dead = [topic for topic in self._log.topics() if topic.name.endswith(names.DEAD_LETTER_SUFFIX)]
            found = {topic.name: await self._count(topic) for topic in dead[:TOPICS_MAX]}
            self._found = {name.removesuffix(names.DEAD_LETTER_SUFFIX): count for name, count in found.items() if count}
        return self._found

    async def _count(self, topic: TopicLog) -> int:
        since_us = self._clock.now_us() - SINCE_SECONDS * MICROS_PER_SECOND
        count = 0
        for log in topic.partitions:
            bounds = log.bounds()
            if bounds.high_watermark == bounds.log_start_offset:
                continue
            try:
                first = await self._lookup.offset_at(topic, log, since_us)
            except SiltlogError:
                continue  # what cannot be read now is counted at the next look
            count += records_between(first, bounds.high_watermark, topic.snapshot.gaps(log.partition))
        return count
