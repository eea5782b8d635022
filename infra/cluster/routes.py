"""Where topics are, by the newest view and by what this node has of them; and news of either."""

import asyncio
from collections.abc import Callable, Mapping

from siltlog.infra.cluster.addresses import Addresses
from siltlog.infra.cluster.router import Away, Held, Member, Place, Where, where
from siltlog.infra.cluster.view import ClusterView, TermEntry


class ViewRoutes:
    """Satisfies what forwards requests, and what reads topics of other nodes. Used on one event loop."""

    def __init__(
        self,
        view: Callable[[], ClusterView],
        journal: Callable[[], str],
        fresh: Callable[[], bool],
        held: Callable[[str], Held],
        awaited: Callable[[str], str],
        hurry: Callable[[int], None],
        addresses: Addresses | None = None,
    ) -> None:
        """`view()`, `journal()` and `fresh()` are the membership's. `held(topic)` is its state here; `awaited(topic)`
        the node whose acknowledged records nobody else may go past, where this one waits for it; else empty.
        `hurry(view)` has the membership look for that view."""
        self._view = view
        self._journal = journal
        self._fresh = fresh
        self._held = held
        self._awaited = awaited
        self._hurry = hurry
        self._addresses = addresses or Addresses()
        self._news = asyncio.Event()
        self._listed: tuple[ClusterView | None, Mapping[str, str]] = (None, {})
        """The topics of a view: each read asks for them."""

    @property
    def view(self) -> int:
        return self._view().number

    def topics(self) -> Mapping[str, str]:
        view = self._view()
        if self._listed[0] is not view:
            self._listed = view, {name: entry.topic_id for name, entry in view.topics.items()}
        return self._listed[1]

    def where(self, topic: str, denied: frozenset[str] = frozenset(), *, decides: bool = True) -> Where:
        """Where a request goes; only what `decides` by the bounds of a topic needs an owner that is fresh."""
        held = self._held(topic)
        if held is Held.NOT and (awaited := self._awaited(topic)):
            entry = self._view().nodes.get(awaited)
            return Away(awaited, 0 if entry is None else entry.since_us)
        return where(self._place(topic), held, self._journal(), fresh=not decides or self._fresh(), denied=denied)

    async def changed(self, seconds: float) -> None:
        news = self._news
        try:
            await asyncio.wait_for(news.wait(), seconds)
        except TimeoutError:
            return

    def told(self, view: int) -> None:
        if view > self.view:
            self._hurry(view)

    def look(self) -> None:
        """There is a newer view, or a topic's state here is another."""
        self._news.set()
        self._news = asyncio.Event()

    def _place(self, topic: str) -> Place | None:
        entry = self._view().topics.get(topic)
        if entry is None:
            return None
        return Place(self._member(entry.owner), self._member(entry.to))

    def _member(self, term: TermEntry | None) -> Member | None:
        """The node of a term; None where its journal is lost, so that it owns nothing under this term any more,
        or where it may not be called."""
        if term is None or term.lost:
            return None
        node = self._view().nodes.get(term.node)
        if node is None or node.state == "away" or node.journal != term.journal:
            return None
        return self._addresses.member(term.node, node)
