"""Cron expressions: times in UTC, both ways."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from siltlog.infra.clock import MICROS_PER_SECOND, parse_us
from siltlog.infra.settings.cron import Cron

EXPRESSIONS = (
    "* * * * *",
    "*/10 * * * *",
    "5-55/10 * * * *",
    "40 */6 * * *",
    "20 4 * * 0",
    "0 0 29 2 *",
    "*/7 * * * * *",
)
TIMES = st.integers(parse_us("1990-01-01T00:00:00Z"), parse_us("2090-01-01T00:00:00Z"))


@pytest.mark.parametrize(
    ("expression", "now", "latest", "following"),
    [
        ("*/10 * * * *", "2026-11-21T07:36:00Z", "2026-11-21T07:30:00Z", "2026-11-21T07:40:00Z"),
        ("*/10 * * * *", "2026-11-21T07:40:00Z", "2026-11-21T07:40:00Z", "2026-11-21T07:50:00Z"),
        ("*/10 * * * *", "2026-11-21T07:39:59.999999Z", "2026-11-21T07:30:00Z", "2026-11-21T07:40:00Z"),
        ("20 4 * * SUN", "2026-11-21T07:36:00Z", "2026-11-15T04:20:00Z", "2026-11-22T04:20:00Z"),
        # The day on which clocks are put back in New York is like any other.
        ("30 1 * * *", "2026-11-01T05:45:00Z", "2026-11-01T01:30:00Z", "2026-11-02T01:30:00Z"),
    ],
)
def test_the_times_around_now(expression: str, now: str, latest: str, following: str) -> None:
    cron = Cron(expression)
    assert (cron.latest_us(parse_us(now)), cron.next_us(parse_us(now))) == (parse_us(latest), parse_us(following))


@given(st.sampled_from(EXPRESSIONS), TIMES)
def test_nothing_lies_between_the_last_time_and_the_next(expression: str, now_us: int) -> None:
    cron = Cron(expression)
    latest_us, next_us = cron.latest_us(now_us), cron.next_us(now_us)
    assert latest_us is not None and next_us is not None
    assert latest_us <= now_us < next_us
    assert cron.next_us(latest_us) == next_us and cron.latest_us(next_us - 1) == latest_us
    second = datetime.fromtimestamp(next_us / MICROS_PER_SECOND, UTC)
    assert second.microsecond == 0


@pytest.mark.parametrize("expression", ["", "every day", "61 * * * *", "* * * *", "0 0 31 2 *", "@daily"])
def test_what_is_none_says_what_would_be(expression: str) -> None:
    with pytest.raises(ValueError, match="5 3 "):
        Cron(expression)
