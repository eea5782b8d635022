"""What the log keeps in memory."""

import asyncio
from itertools import accumulate
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


@pytest.mark.parametrize("evicted", [False, True])
def test_reads_of_any_size_have_each_record_at_its_offset(tmp_path: Path, evicted: bool) -> None:
    """Requests whose records are of very different sizes, so that reads end in the middle of one before small ones."""
    requests = [["x" * 9_000] * 3, [*"abcdefgh", "y" * 50_000], list("ijkl"), ["z" * 20_000, "m"], list("nop")]
    values = [value for request in requests for value in request]

    async def run() -> None:
        async with running_log(tmp_path, GatedDisk()) as (log, topics):
            topic = await topics.create("t", 1, {"flush.ms": 3_600_000})
            for request in requests:
                await log.append(topic, body(*request), None).durable
            [partition] = topic.partitions
            if evicted:
                for chunk in partition.head.chunks:
                    chunk.batch = None
            wanted = {*accumulate(map(len, values)), *range(1, 120_000, 700)}
            for max_bytes in sorted(wanted):
                for first in range(len(values)):
                    read = await partition.read_head(first, len(values), 1_000, max_bytes)
                    assert read
                    offsets = [offset for batch in read for offset in batch.column("offset").to_pylist()]
                    got = [value.decode() for batch in read for value in batch.column("value").to_pylist()]
                    assert offsets == list(range(first, first + len(got)))
                    assert got == values[first : first + len(got)]

    asyncio.run(run())
