"""Topics that only the server makes and fills."""

import asyncio
from pathlib import Path

import pytest
from log_rig import log_starts_of, running_log

from siltlog.infra.errors import Refused, SiltlogError, UnknownTopic
from siltlog.infra.records import NewRecord
from siltlog.ingest.log.log import Log
from siltlog.ingest.log.topic import TopicLog
from siltlog.ingest.publish.inside import SystemTopics
from siltlog.ingest.publish.publishing import Publishing
from siltlog.ingest.topics.topics import Topics
from siltlog.ingest.wal.disk import Disk

CONFIG = {"cleanup.policy": "compact"}


def system(log: Log, topics: Topics) -> SystemTopics:
    return SystemTopics(log, topics, Publishing(log, lambda: None, None), log_starts_of(log))


async def stored(log: Log, topic: str, partition: int = 0) -> list[dict[str, object]]:
    view = log.topic(topic).partitions[partition]
    batches = await view.read_head(0, view.bounds().high_watermark, 1_000, 1 << 20)
    assert batches is not None
    return [row for batch in batches for row in batch.to_pylist()]


def test_a_record_that_the_server_appends_is_read_as_it_was_given(tmp_path: Path) -> None:
    async def run() -> None:
        async with running_log(tmp_path, Disk()) as (log, topics):
            _system = system(log, topics)
            await _system.ensure("_offsets", 1, CONFIG)
            records = [
                NewRecord(b"k", b"v", (("a", b"1"), ("a", None)), 1_763_710_560_123_456),
                NewRecord(b"k", None),
            ]
            assert await _system.append("_offsets", 0, records) == [0, 1]
            assert await _system.append("_offsets", 0, []) == []
            first, second = await stored(log, "_offsets")
            assert (first["key"], first["value"]) == (b"k", b"v")
            assert first["headers"] == [{"key": "a", "value": b"1"}, {"key": "a", "value": None}]
            assert (second["key"], second["value"]) == (b"k", None)

    asyncio.run(run())


def test_a_system_topic_is_made_once_and_found_after_a_restart(tmp_path: Path) -> None:
    async def run() -> None:
        async with running_log(tmp_path, Disk()) as (log, topics):
            first, second = await asyncio.gather(*(system(log, topics).ensure("_offsets", 1, CONFIG) for _ in range(2)))
            assert first is second
            assert first.config["cleanup.policy"] == "compact"
            await system(log, topics).append("_offsets", 0, [NewRecord(b"k", b"1")])
        async with running_log(tmp_path, Disk()) as (log, topics):
            again = await system(log, topics).ensure("_offsets", 1, CONFIG)
            assert again.topic_id == first.topic_id
            assert await system(log, topics).append("_offsets", 0, [NewRecord(b"k", b"2")]) == [1]

    asyncio.run(run())


def test_dead_letters_have_their_topics_partitions_and_grow_with_it(tmp_path: Path) -> None:
    async def run() -> None:
        async with running_log(tmp_path, Disk()) as (log, topics):
            await topics.create("orders", 2, {})
            dead = await system(log, topics).dead_letters("orders")
            assert (dead.name, len(dead.partitions)) == ("orders.dlq", 2)
            await topics.alter("orders", 5, {})
            assert len(dead.partitions) == 5
            assert await system(log, topics).dead_letters("orders") is dead
            assert await system(log, topics).append("orders.dlq", 4, [NewRecord(None, b"v")]) == [0]
            with pytest.raises(UnknownTopic):
                await system(log, topics).dead_letters("nothing")

    asyncio.run(run())


def test_the_largest_record_fits_among_the_dead_letters(tmp_path: Path) -> None:
    async def run() -> None:
        async with running_log(tmp_path, Disk()) as (log, topics):
            await topics.create("orders", 1, {"max.record.bytes": 10_000})
            await system(log, topics).dead_letters("orders")
            largest = NewRecord(None, b"v" * 10_000, (("silt.error", b"e" * 4_096),))
            with pytest.raises(Refused):
                await system(log, topics).append("orders", 0, [largest])
            assert await system(log, topics).append("orders.dlq", 0, [largest]) == [0]

    asyncio.run(run())


def test_dead_letters_do_not_outlive_their_topic(tmp_path: Path) -> None:
    async def run() -> None:
        async with running_log(tmp_path, Disk()) as (log, topics):
            await topics.create("orders", 1, {})
            dead = await system(log, topics).dead_letters("orders")
            await system(log, topics).append("orders.dlq", 0, [NewRecord(None, b"old")])
            await topics.delete("orders")
            assert log.topics() == ()
            await topics.create("orders", 1, {})
            anew = await system(log, topics).dead_letters("orders")
            assert anew.topic_id != dead.topic_id
            assert await stored(log, "orders.dlq") == []

    asyncio.run(run())


def test_dead_letters_of_dead_letters_and_those_made_meanwhile_go_with_the_topic(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def run() -> None:
        async with running_log(tmp_path, Disk()) as (log, topics):
            await topics.create("orders", 1, {})
            await topics.create("other", 1, {})
            dead_letters = system(log, topics).dead_letters
            for name in ("orders", "orders.dlq", "other"):
                await dead_letters(name)
            delete = topics._delete

            async def gives_up_first(topic: TopicLog) -> None:
                if topic.name == "orders":
                    await dead_letters("orders")
                await delete(topic)

            monkeypatch.setattr(topics, "_delete", gives_up_first)
            await topics.delete("orders")
            assert [topic.name for topic in log.topics()] == ["other", "other.dlq"]

    asyncio.run(run())


def test_what_a_producer_appended_before_is_dropped(tmp_path: Path) -> None:
    async def run() -> None:
        async with running_log(tmp_path, Disk()) as (log, topics):
            await topics.create("orders", 2, {})
            append = system(log, topics).append
            records = [NewRecord(None, value) for value in (b"a", b"b", b"c")]
            assert await append("orders", 1, records[:2], producer_id="replay:1", sequences=[3, 7]) == [0, 1]
            assert await append("orders", 1, records, producer_id="replay:1", sequences=[3, 7, 9]) == [None, None, 2]
            assert await append("orders", 1, records[:1], producer_id="replay:1", sequences=[3]) == [None]
            assert [row["value"] for row in await stored(log, "orders", 1)] == [b"a", b"b", b"c"]
        async with running_log(tmp_path, Disk()) as (log, topics):
            append = system(log, topics).append
            assert await append("orders", 1, records, producer_id="replay:1", sequences=[3, 7, 9]) == [None] * 3

    asyncio.run(run())


@pytest.mark.parametrize("name", ["_offsets", "orders.dlq"])
def test_users_do_not_make_change_or_delete_a_system_topic(tmp_path: Path, name: str) -> None:
    async def run() -> None:
        async with running_log(tmp_path, Disk()) as (log, topics):
            with pytest.raises(SiltlogError) as refused:
                await topics.create(name, 1, {})
            assert refused.value.error_code == "invalid_request"
            await topics.create("orders", 1, {})
            await system(log, topics).ensure(name, 1, {})
            for call in (topics.alter(name, 2, {}), topics.alter(name, None, {"acks": "none"}), topics.delete(name)):
                with pytest.raises(SiltlogError) as refused:
                    await call
                assert refused.value.error_code == "forbidden"

    asyncio.run(run())
