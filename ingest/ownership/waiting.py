"""The topics that a view gives this node and that it may not claim yet: why, since when, and their tables."""

import asyncio
from collections.abc import ItemsView

from siltlog.infra.clock import Clock
from siltlog.infra.errors import UnknownTopic
from siltlog.infra.store.store import ObjectStore
from siltlog.infra.table.table import TopicTable
from siltlog.infra.telemetry import Logger
from siltlog.ingest.ownership.rules import Waits

POLL_SECONDS_MIN = 0.1
HANDED_SECONDS_MAX = 0.3
POLL_SECONDS_MAX = 2.0
"""How often the table is looked at of a topic that waits for its owner, which hands it over or is gone."""


class WaitingTopics:
    """Used on the log's event loop."""

    def __init__(self, store: ObjectStore, clock: Clock, logger: Logger) -> None:
        self._store = store
        self._clock = clock
        self._logger = logger
        self._tables: dict[str, TopicTable] = {}
        self._waits: dict[str, Waits] = {}
        self._since: dict[str, float] = {}

    def __len__(self) -> int:
        return len(self._waits)

    def items(self) -> ItemsView[str, Waits]:
        """The topics by name, each with why it waits."""
        return self._waits.items()

    def get(self, name: str) -> Waits | None:
        return self._waits.get(name)

    async def table(self, name: str, topic_id: str) -> TopicTable | None:
        """The table as it is now, kept for the next look; None where the view's topic is not there (any more)."""
        table = self._tables.get(name)
        if table is not None and table.topic_id == topic_id:
            await asyncio.to_thread(table.refresh)
        else:
            try:
                table = await asyncio.to_thread(TopicTable.open, self._store, name, self._clock)
            except UnknownTopic:
                return None
        if table.snapshot.deleted or table.snapshot.topic_id != topic_id:
            self._tables.pop(name, None)
            return None
        self._tables[name] = table
        return table

    def drop_table(self, name: str) -> None:
        """Leaves the table to who claims the topic."""
        self._tables.pop(name, None)

    def wait(self, name: str, waits: Waits, *, handed: bool) -> float:
        """Notes why a topic waits, and gives the seconds until it is to be looked at again.

        `handed` says that its owner is to hand it over.
        """
        now = self._clock.monotonic()
        if self._waits.get(name) != waits:
            self._waits[name] = waits
            self._since[name] = now
            self._logger.info("topic not claimed yet", topic=name, reason=waits.reason, peer=waits.node)
        waited = now - self._since[name]
        # A hand-over is a matter of a second; the owner may take days to come back.
        return min(max(waited, POLL_SECONDS_MIN), HANDED_SECONDS_MAX if handed else POLL_SECONDS_MAX)

    def forget(self, name: str) -> None:
        """It waits no more, or is no concern of this node."""
        self._waits.pop(name, None)
        self._since.pop(name, None)
        self._tables.pop(name, None)
