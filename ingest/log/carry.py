"""Carries the records of a topic that cannot be flushed forward in the WAL, so that the others' segments can go."""

import asyncio

from siltlog.ingest.log.head import load
from siltlog.ingest.log.log import Log
from siltlog.ingest.log.partition import PartitionLog
from siltlog.ingest.log.topic import TopicLog
from siltlog.ingest.records.batch import LogBatch
from siltlog.ingest.wal import Location


async def carry_forward(log: Log, topic: TopicLog) -> int:
    """Writes the unflushed records of the topic's partitions that pin the oldest segment once more; how many bytes.

    The topic must have stopped taking records. Offsets stay: recovery takes whichever copy it finds.
    """
    pinning = set(log.wal.oldest_pinning(log.topic_logs.table_offset))
    carried = 0
    await log.group_commit.commit()
    for partition in topic.partitions:
        if (topic.id_bytes, partition.partition) in pinning:
            carried += await _carry_partition(log, partition)
    return carried


async def _carry_partition(log: Log, partition: PartitionLog) -> int:
    chunks = list(partition.head.between(partition.offsets.table, partition.offsets.synced))
    first_segment: int | None = None
    carried = 0
    for chunk in chunks:
        with partition.held([chunk]):
            batch = await asyncio.to_thread(load, chunk, log.wal)
        location = await _write(log, partition, batch)
        chunk.frames, chunk.times = ((batch.first_offset, location),), chunk.times[:1]
        carried += location.length
        first_segment = location.segment if first_segment is None else first_segment
    if first_segment is not None:
        log.wal.unpin(partition.topic.id_bytes, partition.partition, first_segment)
    return carried


async def _write(log: Log, partition: PartitionLog, batch: LogBatch) -> Location:
    loop = asyncio.get_running_loop()
    written: asyncio.Future[Location] = loop.create_future()
    frame = partition.frame(batch)
    # A run with larger segments may have taken it.
    await asyncio.to_thread(log.wal.check_disk, frame.payload_bytes)

    def durable(locations: list[Location]) -> None:
        loop.call_soon_threadsafe(written.set_result, locations[0])

    log.wal.submit([frame], durable)
    return await written
