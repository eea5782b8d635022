"""Moves synced records from the head into the tables, one Delta commit per topic and flush.

Decides on the event loop (`batcher` says what is due); encodes and commits on threads.
"""

import asyncio
import functools
import itertools
import os
import uuid
from collections.abc import Callable, Coroutine, MutableMapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple, ParamSpec, TypeVar
from weakref import WeakKeyDictionary

from siltlog.infra import names
from siltlog.infra.errors import Fenced, OutcomeUnknown, SiltlogError, UnknownTopic
from siltlog.infra.table.data_file import DataFile, write_data_file
from siltlog.infra.table.entries import entry_path
from siltlog.infra.table.snapshot import TableSnapshot
from siltlog.infra.telemetry import Logger, Metrics
from siltlog.ingest.flush.carry import carry_forward
from siltlog.ingest.flush.due import Load, active_partitions, due, due_at
from siltlog.ingest.flush.file_budget import patience_of
from siltlog.ingest.flush.loads import Loads
from siltlog.ingest.flush.producer_objects import StateWriter
from siltlog.ingest.log import state as wal_state
from siltlog.ingest.log.head import Chunk, load
from siltlog.ingest.log.log import Log
from siltlog.ingest.log.partition import PartitionLog
from siltlog.ingest.log.topic import TopicLog
from siltlog.ingest.records.batch import file_columns, joined

FLUSH_FILE_BYTES_MAX = 64 * 1024 * 1024
"""One flush takes at most so much of a partition; the rest goes with the next."""
FILE_WRITERS = max(1, (os.cpu_count() or 1) // 2)
"""More would take the processors from those who publish; on two cores one keeps up with what they send."""
FLUSHES_AT_ONCE = 2
IDLE_SECONDS = 0.25
PAUSE_SECONDS_MIN = 0.02
RETRY_SECONDS_BASE = 0.25
RETRY_SECONDS_MAX = 5.0
RETRY_MS_MIN = 50
HANGING_SECONDS = 2.0
LOOK_SECONDS = 1.0
"""How often it is looked whether another server has claimed: until then who is taken over from acknowledges."""
LOOKS_PER_REFRESH = 5
REFRESHES_UNSEEN = 60
"""Every so many looks a table is opened up although nothing new seems to be there."""
CARRIED_PART_MAX = 0.5
"""A topic that has more than this part of the WAL's bytes is not carried forward: it would free too little."""

P = ParamSpec("P")
T = TypeVar("T")
Work = tuple[PartitionLog, int, int, list[Chunk]]


class Failures(NamedTuple):
    """A topic's failed flushes since the last that succeeded; times are on the monotonic clock."""

    since_seconds: float
    attempts: int
    again_seconds: float
    reason: str
    worth_saying: bool = True
    """The first of its kind, or one of fewer and fewer."""

    def another(self, now_seconds: float, reason: str) -> "Failures":
        attempts = self.attempts + 1
        pause = min(RETRY_SECONDS_BASE * 2**attempts, RETRY_SECONDS_MAX)
        rare = attempts & (attempts - 1) == 0
        return Failures(self.since_seconds, attempts, now_seconds + pause, reason, rare or reason != self.reason)


class Flusher:
    def __init__(self, log: Log, logger: Logger, metrics: Metrics) -> None:
        self._log = log
        self._logger = logger
        self._metrics = metrics
        self._loads = Loads(log, logger)
        self._clock = log.clock
        self._wake = asyncio.Event()
        self._running: dict[TopicLog, asyncio.Task[None]] = {}
        # Weak, so that a topic that is deleted goes with all its records in memory.
        self._failures: MutableMapping[TopicLog, Failures] = WeakKeyDictionary()
        self._carry_failures: MutableMapping[TopicLog, Failures] = WeakKeyDictionary()
        self._unrefreshed: MutableMapping[TopicLog, str] = WeakKeyDictionary()
        self._started_seconds: MutableMapping[TopicLog, float] = WeakKeyDictionary()
        self._succeeded_seconds = 0.0
        self._claimed_by = log.start_mark
        self._pool = ThreadPoolExecutor(FILE_WRITERS, "silt-file-writer")
        self._threads = ThreadPoolExecutor(FLUSHES_AT_ONCE, "silt-flush")
        self.states = StateWriter(log.store, log.clock, logger, self._in_thread)
        self._tasks = [asyncio.create_task(self._decide()), asyncio.create_task(self._refresh())]

    def wake(self) -> None:
        """Something may be due before the next look."""
        self._wake.set()

    def retry_ms(self) -> int | None:
        """When a flush may succeed, as far as that is known: None while none fails or hangs."""
        now = self._clock.monotonic()
        if self._failures:
            again = min(failures.again_seconds for failures in self._failures.values()) - now
            return max(int(again * 1000), RETRY_MS_MIN)
        hanging = max((now - self._started_seconds[topic] for topic in self._running), default=0.0)
        # As long again as it has lasted.
        return int(min(hanging, RETRY_SECONDS_MAX) * 1000) if hanging > HANGING_SECONDS else None

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
        self._pool.shutdown(wait=False)
        self._threads.shutdown(wait=False)
        return not waiting

    async def _decide(self) -> None:
        while True:
            try:
                pause = self._start_due()
            except Exception:
                # Whatever it was, the other topics must go on being flushed.
                self._logger.exception("deciding what to flush failed")
                pause = RETRY_SECONDS_MAX
            self._wake.clear()
            try:
                await asyncio.wait_for(self._wake.wait(), max(pause, PAUSE_SECONDS_MIN))
            except TimeoutError:
                continue
            # A busy publisher must not make this loop spin.
            await asyncio.sleep(PAUSE_SECONDS_MIN)

    def _start_due(self) -> float:
        """Starts the flushes that are due; seconds until the next may be."""
        now = self._clock.monotonic()
        loads = self._loads.of([topic for topic in self._log.topics() if self._may_start(topic, now)])
        by_topic: dict[str, list[Load]] = {}
        for item in due(loads, now):
            by_topic.setdefault(item.topic, []).append(item)
        for name, items in by_topic.items():
            topic = self._log.topic(name)
            self._loads.flushed(topic, items)
            self._start(topic, [topic.partitions[item.partition] for item in items])
        self._start_carries()
        active = active_partitions(loads, now)
        waits = [due_at(item, active) - now for item in loads]
        return min([IDLE_SECONDS, *(wait for wait in waits if wait > 0)])

    def _may_start(self, topic: TopicLog, now: float) -> bool:
        if topic in self._running:
            return False
        failure = self._failures.get(topic)
        return failure is None or now >= failure.again_seconds

    def _start(self, topic: TopicLog, partitions: Sequence[PartitionLog]) -> None:
        if topic not in self._running:
            self._run(topic, self._flush(topic, partitions))

    def _run(self, topic: TopicLog, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._running[topic] = task
        self._started_seconds[topic] = self._clock.monotonic()
        task.add_done_callback(lambda _: self._running.pop(topic, None))

    async def _flush(self, topic: TopicLog, partitions: Sequence[PartitionLog]) -> None:
        try:
            async with topic.table_lock:
                if topic.availability.lasting:
                    return
                await self._settle_open_commit(topic)
                work = [item for log in partitions if (item := _work_of(log)) is not None]
                if work:
                    await self._commit(topic, work)
                await self.states.write(topic)
                await self._in_thread(topic.table.maintain)
                await self._see_files(topic)
            if self._failures.pop(topic, None) is not None:
                self._logger.info("flushed again", topic=topic.name)
            topic.flushes_again()
            self._succeeded_seconds = self._clock.monotonic()
            await self._recycle()
        except (Fenced, UnknownTopic) as error:
            self._close(topic, error)
        except SiltlogError as error:
            self._failed(topic, error)
        except Exception as error:
            self._logger.exception("flush failed", topic=topic.name)
            self._failed(topic, error)

    async def _commit(self, topic: TopicLog, work: list[Work]) -> None:
        commit_id = str(uuid.uuid4())
        topic.began_commit(commit_id)
        self._log.group_commit.add_control(
            wal_state.encode(wal_state.Flushing(topic.topic_id, commit_id, topic.open_version))
        )
        await self._log.group_commit.commit()
        started = self._clock.monotonic()
        chunks = [chunk for _, _, _, part in work for chunk in part]
        with work[0][0].held(chunks):
            states = _states_to_note([log for log, _, _, _ in work], topic.table.snapshot)
            snapshot = await self._in_thread(self._write_and_commit, topic, work, commit_id, states)
        # Where another has claimed since, the commit stays open: the next start finds that it landed.
        self._log.see_table(topic, snapshot)
        topic.ended_commit()
        records = sum(end - first for _, first, end, _ in work)
        seconds = self._clock.monotonic() - started
        topic.flushed(records, len(work))
        self._metrics.flush(seconds)
        self._logger.debug(
            "flushed", topic=topic.name, records=records, files=len(work), version=snapshot.version, seconds=seconds
        )

    def _write_and_commit(
        self, topic: TopicLog, work: list[Work], commit_id: str, states: dict[int, int]
    ) -> TableSnapshot:
        files = list(self._pool.map(lambda item: self._write(topic, item), work))
        bounds = {log.partition: (first, end) for log, first, end, _ in work}
        epochs = {log.partition: log.epoch for log, _, _, _ in work}
        return topic.table.append(files, bounds, epochs, commit_id, states=states)

    def _write(self, topic: TopicLog, work: Work) -> DataFile:
        log, first, end, chunks = work
        batches = []
        for chunk in chunks:
            batch = load(chunk, self._log.wal)
            batches.append(batch.slice(max(first, batch.first_offset), min(end, batch.next_offset)))
        return write_data_file(
            self._log.store,
            topic.name,
            log.partition,
            file_columns(*joined(batches)),
            compression=str(topic.config["compression"]),
            now_ms=self._clock.now_us() // 1000,
        )

    async def _settle_open_commit(self, topic: TopicLog) -> None:
        """Before anything new: whether a commit whose answer was lost has landed."""
        if not topic.open_commit:
            return
        outcome = await self._in_thread(topic.table.outcome, topic.open_commit, topic.open_version)
        if outcome == "unknown":
            raise OutcomeUnknown(
                f"it cannot be said yet whether commit {topic.open_commit} of topic {topic.name} has landed: "
                "an entry of its log cannot be read"
            )
        self._log.see_table(topic, await self._in_thread(topic.table.refresh))
        # Only then: who goes on from before what has landed would take its own table for another's.
        topic.ended_commit()

    def _failed(self, topic: TopicLog, error: Exception) -> None:
        now = self._clock.monotonic()
        failures = (self._failures.get(topic) or Failures(now, 0, 0.0, "")).another(now, str(error))
        self._failures[topic] = failures
        alone = self._fails_alone(topic, failures)
        topic.flush_failed(error, int((failures.again_seconds - now) * 1000), alone=alone)
        if failures.worth_saying:
            self._logger.warning(
                "flush failed; will try again", topic=topic.name, attempts=failures.attempts, reason=str(error)
            )
        if alone:
            self._wake.set()

    def _fails_alone(self, topic: TopicLog, failures: Failures) -> bool:
        """Whether others can be flushed where this topic cannot; then it must not cost them the WAL."""
        log = self._log
        if not log.wal_is_tight() or topic.state not in ("open", "unavailable"):
            return False
        if self._succeeded_seconds > failures.since_seconds:
            return True
        # Nobody else has anything to flush, and nobody will: the log is full.
        others = [other for other in log.topics() if other is not topic and other.state != "fenced"]
        waiting = any(partition.head.unflushed_bytes for other in others for partition in other.partitions)
        return bool(others) and not waiting and log.wal_refused_seconds > failures.since_seconds

    def _start_carries(self) -> None:
        """Topics that cannot be flushed and keep the oldest segment are carried forward while the WAL is tight."""
        log = self._log
        if not log.wal_is_tight():
            return
        pinning = {topic_id for topic_id, _ in log.wal.oldest_pinning(log.table_offset)}
        for topic in log.topics():
            if topic.state != "unavailable" or topic in self._running or topic.id_bytes not in pinning:
                continue
            failures = self._carry_failures.get(topic)
            if failures is not None and self._clock.monotonic() < failures.again_seconds:
                continue
            unflushed = sum(partition.head.unflushed_bytes for partition in topic.partitions)
            if unflushed <= log.wal.used_bytes * CARRIED_PART_MAX:
                self._run(topic, self._carry(topic))

    async def _carry(self, topic: TopicLog) -> None:
        try:
            carried = await carry_forward(self._log, topic)
        except Exception as error:
            now = self._clock.monotonic()
            failures = (self._carry_failures.get(topic) or Failures(now, 0, 0.0, "")).another(now, str(error))
            self._carry_failures[topic] = failures
            if failures.worth_saying:
                self._logger.error(
                    "records cannot be carried forward; will try again",
                    topic=topic.name,
                    attempts=failures.attempts,
                    reason=str(error),
                    exc_info=None if isinstance(error, SiltlogError) else error,
                )
            return
        self._carry_failures.pop(topic, None)
        self._logger.info("records carried forward in the write-ahead log", topic=topic.name, bytes=carried)
        await self._recycle()

    def _close(self, topic: TopicLog, error: SiltlogError) -> None:
        """The table is another's now; what was not flushed stays in the WAL."""
        self._logger.error("topic fenced", topic=topic.name, reason=error.detail)
        topic.close("fenced", error.detail)

    async def _recycle(self) -> None:
        if not self._log.wal.can_trim(self._log.table_offset):
            return
        # How far the tables are must be known for as long as the records that show it are there.
        await self._log.group_commit.commit()
        freed = await self._in_thread(self._log.wal.trim, self._log.table_offset)
        if freed:
            self._log.wal_drained.left(freed * self._log.wal.segment_bytes, self._clock.monotonic())
            self._logger.debug("segments recycled", segments=freed)

    async def release(self, topic: TopicLog) -> None:
        """After the flush of a clean stop: another WAL may take over without asking. A failure is only logged."""
        if topic.state != "open" or topic.open_commit:
            return
        if any(log.offsets.table != log.offsets.synced for log in topic.partitions):
            return
        # What was flushed is known for good before another goes on, which may clean the log that tells of it.
        await self._log.group_commit.commit()
        try:
            async with topic.table_lock:
                await self.states.write(topic, at_once=True)
                epochs = {log.partition: log.epoch for log in topic.partitions}
                states = _states_to_note(topic.partitions, topic.table.snapshot)
                await self._in_thread(topic.table.release, epochs, str(uuid.uuid4()), states=states)
        except SiltlogError as error:
            self._logger.warning("not released: only this data dir may go on", topic=topic.name, reason=error.detail)

    async def _refresh(self) -> None:
        """Sees what other processes committed: rewrites, retention, a claim that fences this node."""
        for turn in itertools.count():
            claimed = await self._claimed_elsewhere()
            changed = set(self._log.topics()) if claimed else await self._changed_elsewhere(turn)
            for topic in list(self._log.topics()):
                topic.expire_producers(self._clock.now_us())
                if topic.open_commit or topic in self._running:
                    continue
                try:
                    async with topic.table_lock:
                        if topic.state in ("open", "unavailable"):
                            if topic in changed:
                                self._log.see_table(topic, await self._in_thread(topic.table.refresh))
                                await self._see_files(topic)
                            await self.states.write(topic)
                except Fenced as error:
                    self._close(topic, error)
                except Exception as error:
                    if self._unrefreshed.get(topic) != str(error):
                        self._unrefreshed[topic] = str(error)
                        self._logger.warning("refresh failed", topic=topic.name, reason=str(error))
                else:
                    self._unrefreshed.pop(topic, None)

    async def _claimed_elsewhere(self) -> bool:
        """Waits until it is time for a refresh, or another server has claimed: whether it has."""
        for _ in range(LOOKS_PER_REFRESH):
            await asyncio.sleep(LOOK_SECONDS)
            try:
                # Not on the flushes' threads: those may wait for the store.
                found = await asyncio.to_thread(self._log.store.get, names.CLAIMED_OBJECT)
            except (FileNotFoundError, SiltlogError):
                continue
            except Exception:
                # Whatever it was: the tables tell it, too, and have to be looked at.
                self._logger.exception("looking whether another server has claimed failed")
                continue
            if found not in (self._log.start_mark, self._claimed_by):
                self._claimed_by = found
                return True
        return False

    async def _changed_elsewhere(self, turn: int) -> set[TopicLog]:
        """The topics whose tables have an entry that was not seen yet: one look each, because all of them add up."""
        topics = list(self._log.topics())
        nexts = [entry_path(topic.name, topic.snapshot.version + 1) for topic in topics]
        try:
            found = await self._in_thread(self._log.store.sizes, nexts)
        except SiltlogError:
            # Each says for itself why it cannot be refreshed.
            return set(topics)
        return {
            topic
            for number, (topic, size) in enumerate(zip(topics, found, strict=True))
            if size is not None or (number + turn) % REFRESHES_UNSEEN == 0
        }

    async def _see_files(self, topic: TopicLog) -> None:
        self._loads.see(topic, await self._in_thread(patience_of, topic.snapshot))

    async def _in_thread(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        call = functools.partial(function, *args, **kwargs)
        return await asyncio.get_running_loop().run_in_executor(self._threads, call)


def _states_to_note(partitions: Sequence[PartitionLog], snapshot: TableSnapshot) -> dict[int, int]:
    """Gives, by partition, the newest object of its producers, where the table has not noted it."""
    return {
        log.partition: log.state_offset
        for log in partitions
        if log.state_offset > snapshot.transactions.get(names.txn_state(log.partition), 0)
    }


def _work_of(log: PartitionLog) -> Work | None:
    first, end = log.offsets.table, log.offsets.synced
    chunks: list[Chunk] = []
    nbytes = 0
    for chunk in log.head.between(first, end):
        if chunks and nbytes + chunk.nbytes > FLUSH_FILE_BYTES_MAX:
            end = chunk.first_offset
            break
        chunks.append(chunk)
        nbytes += chunk.nbytes
    return (log, first, end, chunks) if chunks else None
