"""Things of one request that are gone through in turns: others are answered in between."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from typing import TypeVar

from siltlog.infra.limits import TURN_ITEMS

T = TypeVar("T")


async def in_turns(things: Iterable[T], items: int = TURN_ITEMS) -> AsyncIterator[T]:
    """Gives each of them, and the event loop to others after as many `items`."""
    for number, each in enumerate(things, 1):
        yield each
        if number % items == 0:
            await asyncio.sleep(0)
