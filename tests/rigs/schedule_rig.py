"""A clock that tests move."""

from siltlog.infra.clock import MICROS_PER_SECOND


class MovedClock:
    def __init__(self, now_us: int) -> None:
        self._now_us = now_us
        self._monotonic = 1000.0

    def now_us(self) -> int:
        return self._now_us

    def monotonic(self) -> float:
        return self._monotonic

    def sleep(self, seconds: float) -> None:
        self.advance(seconds)

    def advance(self, seconds: float) -> None:
        self._now_us += round(seconds * MICROS_PER_SECOND)
        self._monotonic += seconds
