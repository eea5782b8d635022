"""A node tells who published what another owns: by its head, then by the table; and one cannot say it yet."""

from pathlib import Path
from typing import ClassVar

import msgspec
import pyarrow as pa
import pytest
from remote_rig import Node, owner_and_reader, run, until, values

from siltlog.consumers.remote import messages
from siltlog.infra.errors import Unavailable
from siltlog.ingest.producers.check import Producer


@pytest.mark.rule("CR9")
def test_who_published_is_told_by_the_owner_and_then_by_the_table(tmp_path: Path) -> None:
    async def test() -> None:
        async with owner_and_reader(tmp_path) as (a, b, topic):
            etl = Producer("etl", 2)
            for in_table in (True, True, False):
                await a.publish("t", "x", "y", by=etl)
                await a.publish("t", "z")
                if in_table:
                    await a.flusher.drain()
            end = topic.partitions[0].offsets.synced
            assert 0 < topic.partitions[0].offsets.table < end == 9
            assert topic.partitions[0].head.start == 0, "what is in the table is in memory too"
            await until(lambda: b.reads.topic("t").partitions[0].bounds().high_watermark == end)
            for reader in (a, b):
                rows = [row for batch in await batches_of(reader, end) for row in batch.to_pylist()]
                told = [(row["producer_id"], row["producer_epoch"], row["sequence"]) for row in rows]
                assert told == [
                    each for first in (0, 2, 4) for each in (("etl", 2, first), ("etl", 2, first + 1), (None,) * 3)
                ]

    async def batches_of(reader: Node, end: int) -> list[pa.RecordBatch]:
        found, offset = [], 0
        while offset < end:
            part = await reader.read("t", offset, producers=True)
            assert part.error is None, part.error
            found += part.batches
            offset = part.next_offset
        return found

    run(test())


class HeadAskedBefore(msgspec.Struct, frozen=True):
    """What a node of 0.1.0 reads of a HeadAsked."""

    topic: str
    topic_id: str
    partition: int
    offset: int = 0
    end: int = 0
    max_records: int = 0
    max_bytes: int = 0
    producers: ClassVar[bool] = False


@pytest.mark.rule("CR9")
def test_an_owner_of_an_earlier_version_which_tells_no_producers_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test() -> None:
        async with owner_and_reader(tmp_path) as (a, b, _):
            await a.publish("t", "x", by=Producer("etl", 2))
            await until(lambda: b.reads.topic("t").partitions[0].bounds().high_watermark == 1)
            monkeypatch.setattr(messages, "head_asked", msgspec.json.Decoder(HeadAskedBefore))
            assert values(await b.read("t", 0)) == ["x"]
            told = (await b.read("t", 0, producers=True)).error
            assert isinstance(told, Unavailable)
            assert "earlier version" in told.detail
            await a.flusher.drain()
            await until(lambda: b.reads.topic("t").snapshot.offsets.get(0) == 1)
            [batch] = (await b.read("t", 0, producers=True)).batches
            assert batch.column("producer_id").to_pylist() == ["etl"]

    run(test())
