"""Long polls: one future and one timer per waiting fetch, and no cost while nothing happens."""

import asyncio
from collections.abc import Callable
from functools import partial

from siltlog.consumers.reading.view import PartitionView
from siltlog.infra.http.connection.hang_up import when_hung_up


class Wait:
    """One long poll over some partitions. Made, used and closed on the event loop."""

    def __init__(self, wait_ms: int, waits: "Waits | None" = None) -> None:
        self._loop = asyncio.get_running_loop()
        self._waits = waits
        self._future: asyncio.Future[None] | None = None
        self._resting: asyncio.Future[None] | None = None
        self._moved: set[int] = set()
        self._watched: list[tuple[int, PartitionView, Callable[[], None]]] = []
        self.over = wait_ms <= 0
        """The time is up, its client has hung up, or the server wants its polls back."""
        self._timer = None if self.over else self._loop.call_later(wait_ms / 1000, self.end)
        self._forget = when_hung_up(self.end)

    def watch(self, index: int, view: PartitionView, worth: Callable[[], bool] | None = None) -> None:
        """Watches `view`: a move of it makes `moved()` return `index`; with `worth`, only one after which that is true.

        Every publish to a partition moves it: who waits for less often must not be woken by each.
        """
        callback = partial(self._wake, index, worth)
        view.subscribe(callback)
        self._watched.append((index, view, callback))

    async def moved(self) -> set[int]:
        """The indices that moved since the last call, as soon as there is one or the wait is over."""
        if not self._moved and not self.over:
            self._future = self._loop.create_future()
            try:
                await self._future
            finally:
                self._future = None
        moved, self._moved = self._moved, set()
        return moved

    async def rest(self, seconds: float) -> None:
        """Returns after that time, or once the wait is over."""
        if self.over:
            return
        resting = self._resting = self._loop.create_future()
        timer = self._loop.call_later(seconds, _done, resting)
        try:
            await resting
        finally:
            timer.cancel()
            self._resting = None

    def end(self) -> None:
        self.over = True
        self._complete()
        if self._resting is not None:
            _done(self._resting)

    def look(self) -> None:
        """Has `moved()` return every index."""
        self._moved.update(index for index, _, _ in self._watched)
        self._complete()

    def close(self) -> None:
        self._forget()
        if self._timer is not None:
            self._timer.cancel()
        for _, view, callback in self._watched:
            view.unsubscribe(callback)
        self._watched.clear()
        if self._waits is not None:
            self._waits.open.discard(self)

    def _wake(self, index: int, worth: Callable[[], bool] | None) -> None:
        if worth is None or worth():
            self._moved.add(index)
            self._complete()

    def _complete(self) -> None:
        if self._future is not None:
            _done(self._future)


def _done(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


class Waits:
    """The long polls of a server, all of which it can ask to return."""

    def __init__(self) -> None:
        self.open: set[Wait] = set()

    def begin(self, wait_ms: int) -> Wait:
        """Ends with its `close()`."""
        wait = Wait(wait_ms, self)
        self.open.add(wait)
        return wait

    def wake(self) -> None:
        """Every one returns with what it has; for a server that drains."""
        for wait in self.open:
            wait.end()
