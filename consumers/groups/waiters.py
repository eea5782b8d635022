"""Waits for a change of a group; nothing runs for a waiter until there is one."""

import asyncio
import math
from collections import defaultdict
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from functools import partial

from siltlog.infra.http.connection.hang_up import when_hung_up


class Waiter:
    """Wakes for what changed after the generation that its member was told."""

    def __init__(self, member: str) -> None:
        self.member = member
        self._told = 0.0
        self._changed = 0.0
        self._event = asyncio.Event()

    def told(self, generation: int) -> None:
        """Notes that the member was told of every change up to `generation`."""
        self._told = generation
        if self._changed <= generation:
            self._event.clear()

    @property
    def ended(self) -> bool:
        """Whether there is no point in waiting any more."""
        return self._changed == math.inf

    def wake(self, generation: float) -> None:
        self._changed = max(self._changed, generation)
        if self._changed > self._told:
            self._event.set()

    def look(self) -> None:
        """Wakes once, whatever changed."""
        self._event.set()

    async def changed(self) -> None:
        await self._event.wait()

    async def wait(self, seconds: float) -> bool:
        """Whether there was a change within `seconds`."""
        timer = asyncio.get_running_loop().call_later(max(seconds, 0.0), self._event.set)
        try:
            await self._event.wait()
        finally:
            timer.cancel()
        return self._changed > self._told


class GroupWaiters:
    """Waiters by group. Used on one event loop."""

    def __init__(self) -> None:
        self._waiters: dict[str, set[Waiter]] = defaultdict(set)

    @contextmanager
    def waiting(self, group: str, member: str) -> Iterator[Waiter]:
        """A waiter that sees every change from here on: to be entered before the state is asked for.

        It waits for nothing once its client has hung up.
        """
        waiter = Waiter(member)
        forget = when_hung_up(partial(waiter.wake, math.inf))
        self._waiters[group].add(waiter)
        try:
            yield waiter
        finally:
            forget()
            waiters = self._waiters[group]
            waiters.discard(waiter)
            if not waiters:
                del self._waiters[group]

    def groups(self) -> list[str]:
        return list(self._waiters)

    def wake(self, group: str, generation: float, members: Collection[str] | None = None) -> None:
        """Wakes the waiters of `members` of `group`, all of them when None, that were told less than `generation`."""
        for waiter in self._waiters.get(group, ()):
            if members is None or waiter.member in members:
                waiter.wake(generation)

    def look(self) -> None:
        """Wakes every waiter once: something else than its group has changed."""
        for waiters in self._waiters.values():
            for waiter in waiters:
                waiter.look()

    def wake_all(self) -> None:
        """Every wait ends, and every later one at once."""
        for group in self._waiters:
            self.wake(group, math.inf)
