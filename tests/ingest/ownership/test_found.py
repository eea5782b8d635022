"""What recovery finds more than once: frames that were written again further on, joined."""

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from siltlog.infra.errors import CorruptData
from siltlog.ingest.ownership.found import FoundFrame, check_contiguous, each_once
from siltlog.ingest.wal import Location


def frame(first: int, end: int) -> FoundFrame:
    return FoundFrame(first, end, 1, Location(1, first, end - first, 0), lambda: pa.py_buffer(b""))


@given(st.lists(st.integers(1, 5), min_size=1, max_size=20), st.data())
def test_each_offset_comes_once_whatever_was_joined(sizes: list[int], data: st.DataObject) -> None:
    ends = [sum(sizes[: n + 1]) for n in range(len(sizes))]
    frames = [frame(end - size, end) for size, end in zip(sizes, ends, strict=True)]
    there = list(frames)
    runs = frames
    for _ in range(data.draw(st.integers(0, 3))):
        # Carried forward: neighbours are joined; of the older copies the oldest may be gone.
        joined: list[FoundFrame] = []
        while runs:
            taken = data.draw(st.integers(1, len(runs)))
            joined.append(frame(runs[0].first_offset, runs[taken - 1].next_offset))
            runs = runs[taken:]
        gone = data.draw(st.integers(0, len(there)))
        there = there[gone:] + joined
        runs = joined
    found = list(each_once(data.draw(st.permutations(there))))
    check_contiguous("t", 0, found)
    assert found[0].first_offset == 0
    assert found[-1].next_offset == ends[-1]


def test_a_hole_is_named() -> None:
    with pytest.raises(CorruptData, match="lacks offsets 3 to 4 of topic t, partition 7"):
        check_contiguous("t", 7, [frame(0, 3), frame(5, 9)])
