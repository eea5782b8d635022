"""What flushes cost a month stays within a budget, and tables are as fresh as that allows."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from siltlog.infra.store import costs
from siltlog.ingest.flush.request_budget import BURST_SECONDS, DEBT_SECONDS_MAX, RequestBudget, Want

NOW = 1_000.0
FILES = st.lists(st.integers(1, 50), min_size=1, max_size=20)
DOLLARS = st.integers(1, 500)


def paced(budget: RequestBudget, files: list[int], seconds: float) -> list[tuple[float, int]]:
    """Flushes busy topics as the budget allows for so long: (time, topic) of each flush."""
    done: list[tuple[float, int]] = []
    due = [NOW] * len(files)
    now = NOW
    while now < NOW + seconds:
        ready = budget.ready([Want(at, count) for at, count in zip(due, files, strict=True)], now)
        first = min(range(len(files)), key=lambda topic: (ready[topic], due[topic]))
        now = max(now, ready[first])
        budget.spend(files[first], now)
        done.append((now, first))
        due[first] = now
    return done


def price(files: list[int], done: list[tuple[float, int]]) -> float:
    return sum(costs.flush(files[topic]).dollars for _, topic in done)


@pytest.mark.rule("F8")
@given(DOLLARS, FILES)
def test_busy_topics_spend_the_budget_and_no_more(dollars: int, files: list[int]) -> None:
    per_second = dollars / costs.SECONDS_PER_MONTH
    largest = costs.flush(max(files)).dollars
    seconds = max(20 * BURST_SECONDS, 20 * sum(costs.flush(count).dollars for count in files) / per_second)
    done = paced(RequestBudget(dollars), files, seconds)
    allowed = (done[-1][0] - NOW) * per_second
    burst = max(per_second * BURST_SECONDS, largest)
    assert allowed - largest <= price(files, done) <= allowed + burst + 2 * largest


@given(DOLLARS, FILES)
def test_all_wait_alike(dollars: int, files: list[int]) -> None:
    """Once the bucket is full a table is as old as it takes to pay for all."""
    per_second = dollars / costs.SECONDS_PER_MONTH
    every = sum(costs.flush(count).dollars for count in files) / per_second
    largest = costs.flush(max(files)).dollars / per_second
    done = paced(RequestBudget(dollars), files, 2 * BURST_SECONDS + 10 * every)
    for topic in range(len(files)):
        times = [at for at, which in done if which == topic and at > NOW + 2 * BURST_SECONDS]
        assert all(later - at <= every + largest + 1e-6 for at, later in pairwise(times))


@given(DOLLARS, st.lists(st.tuples(st.floats(0, 100), st.integers(1, 10_000)), max_size=30), st.integers(1, 50))
def test_what_did_not_wait_delays_the_rest_by_a_bounded_time(
    dollars: int, forced: list[tuple[float, int]], files: int
) -> None:
    budget, now = RequestBudget(dollars), NOW
    for passed, count in forced:
        now += passed
        budget.spend(count, now)
    per_second = dollars / costs.SECONDS_PER_MONTH
    dearest = max([costs.flush(count).dollars for _, count in forced], default=0.0)
    wait = budget.ready([Want(NOW, files)], now)[0] - now
    most = DEBT_SECONDS_MAX + max(BURST_SECONDS, dearest / per_second) + costs.flush(files).dollars / per_second
    assert wait <= most + 1e-6
    assert budget.ready([Want(NOW, files)], now + most)[0] <= now + most + 1e-6


@given(st.lists(st.builds(Want, st.floats(0, 2_000), st.integers(1, 50)), max_size=10))
def test_without_a_budget_nothing_waits(wants: list[Want]) -> None:
    budget = RequestBudget(0)
    budget.spend(100_000, NOW)
    assert budget.ready(wants, NOW) == [0.0] * len(wants)
    budget.reconfigure(1)
    assert all(at <= NOW for at in budget.ready(wants[:1], NOW))
