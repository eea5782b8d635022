"""Finds members that this node cannot reach, or may not call: it calls all others, over and over; the controller heeds
what most say of one."""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence

from siltlog.infra.cluster.router import Member
from siltlog.infra.telemetry import Logger

PERIOD_SECONDS = 2.0
SECONDS_A_MEMBER = 0.1
"""The more there are, the longer a round takes: each node is called by all others."""
UNPROVEN = "where it is called is not proven by the secret of this cluster"


class Reach:
    """Used on one event loop."""

    def __init__(
        self,
        others: Callable[[], Sequence[Member]],
        calls: Callable[[Member], Awaitable[str]],
        logger: Logger,
        unproven: Callable[[], Collection[str]] = tuple,
    ) -> None:
        """`others()` are the members beside this node; `calls(member)` calls one, and says why it does not answer;
        empty where it does. `unproven()` are those that may not be called (rule CR16)."""
        self._others = others
        self._unproven = unproven
        self._calls = calls
        self._logger = logger
        self._unreachable: Mapping[str, str] = {}
        self._looking: asyncio.Task[None] | None = None

    @property
    def unreachable(self) -> tuple[str, ...]:
        """The names of those that did not answer when they were called last, or were not called."""
        return tuple(sorted(self._unreachable))

    def start(self) -> None:
        self._looking = asyncio.create_task(self._look_on())

    def stop(self) -> None:
        if self._looking is not None:
            self._looking.cancel()

    async def look(self) -> None:
        """Calls each once."""
        others = self._others()
        said = await asyncio.gather(*map(self._calls, others))
        found = {one.node: reason for one, reason in zip(others, said, strict=True) if reason}
        found |= dict.fromkeys(self._unproven(), UNPROVEN)
        for node, reason in found.items():
            if self._unreachable.get(node) != reason:
                self._logger.warning("a node of the cluster cannot be reached", peer=node, reason=reason)
        self._unreachable = found

    async def _look_on(self) -> None:
        while True:
            await asyncio.sleep(max(PERIOD_SECONDS, len(self._others()) * SECONDS_A_MEMBER))
            await self.look()
