"""A real Valkey and a small log for the tests of groups."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from siltlog.consumers.groups.groups import Groups
from siltlog.consumers.groups.messages import MemberRequest, Membership, PartitionName
from siltlog.infra.clock import SystemClock
from siltlog.infra.columns import RECORD_SCHEMA
from siltlog.infra.errors import SiltlogError, UnknownTopic
from siltlog.infra.records import Bounds, SentBatch
from siltlog.infra.redis import client
from siltlog.infra.redis.access import RedisAccess
from siltlog.infra.redis.connection import RedisConnection, Script
from siltlog.infra.redis.embedded import EmbeddedValkey
from siltlog.infra.security.grant import Access
from siltlog.infra.telemetry import logger

SKEW_KEY = "test:skew"
START_MS = 1_800_000_000_000
"""Behind the beginning of epochs."""
PATIENCE_S = 60.0
_ids = itertools.count(1)


@dataclass
class FakePartition:
    partition: int
    start: int = 0
    end: int = 100
    callbacks: list[Callable[[], None]] = field(default_factory=list)
    far: bool = False

    def bounds(self) -> Bounds:
        return Bounds(self.start, self.start, self.end)

    async def reaches(self, offset: int) -> bool:
        return False

    async def decided(self) -> Bounds:
        return self.bounds()

    def sent(self, offset: int, end: int) -> Sequence[SentBatch]:
        return ()

    async def read_head(
        self, offset: int, end: int, max_records: int, max_bytes: int, producers: bool = False
    ) -> list[pa.RecordBatch]:
        assert not producers, "no group asks for them"
        count = max(min(end - offset, max_records), 0)
        offsets = list(range(offset, offset + count))
        columns = {
            "partition": pa.array([self.partition] * count, pa.int32()),
            "offset": pa.array(offsets, pa.int64()),
            "timestamp": pa.array(offsets, pa.int64()).cast(RECORD_SCHEMA.field("timestamp").type),
            "key": pa.array([None] * count, pa.binary()),
            "value": pa.array([str(at).encode() for at in offsets], pa.binary()),
            "headers": pa.array([None] * count, RECORD_SCHEMA.field("headers").type),
        }
        return [pa.RecordBatch.from_arrays([columns[name] for name in RECORD_SCHEMA.names], schema=RECORD_SCHEMA)]

    def subscribe(self, callback: Callable[[], None]) -> None:
        self.callbacks.append(callback)

    def unsubscribe(self, callback: Callable[[], None]) -> None:
        self.callbacks.remove(callback)

    def grow(self, end: int) -> None:
        self.end = end
        for callback in list(self.callbacks):
            callback()


class FakeSnapshot:
    version = 0
    starts: dict[int, int] = {}  # noqa: RUF012
    offsets: dict[int, int] = {}  # noqa: RUF012

    def files_of(self, partition: int) -> list[Any]:
        return []


@dataclass
class FakeTopic:
    name: str
    partitions: list[FakePartition]
    topic_id: str = field(default_factory=lambda: f"00000000-0000-0000-0000-{next(_ids):012d}")
    created_us: int = 0
    snapshot: FakeSnapshot = field(default_factory=FakeSnapshot)
    config: Any = None


class FakeLog:
    """A LogView whose records are all in the head."""

    store: Any = None

    def __init__(self, **topics: int) -> None:
        self.draining = False
        self.view = 0
        self.opening_now: set[str] = set()
        self.by_name: dict[str, FakeTopic] = {}
        for name, partitions in topics.items():
            self.create(name, partitions)

    def create(self, name: str, partitions: int, *, start: int = 0, end: int = 100) -> FakeTopic:
        topic = FakeTopic(name, [FakePartition(number, start, end) for number in range(partitions)])
        self.by_name[name] = topic
        return topic

    def topic(self, name: str) -> FakeTopic:
        if name not in self.by_name:
            raise UnknownTopic(f"there is no topic {name}", error_code="unknown_topic", status=404)
        return self.by_name[name]

    def topics(self) -> list[FakeTopic]:
        return [self.by_name[name] for name in sorted(self.by_name) if name not in self.opening_now]

    def opening(self) -> set[str]:
        return self.opening_now


class SkewedRedis(RedisConnection):
    """A Redis whose time, as scripts see it, runs ahead by what `pass_ms` added up.

    Its answers are waited for, however slow the machine is: nobody would know what a call did that was given up.
    """

    def __init__(self, url: str) -> None:
        with pytest.MonkeyPatch.context() as patch:
            for name in ("CONNECT_TIMEOUT_S", "REPLY_TIMEOUT_S"):
                patch.setattr(client, name, PATIENCE_S)
            super().__init__(RedisAccess(url))
        self.calls = 0
        self.skew_ms = 0

    def script(self, text: str) -> Script:
        line = next((line for line in text.splitlines() if line.startswith("local now = ")), None)
        if line is None:
            return super().script(text)
        return super().script(
            text.replace(line, f"{self._now(line)} + tonumber(redis.call('GET', '{SKEW_KEY}') or 0)\n")
        )

    def _now(self, line: str) -> str:
        """The script's line that says what time it is, before what was added up."""
        return line

    async def pass_ms(self, milliseconds: int) -> None:
        self.skew_ms += milliseconds
        await self.command("SET", SKEW_KEY, self.skew_ms)


class StandingRedis(SkewedRedis):
    """A Redis whose time, as scripts see it, passes by `pass_ms` alone: how long a call takes changes nothing."""

    def _now(self, line: str) -> str:
        return f"local now = {START_MS}"


@dataclass
class Rig:
    groups: Groups
    redis: SkewedRedis
    log: FakeLog

    async def join(self, group: str, member: str, *topics: str, **fields: Any) -> Membership:
        return await self.groups.members.heartbeat(group, member, MemberRequest(topics=list(topics), **fields))

    async def beat(
        self, group: str, member: str, generation: int, owned: list[tuple[str, int]] | None = None, **fields: Any
    ) -> Membership:
        names = None if owned is None else [PartitionName(topic, number) for topic, number in owned]
        return await self.groups.members.heartbeat(
            group, member, MemberRequest(generation=generation, owned=names, **fields)
        )

    async def tick(self) -> None:
        """Does what the server's own does, without waiting for its clock."""
        for known in self.groups._runner._known.values():
            known.due = min(known.due, 0.0) if known.due < float("inf") else known.due
        await self.groups._runner.tick()


def emptied(url: str) -> None:
    """Removes all that a Valkey has."""

    async def flush() -> None:
        redis = RedisConnection(RedisAccess(url))
        await redis.command("FLUSHALL")
        await redis.close()

    asyncio.run(flush())


@asynccontextmanager
async def rig(url: str, log: FakeLog, access: Access | None = None, *, stands: bool = False) -> AsyncIterator[Rig]:
    """Groups without their own clockwork, on an emptied Redis, whose time `stands` but for `pass_ms`."""
    redis = StandingRedis(url) if stands else SkewedRedis(url)
    await redis.command("FLUSHALL")
    groups = Groups(redis, log, SystemClock(), logger("error", "console"), access=access)
    try:
        yield Rig(groups, redis, log)
    finally:
        await groups.close()
        await redis.close()


def embedded(folder: Path) -> EmbeddedValkey:
    return EmbeddedValkey(folder, SystemClock(), logger("error", "console"))


def held(told: Membership) -> list[tuple[str, int]]:
    assert told.assignment is not None
    return sorted((key.topic, key.partition) for key, _ in told.assignment)


def offsets(told: Membership) -> dict[int, int]:
    assert told.assignment is not None
    return {key.partition: offset for key, offset in told.assignment}


def run(coroutine: Any) -> Any:
    return asyncio.run(coroutine)


async def refusal(awaited: Awaitable[Any]) -> SiltlogError:
    with pytest.raises(SiltlogError) as caught:
        await awaited
    return caught.value
