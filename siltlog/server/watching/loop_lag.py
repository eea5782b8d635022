"""How late the event loop is: what every request waits for before anything is done about it."""

import asyncio
from collections.abc import Callable

from siltlog.infra.clock import Clock

PERIOD_SECONDS = 0.25


async def watch_loop(clock: Clock, observe: Callable[[float], None]) -> None:
    """Tells `observe` four times a second by how many seconds a sleep took longer than asked."""
    while True:
        asked = clock.monotonic()
        await asyncio.sleep(PERIOD_SECONDS)
        observe(max(clock.monotonic() - asked - PERIOD_SECONDS, 0.0))
