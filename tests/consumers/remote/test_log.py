"""Reading on one node what another owns: a real log and table, real connections, and routes that the test sets."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from log_rig import LOGGER, body, running_log
from peers_rig import FakeRoutes, door
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from siltlog.consumers.reading.fetch import Fetcher, FetchPosition, PartitionFetch
from siltlog.consumers.reading.row_groups import RowGroups
from siltlog.consumers.remote.log import ClusterLog
from siltlog.consumers.remote.served import Owned, ServedHeads
from siltlog.consumers.view import TopicView
from siltlog.infra.clock import SystemClock
from siltlog.infra.cluster.router import Away, Held, Member, Place
from siltlog.infra.errors import OffsetOutOfRange, UnknownTopic
from siltlog.infra.peers.accepting import AcceptedHops
from siltlog.infra.peers.forwarding import not_owner, owner_away
from siltlog.infra.peers.peers import Peers
from siltlog.infra.telemetry import Metrics
from siltlog.ingest.flush.flusher import Flusher
from siltlog.ingest.flush.retries import Retries
from siltlog.ingest.log.log import Log
from siltlog.ingest.log.topic import TopicLog
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

    def owns(self) -> Mapping[str, TopicView]:
        """Those that its routes say it has open."""
        found = {}
        for name, held in self.routes.held.items():
            if held is Held.OPEN and self.routes.fresh:
                with suppress(UnknownTopic):
                    found[name] = self.log.topic(name)
        return found

    async def publish(self, topic: str, *values: str) -> None:
        await self.log.append(self.log.topic(topic), body(*values), None).durable

    async def read(self, topic: str, offset: int, *, wait_ms: int = 0, isolation: str = "wal") -> PartitionFetch:
        result = await self.fetcher.fetch(
            [FetchPosition(topic, 0, offset)],
            max_records=1_000,
            max_bytes=1 << 20,
            min_bytes=1,
            wait_ms=wait_ms,
            isolation=isolation,
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

        heads = ServedHeads(Owned(lambda: owns().values(), refuse), log.clock)
        reads = ClusterLog(log, owns, routes, peers, log.clock, LOGGER)

        async def app(scope: Scope, receive: Receive, send: Send) -> None:
            await Response(status_code=200)(scope, receive, send)

        row_groups = RowGroups(log.store)
        async with door(name, heads.before(app), hops=AcceptedHops(KEY, lambda: routes.journal)) as its:
            made.append(Node(log, topics, flusher, routes, reads, heads, Fetcher(reads, row_groups), its.member))
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
    async with asyncio.timeout(10):
        while not true():
            await asyncio.sleep(0.01)


def run(test: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(test, 60))


@pytest.mark.rule("CR9")
def test_a_head_elsewhere_and_the_table_are_read_without_a_seam(tmp_path: Path) -> None:
    async def test() -> None:
        async with owner_and_reader(tmp_path) as (a, b, topic):
            expected = []
            for batch in range(6):
                published = [f"{batch}-{number}" for number in range(50)]
                await a.publish("t", *published)
                expected += published
                if batch % 2:
                    await a.flusher.drain()
                    topic.partitions[0].head.evict(1 << 30)
                end = len(expected)
                await until(lambda end=end: b.reads.topic("t").partitions[0].bounds().high_watermark == end)  # type: ignore[misc]
                for offset in (0, 49, 50, end - 1, end):
                    assert values(await b.read("t", offset)) == expected[offset:]
            # The owner's head has let go; what this node knows of the table is older than that.
            assert topic.partitions[0].head.start > 0
            assert b.reads.topics()[0].topic_id == topic.topic_id

    run(test())


@pytest.mark.rule("CR9")
def test_what_is_below_the_head_is_in_the_version_that_the_owner_names(tmp_path: Path) -> None:
    async def test() -> None:
        async with owner_and_reader(tmp_path) as (a, b, topic):
            await a.publish("t", "x", "y")
            await until(lambda: b.reads.topic("t").partitions[0].bounds().high_watermark == 2)
            b.reads.stop()  # it hears no more of the owner but what it asks
            await a.flusher.drain()
            topic.partitions[0].head.evict(1 << 30)
            assert topic.partitions[0].head.start == 2
            seen = b.reads.topic("t").snapshot.version
            assert values(await b.read("t", 0)) == ["x", "y"]
            assert b.reads.topic("t").snapshot.version > seen

    run(test())


@pytest.mark.rule("CR10")
def test_a_long_poll_hears_of_what_another_node_is_given(tmp_path: Path) -> None:
    async def test() -> None:
        async with owner_and_reader(tmp_path) as (a, b, _):
            waiting = asyncio.create_task(b.read("t", 0, wait_ms=10_000))
            await asyncio.sleep(0.3)
            assert not waiting.done()
            started = asyncio.get_running_loop().time()
            await a.publish("t", "x")
            assert values(await waiting) == ["x"]
            assert asyncio.get_running_loop().time() - started < 2
            table = asyncio.create_task(b.read("t", 0, wait_ms=10_000, isolation="table"))
            await asyncio.sleep(0.1)
            assert not table.done()
            await a.flusher.drain()
            assert values(await table) == ["x"]

    run(test())


@pytest.mark.rule("CR11")
def test_an_offset_is_refused_by_the_owner_alone(tmp_path: Path) -> None:
    async def test() -> None:
        async with owner_and_reader(tmp_path) as (a, b, topic):
            b.reads.stop()  # its knowledge is old
            await a.publish("t", "x", "y", "z")
            assert values(await b.read("t", 1)) == ["y", "z"]
            await a.publish("t", "w")
            assert values(await b.read("t", 4)) == []
            found = await b.read("t", 5)
            assert isinstance(found.error, OffsetOutOfRange)
            assert found.error.members["high_watermark"] == 4
            # Who owned it may have been taken for lost: nobody decides until there is another.
            a.routes.fresh = False
            late = asyncio.create_task(b.read("t", 6))
            await asyncio.sleep(0.2)
            assert not late.done()
            a.routes.fresh = True
            assert isinstance((await late).error, OffsetOutOfRange)
            # Nobody will own it soon: what lies above the table is not known.
            await a.flusher.drain()
            settle(topic, a, (a, b), Place(Member("z", "z-1", "http://127.0.0.1:1"), None, 1))
            await b.reads.refresh(b.reads.topic("t"), topic.snapshot.version)
            b.reads.look()
            for offset in (4, 5, 999):
                assert values(await b.read("t", offset)) == []
            assert values(await b.read("t", 0)) == ["x", "y", "z", "w"]

    run(test())


@pytest.mark.rule("CR11")
def test_a_topic_whose_next_owner_waits_for_a_disk_is_its_table(tmp_path: Path) -> None:
    async def test() -> None:
        async with owner_and_reader(tmp_path) as (a, b, topic):
            await a.publish("t", "x")
            await a.flusher.drain()
            await a.publish("t", "y")
            await until(lambda: b.reads.topic("t").partitions[0].bounds().high_watermark == 2)
            a.routes.set("t", Place(Member("z", "z-1", "http://127.0.0.1:1"), None, 1))
            a.heads.look()
            for each in (a, b):
                for offset in (2, 9):
                    assert values(await each.read("t", offset)) == []
                assert values(await each.read("t", 0)) == ["x"]
            settle(topic, a, (a, b))
            await until(lambda: b.reads.topic("t").partitions[0].bounds().high_watermark == 2)
            assert values(await b.read("t", 0)) == ["x", "y"]

    run(test())


@pytest.mark.rule("CR10")
def test_a_reader_that_waits_does_not_see_its_topic_move(tmp_path: Path) -> None:
    async def test() -> None:
        async with owner_and_reader(tmp_path) as (a, b, topic):
            await a.publish("t", "x")
            for each in (a, b):
                assert values(await each.read("t", 0, wait_ms=5_000)) == ["x"]
            waiting = [asyncio.create_task(each.read("t", 1, wait_ms=8_000)) for each in (a, b)]
            await asyncio.sleep(0.2)
            # For a moment everybody takes the other one for the owner, whose log knows no such topic.
            settle(topic, b, (a, b))
            await asyncio.sleep(0.3)
            assert not any(task.done() for task in waiting)
            settle(topic, a, (a, b))
            await asyncio.sleep(0.2)
            await a.publish("t", "y")
            assert [values(await task) for task in waiting] == [["y"]] * 2

    run(test())


def test_topics_come_and_go_as_views_say(tmp_path: Path) -> None:
    async def test() -> None:
        async with owner_and_reader(tmp_path) as (a, b, topic):
            assert [found.name for found in b.reads.topics()] == ["t"]
            assert b.reads.topic("t").config["flush.ms"] == 3_600_000
            for each in (a, b):
                del each.routes.ids["t"]
                each.routes.held.clear()
                each.routes.set("u")
                each.reads.look()
            with pytest.raises(UnknownTopic):
                b.reads.topic("t")
            assert b.reads.topics() == []
            assert topic.name == "t"

    run(test())
