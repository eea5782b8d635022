"""Nodes that read and append to topics of each other: real logs and tables, real connections, routes of the tests."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from log_rig import LOGGER, body, running_log
from peers_rig import FakeRoutes, door
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from siltlog.consumers.reading.fetch import Fetcher, FetchPosition, PartitionFetch
from siltlog.consumers.reading.row_groups import RowGroups
from siltlog.consumers.reading.view import TopicView
from siltlog.consumers.remote.log import ClusterLog
from siltlog.consumers.remote.served import Owned, ServedHeads
from siltlog.consumers.remote.system import ClusterSystem, system_calls
from siltlog.infra.clock import SystemClock
from siltlog.infra.cluster.router import Away, Held, Member, Place
from siltlog.infra.errors import UnknownTopic
from siltlog.infra.metrics.metrics import Metrics
from siltlog.infra.peers.accepting import AcceptedHops
from siltlog.infra.peers.calls import with_calls
from siltlog.infra.peers.forwarding import not_owner, owner_away
from siltlog.infra.peers.peers import Peers
from siltlog.ingest.flush.flusher import Flusher
from siltlog.ingest.flush.retries import Retries
from siltlog.ingest.log.log import Log
from siltlog.ingest.log.topic import TopicLog
from siltlog.ingest.producers.check import Producer
from siltlog.ingest.publish.inside import SystemTopics
from siltlog.ingest.publish.publishing import Publishing
from siltlog.ingest.topics.deletion import LogStarts
from siltlog.ingest.topics.topics import Topics
from siltlog.ingest.wal.disk import Disk

KEY = b"k" * 32


class TopicRoutes(FakeRoutes):
    def __init__(self, journal: str) -> None:
        super().__init__(journal)
        self.ids: dict[str, str] = {}

    def topics(self) -> Mapping[str, str]:
        return self.ids


@dataclass
class Node:
    log: Log
    made: Topics
    flusher: Flusher
    routes: TopicRoutes
    reads: ClusterLog
    heads: ServedHeads
    fetcher: Fetcher
    member: Member
    system: ClusterSystem

    def owns(self) -> Mapping[str, TopicView]:
        """Gives those that its routes say it has open."""
        found = {}
        for name, held in self.routes.held.items():
            if held is Held.OPEN:
                with suppress(UnknownTopic):
                    found[name] = self.log.topic(name)
        return found

    async def publish(self, topic: str, *values: str, by: Producer | None = None) -> None:
        first = None if by is None else self.log.topic(topic).partitions[0].sequencer.next_sequence(by.producer_id)
        await self.log.append(self.log.topic(topic), body(*values, first_sequence=first), by).durable

    async def read(
        self, topic: str, offset: int, *, wait_ms: int = 0, isolation: str = "wal", producers: bool = False
    ) -> PartitionFetch:
        result = await self.fetcher.fetch(
            [FetchPosition(topic, 0, offset)],
            max_records=1_000,
            max_bytes=1 << 20,
            min_bytes=1,
            wait_ms=wait_ms,
            isolation=isolation,
            producers=producers,
        )
        return result.partitions[0]


def values(part: PartitionFetch) -> list[str]:
    assert part.error is None, part.error
    return [value.decode() for batch in part.batches for value in batch.column("value").to_pylist()]


@asynccontextmanager
async def node(name: str, folder: Path) -> AsyncIterator[Node]:
    (folder / name).mkdir()
    async with running_log(folder / name, Disk(), lake=folder / "lake") as (log, topics):
        routes = TopicRoutes(f"{name}-1")
        peers = Peers(KEY, SystemClock())
        flusher = Flusher(log, Retries(log.clock), LOGGER, Metrics())
        made: list[Node] = []

        def owns() -> Mapping[str, TopicView]:
            return made[0].owns() if made else {}

        def refuse(topic: str) -> None:
            match routes.where(topic):
                case Away(name, since_us):
                    raise owner_away(topic, name, since_us)
            raise not_owner(topic, None, routes.view)

        def fresh() -> bool:
            return routes.fresh

        heads = ServedHeads(Owned(lambda: owns() if routes.fresh else {}, refuse), log.clock)
        reads = ClusterLog(log, owns, routes, peers, log.clock, LOGGER, fresh)

        async def app(scope: Scope, receive: Receive, send: Send) -> None:
            await Response(status_code=200)(scope, receive, send)

        row_groups = RowGroups(log.store)
        local = SystemTopics(
            log,
            topics,
            Publishing(log, lambda: None, None),
            LogStarts(log, flusher.states, log.flush_due.set, LOGGER),
        )

        def owned(topic: str) -> None:
            if topic not in owns():
                refuse(topic)

        calls = {**heads.calls, **system_calls(local, owned)}
        async with door(name, with_calls(app, calls), hops=AcceptedHops(KEY, lambda: routes.journal)) as its:
            system = ClusterSystem(local, reads, log.clock)
            fetcher = Fetcher(reads, row_groups)
            made.append(Node(log, topics, flusher, routes, reads, heads, fetcher, its.member, system))
            reads.start()
            yield made[0]
            reads.stop()
            heads.end()
            peers.close()
            await flusher.stop(10)
        await asyncio.to_thread(row_groups.close)


@asynccontextmanager
async def owner_and_reader(folder: Path) -> AsyncIterator[tuple[Node, Node, TopicLog]]:
    """The topic `t` is the first node's."""
    async with node("a", folder) as a, node("b", folder) as b:
        topic = await a.made.create("t", 1, {"flush.ms": 3_600_000})
        settle(topic, a, (a, b))
        await b.reads.loaded()
        yield a, b, topic


def settle(topic: TopicLog, owner: Node, nodes: tuple[Node, ...], place: Place | None = None) -> None:
    for each in nodes:
        each.routes.ids[topic.name] = topic.topic_id
        each.routes.set(topic.name, place or Place(owner.member), Held.OPEN if each is owner else Held.NOT)
        each.heads.look()


async def until(true: Callable[[], bool]) -> None:
    async with asyncio.timeout(50):
        while not true():
            await asyncio.sleep(0.01)


def run(test: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(test, 60))
