"""A pace lets so many records a second through, by a clock that only sleeping moves."""

import pytest

from siltlog.infra.client.rate import RECORDS_MAX, Pace


class Sleeper:
    def __init__(self) -> None:
        self.now = 0.0

    def now_us(self) -> int:
        return int(self.now * 1_000_000)

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.mark.parametrize("size", [1, 7, 100])
def test_records_go_at_the_rate(size: int) -> None:
    clock = Sleeper()
    pace = Pace(50.0, clock)
    assert pace.records_max == 5
    for before in range(0, 1000, size):
        pace.wait(size)
        assert clock.now == pytest.approx(before / 50)


def test_of_time_that_was_lost_a_second_is_caught_up() -> None:
    clock = Sleeper()
    pace = Pace(1.0, clock)
    assert pace.records_max == 1
    clock.now = 10.0
    gone = []
    for _ in range(4):
        pace.wait(1)
        gone.append(clock.now)
    assert gone == [10.0, 10.0, 11.0, 12.0]


def test_no_rate_waits_for_nothing() -> None:
    clock = Sleeper()
    free = Pace(None, clock)
    free.wait(1_000_000)
    free.wait(1)
    assert (clock.now, free.records_max) == (0.0, RECORDS_MAX)
