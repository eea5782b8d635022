"""What the store says of a table's log, and a store that says nothing."""

import asyncio
import threading
from typing import Any

import pytest
from topic_writer import TopicWriter

from siltlog.infra.clock import SystemClock
from siltlog.infra.store.store import ObjectStore
from siltlog.server.tables import log_look
from siltlog.server.tables.log_look import LOOKS_AT_ONCE, LogLooks


class Gated:
    """The real store, which answers once the gate is open."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self.gate = threading.Event()
        self.asked = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def info(self, path: str) -> Any:
        self.asked += 1
        assert self.gate.wait(60)
        return self._store.info(path)


def test_the_log_is_seen_once_for_all_who_look(store: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("LOOK_SECONDS", "KEPT_SECONDS"):
        monkeypatch.setattr(log_look, name, 60.0)
    writer = TopicWriter(store, "t", 1)
    for _ in range(3):
        writer.append(5)
    writer.table.checkpoint()
    writer.append(5)
    version = writer.table.refresh().version
    gated = Gated(store)
    gated.gate.set()

    async def look() -> None:
        looks = LogLooks(gated, SystemClock())  # type: ignore[arg-type]
        seen = await looks.look("t", version)
        now_ms = SystemClock().now_us() // 1000
        assert (seen.version, seen.checkpoint_version, seen.trouble) == (version, version - 1, "")
        assert seen.committed_ms is not None and seen.checkpoint_ms is not None
        assert now_ms - 60_000 < seen.checkpoint_ms <= seen.committed_ms <= now_ms + 1_000
        asked = gated.asked
        assert await looks.look("t", version) is seen
        assert gated.asked == asked
        assert (await looks.look("t", version + 1)).committed_ms is None, "no such version"

    asyncio.run(look())


def test_a_store_that_says_nothing_holds_up_nobody(store: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_look, "LOOK_SECONDS", 0.05)
    monkeypatch.setattr(log_look, "KEPT_SECONDS", 0.0)
    TopicWriter(store, "t", 1).append(5)
    gated = Gated(store)

    async def look() -> None:
        looks = LogLooks(gated, SystemClock())  # type: ignore[arg-type]
        for _ in range(LOOKS_AT_ONCE + 2):
            assert "has not answered within" in (await looks.look("t", 1)).trouble
        async with asyncio.timeout(60):
            # A thread may begin after nobody waits for it any more.
            while gated.asked < LOOKS_AT_ONCE:
                await asyncio.sleep(0.01)
        assert gated.asked == LOOKS_AT_ONCE, "no more threads hang"
        gated.gate.set()
        monkeypatch.setattr(log_look, "LOOK_SECONDS", 60.0)
        assert (await looks.look("t", 1)).trouble == ""

    asyncio.run(look())
