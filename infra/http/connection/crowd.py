"""The connections that are open: how many there may be, and what those hear that are too many."""

from typing import Any

from siltlog.infra.clock import Clock
from siltlog.infra.errors import SiltlogError, problem
from siltlog.infra.http.drain_rate import DrainRate

KEEP_ALIVE_SECONDS = 75.0


class Crowd:
    def __init__(self, connections_max: int, clock: Clock) -> None:
        self.open: set[Any] = set()
        self.excess = 0
        """How many of them are above the limit."""
        self._soonest_seconds = KEEP_ALIVE_SECONDS
        self._max = connections_max
        self._clock = clock
        self._closed = DrainRate(clock.monotonic())

    def joined(self, connection: Any) -> bool:
        """Counts a connection; True when it is one too many."""
        self.open.add(connection)
        if len(self.open) - self.excess <= self._max:
            return False
        self.excess += 1
        return True

    def looked_at(self, soonest_seconds: float) -> None:
        """The next of them that stays idle is closed in so long."""
        self._soonest_seconds = soonest_seconds

    def left(self, connection: Any, *, excess: bool) -> None:
        self.open.discard(connection)
        self.excess -= excess
        self._closed.left(1, self._clock.monotonic())

    def full(self) -> SiltlogError:
        """The refusal for a connection that is one too many."""
        retry_ms = self._closed.retry_ms(1, self._clock.monotonic())
        return problem(
            "overloaded",
            f"{self._max} connections are open, which is the limit (SILT_CONNECTIONS_MAX); use one connection for many "
            "requests, or try again later",
            retry_after_ms=retry_ms or max(int(self._soonest_seconds * 1000), 1),
        )
