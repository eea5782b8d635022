"""What is measured of metrics between two samples."""

import asyncio

import pytest

from siltlog.infra.metrics import catalogue
from siltlog.infra.metrics.metrics import Metrics
from siltlog.server.history.sampling import BUSIEST, Sampler, Series, quantile_of

TOPICS = BUSIEST + 50


def sampled(sampler: Sampler, now_seconds: float) -> dict[Series, float]:
    return asyncio.run(sampler.sample(now_seconds))


def test_counters_become_rates_and_gauges_stay() -> None:
    metrics, totals, lags = Metrics(), {"a": 5, "b": 7}, {"a": 0.5, "b": 2.0}
    metrics.totals(catalogue.RECORDS, totals.items)
    metrics.gauges(catalogue.TABLE_LAG_SECONDS, lambda: [((topic,), lag) for topic, lag in lags.items()])
    metrics.gauge(catalogue.READY, lambda: True)
    sampler = Sampler(metrics)
    first = sampled(sampler, 100.0)
    records, lag = catalogue.RECORDS.name, catalogue.TABLE_LAG_SECONDS.name
    assert not [series for series in first if series.name == records], "of what came before nobody knows when"
    assert first[Series(catalogue.READY.name)] == 1.0
    totals.update(a=25, c=10)
    totals.pop("b")
    found = sampled(sampler, 110.0)
    assert {series: value for series, value in found.items() if series.name == records} == {
        Series(records, "topic", "a"): 2.0,
        Series(records, "topic", "c"): 1.0,
        Series(records): pytest.approx(3.0),
    }
    assert found[Series(lag)] == found[Series(lag, "topic", "b")] == 2.0


def test_a_topic_that_goes_takes_nothing_of_the_others() -> None:
    metrics, totals = Metrics(), {"a": 5, "b": 1_000}
    metrics.totals(catalogue.RECORDS, totals.items)
    sampler = Sampler(metrics)
    sampled(sampler, 100.0)
    totals["a"] = 15
    totals.pop("b")
    assert sampled(sampler, 110.0)[Series(catalogue.RECORDS.name)] == 1.0


def test_histograms_become_quantiles_of_what_was_observed_meanwhile() -> None:
    metrics = Metrics()
    sampler = Sampler(metrics)
    metrics.acknowledged(60.0)
    sampled(sampler, 100.0)
    assert not [series for series in sampled(sampler, 110.0) if series.label], "nothing was observed"
    for _ in range(90):
        metrics.acknowledged(0.0008)
    for _ in range(10):
        metrics.acknowledged(0.02)
    found = sampled(sampler, 120.0)
    assert 0.0005 < found[Series(catalogue.ACK_SECONDS.name, "quantile", "0.5")] < 0.001
    assert 0.01 < found[Series(catalogue.ACK_SECONDS.name, "quantile", "0.99")] < 0.025


@pytest.mark.parametrize(
    ("counts", "quantile", "wanted"),
    [
        ((0, 10, 10), 0.5, 1.5),
        ((10, 10, 10), 0.5, 0.5),
        ((4, 8, 8), 0.75, 1.5),
        ((0, 0, 5), 0.5, 2.0),
        ((0, 5, 10), 1.0, 2.0),
    ],
)
def test_within_a_bucket_observations_are_spread_evenly(
    counts: tuple[int, ...], quantile: float, wanted: float
) -> None:
    assert quantile_of((1.0, 2.0), counts, quantile) == wanted


def test_the_busiest_have_series_of_their_own_and_keep_them() -> None:
    metrics = Metrics()
    totals = {f"t{number:03}": 0 for number in range(TOPICS)}
    metrics.totals(catalogue.RECORD_BYTES, totals.items)
    sampler = Sampler(metrics)
    sampled(sampler, 0.0)

    def after(now_seconds: float, *rates: tuple[str, int]) -> set[str]:
        for name in totals:
            totals[name] += 100
        for name, rate in rates:
            totals[name] += rate
        found = sampled(sampler, now_seconds)
        assert found[Series(catalogue.RECORD_BYTES.name)] > 0
        return {series.value for series in found if series.label == "topic"}

    first = after(10.0)
    assert first == set(sorted(totals)[:BUSIEST])
    beside, silent = sorted(totals)[BUSIEST : BUSIEST + 2]
    assert beside not in after(20.0, (beside, 50)), "it is not twice as busy"
    assert beside in (now := after(30.0, (beside, 500)))
    assert silent not in now
    assert len(now) == BUSIEST
