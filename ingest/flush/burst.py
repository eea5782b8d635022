"""Has the files of a burst written after it, not beside it. Pure: `now` is an argument.

To make a file of records takes more of the processor than to take them in. So what comes at full speed is taken at the
speed of the log, and becomes files once it is over, or has gone on for too long to be a burst. Seconds of it are a
credit, spent in bursts and earned between them: who is never calm is flushed as if there were no bursts.
"""

from collections.abc import Sequence

from siltlog.ingest.flush.due import EARLY_BYTES, Load

BURST_BYTES_PER_SECOND = 16 * 1024 * 1024
"""The files of less than this take a tenth of a processor at most."""
WINDOW_SECONDS = 0.25
CALM_SECONDS = 1.0
"""A burst is over once it has been calm for so long: clients pause between two requests, and disks when they sync."""
FLUSH_TIMES_MAX = 10
"""Nothing waits for more than so many times its `flush.ms`."""


class Burst:
    """How busy the publishers of a server are, and for how long its files may still wait for that."""

    def __init__(self, milliseconds_max: int) -> None:
        self._seconds_max = self.seconds_left = milliseconds_max / 1000
        """`seconds_left` is the credit."""
        self._seen_bytes = 0
        self._seen_seconds: float | None = None
        self._busy_seconds = float("-inf")

    def reconfigure(self, milliseconds_max: int) -> None:
        """Takes another credit; what was spent stays spent."""
        seconds_max = milliseconds_max / 1000
        self.seconds_left = max(self.seconds_left + seconds_max - self._seconds_max, 0.0)
        self._seconds_max = seconds_max

    def see(self, bytes_in_all: int, now_seconds: float) -> None:
        """Takes note of how much has been published by now."""
        if self._seen_seconds is not None:
            seconds = now_seconds - self._seen_seconds
            if seconds < WINDOW_SECONDS:
                return
            if bytes_in_all - self._seen_bytes >= BURST_BYTES_PER_SECOND * seconds:
                self._busy_seconds = now_seconds
            earned = -seconds if self._is_on(now_seconds) else seconds
            self.seconds_left = min(max(self.seconds_left + earned, 0.0), self._seconds_max)
        self._seen_bytes, self._seen_seconds = bytes_in_all, now_seconds

    def without_waiting(self, loads: Sequence[Load], now_seconds: float) -> Sequence[Load]:
        """Gives those of `loads` that do not wait for the end of a burst."""
        if not self.seconds_left or not self._is_on(now_seconds):
            return loads
        return [load for load in loads if not _may_wait(load, now_seconds)]

    def _is_on(self, now_seconds: float) -> bool:
        return now_seconds - self._busy_seconds < CALM_SECONDS


def _may_wait(load: Load, now_seconds: float) -> bool:
    """Whether its file costs much, and nobody needs it yet."""
    return (
        load.bytes >= EARLY_BYTES
        and not (load.awaited or load.hidden or load.pins_oldest_segment)
        and now_seconds < load.oldest_seconds + FLUSH_TIMES_MAX * load.flush_ms / 1000
    )
