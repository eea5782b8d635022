"""The log of the whole cluster as readers of this node see it: its own topics, and those of the others."""

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple, Protocol

import pyarrow as pa

from siltlog.consumers.reading.view import LogView, TopicView
from siltlog.consumers.remote import messages
from siltlog.consumers.remote.messages import HeadAsked
from siltlog.consumers.remote.topic import ClusterTopic
from siltlog.consumers.remote.watching import Watching
from siltlog.infra.client.core import ConnectionFailed
from siltlog.infra.clock import Clock
from siltlog.infra.cluster.router import Away, Here, Member, There, Unknown, Where
from siltlog.infra.errors import SiltlogError, problem
from siltlog.infra.peers.connection import PeerReply
from siltlog.infra.peers.forwarding import not_owner, owner_away
from siltlog.infra.peers.peers import NODE, PeerRefused, Peers
from siltlog.infra.records import Bounds
from siltlog.infra.store.store import ObjectStore
from siltlog.infra.table.commits import TableLog
from siltlog.infra.table.entries import entry_path
from siltlog.infra.table.opening import load
from siltlog.infra.table.snapshot import TableSnapshot
from siltlog.infra.telemetry import Logger

LOOK_SECONDS = 0.5
REFRESH_SECONDS = 5.0
"""How often tables are looked at of which no owner tells."""
TABLES_AT_ONCE = 8
OWNER_SECONDS = 5.0
"""How long a read waits for an owner."""
AGAIN_SECONDS, AGAIN_SECONDS_MAX = 0.05, 0.25
"""How long it waits for news before it asks a node again that could not answer, at first and at most."""
LOADING_RETRY_MS = 200


class Whereabouts(Protocol):
    """Says which topics there are in the cluster, and where."""

    @property
    def view(self) -> int: ...

    def topics(self) -> Mapping[str, str]:
        """The ids of all topics of the newest view, by their names."""

    def where(self, topic: str, denied: frozenset[str] = frozenset()) -> Where: ...

    async def changed(self, seconds: float) -> None: ...

    def told(self, view: int) -> None: ...


class _News(NamedTuple):
    member: Member
    topic: str
    topic_id: str
    version: int
    bounds: Sequence[Bounds]


class ClusterLog:
    """Satisfies LogView, and Owners of its topics. Used on one event loop."""

    def __init__(
        self,
        local: LogView,
        serves: Callable[[], Mapping[str, TopicView]],
        routes: Whereabouts,
        peers: Peers,
        clock: Clock,
        logger: Logger,
        fresh: Callable[[], bool] = lambda: True,
    ) -> None:
        """`serves()` are the topics of `local` that this node owns, by name; by their bounds it decides while it is
        `fresh`."""
        self.fresh = fresh
        self._local = local
        self._serves = serves
        self._routes = routes
        self._peers = peers
        self._clock = clock
        self._logger = logger
        self._topics: dict[str, ClusterTopic] = {}
        self._tables: dict[str, TableLog] = {}
        self._loading: dict[str, asyncio.Task[None]] = {}
        self._untold: dict[str, _News] = {}
        """News by topic that its owner told last, and this node knew too little to take: nobody tells it again."""
        self._limit = asyncio.Semaphore(TABLES_AT_ONCE)
        self._watching = Watching(peers, self._told, routes.told)
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        self._tasks += [asyncio.create_task(self._follow()), asyncio.create_task(self._refresh_all())]

    def stop(self) -> None:
        self._watching.stop()
        for task in (*self._tasks, *self._loading.values()):
            task.cancel()

    async def loaded(self) -> None:
        """Returns once the topics that the view names can be read, or cannot be opened now."""
        self.look()
        await asyncio.gather(*self._loading.values(), return_exceptions=True)

    async def opened(self, name: str) -> None:
        """Returns once a topic that a view names can be read, or its table cannot be opened now."""
        found, topic_id = self._topics.get(name), self._routes.topics().get(name)
        if topic_id is None or (found is not None and found.topic_id == topic_id):
            return
        self.look()
        if name not in self._topics and (loading := self._loading.get(name)) is not None:
            await asyncio.wait([loading])

    # The log as readers see it.

    @property
    def store(self) -> ObjectStore:
        return self._local.store

    @property
    def draining(self) -> bool:
        return self._local.draining

    def topic(self, name: str) -> ClusterTopic:
        local = self._serves().get(name)
        found = self._topics.get(name)
        if local is not None and (found is None or found.topic_id != local.topic_id):
            found = self._topics[name] = ClusterTopic(name, local.snapshot, self)
        if found is not None:
            found.moved(local)
            if local is not None or self._routes.topics().get(name) in (None, found.topic_id):
                return found
        if name in self._routes.topics():
            raise problem(
                "topic_unavailable",
                f"the table of the topic {name} is being opened here",
                retry_after_ms=LOADING_RETRY_MS,
                topic=name,
            )
        raise problem("unknown_topic", f"there is no topic {name}", topic=name)

    def topics(self) -> Sequence[ClusterTopic]:
        found = []
        for name in sorted({*self._routes.topics(), *self._serves()}):
            with suppress(SiltlogError):
                found.append(self.topic(name))
        return found

    @property
    def view(self) -> int:
        return self._routes.view

    def opening(self) -> Collection[str]:
        return self._routes.topics().keys() - {topic.name for topic in self.topics()}

    # What becomes of topics.

    def look(self) -> None:
        """The view is another, or what this node owns."""
        named, served = self._routes.topics(), self._serves()
        for name, found in list(self._topics.items()):
            if name not in named and name not in served:
                del self._topics[name]
                self._tables.pop(name, None)
                found.moved(None)
                found.notify()
        members: dict[Member, list[str]] = {}
        for name, topic_id in named.items():
            known = self._topics.get(name)
            if known is None or known.topic_id != topic_id or name not in self._tables:
                self._load(name, topic_id)
            where = self._routes.where(name)
            if isinstance(where, There):
                members.setdefault(where.member, []).append(name)
            if known is not None and not isinstance(where, There):
                known.went(isinstance(where, Away))
        for name in named.keys() | served.keys():
            with suppress(SiltlogError):
                self.topic(name)
        self._watching.watch(members.keys())
        for name in self._untold.keys() - named.keys():
            del self._untold[name]
        for news in tuple(self._untold.values()):
            self._told(*news)

    async def _follow(self) -> None:
        while True:
            try:
                self.look()
            except Exception:
                self._logger.exception("looking at the topics of the cluster failed")
            await self._routes.changed(LOOK_SECONDS)

    def _told(self, member: Member, name: str, topic_id: str, version: int, bounds: Iterable[Bounds]) -> None:
        """An owner tells of a topic: at once, or once this node has seen that it is the owner (rule CR10)."""
        found, where = self._topics.get(name), self._routes.where(name)
        if (
            found is None
            or found.topic_id != topic_id
            or found.local is not None
            or (isinstance(where, There) and where.member != member)
        ):
            self._untold[name] = _News(member, name, topic_id, version, tuple(bounds))
            return
        self._untold.pop(name, None)
        found.went(False)
        for partition, told in zip(found.partitions, bounds, strict=False):
            partition.told(told)
        if version > found.snapshot.version:
            asyncio.get_running_loop().create_task(self._refresh_quietly(found, version))

    # Tables.

    def _load(self, name: str, topic_id: str) -> None:
        if name not in self._loading:
            task = self._loading[name] = asyncio.create_task(self._opened(name, topic_id))
            task.add_done_callback(lambda _: self._loading.pop(name, None))

    async def _opened(self, name: str, topic_id: str) -> None:
        async with self._limit:
            try:
                loaded = await asyncio.to_thread(load, self.store, name)
            except SiltlogError as error:
                self._logger.warning("the table of a topic cannot be read", topic=name, reason=error.detail)
                await asyncio.sleep(LOOK_SECONDS)
                return
        if loaded.snapshot.topic_id != topic_id or loaded.snapshot.deleted:
            return
        self._tables[name] = TableLog(self.store, name, self._clock, loaded)
        found = self._topics.get(name)
        if found is None or found.topic_id != topic_id:
            self._topics[name] = ClusterTopic(name, loaded.snapshot, self)
        else:
            found.see(loaded.snapshot)

    async def refresh(self, topic: ClusterTopic, version: int) -> None:
        async with topic.refreshing:
            table = await self._table(topic)
            if table.snapshot.version < version:
                await asyncio.to_thread(table.refresh)
            topic.see(table.snapshot)

    async def newest(self, topic: ClusterTopic) -> TableSnapshot:
        async with topic.refreshing:
            table = await self._table(topic)
            await asyncio.to_thread(table.refresh)
            topic.see(table.snapshot)
            return table.snapshot

    async def _table(self, topic: ClusterTopic) -> TableLog:
        """The table of a topic that was made or found a moment ago is waited for while it is being loaded."""
        if topic.name not in self._tables and (loading := self._loading.get(topic.name)) is not None:
            await asyncio.wait([loading])
        table = self._tables.get(topic.name)
        if table is None or table.topic_id != topic.topic_id:
            raise problem("topic_unavailable", f"the table of {topic.name} is not open here", topic=topic.name)
        return table

    async def _refresh_quietly(self, topic: ClusterTopic, version: int) -> None:
        try:
            await self.refresh(topic, version)
        except SiltlogError as error:
            self._logger.info("the table of a topic cannot be read now", topic=topic.name, reason=error.detail)

    async def _refresh_all(self) -> None:
        while True:
            await asyncio.sleep(REFRESH_SECONDS)
            with suppress(SiltlogError):
                await self.see_tables()

    async def see_tables(self) -> None:
        """Sees what jobs did to tables whose owner says nothing of it, or is away. Raises Unavailable."""
        topics = [found for name, found in self._topics.items() if found.local is None and name in self._tables]
        nexts = [entry_path(found.name, found.snapshot.version + 1) for found in topics]
        sizes = await asyncio.to_thread(self.store.sizes, nexts)
        for found, size in zip(topics, sizes, strict=True):
            if size is not None:
                await self._refresh_quietly(found, found.snapshot.version + 1)

    # Owners.

    async def head(
        self,
        topic: ClusterTopic,
        partition: int,
        offset: int,
        end: int,
        max_records: int,
        max_bytes: int,
        producers: bool,
    ) -> tuple[Sequence[pa.RecordBatch] | None, int]:
        asked = HeadAsked(topic.name, topic.topic_id, partition, offset, end, max_records, max_bytes, producers)
        reply = await self._asked(topic, messages.HEAD, asked)
        if reply is None:
            local = topic.local
            if local is None:
                raise _ownerless(topic.name)
            return await local.partitions[partition].read_head(offset, end, max_records, max_bytes, producers), 0
        version = int(reply.field(messages.VERSION_FIELD) or 0)
        if reply.status == 204:
            return None, version
        return await asyncio.to_thread(messages.batches_read, reply.body, producers), version

    async def bounds(self, topic: ClusterTopic, partition: int) -> tuple[Bounds, int] | None:
        reply = await self._asked(topic, messages.BOUNDS, HeadAsked(topic.name, topic.topic_id, partition))
        if reply is None:
            local = topic.local
            if local is None or not self.fresh():
                return None
            return local.partitions[partition].bounds(), local.snapshot.version
        news = messages.bounds_news.decode(reply.body)
        return Bounds(*news.bounds), news.version

    async def _asked(self, topic: ClusterTopic, path: str, asked: HeadAsked) -> PeerReply | None:
        """The owner's answer; None where that is this node by now, or nobody for long. Raises what it refuses with."""
        try:
            reply = await self.ask_owner(topic.name, path, messages.encode(asked), OWNER_SECONDS, harmless=True)
        except SiltlogError as error:
            if error.error_code not in ("owner_away", "not_owner"):
                raise
            # Who is to own it may wait for the records of another.
            if error.error_code == "owner_away":
                topic.went(True)
            return None
        if reply is None:
            self.topic(topic.name)
        return reply

    async def ask_owner(
        self, topic: str, path: str, body: bytes, seconds: float, *, harmless: bool
    ) -> PeerReply | None:
        """Makes a request of a topic's owner, of this node's own; None where that is this node, or no view names it.

        `harmless`: to make it twice. Raises Unavailable `not_owner` where nobody owns it in time, `owner_away`; what
        the owner refuses with; OutcomeUnknown.
        """
        deadline = self._clock.monotonic() + seconds
        denied: frozenset[str] = frozenset()
        again = AGAIN_SECONDS
        while (left := deadline - self._clock.monotonic()) > 0:
            where = self._routes.where(topic, denied)
            match where:
                case Here() | Unknown():
                    return None
                case Away(node, since_us):
                    raise owner_away(topic, node, since_us)
                case There(member):
                    try:
                        reply = await self._peers.ask(
                            member, "POST", path.encode(), (), body, identity=NODE, seconds=left, repeats=harmless
                        )
                    except (ConnectionFailed, PeerRefused) as failed:
                        if isinstance(failed, ConnectionFailed) and failed.sent and not harmless:
                            raise problem(
                                "ack_timeout", f"the owner of {topic} was lost: {failed}", topic=topic
                            ) from None
                        await self._routes.changed(min(again, left))
                        again = min(2 * again, AGAIN_SECONDS_MAX)
                        continue
                    if 200 <= reply.status < 300:
                        return reply
                    error = messages.error_of(reply.status, reply.body)
                    if error.error_code != "not_owner" and error.members.get("parameter") != messages.HOP_FIELD:
                        raise error
                    view = error.members.get("view")
                    if isinstance(view, int):
                        self._routes.told(view)
                    denied |= {member.journal}
                case _:
                    denied = frozenset()
                    await self._routes.changed(min(again, left))
                    again = min(2 * again, AGAIN_SECONDS_MAX)
        raise not_owner(topic, None, self._routes.view)

    async def news(self, seconds: float) -> None:
        """Returns once there is a newer view, or the time is over."""
        await self._routes.changed(seconds)
        self.look()
        await self.loaded()


def _ownerless(topic: str) -> SiltlogError:
    return problem("topic_unavailable", f"no node owns the topic {topic} now: the table is all there is", topic=topic)
