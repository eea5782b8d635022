"""The claim of a topic: the commit, without files, by which this node takes an epoch of every partition."""

import asyncio
import uuid
from collections.abc import Iterator, Mapping, Sequence

from siltlog.infra import delta_names
from siltlog.infra.errors import OutcomeUnknown, problem
from siltlog.infra.table.snapshot import TableSnapshot
from siltlog.ingest.log import state as wal_state
from siltlog.ingest.log.log import Log
from siltlog.ingest.log.topic import TopicLog

SETTLE_SECONDS = 0.5
"""How often it is asked whether a claim without an answer landed."""
EPOCH_OWN_BITS = 32
"""The low bits of an epoch are drawn anew for each claim; those above them are its term."""


async def claim(
    log: Log,
    topic: TopicLog,
    offsets: Mapping[int, int] | None = None,
    *,
    term: int | None = None,
    ships: bool = False,
    chain: Sequence[tuple[int, str]] = (),
) -> None:
    """Takes an epoch of every partition, of `term` or the next: first into the WAL, durably, then into the table.

    The WAL is told of `topic.claiming`, too. With `offsets` those partitions go on there; with `ships` the topic does
    from here on, and `chain` has the journals that a successor must read beside this start's own. Raises Fenced when
    another node claims at the same time, and under a term also when whatever the claim was decided on is another than
    in the table's snapshot.
    """
    found = topic.table.snapshot
    former = found.epochs
    epoch = next_epoch(max([*former.values(), *topic.epochs]), term)
    topic.took(epoch, ships=ships)
    claiming = wal_state.Claiming(topic.topic_id, topic.name, epoch, topic.claiming, ships)
    log.group_commit.add_control(wal_state.encode(claiming))
    await log.group_commit.commit()
    # Its first object is there before the table names it: who takes over must find something to seal.
    journals = [*chain, (epoch, await log.journal.open())] if ships and topic.journaled else []
    epochs = {partition.partition: epoch for partition in topic.partitions}
    commit_id = str(uuid.uuid4())
    try:
        snapshot = await asyncio.to_thread(
            topic.table.claim,
            epochs,
            commit_id,
            offsets=offsets,
            former=former,
            removed_files_ms=topic.config.integer("removed.files.retention.ms"),
            expected=None if term is None else {name: found.transactions.get(name, 0) for name in _decided_on(found)},
            journals=journals,
            marks={delta_names.txn_shipped(at): epoch for at in epochs} if ships else None,
        )
    except OutcomeUnknown:
        if term is None:
            raise
        snapshot = await _settled(topic, commit_id, found.version)
    # Who claimed it since has it.
    topic.check_claimed(snapshot, epochs)
    topic.see(snapshot)


async def _settled(topic: TopicLog, commit_id: str, version: int) -> TableSnapshot:
    """The table with a claim whose answer was lost. Raises Unavailable once it is sure that it did not land.

    Where it landed later, its owner would know of nothing, and nobody else could claim before this node was lost.
    """
    while True:
        outcome = await asyncio.to_thread(topic.table.outcome, commit_id, version)
        if outcome == "not_landed":
            raise problem("topic_unavailable", f"topic {topic.name} was not claimed: its table cannot be written")
        if outcome != "unknown":
            # Of one whose entry was cleaned since, the epochs tell.
            return topic.table.snapshot
        await asyncio.sleep(SETTLE_SECONDS)


def _decided_on(snapshot: TableSnapshot) -> Iterator[str]:
    """Yields the app transactions that say whether a topic may be claimed, besides its epochs."""
    for partition in range(snapshot.partitions):
        yield delta_names.txn_released(partition)
        yield delta_names.txn_shipped(partition)


def next_epoch(former: int, term: int | None = None) -> int:
    """Above `former`, and not what another node takes that claims over the same one.

    Who lost that race has its epoch in the WAL, and must not find it in the table later on as if it were its own.
    """
    term = term_of(former) + 1 if term is None else term
    return term << EPOCH_OWN_BITS | uuid.uuid4().int >> 128 - EPOCH_OWN_BITS


def term_of(epoch: int) -> int:
    return epoch >> EPOCH_OWN_BITS
