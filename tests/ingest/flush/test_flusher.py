"""The flusher's drain: it ends when all is in the tables, or when nothing can be done about what is not."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

from siltlog.infra.clock import SystemClock
from siltlog.ingest.flush.flusher import Flusher
from siltlog.ingest.flush.request_budget import RequestBudget
from siltlog.ingest.flush.retries import Retries
from siltlog.ingest.log.topic import TopicLog


class Topic:
    def __init__(self, name: str) -> None:
        self.name = name
        self.partitions: list[Any] = []
        self.snapshot = SimpleNamespace(version=0)


class Draining(Flusher):
    """Its flushes only count what is left of a topic; those of `failing` move nothing."""

    def __init__(self, left: dict[str, int], failing: str = "") -> None:
        self.left = left
        self.failing = failing
        self.topics = {name: Topic(name) for name in left}
        self._running = {}
        self._retries = Retries(SystemClock())
        self._requests = RequestBudget(0)
        self._clock = SystemClock()
        self._loads = cast(Any, SimpleNamespace(of=self._left))
        self._log = cast(Any, SimpleNamespace(topic=self.topics.__getitem__, topics=self.topics.values))

    def _left(self, topics: Any) -> list[Any]:
        return [SimpleNamespace(topic=name) for name, left in self.left.items() if left]

    async def _flush(self, topic: TopicLog, partitions: Any) -> None:
        await asyncio.sleep(0)
        if topic.name != self.failing:
            self.left[topic.name] -= 1
            cast(Any, topic).snapshot.version += 1


def test_a_drain_goes_on_after_a_flush_that_was_past_its_commit() -> None:
    async def run() -> None:
        flusher = Draining({"t": 2})
        flusher._run(cast(TopicLog, flusher.topics["t"]), asyncio.sleep(0.01))
        await asyncio.wait_for(flusher.drain(), 10)
        assert flusher.left == {"t": 0}

    asyncio.run(run())


def test_a_drain_does_not_wait_for_what_cannot_be_flushed() -> None:
    async def run() -> None:
        flusher = Draining({"t": 3, "bad": 1}, failing="bad")
        await asyncio.wait_for(flusher.drain(), 10)
        assert flusher.left == {"t": 0, "bad": 1}

    asyncio.run(run())
