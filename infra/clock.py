"""Time, as an argument: the only module that reads a clock or sleeps."""

import re
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from typing import Protocol

MICROS_PER_SECOND = 1_000_000
TIME_MIN_US = -62_135_596_800_000_000
TIME_MAX_US = 253_402_300_799_999_999
"""Years 1 to 9999: what RFC 3339, and every reader of the tables, can name."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_RFC_3339 = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)", re.ASCII)
_FINER = "; it looks like microseconds or nanoseconds: send milliseconds"
_MILLISECONDS = re.compile(r"-?\d{1,18}", re.ASCII)


class Clock(Protocol):
    def now_us(self) -> int:
        """Wall time, microseconds since 1970-01-01 UTC. May jump."""

    def monotonic(self) -> float:
        """Seconds that never go back; only differences mean anything."""

    def sleep(self, seconds: float) -> None:
        """Blocks the calling thread."""


class SystemClock:
    def now_us(self) -> int:
        return time.time_ns() // 1000

    def monotonic(self) -> float:
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)  # noqa: TID251


class AgingTime:
    """Tells the time of a clock, but for its jumps ahead: what is dated by it grows no older by one, and is never older
    than by the clock."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._ahead_us = sys.maxsize
        """By how much the clock is ahead of its monotonic time: the least so far."""

    def now_us(self) -> int:
        """Microseconds since 1970-01-01 UTC; goes back where the clock does."""
        # In this order: who sleeps between the two has the clock ahead, which changes nothing.
        monotonic_us = int(self._clock.monotonic() * MICROS_PER_SECOND)
        ahead_us = self._clock.now_us() - monotonic_us
        if ahead_us < self._ahead_us:
            self._ahead_us = ahead_us
        return monotonic_us + self._ahead_us


@contextmanager
def stopwatch(clock: Clock) -> Iterator[list[float]]:
    """Yields a list that holds the seconds spent in the block once it has ended."""
    spent: list[float] = []
    start = clock.monotonic()
    try:
        yield spent
    finally:
        spent.append(clock.monotonic() - start)


def format_us(micros: int) -> str:
    """RFC 3339 in UTC with six decimals: `2026-11-21T07:36:00.123456Z`."""
    seconds, rest = divmod(micros, MICROS_PER_SECOND)
    day = datetime.fromtimestamp(seconds, UTC)
    return f"{day.year:04d}-{day:%m-%dT%H:%M:%S}.{rest:06d}Z"


def format_ms(millis: int | None) -> str | None:
    """The same of milliseconds; None of None, for what is not known."""
    return None if millis is None else format_us(millis * 1000)


def parse_us(text: str) -> int:
    """Microseconds of an RFC 3339 time with an offset, or of integer milliseconds.

    Raises ValueError, with a sentence for the caller, for anything else (RFC 3339 section 5.6), and beyond the years
    1 to 9999.
    """
    if _MILLISECONDS.fullmatch(text):
        micros = int(text) * 1000
        if not TIME_MIN_US <= micros <= TIME_MAX_US:
            raise ValueError(f"{text!r} is beyond the years 1 to 9999{_FINER}")
    else:
        moment = None
        if _RFC_3339.fullmatch(upper := text.upper()):
            with suppress(ValueError):
                moment = datetime.fromisoformat(upper)
        if moment is None:
            finer = _FINER if text.strip("-").isdigit() else ""
            raise ValueError(
                f"{text[:60]!r} is not a time: use RFC 3339 with an offset, such as 2026-11-21T07:36:00Z "
                f"(a '+' in a query is written %2B), or integer milliseconds{finer}"
            )
        delta = moment - _EPOCH
        micros = (delta.days * 86_400 + delta.seconds) * MICROS_PER_SECOND + delta.microseconds
    if not TIME_MIN_US <= micros <= TIME_MAX_US:
        raise ValueError(f"{text[:60]!r} is beyond the years 1 to 9999")
    return micros
