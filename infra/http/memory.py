"""Bounds the memory of all requests that the server has not finished with, whoever sends them.

It counts bodies while they arrive and inflate, records that wait for their sync, and replies until their client has
taken them. A request that would go past the bound is refused at once (503 `overloaded`), never kept waiting.
"""

import asyncio
from collections.abc import Callable
from typing import Any

from siltlog.infra.clock import Clock
from siltlog.infra.errors import SiltlogError, problem
from siltlog.infra.http.drain_rate import DrainRate

SMALL_BYTES = 64 * 1024
LARGE_SHARE = 0.75
"""Requests above SMALL_BYTES may fill this part of the room: the rest is for small ones."""
STALL_SECONDS = 1.0
"""Once there is no room, a request that holds some and does not move for so long is ended (`on_full`)."""
RETRY_MS_MAX = 1_500
"""By then there is room, one way or the other."""


class InFlight:
    """Used on one event loop. What a request takes is given back by `let_go`, at the latest by the door."""

    def __init__(self, bytes_max: int, clock: Clock) -> None:
        self.bytes_max = bytes_max
        self.used_bytes = 0
        self.on_full: list[Callable[[], None]] = []
        """Called when somebody is refused: ends requests that hold room and do not move."""
        self._clock = clock
        self._large_bytes_max = int(bytes_max * LARGE_SHARE)
        self._held: dict[asyncio.Task[Any] | None, int] = {}
        self._drained = DrainRate(clock.monotonic())

    def take(self, nbytes: int) -> None:
        """Counts `nbytes` more for the request of the current task. Raises Unavailable `overloaded`."""
        task = asyncio.current_task()
        held = self._held.get(task, 0) + nbytes
        if self.used_bytes + nbytes > (self.bytes_max if held <= SMALL_BYTES else self._large_bytes_max):
            raise self._full(nbytes)
        self._held[task] = held
        self.used_bytes += nbytes

    def admit(self, nbytes: int) -> None:
        """Counts a small request that has no task, until `leave`. Raises Unavailable `overloaded`."""
        if self.used_bytes + nbytes > self.bytes_max:
            raise self._full(nbytes)
        self.used_bytes += nbytes

    def leave(self, nbytes: int) -> None:
        """Gives back what `admit` counted."""
        self.used_bytes -= nbytes

    def room(self) -> int:
        """The bytes that a large request may still take."""
        return max(self._large_bytes_max - self.used_bytes, 0)

    def let_go(self) -> None:
        """The request of the current task has done with what it took."""
        held = self._held.pop(asyncio.current_task(), 0)
        if held:
            self.used_bytes -= held
            if held > SMALL_BYTES:
                self._drained.left(held, self._clock.monotonic())

    def add(self, nbytes: int) -> None:
        """Counts what outlives its request: it was admitted with it, and is never refused here."""
        self.used_bytes += nbytes

    def done(self, nbytes: int) -> None:
        """Gives back what `add` counted."""
        self.used_bytes -= nbytes
        self._drained.left(nbytes, self._clock.monotonic())

    def _full(self, nbytes: int) -> SiltlogError:
        for ends in self.on_full:
            ends()
        return problem(
            "overloaded",
            f"the requests that are under way take all the memory there is for them ({self.bytes_max} bytes); "
            "try again later, or send smaller ones",
            retry_after_ms=min(self._drained.retry_ms(nbytes, self._clock.monotonic()) or RETRY_MS_MAX, RETRY_MS_MAX),
        )
