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
