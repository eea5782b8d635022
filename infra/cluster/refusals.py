"""Members at whose addresses nobody listens: their machine refuses connections, time after time, while beats are late.

A refusal is quick, and says less than a lease: a proxy may refuse for a node that lives. So it makes a lease shorter
and never takes its place (rule CM14).
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from siltlog.infra.cluster.router import Member

REFUSALS_MIN = 2
KNOCK_SECONDS = 0.2


class Refusals:
    """Used on one event loop."""

    def __init__(self, knock: Callable[[Member], Awaitable[bool]]) -> None:
        """`knock(member)` says whether its machine refused a connection."""
        self._knock = knock
        self._refused: frozenset[str] = frozenset()
        self._knocking: dict[Member, asyncio.Task[None]] = {}

    def journals(self) -> frozenset[str]:
        """The journals of those that refuse."""
        return self._refused

    def follow(self, suspects: Sequence[Member], changed: Callable[[], None]) -> None:
        """Knocks at these from now on, and at no others; `changed` hears of each that refuses."""
        for member in self._knocking.keys() - set(suspects):
            self._knocking.pop(member).cancel()
            self._refused -= {member.journal}
        for member in suspects:
            if member not in self._knocking:
                self._knocking[member] = asyncio.create_task(self._knock_on(member, changed))

    def stop(self) -> None:
        self.follow((), lambda: None)

    async def _knock_on(self, member: Member, changed: Callable[[], None]) -> None:
        refusals = 0
        while True:
            refusals = refusals + 1 if await self._knock(member) else 0
            if refusals == REFUSALS_MIN:
                self._refused |= {member.journal}
                changed()
            elif refusals == 0:
                self._refused -= {member.journal}
            await asyncio.sleep(KNOCK_SECONDS)
