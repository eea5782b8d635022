"""What part of the event loop is read in by who sends very many small pieces: frames, chunks of a byte.

A read brings 256 KiB at most. Of large pieces that is nothing; of the smallest it is tens of thousands of steps. One
connection that never stops, of somebody without a key, would have each publish of others wait behind many such reads.
"""

import asyncio
from collections.abc import Callable

STEPS_MAX = 2_000
"""Reads of no more steps count as nothing. Whoever writes a chunk or a message for each line has fewer."""
REST_TIMES = 4
"""Reading rests so many times as long as it took: all such connections together have a fifth of the loop."""


class Share:
    """Used on one event loop, for all connections together."""

    def __init__(self) -> None:
        self._free_at = 0.0

    def now(self) -> float:
        return asyncio.get_running_loop().time()

    def took(self, steps: int, began: float, pause: Callable[[], None], resume: Callable[[], None]) -> None:
        """A read was taken in, from `began` on, by the loop's clock. After one of many steps the next waits its turn:
        `pause()` is called, and `resume()` once it has come."""
        if steps <= STEPS_MAX:
            return
        now = self.now()
        self._free_at = max(self._free_at, now) + (now - began) * REST_TIMES
        pause()
        asyncio.get_running_loop().call_at(self._free_at, resume)
