"""One watch for each node that owns topics which are read here: a long poll that tells how their bounds move."""

import asyncio
from collections.abc import Callable, Collection, Iterable

import msgspec

from siltlog.consumers.remote import messages
from siltlog.consumers.remote.messages import WatchAsked, WatchNews
from siltlog.infra.client.core import ConnectionFailed
from siltlog.infra.cluster.router import Member
from siltlog.infra.peers.peers import NODE, PeerRefused, Peers
from siltlog.infra.records import Bounds

WAIT_MS = 5_000
GRACE_SECONDS = 2.0
AGAIN_SECONDS = 0.2

Told = Callable[[Member, str, str, int, Iterable[Bounds]], None]
"""Hears of a topic: the owner, its name and id, its table's version, and the bounds of its partitions."""


class Watching:
    """Used on one event loop."""

    def __init__(self, peers: Peers, told: Told, told_view: Callable[[int], None]) -> None:
        self._peers = peers
        self._told = told
        self._told_view = told_view
        self._tasks: dict[Member, asyncio.Task[None]] = {}

    def watch(self, members: Collection[Member]) -> None:
        """Watches these nodes, and no others."""
        for member in self._tasks.keys() - members:
            self._tasks.pop(member).cancel()
        for member in members - self._tasks.keys():
            self._tasks[member] = asyncio.create_task(self._run(member))

    def stop(self) -> None:
        self.watch(frozenset())

    async def _run(self, member: Member) -> None:
        asked = WatchAsked(wait_ms=WAIT_MS)
        while True:
            try:
                news = await self._ask(member, asked)
            except (ConnectionFailed, PeerRefused, msgspec.MsgspecError):
                news = None
            if news is None:
                asked = WatchAsked(wait_ms=WAIT_MS)
                await asyncio.sleep(AGAIN_SECONDS)
                continue
            asked = WatchAsked(news.session, news.n, WAIT_MS)
            for topic in news.topics:
                bounds = [Bounds(*each) for each in topic.bounds]
                self._told(member, topic.name, topic.topic_id, topic.version, bounds)

    async def _ask(self, member: Member, asked: WatchAsked) -> WatchNews | None:
        reply = await self._peers.ask(
            member,
            "POST",
            messages.WATCH.encode(),
            (),
            messages.encode(asked),
            identity=NODE,
            seconds=asked.wait_ms / 1000 + GRACE_SECONDS,
        )
        if reply.status == 200:
            return messages.watch_news.decode(reply.body)
        view = messages.error_of(reply.status, reply.body).members.get("view")
        if isinstance(view, int):
            self._told_view(view)
        return None
