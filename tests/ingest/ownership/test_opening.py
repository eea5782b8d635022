"""A log starts again whatever its producers did before: what it knows of them fits in a segment."""

import asyncio
from pathlib import Path

import pytest
from log_rig import LOGGER, body, running_log, stopped_log

from siltlog.ingest.log.log import Log
from siltlog.ingest.log.topic import TopicLog
from siltlog.ingest.ownership.opening import start_member
from siltlog.ingest.ownership.stranded import Stranded
from siltlog.ingest.producers.check import Producer
from siltlog.ingest.wal.disk import Disk

NAME = "x" * 190
AT_ONCE = 100
CLAIMS = 2_600
"""With such names they take more than half of a segment of the rig's, and less than its first one has room for."""


async def claim(log: Log, topic: TopicLog) -> list[int]:
    """The epochs that so many producers were given."""
    epochs: list[int] = []
    for first in range(0, CLAIMS, AT_ONCE):
        claims = [log.claim_producer(topic, f"{n}-{NAME}") for n in range(first, min(first + AT_ONCE, CLAIMS))]
        epochs += await asyncio.gather(*claims)
    return epochs


def taken(log: Log) -> int:
    return log.topic_logs.producer_bytes.producers


@pytest.mark.rule("E11")
def test_claims_alone_take_no_more_room_than_there_is(tmp_path: Path) -> None:
    async def run() -> None:
        async with running_log(tmp_path, Disk()) as (log, topics):
            topic = await topics.create("t", 1, {})
            assert len(await claim(log, topic)) == CLAIMS
            room = log.admission.producers_bytes_max
            assert room / 2 < taken(log) <= room
        async with running_log(tmp_path, Disk()) as (log, _):
            assert room / 2 < taken(log) <= room
            topic = log.topic("t")
            newest, forgotten = f"{CLAIMS - 1}-{NAME}", f"0-{NAME}"
            (last,) = [topic.producers.epochs.epoch(newest)]
            assert last > 0
            assert await log.claim_producer(topic, newest) == last + 1
            assert topic.producers.epochs.epoch(forgotten) == 0
            assert await log.claim_producer(topic, forgotten) > 1, "an epoch is given out twice"

    asyncio.run(run())


@pytest.mark.rule("E11")
def test_a_node_of_a_cluster_starts_with_as_many_as_there_is_room_for(tmp_path: Path) -> None:
    async def run() -> None:
        async with running_log(tmp_path, Disk()) as (log, topics):
            topic = await topics.create("t", 1, {})
            await claim(log, topic)
            sent = log.append(topic, body("v", first_sequence=0), Producer("newest", 0))
            await sent.durable
        log = stopped_log(tmp_path, Disk())
        recovery = await asyncio.to_thread(log.wal.recover)
        taking = await start_member(log, recovery, Stranded.beside(tmp_path), LOGGER)
        try:
            (known,) = taking.former.states()
            assert "newest" in known.partitions[0].producers
            assert f"{CLAIMS - 1}-{NAME}" in known.producer_epochs.epochs
            assert f"0-{NAME}" not in known.producer_epochs.epochs
            assert known.producer_epochs.floor > 0
        finally:
            log.journal.close()
            await asyncio.to_thread(log.wal.close)

    asyncio.run(run())
