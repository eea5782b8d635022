"""Decides which topics are flushed when, and lets go of the segments of the WAL that nobody needs any more.

Lives on the event loop (`due.py` says what is due); what waits for the store runs on threads.
"""

import asyncio
import functools
from collections.abc import Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from siltlog.infra.errors import Fenced, SiltlogError, UnknownTopic
from siltlog.infra.metrics.metrics import Metrics
from siltlog.infra.telemetry import Logger
from siltlog.ingest.flush.burst import Burst
from siltlog.ingest.flush.due import Load, active_partitions, due, due_at
from siltlog.ingest.flush.file_budget import patience_of
from siltlog.ingest.flush.flush import Flush, is_awaited
from siltlog.ingest.flush.loads import Loads
from siltlog.ingest.flush.refresh import Refresh
from siltlog.ingest.flush.release import Release
from siltlog.ingest.flush.request_budget import RequestBudget
from siltlog.ingest.flush.retries import RETRY_SECONDS_MAX, Failures, Retries
from siltlog.ingest.flush.settling import Settling
from siltlog.ingest.flush.threads import Place, Threads
from siltlog.ingest.log.carry import carry_forward
from siltlog.ingest.log.log import Log
from siltlog.ingest.log.partition import PartitionLog
from siltlog.ingest.log.producer_objects import StateWriter
from siltlog.ingest.log.topic import TopicLog

if TYPE_CHECKING:
    from siltlog.infra.tracing.serving import Serving

FLUSHES_AT_ONCE = 2
IDLE_SECONDS = 0.25
PAUSE_SECONDS_MIN = 0.02
RECYCLE_SECONDS = 1.0
"""How often it is looked, without a flush, whether segments can be given back."""
CARRIED_PART_MAX = 0.5
"""A topic that has more than this part of the WAL's bytes is not carried forward: it would free too little."""

P = ParamSpec("P")
T = TypeVar("T")


class Flusher:
    def __init__(
        self,
        log: Log,
        retries: Retries,
        logger: Logger,
        metrics: Metrics,
        serving: "Serving | None" = None,
        requests: RequestBudget | None = None,
        burst: Burst | None = None,
    ) -> None:
        """Limits the cost of flushes to `requests`, and puts them off for a `burst`, or neither without them."""
        self._log = log
        self._logger = logger
        self._retries = retries
        self._carry_retries = Retries(log.clock)
        self._requests = requests or RequestBudget(0)
        self._loads = Loads(log, logger, self._requests)
        self._burst = burst or Burst(0)
        self._clock = log.clock
        self._running: dict[TopicLog, asyncio.Task[None]] = {}
        self._threads = Threads(log.clock, "silt-flush", FLUSHES_AT_ONCE)
        self._one = Flush(log, self._in_thread, logger, metrics, serving)
        self.states = StateWriter(log.store, log.clock, logger, self._in_thread)
        self.releases = Release(log, self._one, self.states, self.flush, self._in_thread, logger)
        self.settling = Settling(log, self.states, self._recycle, self._in_thread, logger)
        refresh = Refresh(log, self._refresh, logger)
        self._tasks = [asyncio.create_task(self._decide()), asyncio.create_task(refresh.run())]

    async def drain(self) -> None:
        """Flushes everything; returns once it is in the tables or a flush failed. Call it once nothing is appended."""
        while any(loads := self._loads.of(self._log.topics())):
            topics = {self._log.topic(item.topic) for item in loads}
            # One under way took only what was there when it began, and may be past its commit.
            fresh = topics - self._running.keys()
            before = {topic: topic.snapshot.version for topic in topics}
            for topic in topics:
                self._start(topic, [p for p in topic.partitions if p.head.unflushed_bytes])
            # Not gathered: a drain that runs out of time must not cut off the flushes themselves.
            await asyncio.wait([self._running[topic] for topic in topics if topic in self._running])
            if fresh == topics and all(topic.snapshot.version == before[topic] for topic in topics):
                return

    async def stop(self, seconds_max: float) -> bool:
        """False when a thread still waits for the object store by then: it is left alone."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        waiting = set(self._running.values())
        if waiting:
            _, waiting = await asyncio.wait(waiting, timeout=seconds_max)
        self._one.writers.close()
        self._threads.close()
        return not waiting

    async def _decide(self) -> None:
        recycled_at = self._clock.monotonic()
        while True:
            try:
                pause = self._start_due()
                now = self._clock.monotonic()
                if now - recycled_at >= RECYCLE_SECONDS:
                    # No flush may come: what a start finds may be in tables already and more than the log may take, and
                    # what producers claim is never flushed.
                    recycled_at = now
                    await self._recycle()
            except Exception:
                # Whatever it was, the other topics must go on being flushed.
                self._logger.exception("deciding what to flush failed")
                pause = RETRY_SECONDS_MAX
            self._log.flush_due.clear()
            try:
                await asyncio.wait_for(self._log.flush_due.wait(), max(pause, PAUSE_SECONDS_MIN))
            except TimeoutError:
                continue
            # A busy publisher must not make this loop spin.
            await asyncio.sleep(PAUSE_SECONDS_MIN)

    def _start_due(self) -> float:
        """Starts the flushes that are due; seconds until the next may be."""
        now = self._clock.monotonic()
        self._one.writers.look()
        self._threads.look()
        self._burst.see(self._log.committed_bytes, now)
        loads: Sequence[Load] = self._loads.of([topic for topic in self._log.topics() if self._may_start(topic)])
        if not self._log.admission.wal_holds_much():
            loads = self._burst.without_waiting(loads, now)
        by_topic: dict[str, list[Load]] = {}
        for item in due(loads, now):
            by_topic.setdefault(item.topic, []).append(item)
        for name, items in by_topic.items():
            topic = self._log.topic(name)
            self._loads.flushed(topic, items)
            self._start(topic, [topic.partitions[item.partition] for item in items])
        self._start_pressing()
        self._start_carries()
        active = active_partitions(loads, now)
        waits = [due_at(item, active) - now for item in loads]
        return min([IDLE_SECONDS, *(wait for wait in waits if wait > 0)])

    def _start_pressing(self) -> None:
        """What keeps too many objects of the journal is flushed whenever it would be due."""
        topics = self._log.topic_logs
        for topic_id in {topic_id for topic_id, _ in self._log.journal.pressing(topics.table_offset)}:
            topic = topics.held(topic_id)
            if topic is not None and topic.may_flush and self._may_start(topic):
                self._start(topic, [partition for partition in topic.partitions if partition.head.unflushed_bytes])

    def _may_start(self, topic: TopicLog) -> bool:
        return topic not in self._running and self._retries.may_start(topic)

    def _start(self, topic: TopicLog, partitions: Sequence[PartitionLog]) -> None:
        if topic not in self._running:
            self._requests.spend(len(partitions), self._clock.monotonic())
            self._run(topic, self._flush(topic, partitions))

    def _run(self, topic: TopicLog, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._running[topic] = task
        self._retries.began(topic)
        task.add_done_callback(lambda _: self._ended(topic))

    def _ended(self, topic: TopicLog) -> None:
        del self._running[topic]
        self._retries.ended(topic)

    async def _flush(self, topic: TopicLog, partitions: Sequence[PartitionLog]) -> None:
        try:
            async with topic.table_lock:
                if not topic.may_flush:
                    return
                await self._one.run(topic, partitions)
                await self.states.write(topic)
                await self._in_thread(topic, topic.table.maintain)
                await self._see_files(topic)
            if self._retries.succeeded(topic):
                self._logger.info("flushed again", topic=topic.name)
            topic.flushes_again()
            await self._recycle()
        except (Fenced, UnknownTopic) as error:
            self._close(topic, error)
        except SiltlogError as error:
            self._failed(topic, error)
        except Exception as error:
            self._logger.exception("flush failed", topic=topic.name)
            self._failed(topic, error)

    def _failed(self, topic: TopicLog, error: Exception) -> None:
        failures = self._retries.failed(topic, error)
        alone = self._fails_alone(topic, failures)
        topic.flush_failed(error, int(failures.pause_seconds * 1000), alone=alone)
        if failures.worth_saying:
            self._logger.warning(
                "flush failed; will try again", topic=topic.name, attempts=failures.attempts, reason=str(error)
            )
        if alone:
            self._log.flush_due.set()

    def _fails_alone(self, topic: TopicLog, failures: Failures) -> bool:
        """Whether others can be flushed where this topic cannot; then it must not cost them the WAL."""
        log = self._log
        if not log.admission.wal_is_tight() or not topic.may_flush:
            return False
        if self._retries.succeeded_seconds > failures.since_seconds:
            return True
        # Nobody else has anything to flush, and nobody will: the log is full.
        others = [other for other in log.topics() if other is not topic and other.state != "fenced"]
        waiting = any(partition.head.unflushed_bytes for other in others for partition in other.partitions)
        return bool(others) and not waiting and log.admission.wal_refused_seconds > failures.since_seconds

    def _start_carries(self) -> None:
        """Topics that cannot be flushed and keep the oldest segment are carried forward while the WAL is tight."""
        log = self._log
        if not log.admission.wal_is_tight():
            return
        pinning = {topic_id for topic_id, _ in log.wal.oldest_pinning(log.topic_logs.table_offset)}
        for topic in log.topics():
            if topic.state != "unavailable" or topic in self._running or topic.id_bytes not in pinning:
                continue
            if not self._carry_retries.may_start(topic):
                continue
            unflushed = sum(partition.head.unflushed_bytes for partition in topic.partitions)
            if unflushed <= log.wal.used_bytes * CARRIED_PART_MAX:
                self._run(topic, self._carry(topic))

    async def _carry(self, topic: TopicLog) -> None:
        try:
            carried = await carry_forward(self._log, topic)
        except Exception as error:
            failures = self._carry_retries.failed(topic, error)
            if failures.worth_saying:
                self._logger.error(
                    "records cannot be carried forward; will try again",
                    topic=topic.name,
                    attempts=failures.attempts,
                    reason=str(error),
                    exc_info=None if isinstance(error, SiltlogError) else error,
                )
            return
        self._carry_retries.succeeded(topic)
        self._logger.info("records carried forward in the write-ahead log", topic=topic.name, bytes=carried)
        await self._recycle()

    def _close(self, topic: TopicLog, error: SiltlogError) -> None:
        """The table is another's now; what was not flushed stays in the WAL."""
        self._logger.error("topic fenced", topic=topic.name, reason=error.detail)
        topic.close("fenced", error.detail)

    async def _recycle(self) -> None:
        topics = self._log.topic_logs
        self._log.journal.trim(topics.table_offset, topics.claims_stored)
        if not self._log.wal.can_trim(self._log.topic_logs.table_offset):
            return
        # How far the tables are must be known for as long as the records that show it are there.
        await self._log.group_commit.commit()
        # Not on the flushes' threads: those may wait for the store.
        freed = await asyncio.to_thread(self._log.wal.trim, self._log.topic_logs.table_offset)
        if freed:
            self._log.admission.recycled(freed * self._log.wal.segment_bytes)
            self._logger.debug("segments recycled", segments=freed)

    async def release(self, topic: TopicLog) -> None:
        """After the flush of a clean stop: another WAL may take over without asking. A failure is only logged."""
        await self.releases.at_stop(topic)

    async def flush(self, topic: TopicLog) -> None:
        """Flushes what the topic has by now; returns once it is in the table or that failed."""
        while (running := self._running.get(topic)) is not None:
            await asyncio.wait([running])
        self._start(topic, [partition for partition in topic.partitions if partition.head.unflushed_bytes])
        await asyncio.wait([self._running[topic]])

    async def _refresh(self, topic: TopicLog, changed: bool) -> bool:
        """Looks after a topic of which nothing is under way; whether it could be."""
        if topic.open_commit or topic in self._running:
            return False
        try:
            async with topic.table_lock:
                if topic.may_flush:
                    if changed:
                        self._log.see_table(topic, await self._in_thread(topic, topic.table.refresh))
                        await self._see_files(topic)
                    await self.states.write(topic)
        except Fenced as error:
            self._close(topic, error)
        return True

    async def _see_files(self, topic: TopicLog) -> None:
        self._loads.see(topic, await self._in_thread(topic, patience_of, topic.snapshot))

    async def _in_thread(self, topic: TopicLog, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Whatever it is, who waits for the table waits for it: one thing of a topic is under way at a time."""
        call = functools.partial(function, *args, **kwargs)

        def place() -> Place:
            return Place.AWAITED if is_awaited(topic) else Place.BESIDE

        (result,) = await self._threads.run(lambda _: call(), [None], 0, place)
        return result
