"""The threads of flushes, by what they are for. What somebody waits for has threads that nothing else uses.

Lives on the event loop. No thread is taken by what waits for its turn.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from enum import Enum
from heapq import heappop, heappush
from typing import Any, Generic, TypeVar

from siltlog.infra.clock import Clock
from siltlog.infra.process.priority import run_behind_others

AWAITED_BYTES_PER_SECOND = 64 * 1024 * 1024
"""What is awaited goes first that would end first if it were written at this rate."""
LOOK_SECONDS = 0.1
"""How often at most it is looked where that belongs which came before."""
LOOK_PART = 0.1
"""Looking takes no more than this part of the time: of thousands of topics it takes long."""

Turn = float
Item = TypeVar("Item")
Done = TypeVar("Done")


class Place(Enum):
    """Where something is done."""

    BEHIND = "behind"
    """At a lower priority than those who publish and read."""
    BESIDE = "beside"
    """At their priority: a thread may not raise its own again, so these are others."""
    AWAITED = "awaited"
    """At their priority too, and apart: somebody waits for the commit."""


class _Batch(Generic[Item, Done]):
    """What came together: what is left to hand to a thread, and what is done."""

    def __init__(
        self, do: Callable[[Item], Done], items: Sequence[Item], place: Callable[[], Place], turn: Turn
    ) -> None:
        self.do = do
        self.left = deque(enumerate(items))
        self.find_place = place
        self.place = place()
        self.turn = turn
        self.done: asyncio.Future[list[Done]] = asyncio.get_running_loop().create_future()
        self._count = len(items)
        self._results: dict[int, Done] = {}

    def ended(self, number: int, one: "asyncio.Future[Done]") -> None:
        if self.done.done():
            if not one.cancelled():
                # Failed like the one that was told of, or was done for nothing.
                one.exception()
        elif one.cancelled():
            self.done.cancel()
        elif (error := one.exception()) is not None:
            self.done.set_exception(error)
        else:
            self._results[number] = one.result()
            if len(self._results) == self._count:
                self.done.set_result([self._results[each] for each in range(self._count)])


class Threads:
    """Gives each its turn: what came together one after the other, and of what is awaited the short first."""

    def __init__(self, clock: Clock, name: str, count: int, *, ahead: int = 0) -> None:
        """`count` of them in each place. `ahead` more are handed to them, which stay there: so that none rests until
        the event loop hears of it."""
        self._clock = clock
        self._handed_max = count + ahead
        self._threads = {
            place: ThreadPoolExecutor(
                count,
                f"{name}-{place.value}",
                initializer=run_behind_others if place is Place.BEHIND else None,
            )
            for place in Place
        }
        self._handed = dict.fromkeys(Place, 0)
        self._batches: dict[int, _Batch[Any, Any]] = {}
        """Those that are not done, by their number in the order in which they came."""
        self._waiting: dict[Place, list[tuple[Turn, int]]] = {place: [] for place in Place}
        """Heaps of those of which something is left; and of others, that went to another place or failed."""
        self._number = 0
        self._look_seconds = 0.0
        """When it is looked next, at the soonest."""

    def close(self) -> None:
        """Ends all that waits; what is being done is left alone."""
        for batch in self._batches.values():
            batch.done.cancel()
        for threads in self._threads.values():
            threads.shutdown(wait=False)

    async def run(
        self, do: Callable[[Item], Done], items: Sequence[Item], nbytes: int, place: Callable[[], Place]
    ) -> list[Done]:
        """Gives `do(item)` of each, called on a thread; `place()` tells where, and may change its mind.

        Raises what `do` does; the rest of them is not done then.
        """
        turn = self._clock.monotonic() + nbytes / AWAITED_BYTES_PER_SECOND
        batch = _Batch(do, items, place, turn)
        self._number += 1
        number = self._number
        self._batches[number] = batch
        try:
            self._queue(number, batch)
            self._hand(batch.place)
            return await batch.done
        finally:
            del self._batches[number]

    def look(self) -> None:
        """Sees where all belongs by now: somebody may wait for it since it came."""
        began = self._clock.monotonic()
        if began < self._look_seconds:
            return
        for number, batch in self._batches.items():
            if batch.left and (place := batch.find_place()) is not batch.place:
                batch.place = place
                self._queue(number, batch)
        ended = self._clock.monotonic()
        self._look_seconds = max(began + LOOK_SECONDS, ended + (ended - began) / LOOK_PART)
        for place in Place:
            self._hand(place)

    def _queue(self, number: int, batch: _Batch[Any, Any]) -> None:
        heappush(self._waiting[batch.place], (batch.turn if batch.place is Place.AWAITED else 0.0, number))

    def _hand(self, place: Place) -> None:
        waiting = self._waiting[place]
        while waiting and self._handed[place] < self._handed_max:
            batch = self._batches.get(waiting[0][1])
            if batch is None or batch.place is not place or not batch.left or batch.done.done():
                heappop(waiting)
            else:
                self._start(place, batch)

    def _start(self, place: Place, batch: _Batch[Any, Any]) -> None:
        number, item = batch.left.popleft()
        self._handed[place] += 1
        one = asyncio.get_running_loop().run_in_executor(self._threads[place], batch.do, item)

        def ended(one: "asyncio.Future[Any]") -> None:
            self._handed[place] -= 1
            batch.ended(number, one)
            self._hand(place)

        one.add_done_callback(ended)
