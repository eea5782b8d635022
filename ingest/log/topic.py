"""One topic as its node sees it: configuration, partitions, table, and whether it takes records."""

import asyncio
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

import msgspec

from siltlog.infra import names
from siltlog.infra.errors import ConfigError, Fenced, SiltlogError, problem
from siltlog.infra.settings.topic_config import TopicConfig, Value
from siltlog.infra.table.snapshot import TableSnapshot
from siltlog.infra.table.table import TopicTable
from siltlog.ingest.log.partition import PartitionLog
from siltlog.ingest.log.state import EPOCHS_REMEMBERED, TopicState
from siltlog.ingest.producers.known import TopicProducers
from siltlog.ingest.wal import Wal

State = Literal["creating", "taking", "open", "fenced", "unavailable", "releasing", "released", "deleted"]


class Availability(msgspec.Struct, frozen=True):
    """Whether a topic takes records, and why it takes none."""

    state: State
    """Only what is `open` takes records; `unavailable` is what this node has and cannot flush."""
    reason: str = ""
    """Why it takes none; empty while it is open."""
    retry_after_ms: int | None = None
    """When it may take them again, where that is known."""
    error_code: str = "topic_unavailable"

    @property
    def lasting(self) -> bool:
        """It takes none from this process any more: another node has it, or may, or it was deleted."""
        return self.state in ("fenced", "released", "deleted")


OPEN = Availability("open")
TAKING_RETRY_MS = 200
RELEASING_RETRY_MS = 500


@dataclass(slots=True)
class TopicCounts:
    """Counts of a topic's flushes, since the process started."""

    flushes: int = 0
    flushed_records: int = 0
    flushed_files: int = 0
    flush_failures: int = 0


class TopicLog:
    """Satisfies what readers need of a topic (TopicView).

    Everybody may read its fields; they change only by its own methods.
    """

    def __init__(self, name: str, table: TopicTable, config: TopicConfig, wal: Wal) -> None:
        snapshot = table.snapshot
        self.name = name
        self.system = names.is_system_topic(name)
        """Only the server appends to it."""
        self.snapshot = snapshot
        self.topic_id = snapshot.topic_id
        self.id_bytes = uuid.UUID(snapshot.topic_id).bytes
        self.config = config
        self.created_us = snapshot.created_us
        self.table = table
        self.table_lock = asyncio.Lock()
        """Held by whoever calls a method of `table` that commits or refreshes."""
        self.availability = OPEN
        self.flush_error = ""
        """Why its last flush failed; empty when it did not."""
        self.producers = TopicProducers()
        self.partitions = [PartitionLog(self, partition, wal) for partition in range(snapshot.partitions)]
        self.epochs: list[int] = []
        """The epochs of this topic that this WAL has taken, newest last."""
        self.open_commit = ""
        """A commit under way, or one whose outcome is not known yet; made on a handle at `open_version`."""
        self.open_version = -1
        self.claiming: dict[int, int] = {}
        """Partitions that a claim is taking from another, and the offsets at which they go on."""
        self.paused: asyncio.Future[None] | None = None
        """Done when publishes may go on: between two partition counts nothing is sequenced."""
        self.counts = TopicCounts()
        self.records_total = 0
        self.bytes_total = 0
        """How many bytes were acknowledged since the process started."""
        self.shipped_epochs: list[int] = []
        """The part of `epochs` under which it ships, or did."""
        self.ships = False
        """Nothing is acknowledged or shown that is not in the table: another node goes on from there without asking."""
        self._find_level()
        self.settled = True
        """What was recovered from other journals is in this start's own, or in the table."""
        self._sticky = 0
        self._wal = wal

    def creating(self, reason: str) -> None:
        """It is known, and takes no records before it is `opened`."""
        self.availability = Availability("creating", reason)

    def taking(self) -> None:
        """It is being claimed, and takes no records before it is `opened`."""
        self.availability = Availability("taking", "it is being taken over", TAKING_RETRY_MS)

    def opened(self) -> None:
        self.availability = OPEN

    def releasing(self) -> None:
        """Notes that its release is about to be sent: nothing is appended under its epoch, unless `opened` again."""
        self.availability = Availability("releasing", "it is being handed over", RELEASING_RETRY_MS)

    def released(self, error_code: str) -> None:
        """Notes that its release is in the table, with all that was appended: whoever claims it has it."""
        self.availability = Availability("released", "it was handed over", RELEASING_RETRY_MS, error_code)

    def ship(self) -> None:
        """From now on it `ships`, or its table says that it is `journaled`; whatever it did under this epoch so far is
        in the table."""
        self.ships = not self.journaled
        self.shipped_epochs = [*self.shipped_epochs, *self.epochs[-1:]][-EPOCHS_REMEMBERED:]
        self._find_level()

    def recovered(self) -> None:
        """Records of it came from other journals: a successor needs those until `chain_cut`."""
        self.settled = False

    def chain_cut(self) -> None:
        """Notes that its table names this start's journal alone."""
        self.settled = True

    @property
    def is_shipped(self) -> bool:
        """Whether its table says of its present epoch that nothing is acknowledged or shown that only this node has."""
        return self.shipped_epochs[-1:] == self.epochs[-1:] != []

    def _find_level(self) -> None:
        acks = self.acks = self.config["acks"]
        self.journaled = acks == "object"
        """What is synced goes into the journal, and is shown once it has landed there, or is in the table."""
        self.hidden = self.ships or acks == "table"
        """Readers do not see what is not in the table."""
        self.shows_synced = not self.journaled and not self.hidden
        self.plain = acks in ("written", "wal", "object") and not self.system and not self.ships
        """Whoever publishes to it without saying how is answered once it is written or synced, or has landed in the
        journal."""

    @property
    def state(self) -> State:
        return self.availability.state

    @property
    def may_flush(self) -> bool:
        """Whether its table is this node's, and no release was sent."""
        return self.availability.state in ("open", "unavailable")

    @property
    def takes_records(self) -> bool:
        return self.availability is OPEN and self.paused is None

    def remembered(self, known: TopicState) -> None:
        """The WAL of the process before had this to say of it."""
        held = set(self.snapshot.epochs.values())
        # Those that the table has come last: however often a claim fails, it is not they that are forgotten.
        self.epochs = sorted(known.epochs, key=held.__contains__)
        # Until a claim has shut it out, a commit to a remote store may still land.
        self.open_commit, self.open_version = known.open_commit, known.open_version
        self.claiming = known.claiming
        self.shipped_epochs = known.shipped

    def took(self, epoch: int, *, ships: bool = False) -> None:
        """This WAL has taken another epoch, under which nothing that only it has is acknowledged where it `ships`."""
        self.epochs = [*self.epochs, epoch][-EPOCHS_REMEMBERED:]
        if ships:
            self.ship()

    def takes_over(self, goes_on_at: dict[int, int]) -> None:
        """Partitions of another are being claimed, and go on at these offsets."""
        self.claiming = goes_on_at

    def took_over(self) -> None:
        """They are claimed, and what they had that never landed was set aside."""
        self.claiming = {}

    def began_commit(self, commit_id: str) -> None:
        """A commit on the table's present version is under way; until `ended_commit` its outcome is not known."""
        self.open_commit = commit_id
        self.open_version = self.table.snapshot.version

    def ended_commit(self) -> None:
        self.open_commit = ""

    def flushed(self, records: int, files: int) -> None:
        """Counts a flush that was committed."""
        self.counts.flushes += 1
        self.counts.flushed_records += records
        self.counts.flushed_files += files

    def flushes_again(self) -> None:
        """Nothing of it is in the way of a flush; where only that kept it from taking records, it takes them."""
        self.flush_error = ""
        if self.state == "unavailable":
            self.opened()

    def flush_failed(self, error: Exception, again_ms: int, *, alone: bool) -> None:
        """A flush failed, and is tried again after `again_ms`.

        Where others are flushed and it `alone` is not, it takes no records until `flushes_again`.
        """
        self.flush_error = str(error)
        self.counts.flush_failures += 1
        if alone or self.state == "unavailable":
            reason = f"it cannot be flushed to its table: {error}"
            self.availability = Availability("unavailable", reason, again_ms)

    def see(self, snapshot: TableSnapshot) -> None:
        """Takes in a newer snapshot. Never that of the topic's end: whoever still reads reads what there was."""
        changed = snapshot.properties is not self.snapshot.properties
        self.snapshot = snapshot
        if changed:
            self._reconfigure(snapshot)

    def reconfigure(self, server: Mapping[str, Value]) -> None:
        """What it does not say itself is as the server says, which are other settings now."""
        self._take_config(TopicConfig(self.config.own, server))

    def _take_config(self, config: TopicConfig) -> None:
        self.config = config
        self._find_level()
        for log in self.partitions:
            log.reconfigured()

    def _reconfigure(self, snapshot: TableSnapshot) -> None:
        try:
            config = self.config.with_own(snapshot.config.own)
        except ConfigError:
            # Not ours, and what was flushed must be seen all the same; the next start names it.
            config = self.config
        if config.own != self.config.own:
            self._take_config(config)
        for partition in range(len(self.partitions), snapshot.partitions):
            epoch = snapshot.epochs[partition]
            if epoch not in self.epochs:
                return
            log = PartitionLog(self, partition, self._wal)
            offset = snapshot.offsets[partition]
            log.begin(offset, offset, snapshot.starts[partition], epoch)
            self.partitions.append(log)

    def moved_by(self, snapshot: TableSnapshot) -> dict[int, int]:
        """Takes in a newer snapshot while the topic is open; the table offsets that it moved, by partition."""
        # Before the head lets go of what this snapshot covers.
        self.see(snapshot)
        moved = {}
        for log in self.partitions:
            before = log.offsets.table
            log.moved(snapshot.offsets[log.partition], snapshot.starts[log.partition])
            if log.offsets.table != before:
                moved[log.partition] = log.offsets.table
        return moved

    def check_owned(self, snapshot: TableSnapshot) -> None:
        """Raises Fenced when the table is no more this node's."""
        self.check_claimed(snapshot, {log.partition: log.epoch for log in self.partitions})

    def check_claimed(self, snapshot: TableSnapshot, epochs: Mapping[int, int]) -> None:
        """Raises Fenced when not all partitions are held under `epochs`."""
        if snapshot.topic_id != self.topic_id or snapshot.deleted:
            raise _fenced("its table was deleted or made anew by another process")
        for partition, epoch in epochs.items():
            if snapshot.epochs[partition] != epoch:
                raise _fenced(f"another node has claimed partition {partition}; stop one of them")

    def partition(self, partition: int) -> PartitionLog:
        """Raises Refused `unknown_partition`."""
        if not 0 <= partition < len(self.partitions):
            raise problem(
                "unknown_partition",
                f"topic {self.name} has partitions 0 to {len(self.partitions) - 1}, not {partition}",
            )
        return self.partitions[partition]

    def sticky_partition(self) -> int:
        """The partition for keyless records until `move_sticky`."""
        return self._sticky

    def move_sticky(self) -> None:
        self._sticky = (self._sticky + 1) % len(self.partitions)

    def acknowledged(self, records: int, nbytes: int, *, duplicates: int) -> None:
        """Counts a publish that is answered: what is new, and how many of its records had been there before."""
        self.records_total += records
        self.bytes_total += nbytes
        self.producers.duplicates_total += duplicates

    def expire_producers(self, now_us: int) -> None:
        """Forgets producers and idempotency keys that were not heard of for too long."""
        self.producers.expire((log.sequencer for log in self.partitions), self.config, now_us)

    def check_open(self) -> None:
        """Raises Unavailable or UnknownTopic when the topic takes no records."""
        if self.takes_records:
            return
        why = self.availability
        if why.state == "deleted":
            raise problem("unknown_topic", f"there is no topic {self.name}")
        reason = why.reason or "it is being given more partitions"
        raise problem(
            why.error_code,
            f"topic {self.name} takes no records: {reason}",
            retry_after_ms=why.retry_after_ms,
        )

    @contextmanager
    def pause(self) -> Iterator[None]:
        """Publishes wait (`resumed`) until the end of the block."""
        self.paused = asyncio.get_running_loop().create_future()
        try:
            yield
        finally:
            self.paused.set_result(None)
            self.paused = None

    async def resumed(self, seconds_max: float) -> None:
        """Returns once publishes may go on, or after `seconds_max` all the same."""
        if self.paused is not None:
            await asyncio.wait([self.paused], timeout=seconds_max)

    def close(self, state: State, reason: str) -> None:
        """Stops acknowledging; whoever waits learns why."""
        self.availability = Availability(state, reason)
        for partition in self.partitions:
            partition.fail_waiters(self.gone())
            partition.notify()

    def gone(self) -> SiltlogError:
        """Why what waits for this topic will not be answered."""
        if self.state == "deleted":
            return problem("unknown_topic", f"the topic {self.name} was deleted")
        return problem(
            "ack_timeout", f"topic {self.name} stopped before this was in its table: {self.availability.reason}"
        )


def _fenced(reason: str) -> Fenced:
    return Fenced(reason, error_code="topic_unavailable", status=503, retryable="yes", retry_after_ms=1000)
