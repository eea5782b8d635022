"""Settles a node: what it acknowledged is in tables, and the node keeps no other copy of it, on disk or in memory.

Used on the log's event loop.
"""

import asyncio
from collections.abc import Awaitable, Callable

from siltlog.infra.errors import SiltlogError
from siltlog.infra.telemetry import Logger
from siltlog.ingest.flush.flush import InThread
from siltlog.ingest.log.log import Log
from siltlog.ingest.log.producer_objects import StateWriter
from siltlog.ingest.log.topic import TopicLog

LOOK_SECONDS = 0.05


class Settling:
    def __init__(
        self,
        log: Log,
        states: StateWriter,
        recycle: Callable[[], Awaitable[None]],
        in_thread: InThread,
        logger: Logger,
    ) -> None:
        """`recycle()` gives up segments that nobody needs; `in_thread(topic, function, *args)` runs what waits
        for the store."""
        self._log = log
        self._states = states
        self._recycle = recycle
        self._in_thread = in_thread
        self._logger = logger
        self._one = asyncio.Lock()

    async def settle(self, seconds_max: float) -> list[str]:
        """Returns once everything acknowledged before is in tables alone, and this node reads the tables as they are.

        In sentences, what could not be let go of in that time. Raises Unavailable where the log has failed.
        """
        async with self._one:
            until = self._log.clock.monotonic() + seconds_max
            wal = self._log.wal
            try:
                # A file that is used again has the bytes of before behind those of now.
                await asyncio.to_thread(wal.discard_used)
                segment, shipped = wal.roll(), self._log.journal.next_number
                topics = list(self._log.topics())
                told = await asyncio.gather(*(self._in_table(topic, seconds_max) for topic in topics))
                left = [each for each in told if each]
                left += await self._let_go(segment, shipped, until)
            finally:
                wal.reuse()
        self._logger.info("settled", topics=len(topics), left=len(left))
        return left

    async def _in_table(self, topic: TopicLog, seconds_max: float) -> str:
        try:
            await self._log.in_table(topic, seconds_max)
            async with topic.table_lock:
                if topic.may_flush:
                    await self._states.write(topic, at_once=True)
                    self._log.see_table(topic, await self._in_thread(topic, topic.table.refresh))
        except SiltlogError as error:
            return f"{topic.name}: {error.detail}"
        for partition in topic.partitions:
            partition.leave_memory()
        return ""

    async def _let_go(self, segment: int, shipped: int, until: float) -> list[str]:
        """What is still there of the segments below `segment`, and of the journal's objects below `shipped`."""
        log = self._log
        while True:
            if log.journal.has_below(shipped):
                # An object goes once a later one that has landed says so.
                log.journal.trim(log.topic_logs.table_offset, log.topic_logs.claims_stored, objects_min=0)
            await self._recycle()
            in_wal, in_journal = log.wal.has_below(segment), log.journal.has_below(shipped)
            if not (in_wal or in_journal) or log.clock.monotonic() >= until:
                break
            await asyncio.sleep(LOOK_SECONDS)
        left = []
        if in_wal:
            pinning = {topic_id for topic_id, _ in log.wal.oldest_pinning(log.topic_logs.table_offset)}
            named = sorted(topic.name for topic in log.topics() if topic.id_bytes in pinning)
            left.append(f"the write-ahead log has records that are in no table yet, of {', '.join(named) or 'others'}")
        if in_journal:
            left.append("the journal has objects that could not be deleted yet")
        return left
