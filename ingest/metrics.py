"""What metrics show of the log: its budgets, its topics, and how far their tables are behind."""

import shutil
from collections.abc import Callable, Mapping
from functools import partial

from siltlog.infra.clock import Clock
from siltlog.infra.limits import COMPACTED_FILE_BYTES_MIN
from siltlog.infra.metrics import catalogue
from siltlog.infra.metrics.catalogue import Metric
from siltlog.infra.metrics.metrics import Metrics
from siltlog.infra.node import Node
from siltlog.infra.table.data_file import DataFile
from siltlog.ingest.flush.burst import Burst
from siltlog.ingest.log.log import Log
from siltlog.ingest.log.topic import TopicLog

_OF_TOPICS: tuple[tuple[Metric, Callable[[TopicLog], int]], ...] = (
    (catalogue.RECORDS, lambda topic: topic.records_total),
    (catalogue.RECORD_BYTES, lambda topic: topic.bytes_total),
    (
        catalogue.DUPLICATE_RECORDS,
        lambda topic: topic.producers.duplicates_total,
    ),
    (
        catalogue.PRODUCERS_FORGOTTEN,
        lambda topic: topic.producers.forgotten_total,
    ),
    (catalogue.FLUSHES, lambda topic: topic.counts.flushes),
    (catalogue.FLUSHED_RECORDS, lambda topic: topic.counts.flushed_records),
    (catalogue.FLUSHED_FILES, lambda topic: topic.counts.flushed_files),
    (catalogue.FLUSH_FAILURES, lambda topic: topic.counts.flush_failures),
)
"""Counters of each topic. They are the topic's, so that one that is deleted is counted no more."""


def show(node: Node, log: Log, burst: Burst, metrics: Metrics) -> None:
    topics = log.topic_logs
    metrics.gauge(catalogue.WAL_USED_BYTES, lambda: log.wal.used_bytes)
    metrics.gauge(catalogue.WAL_BYTES_MAX, lambda: log.wal.bytes_max)
    metrics.gauge(catalogue.DISK_FREE_BYTES, lambda: shutil.disk_usage(node.settings.data_dir).free)
    metrics.gauges(catalogue.TABLE_LAG_SECONDS, partial(_table_lags, log, node.clock))
    metrics.gauges(catalogue.TABLE_LIVE_FILES, partial(_files_of_topics, log, len))
    metrics.gauges(catalogue.TABLE_SMALL_FILES, partial(_files_of_topics, log, _small))
    metrics.gauge(catalogue.HEAD_BYTES, log.head_bytes)
    metrics.gauge(catalogue.UNFLUSHED_BYTES, topics.unflushed_bytes)
    metrics.gauge(catalogue.BURST_SECONDS_LEFT, lambda: burst.seconds_left)
    metrics.gauge(
        catalogue.OBJECT_STALL_SECONDS,
        lambda: log.journal.stalled_seconds,
    )
    metrics.gauge(catalogue.OBJECTS_PINNED, lambda: log.journal.objects)
    for metric, read in _OF_TOPICS:
        metrics.totals(metric, partial(_by_topic, log, read))
    metrics.gauge(catalogue.PRODUCERS, topics.producers)
    metrics.gauge(catalogue.IDEMPOTENCY_KEYS, topics.idempotency_keys)
    metrics.gauge(
        catalogue.PRODUCER_STATE_BYTES,
        lambda: topics.producer_bytes.producers + topics.producer_bytes.keys,
    )
    metrics.gauge(catalogue.TOPICS, lambda: len(log.topics()))
    metrics.gauge(
        catalogue.TOPICS_UNAVAILABLE,
        lambda: sum(topic.state in ("unavailable", "fenced") or bool(topic.flush_error) for topic in log.topics()),
    )


def _by_topic(log: Log, read: Callable[[TopicLog], int]) -> list[tuple[str, int]]:
    return [(topic.name, read(topic)) for topic in log.topics()]


def _table_lags(log: Log, clock: Clock) -> list[tuple[tuple[str], float]]:
    now = clock.monotonic()
    lags = []
    for topic in list(log.topics()):
        since = [at for part in topic.partitions if (at := part.head.oldest_unflushed_seconds) is not None]
        lags.append(((topic.name,), now - min(since) if since else 0.0))
    return lags


def _files_of_topics(log: Log, count: Callable[[Mapping[str, DataFile]], int]) -> list[tuple[tuple[str], float]]:
    return [((topic.name,), count(topic.snapshot.files)) for topic in list(log.topics())]


def _small(files: Mapping[str, DataFile]) -> int:
    return sum(file.size_bytes < COMPACTED_FILE_BYTES_MIN for file in files.values())
