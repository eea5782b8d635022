"""Runs that have ended and are still to be told of: a server may be away for a while."""

from collections import deque
from collections.abc import Callable

from siltlog.infra.clock import Clock
from siltlog.pipelines.schedule.runs import JobRunRequest

TELL_AGAIN_SECONDS = 60.0
UNTOLD_MAX = 100
"""Runs that are kept while no server can be told of them."""


class Untold:
    """Used on the thread of the schedule."""

    def __init__(self, record: Callable[[JobRunRequest], bool], clock: Clock) -> None:
        """`record` is told of each run, and again later where it says False."""
        self._record = record
        self._clock = clock
        self._runs: deque[JobRunRequest] = deque(maxlen=UNTOLD_MAX)
        self._tell_at = 0.0

    def add(self, run: JobRunRequest) -> None:
        """The next `tell` tells of it."""
        self._runs.append(run)
        self._tell_at = 0.0

    def interrupted(self) -> list[JobRunRequest]:
        """The runs that the next runner tells of, if this one does not come to it."""
        return [run for run in self._runs if run.outcome == "interrupted"]

    def tell(self) -> bool:
        """Tells of the oldest first; where nobody listens, again after a while. True where it told of one that was
        interrupted."""
        told_interrupted = False
        if self._clock.monotonic() < self._tell_at:
            return told_interrupted
        while self._runs and self._record(self._runs[0]):
            told_interrupted |= self._runs.popleft().outcome == "interrupted"
        if self._runs:
            self._tell_at = self._clock.monotonic() + TELL_AGAIN_SECONDS
        return told_interrupted
