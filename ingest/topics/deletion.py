"""Deleting records: the log start of a partition moves up, and what lies below it is gone for every reader."""

import asyncio
import uuid
from collections.abc import Callable

from siltlog.infra import names
from siltlog.infra.errors import Fenced, OutcomeUnknown, SiltlogError, problem
from siltlog.infra.records import Bounds
from siltlog.infra.table.log_start import move_starts, start_move
from siltlog.infra.telemetry import Logger
from siltlog.ingest.log.log import Log
from siltlog.ingest.log.partition import PartitionLog
from siltlog.ingest.log.producer_objects import StateWriter
from siltlog.ingest.log.topic import TopicLog

FLUSH_SECONDS_MAX = 10.0
"""How long a deletion waits for the records below it to be in the table."""
RACES_MAX = 5


class LogStarts:
    """Moves the log starts of topics that this node owns. Used on the log's event loop."""

    def __init__(self, log: Log, states: StateWriter, wake_flusher: Callable[[], None], logger: Logger) -> None:
        self._log = log
        self._states = states
        self._wake_flusher = wake_flusher
        self._logger = logger

    async def delete_records(self, topic: TopicLog, partition: int, before_offset: int | None) -> Bounds:
        """Deletes everything below `before_offset` (None: all there is now); the bounds as they are after it.

        A log start that is there already stays. Raises Refused `unknown_partition`, `forbidden`; OffsetOutOfRange above
        the high watermark; Unavailable when nothing was deleted, OutcomeUnknown when that cannot be said: it can be
        repeated in either case.
        """
        log = topic.partition(partition)
        if topic.name.startswith(names.SYSTEM_PREFIX):
            raise problem("forbidden", f"the topic {topic.name} is the system's: its records follow from its use")
        before = self._checked(topic, log, before_offset)
        if before > log.offsets.log_start:
            await self._in_table(topic, log, before)
            await self._covered(topic, log, before)
            await self._move(topic, log, before)
        return log.bounds()

    def _checked(self, topic: TopicLog, log: PartitionLog, before_offset: int | None) -> int:
        bounds = log.bounds()
        if before_offset is None:
            return bounds.high_watermark
        if before_offset > bounds.high_watermark:
            raise problem(
                "offset_out_of_range",
                f"offset {before_offset} is above the high watermark of topic {topic.name}, partition {log.partition}, "
                f"which is {bounds.high_watermark}; `latest` deletes all there is",
                topic=topic.name,
                partition=log.partition,
                offset=before_offset,
                log_start_offset=bounds.log_start_offset,
                high_watermark=bounds.high_watermark,
            )
        return before_offset

    async def _in_table(self, topic: TopicLog, log: PartitionLog, offset: int) -> None:
        """The log start is never above the table offset."""
        wait = log.when_in_table(offset)
        if wait is None:
            return
        self._wake_flusher()
        try:
            async with asyncio.timeout(FLUSH_SECONDS_MAX):
                await wait
        except TimeoutError:
            reason = topic.flush_error or "its flush takes long"
            raise problem(
                "topic_unavailable",
                f"the records of topic {topic.name}, partition {log.partition} are not in its table yet ({reason}); "
                "nothing was deleted",
                topic=topic.name,
                partition=log.partition,
            ) from None
        except SiltlogError:
            # What fails those who wait for an acknowledgement: here nothing was asked to land.
            topic.check_open()
            raise

    async def _covered(self, topic: TopicLog, log: PartitionLog, offset: int) -> None:
        """Waits until an object beside the table has what rows below `offset` say of producers: retries need those."""
        while True:
            async with topic.table_lock:
                await self._states.write(topic, at_once=True)
            if log.state_offset >= offset or not (log.sequencer.producers or log.sequencer.keys):
                return
            # It was captured as of now, and can be written once the table has come so far.
            await self._in_table(topic, log, log.offsets.submitted)

    async def _move(self, topic: TopicLog, log: PartitionLog, start: int) -> None:
        for _ in range(RACES_MAX):
            async with topic.table_lock:
                if topic.state != "unavailable":
                    topic.check_open()
                if topic.open_commit:
                    raise problem(
                        "topic_unavailable", f"topic {topic.name}: whether its last flush landed is not known"
                    )
                snapshot = await asyncio.to_thread(topic.table.refresh)
                self._log.see_table(topic, snapshot)
                if log.offsets.log_start >= start:
                    return
                moves = {log.partition: start_move(snapshot, log.partition, start)}
                now_ms = self._log.clock.now_us() // 1000
                try:
                    snapshot = await asyncio.to_thread(
                        move_starts, topic.table, snapshot.version, moves, str(uuid.uuid4()), now_ms=now_ms
                    )
                except Fenced:
                    # Not from the topic: a compaction or a retention came first.
                    continue
                except OutcomeUnknown as error:
                    raise problem(
                        "internal", f"{error.detail}; delete the records again: it comes to the same"
                    ) from error
                self._log.see_table(topic, snapshot)
            self._logger.info("records deleted", topic=topic.name, partition=log.partition, log_start_offset=start)
            return
        raise problem(
            "topic_unavailable",
            f"topic {topic.name} is being rewritten by others all the time; nothing was deleted, try again",
            topic=topic.name,
        )
