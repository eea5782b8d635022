import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fake_log import FakeLog, FakePartition

from siltlog.consumers.reading.fetch import FetchPosition
from siltlog.consumers.reading.files import FileLister
from siltlog.consumers.reading.waiting import Waits
from siltlog.infra.listing.file_list import FileLists
from siltlog.infra.store.local import LocalStore

FOREVER_MS = 600_000


class Rig:
    def __init__(self, folder: Path) -> None:
        self.log = FakeLog(LocalStore(str(folder)))
        self.topic = self.log.create("flights", 3)
        self.waits = Waits()
        self.lister = FileLister(self.log, self.waits, "the-cluster")

    async def list(self, *positions: FetchPosition, max_files: int = 100, wait_ms: int = 0) -> FileLists:
        return await self.lister.list(positions, max_files=max_files, wait_ms=wait_ms)

    def fill(self, partition: int, files: int, rows: int = 10) -> FakePartition:
        view = self.topic.partitions[partition]
        for _ in range(files):
            view.append([b"v"] * rows)
            view.flush()
        return view

    @property
    def watchers(self) -> int:
        return sum(len(view.callbacks) for view in self.topic.partitions)


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    return Rig(tmp_path)


def at(partition: int, offset: int = 0, topic_id: str | None = None) -> FetchPosition:
    return FetchPosition("flights", partition, offset, topic_id=topic_id)


def run(body: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(body())


async def settled() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


def test_lists_the_files_that_hold_what_comes_next(rig: Rig) -> None:
    async def body() -> None:
        rig.fill(0, 5).append([b"only in the head"])
        lists = await rig.list(at(0, 15), max_files=2)
        assert (lists.cluster_id, lists.root_uri) == ("the-cluster", rig.log.store.root_uri)
        (part,) = lists.partitions
        assert [(file.first_offset, file.last_offset, file.rows) for file in part.files] == [(10, 19, 10), (20, 29, 10)]
        assert part.next_offset == 30
        assert part.topic_id == rig.topic.topic_id
        assert part.bounds == (0, 50, 51)
        stored = rig.topic.snapshot.files_of(0)[1]
        assert (part.files[0].path, part.files[0].footer_crc) == (stored.path, stored.footer_crc)
        (rest,) = (await rig.list(at(0, 30))).partitions
        assert [file.first_offset for file in rest.files] == [30, 40]
        assert rest.next_offset == 50
        (end,) = (await rig.list(at(0, 50))).partitions
        assert (end.files, end.next_offset, end.error) == ([], 50, None)

    run(body)


def test_offsets_that_name_no_record_are_covered(rig: Rig) -> None:
    async def body() -> None:
        view = rig.fill(0, 3)
        view.rewrite(rig.topic.snapshot.files_of(0)[1:2], without=range(10, 20))
        view.jump(1_000)
        (part,) = (await rig.list(at(0))).partitions
        assert [file.first_offset for file in part.files] == [0, 20]
        assert part.next_offset == 1_000
        (jumped,) = (await rig.list(at(0, 30))).partitions
        assert (jumped.files, jumped.next_offset) == ([], 1_000)

    run(body)


def test_every_partition_gets_a_file(rig: Rig) -> None:
    async def body() -> None:
        for partition in range(3):
            rig.fill(partition, 4)
        lists = await rig.list(at(0), at(1), at(2), max_files=5)
        assert [len(part.files) for part in lists.partitions] == [4, 1, 1]
        assert [part.next_offset for part in lists.partitions] == [40, 10, 10]

    run(body)


def test_problems_are_of_their_partition(rig: Rig) -> None:
    async def body() -> None:
        rig.fill(0, 3).retain(15)
        rig.fill(2, 1)
        lists = await rig.list(at(0, 3), at(1, 9), at(7), at(2, 0, "another"), at(2, 0, rig.topic.topic_id))
        codes = [part.error and part.error["error_code"] for part in lists.partitions]
        assert codes == ["offset_out_of_range", "offset_out_of_range", "unknown_partition", "unknown_topic", None]
        assert lists.partitions[0].bounds == (15, 30, 30)
        assert [len(part.files) for part in lists.partitions] == [0, 0, 0, 0, 1]

    run(body)


def test_files_that_overlap_are_damage(rig: Rig) -> None:
    async def body() -> None:
        rig.fill(0, 2)
        _, second = rig.topic.snapshot.files_of(0)
        rig.topic.commit(removes=[second], adds=[replace(second, first_offset=5)])
        (part,) = (await rig.list(at(0))).partitions
        assert part.error is not None
        assert (part.error["error_code"], part.error["first_offset"], part.files) == ("corrupt_data", 5, [])

    run(body)


class TestWaiting:
    def test_only_the_table_ends_it(self, rig: Rig) -> None:
        async def body() -> None:
            view = rig.fill(0, 1)
            listing = asyncio.ensure_future(rig.list(at(0, 10), at(1), wait_ms=FOREVER_MS))
            await settled()
            for _ in range(5):
                view.append([b"v"])
                await settled()
                assert not listing.done()
            view.flush()
            first, second = (await listing).partitions
            assert (len(first.files), first.next_offset) == (1, 15)
            assert (second.files, second.next_offset) == ([], 0)
            assert (rig.watchers, len(rig.waits.open)) == (0, 0)

        run(body)

    @pytest.mark.parametrize("change", ["deleted", "retained"])
    def test_what_makes_it_vain_ends_it(self, rig: Rig, change: str) -> None:
        async def body() -> None:
            rig.fill(0, 1)
            listing = asyncio.ensure_future(rig.list(at(0, 10), wait_ms=FOREVER_MS))
            await settled()
            if change == "deleted":
                rig.log.delete("flights")
            else:
                rig.topic.commit(transactions={"offset/0": 20, "start/0": 20})
                rig.topic.partitions[0].high_watermark = 20
                rig.topic.partitions[0].moved()
            (part,) = (await listing).partitions
            assert part.error is not None
            assert part.error["error_code"] == ("unknown_topic" if change == "deleted" else "offset_out_of_range")

        run(body)

    def test_it_ends_in_time_and_with_the_server(self, rig: Rig) -> None:
        async def body() -> None:
            (part,) = (await rig.list(at(0), wait_ms=20)).partitions
            assert (part.files, part.error) == ([], None)
            listing = asyncio.ensure_future(rig.list(at(0), wait_ms=FOREVER_MS))
            await settled()
            rig.waits.wake()
            assert (await listing).partitions[0].files == []

        run(body)
