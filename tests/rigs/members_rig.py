"""Nodes over one root in one process, each with a WAL and ownership of its own, and views that a test writes."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from log_rig import CLOCK, LOGGER, body, stopped_log

from siltlog.infra.cluster.view import ClusterView, TermEntry, TopicEntry
from siltlog.infra.metrics.metrics import Metrics
from siltlog.infra.settings.topic_config import TopicConfig, Value
from siltlog.infra.store.store import ObjectStore, open_store
from siltlog.infra.table.data_file import read_data_file
from siltlog.infra.table.table import TopicTable
from siltlog.ingest.flush.flusher import Flusher
from siltlog.ingest.flush.retries import Retries
from siltlog.ingest.log.log import Log
from siltlog.ingest.log.topic import TopicLog
from siltlog.ingest.ownership.opening import start_member
from siltlog.ingest.ownership.ownership import Ownership
from siltlog.ingest.ownership.stranded import Stranded
from siltlog.ingest.ownership.take import Taking
from siltlog.ingest.producers.check import Producer
from siltlog.ingest.publish.publishing import Acks, Publisher, Publishing
from siltlog.ingest.topics.topics import Topics
from siltlog.ingest.wal.disk import Disk

WAIT_SECONDS = 60.0
ACK_MS = 30_000
TOPIC_ID = "0b6ce8e0-9b0e-4b5a-8d3c-2f1f7e1e9f00"


class Member:
    """A node that runs. `journal` names this start of it."""

    def __init__(self, folder: Path, journal: str, log: Log, taking: Taking) -> None:
        self.folder = folder
        self.journal = journal
        self.log = log
        self.taking = taking
        self.flusher = Flusher(log, Retries(log.clock), LOGGER, Metrics())
        self.told: list[tuple[str, TermEntry | None]] = []
        self.missing: list[tuple[str, str]] = []
        self.wanted: list[str] = []
        self.ownership = Ownership(
            log,
            taking,
            self.flusher.releases,
            LOGGER,
            changed=lambda: None,
            released=lambda name, to: self.told.append((name, to)),
            missing=lambda name, topic_id: self.missing.append((name, topic_id)),
            wanted=self.wanted.append,
        )
        self.topics = Topics(log, LOGGER)
        self.publishing = Publishing(log, log.flush_due.set, None)

    def topic(self, name: str = "t") -> TopicLog:
        return self.log.topic(name)

    async def publish(self, value: str, acks: Acks | None = None, sequence: int | None = None) -> int:
        """The offset."""
        by = Publisher() if sequence is None else Publisher(Producer("p", 0))
        sent = await self.publishing.publish(
            self.topic(), body(value, first_sequence=sequence), by, acks, timeout_ms=ACK_MS
        )
        [(_, offset)] = sent.appended.positions()
        assert offset is not None
        return offset

    async def opened(self, name: str = "t") -> TopicLog:
        await until(lambda: (topic := self.log.topic_logs.get(name)) is not None and topic.state == "open")
        return self.topic(name)


@asynccontextmanager
async def member(folder: Path, journal: str, lake: Path) -> AsyncIterator[Member]:
    """Runs a node; it ends as one that is killed does, but for what is under way."""
    folder.mkdir(exist_ok=True)
    log = stopped_log(folder, Disk(), lake=lake)
    recovery = await asyncio.to_thread(log.wal.recover)
    running = Member(folder, journal, log, await start_member(log, recovery, Stranded.shared(log.store), LOGGER))
    running.ownership.start()
    try:
        yield running
    finally:
        await running.ownership.stop()
        await running.flusher.stop(10)
        await asyncio.to_thread(log.wal.close)


class Views:
    """Views of one topic, `t`, that go to members one by one."""

    def __init__(self, lake: Path) -> None:
        self.store: ObjectStore = open_store(lake.as_uri())
        self.number = 0
        self.chain: tuple[TermEntry, ...] = ()
        self.to: TermEntry | None = None
        self.term = 0
        self.abandon = 0

    def granted(self, journal: str, above: int = 0) -> TermEntry:
        self.term = max(self.term, above) + 1
        return TermEntry(term=self.term, node=journal[0], data_dir=journal[0], journal=journal)

    def give(self, journal: str, above: int = 0) -> None:
        self.chain = (*self.chain, self.granted(journal, above))

    def lose(self, journal: str) -> None:
        self.chain = tuple(
            TermEntry(term=one.term, node=one.node, data_dir=one.data_dir, journal=one.journal, lost=True)
            if one.journal == journal
            else one
            for one in self.chain
        )

    def tell(self, *members: Member) -> None:
        self.number += 1
        table = TopicTable.open(self.store, "t", CLOCK)
        entry = TopicEntry(topic_id=table.topic_id, chain=self.chain, to=self.to, abandon=self.abandon)
        view = ClusterView(
            number=self.number, cluster_id="c", controller="a", journal="a1", nonce="n", topics={"t": entry}
        )
        for one in members:
            one.ownership.follow(view, one.journal)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(WAIT_SECONDS):
        while not condition():
            await asyncio.sleep(0.01)


def values(store: ObjectStore, topic: str = "t") -> list[tuple[int, str]]:
    """(offset, value) of partition 0's rows."""
    rows: list[tuple[int, str]] = []
    for file in TopicTable.open(store, topic, CLOCK).snapshot.files_of(0):
        found = read_data_file(store, topic, file, columns=["offset", "value"])
        offsets, texts = (found.column(name).to_pylist() for name in ("offset", "value"))
        rows += [(offset, text.decode()) for offset, text in zip(offsets, texts, strict=True)]
    return sorted(rows)


class World:
    def __init__(self, folder: Path, stack: AsyncExitStack) -> None:
        self.folder = folder
        self.lake = folder / "lake"
        self.views = Views(self.lake)
        self._stack = stack
        self._ends: dict[str, AsyncExitStack] = {}

    async def start(self, journal: str) -> Member:
        own = await self._stack.enter_async_context(AsyncExitStack())
        self._ends[journal] = own
        return await own.enter_async_context(member(self.folder / journal[0], journal, self.lake))

    async def end(self, one: Member) -> None:
        await self._ends[one.journal].aclose()

    def make(self, config: dict[str, Value], topic_id: str = TOPIC_ID) -> None:
        own = TopicConfig({"flush.ms": 3_600_000, **config})
        TopicTable.create(
            self.views.store,
            "t",
            topic_id=topic_id,
            partitions=1,
            config=own,
            created_us=CLOCK.now_us(),
            clock=CLOCK,
        )


def in_world(tmp_path: Path, test: Callable[[World], Coroutine[Any, Any, None]]) -> None:
    async def run() -> None:
        async with AsyncExitStack() as stack:
            await test(World(tmp_path, stack))

    asyncio.run(run())
