"""Objects that are written beside the sync of what they have."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest
from journal_rig import Told, running_journal, shipped

from siltlog.infra import names
from siltlog.infra.errors import problem
from siltlog.infra.store.local import PENDING_PREFIX, LocalStore
from siltlog.infra.store.store import Put, StagedObject
from siltlog.ingest.journal.codec import decode_object, encode_seal, path_of
from siltlog.ingest.journal.journal import Journal
from siltlog.ingest.journal.writer import IN_FLIGHT_MAX, Foretold, Writer

POLL_SECONDS = 0.002


class Counted(LocalStore):
    """Counts the objects that are written where they are put."""

    def __init__(self, folder: Path) -> None:
        super().__init__(str(folder))
        self.put_whole: list[str] = []

    def put_if_absent(self, path: str, data: bytes) -> Put:
        self.put_whole.append(path)
        return super().put_if_absent(path, data)


def hidden(store: LocalStore) -> list[Path]:
    return list(store.path(names.JOURNALS_FOLDER).rglob(f"{PENDING_PREFIX}*"))


def numbers(store: LocalStore) -> list[int]:
    return [int(info.path.rpartition("/")[2]) for info in store.list(names.JOURNALS_FOLDER)]


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(POLL_SECONDS)


async def landed(journal: Journal) -> None:
    future = journal.all_landed()
    if future is not None:
        await future


@pytest.mark.rule("CJ1")
def test_an_object_is_written_before_its_group_is_synced_and_seen_after_that(tmp_path: Path) -> None:
    async def play() -> None:
        store, told = Counted(tmp_path), Told()
        async with running_journal(store, told, stage=store.stage) as journal:
            group = shipped(7, told)
            journal.stage(group.frames)
            await until(lambda: hidden(store))
            assert numbers(store) == [0], "what is not synced is in no journal"
            journal.ship(group)
            await landed(journal)
            assert numbers(store) == [0, 1] and told.landed == [7]
            assert store.put_whole == [path_of(journal.name, 0)], "it was written once"
            assert hidden(store) == []
            read = decode_object(store.get(path_of(journal.name, 1)), cluster_id="c", journal=journal.name, number=1)
            assert [frame.first_offset for frames in read.groups for frame in frames] == [7]

    asyncio.run(play())


@pytest.mark.rule("CJ2")
def test_what_was_written_for_another_group_is_removed(tmp_path: Path) -> None:
    async def play() -> None:
        store, told = Counted(tmp_path), Told()
        async with running_journal(store, told, stage=store.stage) as journal:
            journal.stage(shipped(7, told).frames)
            journal.ship(shipped(8, told))
            await landed(journal)
            assert numbers(store) == [0, 1] and told.landed == [8]
            assert path_of(journal.name, 1) in store.put_whole
            await until(lambda: hidden(store) == [])

    asyncio.run(play())


def test_what_cannot_be_written_yet_is_put_as_ever(tmp_path: Path) -> None:
    def full(path: str, data: bytes) -> StagedObject:
        raise problem("disk_full", "no space is left")

    async def play() -> None:
        store, told = Counted(tmp_path), Told()
        async with running_journal(store, told, stage=full) as journal:
            group = shipped(7, told)
            journal.stage(group.frames)
            journal.ship(group)
            await landed(journal)
            assert numbers(store) == [0, 1] and told.landed == [7]

    asyncio.run(play())


@pytest.mark.rule("CJ2", "CJ6")
def test_a_seal_is_met_by_what_was_written_before_it(tmp_path: Path) -> None:
    async def play() -> None:
        store, told = Counted(tmp_path), Told()
        async with running_journal(store, told, stage=store.stage) as journal:
            group = shipped(7, told)
            journal.stage(group.frames)
            await until(lambda: hidden(store))
            seal = encode_seal(cluster_id="c", journal=journal.name, number=1, first=0, nonce=bytes(16))
            store.put_if_absent(path_of(journal.name, 1), seal.data)
            journal.ship(group)
            await until(lambda: told.sealed)
            assert told.landed == [] and told.fatal == []

    asyncio.run(play())


def test_only_the_object_of_one_group_alone_is_foretold() -> None:
    writer: Writer[str] = Writer(0.0, IN_FLIGHT_MAX)
    assert writer.foretold() == Foretold(1, 0)
    writer.add("a", 1)
    assert writer.foretold() is None, "it would go with that"
    for number in range(1, IN_FLIGHT_MAX + 1):
        assert writer.take(float(number)) is not None
        writer.add("b", 1)
    writer.take(100.0)
    assert writer.foretold() is None, "it has to wait"
    assert Writer[str](0.2, IN_FLIGHT_MAX).foretold() is None, "others may come in the interval"


def test_an_object_is_put_once_it_is_written(tmp_path: Path) -> None:
    store = LocalStore(str(tmp_path))
    first, second, third = (store.stage("wal/a/1", data) for data in (b"first", b"second", b"third"))
    assert store.list("") == []
    assert first.put() is Put.WRITTEN and second.put() is Put.EXISTS
    third.discard()
    assert store.get("wal/a/1") == b"first" and [info.path for info in store.list("")] == ["wal/a/1"]
    assert hidden(store) == []


def test_what_was_written_in_a_folder_that_is_gone_is_not_put_in_the_next(tmp_path: Path) -> None:
    store = LocalStore(str(tmp_path))
    staged = store.stage("wal/a/1", b"of the former")
    hidden(store)[0].unlink()
    store.path("wal/a").rmdir()
    store.put("wal/a/2", b"of the next")
    assert staged.put() is Put.UNKNOWN
    assert [info.path for info in store.list("")] == ["wal/a/2"]
    assert store.stage("wal/a/1", b"again").put() is Put.WRITTEN
