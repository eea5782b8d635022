"""When failed flushes are tried again, and what a publisher is told meanwhile."""

from typing import Any, cast

from siltlog.infra.clock import SystemClock
from siltlog.ingest.flush.retries import (
    HANGING_SECONDS,
    RETRY_MS_MIN,
    RETRY_SECONDS_BASE,
    RETRY_SECONDS_MAX,
    Retries,
)


class Topic:
    """Known by its identity alone."""


class Watch(SystemClock):
    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now


def test_a_failure_is_tried_again_later_and_later_up_to_a_bound() -> None:
    clock, topic, other = Watch(), cast(Any, Topic()), cast(Any, Topic())
    retries = Retries(clock)
    assert retries.may_start(topic) and retries.retry_ms() is None
    pauses = []
    for _ in range(8):
        failures = retries.failed(topic, ValueError("no answer"))
        pauses.append(failures.pause_seconds)
        assert failures.since_seconds == 100.0
        assert not retries.may_start(topic) and retries.may_start(other)
        assert retries.retry_ms() == int(failures.pause_seconds * 1000)
        clock.now += failures.pause_seconds
        assert retries.may_start(topic) and retries.retry_ms() == RETRY_MS_MIN
    assert pauses[0] == 2 * RETRY_SECONDS_BASE and pauses[-1] == RETRY_SECONDS_MAX and pauses == sorted(pauses)
    assert retries.succeeded(topic) and not retries.succeeded(topic)
    assert retries.succeeded_seconds == clock.now and retries.retry_ms() is None


def test_the_same_failure_is_said_more_and_more_seldom() -> None:
    retries, topic = Retries(Watch()), cast(Any, Topic())
    said = [retries.failed(topic, ValueError("no answer")).worth_saying for _ in range(16)]
    assert [number for number, told in enumerate(said, 1) if told] == [1, 2, 4, 8, 16]
    assert retries.failed(topic, ValueError("denied")).worth_saying


def test_what_hangs_is_expected_to_last_as_long_again() -> None:
    clock, topic = Watch(), cast(Any, Topic())
    retries = Retries(clock)
    retries.began(topic)
    clock.now += HANGING_SECONDS
    assert retries.retry_ms() is None
    clock.now += 1.0
    assert retries.retry_ms() == int((HANGING_SECONDS + 1.0) * 1000)
    clock.now += 60.0
    assert retries.retry_ms() == int(RETRY_SECONDS_MAX * 1000)
    retries.ended(topic)
    assert retries.retry_ms() is None
