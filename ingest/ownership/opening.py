"""The start of a node: what the WAL and the tables say together, and whether it may go on from there.

Nothing is acknowledged before every topic was checked and claimed. What does not fit together is refused and named;
an operator may accept a loss (`--accept-loss`) or take partitions over (`--take-over`).
"""

import asyncio
import uuid
from collections.abc import Collection, Mapping
from concurrent.futures import ThreadPoolExecutor

from siltlog.infra import names
from siltlog.infra.errors import ConfigError, SiltlogError, UnknownTopic
from siltlog.infra.table.opening import ends_deleted
from siltlog.infra.table.table import TopicTable, topic_names
from siltlog.infra.telemetry import Logger
from siltlog.ingest.log import state as wal_state
from siltlog.ingest.log.log import Log
from siltlog.ingest.ownership.former import Former
from siltlog.ingest.ownership.found import read_wal
from siltlog.ingest.ownership.plan import TABLES_AT_ONCE, Leave, missing_tables, plans, standings
from siltlog.ingest.ownership.stranded import Stranded
from siltlog.ingest.ownership.take import Taking
from siltlog.ingest.wal import LastEntry, Recovery

NAMED_MAX = 10


async def start_log(
    log: Log, recovery: Recovery, *, take_over: bool, accept_loss: bool, stranded: Stranded, logger: Logger
) -> Taking:
    """Opens every topic, decides where it goes on, starts the WAL and claims. ConfigError for what does not fit.

    What it gives takes topics later on.
    """
    found = read_wal(recovery, log.aging.now_us())
    former = Former(log.topic_logs, log.wal, found)
    taking = Taking(log, former, stranded, logger)
    tables = await asyncio.to_thread(_open_tables, log, {state.name for state in former.states()})
    found_standings = await asyncio.to_thread(standings, log, former, tables)
    planned = await asyncio.to_thread(plans, log.store, found_standings, former, Leave(take_over, accept_loss))
    gone = missing_tables(log.store, former, tables)
    refusals = [refusal for plan in planned for refusal in plan.refusals] + ([] if accept_loss else gone)
    if refusals:
        raise ConfigError("the server will not start:\n  " + "\n  ".join(refusals))
    # Before the WAL starts: it writes over what is cut off.
    for cut in recovery.cuts:
        _tell_cut(cut, found.state.topics, logger)
    for note in recovery.notes:
        logger.info("write-ahead log", note=note)
    for plan in planned:
        await asyncio.to_thread(taking.restore, plan)
        log.topic_logs.add(plan.topic)
    for topic_id in former.topic_ids():
        # Its topic was deleted, or its table's loss accepted.
        former.settled(topic_id)
    # What was forgotten since the last state comes back with the records behind it.
    log.admission.bound_producers()
    await asyncio.to_thread(log.wal.start)
    results = await asyncio.gather(*(taking.claim(plan) for plan in planned), return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException):
            raise result
    await _tell_others(log, logger)
    for plan in planned:
        taking.begin(plan)
    log.admission.bound_producers()
    return taking


async def start_member(log: Log, recovery: Recovery, stranded: Stranded, logger: Logger) -> Taking:
    """Starts the WAL of a node that shares its root with others: no topic is taken before a view says so."""
    found = read_wal(recovery, log.aging.now_us())
    wal_state.bound_producers(found.state, log.admission.producers_bytes_max)
    former = Former(log.topic_logs, log.wal, found)
    for cut in recovery.cuts:
        _tell_cut(cut, found.state.topics, logger)
    for note in recovery.notes:
        logger.info("write-ahead log", note=note)
    await asyncio.to_thread(log.wal.start)
    former.started()
    return Taking(log, former, stranded, logger)


async def _tell_others(log: Log, logger: Logger) -> None:
    """A server that still runs looks at this more often than at its tables, which tell it all the same."""
    try:
        await asyncio.to_thread(log.store.put, names.CLAIMED_OBJECT, log.start_mark)
    except SiltlogError as error:
        logger.warning("a server that was taken over from hears of it some seconds later", reason=error.detail)


def _tell_cut(cut: LastEntry, known: Mapping[str, wal_state.TopicState], logger: Logger) -> None:
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


def _open_tables(log: Log, known: Collection[str]) -> dict[str, TopicTable]:
    """Opens the tables, by name; without those whose creation made no first commit, and without those of deleted
    topics, except where the WAL has something of that name, as it has of those that are `known`."""

    def opened(name: str) -> TopicTable | None:
        if name not in known and ends_deleted(log.store, name):
            return None
        try:
            return TopicTable.open(log.store, name, log.clock)
        except UnknownTopic:
            return None

    with ThreadPoolExecutor(TABLES_AT_ONCE) as pool:
        there = topic_names(log.store)
        return {name: table for name, table in zip(there, pool.map(opened, there), strict=True) if table is not None}
