"""Makes a snapshot of all nodes when one is wanted."""

import asyncio
from collections.abc import Sequence

from siltlog.consumers.groups.groups import Groups
from siltlog.infra.clock import Clock, format_us
from siltlog.infra.errors import SiltlogError
from siltlog.server.live.answers import Kind
from siltlog.server.live.gathering import OtherParts, alone
from siltlog.server.live.measuring import Measuring
from siltlog.server.live.part import NodePart
from siltlog.server.live.runs import LiveRuns
from siltlog.server.live.snapshot import Snapshot

GROUPS_MAX = 10_000
"""How many groups are looked at, in the order of their names; besides them those that are behind."""


class Live:
    """Used on one event loop."""

    def __init__(
        self, measuring: Measuring, others: OtherParts | None, groups: Groups, runs: LiveRuns, clock: Clock
    ) -> None:
        """Takes this node to be alone without `others`."""
        self._measuring = measuring
        self._others = others
        self._groups = groups
        self._runs = runs
        self._clock = clock

    async def parts(self, *, whole: bool = False) -> tuple[NodePart, Sequence[NodePart]]:
        """Gives what this node measures, and what those others do that answer in time: of their topics the
        busiest, or the `whole`."""
        if self._others is None:
            return await self._measuring.part(), ()
        here, others = await asyncio.gather(self._measuring.part(), self._others.parts(whole=whole))
        return here, others

    async def snapshot(self, kinds: frozenset[Kind]) -> Snapshot:
        """Makes one for events of some kinds."""
        (here, others), groups = await asyncio.gather(self.parts(), self._names(kinds))
        nodes = alone(here) if self._others is None else self._others.states((here, *others))
        answered = {here.node, *(part.node for part in others)}
        jobs = not kinds.isdisjoint(("overview", "jobs"))
        return Snapshot(
            format_us(self._clock.now_us()),
            here,
            others,
            nodes,
            [node.node for node in nodes if node.node not in answered],
            sorted({*groups, *(lag.group for part in (here, *others) for lag in part.lags)}),
            await self._runs.running() if "jobs" in kinds else (),
            await self._runs.latest() if jobs else (),
        )

    async def states(self, groups: Sequence[str]) -> dict[str, tuple[str, int]]:
        """Gives (state, members) of groups, by name; nothing while Redis does not answer."""
        try:
            return {row.group: (row.state, row.members) for row in await self._groups.states(groups)}
        except SiltlogError:
            return {}

    async def _names(self, kinds: frozenset[Kind]) -> Sequence[str]:
        if kinds.isdisjoint(("overview", "groups")):
            return ()
        try:
            return await self._groups.register.first(GROUPS_MAX)
        except SiltlogError:
            return ()
