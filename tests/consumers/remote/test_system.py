"""What a node appends by itself to topics of another: once where that counts, and to topics that are made for it."""

import asyncio
from pathlib import Path

import pytest
from remote_rig import owner_and_reader, run, settle, until

from siltlog.infra.cluster.router import Held, Place
from siltlog.infra.errors import OffsetOutOfRange, SiltlogError, UnknownTopic
from siltlog.infra.records import NewRecord

RECORD = NewRecord(b"k\x00", b"v\xff", (("h", b"x"), ("n", None)), 1_763_710_560_000_000)


@pytest.mark.rule("CR13")
def test_records_of_a_node_are_appended_by_their_topics_owner(tmp_path: Path) -> None:
    async def test() -> None:
        async with owner_and_reader(tmp_path) as (a, b, _):
            for node in (b, a):
                assert await node.system.append("t", 0, []) == []
            assert await b.system.append("t", 0, [RECORD, RECORD]) == [0, 1]
            once = {"producer_id": "p/1", "sequences": [7]}
            assert await b.system.append("t", 0, [RECORD], **once) == [2]  # type: ignore[arg-type]
            assert await b.system.append("t", 0, [RECORD], **once) == [None]  # type: ignore[arg-type]
            assert await a.system.append("t", 0, [RECORD], **once) == [None]  # type: ignore[arg-type]
            for node in (a, b):
                assert await node.system.last_of("t", 0, "p/1") == (7, 2)
                assert await node.system.last_of("t", 0, "p/2") is None
                assert await node.system.producers_of("t", "p/") == {"p/1"}
            await until(lambda: b.reads.topic("t").partitions[0].bounds().high_watermark == 3)
            [batch] = (await b.read("t", 2)).batches
            assert batch.select(["key", "value", "headers"]).to_pylist() == [
                {"key": b"k\x00", "value": b"v\xff", "headers": [("h", b"x"), ("n", None)]}
            ] or batch.column("key").to_pylist() == [b"k\x00"]
            with pytest.raises(SiltlogError) as refusal:
                await b.system.append("t", 9, [RECORD])
            assert refusal.value.error_code == "unknown_partition"
            with pytest.raises(UnknownTopic):
                await b.system.append("u", 0, [RECORD])

    run(test())


@pytest.mark.rule("CR13")
def test_an_append_waits_for_an_owner_and_follows_it(tmp_path: Path) -> None:
    async def test() -> None:
        async with owner_and_reader(tmp_path) as (a, b, topic):
            a.routes.set("t", Place(a.member), Held.HOLDING)
            waiting = asyncio.create_task(b.system.append("t", 0, [RECORD]))
            await asyncio.sleep(0.3)
            assert not waiting.done()
            settle(topic, a, (a, b))
            assert await waiting == [0]

    run(test())


def test_dead_letters_and_topics_of_the_system_are_made_where_they_belong(tmp_path: Path) -> None:
    async def test() -> None:
        async with owner_and_reader(tmp_path) as (a, b, _):
            making = asyncio.create_task(b.system.dead_letters("t"))
            await until(lambda: any(topic.name == "t.dlq" for topic in a.log.topics()))
            settle(a.log.topic("t.dlq"), a, (a, b))
            assert (await making).name == "t.dlq"
            assert await b.system.append("t.dlq", 0, [RECORD]) == [0]
            assert (await a.read("t.dlq", 0)).count == 1
            assert await b.system.delete_records("t.dlq", 0, 1) == 1
            assert a.log.topic("t.dlq").partition(0).bounds().log_start_offset == 1
            with pytest.raises(OffsetOutOfRange):
                await b.system.delete_records("t.dlq", 0, 2)
            # Nobody has it: it is made here.
            ensuring = asyncio.create_task(b.system.ensure("_own", 1, {"retention.ms": 1_000_000}))
            await until(lambda: any(topic.name == "_own" for topic in b.log.topics()))
            settle(b.log.topic("_own"), b, (a, b))
            assert (await ensuring).config["retention.ms"] == 1_000_000
            await until(lambda: any(topic.name == "_own" for topic in a.reads.topics()))
            assert (await a.system.ensure("_own", 1, {})).topic_id == b.log.topic("_own").topic_id
            assert (await a.system.ensure("_own", 3, {})).partitions[2].partition == 2

    run(test())
