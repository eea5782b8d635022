"""The metrics of a server, and how they are written down for Prometheus."""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Any, get_args

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector

from siltlog.infra.metrics import catalogue
from siltlog.infra.metrics.catalogue import Metric
from siltlog.infra.store.observed import Request

Gauges = Callable[[], Iterable[tuple[Sequence[str], float]]]
"""(values of the labels, amount) of every series."""
Counts = Callable[[], Iterable[tuple[Sequence[str], int]]]
"""(values of the labels, total) of every series."""


class Metrics:
    """The metrics that `GET /metrics` shows. What each means stands in `catalogue`.

    Counts of the hot path are plain numbers here: a metric object costs more than it counts.
    """

    content_type = CONTENT_TYPE_LATEST

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._many = CollectorRegistry()
        self._process = ProcessCollector(registry=self.registry)
        self._read: dict[str, Gauges | Counts] = {}
        """What is shown beside histograms, by name."""
        self._read_anywhere: dict[str, Gauges] = {}
        """The part of `_read` that may be read on any thread, and should be."""
        self._histograms: dict[str, Histogram] = {}
        self.wal_committed = self.histogram(catalogue.WAL_COMMIT_SECONDS)
        self.acknowledged = self.histogram(catalogue.ACK_SECONDS)
        self.loop_late = self.histogram(catalogue.LOOP_LAG_SECONDS)
        self.flushed = self.histogram(catalogue.FLUSH_SECONDS)
        self.object_landed = self.histogram(catalogue.OBJECT_ACK_SECONDS)
        self._store_seconds = Histogram(
            catalogue.STORE_SECONDS.name,
            catalogue.STORE_SECONDS.help,
            catalogue.STORE_SECONDS.labels,
            buckets=catalogue.STORE_SECONDS.buckets,
            registry=self.registry,
        )
        self._histograms[catalogue.STORE_SECONDS.name] = self._store_seconds
        self._store_errors = Counter(
            catalogue.STORE_ERRORS.name,
            catalogue.STORE_ERRORS.help,
            catalogue.STORE_ERRORS.labels,
            registry=self.registry,
        )
        for request in get_args(Request):
            self._store_errors.labels(request)
        self._read[catalogue.STORE_ERRORS.name] = self._failed_requests
        self.replies: dict[tuple[str, int], int] = {}
        """HTTP replies by operation and status."""
        self.refused: dict[str, int] = {}
        """Requests that were answered with a problem, by its code."""
        self.denied: dict[str, int] = {"forbidden": 0}
        """Requests that were refused for who sent them, by reason. What begins with its first event shows no rise."""
        self.rate_limited: dict[str, int] = {"principal": 0, "topic": 0}
        """Requests that were refused for a quota, by whose it is."""
        self.reloads: dict[str, int] = {"applied": 0, "refused": 0}
        """Times that files were read again, by what came of it."""
        self.audit_failures = 0
        """Writes of the audit log that failed, and records that it had no room for."""
        self.totals(catalogue.PROBLEMS, self.refused.items)
        self.totals(catalogue.DENIED, self.denied.items)
        self.totals(catalogue.RELOADS, self.reloads.items)
        self.totals(catalogue.RATE_LIMITED, self.rate_limited.items)
        self.counts(catalogue.AUDIT_FAILURES, lambda: [((), self.audit_failures)])
        self.counts(
            catalogue.REPLIES,
            lambda: [((operation, str(status)), total) for (operation, status), total in self.replies.items()],
        )

    def asked_store(self, request: str, seconds: float, failed: bool) -> None:
        """Counts a request to the object store; on any thread."""
        self._store_seconds.labels(request).observe(seconds)
        if failed:
            self._store_errors.labels(request).inc()

    def _failed_requests(self) -> Iterable[tuple[Sequence[str], float]]:
        for family in self._store_errors.collect():
            for sample in family.samples:
                if sample.name.endswith("_total"):
                    yield (sample.labels["request"],), sample.value

    def count_reply(self, operation: str, status: int) -> None:
        key = (operation, status)
        self.replies[key] = self.replies.get(key, 0) + 1

    def histogram(self, metric: Metric) -> Callable[[float], None]:
        """Gives what a measured amount is told to."""
        made = Histogram(metric.name, metric.help, buckets=metric.buckets, registry=self.registry)
        self._histograms[metric.name] = made
        return made.observe

    def gauge(self, metric: Metric, read: Any) -> None:
        """A gauge whose value is asked for when it is shown."""
        Gauge(metric.name, metric.help, registry=self.registry).set_function(read)
        self._read[metric.name] = lambda: [((), float(read()))]

    def gauges(self, metric: Metric, read: Gauges) -> None:
        """A gauge with a series per labels, maybe thousands. `read` may be called on any thread."""
        self._many.register(_Shown(metric, read))
        self._read_anywhere[metric.name] = read

    def totals(self, metric: Metric, read: Callable[[], Iterable[tuple[object, int]]]) -> None:
        """A counter per value of its one label, kept elsewhere and asked for when it is shown."""
        self.counts(metric, lambda: [((str(value),), total) for value, total in list(read())])

    def counts(self, metric: Metric, read: Counts) -> None:
        """A counter per values of its labels, as `totals`."""
        self.registry.register(_Shown(metric, read))
        self._read[metric.name] = read

    async def amounts(self, metrics: Iterable[Metric]) -> dict[str, list[tuple[Sequence[str], float]]]:
        """The series of some counters and gauges now, by the name of the metric: what has many is read on a thread."""
        wanted = [metric.name for metric in metrics if not metric.buckets]
        anywhere = {name: read for name in wanted if (read := self._read_anywhere.get(name)) is not None}
        found = {name: list(read()) for name in wanted if (read := self._read.get(name)) is not None}
        found |= {family: [((), amount)] for family, amount in self._of_process() if family in wanted}
        return found | await asyncio.to_thread(lambda: {name: list(read()) for name, read in anywhere.items()})

    def _of_process(self) -> Iterable[tuple[str, float]]:
        for family in self._process.collect():
            for sample in family.samples:
                yield sample.name, sample.value

    def value(self, metric: Metric) -> float:
        """The sum of the series of a counter or gauge that is read on the loop; 0 where there is none."""
        read = self._read.get(metric.name)
        return 0.0 if read is None else float(sum(amount for _, amount in read()))

    def buckets(self, metric: Metric) -> list[int]:
        """How many observations a histogram has, whatever their labels, up to the bound of each bucket, and in all."""
        found = self._histograms.get(metric.name)
        if found is None:
            return []
        [family] = found.collect()
        counts: dict[str, int] = {}
        for sample in family.samples:
            if sample.name.endswith("_bucket"):
                bound = sample.labels["le"]
                counts[bound] = counts.get(bound, 0) + int(sample.value)
        return list(counts.values())

    async def text(self) -> bytes:
        """Everything. What has many series is written on a thread: it would hold up whoever publishes."""
        many = await asyncio.to_thread(generate_latest, self._many)
        return generate_latest(self.registry) + many


class _Shown(Collector):
    """A counter or gauge whose series are asked for."""

    def __init__(self, metric: Metric, read: Gauges | Counts) -> None:
        self._metric = metric
        self._read = read

    def collect(self) -> Iterable[Family]:
        metric = self._metric
        kind = CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily
        family = kind(metric.name, metric.help, labels=metric.labels)
        for values, amount in self._read():
            family.add_metric(values, amount)
        yield family
