"""How fast something empties, measured: what an honest `Retry-After` is made of. Pure: `now` is an argument."""

WINDOW_SECONDS = 5.0
RETRY_MS_MIN = 50
RETRY_MS_MAX = 30_000


class DrainRate:
    """Bytes per second that left, averaged over about the last `WINDOW_SECONDS`."""

    def __init__(self, now_seconds: float) -> None:
        self._since = now_seconds
        self._bytes = 0.0

    def left(self, nbytes: int, now_seconds: float) -> None:
        """Says that `nbytes` left just now."""
        self._fade(now_seconds)
        self._bytes += nbytes

    def per_second(self, now_seconds: float) -> float:
        self._fade(now_seconds)
        return self._bytes / max(now_seconds - self._since, 1.0)

    def retry_ms(self, nbytes: int, now_seconds: float) -> int | None:
        """When room for `nbytes` may be there, at the rate of late; None when nothing left of late."""
        rate = self.per_second(now_seconds)
        if rate * WINDOW_SECONDS < 1:
            return None
        return min(max(int(nbytes / rate * 1000), RETRY_MS_MIN), RETRY_MS_MAX)

    def _fade(self, now_seconds: float) -> None:
        """Counts what lies before the window in proportion, so that a rate neither jumps nor lives for ever."""
        age = now_seconds - self._since
        if age > 2 * WINDOW_SECONDS:
            kept = WINDOW_SECONDS / age if age < 4 * WINDOW_SECONDS else 0.0
            self._bytes *= kept
            self._since = now_seconds - WINDOW_SECONDS
