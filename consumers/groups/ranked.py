"""Groups in the order of their lag or their members, and those of one topic alone."""

from collections.abc import Callable, Sequence
from typing import Protocol

from siltlog.consumers.groups.answers import GroupEntry, GroupList
from siltlog.consumers.groups.groups import Groups
from siltlog.infra.listing.ranking import Ranking, by_name
from siltlog.infra.security.grant import Grant

GROUPS_MAX = 10_000
"""How many groups are ranked: the first by name, and besides them those that have a lag."""


class GroupLags(Protocol):
    async def group_lags(self) -> Sequence[tuple[str, str, int]]:
        """Gives (group, topic, records) of what groups have committed, as far as it is known now."""


class RankedGroups:
    """Used on one event loop."""

    def __init__(self, groups: Groups, lags: GroupLags) -> None:
        self._groups = groups
        self._lags = lags

    async def page(
        self, ranking: Ranking, grant: Grant, *, topic: str, prefix: str, after: str, limit: int
    ) -> GroupList:
        """Gives a page of the groups that the caller may describe, with the topics and the lag that he may see; of a
        `topic` those alone that have committed offsets of it. Raises Refused `invalid_parameter`, Unavailable."""
        found = await self._lags.group_lags()
        seen = set(grant.sees("topic", {of for _, of, _ in found}))
        lags: dict[str, dict[str, int]] = {}
        for group, of, records in found:
            if of in seen and topic in ("", of):
                lags.setdefault(group, {})[of] = records
        values = by_name(lags if topic else {*await self._groups.register.first(GROUPS_MAX), *lags})
        if ranking.sort == "lag":
            values |= {group: float(sum(records.values())) for group, records in lags.items()}
        elif ranking.sort == "members":
            values |= {group: members for group, members in self._groups.member_counts().items() if group in values}
        visible: Callable[[str], bool] | None = grant.filter("group")
        page = await ranking.page(values, prefix=prefix, after=after, limit=limit, visible=visible)
        rows = await self._groups.states(page.names)
        entries = []
        for row in rows:
            of_group = lags.get(row.group, {})
            told = GroupEntry(row.group, row.state, row.members, row.type, sorted(of_group), sum(of_group.values()))
            entries.append(told)
        return GroupList(entries, page.next)
