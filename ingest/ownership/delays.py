"""How long it is until something that came to nothing is tried again: each time twice as long as before."""

from typing import NamedTuple

from siltlog.infra.clock import Clock


class _Delay(NamedTuple):
    seconds: float
    until_seconds: float


class Delays:
    """Delays by name, for use on one event loop."""

    def __init__(self, clock: Clock, least_seconds: float, most_seconds: float) -> None:
        self._clock = clock
        self._least_seconds = least_seconds
        self._most_seconds = most_seconds
        self._delays: dict[str, _Delay] = {}

    def left_seconds(self, name: str) -> float:
        """0 where it may be tried."""
        delay = self._delays.get(name)
        return 0.0 if delay is None else max(delay.until_seconds - self._clock.monotonic(), 0.0)

    def failed(self, name: str) -> None:
        before = self._delays.get(name)
        seconds = self._least_seconds if before is None else min(2 * before.seconds, self._most_seconds)
        self._delays[name] = _Delay(seconds, self._clock.monotonic() + seconds)

    def succeeded(self, name: str) -> None:
        self._delays.pop(name, None)
