"""Things of one request that are gone through in turns: others are answered in between."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from typing import TypeVar

from siltlog.infra.limits import TURN_ITEMS

T = TypeVar("T")
CHANGES_A_TURN = 32
"""What changes a topic, or would, takes longer than to tell of one."""


class Turns:
    """The turns of one request, whose things may lie within each other, such as partitions of topics."""

    def __init__(self, items: int = TURN_ITEMS) -> None:
        """Others have the event loop after as many `items`."""
        self._items = items
        self._taken = 0

    def is_over(self) -> bool:
        """Counts one thing; says whether others are to have the event loop now.

        For what each request of a producer or reader does: a tenth of a small one's time would be `over`.
        """
        self._taken += 1
        return self._taken % self._items == 0

    async def over(self, things: Iterable[T]) -> AsyncIterator[T]:
        for each in things:
            yield each
            if self.is_over():
                await asyncio.sleep(0)


def in_turns(things: Iterable[T], items: int = TURN_ITEMS) -> AsyncIterator[T]:
    """Gives each of them, and the event loop to others after as many `items`."""
    return Turns(items).over(things)
