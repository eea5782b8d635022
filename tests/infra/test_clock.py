"""Times as text: RFC 3339 or milliseconds, to the microsecond, and nothing else."""

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from siltlog.infra.clock import (
    MICROS_PER_SECOND,
    TIME_MAX_US,
    TIME_MIN_US,
    AgingTime,
    SystemClock,
    format_us,
    parse_us,
    stopwatch,
)

MICROS = st.integers(TIME_MIN_US, TIME_MAX_US)


@given(MICROS)
def test_what_is_written_is_read_again(micros: int) -> None:
    text = format_us(micros)
    assert parse_us(text) == micros
    assert parse_us(text.lower()) == micros
    assert len(text) == len("2026-11-21T07:36:00.123456Z")


@given(st.datetimes(), st.integers(-14 * 60, 14 * 60))
def test_an_offset_moves_the_time(naive: datetime, minutes: int) -> None:
    moment = naive.replace(tzinfo=timezone(timedelta(minutes=minutes)))
    expected = (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
    text = moment.isoformat()
    if TIME_MIN_US <= expected <= TIME_MAX_US:
        assert parse_us(text) == expected
    else:
        with pytest.raises(ValueError, match="beyond the years"):
            parse_us(text)


@given(st.integers(TIME_MIN_US // 1000, TIME_MAX_US // 1000))
def test_milliseconds(millis: int) -> None:
    assert parse_us(str(millis)) == millis * 1000


def test_ends_of_time() -> None:
    assert format_us(TIME_MIN_US) == "0001-01-01T00:00:00.000000Z"
    assert format_us(TIME_MAX_US) == "9999-12-31T23:59:59.999999Z"
    assert parse_us("2026-11-21T07:36:00.1234567+02:00") == parse_us("2026-11-21T05:36:00.123456Z")


@pytest.mark.parametrize(
    "text",
    [
        "",
        " 5",
        "1_000",
        "٣",
        "1.5",
        "1e3",
        "0x10",
        "2026-11-21",
        "2026-11-21T07:36:00",
        "2026-11-21T07:36Z",
        "2026-11-21 07:36:00Z",
        "2026-11-21T07:36:00 02:00",
        "20261121T073600Z",
        "2026-W47-6T00:00:00Z",
        "2026-02-30T00:00:00Z",
        "2026-11-21T07:36:00,5Z",
        "2026-11-21T07:36:00+2",
        "2026-11-21T07:36:00+02:00:30",
        "yesterday",
        "9" * 5_000,
    ],
)
def test_anything_else_is_refused_with_what_to_write(text: str) -> None:
    with pytest.raises(ValueError, match=r"RFC 3339|beyond the years"):
        parse_us(text)


@pytest.mark.parametrize("text", ["253402300800000", "-62135596800001", "0001-01-01T00:00:00+00:01"])
def test_beyond_the_years_that_can_be_written(text: str) -> None:
    with pytest.raises(ValueError, match="beyond the years 1 to 9999"):
        parse_us(text)


def test_a_stopwatch_has_the_seconds_once_its_block_ended() -> None:
    clock = SystemClock()
    with stopwatch(clock) as spent:
        assert spent == []
    assert spent[0] >= 0
    first = clock.monotonic()
    assert clock.monotonic() >= first


def test_aging_time_goes_on_where_the_clock_jumps_ahead_and_back_where_it_does() -> None:
    class SetClock(SystemClock):
        set_us = 0

        def now_us(self) -> int:
            return super().now_us() + self.set_us

    clock = SetClock()
    aging = AgingTime(clock)
    before = aging.now_us()
    assert abs(before - clock.now_us()) < 60 * MICROS_PER_SECOND
    for clock.set_us, off_us in ((10**13, 0), (-(10**12), -(10**12)), (10**13, -(10**12)), (0, -(10**12))):
        assert before <= aging.now_us() - off_us < before + 60 * MICROS_PER_SECOND
