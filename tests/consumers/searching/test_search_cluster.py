"""Searches at a node of a topic that another owns: real logs and connections."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pytest
from remote_rig import Node, owner_and_reader, run, until

from siltlog.consumers.reading.row_groups import CheckedFiles
from siltlog.consumers.searching.places import find_range
from siltlog.consumers.searching.search import Search, Wanted
from siltlog.infra.arrow.record_filter import RecordFilter
from siltlog.infra.clock import MICROS_PER_SECOND
from siltlog.infra.cluster.router import Place
from siltlog.infra.errors import Unavailable

T = TypeVar("T")


async def searching(node: Node, contains: bytes) -> Search:
    async def on_thread(work: Callable[[], T]) -> T:
        return await asyncio.to_thread(work)

    async def rest() -> None:
        await asyncio.sleep(0)

    within = await find_range(node.reads, node.fetcher.lookup, "t", None, None, None)
    return Search(node.log.store, CheckedFiles(), on_thread, rest, within, Wanted(RecordFilter(contains=contains)))


async def found(search: Search) -> list[str]:
    out: list[str] = []
    while not search.complete:
        piece = await search.step()
        if piece.rows is not None:
            out += [value.decode() for value in piece.rows.column("value").to_pylist()]
        search.reached(piece.partition, piece.next_offset)
    return out


def test_any_node_finds_what_is_in_the_table_and_at_the_owner(tmp_path: Path) -> None:
    async def test() -> None:
        async with owner_and_reader(tmp_path) as (a, b, _):
            await a.publish("t", *(f"old {n}" for n in range(20)))
            await a.flusher.drain()
            await a.publish("t", *(f"new {n}" for n in range(20)))
            await until(lambda: b.reads.topic("t").partitions[0].bounds().high_watermark == 40)
            assert b.reads.topic("t").partitions[0].far
            for node in (a, b):
                assert await found(await searching(node, b" 7")) == ["old 7", "new 7"]

    run(test())


def test_what_only_an_owner_has_that_is_gone_is_not_passed_over(tmp_path: Path) -> None:
    async def test() -> None:
        async with owner_and_reader(tmp_path) as (a, b, _):
            await a.publish("t", *(f"old {n}" for n in range(20)))
            await a.flusher.drain()
            await a.publish("t", *(f"new {n}" for n in range(20)))
            await until(lambda: b.reads.topic("t").partitions[0].bounds().high_watermark == 40)
            search = await searching(b, b" 7")
            b.routes.set("t", Place(None, away_since_us=MICROS_PER_SECOND))
            b.reads.topic("t").went(True)
            with pytest.raises(Unavailable, match="can be read up to 20"):
                await found(search)
            assert search.cursor() is not None

    run(test())
