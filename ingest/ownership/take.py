"""Taking a topic: it goes on here, from what its table says and what the WAL of this node has of it.

In this order: its producers and epochs are there before the WAL is told of it, the claim is made, what never came into
the table because another went on with it is set aside, and only then it is opened.
"""

import asyncio
from collections.abc import Collection, Sequence
from contextlib import AbstractContextManager, nullcontext

from siltlog.infra.errors import ConfigError, problem
from siltlog.infra.store.store import ObjectStore
from siltlog.infra.table.table import TopicTable
from siltlog.infra.telemetry import Logger
from siltlog.ingest.log import state as wal_state
from siltlog.ingest.log.claim import claim
from siltlog.ingest.log.head import Head
from siltlog.ingest.log.log import Log
from siltlog.ingest.log.topic import TopicLog
from siltlog.ingest.ownership.former import Former
from siltlog.ingest.ownership.landed import Landed, landed
from siltlog.ingest.ownership.plan import TABLES_AT_ONCE, Leave, Plan, plan_of, standing_of
from siltlog.ingest.ownership.shipping import Shipping
from siltlog.ingest.ownership.stranded import Stranded
from siltlog.ingest.producers import objects
from siltlog.ingest.producers.sequencer import ProducerState


class Taking:
    """Takes topics, any number at a time. Used on the log's event loop."""

    def __init__(self, log: Log, former: Former, stranded: Stranded, logger: Logger) -> None:
        """`former` is what the WAL has of topics that are not held. What never came into a table is set aside as
        `stranded`."""
        self.former = former
        self._log = log
        self._stranded = stranded
        self._logger = logger
        self._shipping = Shipping(log, logger)
        self._limit = asyncio.Semaphore(TABLES_AT_ONCE)

    def ending(self, journals: Collection[str]) -> AbstractContextManager[None]:
        """Has journals that are lost ended and read meanwhile: a take that goes by them need not wait for as long."""
        return self._shipping.ending(journals)

    async def take(self, table: TopicTable, leave: Leave, *, term: int | None = None, ships: bool = False) -> TopicLog:
        """Takes the topic of `table`, whose snapshot is what the claim is made on.

        Where it `ships`, it does from the claim on, unless this WAL has records of it that the table has still to get.
        Raises Unavailable or OutcomeUnknown where it could not be taken now, Fenced when another claimed it first, and
        Refused `topic_unavailable` for what does not fit together. Then it can be taken again.
        """
        log = self._log
        standing = await asyncio.to_thread(standing_of, log, self.former, table)
        behind = bool(standing.ahead)
        plan = await asyncio.to_thread(plan_of, log.store, standing, self.former, leave, behind=behind)
        if plan.refusals:
            raise problem("topic_unavailable", "; ".join(plan.refusals), topic=table.topic)
        await asyncio.to_thread(self.restore, plan)
        log.topic_logs.add(plan.topic)
        try:
            await self.claim(plan, term, ships=ships)
        except BaseException:
            # An epoch that may have landed is its own when it is taken again.
            self.former.not_taken(plan.topic)
            raise
        self.begin(plan)
        log.admission.bound_producers()
        return plan.topic

    async def give_up(self, topic_id: str, table: TopicTable) -> None:
        """Sets aside what this WAL has of a topic that another node went on with, and forgets it.

        Nothing is done while the table is this WAL's to go on with. `table` is that of the topic's name. Errors are as
        of `take`.
        """
        log, snapshot = self._log, table.snapshot
        known = self.former.state(topic_id)
        there = table.topic_id == topic_id and not snapshot.deleted
        if known is None or (there and not {0, *known.epochs}.isdisjoint(snapshot.epochs.values())):
            return
        if there:
            standing = await asyncio.to_thread(standing_of, log, self.former, table)
            # Nothing is taken here, so there is nothing to be refused.
            plan = await asyncio.to_thread(plan_of, log.store, standing, self.former, Leave(True, True), behind=False)
            await self._set_aside(plan)
        self.former.settled(topic_id)
        log.group_commit.add_control(wal_state.encode(wal_state.Deleted(topic_id)))
        await log.group_commit.commit()

    def restore(self, plan: Plan) -> None:
        """Gives the topic its producers and epochs; the WAL may be told of it afterwards. Blocks."""
        topic, known = plan.topic, plan.standing.known
        store, now_us = self._log.store, self._log.aging.now_us()
        if known is not None:
            topic.remembered(known)
            topic.producers.epochs.load(known.producer_epochs, now_us)
        if plan.foreign:
            topic.producers.epochs.load(objects.read_epochs(store, topic.name, topic.topic_id), now_us)
        for partition in topic.partitions:
            number = partition.partition
            if number in plan.foreign:
                partition.sequencer.load(inherited(store, now_us, topic, number).items())
                plan.inherited[number] = topic.snapshot.offsets[number]
            elif known is not None and number in known.partitions:
                partition.sequencer.load(known.partitions[number].producers.items())
            # What was another's is settled only once it is claimed and set aside.
            settled = plan.standing.landed.offset(number) if number in plan.foreign else plan.goes_on_at(number)
            partition.remembered(_next_offset(plan, number), settled)
        topic.producers.loaded((partition.sequencer for partition in topic.partitions), now_us)

    async def claim(self, plan: Plan, term: int | None = None, *, ships: bool = False) -> None:
        """Claims a topic that was restored and that the WAL knows. Raises ConfigError where another went on with a copy
        of this data dir meanwhile; else as `take`."""
        async with self._limit:
            log, topic = self._log, plan.topic
            goes_on_at = [plan.goes_on_at(partition.partition) for partition in topic.partitions]
            topic.takes_over({partition: goes_on_at[partition] for partition in plan.foreign})
            ships = (ships or topic.journaled) and not any(plan.frames.values())
            async with self._shipping.ended(topic) if plan.recovers else nullcontext() as ended:
                chain = [(one.epoch, one.journal) for one in ended or ()]
                await claim(log, topic, plan.offsets or None, term=term, ships=ships, chain=chain)
                if ended is None:
                    await asyncio.to_thread(_check_claimed, log.store, plan, goes_on_at)
                if plan.foreign:
                    await self._set_aside(plan)
                    await self._inherit_late(plan)
                self._settle(plan)
                if ended is not None:
                    plan.frames = await self._shipping.recover(topic, ended)
            if plan.foreign:
                await log.group_commit.commit()

    def begin(self, plan: Plan) -> None:
        """Opens a topic that was claimed."""
        topic, clock = plan.topic, self._log.clock
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
        topic.opened()
        self.former.settled(topic.topic_id)
        for jumped in plan.offsets:
            first, end = snapshot.gaps(jumped)[-1]
            self._logger.warning("offsets were jumped", topic=topic.name, partition=jumped, first=first, next=end)

    async def _set_aside(self, plan: Plan) -> None:
        for partition, records in plan.stranded.items():
            files = await asyncio.to_thread(self._stranded.write, plan.topic, partition, records)
            self._logger.warning(
                "acknowledged records never came into the table, because another went on with it: they are set aside, "
                "and `silt stranded publish` publishes them anew",
                topic=plan.topic.name,
                partition=partition,
                first_offset=records[0].batch.first_offset,
                last_offset=records[-1].batch.next_offset - 1,
                records=sum(absent.batch.rows for absent in records),
                files=files,
            )

    async def _inherit_late(self, plan: Plan) -> None:
        """Takes over what the former owner's producers did between our look at the table and our claim."""
        log, topic = self._log, plan.topic
        late: dict[int, dict[str, ProducerState]] = {}
        for partition, known_offset in plan.inherited.items():
            jumped = topic.snapshot.gaps(partition) if partition in plan.offsets else []
            if (jumped[-1][0] if jumped else topic.snapshot.offsets[partition]) == known_offset:
                continue
            late[partition] = await asyncio.to_thread(inherited, log.store, log.aging.now_us(), topic, partition)
            topic.partitions[partition].sequencer.load(late[partition].items())
        epochs = await asyncio.to_thread(objects.read_epochs, log.store, topic.name, topic.topic_id)
        topic.producers.epochs.load(epochs, log.aging.now_us())
        topic.producers.loaded((partition.sequencer for partition in topic.partitions), log.aging.now_us())
        event = wal_state.Inherited(topic.topic_id, late, topic.producers.epochs.dump())
        log.group_commit.add_control(wal_state.encode(event))

    def _settle(self, plan: Plan) -> None:
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
            self._log.group_commit.add_control(wal_state.encode(flushed))


def inherited(store: ObjectStore, now_us: int, topic: TopicLog, partition: int) -> dict[str, ProducerState]:
    """The producers that the table knows of, as used just now: a row's time is its producer's word, and may be old."""
    producers = objects.read(store, topic.name, topic.snapshot, partition)
    for known in producers.values():
        known.used_us = now_us
    return producers


def _check_claimed(store: ObjectStore, plan: Plan, goes_on_at: Sequence[int]) -> None:
    """Raises ConfigError when another went on with a copy of this data dir while this one claimed."""
    topic, standing = plan.topic, plan.standing
    came: Landed | None = None
    for partition, offset in enumerate(goes_on_at):
        now = topic.snapshot.offsets[partition]
        # Another's may have gone on until the claim: its owner is slow, and not gone.
        if now != offset and partition not in plan.foreign:
            # A commit of this WAL's own that was still under way is one that it noted.
            came = came or landed(store, topic.snapshot, topic.name, standing.known)
            if came.offset(partition) != now:
                raise ConfigError(
                    f"the server will not start: topic {topic.name}, partition {partition}: another went on with "
                    "a copy of this data dir while this one started. Stop it, and start with the data dir that is to "
                    "go on; the other's `silt serve` sets aside what the table does not have"
                )


def _next_offset(plan: Plan, partition: int) -> int:
    frames = plan.frames.get(partition)
    table_offset = plan.goes_on_at(partition)
    return max(frames[-1].next_offset, table_offset) if frames else table_offset
