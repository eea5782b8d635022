"""The journal of a running node."""

import asyncio
import random
import uuid
from collections.abc import Callable, Coroutine
from functools import wraps
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from siltlog.infra import names
from siltlog.infra.errors import OutcomeUnknown, SiltlogError, Unavailable
from siltlog.infra.store.store import Put, open_store
from siltlog.ingest.journal import journal as runtime
from siltlog.ingest.journal.codec import encode_groups, path_of
from siltlog.ingest.journal.reader import frames_of, read
from siltlog.ingest.journal.seal import seal
from tests.rigs.failing_store import FailingStore, VirtualClock, Weather
from tests.rigs.journal_rig import Locked, Told, running_journal, shipped

TOPIC = uuid.UUID(int=9).bytes


def _on_a_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    @wraps(test)
    def run(**fixtures: object) -> None:
        asyncio.run(test(**fixtures))

    return run


async def _until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not holds():
            await asyncio.sleep(0.005)


@pytest.mark.rule("CJ1", "CJ3")
@_on_a_loop
async def test_what_landed_is_read_in_order_by_who_takes_over(tmp_path: Path) -> None:
    store, told = open_store(tmp_path.as_uri()), Told()
    async with running_journal(store, told) as journal:
        for offset in range(50):
            journal.ship(shipped(offset, told))
            if offset % 7 == 0:
                await asyncio.sleep(0.002)
        if (landed := journal.all_landed()) is not None:
            await landed
        assert told.landed == list(range(50))
        assert journal.all_landed() is None and journal.backlog_bytes == 0
        name = journal.name
    ended = seal(store, "c", name, bytes(16))
    frames = list(frames_of(read(store, "c", ended)))
    assert [frame.first_offset for frame in frames] == list(range(50))
    assert frames[0].payload_whole.to_pybytes() == b"values"


@pytest.mark.rule("CJ2", "CJ3")
@_on_a_loop
async def test_an_outage_delays_and_loses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runtime, "RETRY_SECONDS_MIN", 0.001)
    monkeypatch.setattr(runtime, "RETRY_SECONDS_MAX", 0.002)
    world = FailingStore(random.Random(3), VirtualClock())
    told = Told()
    async with running_journal(Locked(world.of("n1")), told) as journal:
        world.weather = Weather(lost=0.3, late=0.2, doubled=0.2, late_seconds=0.0)
        for offset in range(30):
            journal.ship(shipped(offset, told))
            await asyncio.sleep(0.001)
        world.cut("n1")
        journal.ship(shipped(30, told))
        await asyncio.sleep(0.05)
        assert told.landed[-1:] != [30]
        assert journal.stalled_seconds > 0 and journal.backlog_bytes > 0
        world.mend("n1")
        await _until(lambda: told.landed == list(range(31)))
        assert not told.fatal and not told.sealed


@pytest.mark.rule("CJ6")
@_on_a_loop
async def test_who_meets_a_seal_acks_nothing_more_and_begins_anotherrunning_journal(tmp_path: Path) -> None:
    store, told = open_store(tmp_path.as_uri()), Told()
    async with running_journal(store, told) as journal:
        journal.ship(shipped(0, told))
        await _until(lambda: told.landed == [0])
        former = journal.name
        assert seal(store, "c", former, bytes(16)).end == 2
        journal.ship(shipped(1, told))
        waiting = journal.all_landed()
        assert waiting is not None
        with pytest.raises(OutcomeUnknown, match="another node took over"):
            await waiting
        assert told.sealed == 1 and told.landed == [0] and not told.fatal
        journal.ship(shipped(2, told))
        assert not journal.is_open and told.landed == [0]
        assert await journal.open() != former
        journal.ship(shipped(3, told))
        await _until(lambda: told.landed == [0, 3])


@pytest.mark.rule("CJ2")
@_on_a_loop
async def test_a_number_that_another_has_written_ends_the_process(tmp_path: Path) -> None:
    store, told = open_store(tmp_path.as_uri()), Told()
    async with running_journal(store, told) as journal:
        clone = encode_groups([], cluster_id="c", journal=journal.name, number=1, first=0, nonce=b"c" * 16)
        assert store.put_if_absent(path_of(journal.name, 1), clone.data) is Put.WRITTEN
        journal.ship(shipped(0, told))
        await _until(lambda: bool(told.fatal))
        assert told.landed == [] and "is not ours" in str(told.fatal[0])


@pytest.mark.rule("CJ4")
@_on_a_loop
async def test_objects_go_once_their_records_are_in_tables(tmp_path: Path) -> None:
    store, told = open_store(tmp_path.as_uri()), Told()

    def numbers() -> list[int]:
        return [int(info.path.rsplit("/", 1)[1]) for info in store.list(names.JOURNALS_FOLDER)]

    async with running_journal(store, told) as journal:
        for offset in range(5):
            journal.ship(shipped(offset, told))
            await _until(lambda offset=offset: told.landed[-1:] == [offset])  # type: ignore[misc]
        journal.trim(lambda *_: 3, lambda _: True)
        assert journal.objects == 2
        journal.ship(shipped(5, told))
        await _until(lambda: told.landed[-1:] == [5])
        assert numbers() == [0, 1, 2, 3, 4, 5, 6], "no first has landed before"
        journal.trim(lambda *_: 3, lambda _: True)
        await _until(lambda: numbers() == [4, 5, 6])
        ended = seal(store, "c", journal.name, bytes(16))
        assert [frame.first_offset for frame in frames_of(read(store, "c", ended))] == [3, 4, 5]


@_on_a_loop
async def test_what_has_not_landed_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    held = Event()

    class Held(Locked):
        def put_if_absent(self, path: str, data: bytes) -> Put:
            if not path.endswith("0" * 20):
                held.wait(60)
            return self._store.put_if_absent(path, data)

    monkeypatch.setattr(runtime, "BACKLOG_BYTES_MAX", 20)
    told = Told()
    async with running_journal(Held(open_store(tmp_path.as_uri())), told) as journal:
        for offset in range(4):
            journal.check_room()
            journal.ship(shipped(offset, told))
        with pytest.raises(Unavailable, match="24 bytes wait to reach the object store"):
            journal.check_room()
        held.set()
        await _until(lambda: told.landed == [0, 1, 2, 3])
        journal.check_room()


@_on_a_loop
async def test_a_store_that_is_away_begins_norunning_journal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runtime, "RETRY_SECONDS_MIN", 0.001)
    world = FailingStore(random.Random(3), VirtualClock())
    world.cut("n1")
    with pytest.raises(SiltlogError, match="cannot be begun"):
        async with running_journal(world.of("n1"), Told()):
            pass
