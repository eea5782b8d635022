"""Measures what a node does at this moment. What has as many values as there are topics is read on a thread."""

import asyncio
import shutil
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from siltlog.consumers.assembly import Consumers
from siltlog.consumers.keeping.saved_offsets import SavedOffset
from siltlog.consumers.reading.view import Key
from siltlog.infra.clock import Clock, format_us
from siltlog.infra.limits import COMPACTED_FILE_BYTES_MIN
from siltlog.infra.metrics import catalogue
from siltlog.infra.metrics.metrics import Metrics
from siltlog.infra.node import Node
from siltlog.infra.records import Lag, records_between
from siltlog.infra.table.snapshot import TableSnapshot
from siltlog.ingest.log.log import Log
from siltlog.ingest.log.topic import TopicLog
from siltlog.server.history.sampling import quantile_of
from siltlog.server.live.dead import DeadLetterCounts
from siltlog.server.live.part import Attention, Disk, LagPart, NodePart, Reason, Sums, TopicPart, Wal, sums_of

WINDOW_SECONDS = 5.0
"""Rates are of about so long."""
RATE_SECONDS_MIN = 1.0
"""One record a moment after the start is not thousands a second."""
WINDOW_STEPS_MAX = 8
SHARED_SECONDS = 0.5
"""A measurement that is younger answers whoever asks."""
DISK_FREE_MIN = 0.1
DISK_FREE_LOW = 0.03
STUCK_SECONDS = 360.0
"""A table is stuck whose topic has had something for it for so long."""
STALLED_SECONDS = 300.0
"""A group is stalled that is behind, and has committed nothing for so long."""
P99 = 0.99


class _Totals(NamedTuple):
    """Counters at a moment: of each topic (records in, bytes in, records out, bytes out), and of acknowledgements."""

    at_seconds: float
    topics: Mapping[str, tuple[int, int, int, int]]
    acks: Sequence[int]


class _Table(NamedTuple):
    snapshot: TableSnapshot
    bytes: int
    files: int
    small: int


class Measuring:
    """Its methods are called on the event loop."""

    def __init__(
        self,
        node: Node,
        version: str,
        log: Log,
        consumers: Consumers,
        reasons: Callable[[], Sequence[str]],
        warnings: Callable[[], Sequence[str]],
    ) -> None:
        """`reasons()` say why it cannot acknowledge, `warnings()` what else is wrong, in words for people."""
        self._node_id = node.settings.node_id
        self._version = version
        self._data_dir = node.settings.data_dir
        self._clock: Clock = node.clock
        self._started_at = format_us(node.clock.now_us())
        self._metrics: Metrics = node.metrics
        self._log = log
        self._consumers = consumers
        self._reasons = reasons
        self._warnings = warnings
        self._dead = DeadLetterCounts(log, consumers.fetcher.lookup, node.clock)
        self._window: deque[_Totals] = deque(maxlen=WINDOW_STEPS_MAX)
        self._tables: dict[str, _Table] = {}
        self._measuring: asyncio.Task[NodePart] | None = None
        self._measured_at = float("-inf")

    async def run(self) -> None:
        """Reads the counters now and then, so that whoever looks first is told rates."""
        while True:
            self._advance(await asyncio.to_thread(self._totals))
            await asyncio.sleep(WINDOW_SECONDS)

    async def part(self) -> NodePart:
        """Measures, or gives what was measured a moment ago: those who ask at once share one."""
        now = self._clock.monotonic()
        if self._measuring is None or (self._measuring.done() and now - self._measured_at > SHARED_SECONDS):
            self._measured_at = now
            self._measuring = asyncio.create_task(self._measure())
        return await asyncio.shield(self._measuring)

    async def _measure(self) -> NodePart:
        reasons = [Reason(reason, reason if reason.isidentifier() else "") for reason in self._reasons()]
        warnings = [
            Attention("warning", "warn", self._node_id, warning)
            for warning in (*self._warnings(), *self._consumers.groups.degraded())
        ]
        connections = int(self._metrics.value(catalogue.CONNECTIONS))
        positions, lags = self._consumers.groups.positions(), self._consumers.groups.lags()
        dead = await self._dead.counts()
        return await asyncio.to_thread(self._part, reasons, warnings, connections, positions, lags, dead)

    # On a thread.

    def _part(
        self,
        reasons: list[Reason],
        warnings: list[Attention],
        connections: int,
        positions: Sequence[tuple[str, SavedOffset]],
        measured: Sequence[tuple[str, Key, Lag]],
        dead: Mapping[str, int],
    ) -> NodePart:
        totals = self._totals()
        before = self._before(totals.at_seconds)
        logs = list(self._log.topics())
        topics = [self._topic(topic, totals, before) for topic in logs]
        self._tables = {topic.name: table for topic in logs if (table := self._tables.get(topic.name)) is not None}
        lags = _folded(self._lags(positions, measured))
        self._window.append(totals)
        disk = _disk(self._data_dir)
        now_ms = self._clock.now_us() // 1000
        return NodePart(
            node=self._node_id,
            version=self._version,
            started_at=self._started_at,
            reasons=reasons,
            wal=Wal(self._log.wal.used_bytes, self._log.wal.bytes_max),
            disk=disk,
            connections=connections,
            ack_p99_ms=_p99_ms(before, totals),
            sums=sums_of(topics) if topics else Sums(),
            topics=topics,
            lags=lags,
            attention=[
                *(Attention("not_ready", "error", self._node_id, reason.detail) for reason in reasons),
                *_of_disk(self._node_id, disk),
                *_of_tables(logs, topics),
                *(
                    Attention(
                        "dead_letters",
                        "warn",
                        name,
                        f"{count:,} dead {'letter' if count == 1 else 'letters'} in 15 minutes",
                        "topic",
                    )
                    for name, count in dead.items()
                ),
                *_stalled(lags, now_ms),
                *warnings,
            ],
        )

    def _totals(self) -> _Totals:
        records, nbytes = self._consumers.fetcher.records, self._consumers.fetcher.bytes
        return _Totals(
            self._clock.monotonic(),
            {
                topic.name: (
                    topic.records_total,
                    topic.bytes_total,
                    records.get(topic.name, 0),
                    nbytes.get(topic.name, 0),
                )
                for topic in list(self._log.topics())
            },
            self._metrics.buckets(catalogue.ACK_SECONDS),
        )

    def _advance(self, totals: _Totals) -> None:
        if not self._window or totals.at_seconds - self._window[-1].at_seconds >= WINDOW_SECONDS / 2:
            self._window.append(totals)

    def _before(self, now_seconds: float) -> _Totals | None:
        """What was about WINDOW_SECONDS ago, or as long as is known; what is older than needed is forgotten."""
        window = self._window
        while len(window) > 1 and now_seconds - window[1].at_seconds >= WINDOW_SECONDS:
            window.popleft()
        return window[0] if window else None

    def _topic(self, topic: TopicLog, totals: _Totals, before: _Totals | None) -> TopicPart:
        rates = _rates(topic.name, totals, before)
        bounds = [(log.partition, log.bounds()) for log in list(topic.partitions)]
        gaps = topic.snapshot.gaps
        since = [at for log in list(topic.partitions) if (at := log.head.oldest_unflushed_seconds) is not None]
        table = self._table(topic)
        return TopicPart(
            topic.name,
            len(bounds),
            sum(records_between(one.log_start_offset, one.high_watermark, gaps(at)) for at, one in bounds),
            table.bytes,
            table.files,
            table.small,
            *rates,
            max(totals.at_seconds - min(since), 0.0) if since else 0.0,
        )

    def _table(self, topic: TopicLog) -> _Table:
        snapshot, known = topic.snapshot, self._tables.get(topic.name)
        if known is None or known.snapshot is not snapshot:
            sizes = [file.size_bytes for file in snapshot.files.values()]
            small = sum(size < COMPACTED_FILE_BYTES_MIN for size in sizes)
            known = self._tables[topic.name] = _Table(snapshot, sum(sizes), len(sizes), small)
        return known

    def _lags(
        self, positions: Sequence[tuple[str, SavedOffset]], measured: Sequence[tuple[str, Key, Lag]]
    ) -> Iterable[LagPart]:
        """Counts records by the bounds of now where this node has the topic; how old the next one is was measured."""
        known = {(group, key): lag for group, key, lag in measured}
        for group, entry in positions:
            key, lag = entry.key, known.get((group, entry.key))
            records, seconds = (0, 0.0) if lag is None else (lag.records, lag.seconds)
            topic = self._log.topic_logs.get(key.topic)
            if topic is not None and topic.topic_id == key.topic_id and key.partition < len(topic.partitions):
                bounds = topic.partitions[key.partition].bounds()
                gaps = topic.snapshot.gaps(key.partition)
                records = records_between(max(entry.offset, bounds.log_start_offset), bounds.high_watermark, gaps)
            elif lag is None:
                continue
            yield LagPart(group, key.topic, records, seconds if records else 0.0, entry.committed_ms)


def _folded(lags: Iterable[LagPart]) -> list[LagPart]:
    """Makes one of all partitions of a topic."""
    found: dict[tuple[str, str], LagPart] = {}
    for lag in lags:
        place = (lag.group, lag.topic)
        known = found.get(place)
        if known is not None:
            records, seconds = known.records + lag.records, max(known.seconds, lag.seconds)
            lag = LagPart(*place, records, seconds, max(known.committed_ms, lag.committed_ms))
        found[place] = lag
    return list(found.values())


def _rates(name: str, totals: _Totals, before: _Totals | None) -> tuple[float, float, float, float]:
    now, earlier = totals.topics.get(name), None if before is None else before.topics.get(name, (0, 0, 0, 0))
    if now is None or before is None or earlier is None or totals.at_seconds <= before.at_seconds:
        return 0.0, 0.0, 0.0, 0.0
    passed = max(totals.at_seconds - before.at_seconds, RATE_SECONDS_MIN)
    first, second, third, fourth = (
        round(max(one - other, 0) / passed, 3) for one, other in zip(now, earlier, strict=True)
    )
    return first, second, third, fourth


def _p99_ms(before: _Totals | None, totals: _Totals) -> float | None:
    if before is None or not totals.acks or totals.acks[-1] == before.acks[-1]:
        return None
    since = [count - earlier for count, earlier in zip(totals.acks, before.acks, strict=True)]
    return round(quantile_of(catalogue.ACK_SECONDS.buckets, since, P99) * 1000, 3)


def _disk(folder: Path) -> Disk | None:
    try:
        usage = shutil.disk_usage(folder)
    except OSError:
        return None
    return Disk(usage.free, usage.total)


def _of_disk(node_id: str, disk: Disk | None) -> Iterable[Attention]:
    if disk is not None and disk.free < disk.total * DISK_FREE_MIN:
        severity = "error" if disk.free < disk.total * DISK_FREE_LOW else "warn"
        part = disk.free / disk.total
        yield Attention("disk", severity, node_id, f"{part:.1%} of the disk of the data directory is free")


def _of_tables(logs: Sequence[TopicLog], parts: Sequence[TopicPart]) -> Iterable[Attention]:
    for topic, part in zip(logs, parts, strict=True):
        if topic.state in ("unavailable", "fenced"):
            yield Attention("table", "error", topic.name, f"takes no records: {topic.availability.reason}", "topic")
        elif error := topic.flush_error:
            yield Attention("table", "error", topic.name, f"cannot be flushed for now: {error}", "topic")
        elif part.table_lag_s > max(STUCK_SECONDS, 2 * topic.config.integer("flush.ms") / 1000):
            detail = f"its table is {part.table_lag_s:.0f} s behind what was acknowledged"
            yield Attention("table", "warn", topic.name, detail, "topic")


def _stalled(lags: Sequence[LagPart], now_ms: int) -> Iterable[Attention]:
    for lag in lags:
        silent_seconds = now_ms / 1000 - lag.committed_ms / 1000
        if lag.records and lag.seconds > STALLED_SECONDS and silent_seconds > STALLED_SECONDS:
            detail = f"{lag.records:,} records behind in {lag.topic}, and nothing committed for {silent_seconds:.0f} s"
            yield Attention("group_stalled", "warn", lag.group, detail, "group")
