"""Which members this node cannot reach: all are called, over and over; the controller heeds what most say of one."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from siltlog.infra.cluster.router import Member

PERIOD_SECONDS = 5.0
SECONDS_A_MEMBER = 0.1
"""The more there are, the longer a round takes: each node is called by all others."""


class Reach:
    """Used on one event loop."""

    def __init__(self, others: Callable[[], Sequence[Member]], answers: Callable[[Member], Awaitable[bool]]) -> None:
        """`others()` are the members beside this node; `answers(member)` calls one."""
        self._others = others
        self._answers = answers
        self._unreachable: tuple[str, ...] = ()
        self._looking: asyncio.Task[None] | None = None

    @property
    def unreachable(self) -> tuple[str, ...]:
        """The names of those that did not answer when they were called last."""
        return self._unreachable

    def start(self) -> None:
        self._looking = asyncio.create_task(self._look_on())

    def stop(self) -> None:
        if self._looking is not None:
            self._looking.cancel()

    async def look(self) -> None:
        """Calls each once."""
        others = self._others()
        answered = await asyncio.gather(*map(self._answers, others))
        self._unreachable = tuple(sorted(one.node for one, there in zip(others, answered, strict=True) if not there))

    async def _look_on(self) -> None:
        while True:
            await asyncio.sleep(max(PERIOD_SECONDS, len(self._others()) * SECONDS_A_MEMBER))
            await self.look()
