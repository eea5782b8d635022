"""Gives topics up: all of a topic is in its table, its producers are beside it, and the table says that it is released.

Once a release was sent nothing is appended under its epoch, whatever becomes of it: who takes the topic goes on from
the table. Used on the log's event loop.
"""

import uuid
from collections.abc import Awaitable, Callable
from typing import Literal

from siltlog.infra import delta_names
from siltlog.infra.errors import Fenced, OutcomeUnknown, SiltlogError, problem
from siltlog.infra.telemetry import Logger
from siltlog.ingest.flush.flush import Flush, InThread
from siltlog.ingest.log import state as wal_state
from siltlog.ingest.log.log import Log
from siltlog.ingest.log.producer_objects import StateWriter
from siltlog.ingest.log.topic import TopicLog

Handed = Literal["released", "kept", "fenced", "unknown"]
"""What came of a hand-over: it is done; nothing was sent, and the topic goes on; another node has the topic; or it was
sent and nobody knows, until `settle` does."""


class Release:
    def __init__(
        self,
        log: Log,
        flush: Flush,
        states: StateWriter,
        flushed: Callable[[TopicLog], Awaitable[None]],
        in_thread: InThread,
        logger: Logger,
    ) -> None:
        """`flushed(topic)` flushes what a topic has by then; `in_thread(topic, function, *args)` runs what waits
        for the store."""
        self._log = log
        self._flush = flush
        self._states = states
        self._flushed = flushed
        self._in_thread = in_thread
        self._logger = logger

    async def at_stop(self, topic: TopicLog) -> None:
        """After the flush of a clean stop: another WAL may take over without asking. A failure is only logged."""
        if topic.state != "open" or topic.open_commit or not _all_in_table(topic):
            return
        # What was flushed is known for good before another goes on, which may clean the log that tells of it.
        await self._log.group_commit.commit()
        async with topic.table_lock:
            try:
                await self._states.write(topic, at_once=True)
            except SiltlogError as error:
                self._not_released(topic, error)
                return
            if _all_in_table(topic):
                await self._send(topic, "shutting_down")

    async def hand_over(self, topic: TopicLog, hold_seconds_max: float) -> Handed:
        """Releases a topic that is published to, which waits meanwhile; it is given up after `hold_seconds_max`.

        Publishes that waited find it released, or go on.
        """
        # Most of it goes while publishes go on.
        await self._flushed(topic)
        async with topic.table_lock:
            if not topic.may_flush:
                return "fenced" if topic.availability.lasting else "kept"
            with topic.pause():
                began = self._log.clock.monotonic()
                try:
                    await self._settled(topic)
                except Fenced as error:
                    topic.close("fenced", error.detail)
                    return "fenced"
                except SiltlogError as error:
                    self._not_released(topic, error)
                    return "kept"
                if self._log.clock.monotonic() - began > hold_seconds_max or not self._flush.is_last(topic):
                    return "kept"
                return await self._send(topic, "not_owner")

    async def settle(self, topic: TopicLog) -> Handed:
        """What came of a release whose answer was lost. One that did not land is shut out, and the topic goes on."""
        async with topic.table_lock:
            if topic.state != "releasing":
                return "released" if topic.state == "released" else "kept"
            epochs = {log.partition: log.epoch for log in topic.partitions}
            try:
                outcome = await self._in_thread(topic, topic.table.outcome, topic.open_commit, topic.open_version)
                if outcome == "unknown":
                    return "unknown"
                found = topic.table.snapshot
                if outcome == "landed" or found.released.items() >= epochs.items():
                    self._released(topic, "not_owner")
                    return "released"
                snapshot = await self._in_thread(topic, topic.table.take_back, epochs, str(uuid.uuid4()))
                self._log.see_table(topic, snapshot)
            except Fenced as error:
                topic.close("fenced", error.detail)
                return "fenced"
            except SiltlogError:
                return "unknown"
            topic.ended_commit()
            topic.opened()
            return "kept"

    async def ship(self, topic: TopicLog) -> bool:
        """Has the table say that nothing is acknowledged or shown that is not in it; publishes wait until that is so.

        False where it could not be done now. Raises Fenced.
        """
        await self._flushed(topic)
        async with topic.table_lock:
            if topic.state != "open":
                return False
            with topic.pause():
                await self._log.group_commit.commit()
                await self._flush.run(topic, topic.partitions)
                if not _all_in_table(topic):
                    return False
                own = [(topic.epochs[-1], await self._log.journal.open())] if topic.journaled else []
                topic.ship()
                epochs = {log.partition: log.epoch for log in topic.partitions}
                event = wal_state.Shipped(topic.topic_id, topic.epochs[-1])
                self._log.group_commit.add_control(wal_state.encode(event))
                await self._log.group_commit.commit()
                marks = {delta_names.txn_shipped(partition): epoch for partition, epoch in epochs.items()}
                snapshot = await self._in_thread(
                    topic, topic.table.mark, epochs, marks, str(uuid.uuid4()), journals=own
                )
                self._log.see_table(topic, snapshot)
        return True

    async def _settled(self, topic: TopicLog) -> None:
        """What was sequenced is durable, and producers are beside the table as they are now."""
        await self._log.group_commit.commit()
        known = any(log.sequencer.producers or log.sequencer.keys for log in topic.partitions)
        if known or not self._flush.is_last(topic):
            await self._flush.run(topic, topic.partitions)
        await self._states.write(topic, at_once=True)
        if not topic.producers.epochs_stored:
            raise problem("topic_unavailable", "claimed epochs of producers are not beside the table")

    async def _send(self, topic: TopicLog, refusal: str) -> Handed:
        """Once it is released requests are refused with `refusal`."""
        topic.releasing()
        try:
            await self._flush.release(topic)
        except Fenced as error:
            topic.close("fenced", error.detail)
            return "fenced"
        except OutcomeUnknown as error:
            self._not_released(topic, error)
            return "unknown"
        except SiltlogError as error:
            self._not_released(topic, error)
            topic.opened()
            return "kept"
        self._released(topic, refusal)
        return "released"

    def _released(self, topic: TopicLog, refusal: str) -> None:
        """Whose the table is by now does not matter: all of this node's records are in it."""
        topic.released(refusal)
        moved = {log.partition: log.offsets.synced for log in topic.partitions}
        for log in topic.partitions:
            log.moved(log.offsets.synced, log.offsets.log_start)
        event = wal_state.Flushed(topic.topic_id, topic.table.snapshot.version, moved)
        self._log.group_commit.add_control(wal_state.encode(event))

    def _not_released(self, topic: TopicLog, error: SiltlogError) -> None:
        self._logger.warning("not released: only this data dir may go on", topic=topic.name, reason=error.detail)


def _all_in_table(topic: TopicLog) -> bool:
    return all(log.offsets.table == log.sequencer.next_offset for log in topic.partitions)
