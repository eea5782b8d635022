"""An hour of steps, a day of minutes and a month of hours, by a clock of the test's."""

import asyncio
from collections.abc import Callable, Collection
from typing import Any

import numpy as np
import pytest

from siltlog.infra.clock import SystemClock
from siltlog.infra.metrics import catalogue
from siltlog.infra.metrics.metrics import Metrics
from siltlog.server.history import history as module
from siltlog.server.history import series_rings
from siltlog.server.history.history import History, Past, grid_of
from siltlog.server.history.sampling import Sample, Series
from siltlog.server.history.series_rings import (
    DAY_SECONDS,
    HOUR_SECONDS,
    MINUTE_SECONDS,
    MONTH_SECONDS,
    STEP_SECONDS,
    SeriesRings,
)

START = 1_800_000_000
RATE = Series(catalogue.RECORDS.name)
LAG = Series(catalogue.TABLE_LAG_SECONDS.name)
NAMES = (RATE.name, LAG.name)


def made() -> History:
    return History(Metrics(), SystemClock())


def past(
    history: History,
    names: Collection[str],
    seen: Callable[[Series], bool],
    from_seconds: int,
    to_seconds: int,
    step_seconds: int = 0,
    now: int = 0,
) -> Past:
    """What is told at the end of that time, or at another."""
    grid = grid_of(from_seconds, to_seconds, now or to_seconds, step_seconds)
    return asyncio.run(history.past(names, seen, grid))


def told(history: History, seconds: int, first: int = START, **series: Series) -> int:
    """Tells it a sample each step for so long: each counts the steps."""
    for step in range(seconds // STEP_SECONDS):
        history.take({one: float(step) for one in series.values()}, first + step * STEP_SECONDS)
    return first + seconds


def test_the_last_hour_is_there_step_by_step() -> None:
    history = made()
    now = told(history, HOUR_SECONDS, rate=RATE)
    found = past(history, NAMES, lambda _: True, now - HOUR_SECONDS, now)
    assert (found.first_seconds, found.step_seconds, found.series) == (START, STEP_SECONDS, [RATE])
    assert found.values.tolist() == [[float(step) for step in range(HOUR_SECONDS // STEP_SECONDS)]]
    # A moment later the same hour is still there.
    later = past(history, NAMES, lambda _: True, now - HOUR_SECONDS + 5, now + 5)
    assert later.step_seconds <= 2 * STEP_SECONDS
    assert not np.isnan(later.values[0, 1:-1]).any()


def test_a_day_is_there_by_minutes_the_mean_of_rates_and_the_worst_of_lags() -> None:
    history = made()
    now = told(history, DAY_SECONDS, rate=RATE, lag=LAG)
    found = past(history, NAMES, lambda _: True, now - DAY_SECONDS, now, MINUTE_SECONDS)
    assert found.step_seconds == MINUTE_SECONDS
    by_series = dict(zip(found.series, found.values, strict=True))
    # Of the minute that goes on nothing is known but the steps.
    assert by_series[RATE][:-1].tolist() == [6 * minute + 2.5 for minute in range(DAY_SECONDS // 60 - 1)]
    assert by_series[LAG][:-1].tolist() == [6 * minute + 5 for minute in range(DAY_SECONDS // 60 - 1)]
    wide = past(history, (LAG.name,), lambda _: True, now - DAY_SECONDS, now)
    assert wide.step_seconds == 4 * MINUTE_SECONDS
    assert wide.values[0, 0] == 23


def test_what_was_not_measured_is_not_there() -> None:
    history = made()
    told(history, 60, rate=RATE)
    now = told(history, 60, START + 300, rate=RATE)
    found = past(history, NAMES, lambda _: True, START, now)
    assert np.isnan(found.values[0]).tolist() == [False] * 6 + [True] * 24 + [False] * 6


def test_a_clock_that_goes_back_changes_nothing() -> None:
    history = made()
    now = told(history, 120, rate=RATE)
    before = past(history, NAMES, lambda _: True, START, now).values
    history.take({RATE: 99.0}, START + 30)
    assert past(history, NAMES, lambda _: True, START, now).values.tolist() == before.tolist()


def test_only_what_is_asked_for_and_may_be_seen_is_told() -> None:
    history = made()
    mine, others = Series(RATE.name, "topic", "mine"), Series(RATE.name, "topic", "others")
    now = told(history, 60, node=RATE, lag=LAG, mine=mine, others=others)
    found = past(history, (RATE.name,), lambda series: series.value != "others", START, now)
    assert found.series == [RATE, mine]


def test_there_are_no_more_series_than_there_is_room_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(series_rings, "SERIES_MAX", 3)
    history = made()
    some = [Series(RATE.name, "topic", f"t{number}") for number in range(5)]

    def sample(*of: Series) -> Sample:
        return dict.fromkeys(of, 1.0)

    history.take(sample(*some[:4]), START)
    assert past(history, NAMES, lambda _: True, START, START + 10).series == some[:3]
    history.take(sample(some[0], some[1], some[4]), START + 10)
    found = past(history, NAMES, lambda _: True, START, START + 20)
    assert found.series == [some[0], some[1], some[4]], "who is silent makes room"
    assert np.isnan(found.values[2, 0]), "it has nothing of whose row it was"


@pytest.mark.rule("MH3")
def test_those_that_are_told_do_not_make_room_for_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(series_rings, "SERIES_MAX", 3)
    history = made()
    some = [Series(RATE.name, "topic", f"t{number}") for number in range(4)]
    for step in range(3):
        history.take({one: float(step) for one in (some if step == 0 else [some[3], *some[:3]])}, START + step * 10)
    found = past(history, NAMES, lambda _: True, START, START + 30)
    assert found.series == some[:3]
    assert found.values.tolist() == [[0.0, 1.0, 2.0]] * 3


@pytest.mark.rule("MH3")
def test_whose_row_became_anothers_while_it_was_read_is_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(series_rings, "SERIES_MAX", 1)
    history = made()
    mine, others = Series(RATE.name, "topic", "mine"), Series(RATE.name, "topic", "others")
    history.take({mine: 1.0}, START)
    read = module._past
    calls = 0

    def meanwhile(*arguments: Any) -> Past:
        nonlocal calls
        calls += 1
        if calls == 1:
            history.take({others: 7.0}, START + 10)
        return read(*arguments)

    monkeypatch.setattr(module, "_past", meanwhile)
    found = past(history, NAMES, lambda series: series == mine, START, START + 20)
    assert (calls, found.series) == (2, [])


def test_a_series_that_no_hour_tells_of_is_forgotten() -> None:
    history = made()
    told(history, 60, gone=LAG)
    now = START + MONTH_SECONDS + 2 * HOUR_SECONDS
    told(history, 120, now, rate=RATE)
    assert len(history._rings._rows) == 2
    told(history, HOUR_SECONDS, now + 120, rate=RATE)
    assert len(history._rings._rows) == 1
    told(history, 60, now + 2 * HOUR_SECONDS, other=LAG)
    assert sorted(history._rings._rows.values()) == [0, 1], "its row is another's"


def test_a_month_is_there_by_hours() -> None:
    history = made()
    first = START // HOUR_SECONDS * HOUR_SECONDS
    for hour in range(50):
        told(history, HOUR_SECONDS, first + hour * HOUR_SECONDS, rate=RATE, lag=LAG)
    now = told(history, 600, first + 50 * HOUR_SECONDS, rate=RATE)
    found = past(history, NAMES, lambda _: True, now - 30 * DAY_SECONDS, now, HOUR_SECONDS)
    assert (found.step_seconds, found.values.shape[1]) == (HOUR_SECONDS, 721)
    by_series = dict(zip(found.series, found.values, strict=True))
    assert by_series[RATE][-51:-1].tolist() == [359 / 2] * 50
    assert by_series[LAG][-51:-1].tolist() == [359] * 50
    assert not np.isnan(by_series[RATE][-1]), "of the hour that goes on there are minutes"
    assert np.isnan(by_series[RATE][:-51]).all()


def recorded(minutes: int, end: int) -> SeriesRings:
    """What there was of the minutes before a time: each counts those that were left."""
    rings = SeriesRings()
    for left in range(minutes, 0, -1):
        rows = rings.rows_of([RATE, LAG], end - left * 60)
        rings.put(rings.minutes, end // 60 - left, rows, [float(left)] * 2)
    return rings


def test_what_was_recorded_is_the_past_of_what_is_sampled() -> None:
    history = made()
    begin = START // HOUR_SECONDS * HOUR_SECONDS + 1_800
    now = told(history, 300, begin, rate=RATE)
    asyncio.run(history.go_on_from(recorded(600, begin)))
    day = past(history, (RATE.name,), lambda _: True, now - DAY_SECONDS, now, 60)
    assert day.values[0][-605:].tolist() == [
        *(float(left) for left in range(600, 0, -1)),
        *(6 * m + 2.5 for m in range(5)),
    ]
    hour = past(history, (RATE.name,), lambda _: True, now - HOUR_SECONDS, now)
    assert hour.step_seconds == STEP_SECONDS
    assert hour.values[0][-30:].tolist() == [float(step) for step in range(30)]
    assert hour.values[0][-42:-30].tolist() == [2.0] * 6 + [1.0] * 6, "of what was before there are minutes"
    month = past(history, (LAG.name,), lambda _: True, now - 5 * DAY_SECONDS, now, HOUR_SECONDS)
    assert month.values[0][-3:].tolist() == [150.0, 90.0, 30.0], (
        "the highest of the hours that are over, and of this one"
    )
    told(history, 120, now, rate=RATE)
    assert past(history, (RATE.name,), lambda _: True, now, now + 120).values.tolist() == [
        [float(n) for n in range(12)]
    ]


def test_what_is_sampled_is_not_lost_where_too_much_was_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(series_rings, "SERIES_MAX", 2)
    history = made()
    mine = Series(RATE.name, "topic", "mine")
    now = told(history, 60, mine=mine)
    asyncio.run(history.go_on_from(recorded(10, START)))
    found = past(history, NAMES, lambda _: True, now - 600, now)
    assert mine in found.series
    assert len(found.series) == 2
