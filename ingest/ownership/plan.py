"""Plans where a topic goes on that is to be taken: what is to be refused, jumped, set aside."""

from collections.abc import Container, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from siltlog.infra import names
from siltlog.infra.records import OFFSET_JUMP
from siltlog.infra.settings.topic_config import TopicConfig
from siltlog.infra.store.store import ObjectStore
from siltlog.infra.table.table import TopicTable
from siltlog.ingest.log import state as wal_state
from siltlog.ingest.log.log import Log
from siltlog.ingest.log.topic import TopicLog
from siltlog.ingest.ownership.former import Former
from siltlog.ingest.ownership.found import FoundFrame, check_contiguous
from siltlog.ingest.ownership.landed import Absent, Landed, landed, missing

TABLES_AT_ONCE = 8


@dataclass(frozen=True, slots=True)
class Leave:
    """What may be done where a table and this WAL do not fit together."""

    take_over: bool = False
    """Partitions of another are taken, and jump above all that it may have acknowledged."""
    accept_loss: bool = False
    """What was acknowledged and is nowhere any more is a gap."""
    shipped: frozenset[int] = frozenset()
    """Partitions whose former owner acknowledged nothing that is not in the table, or was recovered."""


@dataclass(slots=True)
class Standing:
    """The standing of this WAL by what a topic's table says."""

    topic: TopicLog
    known: wal_state.TopicState | None
    landed: Landed
    own: set[int]
    """Partitions that this WAL claimed last, or nobody did."""
    claimed: set[int] = field(default_factory=set)
    """The part of `own` that it had just claimed from another when its last start was cut short."""
    ahead: dict[int, int] = field(default_factory=dict)
    """The part of `own` whose table is further than this WAL's own commits brought it, and how far these did: there is
    another data dir that was the same as this one once, and has gone on."""


@dataclass(slots=True)
class Plan:
    """The plan where a topic goes on, by partition."""

    topic: TopicLog
    standing: Standing
    foreign: set[int] = field(default_factory=set)
    offsets: dict[int, int] = field(default_factory=dict)
    """The offsets of the partitions that jump."""
    inherited: dict[int, int] = field(default_factory=dict)
    """The offset below which the table tells the producers, for each foreign partition."""
    frames: dict[int, list[FoundFrame]] = field(default_factory=dict)
    stranded: dict[int, list[Absent]] = field(default_factory=dict)
    refusals: list[str] = field(default_factory=list)
    recovers: bool = False
    """What was acknowledged of it is in the table and in the journals of its chain, whatever this WAL has."""

    def goes_on_at(self, partition: int) -> int:
        """The table offset with the claim."""
        return self.offsets.get(partition, self.topic.snapshot.offsets[partition])


def standings(log: Log, former: Former, tables: Mapping[str, TopicTable]) -> list[Standing]:
    """Raises Unavailable where a table cannot be read now."""
    there = [table for table in tables.values() if not table.snapshot.deleted]
    with ThreadPoolExecutor(TABLES_AT_ONCE) as pool:
        return list(pool.map(lambda table: standing_of(log, former, table), there))


def standing_of(log: Log, former: Former, table: TopicTable) -> Standing:
    """Raises Unavailable where the table cannot be read now."""
    topic = TopicLog(table.topic, table, TopicConfig(table.snapshot.config.own, log.server_config), log.wal)
    topic.taking()
    snapshot = table.snapshot
    known = former.state(topic.topic_id)
    own_epochs = {0, *(known.epochs if known else ())}
    own = {partition for partition, epoch in snapshot.epochs.items() if epoch in own_epochs}
    found_landed = landed(log.store, snapshot, topic.name, known)
    claiming = known.claiming if known else {}
    claimed = {partition for partition in own & claiming.keys() if snapshot.offsets[partition] == claiming[partition]}
    result = Standing(topic, known, found_landed, own, claimed)
    result.ahead = {
        at: found_landed.offset(at)
        for at in own - claimed
        if 0 <= found_landed.offset(at) < snapshot.offsets[at]
        and not (found_landed.in_doubt and _all_there(log.store, result, at, former))
    }
    return result


def _all_there(store: ObjectStore, standing: Standing, partition: int, former: Former) -> bool:
    """Whether all that the table has more than this WAL is known to have brought there are this WAL's records."""
    topic = standing.topic
    at, end = standing.landed.offset(partition), topic.snapshot.offsets[partition]
    frames = [frame for frame in former.frames_of(topic.topic_id, partition) if frame.first_offset < end]
    covered = bool(frames) and frames[0].first_offset <= at and frames[-1].next_offset >= end
    return covered and not [
        batch
        for _, batch in missing(store, topic.name, topic.snapshot, partition, frames, at)
        if batch.first_offset < end
    ]


def plans(store: ObjectStore, found_standings: Sequence[Standing], former: Former, leave: Leave) -> list[Plan]:
    """Plans where each topic goes on, and says what speaks against it. Raises CorruptData, Unavailable."""
    # One topic is enough to tell: a copy that is behind in one may be so in any.
    behind = any(standing.ahead for standing in found_standings)
    return [plan_of(store, standing, former, leave, behind=behind) for standing in found_standings]


def plan_of(store: ObjectStore, standing: Standing, former: Former, leave: Leave, *, behind: bool) -> Plan:
    """Plans where a topic goes on. `behind`: this data dir is an older copy of one that went on."""
    topic, known = standing.topic, standing.known
    result = Plan(topic, standing)
    snapshot = topic.snapshot
    claimed = {partition for partition, epoch in snapshot.epochs.items() if epoch != 0}
    shipped = leave.shipped | _journaled(standing, leave)
    result.recovers = topic.journaled and bool(shipped)
    result.foreign = claimed if behind else (claimed - standing.own) | standing.claimed | shipped
    half = set() if behind else standing.claimed
    held = result.foreign - half - shipped
    taken = sorted(p for p in held if snapshot.released[p] != snapshot.epochs[p])
    if taken and not leave.take_over:
        result.refusals.append(_owned_by_another(standing, taken))
    if known is not None and snapshot.version < known.table_version and not leave.accept_loss:
        result.refusals.append(
            f"topic {topic.name}: its table is at version {snapshot.version}, but this server has seen version "
            f"{known.table_version}: it was rolled back or restored. Put it back, or accept what is lost with "
            "`silt serve --accept-loss`"
        )
    for partition in range(snapshot.partitions):
        found = former.frames_of(topic.topic_id, partition)
        # Of what shipped nothing was acknowledged or shown that the table does not have.
        frames = [frame for frame in found if known is None or frame.epoch not in known.shipped]
        if partition in shipped and topic.journaled:
            continue
        if partition in result.foreign:
            _plan_foreign(store, result, partition, frames, jump=partition in taken)
        else:
            _plan_own(result, partition, frames, leave.accept_loss)
    return result


def _journaled(standing: Standing, leave: Leave) -> set[int]:
    """The partitions whose last owner acknowledged nothing that is in neither a journal nor the table, and that may be
    taken: this WAL's own, or another's that is gone by the word of an operator."""
    snapshot = standing.topic.snapshot
    return {
        partition
        for partition, epoch in snapshot.epochs.items()
        if standing.topic.journaled
        and 0 != epoch == snapshot.shipped(partition) != snapshot.released[partition]
        and (partition in standing.own or leave.take_over)
    }


def _owned_by_another(standing: Standing, taken: list[int]) -> str:
    topic = standing.topic
    where = f"topic {topic.name}, partitions {_listed(taken)}:"
    copied = [partition for partition in taken if partition in standing.own]
    if not copied:
        return (
            f"{where} another server, or another data dir, owns them. Stop that server cleanly, or start with its data "
            "dir; if both are lost, `silt serve --take-over` goes on"
        )
    told = next((partition for partition in copied if partition in standing.ahead), None)
    detail = ""
    if told is not None:
        came = standing.ahead[told]
        wrote = f"those up to {came - 1}" if came else "none of them"
        detail = (
            f" Partition {told} has offsets up to {topic.snapshot.offsets[told] - 1} in its table, and this data dir "
            f"brought it {wrote}."
        )
    return (
        f"{where} this data dir is an older copy of the one that owns them, which went on.{detail} Start with that "
        "one; if it is lost, `silt serve --take-over` goes on"
    )


def _plan_foreign(store: ObjectStore, plan: Plan, partition: int, frames: list[FoundFrame], *, jump: bool) -> None:
    """Another has gone on with the partition: what this WAL has beside it is set aside, and no offset is used again."""
    topic, known = plan.topic, plan.standing.known
    table_offset = topic.snapshot.offsets[partition]
    came = max(plan.standing.landed.offset(partition), 0)
    absent = missing(store, topic.name, topic.snapshot, partition, frames, came)
    if absent:
        plan.stranded[partition] = absent
    recorded = known.partitions.get(partition) if known else None
    if known is not None and known.epochs[-1:] == known.shipped[-1:] != []:
        recorded = None
    reached = max(recorded.next_offset if recorded else 0, frames[-1].next_offset if frames else 0)
    if jump:
        plan.offsets[partition] = -(-max(table_offset + 1, reached) // OFFSET_JUMP) * OFFSET_JUMP
    elif reached > table_offset:
        plan.offsets[partition] = reached


def _plan_own(plan: Plan, partition: int, frames: list[FoundFrame], accept_loss: bool) -> None:
    name, known = plan.topic.name, plan.standing.known
    table_offset = plan.topic.snapshot.offsets[partition]
    frames = [frame for frame in frames if frame.next_offset > table_offset]
    check_contiguous(name, partition, frames)
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


def missing_tables(store: ObjectStore, former: Former, there: Container[str]) -> list[str]:
    """Topics the WAL knows whose table is not there at all; a deleted one still has its log of commits."""
    return [
        f"topic {state.name}: its table is gone from {store.uri(names.topic_path(state.name))}. Put it back, or accept "
        "the loss with `silt serve --accept-loss`"
        for state in former.states()
        if state.name not in there
    ]


def _listed(numbers: list[int]) -> str:
    shown = ", ".join(map(str, numbers[:10]))
    return shown if len(numbers) <= 10 else f"{shown} and {len(numbers) - 10} more"
