"""Keeps the offsets of groups while nobody calls: reads, saves, restores and expires them, and measures their lag."""

import asyncio
from bisect import bisect_right
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import suppress
from itertools import islice
from typing import TYPE_CHECKING, Any, Protocol

from siltlog.consumers.keeping.keeper import Keepers
from siltlog.consumers.keeping.saved_offsets import FORGOTTEN_MS, LOAD_RETRY_MS, OffsetLog, SavedOffset
from siltlog.consumers.keeping.snapshots import OffsetSnapshots, is_strange
from siltlog.consumers.reading.view import Key, LogView, PartitionView, TopicView
from siltlog.infra.clock import MICROS_PER_SECOND, Clock
from siltlog.infra.errors import SiltlogError, Unavailable
from siltlog.infra.records import Lag, records_between
from siltlog.infra.redis.keys import group_key

if TYPE_CHECKING:
    from siltlog.infra.redis.connection import RedisConnection
    from siltlog.infra.telemetry import Logger

SCAN_S = 30.0
"""How often groups are looked for that another server left unsaved, are in no topic any more, or are unused."""
SCAN_PAGE = 1_000
LAG_S = 10.0
LAGS_MAX = 5_000
"""Partitions of groups whose lag is shown: each is two lines of every scrape."""
LAGS_AT_ONCE = 200
FOR_EVER = -1


async def lag_of(topic: TopicView, view: PartitionView, offset: int, now_us: int) -> Lag:
    """Measures the lag of a reader whose next offset is `offset`; `now_us` is in microseconds.

    A record in the table counts as old as the oldest record of its file.
    """
    bounds = view.bounds()
    at = max(offset, bounds.log_start_offset)
    if at >= bounds.high_watermark:
        return Lag(0, 0.0)
    records = records_between(at, bounds.high_watermark, topic.snapshot.gaps(view.partition))
    if not records:
        return Lag(0, 0.0)
    timestamp_us = await _timestamp_us(topic, view, at, bounds.high_watermark)
    age_us = max(0, now_us - timestamp_us) if timestamp_us is not None else 0
    return Lag(records, age_us / MICROS_PER_SECOND)


async def _timestamp_us(topic: TopicView, view: PartitionView, offset: int, end: int) -> int | None:
    batches = await view.read_head(offset, end, 1, 1)
    if batches:
        value: int = batches[0].column("timestamp").cast("int64")[0].as_py()
        return value
    files = topic.snapshot.files_of(view.partition)
    index = max(bisect_right(files, offset, key=lambda file: file.first_offset) - 1, 0)
    return files[index].min_timestamp_us if files else None


class Transitions(Protocol):
    """Runs the transitions of groups."""

    async def run(self, transition: str, group: str, request: Mapping[str, Any]) -> Mapping[str, Any]: ...

    async def delete(self, group: str, request: Mapping[str, Any]) -> str:
        """The transition `delete`; returns its status."""


class OffsetUpkeep:
    """Used on one event loop, between `start` and `close`."""

    def __init__(
        self,
        offsets: OffsetLog,
        snapshots: OffsetSnapshots,
        keepers: Keepers,
        transitions: Transitions,
        groups: Callable[[], AsyncIterator[str]],
        log: LogView,
        redis: "RedisConnection",
        clock: Clock,
        logger: "Logger",
        *,
        retention_ms: int,
    ) -> None:
        """`groups()` gives every group there is. One without members is forgotten `retention_ms` after its last
        commit; FOR_EVER: never."""
        self.problem = ""
        """Why what groups commit is not kept beside Redis for now; empty when it is."""
        self.lags: list[tuple[str, Key, Lag]] = []
        """(group, partition, lag) as of some seconds ago, at most LAGS_MAX."""
        self._offsets = offsets
        self._snapshots = snapshots
        self._keepers = keepers
        self._transitions = transitions
        self._groups = groups
        self._log = log
        self._redis = redis
        self._clock = clock
        self._logger = logger
        self._retention_ms = retention_ms
        self._task: asyncio.Task[None] | None = None
        self._scan_at = self._lag_at = clock.monotonic()

    def lags_left_out(self) -> int:
        return max(len(self._offsets.table) - LAGS_MAX, 0)

    def positions(self) -> list[tuple[str, SavedOffset]]:
        """(group, offset) as saved last, of LAGS_MAX partitions at most; none while they are not kept here."""
        return list(islice(self._offsets.table.entries(), LAGS_MAX)) if self._keepers.is_here else []

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._tick_for_ever())

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task
            self._task = None

    async def tick(self) -> None:
        """Does what is due by now. Raises Unavailable without Redis, or where `_offsets` cannot be written."""
        self._offsets.news.clear()
        if self._offsets.kept:
            self._offsets.look()
        if not self._keepers.is_here:
            self.lags = []
            await self._keepers.save()
            return
        if not self._offsets.loaded.is_set():
            began = self._clock.monotonic()
            records = await self._offsets.load()
            seconds = round(self._clock.monotonic() - began, 3)
            self._logger.info("offsets of groups were read", records=records, seconds=seconds)
            # Whoever kept them before may have left some unsaved.
            self._scan_at = self._clock.monotonic()
        await self._snapshots.restore_emptied()
        now = self._clock.monotonic()
        if now >= self._scan_at:
            await self._note_others()
        await self._snapshots.save()
        if now >= self._scan_at:
            await self._forget_topics()
            await self._forget_unused()
            self._offsets.table.expire(self._clock.now_us() // 1000 - FORGOTTEN_MS)
            self._scan_at = now + SCAN_S
        if now >= self._lag_at:
            await self._measure_lags()
            self._lag_at = now + LAG_S

    async def _tick_for_ever(self) -> None:
        while True:
            kept = self._offsets.kept
            try:
                await self.tick()
                self.problem = ""
            except SiltlogError as error:
                if not self.problem and not self._log.draining and kept == self._offsets.kept:
                    passing = isinstance(error, Unavailable)
                    say = self._logger.warning if passing else self._logger.error
                    say("offsets of groups are not kept beside Redis for now", reason=error.detail)
                self.problem = error.detail
            except Exception:
                self._logger.exception("a look at the offsets of groups failed; the next follows")
            unread = self._offsets.kept and not self._offsets.loaded.is_set()
            rest_ms = min(self._offsets.interval_ms, LOAD_RETRY_MS) if unread else self._offsets.interval_ms
            with suppress(TimeoutError):
                await asyncio.wait_for(self._offsets.news.wait(), rest_ms / 1000)

    async def _note_others(self) -> None:
        """Offsets that a server, this one before its restart or another, committed and did not come to save."""
        groups = [group async for group in self._groups()]
        for first in range(0, len(groups), SCAN_PAGE):
            page = groups[first : first + SCAN_PAGE]
            there = await self._redis.commands([("EXISTS", group_key(group, "unsaved")) for group in page])
            for group, unsaved in zip(page, there, strict=True):
                if unsaved:
                    self._snapshots.note(group)

    async def _forget_topics(self) -> None:
        async def forget(group: str, topics: list[str]) -> None:
            await self._transitions.run("forget", group, {"topics": topics})

        await self._snapshots.forget_gone(forget)

    async def _forget_unused(self) -> None:
        if self._retention_ms == FOR_EVER:
            return
        unused_since = self._clock.now_us() // 1000 - self._retention_ms
        for group in self._offsets.table.groups():
            await asyncio.sleep(0)
            if any(entry.committed_ms >= unused_since for entry in self._offsets.table.of(group)):
                continue
            await self._forget_group(group, unused_since)
        for group in await self._unused_without_offsets(unused_since):
            await self._forget_group(group, unused_since)

    async def _forget_group(self, group: str, unused_since: int) -> None:
        unused = {"unused_ms": self._retention_ms, "unused_since": unused_since}
        try:
            status = await self._transitions.delete(group, unused)
        except SiltlogError as error:
            if not is_strange(error):
                raise
            return
        if status == "ok":
            self._logger.info("a group that nobody used was forgotten", group=group)

    async def _unused_without_offsets(self, unused_since: int) -> list[str]:
        """Groups of this log of which only Redis knows: their topics were deleted, or they never read any."""
        known = set(self._offsets.table.groups())
        groups = [group async for group in self._groups() if group not in known]
        log = self._offsets.cluster_id
        fields = ("created", "emptied", "log", f"restored/{log}")
        unused = []
        for first in range(0, len(groups), SCAN_PAGE):
            page = groups[first : first + SCAN_PAGE]
            states = await self._redis.commands([("HMGET", group_key(group, "state"), *fields) for group in page])
            offsets = await self._redis.commands([("HLEN", group_key(group, "offsets")) for group in page])
            for group, (created, emptied, of, restored), count in zip(page, states, offsets, strict=True):
                # Another log may use this Redis. What nobody ever joined is this one's where it has met it.
                own = of.decode() == log if of is not None else restored is not None and not count
                if own and created is not None and int(emptied or created) < unused_since:
                    unused.append(group)
        return unused

    async def _measure_lags(self) -> None:
        """Measures from what was saved last: without a call to Redis, and reading no more than a few records."""
        lags: list[tuple[str, Key, Lag]] = []
        now_us = self._clock.now_us()
        for done, (group, entry) in enumerate(list(islice(self._offsets.table.entries(), LAGS_MAX)), 1):
            lag = await self._lag(entry.key, entry.offset, now_us)
            if lag is not None:
                lags.append((group, entry.key, lag))
            if done % LAGS_AT_ONCE == 0:
                await asyncio.sleep(0)
        self.lags = lags

    async def _lag(self, key: Key, offset: int, now_us: int) -> Lag | None:
        """Returns the lag; None where the topic is gone, or its records cannot be read now."""
        try:
            topic = self._log.topic(key.topic)
            if topic.topic_id != key.topic_id:
                return None
            return await lag_of(topic, topic.partitions[key.partition], offset, now_us)
        except (SiltlogError, IndexError):
            return None
