"""Groups with `_offsets` beside a real Valkey, on a log in memory with real data files."""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fake_log import FakeLog, FakeTopic
from groups_rig import SkewedRedis

from siltlog.consumers.groups.groups import Groups
from siltlog.consumers.groups.messages import CommitRequest, CommittedOffset, MemberRequest, Membership
from siltlog.consumers.keeping.keeper import Elsewhere
from siltlog.consumers.keeping.saved_offsets import OffsetLog
from siltlog.consumers.reading.row_groups import RowGroups
from siltlog.infra import names
from siltlog.infra.clock import SystemClock
from siltlog.infra.errors import UnknownTopic, problem
from siltlog.infra.records import NewRecord
from siltlog.infra.store.store import open_store
from siltlog.infra.telemetry import Logger, logger

QUIET = logger("critical", "console")


class LaterClock(SystemClock):
    """The same, so many milliseconds later."""

    def __init__(self) -> None:
        self.later_ms = 0

    def now_us(self) -> int:
        return super().now_us() + self.later_ms * 1_000


class FakeSystem:
    """Appends to a log in memory; `refusing` makes it say no, `between` runs when records are about to be appended."""

    def __init__(self, log: FakeLog) -> None:
        self.log = log
        self.refusing = False
        self.appends = 0
        self.between: Callable[[], Any] | None = None
        self.epoch = 1

    def epoch_of(self, topic: str) -> int:
        return self.epoch

    async def ensure(self, name: str, partitions: int, config: Mapping[str, Any]) -> FakeTopic:
        try:
            return self.log.topic(name)
        except UnknownTopic:
            return self.log.create(name, partitions)

    async def append(
        self, topic: str, partition: int, records: Sequence[NewRecord], *, epoch: int = 0
    ) -> list[int | None]:
        between, self.between = self.between, None
        if between is not None:
            await between()
        if self.refusing:
            raise problem("wal_full", "the write-ahead log's budget is used")
        self.appends += 1
        view = self.log.topic(topic).partitions[partition]
        first = view.high_watermark
        view.append(
            [record.value for record in records],
            keys=[record.key for record in records],
            headers=[list(record.headers) for record in records],
        )
        return list(range(first, view.high_watermark))


@dataclass
class Server:
    """One server's groups."""

    groups: Groups
    redis: SkewedRedis
    log: FakeLog
    system: FakeSystem
    offsets: OffsetLog
    clock: LaterClock

    async def pass_ms(self, milliseconds: int) -> None:
        """Time passes for this server and for Redis."""
        self.clock.later_ms += milliseconds
        await self.redis.pass_ms(milliseconds)

    async def keeps(self, epoch: int) -> None:
        """It has claimed `_offsets`, and reads them."""
        self.system.epoch = epoch
        self.offsets.owned()
        await self.offsets.load()

    async def tick(self) -> None:
        """Does all that is done in the background, as if much time had passed."""
        assert self.groups._upkeep is not None
        self.groups._upkeep._scan_at = self.groups._upkeep._lag_at = 0.0
        await self.groups._upkeep.tick()

    async def join(self, member: str, *topics: str, group: str = "g", **fields: Any) -> Membership:
        return await self.groups.members.heartbeat(group, member, MemberRequest(topics=list(topics), **fields))

    async def commit(self, offsets: Mapping[int, int], told: Membership | None = None, **names: str) -> None:
        """Offsets by partition, of the topic `t` in the group `g` by the member `m`, unless said otherwise."""
        entries = [CommittedOffset(names.get("topic", "t"), number, offset) for number, offset in offsets.items()]
        request = CommitRequest(entries)
        if told is not None:
            request = CommitRequest(entries, names.get("member", "m"), told.generation)
        await self.groups.offsets.commit(names.get("group", "g"), request)

    async def committed(self, group: str = "g") -> dict[int, int]:
        return {entry.key.partition: entry.offset for entry in (await self.groups.describe(group)).offsets}

    def saved(self, group: str = "g") -> dict[int, int]:
        return {entry.key.partition: entry.offset for entry in self.offsets.table.of(group)}


def log_with(folder: Path, records: int = 100, **topics: int) -> FakeLog:
    log = FakeLog(open_store((folder / "lake").as_uri()))
    for name, partitions in topics.items():
        for view in log.create(name, partitions).partitions:
            view.append([b"v"] * records)
    return log


@asynccontextmanager
async def server(
    url: str,
    log: FakeLog,
    *,
    cluster_id: str = "c",
    loaded: bool = True,
    retention_ms: int = -1,
    elsewhere: Elsewhere | None = None,
    fresh: Callable[[], bool] = lambda: True,
    told: Logger = QUIET,
) -> AsyncIterator[Server]:
    """Without its own clockwork. Redis is as it was left. With `elsewhere` it keeps nothing before `keeps` says so."""
    redis = SkewedRedis(url)
    system = FakeSystem(log)
    row_groups = RowGroups(log.store)
    offsets = OffsetLog(log, system, row_groups, cluster_id=cluster_id, interval_ms=1_000)
    clock = LaterClock()
    kept = {"offsets_retention_ms": retention_ms, "elsewhere": elsewhere, "fresh": fresh}
    groups = Groups(redis, log, clock, told, offsets, **kept)
    if elsewhere is None:
        offsets.owned()
        if loaded:
            await offsets.load()
    try:
        yield Server(groups, redis, log, system, offsets, clock)
    finally:
        await groups.close()
        await redis.close()
        row_groups.close()


async def records_of_offsets(log: FakeLog) -> int:
    return log.topic(names.OFFSETS_TOPIC).partitions[0].high_watermark
