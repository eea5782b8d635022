"""Sees what other processes did to the tables: rewrites, retention, a claim that fences this node."""

import asyncio
import itertools
from collections.abc import Awaitable, Callable, MutableMapping
from weakref import WeakKeyDictionary

from siltlog.infra import names
from siltlog.infra.errors import SiltlogError
from siltlog.infra.table.entries import entry_path
from siltlog.infra.telemetry import Logger
from siltlog.ingest.log.log import Log
from siltlog.ingest.log.topic import TopicLog

LOOK_SECONDS = 1.0
"""How often it is looked whether another server has claimed: until then who is taken over from acknowledges."""
LOOKS_PER_REFRESH = 5
REFRESHES_UNSEEN = 60
"""Every so many looks a table is opened up although nothing new seems to be there."""


class Refresh:
    """Used on the log's event loop."""

    def __init__(self, log: Log, refresh: Callable[[TopicLog, bool], Awaitable[bool]], logger: Logger) -> None:
        """`refresh(topic, changed)` looks after a topic whose table has something new, or has not; False when it could
        not now."""
        self._log = log
        self._refresh = refresh
        self._logger = logger
        self._claimed_by = log.start_mark
        # Weak, so that a topic that is deleted goes with all its records in memory.
        self._problems: MutableMapping[TopicLog, str] = WeakKeyDictionary()

    async def run(self) -> None:
        """Runs until cancelled."""
        for turn in itertools.count():
            claimed = await self._claimed_elsewhere()
            changed = set(self._log.topics()) if claimed else await self._changed_elsewhere(turn)
            for topic in list(self._log.topics()):
                topic.expire_producers(self._log.aging.now_us())
                try:
                    looked = await self._refresh(topic, topic in changed)
                except Exception as error:
                    if self._problems.get(topic) != str(error):
                        self._problems[topic] = str(error)
                        self._logger.warning("refresh failed", topic=topic.name, reason=str(error))
                else:
                    if looked:
                        self._problems.pop(topic, None)

    async def _claimed_elsewhere(self) -> bool:
        """Waits until it is time for a refresh, or another server has claimed: whether it has."""
        for _ in range(LOOKS_PER_REFRESH):
            await asyncio.sleep(LOOK_SECONDS)
            try:
                # Not on the flushes' threads: those may wait for the store.
                found = await asyncio.to_thread(self._log.store.get, names.CLAIMED_OBJECT)
            except (FileNotFoundError, SiltlogError):
                continue
            except Exception:
                # Whatever it was: the tables tell it, too, and have to be looked at.
                self._logger.exception("looking whether another server has claimed failed")
                continue
            if found not in (self._log.start_mark, self._claimed_by):
                self._claimed_by = found
                return True
        return False

    async def _changed_elsewhere(self, turn: int) -> set[TopicLog]:
        """The topics whose tables have an entry that was not seen yet: one look each, because all of them add up."""
        topics = list(self._log.topics())
        nexts = [entry_path(topic.name, topic.snapshot.version + 1) for topic in topics]
        try:
            found = await asyncio.to_thread(self._log.store.sizes, nexts)
        except SiltlogError:
            # Each says for itself why it cannot be refreshed.
            return set(topics)
        return {
            topic
            for number, (topic, size) in enumerate(zip(topics, found, strict=True))
            if size is not None or (number + turn) % REFRESHES_UNSEEN == 0
        }
