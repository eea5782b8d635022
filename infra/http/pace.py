"""How soon the next part of a large reply goes out: at once, or after a rest while others publish.

Sending is work of the event loop, as publishing is. A few clients that catch up take all of it that they get, and each
publish then waits its turn behind their parts. Resting costs them throughput, and only while somebody publishes.
"""

import asyncio
import math

from starlette.types import Scope

REST_S = 0.003
PUBLISHING_S = 0.1
"""So long after a group commit there is thought to be publishing."""
_STATE = "pace"


class Pace:
    """Used on one event loop."""

    def __init__(self) -> None:
        self._published_at = -math.inf

    def published(self) -> None:
        """A group commit has been made."""
        self._published_at = asyncio.get_running_loop().time()

    async def rest(self) -> None:
        publishing = asyncio.get_running_loop().time() - self._published_at < PUBLISHING_S
        # Also without: a socket that takes megabytes at once would have the loop for as long as that lasts.
        await asyncio.sleep(REST_S if publishing else 0)

    def give(self, scope: Scope) -> None:
        """The reply to that request is sent at this pace."""
        scope.setdefault("state", {})[_STATE] = self


def pace_of(scope: Scope) -> Pace:
    """The one it was given, else one that nobody publishes beside."""
    pace: Pace | None = scope.get("state", {}).get(_STATE)
    return pace or Pace()
