"""Ranks topics and groups in lists by values of this moment, of all nodes that answer."""

import asyncio
from collections.abc import Callable, Mapping, Sequence

from siltlog.server.live.live import Live
from siltlog.server.live.part import LagPart, NodePart, TopicPart

_OF_TOPICS: Mapping[str, Callable[[TopicPart], float]] = {
    "records": lambda topic: topic.records,
    "bytes": lambda topic: topic.bytes,
    "files": lambda topic: topic.files,
    "rate": lambda topic: topic.records_in,
}


class Ranks:
    """Satisfies `TopicRanks` and `GroupLags` of the lists, from before there is anything to rank. Used on one event
    loop."""

    def __init__(self) -> None:
        self._live: Live | None = None

    def hear(self, live: Live) -> None:
        self._live = live

    async def topics(self, sort: str) -> Mapping[str, float]:
        """Gives the value of each topic; by `lag` that of the group that has most of it before it."""
        parts = await self._parts()
        return await asyncio.to_thread(_values, parts, sort)

    async def group_lags(self) -> Sequence[tuple[str, str, int]]:
        """Gives (group, topic, records) of what groups have committed."""
        return [(lag.group, lag.topic, lag.records) for lag in _lags(await self._parts())]

    async def _parts(self) -> Sequence[NodePart]:
        assert self._live is not None, "nobody is answered before there is something to rank"
        here, others = await self._live.parts(whole=True)
        return here, *others


def _lags(parts: Sequence[NodePart]) -> Sequence[LagPart]:
    return next((part.lags for part in parts if part.lags), ())


def _values(parts: Sequence[NodePart], sort: str) -> dict[str, float]:
    if sort == "lag":
        worst: dict[str, float] = {}
        for lag in _lags(parts):
            worst[lag.topic] = max(worst.get(lag.topic, 0), lag.records)
        return worst
    value = _OF_TOPICS[sort]
    return {topic.name: value(topic) for part in parts for topic in part.topics}
