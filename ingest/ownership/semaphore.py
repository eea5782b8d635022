"""A semaphore that lets in first those that somebody waits for."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class UrgentFirst:
    """Lets in so many at a time. Used on one event loop."""

    def __init__(self, at_once: int) -> None:
        self._free = at_once
        self._waiting: dict[str, asyncio.Future[None]] = {}
        self._urgent: dict[str, None] = {}

    @asynccontextmanager
    async def of(self, name: str) -> AsyncIterator[None]:
        """A place for `name`, which waits for one once at most."""
        if self._free:
            self._free -= 1
        else:
            waiting = self._waiting[name] = asyncio.get_running_loop().create_future()
            try:
                await waiting
            except asyncio.CancelledError:
                if waiting.done() and not waiting.cancelled():
                    self._pass_on()
                raise
            finally:
                self._waiting.pop(name, None)
        try:
            yield
        finally:
            self._urgent.pop(name, None)
            self._pass_on()

    def hurry(self, name: str) -> None:
        """Somebody waits for `name`."""
        self._urgent[name] = None

    def _pass_on(self) -> None:
        for name in (*self._urgent, *self._waiting):
            waiting = self._waiting.pop(name, None)
            if waiting is not None and not waiting.done():
                waiting.set_result(None)
                return
        self._free += 1
