"""An hour of steps and a day of minutes, by a clock of the test's."""

import numpy as np
import pytest

from siltlog.infra.clock import SystemClock
from siltlog.infra.metrics import catalogue
from siltlog.infra.metrics.metrics import Metrics
from siltlog.server.history import history as module
from siltlog.server.history.history import DAY_SECONDS, HOUR_SECONDS, MINUTE_SECONDS, STEP_SECONDS, History
from siltlog.server.history.sampling import Sample, Series

START = 1_800_000_000
RATE = Series(catalogue.RECORDS.name)
LAG = Series(catalogue.TABLE_LAG_SECONDS.name)
NAMES = (RATE.name, LAG.name)


def made() -> History:
    return History(Metrics(), SystemClock())


def told(history: History, seconds: int, first: int = START, **series: Series) -> int:
    """Tells it a sample each step for so long: each counts the steps."""
    for step in range(seconds // STEP_SECONDS):
        history.take({one: float(step) for one in series.values()}, first + step * STEP_SECONDS)
    return first + seconds


def test_the_last_hour_is_there_step_by_step() -> None:
    history = made()
    now = told(history, HOUR_SECONDS, rate=RATE)
    past = history.past(NAMES, lambda _: True, now - HOUR_SECONDS, now)
    assert (past.first_seconds, past.step_seconds, past.series) == (START, STEP_SECONDS, [RATE])
    assert past.values.tolist() == [[float(step) for step in range(HOUR_SECONDS // STEP_SECONDS)]]
    # A moment later the same hour is still there.
    later = history.past(NAMES, lambda _: True, now - HOUR_SECONDS + 5, now + 5)
    assert later.step_seconds <= 2 * STEP_SECONDS
    assert not np.isnan(later.values[0, 1:-1]).any()


def test_a_day_is_there_by_minutes_the_mean_of_rates_and_the_worst_of_lags() -> None:
    history = made()
    now = told(history, DAY_SECONDS, rate=RATE, lag=LAG)
    past = history.past(NAMES, lambda _: True, now - DAY_SECONDS, now, MINUTE_SECONDS)
    assert past.step_seconds == MINUTE_SECONDS
    by_series = dict(zip(past.series, past.values, strict=True))
    # Of the minute that goes on nothing is known but the steps.
    assert by_series[RATE][:-1].tolist() == [6 * minute + 2.5 for minute in range(DAY_SECONDS // 60 - 1)]
    assert by_series[LAG][:-1].tolist() == [6 * minute + 5 for minute in range(DAY_SECONDS // 60 - 1)]
    wide = history.past((LAG.name,), lambda _: True, now - DAY_SECONDS, now)
    assert wide.step_seconds == 4 * MINUTE_SECONDS
    assert wide.values[0, 0] == 23


def test_what_was_not_measured_is_not_there() -> None:
    history = made()
    told(history, 60, rate=RATE)
    now = told(history, 60, START + 300, rate=RATE)
    past = history.past(NAMES, lambda _: True, START, now)
    assert np.isnan(past.values[0]).tolist() == [False] * 6 + [True] * 24 + [False] * 6


def test_a_clock_that_goes_back_changes_nothing() -> None:
    history = made()
    now = told(history, 120, rate=RATE)
    before = history.past(NAMES, lambda _: True, START, now).values
    history.take({RATE: 99.0}, START + 30)
    assert history.past(NAMES, lambda _: True, START, now).values.tolist() == before.tolist()


def test_only_what_is_asked_for_and_may_be_seen_is_told() -> None:
    history = made()
    mine, others = Series(RATE.name, "topic", "mine"), Series(RATE.name, "topic", "others")
    now = told(history, 60, node=RATE, lag=LAG, mine=mine, others=others)
    past = history.past((RATE.name,), lambda series: series.value != "others", START, now)
    assert past.series == [RATE, mine]


def test_there_are_no_more_series_than_there_is_room_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SERIES_MAX", 3)
    history = made()
    some = [Series(RATE.name, "topic", f"t{number}") for number in range(5)]

    def sample(*of: Series) -> Sample:
        return dict.fromkeys(of, 1.0)

    history.take(sample(*some[:4]), START)
    assert history.past(NAMES, lambda _: True, START, START + 10).series == some[:3]
    history.take(sample(some[0], some[1], some[4]), START + 10)
    past = history.past(NAMES, lambda _: True, START, START + 20)
    assert past.series == [some[0], some[1], some[4]], "who is silent makes room"
    assert np.isnan(past.values[2, 0]), "it has nothing of whose row it was"


def test_a_series_that_was_silent_for_a_day_is_forgotten() -> None:
    history = made()
    told(history, 60, gone=LAG)
    now = told(history, DAY_SECONDS + 120, START + 60, rate=RATE)
    assert history.past(NAMES, lambda _: True, now - 60, now).series == [RATE]
    assert len(history._free) == 1
