"""A plan says which runs are due, over a clock that only the test moves."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from siltlog.infra.clock import MICROS_PER_SECOND, parse_us
from siltlog.infra.settings.cron import Cron
from siltlog.pipelines.schedule.plan import DueRun, carried_on, due_runs, next_us

START_US = parse_us("2026-11-21T07:36:10Z")
MINUTE_US = 60 * MICROS_PER_SECOND
CRONS = {"compact": Cron("*/10 * * * *"), "retain": Cron("5-55/10 * * * *"), "vacuum": Cron("40 */6 * * *")}


def test_a_new_schedule_has_missed_nothing() -> None:
    handled = carried_on(CRONS, {}, START_US)
    assert handled == dict.fromkeys(CRONS, START_US)
    assert due_runs(CRONS, handled, START_US) == []
    assert next_us(CRONS, START_US) == parse_us("2026-11-21T07:40:00Z")
    assert next_us({}, START_US) is None


def test_however_often_it_was_missed_it_is_due_once_and_the_longest_due_first() -> None:
    handled = carried_on(CRONS, {}, START_US)
    later = START_US + 24 * 60 * MINUTE_US
    assert due_runs(CRONS, handled, later) == [
        DueRun("vacuum", parse_us("2026-11-22T06:40:00Z")),
        DueRun("compact", parse_us("2026-11-22T07:30:00Z")),
        DueRun("retain", parse_us("2026-11-22T07:35:00Z")),
    ]


def test_a_job_that_is_no_longer_in_the_schedule_is_forgotten_and_one_that_comes_back_is_new() -> None:
    handled = carried_on({"retain": CRONS["retain"]}, dict.fromkeys(CRONS, START_US), START_US + MINUTE_US)
    assert handled == {"retain": START_US}
    later = START_US + 600 * MINUTE_US
    assert [run.job for run in due_runs(CRONS, carried_on(CRONS, handled, later), later)] == ["retain"]


def test_a_clock_that_was_wrong_keeps_nothing_from_running() -> None:
    handled = carried_on(CRONS, dict.fromkeys(CRONS, START_US + 10**6 * MINUTE_US), START_US)
    assert [run.job for run in due_runs(CRONS, handled, START_US + 5 * MINUTE_US)] == ["compact"]


@pytest.mark.rule("H8")
@given(
    st.lists(
        st.tuples(st.integers(1, 200), st.booleans(), st.booleans()).map(
            lambda step: (step[0] * MICROS_PER_SECOND * 7, *step[1:])
        ),
        max_size=120,
    )
)
def test_every_time_that_comes_while_it_runs_is_run_and_those_of_a_stop_together_once(
    steps: list[tuple[int, bool, bool]],
) -> None:
    """A model that walks through time by the minute. A step: how long, whether a runner looks at its end, and whether
    what it begins is stopped halfway, so that it is due again."""
    now_us, handled = START_US, carried_on(CRONS, {}, START_US)
    open_times: dict[str, list[int]] = {job: [] for job in CRONS}
    for length_us, looks, stopped in steps:
        before_us, now_us = now_us, now_us + length_us
        for minute in range(before_us // MINUTE_US + 1, now_us // MINUTE_US + 1):
            for job, cron in CRONS.items():
                if cron.latest_us(minute * MINUTE_US) == minute * MINUTE_US:
                    open_times[job].append(minute * MINUTE_US)
        if not looks:
            continue
        handled = carried_on(CRONS, handled, now_us)
        due = due_runs(CRONS, handled, now_us)
        assert {run.job: run.due_us for run in due} == {job: times[-1] for job, times in open_times.items() if times}
        assert due == sorted(due, key=lambda run: (run.due_us, run.job))
        if not stopped:
            handled |= {run.job: run.due_us for run in due}
            open_times = {job: [] for job in CRONS}
            assert due_runs(CRONS, handled, now_us) == []
