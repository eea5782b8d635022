"""What is due: by bytes, by age, and within a budget of files."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from siltlog.ingest.flush.due import (
    AWAITED_SECONDS,
    EARLY_BYTES,
    FILES_PER_SECOND_BUDGET,
    LINGER_SECONDS_MAX,
    Load,
    Pace,
    active_partitions,
    due,
    due_at,
    held_until,
    linger_seconds,
)

NOW = 1_000.0
PACES = st.builds(
    Pace,
    ready_seconds=st.floats(0, NOW + 300),
    early_bytes=st.integers(1, 4 * EARLY_BYTES),
    awaited_seconds=st.floats(0, 600),
)
LOADS = st.builds(
    Load,
    topic=st.sampled_from(["a", "b"]),
    partition=st.integers(0, 9),
    bytes=st.integers(1, 4 * EARLY_BYTES),
    oldest_seconds=st.floats(NOW - 200, NOW),
    flush_ms=st.integers(1, 120_000),
    flush_bytes=st.integers(1, 4 * EARLY_BYTES),
    pins_oldest_segment=st.booleans(),
    hidden=st.booleans(),
    awaited=st.booleans(),
    pace=PACES,
    held_seconds=st.just(0.0) | st.floats(NOW - 10, NOW + 300),
)


def load(nbytes: int = 1, age: float = 0.0, *, partition: int = 0, pins: bool = False, awaited: bool = False) -> Load:
    return Load("t", partition, nbytes, NOW - age, 1_000, 16 * EARLY_BYTES, pins, awaited=awaited)


@given(st.lists(LOADS, max_size=20), st.floats(0, 200))
def test_what_is_due_stays_due(loads: list[Load], later: float) -> None:
    now = due(loads, NOW)
    assert (later > 0 and any(item.held_seconds > NOW for item in loads)) or set(now) <= set(due(loads, NOW + later))
    by_themselves = {item for item in loads if due_at(item, active_partitions(loads, NOW)) <= NOW}
    assert by_themselves <= set(now)
    for item in set(now) - by_themselves:
        assert item.topic in {other.topic for other in by_themselves}
        free = item._replace(held_seconds=0.0)
        assert due_at(free, active_partitions(loads, NOW)) <= NOW + item.flush_ms / 1000
    keys = [(not item.pins_oldest_segment, item.oldest_seconds) for item in now]
    assert keys == sorted(keys)


@pytest.mark.rule("F1")
@given(LOADS, st.integers(1, 100_000))
def test_bytes_pins_and_age_each_suffice(item: Load, active: int) -> None:
    at = due_at(item, active)
    assert at >= item.oldest_seconds
    assert at <= max(item.oldest_seconds + max(item.flush_ms / 1000, LINGER_SECONDS_MAX), item.held_seconds)
    if item.bytes >= item.flush_bytes or item.pins_oldest_segment:
        assert at == item.oldest_seconds
    elif item.awaited:
        assert at <= item.oldest_seconds + item.flush_ms / 1000
        assert at <= item.oldest_seconds + max(item.pace.awaited_seconds, active / FILES_PER_SECOND_BUDGET)
    elif item.bytes >= item.pace.early_bytes or item.hidden:
        assert at == item.oldest_seconds + item.flush_ms / 1000
    else:
        assert at >= item.oldest_seconds + item.flush_ms / 1000


@given(st.integers(1, 600_000), st.integers(1, 100_000), st.integers(1, 100_000))
def test_more_active_partitions_wait_no_less_and_no_longer_than_the_most(flush_ms: int, few: int, more: int) -> None:
    low, high = sorted((few, more))
    assert flush_ms / 1000 <= linger_seconds(flush_ms, low) <= linger_seconds(flush_ms, high)
    assert linger_seconds(flush_ms, high) <= max(flush_ms / 1000, LINGER_SECONDS_MAX)


def test_many_small_partitions_stay_within_the_budget_of_files() -> None:
    partitions = 50 * FILES_PER_SECOND_BUDGET
    loads = [load(partition=p, age=49.0) for p in range(partitions)]
    assert due(loads, NOW) == []
    assert len(due(loads, NOW + 1.5)) == partitions
    assert due([*loads, load(EARLY_BYTES, 1.0, partition=-1)], NOW)[0].partition == -1


def test_partitions_of_one_topic_are_flushed_together() -> None:
    """Their times differ by less than `flush.ms`: one commit a second, not one for each."""
    aged = [load(partition=p, age=p / 20) for p in range(20)]
    assert due(aged, NOW) == []
    assert len(due(aged, NOW + 0.1)) == 20
    other = aged[3]._replace(topic="other")
    assert other not in due([*aged, other], NOW + 0.1)
    many = 20 * FILES_PER_SECOND_BUDGET
    spread = [load(partition=p, age=20.55 * p / many) for p in range(many)]
    assert 0 < len(due(spread, NOW)) < 1.1 * FILES_PER_SECOND_BUDGET
    large = load(16 * EARLY_BYTES, 0.5, partition=1)
    assert due([load(partition=0), large], NOW) == [large], "one that is large goes by itself"


def test_what_pins_the_oldest_segment_goes_first() -> None:
    assert due([load(age=50.0), load(age=2.0, partition=1, pins=True)], NOW)[0].partition == 1


def test_who_waits_for_the_table_is_flushed_early_within_the_budget_of_files() -> None:
    waited = load(age=AWAITED_SECONDS, awaited=True)
    assert due([load(age=AWAITED_SECONDS), waited], NOW) == [waited]
    many = [load(partition=p, age=AWAITED_SECONDS, awaited=True) for p in range(FILES_PER_SECOND_BUDGET // 2)]
    assert due(many, NOW) == []
    assert due(many, NOW + 0.5) == many


@pytest.mark.rule("F1")
def test_what_its_topic_keeps_back_waits_and_what_is_urgent_does_not() -> None:
    held = load(age=5.0)._replace(held_seconds=NOW + 3)
    beside = load(age=2.0, partition=1)._replace(held_seconds=NOW + 3)
    assert due([held, beside], NOW) == []
    assert due([held, beside], NOW + 3) == [held, beside]
    for urgent in (load(16 * EARLY_BYTES, partition=2), load(age=1.0, partition=2, pins=True)):
        assert due([held, beside, urgent], NOW) == [urgent], "it takes nobody along who keeps to the budget"
    early = load(EARLY_BYTES, 1.0, partition=2)
    assert due([held, early], NOW) == [early]


@pytest.mark.rule("F5")
def test_those_that_are_kept_back_do_not_hold_up_who_waits_for_the_table() -> None:
    held = [load(age=5.0, partition=p)._replace(held_seconds=NOW + 99) for p in range(20 * FILES_PER_SECOND_BUDGET)]
    awaited = load(age=AWAITED_SECONDS, partition=-1, awaited=True)
    assert due([*held, awaited], NOW) == [awaited]


def test_what_was_kept_back_for_long_enough_takes_the_rest_of_its_topic_along() -> None:
    late = load(age=300.0)._replace(held_seconds=NOW)
    younger = load(age=30.0, partition=1)._replace(held_seconds=NOW + 270)
    assert due([late, younger], NOW) == [late, younger]
    assert due([late, younger._replace(topic="other")], NOW) == [late]


@pytest.mark.rule("F4")
@given(st.integers(0, 2 * EARLY_BYTES), st.floats(0, 1_000), st.integers(1, 900_000))
def test_nothing_is_kept_back_for_longer_than_five_minutes_or_flush_ms(nbytes: int, age: float, flush_ms: int) -> None:
    until = held_until(Pace(ready_seconds=NOW + 5_000), nbytes, NOW - age, flush_ms)
    assert until <= NOW - age + max(300.0, flush_ms / 1000)
    assert until == 0.0 or nbytes < EARLY_BYTES
    assert held_until(Pace(ready_seconds=NOW + 1), 1, NOW, flush_ms) == NOW + 1
