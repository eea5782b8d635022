"""Samples of a node's metrics: counters become rates, histograms quantiles of what was observed meanwhile."""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from siltlog.infra.metrics.catalogue import Metric
from siltlog.infra.metrics.metrics import Metrics
from siltlog.server.history.kept import BUSY, GROUP, KEPT, QUANTILES, TOPIC, Kept

BUSIEST = 200
"""How many topics, and how many groups, have series of their own."""
FAVOUR = 2.0
"""What has a series keeps it until another is so many times as busy: a series is no use that comes and goes."""
QUANTILE = "quantile"
_FOLDS: Mapping[str, Callable[[Iterable[float]], float]] = {"sum": sum, "max": max}


class Series(NamedTuple):
    """The name of a metric, and the label that tells it from others of the same; without one it is of the node."""

    name: str
    label: str = ""
    value: str = ""


Sample = dict[Series, float]


class Sampler:
    """Used on one event loop."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._before_seconds = 0.0
        self._totals: dict[Series, float] = {}
        self._buckets: dict[str, list[int]] = {}
        self._busiest: dict[str, set[str]] = {TOPIC: set(), GROUP: set()}

    async def sample(self, now_seconds: float) -> Sample:
        """The values now, and for counters and histograms what was since the last call: nothing at the first."""
        amounts = await self._metrics.amounts(kept.metric for kept in KEPT)
        # On a thread: of ten thousand topics it would hold up whoever publishes.
        return await asyncio.to_thread(self._sample_of, amounts, now_seconds)

    def _sample_of(self, amounts: Mapping[str, Sequence[tuple[Sequence[str], float]]], now_seconds: float) -> Sample:
        passed, self._before_seconds = now_seconds - self._before_seconds, now_seconds
        folded = {kept.metric.name: _folded(kept, amounts.get(kept.metric.name, ())) for kept in KEPT}
        found: Sample = {}
        totals: dict[Series, float] = {}
        for kept in KEPT:
            metric = kept.metric
            if metric.buckets:
                found |= self._quantiles(metric)
            elif metric.kind == "gauge":
                found |= folded[metric.name]
            else:
                totals |= folded[metric.name]
        if self._totals:
            found |= self._rates(totals, passed)
        self._totals = totals
        return self._of_busiest(found)

    def _rates(self, totals: Sample, passed_seconds: float) -> Sample:
        rates = {
            series: max(total - self._totals.get(series, 0.0), 0.0) / passed_seconds for series, total in totals.items()
        }
        # The sum of those that are there: what is gone with a topic was no fall.
        sums: dict[str, float] = {}
        for series, rate in rates.items():
            if series.label:
                sums[series.name] = sums.get(series.name, 0.0) + rate
        return rates | {Series(name): rate for name, rate in sums.items()}

    def _quantiles(self, metric: Metric) -> Sample:
        counts = self._metrics.buckets(metric)
        before, self._buckets[metric.name] = self._buckets.get(metric.name), counts
        if before is None or not counts or counts[-1] == before[-1]:
            return {}
        since = [count - earlier for count, earlier in zip(counts, before, strict=True)]
        return {
            Series(metric.name, QUANTILE, str(quantile)): quantile_of(metric.buckets, since, quantile)
            for quantile in QUANTILES
        }

    def _of_busiest(self, found: Sample) -> Sample:
        for label, busiest in self._busiest.items():
            scores: dict[str, float] = {}
            for series, value in found.items():
                if series.label == label:
                    more = value if series.name in _BUSY_NAMES else 0.0
                    scores[series.value] = scores.get(series.value, 0.0) + more
            if len(scores) > BUSIEST:
                rank = sorted(scores, key=lambda name: (-scores[name] * (FAVOUR if name in busiest else 1.0), name))
                self._busiest[label] = set(rank[:BUSIEST])
            else:
                self._busiest[label] = set(scores)
        return {
            series: value
            for series, value in found.items()
            if series.label not in self._busiest or series.value in self._busiest[series.label]
        }


_BUSY_NAMES = {metric.name for metric in BUSY}


def _folded(kept: Kept, amounts: Iterable[tuple[Sequence[str], float]]) -> Sample:
    by: dict[str, list[float]] = {}
    every: list[float] = []
    at = kept.metric.labels.index(kept.by) if kept.by else -1
    for labels, amount in amounts:
        every.append(amount)
        if kept.by:
            by.setdefault(labels[at], []).append(amount)
    fold, name = _FOLDS[kept.fold], kept.metric.name
    found = {Series(name, kept.by, value): float(fold(some)) for value, some in by.items()}
    if every or kept.by:
        found[Series(name)] = float(fold(every or (0.0,)))
    return found


def quantile_of(bounds: Sequence[float], counts: Sequence[int], quantile: float) -> float:
    """The quantile of observations of which `counts` are at most each of `bounds`, and the last of them any.

    Within a bucket they are taken to be spread evenly; above the highest bound it is that bound
    (https://prometheus.io/docs/practices/histograms/).
    """
    rank = quantile * counts[-1]
    lower, below = 0.0, 0
    for bound, count in zip(bounds, counts, strict=False):
        if count >= rank and count > below:
            return lower + (bound - lower) * (rank - below) / (count - below)
        lower, below = bound, count
    return lower
