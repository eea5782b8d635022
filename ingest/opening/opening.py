"""The start of a node: what the WAL and the tables say together, and whether it may go on from there.

Nothing is acknowledged before every topic was checked and claimed. What does not fit together is refused and named;
an operator may accept a loss (`--accept-loss`) or take partitions over (`--take-over`).
"""

import asyncio
import uuid
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from siltlog.infra import names
from siltlog.infra.clock import Clock
from siltlog.infra.errors import ConfigError, SiltlogError, UnknownTopic
from siltlog.infra.store.store import ObjectStore
from siltlog.infra.table.table import TopicTable, topic_names
from siltlog.infra.telemetry import Logger
from siltlog.ingest.log import state as wal_state
from siltlog.ingest.log.head import Head
from siltlog.ingest.log.log import Log
from siltlog.ingest.log.partition import PartitionLog
from siltlog.ingest.log.topic import TopicLog
from siltlog.ingest.opening import stranded
from siltlog.ingest.opening.found import Found, read_wal
from siltlog.ingest.opening.landed import Landed, landed
from siltlog.ingest.opening.plan import TABLES_AT_ONCE, Plan, missing_tables, standings
from siltlog.ingest.opening.plan import plans as plans_of
from siltlog.ingest.producers import objects
from siltlog.ingest.producers.sequencer import ProducerBatch, ProducerState
from siltlog.ingest.records.batch import LogBatch
from siltlog.ingest.topics.topics import claim
from siltlog.ingest.wal import LastEntry, Recovery

NAMED_MAX = 10


async def start_log(
    log: Log, recovery: Recovery, *, take_over: bool, accept_loss: bool, stranded_dir: Path, logger: Logger
) -> None:
    """Opens every topic, decides where it goes on, starts the WAL and claims. ConfigError for what does not fit."""
    found = read_wal(recovery)
    tables = await asyncio.to_thread(_open_tables, log)
    found_standings = await asyncio.to_thread(standings, log, found, tables)
    plans = await asyncio.to_thread(plans_of, log.store, found_standings, found, take_over, accept_loss)
    gone = missing_tables(log.store, found, tables)
    refusals = [refusal for plan in plans for refusal in plan.refusals] + ([] if accept_loss else gone)
    if refusals:
        raise ConfigError("the server will not start:\n  " + "\n  ".join(refusals))
    # Before the WAL starts: it writes over what is cut off.
    for cut in recovery.cuts:
        _tell_cut(cut, found, logger)
    for note in recovery.notes:
        logger.info("write-ahead log", note=note)
    for plan in plans:
        await asyncio.to_thread(_restore, log, plan, found)
        log.topic_logs.add(plan.topic)
    await asyncio.to_thread(log.wal.start)
    limit = asyncio.Semaphore(TABLES_AT_ONCE)

    async def take(plan: Plan) -> None:
        async with limit:
            goes_on_at = [plan.goes_on_at(partition.partition) for partition in plan.topic.partitions]
            plan.topic.takes_over({partition: goes_on_at[partition] for partition in plan.foreign})
            await claim(log, plan.topic, plan.offsets or None)
            await asyncio.to_thread(_check_claimed, log.store, plan, goes_on_at)
            if plan.foreign:
                await _set_aside(plan, stranded_dir, logger)
                await _inherit_late(log, plan)
            _settle(log, plan)
            if plan.foreign:
                await log.group_commit.commit()

    results = await asyncio.gather(*(take(plan) for plan in plans), return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException):
            raise result
    await _tell_others(log, logger)
    for plan in plans:
        _begin(plan, log.clock)
        for partition in plan.offsets:
            first, end = plan.topic.snapshot.gaps(partition)[-1]
            logger.warning("offsets were jumped", topic=plan.topic.name, partition=partition, first=first, next=end)
    log.admission.bound_producers()


async def _tell_others(log: Log, logger: Logger) -> None:
    """A server that still runs looks at this more often than at its tables, which tell it all the same."""
    try:
        await asyncio.to_thread(log.store.put, names.CLAIMED_OBJECT, log.start_mark)
    except SiltlogError as error:
        logger.warning("a server that was taken over from hears of it some seconds later", reason=error.detail)


def _tell_cut(cut: LastEntry, found: Found, logger: Logger) -> None:
    known = found.state.topics
    ids = [str(uuid.UUID(bytes=frame.topic_id)) for frame in cut.frames]
    gone = [
        f"topic {known[topic_id].name if topic_id in known else topic_id}, partition {frame.partition}, "
        f"offsets {frame.first_offset} to {frame.first_offset + frame.count - 1}"
        for topic_id, frame in zip(ids, cut.frames, strict=True)
    ]
    if not cut.readable:
        gone = ["not known: what heads it cannot be read"]
    tell = logger.warning if gone else logger.info
    tell(
        "the last group commit of the write-ahead log is not whole and was cut off: a power cut tears one like that, "
        "which was not acknowledged; if the disk has damaged it since, it may have been",
        file=str(cut.path),
        position=cut.position,
        records=gone[:NAMED_MAX] + ([f"and {len(gone) - NAMED_MAX} more"] if len(gone) > NAMED_MAX else []),
    )


def _open_tables(log: Log) -> dict[str, TopicTable]:
    """Opens the tables, by name, deleted ones included; without those whose creation made no first commit."""

    def opened(name: str) -> TopicTable | None:
        try:
            return TopicTable.open(log.store, name, log.clock)
        except UnknownTopic:
            return None

    with ThreadPoolExecutor(TABLES_AT_ONCE) as pool:
        there = topic_names(log.store)
        return {name: table for name, table in zip(there, pool.map(opened, there), strict=True) if table is not None}


def _check_claimed(store: ObjectStore, plan: Plan, goes_on_at: Sequence[int]) -> None:
    """Raises ConfigError when another went on with a copy of this data dir while this one claimed."""
    topic, standing = plan.topic, plan.standing
    came: Landed | None = None
    for partition, offset in enumerate(goes_on_at):
        now = topic.snapshot.offsets[partition]
        if now != offset:
            # A commit of this WAL's own that was still under way is one that it noted.
            came = came or landed(store, topic.snapshot, topic.name, standing.known)
            if came.offset(partition) != now:
                raise ConfigError(
                    f"the server will not start: topic {topic.name}, partition {partition}: another went on with "
                    "a copy of this data dir while this one started. Stop it, and start with the data dir that is to "
                    "go on; the other's `silt serve` sets aside what the table does not have"
                )


def _restore(log: Log, plan: Plan, found: Found) -> None:
    """Producers and epochs, before the WAL starts: its first entry holds them."""
    topic = plan.topic
    known = found.state.topics.get(topic.topic_id)
    if known is not None:
        topic.remembered(known)
    now_us = log.clock.now_us()
    if known is not None:
        _skip_downtime(known, now_us)
        topic.producers.epochs.load(known.producer_epochs, now_us)
    if plan.foreign:
        topic.producers.epochs.load(objects.read_epochs(log.store, topic.name, topic.topic_id), now_us)
    for partition in topic.partitions:
        number = partition.partition
        if number in plan.foreign:
            partition.sequencer.load(_inherited(log, topic, number).items())
            plan.inherited[number] = topic.snapshot.offsets[number]
        elif known is not None and number in known.partitions:
            partition.sequencer.load(known.partitions[number].producers.items())
        for frame in found.replays.get((topic.topic_id, number), ()):
            if number not in plan.foreign:
                _replay(partition, LogBatch.from_payload(frame.first_offset, frame.payload), now_us)
        # What was another's is settled only once it is claimed and set aside.
        settled = plan.standing.landed.offset(number) if number in plan.foreign else plan.goes_on_at(number)
        partition.remembered(_next_offset(plan, number), settled)
    topic.producers.loaded((partition.sequencer for partition in topic.partitions), now_us)


def _inherited(log: Log, topic: TopicLog, partition: int) -> dict[str, ProducerState]:
    """The producers that the table knows of, as used just now: a row's time is its producer's word, and may be old."""
    producers = objects.read(log.store, topic.name, topic.snapshot, partition)
    now_us = log.clock.now_us()
    for known in producers.values():
        known.used_us = now_us
    return producers


def _skip_downtime(known: wal_state.TopicState, now_us: int) -> None:
    """While no server ran nobody could publish: that time makes no producer and no key older."""
    producers = [state for partition in known.partitions.values() for state in partition.producers.values()]
    skipped_us = max(0, now_us - max((state.used_us for state in producers), default=now_us))
    for state in producers:
        state.used_us += skipped_us


async def _set_aside(plan: Plan, folder: Path, logger: Logger) -> None:
    for partition, records in plan.stranded.items():
        paths = await asyncio.to_thread(stranded.write, folder, plan.topic, partition, records)
        logger.warning(
            "acknowledged records never came into the table, because another went on with it: they are set aside, and "
            "`silt stranded publish` publishes them anew",
            topic=plan.topic.name,
            partition=partition,
            first_offset=records[0].batch.first_offset,
            last_offset=records[-1].batch.next_offset - 1,
            records=sum(absent.batch.rows for absent in records),
            files=[str(path) for path in paths],
        )


async def _inherit_late(log: Log, plan: Plan) -> None:
    """Takes over what the former owner's producers did between our look at the table and our claim."""
    topic = plan.topic
    late: dict[int, dict[str, ProducerState]] = {}
    for partition, known_offset in plan.inherited.items():
        jumped = topic.snapshot.gaps(partition) if partition in plan.offsets else []
        if (jumped[-1][0] if jumped else topic.snapshot.offsets[partition]) == known_offset:
            continue
        late[partition] = await asyncio.to_thread(_inherited, log, topic, partition)
        topic.partitions[partition].sequencer.load(late[partition].items())
    epochs = await asyncio.to_thread(objects.read_epochs, log.store, topic.name, topic.topic_id)
    topic.producers.epochs.load(epochs, log.clock.now_us())
    topic.producers.loaded((partition.sequencer for partition in topic.partitions), log.clock.now_us())
    inherited = wal_state.Inherited(topic.topic_id, late, topic.producers.epochs.dump())
    log.group_commit.add_control(wal_state.encode(inherited))


def _settle(log: Log, plan: Plan) -> None:
    """Notes how far the table is with the claim: what was another's, and a commit of ours that landed only now."""
    topic = plan.topic
    offsets = topic.snapshot.offsets
    moved = {
        one.partition: offsets[one.partition]
        for one in topic.partitions
        if one.partition in plan.foreign or one.offsets.table != offsets[one.partition]
    }
    for partition, offset in moved.items():
        topic.partitions[partition].settled(offset)
    topic.took_over()
    topic.ended_commit()
    if moved:
        flushed = wal_state.Flushed(topic.topic_id, topic.snapshot.version, moved)
        log.group_commit.add_control(wal_state.encode(flushed))


def _replay(partition: PartitionLog, batch: LogBatch, now_us: int) -> None:
    at = batch.first_offset
    for rows, run in batch.runs:
        if run is not None:
            skipped = 0
            first = run.first_sequence
            if first is None:
                own = batch.columns.column("sequence")
                begin = at - batch.first_offset
                first, last = own[begin].as_py(), own[begin + rows - 1].as_py()
                skipped = last - first + 1 - rows
            sent = ProducerBatch(run.producer_id, run.producer_epoch, first, rows, skipped)
            partition.sequencer.replay(sent, at, now_us)
        at += rows


def _next_offset(plan: Plan, partition: int) -> int:
    frames = plan.frames.get(partition)
    table_offset = plan.goes_on_at(partition)
    return max(frames[-1].next_offset, table_offset) if frames else table_offset


def _begin(plan: Plan, clock: Clock) -> None:
    topic = plan.topic
    snapshot = topic.snapshot
    for partition in topic.partitions:
        number = partition.partition
        frames = plan.frames.get(number, [])
        table_offset = snapshot.offsets[number]
        partition.restored(Head(frames[0].first_offset if frames else table_offset))
        now = clock.monotonic()
        for frame in frames:
            partition.head.restore(frame.first_offset, frame.next_offset, frame.location, now)
        partition.head.flushed(table_offset)
        partition.begin(_next_offset(plan, number), table_offset, snapshot.starts[number], topic.epochs[-1])
