"""Arrays from values and values from arrays, also from slices of them."""

import subprocess
import sys

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from siltlog.infra.arrow.arrays import FEW, binary_array, binary_values

values = st.lists(st.none() | st.binary(max_size=5), max_size=12) | st.lists(
    st.binary(max_size=3), min_size=FEW - 1, max_size=FEW + 2
)


@given(values, st.integers(0, 12), st.integers(0, 12))
def test_what_went_in_comes_out_of_any_slice(given_values: list[bytes | None], start: int, count: int) -> None:
    array = binary_array(given_values)
    assert binary_values(array) == given_values
    assert binary_values(array.slice(min(start, len(array)), count)) == given_values[start : start + count]


@given(st.lists(st.none() | st.text(max_size=5), max_size=12))
def test_text_comes_as_its_bytes(texts: list[str | None]) -> None:
    expected = [None if text is None else text.encode() for text in texts]
    assert binary_values(pa.array(texts, pa.string())) == expected


@pytest.mark.rule("X6")
def test_arrays_are_made_without_pandas() -> None:
    script = """
import sys
import numpy as np
from siltlog.infra.arrow.arrays import binary_array, binary_values, fixed_array, numbers_of
import pyarrow as pa

assert binary_values(binary_array([b"a", None])) == [b"a", None]
assert list(numbers_of(fixed_array(np.array([1, 2], np.int64), pa.int64()), np.int64)) == [1, 2]
assert "pandas" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)
