"""Sets of offsets, and what a marker says."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from siltlog.consumers.dead_letters.marker import Offsets, Run, hidden_by, markers, still_there
from siltlog.consumers.dead_letters.record import Failure, Stored, dead_letter
from siltlog.infra.records import NewRecord

RUNS = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 8)).map(lambda run: (run[0], run[0] + run[1])))


def stored(record: NewRecord, offset: int) -> Stored:
    return Stored(offset, 0, record.key, record.value, tuple(record.headers))


@given(RUNS, st.integers(0, 70))
def test_offsets_are_a_set(runs: list[Run], start: int) -> None:
    found, model = Offsets(runs), {offset for first, end in runs for offset in range(first, end)}
    assert {offset for offset in range(70) if offset in found} == model
    assert len(found) == len(model)
    assert found.lowest() == min(model, default=None)
    assert found.highest_below(start) == max((offset for offset in model if offset < start), default=None)
    assert {at for first, end in found.within(start, start + 9) for at in range(first, end)} == {
        at for at in model if start <= at < start + 9
    }
    kept = found.runs()
    assert all(end < first for (_, end), (first, _) in pairwise(kept))
    found.remove(start, start + 9)
    assert {at for at in range(70) if at in found} == {at for at in model if not start <= at < start + 9}


@given(RUNS)
def test_a_marker_says_what_it_hides(runs: list[Run]) -> None:
    hidden = Offsets(runs).runs()
    written = markers(3, hidden, "why")
    assert [run for one in written for run in hidden_by(stored(one, 100), 3) or ()] == hidden
    assert all(hidden_by(stored(one, 100), 4) == [] for one in written)


def test_a_marker_hides_only_what_lies_before_it() -> None:
    [marker] = markers(0, [(2, 9)], "")
    assert hidden_by(stored(marker, 5), 0) == [(2, 5)]


def test_no_record_of_a_user_is_a_marker() -> None:
    [marker] = markers(0, [(0, 9)], "")
    given_up = dead_letter(stored(marker, 9), Failure("t", 0, "g", 1, "e", 0))
    assert hidden_by(stored(given_up, 10), 0) is None
    for other in (marker._replace(key=b""), marker._replace(value=b"")):
        assert hidden_by(stored(other, 10), 0) is None
    wrong = (("silt.discarded", b"all"), *marker.headers[1:])
    assert hidden_by(stored(marker._replace(headers=wrong), 10), 0) is None


def test_what_is_hidden_and_the_markers_are_left_out() -> None:
    letters = [Stored(offset, 0, None, b"v", ()) for offset in range(4)]
    [marker] = markers(0, [(1, 3)], "")
    assert [record.offset for record in still_there([*letters, stored(marker, 4)], 0)] == [0, 3]
