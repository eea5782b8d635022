"""What others do to a partition beside its readers: publish, flush, evict, compact, retain, vacuum, take over."""

import asyncio
import random

from fake_log import FakeLog, FakePartition

JUMP = 1_000


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
