"""Delays, by a clock of the test's."""

from failing_store import VirtualClock

from siltlog.ingest.ownership.delays import Delays


def test_each_is_twice_as_long_up_to_the_longest_and_success_forgets_it() -> None:
    clock = VirtualClock()
    delays = Delays(clock, 1.0, 8.0)
    assert delays.left_seconds("t") == 0
    waited = []
    for _ in range(5):
        delays.failed("t")
        waited.append(delays.left_seconds("t"))
        assert delays.left_seconds("other") == 0
        clock.advance(waited[-1] / 2)
        assert delays.left_seconds("t") == waited[-1] / 2
        clock.advance(waited[-1])
        assert delays.left_seconds("t") == 0
    assert waited == [1.0, 2.0, 4.0, 8.0, 8.0]
    delays.succeeded("t")
    delays.failed("t")
    assert delays.left_seconds("t") == 1.0
