"""A reader beside flushes, evictions, compactions, retention and vacuum that happen at every point where it waits."""

import asyncio
import random
from pathlib import Path

import pytest
from fake_log import FakeLog, FakePartition

from siltlog.consumers.budget import Budget, Share
from siltlog.consumers.reader import Isolation, Reader
from siltlog.consumers.row_groups import RowGroup, RowGroups
from siltlog.infra.data_file import DataFile
from siltlog.infra.errors import OffsetOutOfRange
from siltlog.infra.local_store import LocalStore

READS = 120
JUMP = 1_000


class PausingRowGroups(RowGroups):
    """Lets the world move before and after each look at the table."""

    log: FakeLog
    reads_ahead: bool

    def ahead(self, topic: str, file: DataFile, offset: int) -> bool:
        return self.reads_ahead and super().ahead(topic, file, offset)

    async def at(self, topic: str, file: DataFile, offset: int) -> RowGroup:
        await self.log.pause()
        group = await super().at(topic, file, offset)
        await self.log.pause()
        return group


class World:
    """Everything that others do to a partition, one step at a time, in the order a seed gives."""

    def __init__(self, log: FakeLog, view: FakePartition, seed: int) -> None:
        self.random = random.Random(seed)
        self.view = view
        self.published: list[int] = []
        self.compacted: set[int] = set()
        log.pause = self.step

    async def step(self) -> None:
        for _ in range(self.random.choice((0, 0, 1, 3))):
            action = self.random.choices(
                (self.append, self.flush, self.evict, self.compact, self.retain, self.jump), (30, 20, 20, 8, 3, 2)
            )[0]
            action()
        if self.random.random() < 0.2:
            await asyncio.sleep(0)

    def append(self) -> None:
        first = self.view.high_watermark
        count = self.random.randint(1, 6)
        self.view.append([b"value %d" % offset for offset in range(first, first + count)])
        self.published += range(first, first + count)

    def flush(self) -> None:
        table_offset, end = self.view.bounds()[1:]
        if end > table_offset:
            self.view.flush(self.random.randint(table_offset + 1, end))

    def evict(self) -> None:
        self.view.evict(self.random.randint(self.view.head_start, self.view.bounds().table_offset + 1))

    def compact(self) -> None:
        files = self.view.topic.snapshot.files_of(0)
        if len(files) < 2:
            return
        start = self.random.randrange(len(files) - 1)
        chosen = files[start : start + self.random.randint(2, 4)]
        among = [at for at in self.published if chosen[0].first_offset <= at <= chosen[-1].last_offset]
        gone = [offset for offset in among if self.random.random() < 0.2] if self.random.random() < 0.5 else []
        self.compacted.update(gone)
        self.view.rewrite(chosen, without=gone, vacuum=self.random.random() < 0.5)

    def retain(self) -> None:
        start, table_offset, _ = self.view.bounds()
        if table_offset - start > 20:
            self.view.retain(self.random.randint(start, start + 10), vacuum=self.random.random() < 0.5)

    def jump(self) -> None:
        if self.view.bounds().table_offset == self.view.high_watermark:
            self.view.jump(self.view.high_watermark + JUMP)


@pytest.mark.parametrize("isolation", ["wal", "table"])
@pytest.mark.parametrize("seed", range(12))
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
