"""A log starts again whatever its producers did before, and however many topics were deleted."""

import asyncio
from pathlib import Path

import pytest
from log_rig import LOGGER, body, running_log, stopped_log

from siltlog.infra import names
from siltlog.infra.clock import SystemClock
from siltlog.infra.errors import SiltlogError
from siltlog.infra.store.store import open_store
from siltlog.infra.table.entries import entry_path
from siltlog.infra.table.opening import ends_deleted
from siltlog.infra.table.table import TopicTable
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


@pytest.mark.rule("S11")
def test_of_deleted_topics_no_table_is_opened(tmp_path: Path) -> None:
    """Not even one that could not be."""

    async def run() -> None:
        async with running_log(tmp_path, Disk()) as (log, topics):
            for name in ("kept", "gone", "again"):
                await topics.create(name, 1, {})
            await topics.delete("gone")
            await topics.delete("again")
            await topics.create("again", 2, {})
            store = log.store
        assert [name for name in ("kept", "gone", "again") if ends_deleted(store, name)] == ["gone"]
        store.put(entry_path("gone", 0), b"no entry\n{}\n")
        with pytest.raises(SiltlogError, match="is damaged"):
            TopicTable.open(store, "gone", SystemClock())
        async with running_log(tmp_path, Disk()) as (log, topics):
            assert {topic.name: len(topic.partitions) for topic in log.topics()} == {"kept": 1, "again": 2}

    asyncio.run(run())


@pytest.mark.rule("S11")
def test_what_the_wal_has_of_a_topic_that_another_deleted_is_let_go(tmp_path: Path) -> None:
    async def run() -> None:
        async with running_log(tmp_path, Disk()) as (log, topics):
            topic = await topics.create("t", 1, {})
            await log.append(topic, body("v"), None).durable
            root = log.store.root_uri
        TopicTable.open(open_store(root), "t", SystemClock()).delete("by-another")
        async with running_log(tmp_path, Disk()) as (log, topics):
            assert not log.topics()
            assert not log.topic_logs.former_ids()

    asyncio.run(run())


@pytest.mark.rule("S11")
def test_a_table_that_may_be_there_is_looked_at_whole(tmp_path: Path) -> None:
    """Where the last entry is cut short, or the log begins elsewhere, it does not say that the topic is deleted."""

    async def run() -> None:
        async with running_log(tmp_path, Disk()) as (log, topics):
            await topics.create("t", 1, {})
            await topics.delete("t")
            store = log.store
        last = max(info.path for info in store.list(f"{names.topic_path('t')}/_delta_log"))
        content = store.get(last)
        store.put(last, content[:-20])
        assert not ends_deleted(store, "t")
        store.put(last, content)
        assert ends_deleted(store, "t")
        store.put(names.cleaned_object("t", 1), b"")
        assert not ends_deleted(store, "t")
        assert not ends_deleted(store, "never")

    asyncio.run(run())
