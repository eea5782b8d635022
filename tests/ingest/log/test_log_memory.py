"""What the log keeps in memory."""

import asyncio
from pathlib import Path

import pytest
from log_rig import GatedDisk, body, running_log

MIB = 1024 * 1024
"""The budget of `running_log`."""


@pytest.mark.rule("P11")
def test_the_oldest_leaves_the_memory_and_its_frames_stay(tmp_path: Path) -> None:
    async def run() -> None:
        async with running_log(tmp_path, GatedDisk()) as (log, topics):
            topic = await topics.create("t", 2, {"flush.ms": 3_600_000})
            for number in range(10):
                await log.append(topic, body("x" * (MIB // 4), partition=number % 2), None).durable
                assert log.head_bytes() <= MIB
            for partition in topic.partitions:
                head = partition.head
                assert (head.start, head.end) == (0, 5), "all of it can be read"
                resident = [chunk.batch is not None for chunk in head.chunks]
                assert resident == sorted(resident) and not resident[0] and resident[-1]

    asyncio.run(run())


def test_a_read_has_what_small_requests_left_as_one_batch_and_large_ones_as_they_are(tmp_path: Path) -> None:
    sizes = [20_000] * 6 + [300_000] + [20_000] * 2

    async def run() -> None:
        async with running_log(tmp_path, GatedDisk()) as (log, topics):
            topic = await topics.create("t", 1, {"flush.ms": 3_600_000})
            for size in sizes:
                await log.append(topic, body("x" * size), None).durable
            [partition] = topic.partitions
            assert len(partition.head.chunks) == len(sizes), "each is by itself in memory"
            read = await partition.read_head(1, len(sizes), 1_000, MIB)
            assert read is not None
            assert [batch.num_rows for batch in read] == [5, 1, 2]
            offsets = [offset for batch in read for offset in batch.column("offset").to_pylist()]
            values = [len(value) for batch in read for value in batch.column("value").to_pylist()]
            assert (offsets, values) == (list(range(1, len(sizes))), sizes[1:])

    asyncio.run(run())
