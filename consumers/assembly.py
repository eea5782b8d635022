"""Joins the parts of this room on a node: `Coordination` builds the groups and the Redis they live in, `Push` the
streams.

Redis is the embedded Valkey, or the one that the settings name.
"""

import asyncio
import contextlib
from collections.abc import Callable

from siltlog.consumers.behind import Lag
from siltlog.consumers.dead_letters.letters import DeadLetters
from siltlog.consumers.groups.groups import Groups
from siltlog.consumers.groups.http import GroupsHttp
from siltlog.consumers.groups.saved_offsets import OffsetLog
from siltlog.consumers.push.events import Tails
from siltlog.consumers.push.group_socket import Connected, Nacks
from siltlog.consumers.push.sockets import Sockets
from siltlog.consumers.reading.fetch import Fetcher
from siltlog.consumers.reading.http import ReadLimits
from siltlog.consumers.view import LogView, SystemLog
from siltlog.infra import names
from siltlog.infra.clock import Clock
from siltlog.infra.errors import SiltlogError
from siltlog.infra.http.streams import Streams
from siltlog.infra.redis.connection import RedisConnection
from siltlog.infra.redis.embedded import EmbeddedValkey
from siltlog.infra.settings.settings import ServerSettings
from siltlog.infra.telemetry import Gauges, Logger, Metrics


class Coordination:
    def __init__(self, groups: Groups, redis: RedisConnection, log: LogView, clock: Clock) -> None:
        self.groups = groups
        self._redis = redis
        self._log = log
        self._clock = clock
        self._valkey: EmbeddedValkey | None = None
        self._watch: asyncio.Task[None] | None = None

    @classmethod
    async def start(
        cls,
        settings: ServerSettings,
        log: LogView,
        offsets: OffsetLog,
        clock: Clock,
        logger: Logger,
        metrics: Metrics,
    ) -> "Coordination":
        """Raises ConfigError when the embedded Valkey cannot start. A Redis of the settings may come later."""
        valkey = None if settings.redis_url else EmbeddedValkey(settings.data_dir, clock, logger)
        url = settings.redis_url if valkey is None else await asyncio.to_thread(valkey.start)
        redis = RedisConnection(url)
        groups = Groups(redis, log, clock, logger, offsets, offsets_retention_ms=settings.offsets_retention_ms)
        self = cls(groups, redis, log, clock)
        self._show_lags(metrics)
        self._show_counts(metrics)
        self._valkey = valkey
        if valkey is not None:
            self._watch = asyncio.create_task(valkey.watch())
        self.groups.start()
        return self

    def http(self, fetcher: Fetcher, limits: ReadLimits) -> GroupsHttp:
        return GroupsHttp(self.groups, self._log, fetcher, self._clock, limits)

    def dead_letters(self, fetcher: Fetcher, system: SystemLog, metrics: Metrics) -> DeadLetters:
        """Builds the part that gives up records for groups, and counts its attempts and dead letters in `metrics`."""
        dead_letters = DeadLetters(self.groups, fetcher, system, self._clock)
        metrics.totals(
            names.METRIC_ATTEMPTS, "Attempts at records that were counted", "topic", dead_letters.attempts.items
        )
        metrics.totals(
            names.METRIC_DEAD_LETTERS, "Records that became dead letters", "topic", dead_letters.buried.items
        )
        return dead_letters

    def _show_lags(self, metrics: Metrics) -> None:
        labels = ("group", "topic", "partition")

        def shown(what: Callable[[Lag], float]) -> Gauges:
            return lambda: [
                ((group, key.topic, str(key.partition)), what(lag)) for group, key, lag in self.groups.lags()
            ]

        metrics.gauge(
            names.METRIC_GROUP_LAGS_LEFT_OUT,
            "Partitions of groups whose lag is not shown: there are more than a scrape should have",
            self.groups.lags_left_out,
        )
        metrics.gauges(names.METRIC_GROUP_LAG, "Records a group is behind", labels, shown(lambda lag: lag.records))
        metrics.gauges(
            names.METRIC_GROUP_LAG_SECONDS,
            "Age of the first record that a group has not read",
            labels,
            shown(lambda lag: lag.seconds),
        )

    def _show_counts(self, metrics: Metrics) -> None:
        groups, counts = self.groups, self.groups.counts
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

    async def answers(self) -> bool:
        """Whether groups are available right now."""
        try:
            await self._redis.command("PING")
        except SiltlogError:
            return False
        return True

    async def stop(self) -> None:
        await self.groups.close()
        await self._redis.close()
        if self._watch is not None:
            self._watch.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._watch
        if self._valkey is not None:
            await asyncio.to_thread(self._valkey.stop)


class Push:
    def __init__(
        self,
        log: LogView,
        fetcher: Fetcher,
        groups: Groups,
        nacks: Nacks,
        logger: Logger,
        metrics: Metrics,
    ) -> None:
        self.streams = streams = Streams()
        self.tails = Tails(log, fetcher, streams, logger)
        self.sockets = Sockets(log, fetcher, groups, nacks, streams, Connected(), logger)
        metrics.gauge(names.METRIC_STREAMS, "Open event streams and WebSockets", lambda: len(streams))
        metrics.totals(
            names.METRIC_STREAM_RECORDS, "Records sent to streams and WebSockets", "kind", streams.records.items
        )
        metrics.totals(
            names.METRIC_STREAMS_TOO_SLOW,
            "Streams and WebSockets whose client did not take what was sent",
            "kind",
            streams.too_slow.items,
        )
