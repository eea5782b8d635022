"""The budget: what it granted always finds room, and it grants what there is."""

from hypothesis import given, settings
from hypothesis import strategies as st

from siltlog.ingest.wal.budget import Budget
from siltlog.ingest.wal.segment import file_bytes_for, segment_room

SEGMENT = 64 * 1024
ROOM = segment_room(SEGMENT)
SUBMIT_MAX = ROOM * 3 // 4


sizes = st.integers(1, SUBMIT_MAX) | st.integers(SUBMIT_MAX // 2, SUBMIT_MAX)


def fresh(segments: int, state_bytes: int = 0) -> Budget:
    budget = Budget(segment_bytes=SEGMENT, bytes_max=segments * SEGMENT, submit_bytes_max=SUBMIT_MAX)
    budget.begin(SEGMENT, state_bytes)
    return budget


def submit(budget: Budget, size: int) -> None:
    """What the log does: on to the next segment when this one has too little left."""
    if size > budget.room:
        budget.begin(file_bytes_for(budget.state_bytes + size, SEGMENT), budget.state_bytes)
    budget.room -= size


@given(
    st.integers(2, 8),
    st.integers(0, ROOM // 8) | st.integers(0, 2 * ROOM),
    st.lists(st.tuples(sizes, st.integers(0, 3)), max_size=60),
    st.randoms(use_true_random=False),
)
@settings(max_examples=300)
def test_what_was_reserved_fits_in_any_order(segments: int, state_bytes: int, wanted, rng) -> None:
    budget = fresh(segments, state_bytes)
    waiting: list[int] = []
    for size, action in wanted:
        if budget.reserve(size, None):
            waiting.append(size)
        if action == 0:
            rng.shuffle(waiting)
            # Several that wait may be joined into one submit.
            joined = 0
            while waiting and joined + waiting[-1] <= SUBMIT_MAX and (joined == 0 or rng.random() < 0.5):
                joined += waiting.pop()
            if joined:
                submit(budget, joined)
                budget.unreserve(joined)
    rng.shuffle(waiting)
    for size in waiting:
        submit(budget, size)
        budget.unreserve(size)
    assert budget.file_bytes <= budget.file_bytes_max
    assert budget.reserved_bytes == 0


def test_a_state_that_takes_much_of_a_segment_lets_requests_in_one_at_a_time() -> None:
    budget = fresh(6, ROOM // 2)
    submit(budget, budget.room)
    assert not budget.reserve(SUBMIT_MAX, 5), "on a full disk there are usual files alone"
    for _ in range(2):
        assert budget.reserve(SUBMIT_MAX, None)
        assert not budget.reserve(1, None)
        submit(budget, SUBMIT_MAX)
        budget.unreserve(SUBMIT_MAX)
    assert not budget.reserve(SUBMIT_MAX, None)
    budget.give_back(SEGMENT)
    assert budget.reserve(SUBMIT_MAX, None)


def test_one_after_the_other_the_whole_budget_is_used() -> None:
    budget = fresh(5)
    size = 1000
    while budget.reserve(size, None):
        submit(budget, size)
        budget.unreserve(size)
    assert budget.file_bytes == 4 * SEGMENT
    assert budget.room < size
    assert budget.used_bytes() > 3 * SEGMENT
    assert budget.free_bytes(None) < size


def test_on_a_full_disk_only_what_is_there_counts() -> None:
    budget = fresh(10)
    assert not budget.reserve(budget.room + 1, 0)
    assert budget.reserve(budget.room, 0)
    budget.unreserve(budget.reserved_bytes)
    assert budget.free_bytes(0) == budget.room
    assert budget.free_bytes(1) == budget.room + ROOM < budget.free_bytes(None)


def test_control_frames_beyond_the_budget_give_nothing_to_reserve() -> None:
    budget = fresh(2)
    assert budget.file_bytes_max == SEGMENT
    submit(budget, SUBMIT_MAX)
    submit(budget, SUBMIT_MAX)
    assert budget.file_bytes == 2 * SEGMENT
    assert not budget.reserve(1, None)
    assert budget.free_bytes(None) == 0


def test_a_larger_file_counts_by_its_bytes() -> None:
    budget = fresh(8)
    large = file_bytes_for(3 * SEGMENT, SEGMENT)
    submit(budget, 3 * SEGMENT)
    assert 3 * SEGMENT < large < 4 * SEGMENT
    assert budget.used_bytes() == SEGMENT + large - budget.room
    assert budget.free_bytes(None) == budget.room + 2 * ROOM
    submit(budget, SUBMIT_MAX)
    assert budget.free_bytes(None) == budget.room + ROOM
    budget.give_back(SEGMENT + large)
    assert budget.free_bytes(None) == budget.room + 6 * ROOM


def test_a_log_of_one_file_that_is_too_large_goes_on_and_takes_no_more_before_that_is_gone() -> None:
    budget = Budget(segment_bytes=SEGMENT, bytes_max=4 * SEGMENT, submit_bytes_max=SUBMIT_MAX)
    large = file_bytes_for(9 * SEGMENT, SEGMENT)
    budget.begin(large, 0)
    budget.room = 0
    assert budget.used_bytes() > budget.free_bytes(None) > 0
    assert budget.reserve(SUBMIT_MAX, None)
    submit(budget, SUBMIT_MAX)
    budget.unreserve(SUBMIT_MAX)
    assert not budget.reserve(1, None)
    budget.give_back(large)
    assert budget.reserve(SUBMIT_MAX, None)
