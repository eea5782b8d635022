"""Places of frames, packed: they come out as they went in, and take a tenth of the room."""

import tracemalloc

from hypothesis import given
from hypothesis import strategies as st

from siltlog.ingest.log.head import Frames
from siltlog.ingest.wal import Location

numbers = st.integers(0, 2**63 - 1)
frames = st.lists(st.tuples(numbers, st.builds(Location, numbers, numbers, numbers, st.integers(0, 2**32 - 1))))


@given(frames, frames, st.slices(40))
def test_they_come_out_as_they_went_in(
    first: list[tuple[int, Location]], second: list[tuple[int, Location]], part: slice
) -> None:
    packed = Frames(first)
    packed.join(Frames(second))
    packed.join(second)
    whole = [*first, *second, *second]
    assert list(packed) == whole
    assert len(packed) == len(whole)
    assert bool(packed) == bool(whole)
    assert [packed[at] for at in range(-len(whole), len(whole))] == [*whole, *whole]
    assert list(packed[part]) == whole[part]
    assert all(isinstance(place, Location) for _, place in packed)


small = st.lists(st.tuples(numbers, st.builds(Location, st.integers(0, 3), numbers, st.integers(0, 10**9), st.just(0))))


@given(small)
def test_their_segments_and_bytes_are_those_of_a_loop(places: list[tuple[int, Location]]) -> None:
    expected = {place.segment for _, place in places}, sum(place.length for _, place in places)
    assert Frames(places).places() == expected


def test_many_take_little_memory() -> None:
    tracemalloc.start()
    packed = Frames((n, Location(n // 1000, n, 300, n * 7 % 2**32)) for n in range(100_000))
    taken, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(packed) == 100_000
    assert taken / len(packed) < 60
