"""At most so many records a second."""

from siltlog.infra.clock import Clock

REQUESTS_PER_SECOND = 10
"""The records of a second are spread over so many requests."""
RECORDS_MAX = 1_000_000


class Pace:
    def __init__(self, rate: float | None, clock: Clock) -> None:
        """`rate` in records a second; None is as fast as it goes."""
        self._rate = rate
        self._clock = clock
        self._started = clock.monotonic()
        self._records = 0

    @property
    def records_max(self) -> int:
        """Of one request."""
        return RECORDS_MAX if self._rate is None else max(1, int(self._rate / REQUESTS_PER_SECOND))

    def wait(self, records: int) -> None:
        """Returns once so many more may go."""
        if self._rate is not None:
            self._clock.sleep(max(0.0, self._started + self._records / self._rate - self._clock.monotonic()))
            self._records += records
