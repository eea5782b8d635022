"""A reader beside flushes, evictions, compactions, retention and vacuum that happen at every point where it waits."""

import asyncio
from pathlib import Path

import pytest
from chaos import seeds
from fake_log import FakeLog
from fake_world import World

from siltlog.consumers.reading.budget import Budget, Share
from siltlog.consumers.reading.reader import Isolation, Reader
from siltlog.consumers.reading.row_groups import RowGroup, RowGroups
from siltlog.infra.errors import OffsetOutOfRange
from siltlog.infra.store.local import LocalStore
from siltlog.infra.table.data_file import DataFile

READS = 120


class PausingRowGroups(RowGroups):
    """Lets the world move before and after each look at the table."""

    log: FakeLog
    reads_ahead: bool

    def ahead(self, topic: str, file: DataFile, offset: int, producers: bool = False) -> bool:
        return self.reads_ahead and super().ahead(topic, file, offset, producers)

    async def at(self, topic: str, file: DataFile, offset: int, producers: bool = False) -> RowGroup:
        await self.log.pause()
        group = await super().at(topic, file, offset, producers)
        await self.log.pause()
        return group


@pytest.mark.chaos
@pytest.mark.parametrize("isolation", ["wal", "table"])
@pytest.mark.parametrize("seed", seeds(12))
def test_no_offset_is_skipped_or_given_twice(tmp_path: Path, seed: int, isolation: Isolation) -> None:
    log = FakeLog(LocalStore(str(tmp_path)))
    topic = log.create("flights")
    view = topic.partitions[0]
    row_groups = PausingRowGroups(log.store, bytes_max=[1, 4_000, 1 << 30][seed % 3], reads_max=2)
    row_groups.log = log
    row_groups.reads_ahead = seed % 2 == 0
    world = World(log, view, seed)
    seen: list[int] = []
    excused: set[int] = set()

    async def body() -> None:
        reader = Reader(row_groups)
        offset = 0
        for turn in range(READS + 1):
            await log.pause()
            if turn == READS:
                world.flush()
                view.flush()

                async def still() -> None:
                    """The world has ended: the last read sees all that is left."""

                log.pause = still
            records, nbytes = (1 << 40, 1 << 40) if turn == READS else (world.random.randint(1, 30), 10_000)
            try:
                read = await reader.read(topic, view, offset, Budget(records, nbytes), Share(), isolation)
            except OffsetOutOfRange:
                start = view.bounds().log_start_offset
                assert offset < start
                excused.update(range(offset, start))
                offset = start
                continue
            for batch in read.batches:
                numbers = batch.column("offset").to_pylist()
                assert batch.column("value").to_pylist() == [b"value %d" % number for number in numbers]
                seen.extend(numbers)
            assert all(number < read.next_offset for number in seen)
            assert offset <= read.next_offset <= read.bounds.high_watermark
            offset = read.next_offset

    asyncio.run(body())
    row_groups.close()
    assert seen == sorted(set(seen))
    assert set(world.published) - set(seen) <= world.compacted | excused
    assert len(seen) > 100
