"""Heads at other nodes: real logs and connections."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from log_rig import body
from remote_rig import Node, owner_and_reader, run, settle, until, values

from siltlog.consumers.reading.fetch import FetchPosition, FetchResult
from siltlog.consumers.reading.heads import HEADS_AT_ONCE
from siltlog.infra.errors import problem
from siltlog.ingest.log.topic import TopicLog

PARTITIONS = HEADS_AT_ONCE + 4
EACH = 30


async def many_partitions(a: Node, b: Node) -> TopicLog:
    """A topic of the first node's, of which the second knows where each of its partitions ends."""
    topic = await a.made.create("many", PARTITIONS, {"flush.ms": 3_600_000})
    settle(topic, a, (a, b))
    await b.reads.loaded()
    for partition in range(PARTITIONS):
        published = body(*(f"{partition}-{number}" for number in range(EACH)), partition=partition)
        await a.log.append(topic, published, None).durable
    await until(lambda: all(one.bounds().high_watermark == EACH for one in b.reads.topic("many").partitions))
    return topic


async def fetch(node: Node, *, max_records: int = 10_000) -> FetchResult:
    positions = [FetchPosition("many", partition, 0) for partition in range(PARTITIONS)]
    return await node.fetcher.fetch(positions, max_records=max_records, max_bytes=1 << 20, min_bytes=1, wait_ms=0)


def counting(node: Node, monkeypatch: pytest.MonkeyPatch, before: Callable[[Any, int], Awaitable[None]]) -> list[int]:
    """What is asked of owners waits for `before`; the list has how many were under way when each began."""
    under_way: list[int] = []
    now = [0]
    asked = node.reads.head

    async def head(topic: Any, partition: int, *rest: Any) -> Any:
        now[0] += 1
        under_way.append(now[0])
        try:
            await before(topic, partition)
            return await asked(topic, partition, *rest)
        finally:
            now[0] -= 1

    monkeypatch.setattr(node.reads, "head", head)
    return under_way


def test_they_are_asked_for_at_once_and_nothing_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        async with owner_and_reader(tmp_path) as (a, b, _):
            await many_partitions(a, b)
            under_way = counting(b, monkeypatch, lambda *_: asyncio.sleep(0.02))
            parts = (await fetch(b)).partitions
            assert max(under_way) == HEADS_AT_ONCE
            assert len(under_way) == PARTITIONS, "nobody is asked twice"
            for partition, part in enumerate(parts):
                assert values(part) == [f"{partition}-{number}" for number in range(EACH)]
                assert part.next_offset == EACH

    run(test())


def test_an_owner_is_asked_for_little_more_than_a_partition_may_take(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test() -> None:
        async with owner_and_reader(tmp_path) as (a, b, _):
            await many_partitions(a, b)
            given: list[int] = []
            asked = b.reads.head

            async def head(*rest: Any) -> Any:
                batches, version = await asked(*rest)
                given.append(sum(batch.num_rows for batch in batches))
                return batches, version

            monkeypatch.setattr(b.reads, "head", head)
            positions = [FetchPosition("many", partition, 0, max_bytes=100) for partition in range(PARTITIONS)]
            result = await b.fetcher.fetch(positions, max_records=10_000, max_bytes=1 << 20, min_bytes=1, wait_ms=0)
            assert [part.count for part in result.partitions] == [100 // 24] * PARTITIONS
            assert max(given) < EACH / 2

    run(test())


@pytest.mark.parametrize("max_records", [1, PARTITIONS - 1, PARTITIONS * EACH - 1])
def test_a_reply_has_no_more_than_it_may_and_readers_get_everything(tmp_path: Path, max_records: int) -> None:
    async def test() -> None:
        async with owner_and_reader(tmp_path) as (a, b, _):
            await many_partitions(a, b)
            found: dict[int, list[str]] = {partition: [] for partition in range(PARTITIONS)}
            at = dict.fromkeys(found, 0)
            for _ in range(PARTITIONS * EACH):
                result = await b.fetcher.fetch(
                    [FetchPosition("many", partition, offset) for partition, offset in at.items()],
                    max_records=max_records,
                    max_bytes=1 << 20,
                    min_bytes=1,
                    wait_ms=0,
                )
                assert result.count <= max_records
                for partition, part in enumerate(result.partitions):
                    found[partition] += values(part)
                    at[partition] = part.next_offset
                if not result.count:
                    break
            assert found == {one: [f"{one}-{number}" for number in range(EACH)] for one in range(PARTITIONS)}

    run(test())


@pytest.mark.parametrize(("max_records", "asked"), [(1, 1), (EACH, 1), (3 * EACH, 3)])
def test_only_those_with_a_place_in_the_reply_are_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, max_records: int, asked: int
) -> None:
    async def test() -> None:
        async with owner_and_reader(tmp_path) as (a, b, _):
            await many_partitions(a, b)
            under_way = counting(b, monkeypatch, lambda *_: asyncio.sleep(0))
            result = await fetch(b, max_records=max_records)
            assert result.count == max_records
            assert len(under_way) == asked

    run(test())


def test_one_that_cannot_be_had_is_told_with_its_partition(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        async with owner_and_reader(tmp_path) as (a, b, _):
            await many_partitions(a, b)

            async def refused(topic: Any, partition: int) -> None:
                if partition == 3:
                    raise problem("topic_unavailable", "no answer", topic=topic.name)

            under_way = counting(b, monkeypatch, refused)
            parts = (await fetch(b)).partitions
            assert len(under_way) == PARTITIONS, "nor is who gave no answer asked again"
            assert [part.position.partition for part in parts if part.error] == [3]
            assert parts[3].next_offset == 0
            assert all(len(values(part)) == EACH for part in parts if part is not parts[3])

    run(test())


@pytest.mark.rule("CR11")
def test_what_only_an_owner_had_that_goes_meanwhile_is_not_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test() -> None:
        async with owner_and_reader(tmp_path) as (a, b, _):
            await many_partitions(a, b)
            found = b.reads.topic("many")

            async def goes(topic: Any, partition: int) -> None:
                if partition == PARTITIONS - 1:
                    found.went(True)  # type: ignore[attr-defined]

            counting(b, monkeypatch, goes)
            parts = (await fetch(b)).partitions
            assert [(values(part), part.next_offset) for part in parts] == [([], 0)] * PARTITIONS

    run(test())
