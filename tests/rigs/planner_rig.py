"""Several servers that plan for one group over one Redis."""

from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from groups_rig import FakeLog, SkewedRedis

from siltlog.consumers.groups.groups import Groups
from siltlog.consumers.groups.messages import CommitRequest, CommittedOffset, MemberRequest, Membership, PartitionName
from siltlog.infra.clock import SystemClock
from siltlog.infra.telemetry import logger


class Node:
    def __init__(self, url: str, log: FakeLog) -> None:
        self.log = log
        self.redis = SkewedRedis(url)
        self.groups = Groups(self.redis, log, SystemClock(), logger("critical", "console"))
        run_script = self.groups._runner._scripts.run

        async def with_log(transition: str, group: str, request: Any) -> Any:
            # As where `_offsets` is beside Redis.
            return await run_script(transition, group, request | {"log": "c", "keeper": "", "new": True})

        self.groups._runner._scripts.run = with_log  # type: ignore[method-assign]

    async def join(self, member: str, *topics: str, **fields: Any) -> Membership:
        return await self.groups.members.heartbeat("g", member, MemberRequest(topics=list(topics), **fields))

    async def beat(self, member: str, generation: int, owned: Sequence[tuple[str, int]] | None = None) -> Membership:
        """Sends a heartbeat; one of generation 1 is answered with the whole assignment."""
        names = None if owned is None else [PartitionName(*at) for at in owned]
        return await self.groups.members.heartbeat("g", member, MemberRequest(generation=generation, owned=names))

    async def commit(self, member: str, told: Membership, offset: int, *partitions: int) -> None:
        entries = [CommittedOffset("t", number, offset) for number in partitions]
        await self.groups.offsets.commit("g", CommitRequest(entries, member, told.generation))

    @property
    def rebalances(self) -> int:
        return self.groups.counts.rebalances.total()


@asynccontextmanager
async def nodes(url: str, *logs: FakeLog) -> AsyncIterator[list[Node]]:
    async with AsyncExitStack() as stack:
        made = [Node(url, log) for log in logs]
        for node in made:
            stack.push_async_callback(node.redis.close)
            stack.push_async_callback(node.groups.close)
        await made[0].redis.command("FLUSHALL")
        yield made


def same_log(log: FakeLog) -> FakeLog:
    """Another node's view of the same topics, for now."""
    other = FakeLog()
    for topic in log.topics():
        other.create(topic.name, len(topic.partitions)).topic_id = topic.topic_id
    return other
