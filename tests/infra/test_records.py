"""Values that all rooms share."""

from hypothesis import given
from hypothesis import strategies as st

from siltlog.infra.records import records_between


@given(st.integers(0, 40), st.integers(0, 40), st.lists(st.integers(0, 40), max_size=8, unique=True).map(sorted))
def test_records_between_are_the_offsets_that_were_not_jumped(start: int, end: int, ends: list[int]) -> None:
    gaps = list(zip(ends[::2], ends[1::2], strict=False))
    jumped = {offset for first, after in gaps for offset in range(first, after)}
    assert records_between(start, end, gaps) == len(set(range(start, end)) - jumped)
