"""What a soak calls growth."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.soak.__main__ import LOOKED, growing, summaries_of
from benchmarks.soak.trend import trend

COUNT = 120


@given(st.floats(1, 1e6), st.lists(st.floats(0.9, 1.1), min_size=COUNT, max_size=COUNT))
def test_what_stays_about_the_same_does_not_grow(level: float, noise: list[float]) -> None:
    assert not trend([level * each for each in noise], allowance=0).grows


@given(st.floats(1, 1e6), st.floats(0.02, 10))
def test_what_rises_all_the_time_grows(level: float, slope: float) -> None:
    assert trend([level * (1 + slope * number) for number in range(COUNT)], allowance=0).grows


def test_what_comes_to_rest_or_goes_up_and_down_does_not_grow() -> None:
    rest = [100 * (1 - math.exp(-number / 15)) for number in range(COUNT)]
    saw = [100 + 40 * (number % 20) for number in range(COUNT)]
    step = [100.0] * 60 + [200.0] * 60
    assert not any(trend(samples, allowance=0).grows for samples in (rest, saw, step))


def test_a_little_is_allowed() -> None:
    samples = [float(number) for number in range(COUNT)]
    assert trend(samples, allowance=50).grows
    assert not trend(samples, allowance=60).grows


def test_few_samples_tell_nothing() -> None:
    with pytest.raises(ValueError, match="10 samples are too few"):
        trend([1.0] * 10, allowance=0)


def test_what_grows_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    samples = {name: [(float(at), 50.0) for at in range(COUNT)] for name in LOOKED}
    assert growing(samples) == []
    samples["descriptors"] = [(float(at), 50.0 + 2 * at) for at in range(COUNT)]
    (told,) = growing(samples)
    assert told.startswith("descriptors: ") and told.endswith("it grows without bound")
    assert len(capsys.readouterr().out.splitlines()) == 2 * len(LOOKED)
    assert len(summaries_of(samples)) == len(LOOKED) * COUNT
