from hypothesis import given
from hypothesis import strategies as st

from siltlog.infra.security.quotas import Bucket

amounts = st.lists(st.tuples(st.floats(0.0, 3.0), st.floats(0.1, 500.0)), max_size=40)


@given(amounts)
def test_no_more_than_burst_and_rate(steps: list[tuple[float, float]]) -> None:
    """Over any time, what passed is at most the burst, the rate of that time, and one that is larger than the burst."""
    bucket, now, passed = Bucket(100.0, 2.0), 0.0, 0.0
    largest = 0.0
    for pause, amount in steps:
        now += pause
        if bucket.charge(amount, now) == 0.0:
            passed += amount
            largest = max(largest, amount)
        assert passed <= 100.0 * (now + 2.0) + max(largest - 200.0, 0.0) + 1e-6


@given(amounts, st.floats(0.1, 500.0))
def test_the_wait_is_honest(steps: list[tuple[float, float]], wanted: float) -> None:
    """After the seconds that a refusal says it passes, and not a moment before."""
    bucket, now = Bucket(100.0, 2.0), 0.0
    for pause, amount in steps:
        now += pause
        bucket.charge(amount, now)
    kept = bucket.full_at
    wait = bucket.charge(wanted, now)
    if wait:
        assert bucket.full_at == kept, "what is refused takes nothing"
        assert bucket.charge(wanted, now + wait * 0.999 - 1e-6) > 0
        assert bucket.charge(wanted, now + wait + 1e-6) == 0.0


def test_what_is_larger_than_the_burst_passes_when_nothing_was_taken_and_leaves_a_debt() -> None:
    bucket = Bucket(100.0, 2.0)
    assert bucket.charge(1_000.0, 5.0) == 0.0
    assert 9.9 < bucket.charge(200.0, 5.0) <= 10.0
    assert bucket.charge(1.0, 5.0) > 7.9
    assert bucket.charge(1.0, 13.1) == 0.0


def test_what_came_without_being_asked_for_is_owed() -> None:
    bucket = Bucket(100.0, 2.0)
    bucket.owe(300.0, 1.0)
    assert bucket.wait(1.0) == 1.0
    assert bucket.wait(2.5) == 0.0
