"""Time, as an argument: the only module that reads a clock or sleeps."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Protocol

MICROS_PER_SECOND = 1_000_000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


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


def parse_us(text: str) -> int:
    """Microseconds of an RFC 3339 time with an offset, or of integer milliseconds.

    Raises ValueError, with a sentence for the caller, for anything else (RFC 3339 section 5.6).
    """
    try:
        return int(text) * 1000
    except ValueError:
        pass
    moment: datetime | None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None or "T" not in text.upper():
        raise ValueError(
            f"{text[:60]!r} is not a time: use RFC 3339 with an offset, such as 2026-11-21T07:36:00Z "
            "(a '+' in a query is written %2B), or integer milliseconds"
        )
    delta = moment - _EPOCH
    return (delta.days * 86_400 + delta.seconds) * MICROS_PER_SECOND + delta.microseconds
