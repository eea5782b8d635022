"""Amounts with units."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from siltlog.infra.settings.units import BYTES, MILLIS, duration_ms, in_unit_of, size_bytes


@given(st.integers(-(10**18), 10**18))
def test_a_number_is_itself(number: int) -> None:
    assert duration_ms(str(number)) == size_bytes(str(number)) == number


@given(st.lists(st.tuples(st.integers(0, 10**6), st.sampled_from(sorted(MILLIS))), min_size=1, max_size=4))
def test_lengths_add_up(parts: list[tuple[int, str]]) -> None:
    expected = sum(number * MILLIS[unit] for number, unit in parts)
    assert duration_ms("".join(f"{number}{unit}" for number, unit in parts)) == expected
    assert duration_ms(" ".join(f"{number} {unit}" for number, unit in parts)) == expected


@given(st.integers(0, 10**6), st.sampled_from(sorted(BYTES)))
def test_sizes(number: int, unit: str) -> None:
    assert size_bytes(f"{number}{unit}") == size_bytes(f"{number} {unit.upper()}") == number * BYTES[unit]


@given(st.text(max_size=12))
def test_anything_else_is_refused_in_a_sentence(text: str) -> None:
    for parse in (duration_ms, size_bytes):
        try:
            assert isinstance(parse(text), int)
        except ValueError as error:
            assert repr(text) in str(error) and "such as" in str(error)


@pytest.mark.parametrize("text", ["", "d", "7D", "1M", "1h30", "-1h", "1.5ms", "1e3s", "٣s", "1 h 2", "9" * 5_000])
def test_lengths_that_are_none(text: str) -> None:
    with pytest.raises(ValueError, match="no length of time"):
        duration_ms(text)


@pytest.mark.parametrize("text", ["", "GB", "4X", "-4GB", "0.3B", "4GBs", "1GB 5MB", "4 G B", "9" * 5_000])
def test_sizes_that_are_none(text: str) -> None:
    with pytest.raises(ValueError, match="no number of bytes"):
        size_bytes(text)


def test_powers() -> None:
    assert (size_bytes("4GB"), size_bytes("4GiB"), size_bytes("1.5Ki")) == (4 * 10**9, 4 * 2**30, 1536)


@pytest.mark.parametrize(
    ("name", "text", "number"),
    [
        ("retention.ms", "7d", 604_800_000),
        ("retention.bytes", "4GB", 4_000_000_000),
        ("max.record.bytes", "1MiB", 2**20),
        ("timestamp.before.max.ms", "-1", -1),
        ("wal_bytes_max", "1GiB", 2**30),
        ("drain_ms", "20s", 20_000),
        ("retention.records", "7d", None),
        ("port", "7", None),
    ],
)
def test_the_unit_that_a_setting_is_in(name: str, text: str, number: int | None) -> None:
    assert in_unit_of(name, text) == number
