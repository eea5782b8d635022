"""What happened in groups, as one server saw it."""

from collections import Counter
from collections.abc import Mapping
from typing import Any

from siltlog.consumers.group_scripts import Reply


class GroupCounts:
    """Each event is counted by the server whose call brought it about: the sum over servers is exact."""

    def __init__(self) -> None:
        self.rebalances: Counter[str] = Counter(members=0, topics=0)
        """Assignments that changed what somebody reads, by what asked for them."""
        self.evictions: Counter[str] = Counter(session=0, rebalance=0, instance=0)
        """Members that were expired or fenced: too late with a heartbeat, too late to let go, replaced as an instance.
        """
        self.commits: Counter[str] = Counter(accepted=0, fenced=0)

    def count(self, request: Mapping[str, Any], reply: Reply) -> None:
        """One transition."""
        self.evictions.update(reply["evicted"])
        if request.get("commits"):
            if reply["status"] == "ok":
                self.commits["accepted"] += 1
            elif reply["status"] == "fenced_commits":
                self.commits["fenced"] += 1
