"""One flush: the synced records of a topic become a Parquet file a partition, and one Delta commit."""

import os
import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from siltlog.infra import delta_names
from siltlog.infra.errors import OutcomeUnknown
from siltlog.infra.metrics.metrics import Metrics
from siltlog.infra.table.data_file import DataFile, write_data_file
from siltlog.infra.table.snapshot import TableSnapshot
from siltlog.infra.telemetry import Logger
from siltlog.ingest.flush.threads import Place, Threads
from siltlog.ingest.log import state as wal_state
from siltlog.ingest.log.head import Chunk, load
from siltlog.ingest.log.log import Log
from siltlog.ingest.log.partition import PartitionLog
from siltlog.ingest.log.topic import TopicLog
from siltlog.ingest.records.batch import file_columns, joined

if TYPE_CHECKING:
    from siltlog.infra.tracing.serving import FlushTrace, Serving

FLUSH_FILE_BYTES_MAX = 64 * 1024 * 1024
"""One flush takes at most so much of a partition; the rest goes with the next."""
FILE_WRITERS = max(1, (os.cpu_count() or 1) // 2)
"""More would take the processors from those who publish; on two cores one keeps up with what they send."""

Work = tuple[PartitionLog, int, int, list[Chunk]]
InThread = Callable[..., Awaitable[Any]]


class Flush:
    """Used on the log's event loop, by whoever holds the table lock of the topic."""

    def __init__(
        self, log: Log, in_thread: InThread, logger: Logger, metrics: Metrics, serving: "Serving | None" = None
    ) -> None:
        """`in_thread(topic, function, *args)` runs what waits for the store."""
        self._log = log
        self._in_thread = in_thread
        self._logger = logger
        self._metrics = metrics
        self._serving = serving
        self._clock = log.clock
        self.writers = Threads(log.clock, "silt-file", FILE_WRITERS, ahead=1)

    async def run(self, topic: TopicLog, partitions: Sequence[PartitionLog]) -> None:
        """Commits what the partitions have; nothing where there is none. Raises Fenced, SiltlogError."""
        await self._settle_open_commit(topic)
        work = [item for log in partitions if (item := _work_of(log)) is not None]
        if work:
            await self._commit(topic, work)

    def is_last(self, topic: TopicLog) -> bool:
        """Whether one more flush has all that was appended."""
        return all(
            log.offsets.synced == log.sequencer.next_offset
            and ((work := _work_of(log)) is None or work[2] == log.offsets.synced)
            for log in topic.partitions
        )

    async def release(self, topic: TopicLog) -> None:
        """Commits the rest, and with it gives the partitions up, for another WAL to take over without asking.

        Where it is not known whether that landed, it is the topic's open commit.
        """
        work = [item for log in topic.partitions if (item := _work_of(log)) is not None]
        if work:
            await self._commit(topic, work, released={log.partition: log.epoch for log in topic.partitions})
            return
        epochs = {log.partition: log.epoch for log in topic.partitions}
        states = _states_to_note(topic.partitions, topic.table.snapshot)
        commit_id = str(uuid.uuid4())
        topic.began_commit(commit_id)
        await self._in_thread(topic, topic.table.release, epochs, commit_id, states=states)
        topic.ended_commit()

    async def _commit(self, topic: TopicLog, work: list[Work], released: Mapping[int, int] | None = None) -> None:
        commit_id = str(uuid.uuid4())
        topic.began_commit(commit_id)
        self._log.group_commit.add_control(
            wal_state.encode(wal_state.Flushing(topic.topic_id, commit_id, topic.open_version))
        )
        await self._log.group_commit.commit()
        started = self._clock.monotonic()
        chunks = [chunk for _, _, _, part in work for chunk in part]
        trace = None if self._serving is None else self._serving.flush(topic.name)
        nbytes = sum(chunk.nbytes for chunk in chunks)
        with work[0][0].held(chunks):
            states = _states_to_note([log for log, _, _, _ in work], topic.table.snapshot)
            try:
                files = await self.writers.run(
                    lambda item: self._write(topic, item, trace),
                    work,
                    nbytes,
                    lambda: place_of(self._log, topic, nbytes),
                )
                snapshot = await self._append(topic, work, files, commit_id, states, released)
            except Exception as error:
                if trace is not None:
                    trace.failed(error)
                raise
        if released is None:
            # Where another has claimed since, the commit stays open: the next start finds that it landed.
            self._log.see_table(topic, snapshot)
        topic.ended_commit()
        records = sum(end - first for _, first, end, _ in work)
        seconds = self._clock.monotonic() - started
        topic.flushed(records, len(work))
        self._metrics.flushed(seconds)
        if trace is not None:
            trace.done(records, len(work), snapshot.version)
        self._logger.debug(
            "flushed", topic=topic.name, records=records, files=len(work), version=snapshot.version, seconds=seconds
        )

    async def _append(
        self,
        topic: TopicLog,
        work: list[Work],
        files: list[DataFile],
        commit_id: str,
        states: dict[int, int],
        released: Mapping[int, int] | None,
    ) -> TableSnapshot:
        bounds = {log.partition: (first, end) for log, first, end, _ in work}
        epochs = {log.partition: log.epoch for log, _, _, _ in work}
        snapshot: TableSnapshot = await self._in_thread(
            topic, topic.table.append, files, bounds, epochs, commit_id, states=states, released=released
        )
        return snapshot

    def _write(self, topic: TopicLog, work: Work, trace: "FlushTrace | None") -> DataFile:
        log, first, end, chunks = work
        batches = []
        for chunk in chunks:
            batch = load(chunk, self._log.wal)
            batches.append(batch.slice(max(first, batch.first_offset), min(end, batch.next_offset)))
            if trace is not None:
                trace.see(batches[-1].columns)
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
        outcome = await self._in_thread(topic, topic.table.outcome, topic.open_commit, topic.open_version)
        if outcome == "unknown":
            raise OutcomeUnknown(
                f"it cannot be said yet whether commit {topic.open_commit} of topic {topic.name} has landed: "
                "an entry of its log cannot be read"
            )
        self._log.see_table(topic, await self._in_thread(topic, topic.table.refresh))
        # Only then: who goes on from before what has landed would take its own table for another's.
        topic.ended_commit()


def place_of(log: Log, topic: TopicLog, nbytes: int) -> Place:
    """Tells where the files of a flush of so many bytes are written: apart where somebody waits for the table or for a
    hand-over; at the priority of those who publish and read where the log or the memory fills up, which would cost all
    more than standing back saves."""
    if is_awaited(topic):
        return Place.AWAITED
    if log.draining or log.admission.wal_holds_much() or log.head_is_tight(nbytes):
        return Place.BESIDE
    return Place.BEHIND


def is_awaited(topic: TopicLog) -> bool:
    """Tells of any partition: those that are not in a flush wait for its end."""
    return topic.hidden or topic.paused is not None or any(partition.awaited for partition in topic.partitions)


def _states_to_note(partitions: Sequence[PartitionLog], snapshot: TableSnapshot) -> dict[int, int]:
    """Gives, by partition, the newest object of its producers, where the table has not noted it."""
    return {
        log.partition: log.state_offset
        for log in partitions
        if log.state_offset > snapshot.transactions.get(delta_names.txn_state(log.partition), 0)
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
