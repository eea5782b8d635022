"""A clock that tests move, and a log that keeps what is said."""

from typing import Any

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


class KeptLog:
    """Stands where structlog's logger does."""

    def __init__(self) -> None:
        self.said: list[tuple[str, dict[str, Any]]] = []

    def info(self, event: str, **values: Any) -> None:
        self.said.append((event, values))

    debug = warning = error = info

    def events(self) -> list[str]:
        return [event for event, _ in self.said]
