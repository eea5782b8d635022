"""Keeps producer state beside the tables, for a successor that does not have this node's WAL."""

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary, WeakSet

from siltlog.infra.clock import Clock
from siltlog.infra.errors import problem
from siltlog.infra.store.store import ObjectStore
from siltlog.infra.telemetry import Logger
from siltlog.ingest.log.partition import PartitionLog
from siltlog.ingest.log.topic import TopicLog
from siltlog.ingest.producers import objects
from siltlog.ingest.producers.objects import StateObject
from siltlog.ingest.producers.sequencer import ProducerState, copied

STATE_OBJECT_SECONDS = 30.0
"""A partition's producers are written once in so long; the rows since then say the rest."""
STATE_OBJECT_REQUESTS_MAX = 100_000
"""One object has no more requests than this, but the last of each producer; that takes a few megabytes."""
EPOCH_OBJECT_SECONDS_MAX = 1.0
"""How long a claim waits to be beside the table too. It is in the WAL by then, so it does not fail with the store."""


class _Captured(NamedTuple):
    """The producers of every record below `offset`, while some of those records are not in the table yet."""

    offset: int
    producers: dict[str, ProducerState]


class StateWriter:
    def __init__(
        self, store: ObjectStore, clock: Clock, logger: Logger, in_thread: Callable[..., Awaitable[Any]]
    ) -> None:
        """`in_thread(topic, function, *args)` runs what waits for the store."""
        self._store = store
        self._clock = clock
        self._logger = logger
        self._in_thread = in_thread
        # Weak, so that a topic that is deleted goes with all that is known of it.
        self._begun_seconds: MutableMapping[PartitionLog, float] = WeakKeyDictionary()
        self._captured: MutableMapping[PartitionLog, _Captured] = WeakKeyDictionary()
        self._left: MutableMapping[PartitionLog, list[str]] = WeakKeyDictionary()
        """The objects of a partition, once one was written."""
        self._epochs_locks: MutableMapping[TopicLog, asyncio.Lock] = WeakKeyDictionary()
        self._late: WeakSet[TopicLog] = WeakSet()
        """Topics of which it was said that claimed epochs are not beside the table, and that still is so."""
        self._tasks: set[asyncio.Task[None]] = set()

    async def write(self, topic: TopicLog, *, at_once: bool = False) -> None:
        """Writes what is due of a topic that this node owns; `at_once` all that can be."""
        due = [(log, found) for log in topic.partitions if (found := self._due(log, at_once)) is not None]
        if due:
            former = {log.partition: self._left[log] for log, _ in due if log in self._left}
            fresh = [StateObject(log.partition, *found) for log, found in due]
            left = await self._in_thread(topic, objects.write, self._store, topic.name, topic.topic_id, fresh, former)
            for log, found in due:
                log.state_stored(found.offset)
                self._left[log] = left[log.partition]
        await self._write_epochs(topic)

    async def store_epochs(self, topic: TopicLog) -> None:
        """Returns once claimed epochs are beside the table, or that takes too long; then it goes on by itself."""
        task = asyncio.create_task(self._try_epochs(topic))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        await asyncio.wait([task], timeout=EPOCH_OBJECT_SECONDS_MAX)

    async def ship_epochs(self, topic: TopicLog, seconds_max: float) -> None:
        """Returns once claimed epochs are beside a table that is still this node's: who claims it next reads them.

        Raises Fenced; Unavailable where they are not there in time.
        """
        try:
            async with asyncio.timeout(seconds_max):
                # One that is under way may have had the claim already.
                async with self._epochs_locks.setdefault(topic, asyncio.Lock()):
                    pass
                await self._write_epochs(topic)
                async with topic.table_lock:
                    topic.check_owned(await self._in_thread(topic, topic.table.refresh))
        except TimeoutError:
            raise problem("topic_unavailable", "the claimed epoch is not beside the table in time") from None
        if not topic.producers.epochs_stored:
            raise problem("topic_unavailable", "the claimed epoch is not beside the table: its topic is another's")

    def _due(self, log: PartitionLog, at_once: bool) -> _Captured | None:
        sequencer, table_offset = log.sequencer, log.offsets.table
        if log.state_offset == table_offset or not (sequencer.producers or sequencer.keys):
            return None
        captured = self._captured.get(log)
        if captured is not None and captured.offset <= table_offset:
            del self._captured[log]
            return captured
        now = self._clock.monotonic()
        if not at_once and now - self._begun_seconds.get(log, -STATE_OBJECT_SECONDS) < STATE_OBJECT_SECONDS:
            return None
        if table_offset == sequencer.next_offset:
            self._begun_seconds[log] = now
            return _capture(log, table_offset)
        if captured is None:
            # Of each producer only the last requests are remembered, and those may all lie above the table offset: so
            # it is kept as of now, until the table has come so far.
            self._begun_seconds[log] = now
            self._captured[log] = _capture(log, log.offsets.submitted)
        return None

    async def _try_epochs(self, topic: TopicLog) -> None:
        try:
            await self._write_epochs(topic)
        except Exception as error:
            if topic not in self._late:
                self._late.add(topic)
                self._logger.warning("claimed epochs are not beside the table yet", topic=topic.name, reason=str(error))

    async def _write_epochs(self, topic: TopicLog) -> None:
        if topic.producers.epochs_stored:
            return
        # One after the other, or an older object might replace a newer one.
        async with self._epochs_locks.setdefault(topic, asyncio.Lock()):
            if topic.producers.epochs_stored or not topic.may_flush:
                return
            topic.producers.epochs_written()
            epochs = objects.encode_epochs(topic.producers.epochs.dump())
            try:
                await self._in_thread(
                    topic, objects.write_epochs, self._store, topic.name, topic.topic_id, topic.epochs[-1], epochs
                )
            except BaseException:
                topic.producers.epochs_changed()
                raise
            self._late.discard(topic)


def _capture(log: PartitionLog, offset: int) -> _Captured:
    return _Captured(offset, copied(log.sequencer.dump(offset), STATE_OBJECT_REQUESTS_MAX))
