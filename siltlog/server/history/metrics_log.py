"""`_metrics`: the history of a node's metrics as records of a topic, and what a start reads back of it."""

import asyncio
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TypeVar

from siltlog.consumers.dead_letters.record import Stored
from siltlog.consumers.reading.fetch import Fetcher
from siltlog.consumers.reading.view import LogView, SystemLog, TopicView
from siltlog.infra import names, producer_names
from siltlog.infra.clock import MICROS_PER_SECOND, Clock
from siltlog.infra.errors import SiltlogError, UnknownTopic, problem
from siltlog.infra.process.priority import run_behind_others
from siltlog.infra.records import NewRecord
from siltlog.infra.settings.topic_config import Value
from siltlog.infra.telemetry import Logger
from siltlog.server.history.history import HOURS_BACK, History
from siltlog.server.history.record import Column, columns_of, hour_of, hour_value, minute_of, minute_value
from siltlog.server.history.ring import Ring, Rows
from siltlog.server.history.series_rings import (
    DAY_SECONDS,
    HOUR_SECONDS,
    MINUTE_SECONDS,
    MONTH_SECONDS,
    SERIES_MAX,
    UNKNOWN,
    SeriesRings,
)
from siltlog.server.topic_reading import stored_pages

T = TypeVar("T")

MINUTES, HOURS = 0, 1
"""Partitions."""
CONFIG: Mapping[str, Value] = {
    "acks": "wal",
    "retention.ms": MONTH_SECONDS * 1000,
    # One record a minute and node: a file for each would be work for the jobs that it tells of.
    "flush.ms": 600_000,
}
LATE_MINUTES = 10
"""A minute that could not be written is written with a later one, for so long."""
LOOK_RECORDS = 16
"""Read at once: 0.4 MB, where there are as many series as are kept."""
REST_SECONDS = 0.02
"""Between two such reads, for those who publish: a start is when clients come back."""
AGAIN_SECONDS = 2.0
AGAIN_SECONDS_MAX = 3_600.0
_UNREAD = -1


class MetricsLog:
    """Used on one event loop. Whatever becomes of it, the server goes on."""

    def __init__(
        self,
        history: History,
        log: LogView,
        fetcher: Fetcher,
        system: SystemLog,
        node: str,
        clock: Clock,
        logger: Logger,
    ) -> None:
        """`fetcher` reads for this server itself; `node` is the key of its records."""
        self._history = history
        self._log = log
        self._fetcher = fetcher
        self._system = system
        self._node = node
        self._clock = clock
        self._logger = logger
        self._minute = self._now_seconds() // MINUTE_SECONDS - 1
        """The last minute that was written, or that there is nothing to write of."""
        self._hour = _UNREAD
        """The last hour that was."""
        self._writes = True

    async def run(self) -> None:
        """Reads what there is, and writes for ever."""
        await asyncio.gather(self.read_back(), self._write_on())

    async def read_back(self) -> None:
        """Returns once it was read. A file that is damaged is read more and more seldom."""
        rest_seconds = AGAIN_SECONDS
        while self._hour == _UNREAD:
            try:
                await self.restore()
                return
            except SiltlogError as error:
                if rest_seconds == AGAIN_SECONDS and not self._log.draining:
                    self._logger.warning(
                        "the history of the metrics before this start cannot be read now; it is tried again",
                        reason=error.detail,
                    )
            except Exception:
                self._logger.exception("the history of the metrics failed; it is tried again")
            await asyncio.sleep(rest_seconds)
            rest_seconds = min(2 * rest_seconds, AGAIN_SECONDS_MAX)

    async def _write_on(self) -> None:
        while True:
            await self._history.minute_closed()
            await self._try_to_write()

    async def _try_to_write(self) -> None:
        try:
            await self.write()
        except SiltlogError as error:
            if self._writes and not self._log.draining:
                self._logger.warning(
                    "the history of the metrics is not recorded for now; this node keeps it in memory",
                    reason=error.detail,
                )
            self._writes = False
            return
        except Exception:
            self._logger.exception("the history of the metrics failed; it is tried again")
            return
        if not self._writes:
            self._logger.info("the history of the metrics is recorded again")
        self._writes = True

    def _now_seconds(self) -> int:
        return self._clock.now_us() // MICROS_PER_SECOND

    # Writing.

    async def write(self) -> None:
        """Appends the minutes that ended since the last call, and hours once it is known which are there.

        Raises what a publish does: they are tried again.
        """
        newest = self._history.newest_minute
        minutes = range(max(self._minute + 1, newest - LATE_MINUTES + 1), newest + 1)
        await self._append(MINUTES, MINUTE_SECONDS, minutes, self._minute_value)
        self._minute = max(newest, self._minute)
        if self._hour == _UNREAD:
            return
        current = (newest + 1) * MINUTE_SECONDS // HOUR_SECONDS
        hours = range(max(self._hour + 1, current - HOURS_BACK + 1), current)
        await self._append(HOURS, HOUR_SECONDS, hours, self._hour_value)
        self._hour = max(self._hour, current - 1)

    async def _append(
        self, partition: int, step_seconds: int, steps: range, value_of: Callable[[int], Callable[[], bytes] | None]
    ) -> None:
        found = [(step, made) for step in steps if (made := value_of(step)) is not None]
        if not found:
            return
        values = await asyncio.to_thread(lambda: [made() for _, made in found])
        key = self._node.encode()
        records = [
            NewRecord(key, value, (), step * step_seconds * MICROS_PER_SECOND)
            for (step, _), value in zip(found, values, strict=True)
        ]
        await self._system.ensure(names.METRICS_TOPIC, 2, CONFIG)
        # What was written and is written again, as its answer was lost, is there once.
        await self._system.append(
            names.METRICS_TOPIC,
            partition,
            records,
            producer_id=producer_names.metrics_producer(self._node),
            sequences=[step for step, _ in found],
        )

    def _minute_value(self, minute: int) -> Callable[[], bytes] | None:
        sample = self._history.minute(minute)
        return partial(minute_value, minute, sample) if sample else None

    def _hour_value(self, hour: int) -> Callable[[], bytes] | None:
        means, most = self._history.hour(hour)
        return partial(hour_value, hour, means, most) if means else None

    # Reading back.

    async def restore(self) -> None:
        """Gives the history what is recorded of the last day by minutes, and of 30 days by hours.

        Raises Unavailable where that cannot be read now.
        """
        began = self._clock.monotonic()
        current = self._now_seconds() // HOUR_SECONDS
        try:
            topic = self._log.topic(names.METRICS_TOPIC)
        except UnknownTopic:
            self._hour = current - HOURS_BACK
            return
        read = _Read(self._node, self._now_seconds())
        # Of its own, and behind all others: it is all the same when a chart has its past.
        thread = ThreadPoolExecutor(1, "history", initializer=run_behind_others)
        try:
            records = await self._read(topic, HOURS, MONTH_SECONDS, thread, read.take_hours)
            records += await self._read(topic, MINUTES, DAY_SECONDS, thread, read.take_minutes)
            await asyncio.get_running_loop().run_in_executor(thread, read.rings.reserve, SERIES_MAX)
        finally:
            thread.shutdown(wait=False, cancel_futures=True)
        await self._history.go_on_from(read.rings)
        self._hour = max(read.hour, current - HOURS_BACK)
        self._logger.info(
            "the history of the metrics before this start was read",
            records=records,
            skipped=read.skipped,
            seconds=round(self._clock.monotonic() - began, 3),
        )

    async def _read(
        self,
        topic: TopicView,
        partition: int,
        seconds: int,
        thread: ThreadPoolExecutor,
        take: Callable[[Sequence[Stored]], None],
    ) -> int:
        """How many there are of the last `seconds`, of all nodes."""
        if partition >= len(topic.partitions):
            return 0
        view = topic.partitions[partition]
        bounds = await view.decided()
        if bounds is None:
            raise problem("topic_unavailable", f"nobody owns {names.METRICS_TOPIC} now", topic=names.METRICS_TOPIC)
        since_us = (self._now_seconds() - seconds) * MICROS_PER_SECOND
        start, end = await self._fetcher.lookup.offset_at(topic, view, since_us), bounds.high_watermark
        records = 0
        async for stored in stored_pages(self._fetcher, topic, start, end, partition, LOOK_RECORDS):
            await asyncio.get_running_loop().run_in_executor(thread, take, stored)
            records += len(stored)
            await asyncio.sleep(REST_SECONDS)
        return records


class _Read:
    """What one node has recorded, put together on a thread."""

    def __init__(self, node: str, now_seconds: int) -> None:
        self.rings = SeriesRings()
        self.hour = -1
        """The last hour that is recorded."""
        self.skipped = 0
        """Records that are none of this kind."""
        self._key = node.encode()
        self._now_seconds = now_seconds
        self._rows: dict[Hashable, Rows] = {}
        self._forgotten = 0

    def take_minutes(self, records: Sequence[Stored]) -> None:
        for minute, record in self._told(records, minute_of):
            self._take(self.rings.minutes, minute, columns_of(record.values))

    def take_hours(self, records: Sequence[Stored]) -> None:
        for hour, record in self._told(records, hour_of):
            # Of each series what the history itself would have made of it.
            self._take(self.rings.hours, hour, columns_of(record.mean, highest=False))
            self._take(self.rings.hours, hour, columns_of(record.max, highest=True))
            self.hour = max(self.hour, hour)

    def _told(self, records: Sequence[Stored], read: Callable[[bytes], tuple[int, T]]) -> Iterator[tuple[int, T]]:
        for record in records:
            # Of a clock that was ahead nothing is shown.
            if record.key != self._key or record.timestamp_us > self._now_seconds * MICROS_PER_SECOND:
                continue
            try:
                yield read(record.value or b"")
            except ValueError:
                self.skipped += 1

    def _take(self, ring: Ring, step: int, columns: Iterable[Column]) -> None:
        for column in columns:
            if self._forgotten != self.rings.forgotten:
                self._rows.clear()
                self._forgotten = self.rings.forgotten
            told = step * ring.step_seconds
            rows = self._rows.get(column.key)
            if rows is None or UNKNOWN in rows:
                rows = self._rows[column.key] = self.rings.rows_of(column.series(), told)
            else:
                self.rings.told(rows, told)
            self.rings.put(ring, step, rows, column.values)
