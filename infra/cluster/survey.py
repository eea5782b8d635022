"""What the controller finds by looking at tables itself: topics that nobody told it of, and topics that are gone.

A look at tables takes what the store takes, which may be seconds: so it is a turn of its own, and beats are looked at
meanwhile. What it found is of use to the round that follows, unless views have said otherwise since it began.
"""

from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple

from siltlog.infra.clock import Clock
from siltlog.infra.cluster.steps import Call, Steps
from siltlog.infra.cluster.view import ClusterView

Tables = Callable[[Collection[str], Collection[str]], Call]
"""Given the names of topics, and some of them to be looked at again: a call that finds the tables of all others, and of
those, by name. An id that is empty stands for none; what cannot be read is left out."""
PERIOD_SECONDS = 60.0
AGAIN_MAX = 32
"""How many topics of the view are looked at again each time: one whose deletion nobody told of leaves it so."""


class Found(NamedTuple):
    """What the first view goes by."""

    topics: Mapping[str, str] = {}
    """The topics that have a table, with their ids."""
    term: int = 0
    """The highest that an epoch of theirs has: a server that was alone counted its own."""


NOTHING_FOUND = Found()


class Survey:
    def __init__(self, tables: Tables | None, clock: Clock, found: Mapping[str, str]) -> None:
        """`found` is what the first view is to name, where this node writes it."""
        self.found = found
        """Topics whose tables were found, with their ids, which are empty for those that are gone."""
        self._tables = tables
        self._clock = clock
        self._due_at = float("-inf")
        self._looking = False
        self._changed: set[str] = set()
        """Topics of which a view said something else since the look began."""
        self._up_to = ""
        """The last topic whose table was looked at again."""

    def put_off(self, seconds: float) -> None:
        """Says that there is more pressing work for so long."""
        self._due_at = max(self._due_at, self._clock.monotonic() + seconds)

    def look(self, view: ClusterView) -> Steps[bool]:
        """Looks at tables, if that is due; whether it did. `view` is the newest, which the controller wrote."""
        if self._tables is None or self._clock.monotonic() < self._due_at:
            return False
        self._changed.clear()
        self._looking = True
        try:
            found = yield self._tables(tuple(view.topics), self._again(view))
        finally:
            self._looking = False
            self._due_at = self._clock.monotonic() + PERIOD_SECONDS
        self.found = {name: topic_id for name, topic_id in found.items() if name not in self._changed}
        return True

    def saw(self, before: ClusterView, view: ClusterView) -> None:
        """A view has come after another: what it says otherwise is newer than what was found."""
        if self._looking or self.found:
            changed = {
                name for name in before.topics.keys() | view.topics.keys() if _id(before, name) != _id(view, name)
            }
            self._changed |= changed
            self.found = {name: topic_id for name, topic_id in self.found.items() if name not in changed}

    def forget(self) -> None:
        """A round has gone by what was found, or another node is the controller."""
        self.found = {}

    def _again(self, view: ClusterView) -> list[str]:
        """The next few topics, by name."""
        after = [name for name in sorted(view.topics) if name > self._up_to]
        found = (after or sorted(view.topics))[:AGAIN_MAX]
        self._up_to = found[-1] if found else ""
        return found


def _id(view: ClusterView, name: str) -> str | None:
    topic = view.topics.get(name)
    return None if topic is None else topic.topic_id
