"""Bounds the memory of all requests that the server has not finished with, whoever sends them.

It counts bodies while they arrive and inflate, records that wait for their sync, and replies until their client has
taken them. A request that would go past the bound is refused at once (503 `overloaded`), never kept waiting.
"""

from collections.abc import Callable
from typing import Any

from siltlog.infra.clock import Clock
from siltlog.infra.errors import SiltlogError, problem
from siltlog.infra.http.drain_rate import DrainRate

SMALL_BYTES = 64 * 1024
LARGE_SHARE = 0.75
"""Requests above SMALL_BYTES may fill this part of the room: the rest is for small ones."""
STALL_SECONDS = 1.0
"""Once there is no room, a request that holds some and does not move for so long is ended (`when_full`)."""
RETRY_MS_MAX = 1_500
"""By then there is room, one way or the other."""
HELD = "held"
"""Where a request's state has what it holds."""


class InFlight:
    """Used on one event loop."""

    def __init__(self, bytes_max: int, clock: Clock) -> None:
        self.reconfigure(bytes_max)
        self.used_bytes = 0
        self._clock = clock
        self._drained = DrainRate(clock.monotonic())
        self._when_full: list[Callable[[], None]] = []

    def reconfigure(self, bytes_max: int) -> None:
        """What is held already stays, should it be more."""
        self.bytes_max = bytes_max
        self._large_bytes_max = int(bytes_max * LARGE_SHARE)

    def hold(self) -> "Held":
        """Opens an account for one request, or for what outlives it; there is nothing in it yet."""
        return Held(self)

    def when_full(self, ends: Callable[[], None]) -> None:
        """Has `ends` called when somebody is refused: it ends requests that hold room and do not move."""
        self._when_full.append(ends)

    def room(self) -> int:
        """The bytes that a large request may still take."""
        return max(self._large_bytes_max - self.used_bytes, 0)

    def take(self, nbytes: int, held: int) -> None:
        """Counts `nbytes` more for a request that then holds `held`. Raises Unavailable `overloaded`."""
        if self.used_bytes + nbytes > (self.bytes_max if held <= SMALL_BYTES else self._large_bytes_max):
            raise self._full(nbytes)
        self.used_bytes += nbytes

    def add(self, nbytes: int) -> None:
        self.used_bytes += nbytes

    def give_back(self, held: int) -> None:
        """Takes back all that a request held."""
        self.used_bytes -= held
        if held > SMALL_BYTES:
            self._drained.left(held, self._clock.monotonic())

    def _full(self, nbytes: int) -> SiltlogError:
        for ends in self._when_full:
            ends()
        return problem(
            "overloaded",
            f"the requests that are under way take all the memory there is for them ({self.bytes_max} bytes); "
            "try again later, or send smaller ones",
            retry_after_ms=min(self._drained.retry_ms(nbytes, self._clock.monotonic()) or RETRY_MS_MAX, RETRY_MS_MAX),
        )


class Held:
    """The memory that one request holds; whoever opened it gives it back with `release`, the door at the latest."""

    __slots__ = ("_in_flight", "_nbytes")

    def __init__(self, in_flight: InFlight) -> None:
        self._in_flight = in_flight
        self._nbytes = 0

    def take(self, nbytes: int) -> None:
        """Counts `nbytes` more. Raises Unavailable `overloaded`; then it holds what it held before."""
        held = self._nbytes + nbytes
        self._in_flight.take(nbytes, held)
        self._nbytes = held

    def add(self, nbytes: int) -> None:
        """Counts what was admitted with a request and outlives it; never refused."""
        self._in_flight.add(nbytes)
        self._nbytes += nbytes

    def room(self) -> int:
        """The bytes that a large request may still take."""
        return self._in_flight.room()

    def release(self) -> None:
        """Gives back all of it; more may be taken afterwards."""
        held = self._nbytes
        if held:
            self._nbytes = 0
            self._in_flight.give_back(held)


def held_of(scope: Any) -> Held | None:
    """The account that the door opened for a request; None where it came by no door."""
    held: Held | None = scope.get("state", {}).get(HELD)
    return held
