"""Looks in the object store when a table's newest version was committed, and where its checkpoint is."""

import asyncio
import threading
from collections import OrderedDict
from contextlib import suppress

from siltlog.infra.clock import Clock
from siltlog.infra.errors import SiltlogError
from siltlog.infra.store.store import ObjectStore
from siltlog.infra.table.entries import Torn, entry_path, last_checkpoint
from siltlog.server.tables.health import LogSeen

LOOK_SECONDS = 2.0
"""A page waits no longer for a store that does not answer."""
KEPT_SECONDS = 5.0
"""How long one look counts for the same version: a page that looks each second asks the store no more often."""
KEPT_MAX = 1_000
LOOKS_AT_ONCE = 2


class LogLooks:
    """Three requests for small objects, and no list. Used on one event loop."""

    def __init__(self, store: ObjectStore, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._limit = asyncio.Semaphore(LOOKS_AT_ONCE)
        self._kept: OrderedDict[str, tuple[float, LogSeen]] = OrderedDict()

    async def look(self, topic: str, version: int) -> LogSeen:
        """What there is of the log at `version`; of a store that does not answer, that it does not."""
        kept = self._kept.get(topic)
        if kept is not None and kept[1].version == version and self._clock.monotonic() < kept[0] + KEPT_SECONDS:
            return kept[1]
        try:
            async with asyncio.timeout(LOOK_SECONDS):
                await self._limit.acquire()
                seen = await self._begin(topic, version)
        except TimeoutError:
            seen = LogSeen(
                version, None, None, None, f"the object store has not answered within {LOOK_SECONDS:g} s; ask again"
            )
        self._kept[topic] = self._clock.monotonic(), seen
        self._kept.move_to_end(topic)
        while len(self._kept) > KEPT_MAX:
            self._kept.popitem(last=False)
        return seen

    def _begin(self, topic: str, version: int) -> "asyncio.Future[LogSeen]":
        loop = asyncio.get_running_loop()
        looking: asyncio.Future[LogSeen] = loop.create_future()

        def ended(seen: LogSeen) -> None:
            self._limit.release()
            if not looking.done():
                looking.set_result(seen)

        def run() -> None:
            seen = seen_in(self._store, topic, version)
            # The loop may have ended while the store did not answer.
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(ended, seen)

        # A daemon, as a request to a store that does not answer must not keep the process.
        threading.Thread(target=run, name="table-log", daemon=True).start()
        return looking


def seen_in(store: ObjectStore, topic: str, version: int) -> LogSeen:
    """Looks, and blocks meanwhile."""
    try:
        entry = store.info(entry_path(topic, version))
        checkpoint = last_checkpoint(store, topic)
        made = None if checkpoint is None else store.info(checkpoint.paths[0])
    except Torn:
        return LogSeen(version, None, None, None, "the object that names the checkpoint is cut short")
    except SiltlogError as error:
        return LogSeen(version, None, None, None, error.detail)
    except OSError as error:
        return LogSeen(version, None, None, None, str(error))
    return LogSeen(
        version,
        None if entry is None else entry.modified_ms,
        None if checkpoint is None else checkpoint.version,
        None if made is None else made.modified_ms,
    )
