"""A ring beside a dictionary that forgets nothing."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from siltlog.server.history.ring import Ring, folded

STEPS = 7
ROWS = 90


@given(
    st.lists(
        st.tuples(st.integers(0, 3 * STEPS), st.dictionaries(st.integers(0, ROWS), st.integers(0, 100))), max_size=20
    ),
    st.integers(-5, 60),
    st.integers(0, 60),
)
def test_it_has_the_newest_of_what_was_put(told: list[tuple[int, dict[int, int]]], first: int, width: int) -> None:
    ring, known, step = Ring(10, STEPS), dict[tuple[int, int], int](), 0
    for more, values in told:
        step += more
        ring.advance(step)
        ring.put(step, np.array(list(values), np.intp), np.array(list(values.values()), np.float32))
        known |= {(row, step): value for row, value in values.items()}
    rows = np.arange(ROWS + 1)
    found = ring.read(rows, first, first + width)
    for row in rows:
        for at in range(first, first + width + 1):
            wanted = known.get((int(row), at)) if at > step - STEPS else None
            value = found[row, at - first]
            assert (None if np.isnan(value) else value) == wanted


def test_a_row_that_is_cleared_is_anothers() -> None:
    ring = Ring(10, STEPS)
    ring.advance(1)
    ring.put(1, np.array([3]), np.array([5.0], np.float32))
    ring.clear(3)
    ring.clear(1_000)
    assert np.isnan(ring.read(np.array([3]), 1, 1)).all()


def test_only_what_is_not_there_is_filled_in() -> None:
    ring, rows = Ring(10, STEPS), np.array([0, 70])
    ring.advance(20)
    ring.put(19, rows, np.array([1.0, 2.0], np.float32))
    ring.put(20 - STEPS, rows, np.array([9.0, 9.0], np.float32))
    first = 20 - STEPS - 1
    ring.fill(rows, first, np.arange(2 * (STEPS + 5), dtype=np.float32).reshape(2, STEPS + 5))
    found = ring.read(rows, first, 24)
    wanted = np.arange(2 * (STEPS + 5)).reshape(2, STEPS + 5).astype(float)
    wanted[:, 19 - first] = 1.0, 2.0
    wanted[:, :2] = wanted[:, 21 - first :] = np.nan
    assert np.array_equal(found[:, : STEPS + 5], wanted[:, : found.shape[1]], equal_nan=True)


@pytest.mark.parametrize(("highest", "wanted"), [(False, [2.0, 5.0]), (True, [3.0, 5.0])])
def test_steps_become_longer_ones_and_what_is_not_there_counts_for_nothing(highest: bool, wanted: list[float]) -> None:
    values = np.array([[1.0, np.nan, 3.0, np.nan, np.nan, 5.0, np.nan, np.nan, np.nan]], np.float32)
    found = folded(values, 3, np.array([highest]))
    assert found[0, :2].tolist() == wanted
    assert np.isnan(found[0, 2])
