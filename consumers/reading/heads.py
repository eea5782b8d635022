"""Heads of partitions that other nodes own, asked for at once: each takes a request, which a read would wait for."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from siltlog.consumers.reading.budget import Budget, Share, head_bytes
from siltlog.consumers.reading.view import PartitionView
from siltlog.infra.errors import SiltlogError

HEADS_AT_ONCE = 16

Head = Sequence[pa.RecordBatch] | SiltlogError
"""What a head gave, nothing where it begins above what was asked for; or why it gave nothing."""


@dataclass(frozen=True, slots=True)
class Wanted:
    view: PartitionView
    offset: int
    end: int
    share: Share


async def read_heads(wanted: Mapping[int, Wanted], budget: Budget, producers: bool) -> dict[int, Head]:
    """Asks for the first heads, by their keys, until what they have fills the reply: what comes after would be thrown
    away. Each is asked for an equal part of what the budget has left, of which nothing is taken, and for little more
    than its share allows."""
    limit = asyncio.Semaphore(HEADS_AT_ONCE)
    first = _with_a_place(wanted, budget.records_left)
    records, equal = (max(left // max(len(first), 1), 1) for left in (budget.records_left, budget.bytes_left))

    async def head_of(one: Wanted) -> Head:
        async with limit:
            try:
                nbytes = min(equal, head_bytes(budget, one.share))
                return await one.view.read_head(one.offset, one.end, records, nbytes, producers) or ()
            except SiltlogError as error:
                return error

    return dict(zip(first, await asyncio.gather(*map(head_of, first.values())), strict=True))


def _with_a_place(wanted: Mapping[int, Wanted], records: int) -> Mapping[int, Wanted]:
    first = {}
    for key, one in wanted.items():
        if records <= 0:
            break
        first[key] = one
        records -= one.end - one.offset
    return first
