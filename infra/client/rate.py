"""Holds a publisher to so many records a second."""

import threading

from siltlog.infra.clock import Clock

REQUESTS_PER_SECOND = 10
"""The records of a second are spread over so many requests."""
RECORDS_MAX = 1_000_000
CATCH_UP_S = 1.0
"""Records missed during a stall of up to this long are made up for; those of a longer stall are not."""


class Pace:
    """May be shared by threads."""

    def __init__(self, rate: float | None, clock: Clock) -> None:
        """`rate` in records a second; None is as fast as it goes."""
        self._rate = rate
        self._clock = clock
        self._next = clock.monotonic()
        """When the next record is due."""
        self._lock = threading.Lock()

    @property
    def records_max(self) -> int:
        """The most records that one request may have."""
        return RECORDS_MAX if self._rate is None else max(1, int(self._rate / REQUESTS_PER_SECOND))

    def due_s(self, records: int) -> float:
        """Says in how many seconds so many more records may go, and counts them as gone."""
        if self._rate is None:
            return 0.0
        with self._lock:
            now = self._clock.monotonic()
            due = max(self._next, now - CATCH_UP_S)
            self._next = due + records / self._rate
            return max(0.0, due - now)

    def wait(self, records: int) -> None:
        """Returns once so many more may go."""
        if self._rate is not None:
            self._clock.sleep(self.due_s(records))
