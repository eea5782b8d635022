"""The start of a node: what the WAL and the tables say together, and whether it may go on from there.

Nothing is acknowledged before every topic was checked and claimed. What does not fit together is refused and named;
an operator may accept a loss (`--accept-loss`) or take partitions over (`--take-over`).
"""

import asyncio
import uuid
from collections import defaultdict
from collections.abc import Container, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import pyarrow as pa

from siltlog.infra import names
from siltlog.infra.bounds import OFFSET_JUMP
from siltlog.infra.clock import Clock
from siltlog.infra.errors import ConfigError, UnknownTopic, problem
from siltlog.infra.schema import RECORD_SCHEMA
from siltlog.infra.store import ObjectStore, open_store
from siltlog.infra.table import TopicTable, topic_names
from siltlog.infra.telemetry import Logger
from siltlog.infra.topic_config import TopicConfig
from siltlog.ingest import producer_state, wal_state
from siltlog.ingest.head import Head
from siltlog.ingest.log import Log
from siltlog.ingest.log_batch import LogBatch, record_columns
from siltlog.ingest.partition_log import PartitionLog
from siltlog.ingest.sequencer import ProducerBatch, ProducerState
from siltlog.ingest.topic_log import TopicLog
from siltlog.ingest.topics import claim
from siltlog.ingest.wal import FrameKind, Location, Recovery

TABLES_AT_ONCE = 8


@dataclass(frozen=True, slots=True)
class FoundFrame:
    first_offset: int
    next_offset: int
    location: Location
    payload: pa.Buffer


@dataclass(slots=True)
class Found:
    """What the WAL holds, by topic id (hex) and partition."""

    state: wal_state.WalState
    frames: dict[tuple[str, int], list[FoundFrame]]
    replays: dict[tuple[str, int], list[FoundFrame]]
    """Those of `frames` whose producers the state does not know of."""


@dataclass(slots=True)
class Plan:
    """Where a topic goes on, by partition."""

    topic: TopicLog
    foreign: set[int] = field(default_factory=set)
    offsets: dict[int, int] = field(default_factory=dict)
    """Of those partitions that jump."""
    inherited: dict[int, int] = field(default_factory=dict)
    """Of the foreign ones: below which offset the producers are known from the table."""
    frames: dict[int, list[FoundFrame]] = field(default_factory=dict)
    stranded: dict[int, list[FoundFrame]] = field(default_factory=dict)
    refusals: list[str] = field(default_factory=list)


def read_wal(recovery: Recovery) -> Found:
    state = wal_state.decode_state(recovery.state) if recovery.state else wal_state.WalState()
    frames: dict[tuple[str, int], list[FoundFrame]] = defaultdict(list)
    replays: dict[tuple[str, int], list[FoundFrame]] = defaultdict(list)
    for index, (frame, location) in enumerate(recovery.frames):
        if frame.kind == FrameKind.RECORDS:
            key = (str(uuid.UUID(bytes=frame.topic_id)), frame.partition)
            found = FoundFrame(frame.first_offset, frame.first_offset + frame.count, location, frame.payload_whole)
            frames[key].append(found)
            if index >= recovery.frames_before_state:
                replays[key].append(found)
        elif index >= recovery.frames_before_state:
            wal_state.apply(state, wal_state.decode_event(frame.payload_whole.to_pybytes()))
    return Found(state, frames, replays)


async def start_log(
    log: Log, recovery: Recovery, *, take_over: bool, accept_loss: bool, stranded_dir: Path, logger: Logger
) -> None:
    """Opens every topic, decides where it goes on, starts the WAL and claims. ConfigError for what does not fit."""
    found = read_wal(recovery)
    tables = await asyncio.to_thread(_open_tables, log)
    plans = [
        _plan(
            TopicLog(name, table, TopicConfig(table.snapshot.config.own, log.server_config), log.wal),
            found,
            take_over,
            accept_loss,
        )
        for name, table in tables.items()
        if not table.snapshot.deleted
    ]
    missing = _missing_tables(log.store, found, tables)
    refusals = [refusal for plan in plans for refusal in plan.refusals] + ([] if accept_loss else missing)
    if refusals:
        raise ConfigError("the server will not start:\n  " + "\n  ".join(refusals))
    for plan in plans:
        await asyncio.to_thread(_restore, log, plan, found)
        log.add_topic(plan.topic)
        # Before anything is claimed: once it is, these frames look like any others that are done with.
        for partition, frames in plan.stranded.items():
            path = await asyncio.to_thread(_strand, stranded_dir, plan.topic, partition, frames)
            logger.warning(
                "records of a superseded epoch were set aside; they can be published anew",
                topic=plan.topic.name,
                partition=partition,
                first_offset=frames[0].first_offset,
                next_offset=frames[-1].next_offset,
                file=str(path),
            )
    await asyncio.to_thread(log.wal.start)
    limit = asyncio.Semaphore(TABLES_AT_ONCE)

    async def take(plan: Plan) -> None:
        async with limit:
            await claim(log, plan.topic, plan.offsets or None)
            if plan.foreign:
                await _inherit_late(log, plan)

    results = await asyncio.gather(*(take(plan) for plan in plans), return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException):
            raise result
    for plan in plans:
        _begin(plan, log.clock)
        for partition in plan.offsets:
            first, end = plan.topic.snapshot.gaps(partition)[-1]
            logger.warning("offsets were jumped", topic=plan.topic.name, partition=partition, first=first, next=end)
    log.bound_producers()
    for note in recovery.notes:
        logger.info("write-ahead log", note=note)


def _open_tables(log: Log) -> dict[str, TopicTable]:
    """By name, deleted ones included; without those whose creation did not come as far as a first commit."""

    def opened(name: str) -> TopicTable | None:
        try:
            return TopicTable.open(log.store, name, log.clock)
        except UnknownTopic:
            return None

    with ThreadPoolExecutor(TABLES_AT_ONCE) as pool:
        there = topic_names(log.store)
        return {name: table for name, table in zip(there, pool.map(opened, there), strict=True) if table is not None}


def _plan(topic: TopicLog, found: Found, take_over: bool, accept_loss: bool) -> Plan:
    plan = Plan(topic)
    snapshot = topic.snapshot
    known = found.state.topics.get(topic.topic_id)
    own_epochs = set(known.epochs) if known else set()
    plan.foreign = {partition for partition, epoch in snapshot.epochs.items() if epoch != 0 and epoch not in own_epochs}
    taken = sorted(p for p in plan.foreign if snapshot.released[p] != snapshot.epochs[p])
    if taken and not take_over:
        plan.refusals.append(
            f"topic {topic.name}, partitions {_listed(taken)}: another server, or another data dir, owns them. "
            "Stop that server cleanly, or start with its data dir; if both are lost, `silt serve --take-over` goes on"
        )
    if known is not None and snapshot.version < known.table_version and not accept_loss:
        plan.refusals.append(
            f"topic {topic.name}: its table is at version {snapshot.version}, but this server has seen version "
            f"{known.table_version}: it was rolled back or restored. Put it back, or accept what is lost with "
            "`silt serve --accept-loss`"
        )
    for partition in range(snapshot.partitions):
        _plan_partition(plan, partition, known, found, accept_loss, jump=partition in taken)
    return plan


def _plan_partition(
    plan: Plan,
    partition: int,
    known: wal_state.TopicState | None,
    found: Found,
    accept_loss: bool,
    *,
    jump: bool,
) -> None:
    name = plan.topic.name
    table_offset = plan.topic.snapshot.offsets[partition]
    frames = list(_each_once(found.frames.get((plan.topic.topic_id, partition), ())))
    if partition in plan.foreign:
        gaps = plan.topic.snapshot.gaps(partition)
        stranded = [frame for frame in frames if _is_stranded(frame, table_offset, gaps)]
        if stranded:
            plan.stranded[partition] = stranded
        if jump:
            plan.offsets[partition] = (table_offset // OFFSET_JUMP + 1) * OFFSET_JUMP
        return
    frames = [frame for frame in frames if frame.next_offset > table_offset]
    _check_contiguous(name, partition, frames)
    plan.frames[partition] = frames
    recorded = known.partitions.get(partition) if known else None
    reached = frames[0].first_offset if frames else max(table_offset, recorded.next_offset if recorded else 0)
    if reached <= table_offset:
        return
    if accept_loss:
        plan.offsets[partition] = reached
    else:
        plan.refusals.append(
            f"topic {name}, partition {partition}: offsets {table_offset} to {reached - 1} were acknowledged, but are "
            "neither in the table nor in the write-ahead log. Put the table or the data dir back, or accept the loss "
            "with `silt serve --accept-loss`"
        )


def _is_stranded(frame: FoundFrame, table_offset: int, gaps: Sequence[tuple[int, int]]) -> bool:
    """Whether records of this WAL, which another has superseded, never came into the table."""
    return frame.next_offset > table_offset or any(
        frame.first_offset < end and frame.next_offset > start for start, end in gaps
    )


def _each_once(frames: Iterable[FoundFrame]) -> Iterator[FoundFrame]:
    """In order, each offset once."""
    end = 0
    # By offset, not by place: records of a topic that could not be flushed were written again further on, in frames
    # that may hold several of the first ones. Of those that begin alike the longest holds the others.
    for frame in sorted(frames, key=lambda frame: (frame.first_offset, -frame.next_offset)):
        if frame.next_offset > end:
            yield frame
            end = frame.next_offset


def _check_contiguous(topic: str, partition: int, frames: Sequence[FoundFrame]) -> None:
    for before, after in pairwise(frames):
        if after.first_offset != before.next_offset:
            raise problem(
                "corrupt_data",
                f"the write-ahead log lacks offsets {before.next_offset} to {after.first_offset - 1} of topic {topic}, "
                f"partition {partition}",
                topic=topic,
                partition=partition,
            )


def _missing_tables(store: ObjectStore, found: Found, there: Container[str]) -> list[str]:
    """Topics the WAL knows whose table is not there at all; a deleted one still has its log of commits."""
    return [
        f"topic {state.name}: its table is gone from {store.uri(names.topic_path(state.name))}. Put it back, or accept "
        "the loss with `silt serve --accept-loss`"
        for state in found.state.topics.values()
        if state.name not in there
    ]


def _restore(log: Log, plan: Plan, found: Found) -> None:
    """Producers and epochs, before the WAL starts: its first entry holds them."""
    topic = plan.topic
    known = found.state.topics.get(topic.topic_id)
    topic.epochs = list(known.epochs) if known else []
    now_us = log.clock.now_us()
    if known is not None:
        _skip_downtime(known, now_us)
        topic.producers.claims.load(known.claims, now_us)
    if plan.foreign:
        topic.producers.claims.load(producer_state.read_claims(log.store, topic.name, topic.topic_id), now_us)
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
        next_offset = _next_offset(plan, number)
        partition.sequencer.next_offset = next_offset
        partition.submitted_offset = next_offset
    topic.producers.loaded((partition.sequencer for partition in topic.partitions), now_us)


def _inherited(log: Log, topic: TopicLog, partition: int) -> dict[str, ProducerState]:
    """The producers that the table knows of, as used just now: a row's time is its producer's word, and may be old."""
    producers = producer_state.read(log.store, topic.name, topic.snapshot, partition)
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


async def _inherit_late(log: Log, plan: Plan) -> None:
    """What a server that was taken over from still did between our look at the table and our claim."""
    topic = plan.topic
    late: dict[int, dict[str, ProducerState]] = {}
    for partition, known_offset in plan.inherited.items():
        jumped = topic.snapshot.gaps(partition) if partition in plan.offsets else []
        if (jumped[-1][0] if jumped else topic.snapshot.offsets[partition]) == known_offset:
            continue
        late[partition] = await asyncio.to_thread(_inherited, log, topic, partition)
        topic.partitions[partition].sequencer.load(late[partition].items())
    claims = await asyncio.to_thread(producer_state.read_claims, log.store, topic.name, topic.topic_id)
    topic.producers.claims.load(claims, log.clock.now_us())
    topic.producers.loaded((partition.sequencer for partition in topic.partitions), log.clock.now_us())
    inherited = wal_state.Inherited(topic.topic_id, late, topic.producers.claims.dump())
    log.group_commit.add_control(wal_state.encode(inherited))
    await log.group_commit.commit()


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
    table_offset = plan.offsets.get(partition, plan.topic.snapshot.offsets[partition])
    return max(frames[-1].next_offset, table_offset) if frames else table_offset


def _begin(plan: Plan, clock: Clock) -> None:
    topic = plan.topic
    snapshot = topic.snapshot
    for partition in topic.partitions:
        number = partition.partition
        frames = plan.frames.get(number, [])
        table_offset = snapshot.offsets[number]
        partition.head = Head(frames[0].first_offset if frames else table_offset)
        now = clock.monotonic()
        for frame in frames:
            partition.head.restore(frame.first_offset, frame.next_offset, frame.location, now)
        partition.head.flushed(table_offset)
        partition.begin(_next_offset(plan, number), table_offset, snapshot.starts[number], topic.epochs[-1])


def _strand(folder: Path, topic: TopicLog, partition: int, frames: list[FoundFrame]) -> Path:
    """Durable, and the same file when a start is repeated."""
    inner = f"{folder.name}/{topic.name}/{topic.topic_id}/{partition}-{frames[0].first_offset}.arrow"
    path = folder.parent / inner
    path.parent.mkdir(parents=True, exist_ok=True)
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, RECORD_SCHEMA) as writer:
        for frame in frames:
            writer.write_batch(record_columns(LogBatch.from_payload(frame.first_offset, frame.payload), partition))
    open_store(folder.parent.as_uri()).sync([inner])
    return path


def _listed(numbers: list[int]) -> str:
    shown = ", ".join(map(str, numbers[:10]))
    return shown if len(numbers) <= 10 else f"{shown} and {len(numbers) - 10} more"
