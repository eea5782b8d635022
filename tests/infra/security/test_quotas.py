import pytest
from hypothesis import given
from hypothesis import strategies as st

from siltlog.infra import names
from siltlog.infra.security.quotas import PRINCIPALS_MAX, Bucket, Limits, Quota, Quotas, checked_quota, publishing

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


def quotas(**rows: Quota) -> Quotas:
    found = Quotas()
    found.change({quota_id: checked_quota(quota) for quota_id, quota in rows.items()})
    return found


def state(all_limits: tuple[Limits, ...]) -> list[float]:
    buckets = [bucket for one in all_limits for bucket in (one.requests, one.publish, one.read) if bucket]
    return [bucket.full_at for bucket in buckets]


requests = st.lists(st.tuples(st.floats(0.0, 2.0), st.integers(0, 3_000)), max_size=40)


@pytest.mark.rule("A17")
@given(requests)
def test_a_request_is_taken_of_every_bucket_or_of_none(steps: list[tuple[float, int]]) -> None:
    found = quotas(
        one=Quota(principal="key:a", publish_bytes_per_s=1_000.0, requests_per_s=2.0),
        two=Quota(topic="t", publish_bytes_per_s=700.0, requests_per_s=3.0),
    )
    now, passed_bytes, passed = 100.0, 0, 0
    largest = 0
    for pause, nbytes in steps:
        now += pause
        limits = found.both("key:a", "t", now)
        before = state(limits)
        exceeded = publishing(limits, nbytes, now)
        if exceeded is None:
            passed_bytes, passed, largest = passed_bytes + nbytes, passed + 1, max(largest, nbytes)
        else:
            after = state(limits)
            assert all(is_now <= max(was, now) + 1e-9 for was, is_now in zip(before, after, strict=True))
            assert exceeded.wait > 0
        assert passed <= 2.0 * (now - 100.0 + 2.0) + 1e-6
        assert passed_bytes <= 700.0 * (now - 100.0 + 2.0) + max(largest - 1_400, 0) + 1e-6


def test_what_is_read_is_a_debt_that_the_next_read_waits_for() -> None:
    [limits] = quotas(q=Quota(principal="key:a", read_bytes_per_s=100.0)).both("key:a", None, 0.0)
    assert limits.asking(10.0, reads=True) is None
    assert limits.was_read(500, 10.0) == pytest.approx(3.0)
    exceeded = limits.asking(11.0, reads=True)
    assert exceeded is not None
    assert (exceeded.scope, exceeded.name, exceeded.limit, exceeded.wait) == (
        "principal",
        "key:a",
        "read_bytes_per_s",
        pytest.approx(2.0),
    )
    assert limits.asking(11.0, reads=False) is None, "what reads nothing does not wait for it"
    assert limits.asking(13.1, reads=True) is None


def test_a_quota_of_its_own_is_instead_of_that_of_each_and_the_machines_user_has_none() -> None:
    found = quotas(
        each=Quota(principal="*", requests_per_s=1.0), own=Quota(principal="key:a", requests_per_s=5.0),
        topics=Quota(topic="*", read_bytes_per_s=7.0),
    )  # fmt: skip
    a, b, c = (found.of("principal", name, 0.0) for name in ("key:a", "key:b", "key:c"))
    assert a and b and c
    assert (a.quota.requests_per_s, b.quota.requests_per_s) == (5.0, 1.0)
    assert b.requests is not c.requests, "each has buckets of his own"
    assert found.of("principal", "local", 0.0) is None
    assert [one.scope for one in found.both("local", "t", 0.0)] == ["topic"]


def test_a_change_leaves_the_debts_of_who_has_the_same_quota() -> None:
    found = quotas(a=Quota(principal="key:a", requests_per_s=1.0), b=Quota(principal="key:b", requests_per_s=1.0))
    a, b = found.of("principal", "key:a", 0.0), found.of("principal", "key:b", 0.0)
    version = found.version
    found.change({"a": Quota(principal="key:a", requests_per_s=1.0), "b": Quota(principal="key:b", requests_per_s=2.0)})
    assert found.version > version
    assert found.of("principal", "key:a", 0.0) is a
    assert found.of("principal", "key:b", 0.0) is not b
    found.change({})
    assert (found.any, found.both("key:a", "t", 0.0)) == (False, ())


@pytest.mark.rule("A52")
def test_names_without_end_take_neither_memory_nor_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Making room for each of them would be a look at all of them."""
    quotas = Quotas()
    quotas.change({"each": Quota(topic="*", requests_per_s=0.001, burst_seconds=3_600.0)})
    looked = 0

    def is_idle(self: Limits, now: float) -> bool:
        nonlocal looked
        looked += 1
        return False

    monkeypatch.setattr(Limits, "is_idle", is_idle)
    for number in range(4 * PRINCIPALS_MAX):
        found = quotas.of("topic", f"t{number}", 0.0)
        assert found is not None
        found.asking(0.0, reads=False)
    assert len(quotas._limits) <= PRINCIPALS_MAX
    assert looked <= 8 * PRINCIPALS_MAX
    last = quotas.of("topic", f"t{4 * PRINCIPALS_MAX - 1}", 0.0)
    assert last is not None
    assert last.requests is not None
    assert last.requests.full_at > 0, "what was asked for last is remembered"


@pytest.mark.rule("A64")
def test_names_that_nothing_can_have_have_no_buckets() -> None:
    quotas = Quotas()
    quotas.change({"each": Quota(topic="*", requests_per_s=1.0)})
    assert quotas.of("topic", "t" * names.TOPIC_CHARS_MAX, 0.0) is not None
    assert quotas.of("topic", "t" * (names.TOPIC_CHARS_MAX + 1), 0.0) is None
    assert len(quotas._limits) == 1


def test_principals_who_share_a_quota_are_forgotten_once_their_buckets_are_full(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("siltlog.infra.security.quotas.PRINCIPALS_MAX", 3)
    found = quotas(each=Quota(principal="*", requests_per_s=1.0))
    for number in range(3):
        limits = found.of("principal", f"key:{number}", 100.0)
        assert limits is not None
        limits.asking(100.0 + number, reads=False)
    kept = found.of("principal", "key:2", 102.5)
    found.of("principal", "key:3", 102.5)
    assert found.of("principal", "key:2", 102.5) is kept, "who owes something is not"
    assert len(found._limits) == 2


@pytest.mark.parametrize(
    "wrong",
    [
        Quota(requests_per_s=1.0),
        Quota(principal="key:a", topic="t", requests_per_s=1.0),
        Quota(principal="a", requests_per_s=1.0),
        Quota(principal="group:a", requests_per_s=1.0),
        Quota(topic="no name", requests_per_s=1.0),
        Quota(principal="key:a"),
        Quota(principal="key:a", requests_per_s=0.0),
        Quota(principal="key:a", requests_per_s=float("inf")),
        Quota(principal="key:a", requests_per_s=1.0, burst_seconds=0.0),
        Quota(principal="key:a", requests_per_s=1.0, burst_seconds=1e9),
    ],
)
def test_what_bounds_nothing_is_refused(wrong: Quota) -> None:
    with pytest.raises(ValueError):
        checked_quota(wrong)
