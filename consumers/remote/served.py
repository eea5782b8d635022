"""What this node tells other nodes of the topics that it owns: bounds as they move, and records of the head."""

import asyncio
import secrets
from collections.abc import Callable, Iterable, Mapping
from functools import partial

from starlette.requests import Request
from starlette.responses import Response

from siltlog.consumers.reading.fetch import find_partition
from siltlog.consumers.reading.view import PartitionView, TopicView
from siltlog.consumers.remote import messages
from siltlog.consumers.remote.messages import BoundsNews, TopicNews, WatchAsked, WatchNews
from siltlog.infra import names
from siltlog.infra.clock import Clock
from siltlog.infra.errors import problem
from siltlog.infra.http.requests import body_of, decode, json_reply
from siltlog.infra.peers.calls import PeerCall

BODY_BYTES_MAX = 64 * 1024
WAIT_MS_MAX = 10_000
SESSION_SECONDS = 60.0
"""A watch that nobody has asked for so long is forgotten."""
SESSIONS_MAX = 1_000


class Owned:
    """The topics that this node owns, as its own log has them."""

    def __init__(self, owned: Callable[[], Mapping[str, TopicView]], refuse: Callable[[str], None]) -> None:
        """`owned()` are those whose bounds it may tell, by name. `refuse(topic)` raises Unavailable `not_owner`."""
        self._owned = owned
        self._refuse = refuse

    def topics(self) -> Iterable[TopicView]:
        return self._owned().values()

    def topic(self, name: str, topic_id: str) -> TopicView:
        """Raises Unavailable `not_owner`, UnknownTopic where the one of that name is another."""
        found = self._owned().get(name)
        if found is None:
            self._refuse(name)
            raise AssertionError("it refuses")
        if found.topic_id != topic_id:
            raise problem("unknown_topic", f"the topic {name} has the id {found.topic_id}", topic=name)
        return found


class ServedHeads:
    """Answers other nodes. Used on one event loop."""

    def __init__(self, owned: Owned, clock: Clock) -> None:
        self._owned = owned
        self._clock = clock
        self._watches: dict[str, _Watch] = {}
        self._ended = False

    @property
    def calls(self) -> Mapping[str, PeerCall]:
        return {messages.WATCH: self._watch, messages.HEAD: self._head, messages.BOUNDS: self._bounds}

    def look(self) -> None:
        """A topic came or went: whoever watches is told."""
        for watch in self._watches.values():
            watch.look()

    def end(self) -> None:
        """Every watch returns, and none begins any more; for a server that drains."""
        self._ended = True
        for watch in self._watches.values():
            watch.wake()

    async def _watch(self, request: Request) -> Response:
        asked = decode(await body_of(request, BODY_BYTES_MAX), messages.watch_asked)
        if self._ended and asked.wait_ms:
            raise problem("shutting_down", "this node is shutting down: what it owned goes to others")
        now = self._clock.monotonic()
        for session in [key for key, watch in self._watches.items() if now - watch.asked_at > SESSION_SECONDS]:
            self._watches.pop(session).close()
        watch = self._watches.get(asked.session)
        if watch is None:
            if len(self._watches) >= SESSIONS_MAX:
                raise problem("overloaded", "more nodes watch this one than it has room for")
            session = secrets.token_hex(8)
            watch = self._watches[session] = _Watch(session, self._owned.topics)
        watch.asked_at = now
        return json_reply(await watch.next(asked))

    async def _head(self, request: Request) -> Response:
        asked = decode(await body_of(request, BODY_BYTES_MAX), messages.head_asked)
        topic = self._owned.topic(asked.topic, asked.topic_id)
        view = find_partition(topic, asked.partition)
        # Never what is not shown yet: the other node's bounds may be of an owner before.
        end = min(asked.end, view.bounds().high_watermark)
        batches = await view.read_head(asked.offset, end, asked.max_records, asked.max_bytes, asked.producers)
        version = {messages.VERSION_FIELD: str(topic.snapshot.version)}
        if batches is None:
            return Response(status_code=204, headers=version)
        content = await asyncio.to_thread(messages.batches_written, batches, asked.producers)
        return Response(content, 200, version, names.MEDIA_ARROW)

    async def _bounds(self, request: Request) -> Response:
        asked = decode(await body_of(request, BODY_BYTES_MAX), messages.head_asked)
        topic = self._owned.topic(asked.topic, asked.topic_id)
        bounds = find_partition(topic, asked.partition).bounds()
        return json_reply(BoundsNews(bounds, topic.snapshot.version))


class _Watch:
    """What one other node has been told, and what it is to be told next."""

    def __init__(self, session: str, topics: Callable[[], Iterable[TopicView]]) -> None:
        self.asked_at = 0.0
        self._session = session
        self._topics = topics
        self._n = 0
        self._watched: dict[str, tuple[TopicView, list[tuple[PartitionView, Callable[[], None]]]]] = {}
        self._moved: set[str] = set()
        self._gone: set[str] = set()
        self._whole = True
        self._future: asyncio.Future[None] | None = None

    async def next(self, asked: WatchAsked) -> WatchNews:
        self.wake()  # an earlier question whose answer nobody waits for
        self._look()
        if asked.session != self._session or asked.n != self._n:
            # An answer did not arrive.
            self._whole = True
        if not (self._whole or self._moved or self._gone) and asked.wait_ms > 0:
            future = self._future = asyncio.get_running_loop().create_future()
            await asyncio.wait([future], timeout=min(asked.wait_ms, WAIT_MS_MAX) / 1000)
            if self._future is not future:
                return WatchNews(self._session, asked.n)
            self._future = None
            self._look()
        return self._news()

    def look(self) -> None:
        self._look()
        if self._moved or self._gone:
            self.wake()

    def wake(self) -> None:
        future, self._future = self._future, None
        if future is not None and not future.done():
            future.set_result(None)

    def close(self) -> None:
        for name in list(self._watched):
            self._forget(name)
        self.wake()

    def _news(self) -> WatchNews:
        moved = self._watched.keys() if self._whole else self._moved & self._watched.keys()
        topics = tuple(_news_of(self._watched[name][0]) for name in sorted(moved))
        gone, whole = tuple(sorted(self._gone)), self._whole
        self._moved, self._gone, self._whole = set(), set(), False
        self._n += 1
        return WatchNews(self._session, self._n, topics, gone, whole)

    def _look(self) -> None:
        """Begins to watch what came since, and ends what went."""
        topics = {topic.name: topic for topic in self._topics()}
        for name, (topic, views) in list(self._watched.items()):
            if topics.get(name) is not topic or len(views) != len(topic.partitions):
                self._forget(name)
                if name not in topics:
                    self._gone.add(name)
        for name, topic in topics.items():
            if name not in self._watched:
                self._gone.discard(name)
                self._moved.add(name)
                callback = partial(self._move, name)
                views = [(view, callback) for view in topic.partitions]
                for view, _ in views:
                    view.subscribe(callback)
                self._watched[name] = (topic, views)

    def _forget(self, name: str) -> None:
        for view, callback in self._watched.pop(name)[1]:
            view.unsubscribe(callback)

    def _move(self, name: str) -> None:
        self._moved.add(name)
        if self._future is not None and not self._future.done():
            self._future.set_result(None)


def _news_of(topic: TopicView) -> TopicNews:
    return TopicNews(
        topic.name, topic.topic_id, topic.snapshot.version, tuple(view.bounds() for view in topic.partitions)
    )
