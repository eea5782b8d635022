"""A node that stops in the middle of everything, and the members of groups that waited there."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest
from cluster_rig import ClusterNode, Nodes, cluster
from http_rig import Http

from siltlog import AsyncConsumer, Consumer
from siltlog.infra.client.async_transport import AsyncHttpTransport
from siltlog.infra.client.core import ConnectionFailed, Request, Response
from siltlog.infra.client.transport import HttpTransport

GROUP = "g"
NO_ANSWER = "gave another request no answer"


class Ended(NamedTuple):
    """A heartbeat that ended: where it was, and why it failed."""

    url: str
    reason: str


class Heartbeats:
    """The heartbeats of a member: those under way, and those that ended."""

    def __init__(self) -> None:
        self.last_url = ""
        """Where the last one went."""
        self.waiting: list[str] = []
        self.ended: list[Ended] = []

    @contextmanager
    def seen(self, url: str, request: Request) -> Iterator[None]:
        if "/members/" not in request.path:
            yield
            return
        self.last_url = url
        self.waiting.append(url)
        reason = ""
        try:
            yield
        except ConnectionFailed as failed:
            reason = str(failed)
            raise
        finally:
            self.waiting.remove(url)
            self.ended.append(Ended(url, reason))


class SeenTransport(HttpTransport):
    def __init__(self, heartbeats: Heartbeats) -> None:
        super().__init__()
        self._heartbeats = heartbeats

    def send(self, url: str, request: Request) -> Response:
        with self._heartbeats.seen(url, request):
            return super().send(url, request)


class SeenAsyncTransport(AsyncHttpTransport):
    def __init__(self, heartbeats: Heartbeats) -> None:
        super().__init__()
        self._heartbeats = heartbeats

    async def send(self, url: str, request: Request) -> Response:
        with self._heartbeats.seen(url, request):
            return await super().send(url, request)


def consume(urls: list[str], heartbeats: Heartbeats, read: list[bytes | None], ends: threading.Event) -> None:
    with Consumer(urls, group=GROUP, topics=["t"], transport=SeenTransport(heartbeats)) as consumer:
        while not ends.is_set():
            read.extend(record.value for record in consumer.poll(timeout_ms=100))


def consume_async(urls: list[str], heartbeats: Heartbeats, read: list[bytes | None], ends: threading.Event) -> None:
    async def consuming() -> None:
        transport = SeenAsyncTransport(heartbeats)
        async with AsyncConsumer(urls, group=GROUP, topics=["t"], transport=transport) as consumer:
            while not ends.is_set():
                read.extend(record.value for record in await consumer.poll(timeout_ms=100))

    asyncio.run(consuming())


Consume = Callable[[list[str], Heartbeats, list[bytes | None], threading.Event], None]


@pytest.mark.slow
@pytest.mark.rule("CR15")
@pytest.mark.parametrize("consume", [consume, consume_async])
def test_heartbeats_leave_a_frozen_node_with_the_reads(tmp_path: Path, consume: Consume) -> None:
    with cluster(tmp_path / "cluster", 2) as nodes:
        other, frozen = _prepared(nodes)
        heartbeats, read, ends = Heartbeats(), list[bytes | None](), threading.Event()
        # The member calls the node first that will be frozen.
        urls = [frozen.url, other.url]
        reader = threading.Thread(target=consume, args=(urls, heartbeats, read, ends))
        reader.start()
        try:
            Http(other.url).publish("t", {"value": "before"})
            nodes.until(lambda: read == [b"before"], "the first record is read")
            nodes.until(lambda: heartbeats.waiting, "a heartbeat waits at a node")
            if heartbeats.last_url == other.url:
                # Of the node that it called first an answer was late, or a 503: the machine is busy.
                other, frozen = frozen, other
                _move(nodes, other)
                nodes.until(lambda: frozen.url in heartbeats.waiting, "a heartbeat waits at the node")
            before = len(heartbeats.ended)
            frozen.pause()
            nodes.until(lambda: Ended(other.url, "") in heartbeats.ended[before:], "the other node answers heartbeats")
            left = [one.reason for one in heartbeats.ended[before:] if one.url == frozen.url and one.reason]
            assert left and NO_ANSWER in left[0]
            Http(other.url).publish("t", {"value": "after"})
            nodes.until(lambda: read == [b"before", b"after"], "reads go on")
        finally:
            ends.set()
            reader.join()


def _prepared(nodes: Nodes) -> tuple[ClusterNode, ClusterNode]:
    """A topic, the node that owns it, and another."""
    Http(nodes["n1"].url).create("t")
    nodes.until(lambda: all(nodes.owner("t", name) for name in nodes), "t has an owner")
    owner = nodes[nodes.owner("t")]
    return owner, next(node for node in nodes.values() if node is not owner)


def _move(nodes: Nodes, to: ClusterNode) -> None:
    to.wire.call("POST", "/v1/topics/t/move", {"node": to.name})
    nodes.until(lambda: all(nodes.owner("t", name) == to.name for name in nodes), "t has moved")
