"""What waiting costs, counted in what the event loop is given to do."""

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from fake_log import FakeLog

from siltlog.consumers.reading.fetch import Fetcher, FetchPosition, FetchResult
from siltlog.consumers.reading.files import FileLister
from siltlog.consumers.reading.row_groups import RowGroups
from siltlog.infra.store.local import LocalStore

POLLS = 1_000
PARTITIONS = 100
FOREVER_MS = 600_000


class CountingLoop(asyncio.SelectorEventLoop):
    """Counts the callbacks that are asked of it; timers when they are set, not when they are due."""

    callbacks = 0

    def call_soon(self, *arguments: Any, **options: Any) -> asyncio.Handle:
        self.callbacks += 1
        return super().call_soon(*arguments, **options)

    def call_at(self, *arguments: Any, **options: Any) -> asyncio.TimerHandle:
        self.callbacks += 1
        return super().call_at(*arguments, **options)


class Rig:
    def __init__(self, folder: Path) -> None:
        self.log = FakeLog(LocalStore(str(folder)))
        self.views = self.log.create("flights", PARTITIONS).partitions
        self.quiet = self.log.create("quiet").partitions[0]
        self.row_groups = RowGroups(self.log.store)
        self.fetcher = Fetcher(self.log, self.row_groups)
        self.loop = CountingLoop()

    def run(self, body: Callable[[], Coroutine[Any, Any, None]]) -> None:
        try:
            self.loop.run_until_complete(body())
        finally:
            self.loop.close()
            self.row_groups.close()

    def fetch(self, number: int, isolation: str = "wal") -> "asyncio.Task[FetchResult]":
        positions = [FetchPosition("flights", number % PARTITIONS, 0), FetchPosition("quiet", 0, 0)]
        limits = {"max_records": 500, "max_bytes": 1 << 20, "min_bytes": 1}
        return asyncio.ensure_future(
            self.fetcher.fetch(positions, **limits, wait_ms=FOREVER_MS, isolation=isolation)  # type: ignore[arg-type]
        )

    async def settle(self) -> None:
        for _ in range(5):
            await asyncio.sleep(0)

    async def asked_by(self, change: Callable[[], None]) -> int:
        """How many callbacks a change leads to, beside those that this takes itself."""
        before = self.loop.callbacks
        await self.settle()
        own = self.loop.callbacks - before
        before = self.loop.callbacks
        change()
        await self.settle()
        return self.loop.callbacks - before - own


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    return Rig(tmp_path)


def test_polls_that_wait_ask_for_nothing(rig: Rig) -> None:
    async def body() -> None:
        polls = [rig.fetch(number) for number in range(POLLS)]
        await rig.settle()
        assert await rig.asked_by(lambda: None) == 0
        # A timer each would be due here, were there any that looks again.
        before = rig.loop.callbacks
        await asyncio.sleep(0.2)
        assert rig.loop.callbacks - before <= 2
        # One publish is the business of those who wait for that partition: of each, its future and its task.
        asked = await rig.asked_by(lambda: rig.views[7].append([b"v"]))
        assert asked <= 5 * POLLS // PARTITIONS
        assert sum(poll.done() for poll in polls) == POLLS // PARTITIONS
        rig.fetcher.wake()
        for poll in polls:
            assert (await poll).count == (1 if poll in polls[7::PARTITIONS] else 0)
        assert not rig.quiet.callbacks
        assert not any(view.callbacks for view in rig.views)

    rig.run(body)


def test_who_waits_for_the_table_is_not_woken_by_publishes(rig: Rig) -> None:
    async def body() -> None:
        lister = FileLister(rig.log, rig.fetcher.waits, "c")
        where = [FetchPosition("flights", 0, 0), FetchPosition("quiet", 0, 0)]
        polls = [rig.fetch(0, "table") for _ in range(POLLS)]
        lists = [asyncio.ensure_future(lister.list(where, max_files=10, wait_ms=FOREVER_MS)) for _ in range(POLLS)]
        await rig.settle()

        def publish() -> None:
            for _ in range(10):
                rig.views[0].append([b"v"])

        assert await rig.asked_by(publish) == 0
        rig.views[0].flush()
        assert {(await poll).count for poll in polls} == {10}
        assert {(await listing).partitions[0].next_offset for listing in lists} == {10}
        assert not rig.views[0].callbacks

    rig.run(body)


def test_polls_end_together_in_one_pass(rig: Rig) -> None:
    """A thousand that wait for one partition: each is woken once by a publish, however many partitions it has."""

    async def body() -> None:
        polls = [rig.fetch(0) for _ in range(POLLS)]
        await rig.settle()
        asked = await rig.asked_by(lambda: rig.views[0].append([b"v"] * 3))
        assert asked <= 5 * POLLS
        assert {(await poll).count for poll in polls} == {3}

    rig.run(body)
