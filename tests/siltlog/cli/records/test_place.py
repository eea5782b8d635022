"""Places in a topic as options say them: offsets, counts from the end, times; one way for every command."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from siltlog.cli.records.place import OFFSET_MAX, Place, parse_place, parse_time, time_meant
from siltlog.infra.clock import TIME_MAX_US, TIME_MIN_US, format_us, parse_us
from siltlog.infra.records import counted

NOW_US = parse_us("2026-11-21T07:36:00.5Z")
WORDS = ("earliest", "latest")
OFFSETS = st.integers(0, OFFSET_MAX)


@given(st.integers(-OFFSET_MAX, OFFSET_MAX))
def test_a_number_is_an_offset_and_a_negative_one_counts_from_the_end(number: int) -> None:
    assert parse_place(str(number), WORDS, NOW_US) == Place(offset=number)


@given(st.integers(-OFFSET_MAX, OFFSET_MAX), OFFSETS)
def test_what_counts_from_the_end_stays_within_the_partition(number: int, end: int) -> None:
    place = counted(number, end)
    assert place == number if number >= 0 else place == max(end - -number, 0) <= end


@given(st.integers(TIME_MIN_US, TIME_MAX_US))
def test_a_time_is_itself_whatever_the_time_is(micros: int) -> None:
    assert parse_place(format_us(micros), WORDS, NOW_US) == Place(time_us=micros)


@given(st.dates(), st.integers(TIME_MIN_US + 10**17, TIME_MAX_US))
def test_a_day_is_its_midnight_in_utc(day: "datetime", now_us: int) -> None:
    found = parse_place(day.isoformat(), WORDS, now_us)
    assert found == Place(time_us=parse_us(f"{day.isoformat()}T00:00:00Z"))


@given(st.integers(1, 10_000), st.sampled_from(["ms", "s", "m", "h", "d", "w"]), st.sampled_from(["", "-"]))
def test_a_length_of_time_is_so_long_ago(number: int, unit: str, sign: str) -> None:
    names = {"ms": "milliseconds", "s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
    text = f"{sign}{number}{unit}"
    ago = timedelta(**{names[unit]: number})
    if timedelta(microseconds=NOW_US - TIME_MIN_US) < ago:
        return
    assert parse_place(text, WORDS, NOW_US) == Place(time_us=NOW_US - ago // timedelta(microseconds=1), said=text)


@pytest.mark.parametrize(
    ("text", "time"),
    [
        ("now", "2026-11-21T07:36:00.5Z"),
        ("today", "2026-11-21T00:00:00Z"),
        ("Yesterday", "2026-11-20T00:00:00Z"),
        ("1h30m", "2026-11-21T06:06:00.5Z"),
        ("2026-11-21t07:36:00+01:00", "2026-11-21T06:36:00Z"),
        ("2026-02-28", "2026-02-28T00:00:00Z"),
    ],
)
def test_times(text: str, time: str) -> None:
    assert parse_time(text, NOW_US) == parse_us(time)
    found = parse_place(text, (), NOW_US)
    assert isinstance(found, Place) and found.time_us == parse_us(time)
    assert found.said == (text if parse_time(text, 0) != parse_time(text, NOW_US) else None)


@given(st.text(max_size=20))
def test_any_text_is_a_place_or_refused_in_a_sentence(text: str) -> None:
    try:
        found = parse_place(text, WORDS, NOW_US)
    except ValueError as error:
        assert repr(text) in str(error)
    else:
        assert found in WORDS or isinstance(found, Place)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "none of: earliest, latest, an offset"),
        ("-0", "no place"),
        ("--5", "none of"),
        ("5-", "none of"),
        ("1_000", "none of"),
        ("+5", "none of"),
        ("٣", "none of"),
        ("1M", "none of"),
        ("noon", "none of"),
        ("2026-02-30", "none of"),
        ("2026-11-21T07:36:00", "2026-11-21T07:36:00Z is UTC"),
        ("9223372036854775808", "beyond every offset"),
        ("99999999w", "before the year 1"),
    ],
)
def test_anything_else_is_refused(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        parse_place(text, WORDS, NOW_US)


@pytest.mark.parametrize(
    ("offset", "meant"),
    [
        (2026, "2026-01-01"),
        (20261121, "2026-11-21"),
        (1_795_286_433, "2026-11-21T18:40:33.000000Z"),
        (1_795_286_433_000, "2026-11-21T18:40:33.000000Z"),
        (5, None),
        (1969, None),
        (-5, None),
        (-2026, None),
        (20261321, None),
        (1 << 32, None),
        (10**13, None),
    ],
)
def test_a_number_that_looks_like_a_time(offset: int, meant: str | None) -> None:
    assert time_meant(offset) == meant
    if meant is not None:
        assert parse_time(meant, NOW_US) is not None


def test_today_is_a_day() -> None:
    day = datetime.fromtimestamp(NOW_US // 1_000_000, UTC).date()
    assert parse_time("today", NOW_US) == parse_time(day.isoformat(), 0)
