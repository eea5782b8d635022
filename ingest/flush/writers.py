"""Writes the files of flushes on threads. What somebody waits for has threads that nothing else uses.

Lives on the event loop. No thread of a flush is taken by a file that waits for its turn.
"""

import asyncio
import os
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from enum import Enum
from heapq import heappop, heappush
from typing import Any, Generic, TypeVar

from siltlog.infra.clock import Clock
from siltlog.infra.process.priority import run_behind_others

FILE_WRITERS = max(1, (os.cpu_count() or 1) // 2)
"""More would take the processors from those who publish; on two cores one keeps up with what they send."""
HANDED_MAX = FILE_WRITERS + 1
"""One more than there are threads, so that none rests until the event loop hears of it."""
AWAITED_BYTES_PER_SECOND = 64 * 1024 * 1024
"""Of flushes that are awaited the one goes first that would end first if it were written at this rate."""

LOOK_SECONDS = 0.1
"""How often at most it is looked where files belong that came before."""

Turn = float
Item = TypeVar("Item")
File = TypeVar("File")


class Place(Enum):
    """Where files are written."""

    BEHIND = "behind"
    """At a lower priority than those who publish and read."""
    BESIDE = "beside"
    """At their priority: a thread may not raise its own again, so these are others."""
    AWAITED = "awaited"
    """At their priority too, and apart: somebody waits for the commit."""


class _Flush(Generic[Item, File]):
    """The files of one flush: those left to hand to a thread, and those that are written."""

    def __init__(
        self, write: Callable[[Item], File], items: Sequence[Item], place: Callable[[], Place], turn: Turn
    ) -> None:
        self.write = write
        self.left = deque(enumerate(items))
        self.find_place = place
        self.place = place()
        self.turn = turn
        self.done: asyncio.Future[list[File]] = asyncio.get_running_loop().create_future()
        self._count = len(items)
        self._files: dict[int, File] = {}

    def ended(self, number: int, file: "asyncio.Future[File]") -> None:
        if self.done.done():
            if not file.cancelled():
                # Failed like the one that was told of, or written for nothing.
                file.exception()
        elif file.cancelled():
            self.done.cancel()
        elif (error := file.exception()) is not None:
            self.done.set_exception(error)
        else:
            self._files[number] = file.result()
            if len(self._files) == self._count:
                self.done.set_result([self._files[each] for each in range(self._count)])


class FileWriters:
    """Gives each file its turn: those of one flush after the other, and of flushes that are awaited the short first."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._threads = {
            place: ThreadPoolExecutor(
                FILE_WRITERS,
                f"silt-file-{place.value}",
                initializer=run_behind_others if place is Place.BEHIND else None,
            )
            for place in Place
        }
        self._handed = dict.fromkeys(Place, 0)
        self._flushes: dict[int, _Flush[Any, Any]] = {}
        """Those that are not done, by their number in the order in which they came."""
        self._waiting: dict[Place, list[tuple[Turn, int]]] = {place: [] for place in Place}
        """Heaps of those that have files left; and of others, that went to another place or failed."""
        self._number = 0
        self._looked_seconds = 0.0

    def close(self) -> None:
        """Ends all flushes; a file that is being written is left alone."""
        for flush in self._flushes.values():
            flush.done.cancel()
        for threads in self._threads.values():
            threads.shutdown(wait=False)

    async def write(
        self, write: Callable[[Item], File], items: Sequence[Item], nbytes: int, place: Callable[[], Place]
    ) -> list[File]:
        """Gives `write(item)` of each, called on a thread; `place()` tells where, and may change its mind.

        Raises what `write` does; the rest of the flush is not written then.
        """
        turn = self._clock.monotonic() + nbytes / AWAITED_BYTES_PER_SECOND
        flush = _Flush(write, items, place, turn)
        self._number += 1
        number = self._number
        self._flushes[number] = flush
        self._queue(number, flush)
        self._hand(flush.place)
        try:
            return await flush.done
        finally:
            del self._flushes[number]

    def look(self) -> None:
        """Sees where files belong by now: somebody may wait for them since they came."""
        now = self._clock.monotonic()
        if now - self._looked_seconds < LOOK_SECONDS:
            return
        self._looked_seconds = now
        for number, flush in self._flushes.items():
            if flush.left and (place := flush.find_place()) is not flush.place:
                flush.place = place
                self._queue(number, flush)
        for place in Place:
            self._hand(place)

    def _queue(self, number: int, flush: _Flush[Any, Any]) -> None:
        heappush(self._waiting[flush.place], (flush.turn if flush.place is Place.AWAITED else 0.0, number))

    def _hand(self, place: Place) -> None:
        waiting = self._waiting[place]
        while waiting and self._handed[place] < HANDED_MAX:
            flush = self._flushes.get(waiting[0][1])
            if flush is None or flush.place is not place or not flush.left or flush.done.done():
                heappop(waiting)
            else:
                self._start(place, flush)

    def _start(self, place: Place, flush: _Flush[Any, Any]) -> None:
        number, item = flush.left.popleft()
        self._handed[place] += 1
        file = asyncio.get_running_loop().run_in_executor(self._threads[place], flush.write, item)

        def ended(file: "asyncio.Future[Any]") -> None:
            self._handed[place] -= 1
            flush.ended(number, file)
            self._hand(place)

        file.add_done_callback(ended)
