"""Builds this room on a node: reads, groups and the Redis they live in, dead letters, streams.

Redis is the embedded Valkey, or the one that the settings name.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from siltlog.consumers.behind import Lag
from siltlog.consumers.dead_letters.http import DeadLettersHttp
from siltlog.consumers.dead_letters.letters import DeadLetters
from siltlog.consumers.dead_letters.replay import Replay
from siltlog.consumers.groups.groups import Groups
from siltlog.consumers.groups.http import GroupsHttp
from siltlog.consumers.groups.keeper import Elsewhere
from siltlog.consumers.groups.saved_offsets import OffsetLog
from siltlog.consumers.push.events import Tails
from siltlog.consumers.push.group_socket import Connected
from siltlog.consumers.push.sockets import Sockets
from siltlog.consumers.reading.fetch import Fetcher
from siltlog.consumers.reading.files import FileLister
from siltlog.consumers.reading.files_http import FilesHttp
from siltlog.consumers.reading.http import ReadLimits, ReadsHttp
from siltlog.consumers.reading.row_groups import RowGroups
from siltlog.consumers.view import LogView, SystemLog
from siltlog.infra import names
from siltlog.infra.errors import SiltlogError
from siltlog.infra.http.part import Part
from siltlog.infra.http.streams import Streams
from siltlog.infra.node import Node
from siltlog.infra.redis.access import RedisAccess
from siltlog.infra.redis.connection import RedisConnection
from siltlog.infra.redis.embedded import EmbeddedValkey
from siltlog.infra.redis.same import SameRedis
from siltlog.infra.security.grant import Access
from siltlog.infra.telemetry import Gauges, Metrics

STOP_SECONDS_MAX = 2.0
"""How long reads of tables that are under way may take to end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Consumers:
    part: Part
    fetcher: Fetcher
    limits: ReadLimits
    groups: Groups
    groups_answer: Callable[[], Awaitable[bool]]
    """Whether groups are available right now."""
    keep: Callable[[bool], None]
    """Hears whether this node owns `_offsets`."""
    redis_value: Callable[[], str]
    """What it has found in Redis by which nodes know that they have the same; empty where there are no others."""


async def assemble(
    node: Node,
    log: LogView,
    system: SystemLog,
    limits: ReadLimits,
    access: Access | None = None,
    elsewhere: Elsewhere | None = None,
    fresh: Callable[[], bool] = lambda: True,
    controllers_redis: Callable[[], str] | None = None,
) -> Consumers:
    """`elsewhere` finds the node that keeps what groups commit; without it that is this one. While this node is not
    `fresh` another may be it. `controllers_redis()` is what the controller has found in its Redis (`SameRedis`).

    Raises ConfigError when the embedded Valkey cannot start. A Redis of the settings may come later.
    """
    settings, clock, logger = node.settings, node.clock, node.logger
    row_groups = RowGroups(node.store)
    fetcher = Fetcher(log, row_groups)
    offsets = OffsetLog(log, system, row_groups, cluster_id=node.cluster_id, interval_ms=settings.offsets_snapshot_ms)
    if elsewhere is None:
        offsets.owned()
    redis = await _Redis.opened(node)
    same = None
    if controllers_redis is not None:
        same = SameRedis(redis.connection, node.cluster_id, controllers_redis)
    groups = Groups(
        redis.connection,
        log,
        clock,
        logger,
        offsets,
        offsets_retention_ms=settings.offsets_retention_ms,
        access=access,
        elsewhere=elsewhere,
        fresh=fresh,
        same=same,
    )
    if access is not None:
        access.when_changed(groups.look)
    dead_letters = DeadLetters(groups, fetcher, system, clock)
    streams = Streams(node.draining)
    groups.start()

    def keep(owned: bool) -> None:
        if owned != offsets.kept:
            (offsets.owned if owned else offsets.lost)()

    def show(metrics: Metrics) -> None:
        _show_groups(groups, metrics)
        _show_dead_letters(dead_letters, metrics)
        _show_streams(streams, metrics)

    def drain() -> None:
        fetcher.wake()
        groups.wake()
        streams.drain()

    async def close(patient: bool) -> bool:
        ended = patient and await _ended(row_groups)
        await groups.close()
        await redis.close()
        return ended

    return Consumers(
        part=Part(
            handlers=(
                ReadsHttp(log, fetcher, limits),
                FilesHttp(FileLister(log, fetcher.waits, node.cluster_id), limits),
                GroupsHttp(groups, log, fetcher, clock, limits),
                DeadLettersHttp(dead_letters, Replay(log, fetcher, system, clock)),
                Tails(log, fetcher, streams, logger),
                Sockets(log, fetcher, groups, dead_letters, streams, Connected(), logger),
            ),
            gauges=show,
            drain=drain,
            close=close,
        ),
        fetcher=fetcher,
        limits=limits,
        groups=groups,
        groups_answer=redis.answers,
        keep=keep,
        redis_value=lambda: "" if same is None else same.value,
    )


class _Redis:
    """The Redis of the groups, and the Valkey that it is where the settings name none."""

    def __init__(self, connection: RedisConnection, valkey: EmbeddedValkey | None) -> None:
        self.connection = connection
        self._valkey = valkey
        self._watch = None if valkey is None else asyncio.create_task(valkey.watch())

    @classmethod
    async def opened(cls, node: Node) -> "_Redis":
        if node.settings.redis_url:
            return cls(RedisConnection(node.settings.redis_access), None)
        valkey = EmbeddedValkey(node.settings.data_dir, node.clock, node.logger)
        return cls(RedisConnection(RedisAccess(await asyncio.to_thread(valkey.start))), valkey)

    async def answers(self) -> bool:
        try:
            await self.connection.command("PING")
        except SiltlogError:
            return False
        return True

    async def close(self) -> None:
        await self.connection.close()
        if self._watch is not None:
            self._watch.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._watch
        if self._valkey is not None:
            await asyncio.to_thread(self._valkey.stop)


async def _ended(row_groups: RowGroups) -> bool:
    try:
        await asyncio.wait_for(asyncio.to_thread(row_groups.close), STOP_SECONDS_MAX)
    except TimeoutError:
        return False
    return True


def _show_groups(groups: Groups, metrics: Metrics) -> None:
    labels = ("group", "topic", "partition")

    def shown(what: Callable[[Lag], float]) -> Gauges:
        return lambda: [((group, key.topic, str(key.partition)), what(lag)) for group, key, lag in groups.lags()]

    metrics.gauge(
        names.METRIC_GROUP_LAGS_LEFT_OUT,
        "Partitions of groups whose lag is not shown: there are more than a scrape should have",
        groups.lags_left_out,
    )
    metrics.gauges(names.METRIC_GROUP_LAG, "Records a group is behind", labels, shown(lambda lag: lag.records))
    metrics.gauges(
        names.METRIC_GROUP_LAG_SECONDS,
        "Age of the first record that a group has not read",
        labels,
        shown(lambda lag: lag.seconds),
    )
    counts = groups.counts
    metrics.gauge(names.METRIC_GROUPS, "Groups this server has met", lambda: len(groups.members()))
    metrics.gauge(names.METRIC_GROUP_MEMBERS, "Members of those groups", lambda: sum(groups.members()))
    metrics.totals(
        names.METRIC_GROUP_REBALANCES,
        "Assignments that changed what a member reads, by what had changed",
        "reason",
        counts.rebalances.items,
    )
    metrics.totals(
        names.METRIC_GROUP_EVICTIONS,
        "Members that were expired or fenced, by why",
        "reason",
        counts.evictions.items,
    )
    metrics.totals(names.METRIC_GROUP_COMMITS, "Calls that commit", "outcome", counts.commits.items)


def _show_dead_letters(dead_letters: DeadLetters, metrics: Metrics) -> None:
    metrics.totals(names.METRIC_ATTEMPTS, "Attempts at records that were counted", "topic", dead_letters.attempts.items)
    metrics.totals(names.METRIC_DEAD_LETTERS, "Records that became dead letters", "topic", dead_letters.buried.items)


def _show_streams(streams: Streams, metrics: Metrics) -> None:
    metrics.gauge(names.METRIC_STREAMS, "Open event streams and WebSockets", lambda: len(streams))
    metrics.totals(names.METRIC_STREAM_RECORDS, "Records sent to streams and WebSockets", "kind", streams.records.items)
    metrics.totals(
        names.METRIC_STREAMS_TOO_SLOW,
        "Streams and WebSockets whose client did not take what was sent",
        "kind",
        streams.too_slow.items,
    )
