"""Builds this room on a node: reads, groups and the Redis they live in, dead letters, streams.

Redis is the embedded Valkey, or the one that the settings name.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial

from msgspec.structs import replace

from siltlog.consumers.dead_letters.discard import Discard
from siltlog.consumers.dead_letters.http import DeadLettersHttp
from siltlog.consumers.dead_letters.letters import DeadLetters
from siltlog.consumers.dead_letters.listing import DeadLetterList
from siltlog.consumers.dead_letters.marks import MarkIndex
from siltlog.consumers.dead_letters.replay import Replay
from siltlog.consumers.groups.groups import Groups
from siltlog.consumers.groups.http import GroupsHttp
from siltlog.consumers.groups.members_http import MembersHttp
from siltlog.consumers.groups.messages import Timeouts
from siltlog.consumers.groups.ranked import GroupLags
from siltlog.consumers.keeping.keeper import Elsewhere
from siltlog.consumers.keeping.saved_offsets import OffsetLog
from siltlog.consumers.push.events import Tails
from siltlog.consumers.push.group_socket import Connected
from siltlog.consumers.push.sockets import Sockets
from siltlog.consumers.reading.fetch import Fetcher
from siltlog.consumers.reading.files import FileLister
from siltlog.consumers.reading.files_http import FilesHttp
from siltlog.consumers.reading.http import ReadLimits, ReadsHttp, Seen
from siltlog.consumers.reading.row_groups import RowGroups
from siltlog.consumers.reading.view import LogView, SystemLog
from siltlog.consumers.searching.http import SearchHttp
from siltlog.consumers.sql.http import SqlHttp
from siltlog.infra.cluster.beat import Report
from siltlog.infra.errors import SiltlogError
from siltlog.infra.http.part import Part
from siltlog.infra.http.streams import Streams
from siltlog.infra.metrics import catalogue
from siltlog.infra.metrics.metrics import Gauges, Metrics
from siltlog.infra.node import Node
from siltlog.infra.records import Lag
from siltlog.infra.redis.access import RedisAccess
from siltlog.infra.redis.connection import RedisConnection
from siltlog.infra.redis.embedded import EmbeddedValkey
from siltlog.infra.redis.same import SameRedis
from siltlog.infra.security.grant import Access
from siltlog.infra.settings.settings import ServerSettings

STOP_SECONDS_MAX = 2.0
"""How long reads of tables that are under way may take to end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Consumers:
    part: Part
    fetcher: Fetcher
    streams: Streams
    limits: ReadLimits
    groups: Groups
    groups_answer: Callable[[], Awaitable[bool]]
    """Whether groups are available right now."""
    keep: Callable[[bool], None]
    """Hears whether this node owns `_offsets`."""
    reconfigure: Callable[[ReadLimits], None]
    """The next read may ask for so much."""
    reported: Callable[[Report], Report]
    """Has a beat say what this node finds in Redis."""


async def assemble(
    node: Node,
    log: LogView,
    system: SystemLog,
    limits: ReadLimits,
    lags: GroupLags,
    access: Access | None = None,
    elsewhere: Elsewhere | None = None,
    fresh: Callable[[], bool] = lambda: True,
    controllers_redis: Callable[[], str] | None = None,
    seen: Seen | None = None,
) -> Consumers:
    """`elsewhere` finds the node that keeps what groups commit; without it that is this one. While this node is not
    `fresh` another may be it. `controllers_redis()` is what the controller has found in its Redis (`SameRedis`); `seen`
    is for topics that another node may have made just now.

    Raises ConfigError when the embedded Valkey cannot start. A Redis of the settings may come later.
    """
    settings, clock, logger = node.settings, node.clock, node.logger
    row_groups = RowGroups(node.store)
    fetcher = Fetcher(log, row_groups)
    offsets = OffsetLog(log, system, row_groups, cluster_id=node.cluster_id, interval_ms=settings.offsets_snapshot_ms)
    if elsewhere is None:
        offsets.owned()
    redis = await _Redis.opened(node)
    same = None if controllers_redis is None else SameRedis(redis.connection, node.cluster_id, controllers_redis)
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
        timeouts=_timeouts(settings),
    )
    if access is not None:
        access.when_changed(groups.look)
    marks = MarkIndex(fetcher)
    dead_letters = DeadLetters(groups.offsets, fetcher, system, clock, marks)
    streams = Streams(node.draining, tails_max=node.settings.tails_max)
    groups.start()

    def show(metrics: Metrics) -> None:
        _show_reads(fetcher, log, metrics)
        _show_groups(groups, redis.connection, metrics)
        _show_dead_letters(dead_letters, metrics)
        _show_streams(streams, metrics)

    def drain() -> None:
        fetcher.wake()
        groups.wake()
        streams.drain()

    async def close(patient: bool) -> bool:
        ended = patient and await _ended(row_groups, searches, queries)
        await groups.close()
        await redis.close()
        return ended

    reads = ReadsHttp(log, fetcher, limits, seen)
    searches = SearchHttp(log, fetcher.lookup, streams)
    queries = SqlHttp(log, streams, clock)
    files = FilesHttp(FileLister(log, fetcher.waits, node.cluster_id), limits)

    def reconfigure(changed: ReadLimits) -> None:
        reads.reconfigure(changed)
        files.reconfigure(changed)

    return Consumers(
        part=Part(
            handlers=(
                reads,
                files,
                searches,
                queries,
                MembersHttp(groups.members, fetcher, limits),
                GroupsHttp(groups, log, fetcher.lookup, clock, lags),
                _dead_letters_http(node, log, system, fetcher, dead_letters, marks),
                Tails(log, fetcher, streams, logger),
                Sockets(log, fetcher, groups, dead_letters, streams, Connected(), logger),
            ),
            gauges=show,
            drain=drain,
            close=close,
        ),
        fetcher=fetcher,
        streams=streams,
        limits=limits,
        groups=groups,
        groups_answer=redis.answers,
        keep=partial(_keep, offsets),
        reconfigure=reconfigure,
        reported=partial(_reported, same, redis.connection),
    )


def _keep(offsets: OffsetLog, owned: bool) -> None:
    if owned != offsets.kept:
        (offsets.owned if owned else offsets.lost)()


def _reported(same: SameRedis | None, connection: RedisConnection, report: Report) -> Report:
    return replace(report, redis="" if same is None else same.value, redisless=not connection.answers)


def _timeouts(settings: ServerSettings) -> Timeouts:
    return Timeouts(
        session_ms_min=settings.session_timeout_ms_min,
        session_ms_max=settings.session_timeout_ms_max,
        rebalance_ms_min=settings.rebalance_timeout_ms_min,
        rebalance_ms_max=settings.rebalance_timeout_ms_max,
    )


def _dead_letters_http(
    node: Node, log: LogView, system: SystemLog, fetcher: Fetcher, dead_letters: DeadLetters, marks: MarkIndex
) -> DeadLettersHttp:
    return DeadLettersHttp(
        dead_letters,
        Replay(log, fetcher, system, node.clock, marks),
        DeadLetterList(log, fetcher, marks),
        Discard(log, system, marks, node.logger),
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


async def _ended(*reads: RowGroups | SearchHttp | SqlHttp) -> bool:
    def close() -> None:
        for one in reads:
            one.close()

    try:
        await asyncio.wait_for(asyncio.to_thread(close), STOP_SECONDS_MAX)
    except TimeoutError:
        return False
    return True


def _show_reads(fetcher: Fetcher, log: LogView, metrics: Metrics) -> None:
    def of_topics(totals: Mapping[str, int]) -> Callable[[], list[tuple[str, int]]]:
        return lambda: [(topic.name, totals[topic.name]) for topic in log.topics() if topic.name in totals]

    metrics.totals(catalogue.READ_RECORDS, of_topics(fetcher.records))
    metrics.totals(catalogue.READ_BYTES, of_topics(fetcher.bytes))


def _show_groups(groups: Groups, connection: RedisConnection, metrics: Metrics) -> None:
    def shown(what: Callable[[Lag], float]) -> Gauges:
        return lambda: [((group, key.topic, str(key.partition)), what(lag)) for group, key, lag in groups.lags()]

    metrics.gauge(catalogue.REDIS_UP, lambda: connection.answers)
    metrics.gauge(catalogue.GROUP_LAGS_LEFT_OUT, groups.lags_left_out)
    metrics.gauges(catalogue.GROUP_LAG_RECORDS, shown(lambda lag: lag.records))
    metrics.gauges(
        catalogue.GROUP_LAG_SECONDS,
        shown(lambda lag: lag.seconds),
    )
    counts = groups.counts
    metrics.gauge(catalogue.GROUPS, lambda: len(groups.member_counts()))
    metrics.gauge(catalogue.GROUP_MEMBERS, lambda: sum(groups.member_counts().values()))
    metrics.totals(
        catalogue.GROUP_REBALANCES,
        counts.rebalances.items,
    )
    metrics.totals(
        catalogue.GROUP_EVICTIONS,
        counts.evictions.items,
    )
    metrics.totals(catalogue.GROUP_COMMITS, counts.commits.items)


def _show_dead_letters(dead_letters: DeadLetters, metrics: Metrics) -> None:
    metrics.totals(catalogue.ATTEMPTS, dead_letters.attempts.items)
    metrics.totals(catalogue.DEAD_LETTERS, dead_letters.buried.items)


def _show_streams(streams: Streams, metrics: Metrics) -> None:
    metrics.gauge(catalogue.STREAMS, lambda: len(streams))
    metrics.totals(catalogue.STREAM_RECORDS, streams.records.items)
    metrics.totals(
        catalogue.STREAMS_TOO_SLOW,
        streams.too_slow.items,
    )
