"""Structured logs and metrics."""

import asyncio
import logging
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal

import structlog
from prometheus_client import CollectorRegistry, Gauge, Histogram, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from siltlog.infra import names
from siltlog.infra.redaction import Redaction

Logger = Any
"""structlog's bound logger: `logger.info("event in words", name=value, ...)`."""

Gauges = Callable[[], Iterable[tuple[Sequence[str], float]]]
"""(values of the labels, amount) of every series."""
Counts = Callable[[], Iterable[tuple[Sequence[str], int]]]
"""(values of the labels, total) of every series."""

_ACK_BUCKETS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
_FLUSH_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 15.0, 60.0)


def logger(level: str, log_format: Literal["console", "json"], hide: Redaction | None = None) -> Logger:
    """The logger of a process; it writes to stderr. `hide` takes out of every line what must not be read."""
    hide = hide or Redaction()
    renderer: Any = (
        structlog.processors.JSONRenderer()
        if log_format == "json"
        # The formatter that it takes where rich is installed shows the values of local variables.
        else structlog.dev.ConsoleRenderer(
            colors=sys.stderr.isatty(), exception_formatter=structlog.dev.plain_traceback
        )
    )

    def hidden(_: Any, __: str, line: Any) -> str:
        return hide(line)

    processors: list[Any] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    if log_format == "json":
        processors.append(structlog.processors.format_exc_info)
    return structlog.wrap_logger(
        structlog.WriteLogger(sys.stderr),
        processors=[*processors, renderer, hidden],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelName(level.upper())),
        cache_logger_on_first_use=True,
    )


class Metrics:
    """The metrics that `GET /metrics` shows. Every name is in `names`."""

    content_type = CONTENT_TYPE_LATEST

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._many = CollectorRegistry()
        self._acks = Histogram(
            names.METRIC_ACK_SECONDS,
            "Seconds from a group commit's start to its sync",
            buckets=_ACK_BUCKETS,
            registry=self.registry,
        )
        self._flush_seconds = Histogram(
            names.METRIC_FLUSH_SECONDS, "Seconds per flush", buckets=_FLUSH_BUCKETS, registry=self.registry
        )
        self._objects = Histogram(
            names.METRIC_OBJECT_ACK_SECONDS,
            "Seconds from an object of the journal being made to its being in the store",
            buckets=_FLUSH_BUCKETS,
            registry=self.registry,
        )
        self.replies: dict[int, int] = {}
        """HTTP replies by status: plain numbers, because a metric object costs more than it counts on the hot path."""
        self.refused: dict[str, int] = {}
        """Requests that were answered with a problem, by its code."""
        self.totals(
            names.METRIC_REFUSED, "Requests answered with a problem", "error_code", lambda: self.refused.items()
        )
        self.denied: dict[str, int] = {}
        """Requests that were refused for who sent them, by reason."""
        self.rate_limited: dict[str, int] = {}
        """Requests that were refused for a quota, by whose it is."""
        self.audit_failures = 0
        """Writes of the audit log that failed, and records that it had no room for."""
        self.totals(names.METRIC_DENIED, "Requests refused for who sent them", "reason", lambda: self.denied.items())
        self.totals(
            names.METRIC_RATE_LIMITED, "Requests refused for a quota", "scope", lambda: self.rate_limited.items()
        )
        self.counts(
            names.METRIC_AUDIT_FAILURES,
            "Writes of the audit log that failed, and records that it had no room for",
            (),
            lambda: [((), self.audit_failures)],
        )
        self.totals(names.METRIC_REQUESTS, "HTTP replies", "status", lambda: self.replies.items())

    def group(self, seconds: float) -> None:
        self._acks.observe(seconds)

    def flush(self, seconds: float) -> None:
        self._flush_seconds.observe(seconds)

    def object_landed(self, seconds: float) -> None:
        self._objects.observe(seconds)

    def gauge(self, name: str, description: str, read: Any) -> None:
        """A gauge whose value is asked for when it is shown."""
        Gauge(name, description, registry=self.registry).set_function(read)

    def gauges(self, name: str, description: str, labels: Sequence[str], read: Gauges) -> None:
        """A gauge with a series per labels, maybe thousands. `read` may be called on any thread."""
        self._many.register(_Gauges(name, description, labels, read))

    def totals(self, name: str, description: str, label: str, read: Callable[[], Iterable[tuple[object, int]]]) -> None:
        """A counter per value of `label`, kept elsewhere and asked for when it is shown."""
        self.counts(name, description, (label,), lambda: [((str(value),), total) for value, total in list(read())])

    def counts(self, name: str, description: str, labels: Sequence[str], read: Counts) -> None:
        """A counter per values of `labels`, as `totals`."""
        self.registry.register(_Counts(name, description, labels, read))

    async def text(self) -> bytes:
        """Everything. What has many series is written on a thread: it would hold up whoever publishes."""
        many = await asyncio.to_thread(generate_latest, self._many)
        return generate_latest(self.registry) + many


class _Gauges(Collector):
    def __init__(self, name: str, description: str, labels: Sequence[str], read: Gauges) -> None:
        self._name = name
        self._description = description
        self._labels = labels
        self._read = read

    def collect(self) -> Iterable[Metric]:
        family = GaugeMetricFamily(self._name, self._description, labels=self._labels)
        for values, amount in self._read():
            family.add_metric(values, amount)
        yield family


class _Counts(Collector):
    def __init__(self, name: str, description: str, labels: Sequence[str], read: Counts) -> None:
        self._name = name
        self._description = description
        self._labels = labels
        self._read = read

    def collect(self) -> Iterable[Metric]:
        family = CounterMetricFamily(self._name, self._description, labels=self._labels)
        for values, total in self._read():
            family.add_metric(values, total)
        yield family
