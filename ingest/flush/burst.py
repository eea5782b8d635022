"""Has the files of a burst written after it, not beside it. Pure: `now` is an argument.

To make a file of records takes more of the processor than to take them in. So what comes at full speed is taken at the
speed of the log, and becomes files once it is over, or has gone on for too long to be a burst. Seconds of it are a
credit, spent in bursts and earned between them: who is never calm is flushed as if there were no bursts.
"""

from collections import deque
from collections.abc import Sequence

from siltlog.ingest.flush.due import EARLY_BYTES, Load

BURST_BYTES = 16 * 1024 * 1024
"""There is a burst where so much or more came in the last second; the files of less take a tenth of a processor."""
SECOND = 1.0
LOOK_SECONDS = 0.25
"""How often at most it is looked how much came."""
FLUSH_TIMES_MAX = 10
"""Nothing waits for more than so many times its `flush.ms`."""


class Burst:
    """How busy the publishers of a server are, and for how long its files may still wait for that."""

    def __init__(self, milliseconds_max: int) -> None:
        self._seconds_max = milliseconds_max / 1000
        self._spent_seconds = 0.0
        self._looks: deque[tuple[float, int]] = deque()
        """When it was looked in the last second, and once before it, and how much had come in all by then."""
        self._is_on = False

    @property
    def seconds_left(self) -> float:
        return max(self._seconds_max - self._spent_seconds, 0.0)

    def reconfigure(self, milliseconds_max: int) -> None:
        """Takes another credit; what was spent stays spent."""
        self._seconds_max = milliseconds_max / 1000

    def see(self, bytes_in_all: int, now_seconds: float) -> None:
        """Takes note of how much has been published by now."""
        looks = self._looks
        if looks:
            seconds = now_seconds - looks[-1][0]
            if seconds < LOOK_SECONDS:
                return
            while len(looks) > 1 and looks[1][0] <= now_seconds - SECOND:
                looks.popleft()
            since, before = looks[0]
            self._is_on = bytes_in_all - before >= BURST_BYTES * max((now_seconds - since) / SECOND, 1.0)
            if not self._is_on:
                self._spent_seconds = max(self._spent_seconds - seconds, 0.0)
            elif self._spent_seconds < self._seconds_max:
                self._spent_seconds += seconds
        looks.append((now_seconds, bytes_in_all))

    def without_waiting(self, loads: Sequence[Load], now_seconds: float) -> Sequence[Load]:
        """Gives those of `loads` that do not wait for the end of a burst."""
        if not self._is_on or not self.seconds_left:
            return loads
        return [load for load in loads if not _may_wait(load, now_seconds)]


def _may_wait(load: Load, now_seconds: float) -> bool:
    """Whether it gets so much that its files cost much, and nobody needs them yet."""
    # As often as it would have been flushed: what gets less is not kept back at one look, and flushed at the next.
    times = max((now_seconds - load.oldest_seconds) / (load.flush_ms / 1000), 1.0)
    return (
        times < FLUSH_TIMES_MAX
        and load.bytes >= EARLY_BYTES * times
        and not (load.awaited or load.hidden or load.pins_oldest_segment)
    )
